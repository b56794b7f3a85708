"""All axes of a magnetic field as one map: a robot that turns, its norm and components on every topic; GridMap."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from geometry_msgs.msg import Pose
from questions import question
from rclpy.qos import QoSProfile
from ros_helpers import (
    NS,
    cloud_array,
    grid_array,
    magnetic_field,
    odometry,
    place_at,
    settle,
    spin_until,
)
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray, Header

from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.ros.wire import outbound

AXES = tuple(f"{what}_{axis}" for axis in "xyz" for what in ("mean", "stddev"))
PLACES = [[0.5, 0.1, 0.0], [1.3, 0.2, 0.0], [1.0, 0.5, 0.0]]


def components(x, y):
    """(…, 3) tesla in the map's axes."""
    return np.stack(
        [20e-6 + 4e-6 * np.sin(1.5 * x), 5e-6 * np.cos(1.1 * y), -40e-6 + 3e-6 * np.sin(x + y)], -1
    )


def drive(node, seconds: float, rate: int = 50) -> None:
    """The robot turns as it goes, and its magnetometer with it."""
    ports = {port.role: port for port in node.inputs.ports}
    for i in range(round(seconds * rate) + 1):
        t = i / rate
        stamp, (x, y), yaw = 1_700_000_000 * NS + round(t * NS), place_at(t), 0.7 * t
        pose = odometry(stamp, x, y)
        pose.pose.pose.orientation.z, pose.pose.pose.orientation.w = (
            math.sin(yaw / 2),
            math.cos(yaw / 2),
        )
        bx, by, bz = components(x, y)
        field = magnetic_field(stamp, bz)
        field.magnetic_field.x = float(bx * math.cos(yaw) + by * math.sin(yaw))
        field.magnetic_field.y = float(-bx * math.sin(yaw) + by * math.cos(yaw))
        node._on_input(ports["measurement"], field)
        node._on_input(ports["pose"], pose)


def test_a_robot_that_turns_maps_all_components_as_one(node_of):
    node, peer = node_of(field_component="xyz", heading_stddev=0.0)
    topics = {
        name: peer.listen(kind, f"/mapping/{name}")
        for name, kind in (
            ("field", PointCloud2),
            ("mean", outbound.OccupancyGrid),
            ("limits", Float64MultiArray),
        )
    }
    asked = peer.node.create_publisher(PointCloud2, "/mapping/query", QoSProfile(depth=10))
    answers = peer.listen(PointCloud2, "/mapping/query_result", QoSProfile(depth=10))
    drive(node, 6.0)
    settle(node, peer)
    spin_until(
        node,
        peer,
        lambda: (
            all(topics.values())
            and asked.get_subscription_count()
            and node.worker.results
            and node.worker.results.revision
            == node.worker.revision
            == node.publishers_._outputs["field"].revision
        ),
    )
    spin_until(
        node,
        peer,
        lambda: (
            topics["field"][-1].width == int(node.worker.results.grid.known.sum())
            and grid_array(topics["mean"][-1]).max() > 80
        ),
    )
    points = cloud_array(topics["field"][-1], ("x", "y", "z", "intensity", "mean", "stddev", *AXES))
    true = components(points[:, 0], points[:, 1])
    means, spreads = points[:, 6::2], points[:, 7::2]
    assert len(points) > 100 and (np.abs(means - true) < 3.0 * spreads).mean() > 0.97
    np.testing.assert_allclose(points[:, 4], np.linalg.norm(means, axis=1), rtol=1e-5)
    assert (np.abs(points[:, 4] - np.linalg.norm(true, axis=1)) < 3.0 * points[:, 5]).mean() > 0.97
    near = points[:, 5] < np.quantile(points[:, 5], 0.1)
    assert np.sqrt(((means - true)[near] ** 2).mean()) < 1e-6
    low, high = topics["limits"][-1].data[:2]
    assert low <= points[:, 4].min() and points[:, 4].max() <= high

    asked.publish(question(PLACES))
    spin_until(node, peer, lambda: answers)
    got = cloud_array(answers[-1], ("x", "y", "z", "mean", "stddev", *AXES))
    told = node.worker.call(lambda session: session.predict(torch.tensor(PLACES)[:, :2])).result(10)
    np.testing.assert_allclose(got[:, 5::2], told.mean, rtol=1e-5)
    np.testing.assert_allclose(got[:, 6::2], told.stddev, rtol=1e-4)
    np.testing.assert_allclose(got[:, 3], told.mean.norm(dim=1), rtol=1e-5)


def grid_of(axes: bool) -> FieldGrid:
    mean = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    known = torch.ones_like(mean, dtype=torch.bool)
    known[0, 0] = False
    three = torch.stack([mean, -mean, 2 * mean]) if axes else None
    return FieldGrid((1.0, -2.0), 0.5, mean, mean + 10, known, 1.0, 7, three, three)


def _fake_grid_map(header=None):
    """The fields of grid_map_msgs/GridMap, which is not among the wheels; only their names and nesting are checked."""
    info = SimpleNamespace(resolution=0.0, length_x=0.0, length_y=0.0, pose=Pose())
    return SimpleNamespace(
        header=header,
        info=info,
        layers=[],
        basic_layers=[],
        data=[],
        outer_start_index=9,
        inner_start_index=9,
    )


@pytest.mark.parametrize("axes", [False, True])
def test_a_grid_map_is_laid_out_as_grid_map_reads_it(axes):
    """A cell (i, j) of its column-major matrix lies at max_x − (i + ½) r, max_y − (j + ½) r."""
    grid = grid_of(axes)
    message = outbound.grid_map(_fake_grid_map, grid, Header(frame_id="odom"))
    assert message.layers[:2] == ["mean", "stddev"] and message.basic_layers == []
    assert message.layers[2:] == (list(AXES) if axes else []) and len(message.data) == len(
        message.layers
    )
    info, centre = message.info, message.info.pose.position
    assert (info.length_x, info.length_y, centre.x, centre.y) == (1.5, 1.0, 1.75, -1.5)
    assert (
        message.outer_start_index == message.inner_start_index == 0
        and message.header.frame_id == "odom"
    )
    dims = message.data[0].layout.dim
    assert [(d.label, d.size, d.stride) for d in dims] == [
        ("column_index", 2, 6),
        ("row_index", 3, 3),
    ]
    for name, part in zip(message.layers, message.data):
        matrix = (
            np.array(part.data).reshape(2, 3).T
        )  # column-major: (rows along x, columns along y)
        for i in range(3):
            for j in range(2):
                x = centre.x + 0.5 * info.length_x - (i + 0.5) * info.resolution
                y = centre.y + 0.5 * info.length_y - (j + 0.5) * info.resolution
                column, row = round((x - 1.0) / 0.5 - 0.5), round((y + 2.0) / 0.5 - 0.5)
                layer = outbound.layers(grid)[name]
                unknown = name.startswith("mean") and not grid.known[row, column]
                assert np.isnan(matrix[i, j]) if unknown else matrix[i, j] == layer[row, column]

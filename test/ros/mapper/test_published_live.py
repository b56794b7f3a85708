"""Classes and counts live: probabilities, classes and rates on the node's topics, and in its answers."""

import numpy as np
import pytest
import torch
from nav_msgs.msg import OccupancyGrid
from questions import question
from rclpy.qos import QoSProfile
from ros_helpers import NS, cloud_array, grid_array, odometry, place_at, settle, spin_until
from sensor_msgs.msg import PointCloud2, Temperature

PLACES = [[0.5, 0.1, 0.0], [1.3, 0.2, 0.0], [1.0, 0.5, 0.0]]


def label(kind: str, x: float, y: float, chance) -> float:
    """What the sensor says: class 2 on the right, 0 and 1 on the left; counts that grow with x."""
    if kind == "poisson":
        return float(chance.poisson(np.exp(1.5 * x)))
    return 2.0 if x > 1.0 else float(chance.integers(2))


def drive(node, kind: str, seconds: float, rate: int) -> None:
    """Every five seconds a measurement is one that cannot be."""
    ports, chance = {port.role: port for port in node.inputs.ports}, np.random.default_rng(0)
    for i in range(round(seconds * rate) + 1):
        stamp, (x, y) = 1_700_000_000 * NS + round(i / rate * NS), place_at(i / rate)
        message = Temperature(
            temperature=-1.0 if i % (5 * rate) == 2 * rate else label(kind, x, y, chance)
        )
        message.header.frame_id, (message.header.stamp.sec, message.header.stamp.nanosec) = (
            "sensor",
            divmod(stamp, NS),
        )
        node._on_input(ports["measurement"], message)
        node._on_input(ports["pose"], odometry(stamp, x, y))


@pytest.mark.parametrize("kind", ["softmax", "poisson"])
def test_what_people_ask_for_is_on_the_topics(node_of, kind):
    node, peer = node_of(sensor="temperature", likelihood=kind, classes=3, count_duration=0.1)
    assert node.get_parameter("field_unit").value == {"softmax": "1", "poisson": "1/s"}[kind]
    field, classes = (
        peer.listen(form, f"/mapping/{name}")
        for name, form in (("field", PointCloud2), ("class", OccupancyGrid))
    )
    asked = peer.node.create_publisher(PointCloud2, "/mapping/query", QoSProfile(depth=10))
    answers = peer.listen(PointCloud2, "/mapping/query_result", QoSProfile(depth=10))
    # a cell of classes is three fields: as many of them, of fewer measurements each
    drive(node, kind, 20.0, {"softmax": 10, "poisson": 20}[kind])
    settle(node, peer)
    spin_until(
        node,
        peer,
        lambda: (
            field
            and asked.get_subscription_count()
            and node.worker.results
            and node.worker.results.revision
            == node.worker.revision
            == node.publishers_._outputs["field"].revision
            and field[-1].width == int(node.worker.results.grid.known.sum())
        ),
    )
    assert node.worker.status.drops == {"impossible": 4}
    names = [f.name for f in field[-1].fields]
    points = cloud_array(field[-1], names)
    x, mean, stddev = points[:, 0], points[:, 4], points[:, 5]
    driven = (x > 0.1) & (x < 1.9) & (points[:, 1] > 0) & (points[:, 1] < 1.2)
    if kind == "softmax":
        assert names[4:8] == ["mean", "stddev", "class", "mean_0"]
        assert mean.min() >= 0.33 and mean.max() <= 1.0 and stddev[driven].max() < 0.5
        assert (points[driven & (x > 1.3), 6] == 2).mean() > 0.95 and (
            points[driven & (x < 0.7), 6] < 2
        ).mean() > 0.95
        spin_until(
            node, peer, lambda: classes and classes[-1].header.stamp == field[-1].header.stamp
        )
        cells = grid_array(classes[-1])
        assert sorted(np.unique(cells)) in ([-1, 0, 1, 2], [-1, 0, 2], [-1, 1, 2], [0, 1, 2])
        assert (cells >= 0).sum() == len(points)
    else:
        assert len(names) == 6 and not classes and mean.min() > 0
        rate = np.exp(1.5 * x[driven]) / 0.1  # counts a second
        assert np.abs(np.log(mean[driven] / rate)).mean() < 0.35
    asked.publish(question(PLACES))
    spin_until(node, peer, lambda: answers)
    told = node.worker.call(lambda session: session.published(torch.tensor(PLACES)[:, :2])).result(
        10
    )
    got = cloud_array(answers[-1], [f.name for f in answers[-1].fields])
    np.testing.assert_allclose(got[:, 3], told.mean.max(1).values, rtol=1e-5)

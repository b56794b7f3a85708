"""Point queries: a cloud of positions in, mean and stddev out; over DDS, with the node in this process."""

import threading
import time
from array import array

import numpy as np
import pytest
import torch
from questions import NAMES, POINTS, question
from rclpy.qos import QoSProfile
from ros_helpers import cloud_array, fill, settle, spin_until
from sensor_msgs.msg import PointCloud2, PointField

from gp_mapping.ros.mapper.queries import PENDING, read_positions


@pytest.mark.parametrize("kind", ["<f4", "<f8", ">f4", ">f8"])
def test_positions_of_every_layout(kind):
    found = read_positions(question(POINTS, kind=kind))
    assert found.dtype == (np.float64 if kind[1:] == "f8" else np.float32)
    np.testing.assert_allclose(found, POINTS, rtol=1e-7)


def test_positions_with_other_fields_between_and_rows_that_are_padded():
    kind = np.dtype(
        {
            "names": ["y", "x", "colour"],
            "formats": ["<f4", "<f8", "<u4"],
            "offsets": [4, 8, 16],
            "itemsize": 24,
        }
    )
    points = np.zeros((2, 4), kind)  # the last of each row is padding
    points["x"], points["y"] = np.arange(8).reshape(2, 4), 10 + np.arange(8).reshape(2, 4)
    message = question(
        POINTS,
        height=2,
        width=3,
        point_step=24,
        row_step=96,
        data=array("B", points.tobytes()),
        fields=[
            PointField(name="colour", offset=16, datatype=PointField.UINT32, count=1),
            PointField(name="x", offset=8, datatype=PointField.FLOAT64, count=1),
            PointField(name="y", offset=4, datatype=PointField.FLOAT32, count=1),
        ],
    )
    found = read_positions(message)
    assert found[:, 0].tolist() == [0, 1, 2, 4, 5, 6] and found[:, 1].tolist() == [
        10,
        11,
        12,
        14,
        15,
        16,
    ]
    assert found.dtype == np.float64 and not found[:, 2].any()
    assert read_positions(question(np.empty((0, 3)))).shape == (0, 3)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"fields": []}, "fields none, and no x"),
        ({"data": array("B", b"1234")}, "4 bytes, too few for 1 × 3"),
        ({"width": 2**31, "height": 2**31}, "too few"),
        ({"point_step": 2}, "field x is no single float"),
        ({"row_step": 1, "height": 2}, "too few"),
        (
            {
                "fields": [
                    PointField(name=n, offset=0, datatype=PointField.INT32, count=1) for n in "xy"
                ]
            },
            "float32",
        ),
        (
            {
                "fields": [
                    PointField(name=n, offset=2**31, datatype=PointField.FLOAT32, count=1)
                    for n in "xy"
                ]
            },
            "float32",
        ),
    ],
)
def test_what_cannot_be_read_is_said(changes, said):
    with pytest.raises(ValueError, match=said):
        read_positions(question(POINTS, **changes))


@pytest.fixture
def asked(node_of):
    """A node with a map, and a function that asks and waits for the answers of all questions."""

    def start(seconds=3.0, drive=fill, **parameters):
        node, peer = node_of(**parameters)
        publisher = peer.node.create_publisher(PointCloud2, "/mapping/query", QoSProfile(depth=100))
        answers = peer.listen(PointCloud2, "/mapping/query_result", QoSProfile(depth=100))
        spin_until(
            node,
            peer,
            lambda: (
                publisher.get_subscription_count()
                and peer.node.count_publishers("/mapping/query_result")
            ),
        )
        if seconds:
            drive(node, seconds)
        settle(node, peer)

        def ask(*questions):
            before = len(answers)
            for each in questions:
                publisher.publish(each)
            wanted = sorted(each.header.stamp.sec for each in questions)

            def answered():  # an answer to an earlier question may come late
                told = [a.header.stamp.sec for a in answers[before:]]
                return sorted(number for number in told if number in wanted) == wanted

            spin_until(node, peer, answered)
            return {a.header.stamp.sec: a for a in answers[before:]}

        return node, ask

    return start


def test_answers_are_what_the_map_predicts(asked):
    node, ask = asked()
    got = ask(*(question(POINTS, i + 1, kind=kind) for i, kind in enumerate(("<f4", ">f8", "<f8"))))
    told = node.worker.call(
        lambda session: session.predict(torch.from_numpy(POINTS[:, :2]))
    ).result(10)
    for number, tolerance in ((1, 1e-6), (2, 1e-12), (3, 1e-12)):
        points = cloud_array(got[number], NAMES)
        assert got[number].header.frame_id == "odom" and got[number].is_dense
        np.testing.assert_allclose(points[:, :3], POINTS, rtol=1e-6)
        np.testing.assert_allclose(points[:, 3], told.mean[:, 0], rtol=tolerance)
        np.testing.assert_allclose(points[:, 4], told.stddev[:, 0], rtol=100 * tolerance)


def test_positions_that_are_not_finite_are_answered_with_nan_and_counted(asked):
    node, ask = asked()
    points = POINTS.copy()
    points[1, 0], points[2, 1] = np.nan, np.inf
    got = ask(question(points, 1))[1]
    values = cloud_array(got, NAMES)[:, 3:]
    assert np.isfinite(values[0]).all() and np.isnan(values[1:]).all() and not got.is_dense
    assert node.worker._counts["query_not_finite"] == 2 and "2 positions" in node.queries.problem
    ask(question(POINTS, 2))
    assert node.queries.problem == ""


def test_positions_that_no_map_has_are_answered_with_nan_counted_and_said(asked):
    node, ask = asked()
    points = np.array(
        [
            [0.5, 0.1, 0.0],
            [1e200, 0.0, 0.0],
            [0.0, -1.1e8, 0.0],
            [-1e307, 1e307, 0.0],
            [9e7, -9e7, 0.0],
        ]
    )
    values = cloud_array(ask(question(points, 1, kind="<f8"))[1], NAMES)[:, 3:]
    assert np.isfinite(values[[0, 4]]).all() and np.isnan(values[1:4]).all()
    assert node.worker._counts["query_too_far"] == 3 and "3 positions" in node.queries.problem
    assert "farther than 1e+08 m" in node.queries.problem


def test_what_cannot_be_answered_gets_an_empty_cloud_and_a_reason(asked):
    node, ask = asked(max_query_points=100)
    for i, (wrong, count, said) in enumerate(
        (
            (question(POINTS, 1, frame="map"), "query_frame", "frame 'map' and the map in 'odom'"),
            (question(POINTS, 2, frame=""), "query_frame", "frame ''"),
            (question(np.zeros((101, 3)), 3), "query_too_large", "101 positions"),
            (question(POINTS, 4, fields=[]), "query_malformed", "no x"),
        )
    ):
        got = ask(wrong)[i + 1]
        assert got.width == 0 and [f.name for f in got.fields] == list(NAMES)
        assert node.worker._counts[count] and said in node.queries.problem
    assert ask(question(np.zeros((100, 3)), 5))[5].width == 100


def test_the_queue_of_questions_is_bounded_and_the_overflow_is_counted(asked):
    node, ask = asked()
    gate = threading.Event()
    node.worker.call(lambda session: gate.wait(10))  # the map is busy
    answers = []
    for number in range(PENDING + 5):
        node.queries._on_query(question(POINTS, number))
    assert node.worker._counts["query_busy"] == 5 and f"more than {PENDING}" in node.queries.problem
    gate.set()
    answers = ask(question(POINTS, 99))
    assert all(a.width in (0, 3) for a in answers.values())


def test_an_empty_map_answers_nan_at_once(asked):
    node, ask = asked(seconds=0.0, map_frame="odom")
    values = cloud_array(ask(question(POINTS, 1))[1], NAMES)
    np.testing.assert_allclose(values[:, :3], POINTS, rtol=1e-6)
    assert np.isnan(values[:, 3:]).all()


def test_nothing_answers_after_deactivation_and_the_worker_does_not_mind(asked):
    node, ask = asked()
    gate = threading.Event()
    node.worker.call(lambda session: gate.wait(10))
    node.queries._on_query(question(POINTS))
    node.deactivate()
    gate.set()
    assert node.worker.call(lambda session: session.cell_count).result(10) > 0
    node.activate()
    assert cloud_array(ask(question(POINTS, 2))[2], NAMES).shape == (3, 5)


def test_questions_that_nobody_has_taken_before_deactivation_get_an_empty_cloud(node_of):
    node, peer = node_of(map_frame="odom")
    publisher = peer.node.create_publisher(PointCloud2, "/mapping/query", QoSProfile(depth=100))
    answers = peer.listen(PointCloud2, "/mapping/query_result", QoSProfile(depth=100))
    spin_until(
        node,
        peer,
        lambda: (
            publisher.get_subscription_count()
            and peer.node.count_publishers("/mapping/query_result")
        ),
    )
    for number in (1, 2, 3):
        publisher.publish(question(POINTS, number))
    time.sleep(0.5)  # they lie in the middleware: no executor has turned
    node.deactivate()
    end = time.monotonic() + 20.0
    while len(answers) < 3 and time.monotonic() < end:
        peer.executor.spin_once(timeout_sec=0.05)
    assert {a.header.stamp.sec: a.width for a in answers} == {1: 0, 2: 0, 3: 0}

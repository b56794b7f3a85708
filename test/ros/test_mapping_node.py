"""mapping_node as a process of its own, over real DDS: what goes in, what comes out, how it ends."""

import signal
import subprocess
import sys
import time
from threading import Event

import numpy as np
import pytest
from nav_msgs.msg import OccupancyGrid
from ros_helpers import (
    NS,
    ROOT,
    STARTS,
    NodeProcess,
    Peer,
    cloud_array,
    field_at,
    grid_array,
    magnetic_field,
    odometry,
    parameter_file,
    place_at,
    spin,
    spin_until,
)
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray
from visualization_msgs.msg import MarkerArray

from benchmark import warm
from gp_mapping.ros.wire.qos import LATCHED

QUICK = {
    "max_inducing": 80,
    "resolution": 0.1,
    "learn_hyperparameters": False,
    "lengthscale": 0.6,
    "reliable_inputs": True,
    **STARTS,
}


def test_live_map_and_late_joiner(tmp_path):
    with NodeProcess(tmp_path, **QUICK) as node, Peer() as peer:
        mean, stddev = (
            peer.listen(OccupancyGrid, f"/mapping/{name}") for name in ("mean", "stddev")
        )
        cloud, limits = (
            peer.listen(PointCloud2, "/mapping/field"),
            peer.listen(Float64MultiArray, "/mapping/limits"),
        )
        markers = peer.listen(MarkerArray, "/mapping/markers")
        peer.wait_for_node()
        # the node hears of the subscriptions one by one, and a topic that it hears of later is drawn for alone: only
        # once it knows them all, and each one's period is over, do they go out together
        outputs = (mean, stddev, cloud, limits)
        peer.drive(0.0, 1.0)
        peer.until(lambda: all(outputs) and markers, what="a topic is silent")
        peer.spin(0.3)
        for each in (*outputs, markers):
            each.clear()
        peer.drive(1.02, 5.98)
        peer.settle()
        assert node.process.poll() is None
        # nothing lost, nothing dropped; the last measurement may wait for a pose after it
        assert peer.number("magnetic_field received") == peer.number("odometry received") == 351
        assert peer.number("samples") >= 350
        assert (
            not [key for key in peer.values if key.startswith("dropped")]
            and "ERROR" not in node.log
        )
        # what was put off while messages came in is drawn afterwards, and may be on its way still
        peer.until(
            lambda: (
                len({len(each) for each in outputs}) == 1
                and mean[-1].header.stamp == stddev[-1].header.stamp == cloud[-1].header.stamp
                and peer.number("mean_low (SI)") == pytest.approx(limits[-1].data[0], rel=1e-4)
            ),
            what="maps, cloud and diagnostics are not of one drawing",
        )
        # at publish_rate, or every two drawings where a busy machine draws slowly; a third of that at least
        period = max(0.1, 2e-3 * peer.number("render p99_ms"))
        assert 5.98 / 3.0 / period <= len(mean) <= 75, (len(mean), period)
        assert 3 <= len(markers) <= 9
        _check_against_cloud(mean[-1], stddev[-1], cloud[-1], limits[-1].data)
        legend = next(m for m in markers[-1].markers if m.ns == "legend").text
        assert f"mean {limits[-1].data[0] / 1e-6:.4g} to" in legend and "uT" in legend
        assert peer.number("latency p99_ms") < 500 and peer.number("inducing") > 10
        late = peer.listen(OccupancyGrid, "/mapping/stddev", LATCHED)
        count = len(late)
        peer.node.create_subscription(OccupancyGrid, "/mapping/mean", (later := []).append, LATCHED)
        peer.until(lambda: later, what="the late joiner got nothing")
        assert grid_array(later[-1]).max() >= 1 and len(late) >= count
        count = len(later)
        assert node.stop() == 0, node.log
        peer.until(
            lambda: len(later) > count,
            20,
            "the last map, with the cell that was open, was not published",
        )


def test_the_map_of_a_robot_that_stands_is_completed_and_then_rests(node_of):
    """Each drawing evaluates 100 points; what is left is drawn with the next ones though nothing comes in any more."""
    node, peer = node_of(
        draw_budget=100,
        reliable_inputs=True,
        lengthscale=1.0,
        signal_stddev=1e-5,
        noise_stddev=7e-7,
        max_inducing=40,
    )
    clouds = peer.listen(PointCloud2, "/mapping/field")
    both = peer.field_publisher, peer.odometry_publisher
    spin_until(node, peer, lambda: all(p.get_subscription_count() for p in both))
    for start in (
        0.0,
        2.0,
    ):  # the first drawing is of all there is; then comes more than 100 points can show
        for i in range(100):
            t = start + i / 50
            stamp, (x, y) = 1_700_000_000 * NS + round(t * NS), place_at(t)
            peer.odometry_publisher.publish(odometry(stamp, x, y))
            peer.field_publisher.publish(magnetic_field(stamp, field_at(x, y)))
        before = len(clouds)
        spin_until(node, peer, lambda before=before: len(clouds) > before)
    spin_until(
        node,
        peer,
        lambda: not node.worker.queued and node.worker.status.received["odometry"] == 200,
    )

    def drawn():  # what was put off until no message waits goes on for a while, and changes the map
        revision = node.worker.revision
        if node.worker.results.revision != revision:
            return False
        spin(node, peer, 0.5)
        return node.worker.results.revision == node.worker.revision == revision

    spin_until(node, peer, drawn)
    revision = node.worker.revision
    assert len(clouds) - before >= 3, "the budget was never too small: this shows nothing"
    spin(node, peer, 0.5)
    count = len(clouds)
    spin(node, peer, 0.5)
    assert len(clouds) == count and node.worker.revision == revision
    grid = node.worker.results.grid
    truth = node.worker.call(lambda session: session.predict(grid.centres())).result(10)
    known = grid.known.flatten().numpy()
    error = (truth.mean[:, 0] - grid.mean.flatten()).abs().numpy()[known]
    predictive = (truth.variance + truth.noise_variance)[:, 0].sqrt().numpy()[known]
    assert known.sum() > 250 and (error < 0.05 * predictive).all()


def test_a_tick_publishes_what_is_ready_and_asks_for_the_next(node_of, monkeypatch):
    """Its own turn may come after the tick's, which would then ask for nothing: half the maps."""
    node, peer = node_of(reliable_inputs=True)
    peer.listen(OccupancyGrid, "/mapping/mean")
    spin_until(node, peer, peer.field_publisher.get_subscription_count)
    worker, asked, gate = node.worker, [], Event()
    request = worker.request
    monkeypatch.setattr(worker, "request", lambda wanted: asked.append(wanted) or request(wanted))

    def until(condition):
        """Wait until the worker's thread has brought it about; no callback has a turn meanwhile."""
        end = time.monotonic() + 10.0
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)

    for start in (0.0, 1.0):
        before = worker.revision
        for i in range(50):
            t = start + i / 50
            stamp, (x, y) = 1_700_000_000 * NS + round(t * NS), place_at(t)
            worker.put("pose", odometry(stamp, x, y))
            worker.put("measurement", magnetic_field(stamp, field_at(x, y)))
        until(lambda before=before: worker.revision > before)
        if not asked:
            while not asked:
                node.executor_.spin_once(timeout_sec=0.1)
            until(lambda: worker.answered == 1)
    time.sleep(1.0 / node.settings.publish_rate)

    worker.call(lambda _: gate.wait(20.0))
    while not node.publishers_.published:
        node.executor_.spin_once(timeout_sec=0.1)
    assert len(asked) == 2, "the turn that publishes the first drawing asks for the second"
    spin(node, peer, 0.5)
    assert len(asked) == 2, "it waits for the answer"
    gate.set()
    until(lambda: worker.answered == 2)


def _check_against_cloud(mean, stddev, cloud, limits):
    """The grids' values and limits stand for the SI values of the field cloud, and these for the true field."""
    points = cloud_array(cloud)
    low, high, stddev_low, stddev_high = limits
    assert mean.header.frame_id == cloud.header.frame_id == "odom" and stddev_low == 0.0
    info = mean.info
    columns = np.floor((points[:, 0] - info.origin.position.x) / info.resolution).astype(int)
    rows = np.floor((points[:, 1] - info.origin.position.y) / info.resolution).astype(int)
    cells = grid_array(mean)
    assert (cells >= 0).sum() == len(points) > 100 and cells.min() == -1
    np.testing.assert_allclose(
        low + (cells[rows, columns] - 1) / 97 * (high - low),
        points[:, 4],
        atol=(high - low) / 194 * 1.01,
    )
    np.testing.assert_allclose(
        (grid_array(stddev)[rows, columns] - 1) / 97 * stddev_high,
        points[:, 5],
        atol=stddev_high / 194 * 1.01,
    )
    error = points[:, 4] - np.array([field_at(x, y) for x, y in points[:, :2]])
    assert (np.abs(error) < 3.0 * points[:, 5]).mean() > 0.97
    near = points[:, 5] < np.quantile(points[:, 5], 0.1)
    assert np.sqrt((error[near] ** 2).mean()) < 1e-6
    np.testing.assert_array_equal(points[:, 3], points[:, 4])


def test_bad_input_is_counted_by_reason_and_the_map_is_as_before(tmp_path):
    second, epoch = NS, 1_700_000_000 * NS
    with NodeProcess(tmp_path, **QUICK) as node, Peer() as peer:
        peer.wait_for_node()
        peer.drive(0.0, 2.0, speed=4.0)
        peer.settle()
        before = {key: peer.values[key] for key in ("samples", "cells", "revision", "inducing")}
        t = epoch + 2 * second

        def field(after_ms, value=45e-6, frame="magnetometer"):
            peer.field_publisher.publish(magnetic_field(t + after_ms * 1_000_000, value, frame))

        def pose(after_ms, **options):
            peer.odometry_publisher.publish(
                odometry(t + after_ms * 1_000_000, options.pop("x", 0.0), 0.0, **options)
            )

        field(20, float("nan"))
        field(20, float("inf"))
        field(20, 3.0)  # tesla: a sensor that sends something else
        field(20, frame="camera")
        field(-500)  # older than the last one
        field(0)  # its stamp again
        pose(20, w=0.0)
        pose(20, x=float("nan"))
        pose(20, frame="map")
        pose(0)
        pose(-500)
        peer.settle()
        expected = {
            "not_finite": 2,
            "out_of_range": 1,
            "unexpected_frame": 1,
            "out_of_order": 1,
            "repeated_stamp": 1,
        }
        of_poses = {
            "pose_zero_quaternion": 1,
            "pose_not_finite": 1,
            "pose_unexpected_frame": 1,
            "pose_repeated_stamp": 1,
            "pose_out_of_order": 1,
        }
        for heading, counts in (("dropped: ", expected), ("poses dropped: ", of_poses)):
            assert {
                key.removeprefix(heading): int(value)
                for key, value in peer.values.items()
                if key.startswith(heading)
            } == counts
        assert peer.number("measurements used") == peer.number("samples")
        assert {key: peer.values[key] for key in before} == before
        said = " ".join(peer.messages)
        assert "NaN" in said and "'camera'" in said and "expected 'odom'" in said
        for i in range(150):  # measurements without odometry: 3 s of stamps
            field(20 * (i + 1))
        peer.settle()
        assert peer.number("dropped: no_pose") > 0 and peer.values["samples"] == before["samples"]
        peer.until(
            lambda: any("no odometry for" in text for text in peer.messages),
            what="silence was not reported",
        )
        assert "Traceback" not in node.log
        assert node.stop() == 0


def test_time_jump_back_keeps_the_map_and_goes_on(tmp_path):
    with NodeProcess(tmp_path, **QUICK) as node, Peer() as peer:
        peer.wait_for_node()
        peer.drive(0.0, 3.0, speed=4.0)
        peer.drive(0.0, 3.0, speed=4.0)
        peer.settle()
        assert peer.number("passes") == 2 and peer.number("samples") >= 300
        assert "ERROR" not in node.log
        assert node.stop(signal.SIGTERM) == 0


def test_wrong_parameters_end_the_start_with_reasons(tmp_path):
    path = parameter_file(
        tmp_path, resolution="fine", publish_rate=-1.0, suggestion_kind="best", resolutoin=1.0
    )
    done = warm.run(
        [
            sys.executable,
            "-m",
            "gp_mapping.ros.mapping_node",
            "--ros-args",
            "--params-file",
            str(path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "resolution: 'fine' is str, expected float" in done.stderr
    assert (
        "publish_rate: -1.0 Hz is outside" in done.stderr and "'best' is not one of" in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text, said",
    [
        ("/**:\n  ros__parameters:\n    resolution: [1, 2.0]\n", "line_num 3"),
        ("/**:\n  ros__parameters:\n    device: nonsense\n", "nonsense"),
        (None, "params.yaml"),
    ],
)
def test_files_and_devices_that_do_not_exist_end_the_start_without_a_traceback(
    tmp_path, text, said
):
    path = tmp_path / "params.yaml"
    if text is not None:
        path.write_text(text)
    done = warm.run(
        [
            sys.executable,
            "-m",
            "gp_mapping.ros.mapping_node",
            "--ros-args",
            "--params-file",
            str(path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, (
        done.stderr
    )


def test_a_checkpoint_that_cannot_be_used_ends_the_start(tmp_path):
    broken = tmp_path / "map.gpm"
    broken.write_bytes(b"not a checkpoint")
    for name in (str(broken), str(tmp_path / "missing.gpm")):
        path = parameter_file(tmp_path, load_checkpoint=name)
        done = warm.run(
            [
                sys.executable,
                "-m",
                "gp_mapping.ros.mapping_node",
                "--ros-args",
                "--params-file",
                str(path),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2 and name in done.stderr and "Traceback" not in done.stderr, (
            done.stderr
        )


def test_sigint_saves_and_the_next_node_goes_on_from_it(tmp_path):
    """The first one begins and ends as a shell starts it, libraries and interpreter included."""
    from gp_mapping.mapping.session import MapSession
    from gp_mapping.store.checkpoint import load_checkpoint

    folder = tmp_path / "saved"
    with (
        NodeProcess(
            tmp_path, start=subprocess.Popen, **QUICK, save_on_exit=True, save_directory=str(folder)
        ) as node,
        Peer() as peer,
    ):
        peer.wait_for_node()
        peer.drive(0.0, 3.0, speed=4.0)
        peer.spin(0.3)
        assert node.stop(signal.SIGINT) == 0, node.log
    session = MapSession.from_state_dict(load_checkpoint(folder / "map.gpm"))
    assert session.report()["samples"] == 151  # the end of the stream takes in the last one, too
    with (
        NodeProcess(tmp_path, load_checkpoint=str(folder / "map.gpm"), silence_warning=0.1) as node,
        Peer() as peer,
    ):
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        peer.until(lambda: mean, what="the loaded map, whose frame is known, was not published")
        assert mean[-1].header.frame_id == "odom"
        peer.until(
            lambda: any("of an odometry, whose origin" in text for text in peer.messages),
            what="no word about the frame",
        )
        peer.wait_for_node()
        peer.drive(0.0, 0.1)
        peer.settle()
        assert 151 < peer.number("samples") <= 157 and peer.number("passes") == 2
        assert node.stop() == 0

"""The end of the process: a part that fails is said and costs the exit code, never the map or the parts after it."""

import os
import signal
import time

import pytest
import rclpy
from rclpy.duration import Duration
from ros_helpers import NS, QUICK, STARTS, Peer, field_at, fill, magnetic_field, odometry, place_at

from gp_mapping.mapping.session import MapSession
from gp_mapping.ros.mapper import ending
from gp_mapping.ros.mapping_node import MappingNode, main
from gp_mapping.ros.tools.process import ENDINGS
from gp_mapping.store.checkpoint import load_checkpoint


@pytest.fixture(autouse=True)
def signals():
    """The handlers that main() has put in place are taken back."""
    before = {number: signal.getsignal(number) for number in ENDINGS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def life(folder, fault, save: bool = True, **more) -> int:
    """The exit code of a node that maps for half a second of its robot's time, and is interrupted.

    fault: what is done to the node before its end.
    """

    class Short(MappingNode):
        def activating(self):
            yield from super().activating()
            fill(self, 0.5)
            fault(self)
            os.kill(os.getpid(), signal.SIGINT)

    given = QUICK | STARTS | {"resolution": 0.4, "learn_hyperparameters": "false"}
    given |= {"save_on_exit": str(save).lower(), "save_directory": folder, "autosave_period": 0.0}
    given |= more
    return main(
        [
            "--ros-args",
            *(word for item in given.items() for word in ("-p", "{}:={}".format(*item))),
        ],
        Short,
    )


def fails(*_):
    raise ZeroDivisionError("on purpose")


def test_parts_that_fail_are_said_and_cost_the_exit_code_but_not_the_map(tmp_path, capfd):
    def fault(node):
        node.inputs.drain = node.publish_health = node.publish_last = fails

    assert life(tmp_path, fault) == 1
    said = capfd.readouterr().err
    parts = ("taking in what has been delivered", "taking in the queue", "publishing the last map")
    assert all(f"{part} failed at the end" in said for part in parts) and "on purpose" in said
    assert load_checkpoint(tmp_path / "map.gpm")["raw_count"] == 26


def test_the_code_of_a_save_that_failed_outlives_what_fails_after_it(tmp_path, capfd, monkeypatch):
    def fault(node):
        node.publish_last = fails

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "maps").write_text("a file where a folder should be")
    assert life(tmp_path / "maps", fault) == 1
    said = capfd.readouterr().err
    assert "the map was not saved into" in said and "publishing the last map failed" in said


def test_what_fails_in_cleaning_up_is_said_as_well(tmp_path, capfd):
    def fault(node):
        node.parameters.reopen = fails
        # as ~/save does, before the map learns on
        node.saver.mark_saved((node.worker.session_number, -1, 26), tmp_path / "map.gpm")

    assert life(tmp_path, fault, save=False) == 1
    said = capfd.readouterr().err
    assert "cleanup failed" in said and "on purpose" in said
    assert "all measurements of the map are saved" in said and "dropped" not in said


def test_a_node_whose_ros_is_shut_down_at_its_end_saves_its_map(tmp_path):
    def fault(node):
        node.hurry = lambda: rclpy.try_shutdown() or False  # asked in the middle of the end

    life(tmp_path, fault)
    assert load_checkpoint(tmp_path / "map.gpm")["raw_count"] == 26


@pytest.mark.parametrize("hurried", [False, True])
def test_the_map_is_saved_before_the_last_searches_and_a_second_signal_ends_these(
    hurried, tmp_path, capfd, monkeypatch
):
    """They take seconds after many passes; a launch file sends its SIGTERM after 5, SIGKILL 5 later."""
    steps, path = [], tmp_path / "map.gpm"

    def fault(node):
        node.hurry = lambda: hurried and bool(steps)

        def finishing(session):
            while not steps or (hurried and len(steps) < 100):
                steps.append(load_checkpoint(path)["raw_count"])  # it is on the disk already
                yield

        monkeypatch.setattr(MapSession, "finishing", finishing)

    assert life(tmp_path, fault) == 0
    said = capfd.readouterr().err
    assert steps == [26] and said.count("saved checkpoint") == (not hurried)
    assert (f"saved {path} without pictures" in said) == hurried
    assert (tmp_path / "map.png").exists() != hurried
    assert load_checkpoint(path)["raw_count"] == 26


def test_where_much_waits_the_map_is_saved_before_it_is_taken_in(tmp_path, monkeypatch):
    """Who ends the process does not wait for that: docker kills it 10 s after SIGTERM."""
    path, found = tmp_path / "map.gpm", []
    monkeypatch.setattr(ending, "LONG", 0.0)

    def fault(node):
        end = time.monotonic() + 5.0
        node.worker.call(MapSession.flush)  # nothing changes afterwards

        def work(_):
            found.append(path.exists())
            if not found[-1] and time.monotonic() < end:
                node.worker.call(work)

        node.worker.call(work)

    assert life(tmp_path, fault) == 0
    assert found[-1] and not found[0]
    assert load_checkpoint(path)["raw_count"] == 26 and (tmp_path / "map.png").exists()


def test_what_was_delivered_before_the_end_is_in_the_map(tmp_path, capfd):
    """The middleware holds it: the executor has no turn between its coming and the end."""

    def fault(node):
        node.inputs.hold()
        with Peer() as peer:
            publishers, end = (peer.odometry_publisher, peer.field_publisher), time.monotonic() + 10
            while not all(publisher.get_subscription_count() for publisher in publishers):
                assert time.monotonic() < end, node.inputs.problems
                time.sleep(0.01)
            for i in range(26, 51):
                stamp, (x, y) = 1_700_000_000 * NS + i * NS // 50, place_at(i / 50)
                publishers[0].publish(odometry(stamp, x, y))
                publishers[1].publish(magnetic_field(stamp, field_at(x, y)))
            for publisher in publishers:
                assert publisher.wait_for_all_acked(Duration(seconds=5))

    # with resume the end keeps the map, also before the first autosave was due
    more = {"reliable_inputs": "true", "resume": "true", "autosave_period": 600.0}
    assert life(tmp_path, fault, save=False, **more) == 0
    said = capfd.readouterr().err
    assert "not taken in" not in said and "dropped" not in said
    assert f"the next run goes on from {tmp_path / 'autosave.gpm'}" in said
    assert load_checkpoint(tmp_path / "autosave.gpm")["raw_count"] == 51

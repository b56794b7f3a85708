"""A crash costs a period at most: a node that is killed while driving, and one that goes on from what it left."""

import os
import re
import signal
import subprocess
import time

import pytest
from domains import domain_of
from rclpy.parameter import Parameter
from ros_helpers import STARTS, NodeProcess, Peer, Stream, ask, fill, settle, spin, spin_until
from states import differences
from std_srvs.srv import Trigger

from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.atomic import hold
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint
from gp_mapping.store.resume import MapFiles, foreign_exports

QUICK = {
    "max_inducing": 60,
    "resolution": 0.1,
    "learn_hyperparameters": False,
    "lengthscale": 0.6,
    "reliable_inputs": True,
    **STARTS,
}
PERIOD = 2.0


@pytest.fixture(autouse=True)
def domain(monkeypatch):
    """Apart from what other tests have killed, and from all that other processes run."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain_of("autosave")))


def test_killed_while_driving_it_loses_a_period_at_most_and_goes_on(tmp_path):
    options = {**QUICK, "save_directory": str(tmp_path), "autosave_period": PERIOD, "resume": True}
    with NodeProcess(tmp_path, **options) as node, Peer() as peer:
        peer.wait_for_node()
        with Stream(peer, 50) as stream:
            peer.spin(3.4 * PERIOD)
            arrived = peer.number("samples")  # at the last report, a second ago at most
            node.stop(signal.SIGKILL)
            sent = stream.sent
    assert "nothing to resume" in node.log
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f".autosave.gpm.{dead.pid}-7.partial").write_bytes(b"half of it")
    somebody = (tmp_path / f".map.gpm.{os.getpid()}.partial").open("wb")
    hold(somebody.fileno())
    kept = load_checkpoint(tmp_path / "autosave.gpm")["raw_count"]
    assert arrived - kept <= 50 * PERIOD and sent - kept <= 50 * (PERIOD + 1.0), (
        sent,
        arrived,
        kept,
    )
    assert not (tmp_path / "map.gpm").exists()

    with NodeProcess(tmp_path, **options) as node, Peer() as peer:
        peer.until(
            lambda: peer.number("samples") == kept, what="it does not go on from its autosave"
        )
        # one more where the kill fell into an autosave
        assert (
            re.search("removed [12] files", node.log)
            and f"autosave.gpm: {kept} measurements" in node.log
        )
        peer.wait_for_node()
        peer.drive(100.0, 1.0, speed=2.0)
        peer.until(lambda: peer.number("samples") >= kept + 50, what="nothing comes in")
        assert node.stop() == 0
    left = sorted(path.name for path in tmp_path.glob("*.gpm"))
    assert left == ["autosave.gpm"]
    assert [path.name for path in tmp_path.glob(".*.partial")] == [
        f".map.gpm.{os.getpid()}.partial"
    ]
    somebody.close()


def test_a_map_goes_on_exactly_from_an_autosave(tmp_path, node_of):
    """Saved by itself in the middle of a cell; nothing of the running map is changed by that."""
    whole, peer = node_of(save_directory=str(tmp_path / "a"), autosave_period=0.0)
    fill(whole, 3.03)
    settle(whole, peer)
    node, peer = node_of(save_directory=str(tmp_path / "b"), autosave_period=0.1)
    fill(node, 3.03)
    settle(node, peer)
    spin_until(node, peer, node.saver.is_autosaved)
    count = node.saver.autosaves
    spin_until(node, peer, lambda: time.monotonic() % 1.0 < 0.1)
    assert node.saver.autosaves == count, "written again although nothing has changed"
    states = [
        each.worker.call(lambda session: session.state_dict()).result(10) for each in (whole, node)
    ]
    assert differences(*states) == []
    assert differences(states[0], load_checkpoint(tmp_path / "b" / "autosave.gpm")) == []


def test_the_newest_intact_file_is_resumed_whatever_the_clock_says(tmp_path, node_of, capfd):
    node, peer = node_of(save_directory=str(tmp_path), autosave_period=0.1)
    fill(node, 2.0)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    fill(node, 1.0, start=2.02)
    settle(node, peer)
    spin_until(node, peer, node.saver.is_autosaved)
    node.cleanup()
    files = MapFiles(tmp_path)
    os.utime(files.saved, (2e9, 2e9))  # a robot without a clock of its own
    assert files.newest_first() == [files.autosave, files.saved]

    resumed, _ = node_of(save_directory=str(tmp_path), resume=True, autosave_period=0.0)
    assert resumed.worker.key[2] == 101 + 51
    resumed.cleanup()

    data = files.autosave.read_bytes()
    files.autosave.write_bytes(data[: len(data) // 2])
    resumed, _ = node_of(save_directory=str(tmp_path), resume=True, autosave_period=0.0)
    assert resumed.worker.key[2] == 101
    said = capfd.readouterr().err
    assert re.search(r"not resumed: \S+autosave.gpm: cut off or damaged", said)
    assert re.search(r"resumed \S+map.gpm: 101 measurements", said)
    assert (tmp_path / "autosave.gpm.refused").read_bytes() == data[: len(data) // 2], (
        "somebody may mend it"
    )
    resumed.cleanup()

    files.autosave.write_bytes(data)
    node_of(save_directory=str(tmp_path), autosave_period=60.0)
    assert files.before.read_bytes() == data and not files.autosave.exists()
    assert "it is kept as" in capfd.readouterr().err


def test_a_map_that_does_not_fit_outlives_the_run_that_could_not_go_on_with_it(
    tmp_path, node_of, capfd
):
    """A parameter that was changed by mistake, respawn and save_on_exit must not cost yesterday's map."""
    node, peer = node_of(save_directory=str(tmp_path), autosave_period=0.0)
    fill(node, 1.0)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    node.cleanup()
    data, kept = (tmp_path / "map.gpm").read_bytes(), tmp_path / "map.gpm.refused"

    for _ in range(
        2
    ):  # the second run goes on from what the first has saved, and keeps what is kept
        other, peer = node_of(
            save_directory=str(tmp_path), autosave_period=0.0, resume=True, model="sor"
        )
        fill(other, 1.0)
        settle(other, peer)
        assert ask(other, peer, Trigger, "/mapping/save").success
        other.cleanup()
        assert (tmp_path / "map.gpm").read_bytes() != data and kept.read_bytes() == data
    said = capfd.readouterr().err
    assert said.count("what could not be resumed is kept as") == 1 and "map.gpm.refused" in said


def test_an_autosave_that_fails_is_said_until_it_succeeds(tmp_path, node_of):
    (tmp_path / "maps").write_text("a file where a folder should be")
    node, peer = node_of(save_directory=str(tmp_path / "maps"), autosave_period=0.2)
    fill(node, 1.0)
    settle(node, peer)
    spin_until(
        node, peer, lambda: any("could not be saved by itself" in text for text in peer.messages)
    )
    (tmp_path / "maps").unlink()
    spin_until(node, peer, lambda: (tmp_path / "maps" / "autosave.gpm").exists())
    peer.messages.clear()
    spin_until(node, peer, lambda: len(peer.messages) >= 6)
    assert not any("could not be saved" in text for text in peer.messages[-3:])


def test_updates_do_not_wait_for_an_autosave(tmp_path, node_of):
    """The map's thread gives its state away in less than 20 ms, whatever the disk does."""
    node, peer = node_of(
        save_directory=str(tmp_path), autosave_period=0.1, max_inducing=400, resolution=0.05
    )
    for part in range(6):
        fill(node, 10.0, start=10.04 * part, rate=25)
        settle(node, peer)
        spin(node, peer, 0.3)
    assert node.saver.autosaves >= 6
    timing = node.worker.status.timings["snapshot"]
    assert timing["p50_ms"] < 20.0, timing


def test_saved_in_the_order_of_nav2_and_said_where_not(tmp_path, node_of, capfd):
    for name, save in (("kept", True), ("lost", False)):
        node, peer = node_of(
            save_directory=str(tmp_path / name), save_on_exit=save, autosave_period=0.0
        )
        fill(node, 2.0)
        settle(node, peer)
        node.deactivate()
        node.cleanup()
        node.shutdown()
        assert node.finish() == 0
    assert (
        load_checkpoint(tmp_path / "kept" / "map.gpm")["raw_count"] == 101
        and not (tmp_path / "lost").exists()
    )
    said = capfd.readouterr().err
    assert said.count("saved checkpoint") == 1
    assert said.count("a map that was not saved is dropped: 101 measurements") == 1


def test_a_folder_that_cannot_be_written_costs_the_exit_code_not_the_map(
    tmp_path, node_of, capfd, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "maps").write_text("a file where a folder should be")
    node, peer = node_of(
        save_directory=str(tmp_path / "maps"), save_on_exit=True, autosave_period=0.0
    )
    fill(node, 2.0)
    settle(node, peer)
    assert node.finish() == 1
    said = capfd.readouterr().err
    folder = re.search(r"the map was saved into (\S+) instead: move all that is in it", said)[1]
    assert (
        folder.startswith(str(tmp_path))
        and load_checkpoint(f"{folder}/map.gpm")["raw_count"] == 101
    )
    assert "Traceback" not in said


def test_what_is_saved_already_is_not_saved_again(tmp_path, node_of, capfd):
    node, peer = node_of(save_directory=str(tmp_path), save_on_exit=True, autosave_period=0.0)
    fill(node, 2.0)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    written = (tmp_path / "map.gpm").stat().st_mtime_ns
    assert node.finish() == 0 and (tmp_path / "map.gpm").stat().st_mtime_ns == written
    assert "the map is saved already" in capfd.readouterr().err


def test_exports_say_of_which_map_they_are_and_strangers_are_named(tmp_path, node_of, capfd):
    node, peer = node_of(save_directory=str(tmp_path), autosave_period=0.0)
    fill(node, 1.0)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    first = {name: (tmp_path / name).read_bytes() for name in ("mean.yaml", "map.npz", "map.png")}
    assert foreign_exports(tmp_path / "map.gpm") == []
    fill(node, 1.0, start=1.02)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    assert foreign_exports(tmp_path / "map.gpm") == []
    for name, data in first.items():  # as if it had ended before these were written
        (tmp_path / name).write_bytes(data)
    assert foreign_exports(tmp_path / "map.gpm") == ["mean.yaml", "map.png", "map.npz"]
    assert ask(node, peer, Trigger, "/mapping/load").success
    assert "mean.yaml, map.png, map.npz are of another map" in capfd.readouterr().err


@pytest.mark.parametrize(
    "at_first, live",
    [
        ({"autosave_period": 0.0}, {"autosave_period": 0.1}),
        ({"autosave_period": 0.1, "map_name": "yard"}, {"map_name": ""}),
    ],
)
def test_a_run_that_saves_by_itself_only_later_keeps_what_the_one_before_has_left(
    tmp_path, node_of, at_first, live
):
    """Also where it has saved its own map there meanwhile, which is newer then."""
    save_checkpoint(tmp_path / "autosave.gpm", MapSession(MapSettings()).state_dict())
    left = (tmp_path / "autosave.gpm").read_bytes()
    node, peer = node_of(save_directory=str(tmp_path), **at_first)
    fill(node, 1.0)
    settle(node, peer)
    node.saver.save_now(tmp_path, exports=False)
    for name, value in live.items():
        assert node.set_parameters([Parameter(name, value=value)])[0].successful
    fill(node, 1.0, start=1.02)
    spin_until(node, peer, lambda: (tmp_path / "autosave.previous.gpm").exists())
    spin_until(node, peer, node.saver.is_autosaved)
    assert (tmp_path / "autosave.previous.gpm").read_bytes() == left


def test_the_autosave_of_the_run_before_can_be_named_as_the_map_to_go_on_with(tmp_path, node_of):
    path = tmp_path / "autosave.gpm"
    settings = MapSettings(
        max_inducing=80, resolution=0.1, learn_hyperparameters=False, lengthscale=0.6, **STARTS
    )
    save_checkpoint(path, MapSession(settings).state_dict(), about={"number": 1})
    node, _ = node_of(save_directory=str(tmp_path), load_checkpoint=str(path), autosave_period=60.0)
    assert path.exists() and node.saver.newest_path == path

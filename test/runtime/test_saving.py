"""Saves of a live map, by the map's and the file thread, without ROS."""

import re
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from gp_mapping import Samples
from gp_mapping.core.stored import StoredState
from gp_mapping.intake import Intake
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.file_thread import ClosingError, FileThread, QueueFullError
from gp_mapping.runtime.saving import Saver
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from gp_mapping.store.resume import MapFiles
from gp_mapping.store.sessions import Requirements, saved_session


@pytest.fixture
def worker():
    session = MapSession(
        MapSettings(
            lengthscale=0.8,
            signal_stddev=1e-5,
            noise_stddev=1e-6,
            cells=False,
            learn_hyperparameters=False,
        )
    )
    x = torch.rand(30, 2, dtype=torch.float64)
    session.ingest(Samples(x, 1e-6 * x[:, :1]))
    session.flush()
    made = MapWorker(session, Intake(IntakeSettings()), queue_size=10)
    made.start()
    yield made
    made.stop(abandon=True)


def test_an_autosave_that_the_file_thread_has_no_room_for_is_said_and_comes_when_it_has(
    worker, tmp_path
):
    files, began, disk, said = FileThread(size=1), threading.Event(), threading.Event(), []
    settings = SimpleNamespace(save_directory=str(tmp_path), map_name="hall", autosave_period=10.0)
    saver = Saver(worker, files, lambda: settings, "/mapping", on_error=said.append)
    x = torch.rand(30, 2, dtype=torch.float64)
    worker.call(lambda session: session.ingest(Samples(x, 1e-6 * x[:, :1]))).result(30.0)

    held = files.submit(lambda: began.set() or disk.wait())  # a disk that does not answer
    assert began.wait(10.0)
    files.submit(lambda: None)
    with pytest.raises(QueueFullError):
        files.submit(lambda: None)
    now = time.monotonic() + 20.0
    saver.autosave(now)
    assert (
        "jobs wait for the disk" in saver.problem
        and said == [saver.problem]
        and not saver.autosaves
    )

    disk.set()
    assert held.result(10.0)
    saver.autosave(now + 20.0)
    while files.busy:
        time.sleep(0.01)
    assert files.close(10.0)
    assert saver.problem == "" and saver.is_autosaved()
    assert saved_session(saver.autosaved_path, tmp_path).raw_count == 60
    with pytest.raises(ClosingError):
        files.submit(lambda: None)


def test_a_tile_that_is_gone_costs_no_autosave_and_is_said_once(worker, tmp_path):
    files, said = FileThread(size=2), []
    settings = SimpleNamespace(save_directory=str(tmp_path), map_name="hall", autosave_period=10.0)
    saver = Saver(worker, files, lambda: settings, "/mapping", on_error=said.append)
    tile = StoredState("0 1", {"n": 1})
    save_checkpoint(tmp_path / "before.gpm", {"tile": tile})
    tile.source.path.unlink()
    worker.call(lambda session: session.about.update(tile=tile)).result(30.0)
    for _ in range(2):
        saver.autosave_now()
        assert said == [saver.problem]
    assert saver.autosaves == 2 and saver.is_autosaved() and files.close(10.0)
    assert saver.problem.startswith("tile 0 1 of the map is left out: ")
    assert load_checkpoint(saver.autosaved_path)["raw_count"] == 30


def test_two_nodes_of_one_name_that_save_by_themselves_into_one_folder_keep_both_maps(
    worker, tmp_path
):
    """Robots in DDS domains of their own, on one network folder: each went on from the other's map after a crash."""
    settings = SimpleNamespace(save_directory=str(tmp_path), map_name="", autosave_period=10.0)
    others = MapSession(worker.call(lambda session: session.settings).result(30.0))
    x = torch.rand(40, 2, dtype=torch.float64)
    others.ingest(Samples(x, 1e-6 * x[:, :1]))
    others.flush()
    other = MapWorker(others, Intake(IntakeSettings()), queue_size=10)
    other.start()
    said, files = [], FileThread()
    path, kept = tmp_path / "autosave.gpm", tmp_path / "autosave.previous.gpm"
    savers = [  # both have begun before either has saved
        Saver(each, files, lambda: settings, "/mapping", on_error=said.append, own=[path])
        for each in (worker, other)
    ]
    earlier = save_checkpoint(kept, {"of": "a day before"}).read_bytes()
    try:
        savers[0].autosave_now()
        assert savers[0].problem == ""
        for turn in (1, 0, 1):
            savers[turn].autosave_now()
            assert "a node of the same name" in savers[turn].problem
            assert load_checkpoint(path)["raw_count"] == (30, 40)[turn]
            assert load_checkpoint(kept)["raw_count"] == (40, 30)[turn]
        # each says it once, and the later one at its start, too
        assert len(said) == 3 and "was a node started twice" in said[0]
        assert (tmp_path / "autosave.previous-2.gpm").read_bytes() == earlier
        # what was there is kept once by each; then the other's newest map replaces its earlier ones
        assert sum(1 for _ in tmp_path.glob("autosave.previous*.gpm")) == 3
        savers[1].autosave_now()
        assert savers[1].problem == ""
    finally:
        other.stop(abandon=True)
        files.close(10.0)


def test_an_autosave_does_not_wait_for_what_is_queued(worker, tmp_path, monkeypatch):
    monkeypatch.setattr("gp_mapping.runtime.worker.CHUNK", 5)
    settings = SimpleNamespace(save_directory=str(tmp_path), map_name="", autosave_period=10.0)
    files = FileThread()
    saver = Saver(worker, files, lambda: settings, "/mapping")
    x = torch.rand(30, 2, dtype=torch.float64)
    worker.call(lambda session: session.ingest(Samples(x, 1e-6 * x[:, :1]))).result(30.0)
    found = []

    def work(_):
        """One of many entries of the queue; it is short once the autosave is there."""
        found.append((tmp_path / "autosave.gpm").exists())
        time.sleep(0.0 if found[-1] else 0.01)

    for _ in range(300):
        worker.call(work)
    files.submit(saver.autosave_now).result(20.0)
    files.close(10.0)
    worker.call(lambda _: None).result(10.0)
    assert found[-1] and not found[0]


def test_a_map_of_another_run_outlives_a_save_in_its_place(worker, tmp_path):
    """A node started twice with save_on_exit, or again without resume: neither map is lost."""
    settings = SimpleNamespace(
        save_directory=str(tmp_path), map_name="", autosave_period=0.0, suggestion_rate=0.0
    )
    others = MapSession(worker.call(lambda session: session.settings).result(30.0))
    x = torch.rand(40, 2, dtype=torch.float64)
    others.ingest(Samples(x, 1e-6 * x[:, :1]))
    others.flush()
    other = MapWorker(others, Intake(IntakeSettings()), queue_size=10)
    other.start()
    said, files = [], FileThread()
    path, kept = tmp_path / "map.gpm", tmp_path / "map.previous.gpm"
    earlier = save_checkpoint(path, {"of": "a day before"}).read_bytes()
    first, second = (
        Saver(each, files, lambda: settings, "/mapping", on_error=said.append)
        for each in (worker, other)
    )
    try:
        assert first.shared == "" and "was a node started twice" in second.shared
        saved = first.save_now(tmp_path, exports=False)
        assert kept.read_bytes() == earlier
        assert "did not go on from it" in saved.problem and str(kept) in saved.problem

        assert first.save_now(tmp_path, exports=False).problem == ""  # its own map
        saved = second.save_now(tmp_path, exports=False)
        assert load_checkpoint(path)["raw_count"] == 40 and load_checkpoint(kept)["raw_count"] == 30
        assert (tmp_path / "map.previous-2.gpm").read_bytes() == earlier
        saved = first.save_now(tmp_path, exports=False)
        assert load_checkpoint(path)["raw_count"] == 30 and load_checkpoint(kept)["raw_count"] == 40
        assert "somebody else saves there, too" in saved.problem

        first.release()
        second.save_now(tmp_path, exports=False)
        assert second.shared == ""
    finally:
        other.stop(abandon=True)
        files.close(10.0)


@pytest.mark.parametrize("in_the_way", ["a file", "a link that leads nowhere"])
def test_where_no_folder_can_be_made_that_is_said(worker, tmp_path, in_the_way):
    hall, files = tmp_path / "hall", FileThread()
    if in_the_way == "a file":
        hall.write_text("")
    else:
        hall.symlink_to(tmp_path / "nowhere" / "hall")
    settings = SimpleNamespace(save_directory=str(tmp_path), map_name="hall", autosave_period=10.0)
    saver = Saver(worker, files, lambda: settings, "/mapping", on_error=lambda text: None)
    reason = rf"cannot be written \({hall} is no folder\)"
    saver.autosave_now()
    assert re.search(
        rf"^the map could not be saved by itself: {hall}/autosave.gpm: .*{reason}", saver.problem
    )
    with pytest.raises(CheckpointError, match=reason):
        saver.save_now(hall)
    assert files.close(10.0) and not saver.written


def test_a_map_that_was_saved_when_asked_is_not_saved_again_by_itself(worker, tmp_path):
    files = FileThread(size=2)
    settings = SimpleNamespace(
        save_directory=str(tmp_path), map_name="hall", autosave_period=10.0, suggestion_rate=0.0
    )
    told = []
    saver = Saver(worker, files, lambda: settings, "/mapping", on_saved=told.append)
    x = torch.rand(30, 2, dtype=torch.float64)
    worker.call(lambda session: session.ingest(Samples(x, 1e-6 * x[:, :1]))).result(30.0)
    assert not saver.is_saved() and not saver.has_measurements() and saver.newest_path is None

    saved = saver.save_now(tmp_path / "hall", exports=False)
    assert saver.is_saved() and saver.newest_path == saved.paths["checkpoint"]
    assert told == [f"saved checkpoint {saver.newest_path}"]
    saver.autosave(time.monotonic() + 20.0)
    assert not files.busy and saver.autosaved_path is None and files.close(10.0)
    assert [path.name for path in (tmp_path / "hall").glob("*.gpm")] == ["map.gpm"]

    session, revision, samples = worker.key
    saver.mark_saved((session, revision - 1, samples), saver.newest_path)
    assert saver.has_measurements() and not saver.is_saved()
    for other in ((session + 1, revision, samples), (session, revision, samples - 1)):
        saver.mark_saved(other, saver.newest_path)
        assert not saver.has_measurements()


def test_a_job_that_is_cancelled_is_left_out_and_the_thread_goes_on():
    files, began, disk, ran = FileThread(), threading.Event(), threading.Event(), []
    held = files.submit(lambda: began.set() or disk.wait())
    assert began.wait(10.0) and not held.cancel(), "it has begun"
    cancelled, other = files.submit(lambda: ran.append(1)), files.submit(lambda: 2)
    assert cancelled.cancel()
    disk.set()
    assert other.result(10.0) == 2 and held.result(0) and not ran

    began.clear()
    disk.clear()
    files.submit(lambda: began.set() or disk.wait())
    assert began.wait(10.0)
    cancelled, refused = files.submit(lambda: ran.append(1)), files.submit(lambda: ran.append(2))
    cancelled.cancel()
    assert not files.close(0.0) and isinstance(refused.exception(0), ClosingError)
    disk.set()
    assert files.close(10.0) and not ran


class Quick(Saver):
    """Without pictures."""

    def save_now(self, folder, exports=False):
        return super().save_now(folder, exports)


def test_who_asks_while_a_save_waits_shares_it_and_who_asks_later_gets_what_came_since(
    worker, tmp_path
):
    files, began, disk, said = FileThread(size=3), threading.Event(), threading.Event(), []
    settings = SimpleNamespace(save_directory=str(tmp_path), map_name="hall", autosave_period=0.0)
    saver = Quick(worker, files, lambda: settings, "/mapping", on_saved=said.append)
    files.submit(lambda: began.set() or disk.wait())
    assert began.wait(10.0)
    one, other, elsewhere = saver.save("hall"), saver.save("hall"), saver.save("yard")
    assert one is other is not elsewhere
    disk.set()
    assert one.result(10.0).snapshot.samples == elsewhere.result(10.0).snapshot.samples == 30

    x = torch.rand(10, 2, dtype=torch.float64)
    worker.call(lambda session: session.ingest(Samples(x, 1e-6 * x[:, :1]))).result(30.0)
    later = saver.save("hall")
    assert later is not one and later.result(10.0).snapshot.samples == 40 and len(said) == 3
    with pytest.raises(ValueError, match="hall"):
        saver.save("../hall")
    assert files.close(10.0)


@pytest.mark.parametrize("ends", ["crash", "signal"])
@pytest.mark.parametrize("saved", [True, False])
def test_a_map_that_was_cleared_does_not_come_back(worker, tmp_path, saved, ends):
    """Of a run that went on from a file and was cleared at once nothing was written: `resume` began with that file."""
    files = FileThread(size=2)
    settings = SimpleNamespace(
        save_directory=str(tmp_path), map_name="", autosave_period=10.0, resume=True
    )
    saver = Saver(worker, files, lambda: settings, "/mapping")
    if saved:
        saver.save("").result(30.0)
    worker.clear().result(30.0)
    if ends == "crash":
        saver.autosave(time.monotonic() + 20.0)
        files.submit(lambda: None).result(30.0)
    else:
        saver.autosave_last()
        saver.autosave_last()
        assert saver.autosaves == saved
    files.close(1.0)
    resumed = MapFiles(tmp_path).resume(Requirements(MapSettings()))
    # where there is no file there is nothing to come back, and nothing to write
    assert resumed.session.cell_count == 0 and (resumed.path is not None) == saved

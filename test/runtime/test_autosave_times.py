"""When a map is saved by itself, and what is said where it cannot be."""

from types import SimpleNamespace as Namespace

import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime import saving
from gp_mapping.runtime.file_thread import QueueFullError
from gp_mapping.runtime.saving import Saver, keep_before
from gp_mapping.store.checkpoint import about_checkpoint, load_checkpoint, save_checkpoint
from gp_mapping.store.resume import MapFiles

# given: to find them a map takes its first cells in again and again
STARTS = {
    "lengthscale": 0.5,
    "signal_stddev": 1e-5,
    "noise_stddev": 1e-6,
    "constant_stddev": 2e-4,
}


class Here:
    """Worker and file thread in one: everything is done at once, by the clock of the test."""

    def __init__(self):
        self.session = MapSession(MapSettings(learn_hyperparameters=False, **STARTS))
        self.now, self.takes, self.waiting, self.full = 1000.0, 0.0, [], False
        self.position = self.free = None
        self.published_frame = "map"
        self.grow()

    def grow(self):
        x = torch.rand(20, 2, dtype=torch.float64) + len(self.session.path)
        self.session.ingest(Samples(x, 45e-6 + 1e-6 * x[:, :1]))
        self.session.flush()

    @property
    def key(self):
        return 0, self.session.revision, self.session.raw_count

    @property
    def revision(self):
        return self.session.revision if self.session.cell_count else 0

    def call(self, function, soon=False):
        return Namespace(result=lambda: function(self.session))

    def timed(self, stage, function, *arguments):
        self.now += self.takes
        return function(*arguments)

    def submit(self, job):
        if self.full:
            raise QueueFullError("2 jobs wait")
        future = Namespace(ready=False)
        future.done = lambda: future.ready
        self.waiting.append((future, job))
        return future

    def work(self):
        future, job = self.waiting.pop(0)
        job()
        future.ready = True


@pytest.fixture
def here(monkeypatch):
    here = Here()
    monkeypatch.setattr(saving, "time", Namespace(monotonic=lambda: here.now))
    return here


def saver_of(here, tmp_path, **given):
    settings = Namespace(
        save_directory=str(tmp_path), map_name="hall", autosave_period=10.0, suggestion_rate=0.0
    )
    vars(settings).update(given)
    said = []
    saver = Saver(
        here, here, lambda: settings, "/mapping", on_saved=said.append, on_error=said.append
    )
    saver.said, saver.given = said, settings
    return saver


def autosaved(saver, here, at):
    """Whether an autosave is begun at so many seconds, and written then."""
    here.now = 1000.0 + at
    saver.autosave(here.now)
    begun = bool(here.waiting)
    if begun:
        here.work()
    return begun


def test_an_autosave_is_on_the_disk_a_period_after_the_one_before_began(here, tmp_path):
    saver = saver_of(here, tmp_path)
    assert not autosaved(saver, here, 50.0), "it is as it was loaded"
    assert saver.autosaved_path is None and not saver.is_autosaved()
    here.grow()
    assert not autosaved(saver, here, 9.4) and autosaved(saver, here, 9.6)
    assert saver.autosaves == 1 and saver.is_autosaved()
    assert load_checkpoint(saver.autosaved_path)["raw_count"] == 40
    assert about_checkpoint(saver.autosaved_path)["number"] >= 1
    assert not autosaved(saver, here, 60.0), "nothing has changed"
    here.grow()
    assert not saver.is_autosaved()
    here.takes = 3.0
    assert autosaved(saver, here, 70.0)
    here.grow()
    assert not autosaved(saver, here, 76.4) and autosaved(saver, here, 76.6)
    # however long it takes, half of the time the disk is free
    here.takes = 30.0
    here.grow()
    assert autosaved(saver, here, 90.0)
    here.grow()
    here.takes = 0.0
    assert not autosaved(saver, here, 94.9) and autosaved(saver, here, 95.1)
    here.grow()
    saver.given.autosave_period = 0.0
    assert not autosaved(saver, here, 500.0)


def test_one_at_a_time_and_none_that_has_no_room(here, tmp_path):
    saver = saver_of(here, tmp_path)
    here.grow()
    saver.autosave(1050.0)
    saver.autosave(1090.0)
    assert len(here.waiting) == 1, "the one before is not written yet"
    here.work()
    here.grow()
    here.full = True
    saver.autosave(1200.0)
    assert saver.said == [saver.problem] == ["the map could not be saved by itself: 2 jobs wait"]
    here.full = False
    saver.autosave(1205.0)
    assert not here.waiting, "it is tried again after a period"
    saver.autosave(1210.0)
    assert len(here.waiting) == 1
    here.work()
    assert saver.problem == "" and saver.autosaves == 2


def test_an_empty_map_is_not_saved_by_itself_unless_one_would_come_back(here, tmp_path):
    here.session = MapSession(MapSettings())
    saver = saver_of(here, tmp_path)
    here.session.ingest(Samples([[0.0, 0.0]], [[45e-6]]))
    here.session.clear()
    assert here.key != (0, 0, 0) or not autosaved(saver, here, 50.0)
    assert not autosaved(saver, here, 60.0)
    here.grow()
    assert autosaved(saver, here, 80.0)
    here.session.clear()
    assert autosaved(saver, here, 100.0), "what is on the disk was cleared"


def test_a_disk_that_fails_is_said_and_the_map_goes_on(here, tmp_path, monkeypatch):
    saver = saver_of(here, tmp_path)
    here.grow()
    for error, told in ((OSError("disk full"), "disk full"), (KeyError("x"), "KeyError('x')")):
        with monkeypatch.context() as patch:
            patch.setattr(saving, "save_checkpoint", lambda *a, e=error: (_ for _ in ()).throw(e))
            saver.autosave_now()
        assert saver.problem == f"the map could not be saved by itself: {told}"
        assert saver.said.pop() == saver.problem and saver.autosaves == 0
        assert not saver.is_autosaved() and saver.autosaved_path is None
    saver.autosave_now()
    assert saver.problem == "" and not saver.said and saver.autosaves == 1


def test_a_saved_map_is_known_by_its_key(here, tmp_path):
    saver = saver_of(here, tmp_path)
    assert not saver.is_saved()
    saver.mark_saved(here.key, tmp_path / "map.gpm")
    assert saver.is_saved() and saver.newest_path == tmp_path / "map.gpm" and not saver.written
    here.grow()
    assert not saver.is_saved()
    saved = saver.save_now(tmp_path / "hall", exports=False)
    assert saver.is_saved() and saver.written == {saved.paths["checkpoint"]}
    assert saver.said == [str(saved)] and about_checkpoint(saver.newest_path)["written"]
    assert not autosaved(saver, here, 500.0), "all of it is saved"


def test_suggestions_that_fail_cost_no_save(here, tmp_path, monkeypatch):
    saver = saver_of(here, tmp_path, suggestion_rate=1.0)
    asked = []

    class Broken:
        def __init__(self, settings, rules=None):
            asked.append((settings, rules))

        def __call__(self, *arguments):
            asked.append(arguments[2:])
            raise RuntimeError("no ground")

    monkeypatch.setattr(saving, "Suggester", Broken)
    found = []
    monkeypatch.setattr(
        saving,
        "write_snapshot",
        lambda snapshot, folder, about, suggest, exports, around: (
            found.append(suggest(here.session, None))
            or Namespace(paths={"checkpoint": folder / "map.gpm"})
        ),
    )
    saver.save_now(tmp_path / "hall")
    assert found == [None] and asked[1] == (None, None, "map") and asked[0][0] is saver.given
    assert saver.said[0] == "saved without suggestions: RuntimeError('no ground')"
    saver.given.suggestion_rate = 0.0
    saver.save_now(tmp_path / "hall")
    assert found == [None, None] and len(asked) == 2


def test_an_autosave_of_a_run_before_is_set_aside_and_said(tmp_path):
    said, files = [], MapFiles(tmp_path / "hall", "/mapping")
    assert keep_before(files, said.append) and not said
    (tmp_path / "hall").mkdir()
    save_checkpoint(files.autosave, {"n": 1}, {"number": 5, "written": "now"})
    assert keep_before(files, said.append) and len(said) == 1
    assert "is kept as" in said[0] and not files.autosave.exists()
    kept = [path for path in (tmp_path / "hall").iterdir() if path.name in said[0]]
    assert len(kept) == 1 and load_checkpoint(kept[0])["n"] == 1

    def refuse():
        raise OSError("read-only")

    assert not keep_before(Namespace(keep_before=refuse), said.append)
    assert "cannot be set aside: read-only; until it can be" in said[1]


def test_an_autosave_of_a_run_before_is_set_aside_once_before_the_first_of_this_run(here, tmp_path):
    files = MapFiles(tmp_path / "hall", "/mapping")
    files.folder.mkdir()
    save_checkpoint(files.autosave, {"raw_count": 7}, {"number": 5})
    own = saver_of(here, tmp_path)
    for _ in range(2):
        here.grow()
        own.autosave_now()
    assert own.autosaves == 2 and len(own.said) == 1 and "is kept as" in own.said[0]
    assert load_checkpoint(files.before)["raw_count"] == 7, "not the one of this run"
    assert load_checkpoint(files.autosave)["raw_count"] == 60
    # one that this run goes on from is its own
    goes_on = Saver(here, here, lambda: own.given, "/mapping", own=[files.autosave])
    here.grow()
    goes_on.autosave_now()
    assert load_checkpoint(files.before)["raw_count"] == 7
    # into a folder that is not there yet
    own.given.map_name = "new/hall"
    own.autosave_now()
    assert own.problem == "" and own.autosaved_path == tmp_path / "new" / "hall" / "autosave.gpm"
    assert own.autosaved_path.exists()


def test_none_of_an_autosave_of_a_run_before_is_in_a_map_that_this_run_has_saved(here, tmp_path):
    files = MapFiles(tmp_path / "hall", "/mapping")
    files.folder.mkdir()
    save_checkpoint(files.autosave, {"raw_count": 7}, {"number": 5})
    own = saver_of(here, tmp_path)
    own.save_now(files.folder, exports=False)
    assert files.newest_first()[0] == files.saved
    here.grow()
    own.autosave_now()
    assert load_checkpoint(files.before)["raw_count"] == 7
    # what this run has not saved may hold it: the saved map went on from it
    other = MapFiles(tmp_path / "yard", "/mapping")
    other.folder.mkdir()
    save_checkpoint(other.autosave, {"raw_count": 7}, {"number": 5})
    save_checkpoint(other.saved, {"raw_count": 9}, {"number": 6})
    own.given.map_name = "yard"
    own.autosave_now()
    assert not other.before.exists() and load_checkpoint(other.autosave)["raw_count"] == 40

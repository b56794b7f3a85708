"""A map that begins again with all its cells does so beside the one that answers, a few at a time."""

import copy
from functools import lru_cache

import pytest
import torch
from slow_sensor import drive
from states import same

from gp_mapping.mapping.beginning import renewing
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.mapping.frames.watch import FrameWatch
from gp_mapping.mapping.growing.cell_map import CellMap
from gp_mapping.mapping.response import response
from gp_mapping.mapping.response.lag import LagSearch
from gp_mapping.mapping.response.response import Response
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint

SAMPLES = drive(1, 3.0, depth=8.0)
BEGIN, END = 565, 720  # that the sensor is slow shows in between, and the new map has caught up


@lru_cache
def state_of(model, **settings):
    """Of a thermometer at BEGIN, with numbers that need no learning: it is not looked at here."""
    given = {"lengthscale": 2.0, "signal_stddev": 1.5, "noise_stddev": 0.05}
    given |= {"constant_stddev": 4.5}
    given |= {"learn_hyperparameters": False, "model": model} | settings
    session = MapSession(map_settings_for("temperature", MapSettings(**given)))
    session.ingest(SAMPLES[:BEGIN])
    assert not session.response.found
    return session.state_dict()


def session_of(model="exact", **settings):
    """A session that has taken the first samples."""
    return MapSession.from_state_dict(copy.deepcopy(state_of(model, **settings)))


def one_by_one(session):
    """Ingest sample by sample; yield after each."""
    for i in range(BEGIN, END):
        session.ingest(SAMPLES[i : i + 1])
        yield i


def test_no_call_takes_more_than_a_few_cells_or_steps(monkeypatch):
    """However many cells there are to be taken again."""
    session, cells, steps, most = session_of(), [], [], [0, 0]
    advance, admit = LagSearch.advance, CellMap.admit
    monkeypatch.setattr(LagSearch, "advance", lambda self: steps.append(1) or advance(self))
    monkeypatch.setattr(CellMap, "admit", lambda *which: cells.append(1) or admit(*which))
    renewing_calls = 0
    for _ in one_by_one(session):
        most = [max(most[0], len(cells)), max(most[1], len(steps))]
        renewing_calls += session.is_renewing
        cells.clear()
        steps.clear()
    assert session.response.found and renewing_calls > 20
    assert most[0] <= renewing.TOGETHER + 2 and 0 < most[1] <= response.STEPS


@pytest.mark.parametrize("model", ["dual_svgp", "exact"])
def test_afterwards_it_is_the_map_that_all_at_once_makes(model, monkeypatch):
    """To the bit; with a break of the pass while it catches up."""
    states = []
    for together in (renewing.TOGETHER, 10**6):
        monkeypatch.setattr(renewing, "TOGETHER", together)
        session, began = session_of(model), None
        for i in one_by_one(session):
            began = i if session.response.found and began is None else began
            if began is not None and i == began + 20:
                assert session.is_renewing == (together < 10**6)
                session.break_pass()
        assert began is not None and not session.is_renewing
        state = session.state_dict()
        names = "map", "start", "first_values", "bias", "pass_samples", "cell_count", "raw_count"
        states.append([state[name] for name in names] + [session.scores.change_count])
    assert same(*states)


def test_until_then_the_map_of_before_answers():
    """Unchanged, and all of it; the new one takes its place when it has seen all."""
    session, before, x = session_of(), None, SAMPLES.x[:300:10]
    for _ in one_by_one(session):
        if not session.is_renewing:
            if before is not None:
                break
            continue
        now = session.cell_count, session.revision, session.map.predict(x).mean
        before = before or now
        assert now[:2] == before[:2] and torch.equal(now[2], before[2])
    assert before is not None and session.revision > before[1]
    assert (session.map.predict(x).mean - before[2]).abs().max() > 0.1


@pytest.mark.parametrize("moment", ["in the search", "in the catching up"])
def test_it_goes_on_after_a_restart_in_its_middle(moment, tmp_path):
    """Exactly, from its file."""
    session, restored = session_of("dual_svgp"), None
    for i in one_by_one(session):
        if restored is not None:
            restored.ingest(SAMPLES[i : i + 1])
            continue
        searching = session.response.state_dict()["search"]
        if moment == "in the search":
            due = searching is not None and searching["steps"] > 8
        else:
            due = session.is_renewing and session.waiting_count < 30
        if due:
            file = save_checkpoint(tmp_path / "map.gpm", session.state_dict())
            restored = MapSession.from_state_dict(load_checkpoint(file))
    assert restored is not None and session.response.found
    assert same(session.state_dict(), restored.state_dict())


def test_each_sample_is_used_or_refused_all_along():
    """By a map that takes thirty cells; what the one before refused is offered to the new one."""
    session, refused = session_of(max_exact_samples=30), []
    for i in one_by_one(session):
        assert session.raw_count + session.refused == i + 1
        refused.append(session.refused)
    assert session.response.found and not session.is_renewing
    # blocks of many samples are one to the map
    assert refused[0] > refused[-1] > 0
    assert session.cell_count == 30 and session.left_out > 0


def test_a_flush_leaves_nothing_waiting():
    """A map that is saved for good has seen all of its cells."""
    session = session_of()
    for _ in one_by_one(session):
        if session.is_renewing:
            break
    assert session.waiting_count > 10
    session.flush()
    assert not session.is_renewing and not session.waiting_count


def test_what_waits_only_shrinks():
    """Also where a pass ends with each sample."""
    session, waiting = session_of(), []
    for _ in one_by_one(session):
        if session.is_renewing:
            session.break_pass()
            waiting.append(session.waiting_count)
        elif waiting:
            break
    assert len(waiting) > 10 and max(waiting) <= waiting[0]


@pytest.mark.parametrize(
    ("frames", "asked"),
    [
        ("in one frame", ["response", "drift", "response", "drift"]),
        ("is_looking", ["drift", "drift"]),
        ("is_contradicted", []),
    ],
)
def test_passes_that_contradict_each_other_tell_nothing_of_the_sensor(frames, asked, monkeypatch):
    """Neither with a cell nor at a flush; while it is looked for frames, a slow sensor waits."""
    session, told = session_of(), []
    for watch, name in ((Response, "response"), (DriftWatch, "drift")):
        monkeypatch.setattr(watch, "look", lambda *_, name=name: told.append(name))
        finishes = lambda *_, name=name: told.append(name) or iter(())  # noqa: E731
        monkeypatch.setattr(watch, "finishing_search", finishes)
    monkeypatch.setattr(FrameWatch, "look", lambda *_: None)
    if frames != "in one frame":
        monkeypatch.setattr(FrameWatch, frames, property(lambda _: True))
    session.break_pass()  # closes the open cell
    session.flush()
    assert told == asked

"""A sensor that drifts: its map begins again with more constants, and is as if they had been set."""

import copy
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from drifting import LENGTH, crossing, done, lanes, passes
from slow_sensor import field
from states import differences, same

from gp_mapping.analysis.pass_biases import found_drift
from gp_mapping.core.types import Samples
from gp_mapping.mapping.drift.evidence import DriftSearch
from gp_mapping.mapping.drift.kept import KeptCells
from gp_mapping.mapping.drift.sensor_place import SensorPlace
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.mapping.moving import move_session
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.archive import read_state, write_state
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint

PATHS = [lanes(6.0, 5.0, 1.0, 0.2), lanes(5.0, 6.0, 1.0, 0.2).flip(1)]
LONGER = passes(1, PATHS * 2, drift=1.0, seconds=30.0, warms_up=True)
DRIFTING, STEADY = LONGER[:2], passes(1, PATHS)
# with numbers that need no learning
GIVEN = {"field_scale": 1.0, "lengthscale": LENGTH, "signal_stddev": 1.0, "noise_stddev": 0.05}
GIVEN |= {"heading_stddev": 0.0, "learn_hyperparameters": False, "learn_noise": True}
GIVEN |= {"cell_length": 0.4, "learn_time_offset": False, "constant_stddev": 3.0}


def mapped(parts, count=None, finish=True, **settings):
    """A map of the first samples of some passes."""
    session = MapSession(MapSettings(**(GIVEN | {"model": "exact"} | settings)))
    for part in parts:
        session.break_pass()
        session.ingest(part[: len(part) if count is None else max(0, count)])
        count = None if count is None else count - len(part)
        if count is not None and count <= 0:
            break
    if finish:
        session.finish()
    return session


@lru_cache
def found():
    """Of the whole drive."""
    return mapped(DRIFTING)


def rmse(session, seed=1):
    """Beside the field's level, which no biases tell."""
    x = torch.rand(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    x = x * torch.tensor([6.0, 5.0])
    error = session.predict(x).mean[:, 0] - field(x, seed, LENGTH)
    return float((error - error.mean()).square().mean().sqrt())


def test_it_is_found_and_the_map_is_better_and_says_so():
    session, left = found(), mapped(DRIFTING, learn_bias_time=False)
    assert session.drift.drift is not None and left.drift.drift is None
    assert rmse(session) < 0.6 * rmse(left)
    assert session.bias_numbers.time == session.drift.bias_time > 0.0
    assert len(session.map.biases()) > 8 > len(left.map.biases())
    assert any("warm-up or drift" in note for note in session.warnings)
    told = found_drift(session)
    assert told["warms_up"] and 0.3 < told["stddev"] < 3.0 and 15.0 < told["seconds"] < 60.0
    assert found_drift(left) is None
    assert not any("drift" in note for note in left.warnings)


def test_the_map_is_as_if_the_time_had_been_set():
    """To the bit."""
    given = mapped(DRIFTING, bias_time=found().drift.bias_time)
    assert same(found().map.state_dict(), given.map.state_dict())
    assert found().bias_numbers.state_dict() == given.bias_numbers.state_dict()
    assert found().raw_count == given.raw_count and found().refused == given.refused == 0


def test_there_are_constants_for_twice_the_drive_so_far():
    """Where few can be kept apart, each is for a longer part of a pass than the drift asks for."""
    session = mapped(DRIFTING, max_biases=6)
    seconds = sum(float(part.stamp[-1] - part.stamp[0]) for part in DRIFTING)
    assert session.drift.drift is not None
    assert session.drift.bias_time > 2.0 * found().drift.bias_time
    assert 0.6 * seconds < 6 * session.drift.bias_time / 2.0 <= seconds


@pytest.mark.parametrize("model", ["exact", "dual_svgp"])
def test_a_map_without_a_drift_is_as_if_nobody_had_looked(model):
    """To the bit; and looked it has."""
    session, not_asked = (
        mapped(STEADY[:2], learn_bias_time=asked, model=model) for asked in (True, False)
    )
    assert session.drift.state_dict()["looked"] >= 100 and session.drift.drift is None
    assert not_asked.drift.state_dict()["kept"] is None
    for name in ("map", "bias", "scores", "start"):
        assert same(session.state_dict()[name], not_asked.state_dict()[name])


def test_no_call_takes_many_steps_and_a_file_in_the_middle_goes_on_exactly(monkeypatch, tmp_path):
    """In the search, of more steps with a cell than by default, and while the new map catches up."""
    steps, advance = [], DriftSearch.advance
    monkeypatch.setattr(DriftSearch, "advance", lambda self: steps.append(1) or advance(self))
    monkeypatch.setattr(DriftWatch, "schedule", replace(DriftWatch.schedule, steps=25))
    begin, parts = 330, [*LONGER[:2], LONGER[2][:80]]  # shortly before the search
    session, restored, most = mapped(LONGER, begin, finish=False), {}, 0

    def saved(name):
        file = save_checkpoint(tmp_path / f"{name}.gpm", session.state_dict())
        restored[name] = MapSession.from_state_dict(load_checkpoint(file))

    for number, part in enumerate(parts):
        for i in range(max(0, begin - sum(map(len, parts[:number]))), len(part)):
            for each in (session, *restored.values()):
                if i == 0:
                    each.break_pass()
                steps.clear()
                each.ingest(part[i : i + 1])
                most = max(most, len(steps))
            searching = session.drift.state_dict()["search"]
            if not restored and searching is not None and searching["steps"] > 20:
                saved("search")
            if "search" in restored and session.is_renewing and session.waiting_count < 120:
                saved("catching up")
                found, expected = restored["search"].state_dict(), session.state_dict()
                # this model's scores pause after a resume, and are made again with the map
                unlike = differences(expected, found)
                assert all(name.startswith("state.scores.") for name in unlike), unlike
                del restored["search"]
    assert session.drift.drift is not None and 0 < most <= DriftWatch.schedule.steps
    for each in (session, restored["catching up"]):
        each.finish()
    assert same(session.state_dict(), restored["catching up"].state_dict())


def test_a_map_that_is_moved_or_merged_keeps_the_time_and_begins_no_more():
    moved = move_session(copy.deepcopy(found()), 10.0, 5.0, 0.3)
    assert moved.bias_numbers.time == found().bias_numbers.time
    assert moved.drift.notes() == found().drift.notes()
    begun = mapped(DRIFTING[:1], finish=False)
    begun.merge(mapped(DRIFTING[1:2], learn_bias_time=False))
    assert begun.drift.state_dict()["kept"] is None


def test_a_time_that_is_set_or_no_constants_leave_nothing_to_look_for():
    for settings in ({"bias_time": 7.0}, {"learn_bias": False}, {"learn_bias_time": False}):
        session = mapped(DRIFTING[:1], 300, **settings)
        assert session.drift.state_dict()["kept"] is None
        assert session.bias_numbers.time == settings.get("bias_time", 0.0)
    vector = MapSession(MapSettings())
    part = STEADY[0][:50]
    vector.ingest(Samples(part.x, part.y.expand(-1, 3) * 1e-6, stamp=part.stamp))
    vector.flush()
    assert vector.drift.state_dict()["kept"] is None


def test_an_older_file_has_no_cells_to_begin_again_with():
    state = mapped(DRIFTING[:1], 200, finish=False).state_dict()
    del state["drift"], state["bias"]["time"]
    restored = MapSession.from_state_dict(state)
    assert restored.drift.state_dict()["kept"] is None and restored.bias_numbers.time == 0.0


def test_kept_cells_come_back_as_they_were():
    """Of several columns and lengths, also from a file."""
    kept, cells = KeptCells(), []
    for i in range(150):
        more = {} if i < 70 else {"heading": [[1.0, 0.0]] * (1 + i % 3)}
        rows = 1 + i % 3
        cell = Samples([[i, k] for k in range(rows)], [float(i)] * rows, stamp=[i] * rows, **more)
        cells.append((cell, i // 40))
        kept.add(*cells[-1])
    for each in (kept, KeptCells.restored(kept.state_dict())):
        assert each.rows == sum(len(cell) for cell, _ in cells)
        for (cell, number), (was, its) in zip(each, cells, strict=True):
            assert number == its and torch.equal(cell.x, was.x) and torch.equal(cell.y, was.y)
            assert (cell.heading is None) == (was.heading is None)
        tables, numbers = each.tables()
        assert len(tables) <= 4 and len(numbers) == each.rows


def test_a_sensor_that_turns_with_the_robot_is_named_after_a_resume_too():
    """Sun on one side of a thermometer, of which the map takes no part to turn with the robot."""
    settings, path = MapSettings(**GIVEN), torch.cat(crossing(LENGTH / 5.0))
    steady = passes(1, [path])[0]
    ahead = torch.cat([path[1:2] - path[:1], path.diff(dim=0)])
    ahead = ahead / ahead.norm(dim=1, keepdim=True).clamp_min(1e-9)
    watch = DriftWatch(settings, looks=True)
    watch.add(replace(steady, y=steady.y + 0.5 * ahead[:, :1], heading=ahead), 1)
    assert not done(watch.looking_last(lambda: LENGTH)) and watch.drift is None

    again = DriftWatch(settings, looks=True)
    again.load_state_dict(watch.state_dict())
    (note,) = watch.notes()
    assert again.notes() == watch.turning_notes() == [note]
    assert f"by about {watch.turning:.2g} uT" in note and "heading_stddev" in note
    assert 0.5 < watch.turning / 0.35 < 2.0


def as_saved(state, folder):
    """A state as a file gives it back."""
    write_state(folder / "state.gpm", state)
    return read_state(folder / "state.gpm")


def test_a_place_on_the_robot_is_said_with_how_sure_after_a_resume_too(tmp_path):
    """With the time offset where the map does not learn it, or where turns do not tell which it is."""
    fixed = MapSettings(time_offset=0.5, learn_time_offset=False)
    for settings, place, told in (
        (MapSettings(), SensorPlace(0.8, -0.02, 0.0, (0.02, 0.03, 0.0)), ["+0.80 ± 0.02", "-0.02"]),
        (
            MapSettings(),
            SensorPlace(0.0, 0.6, 0.3, (0.0, 0.03, 0.1)),
            ["+0.60 ± 0.03 to sensor_offset_y"],
        ),
        (fixed, SensorPlace(0.0, 0.0, 0.3, (0.0, 0.0, 0.1)), ["time_offset: 0.8 ± 0.1"]),
        (
            fixed,
            SensorPlace(0.8, 0.1, 0.0, (0.1, 0.1, 0.0), -1.6),
            ["-1.1 in place of", "tell which"],
        ),
    ):
        watch, again = DriftWatch(settings), DriftWatch(settings)
        watch.place = place
        again.load_state_dict(as_saved(watch.state_dict(), tmp_path))
        (note,) = again.notes()
        assert again.place == place and all(each in note for each in told)
        assert ("sensor_offset_x" in note) == (place.along > 0.0)
        assert ("time_offset" in note) == (not settings.learn_time_offset)

"""A glitch of the pose leaves the drawn room as it was; a robot that moves on is followed; the budget always holds."""

import copy
import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.atlas import overview
from gp_mapping.mapping.motion.extent import Extent
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

# starts are given, since to find them takes the first cells in again and again: that is test_start.py's
SETTINGS = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "max_inducing": 60,
    "resolution": 0.1,
    "lengthscale": 1.0,
    "signal_stddev": 4e-6,
    "noise_stddev": 3e-7,
    "constant_stddev": 1.2e-5,
    "cell_length": 0.3,  # few, of six samples: what is drawn where is a matter of poses
}


N = 420  # of a drive: 21 m on lanes of 5


def _lanes(n: int = N, step: float = 0.05, at=(0.0, 0.0)) -> np.ndarray:
    away = np.arange(n) * step
    lane = np.floor(away / 5.0)
    along = away - 5.0 * lane
    return np.stack([np.where(lane % 2 == 0, along, 5.0 - along), 0.5 * lane], 1) + at


def _samples(x: np.ndarray, start: float = 0.0) -> Samples:
    y = 45e-6 + 4e-6 * np.sin(x[:, 0]) + 1e-7 * np.random.default_rng(0).standard_normal(len(x))
    return Samples(
        x=torch.tensor(x), y=torch.tensor(y), stamp=start + torch.arange(len(x)).double() * 0.1
    )


def _with_glitch(far: float, at: int = 300, length: int = 1) -> np.ndarray:
    x = _lanes()
    x[at : at + length] += (far, -0.7 * far)
    return x


def _drawn_on_the_way(session: MapSession, samples: Samples, start: int, stop: int) -> MapSession:
    """A little is drawn after each sixty samples."""
    for part in range(start, stop, 60):
        session.ingest(samples[part : part + 60])
        session.render(300)
        assert session.renderer.points_drawn <= 300
    return session


@functools.cache
def _clean() -> MapSession:
    """Of the whole drive without a glitch; no test changes it, but for what it has drawn."""
    session = MapSession(MapSettings(**SETTINGS))
    session.ingest(_samples(_lanes()))
    return session


@functools.cache
def _half_way() -> MapSession:
    """Up to where a glitch is to come; no test changes it."""
    return _drawn_on_the_way(MapSession(MapSettings(**SETTINGS)), _samples(_lanes()), 0, 300)


@pytest.mark.parametrize("far", [100.0, 1.1e3, 3e4, 1e6])
@pytest.mark.parametrize("length", [1, 15])
def test_a_glitch_leaves_resolution_and_extent_as_they_were(far, length):
    clean, glitched = _clean(), _samples(_with_glitch(far, length=length))
    session = _drawn_on_the_way(copy.deepcopy(_half_way()), glitched, 300, N)
    want, grid = clean.render(), session.render()
    assert grid.resolution == want.resolution == 0.1
    height, width = want.shape
    assert (
        abs(grid.shape[0] - height) <= 20 and abs(grid.shape[1] - width) <= 20
    )  # a metre more where it has grown
    assert grid.known.sum() > 0.9 * want.known.sum()

    said = " ".join(session.warnings)
    assert "from the rest" in said and ("km" in said) == (far >= 1e3) and not clean.warnings
    assert session.report()["path_length"] == pytest.approx(clean.report()["path_length"], abs=1.0)


@pytest.mark.parametrize(
    "wild", [[0], [1], range(0, N, 5), range(280, 380)], ids=["first", "second", "fifth", "drift"]
)
def test_wild_poses_do_not_decide_what_is_wild(wild):
    """However early they come, every fifth of them, or a filter that runs away for a while."""
    chance, x = np.random.default_rng(2), _lanes()
    for n, i in enumerate(wild):
        x[i] = (70.0 * n, 70.0 * n) if len(wild) == 100 else chance.uniform(-1e5, 1e5, 2)
    session, samples = MapSession(MapSettings(**SETTINGS)), _samples(x)
    for part in range(0, N, 50):
        session.ingest(samples[part : part + 50])
        grid = session.render(300)
        assert grid.resolution == 0.1 and max(grid.shape) < 100, f"after {part + 50} samples"
    driven = session.driven.numpy()
    assert len(driven) > 45 and driven.min() >= 0.0 and driven.max() <= 6.0
    assert session.path_starts.sum() >= min(len(wild), 2) - 1


def test_many_glitches_cost_no_more():
    chance, x = np.random.default_rng(1), _lanes()
    for i in chance.choice(N, 40, replace=False):
        x[i] += chance.uniform(-1e5, 1e5, 2)
    session = MapSession(MapSettings(**SETTINGS))
    session.ingest(_samples(x))
    grid = session.render(500)
    assert grid.resolution == 0.1 and max(grid.shape) < 100 and session.renderer.points_drawn <= 500
    assert len(session.warnings) == 4 and "more places" in session.warnings[-1]


def test_a_robot_that_is_carried_and_stays_is_drawn():
    session = MapSession(MapSettings(**SETTINGS, max_grid_cells=200_000))
    session.ingest(_samples(_lanes()))
    session.render()
    x = _lanes(400, at=(300.0, 250.0))
    session.ingest(_samples(x[:5], 100.0))
    grid = session.render()
    assert grid.origin[0] < 0.0 and "not drawn" in " ".join(
        session.warnings
    )  # it might be a glitch still
    session.ingest(_samples(x[5:], 101.0))
    grid = session.render()
    assert grid.resolution == 0.1 and grid.origin[0] > 290.0 and grid.known.any()
    assert f"({N} there)" in " ".join(session.warnings)  # both do not fit, and that is said


def test_two_rooms_that_fit_are_both_drawn():
    session = copy.deepcopy(_clean())
    session.ingest(_samples(_lanes(300, at=(60.0, 0.0)), 100.0))
    grid = session.render()
    assert (
        grid.origin[0] < 0.0
        and grid.origin[0] + 0.1 * grid.shape[1] > 64.0
        and not session.warnings
    )


def test_ground_too_large_for_the_grid_is_cut_and_follows_the_robot():
    session = MapSession(MapSettings(**SETTINGS | {"max_grid_cells": 40_000, "cell_length": 1.0}))
    x = np.stack([np.arange(120) * 1.5, np.arange(120) * 1.2], 1)
    origins = []
    for part in range(0, 120, 3):
        session.ingest(_samples(x[part : part + 3], part * 0.1))
        grid = session.render(400)
        assert grid.resolution == 0.1 and grid.shape[0] * grid.shape[1] <= 40_000
        assert session.renderer.points_drawn <= 400
        left, bottom = grid.origin
        newest = x[part + 2]
        assert (
            left <= newest[0] <= left + 0.1 * grid.shape[1]
            and bottom <= newest[1] <= bottom + 0.1 * grid.shape[0]
        )
        origins.append(grid.origin)
    assert 10 < len(set(origins)) < 30  # in steps, not with every drawing, of which there are 40
    assert "max_grid_cells" in " ".join(session.warnings)


def test_a_lengthscale_that_moves_shows_the_old_drawing_until_the_new_one_is_there():
    session = MapSession(MapSettings(**SETTINGS | {"resolution": 0.02, "model": "exact"}))
    session.ingest(_samples(_lanes()))
    session.flush()
    before = session.render()
    session.map.theta = replace(session.map.theta, lengthscale=2.0 * session.map.theta.lengthscale)
    session.map.forget(0.999)  # it has to factor anew
    after = session.render(50)
    assert session.renderer.points_drawn <= 50 and 0.0 < session.stale_share <= 1.0
    both = before.known & after.known
    assert both.sum() > 0.8 * before.known.sum()
    session.render()
    assert session.stale_share == 0.0


def test_resume_draws_the_same_window():
    session = MapSession(MapSettings(**SETTINGS))
    session.ingest(_samples(_with_glitch(5e3)))
    again = MapSession.from_state_dict(session.state_dict())
    a, b = session.render(), again.render()
    assert a.origin == b.origin and a.shape == b.shape and torch.equal(a.mean, b.mean)
    assert session.warnings == again.warnings


def test_squares_are_bounded():
    extent, chance = Extent(), np.random.default_rng(0)
    for x in chance.uniform(-1e7, 1e7, (25_000, 2)).tolist():
        extent.add(x, True)
    for x in _lanes(3000).tolist():
        extent.add(x, True)
    assert len(extent.state_dict()["squares"]) <= 20_000
    chosen, others = extent.choose_drawn(lambda low, high: True, 0.05)
    assert chosen[0].points >= 3000 and chosen[0].high[0] < 20.0
    assert len(others) > 10_000


def _road(length: float, step: float = 0.05) -> np.ndarray:
    along = np.arange(0.0, length, step)
    return np.stack([along, np.sin(along / 5.0)], 1)


def test_a_window_about_the_robot_has_the_resolution_and_the_cost_of_any_other():
    """Beside a drawing of all: the same values, whatever the length of the road, and a glitch does not move it."""
    sessions = [MapSession(MapSettings(**SETTINGS, window=window)) for window in (0.0, 8.0)]
    for session in sessions:
        session.ingest(_samples(_road(20.0)))
    whole, part = (session.render() for session in sessions)
    assert part.resolution == whole.resolution == 0.1
    assert part.shape[1] <= 102 and whole.shape[1] > 200
    right = part.origin[0] + part.shape[1] * 0.1
    assert part.origin[0] > 10.0 and right >= 20.0
    values = {}
    for grid in (whole, part):
        keys = (grid.centres() / 0.1).floor().long().tolist()
        values[id(grid)] = dict(zip(map(tuple, keys), grid.mean.reshape(-1).tolist()))
    both = values[id(whole)].keys() & values[id(part)].keys()
    assert len(both) > 0.9 * len(values[id(part)])
    assert max(abs(values[id(whole)][key] - values[id(part)][key]) for key in both) < 2e-8
    assert sessions[1].warnings == sessions[0].warnings

    drawn = []
    for start in (20.0, 30.0):
        x = _road(start + 10.0)[round(start / 0.05) :]
        sessions[1].ingest(_samples(x, 1000.0 + start))
        grid = sessions[1].render()
        drawn.append(grid.shape[0] * grid.shape[1])
        assert (
            grid.origin[0] < start + 10.0 - 3.0
            and grid.origin[0] + grid.shape[1] * 0.1 > start + 10.0
        )
    assert max(drawn) <= 1.2 * min(drawn)
    sessions[1].ingest(_samples(np.array([[5e3, 0.0]]), 2000.0))
    assert sessions[1].render().origin == grid.origin


def test_an_overview_shows_all_ground_says_its_resolution_and_asks_for_no_other():
    session = MapSession(MapSettings(**SETTINGS, window=4.0))
    corner = np.concatenate([_road(25.0), np.stack([np.full(500, 25.0), np.arange(500) * 0.05], 1)])
    session.ingest(_samples(corner))
    asked, answer = [], session.map.predict

    def predict(x, *rest):
        asked.append(len(x))
        return answer(x, *rest)

    session.map.predict = predict
    grid = overview(session, most=2000)
    assert grid.resolution == 0.8 and grid.shape[0] * grid.shape[1] <= 2000
    assert grid.shape[1] * 0.8 > 25.0 and grid.shape[0] * 0.8 > 25.0
    assert 0 < sum(asked) < 0.7 * grid.shape[0] * grid.shape[1]
    centres = grid.centres()
    known = grid.known.reshape(-1)
    assert 20 < int(known.sum()) < 0.4 * len(known)
    told = session.published(centres[known])
    assert torch.allclose(grid.mean.reshape(-1)[known], told.mean[:, 0], atol=1e-12)
    assert MapSession(MapSettings(**SETTINGS)).settings.window == 0.0


def test_where_all_is_drawn_there_is_no_overview():
    assert overview(_clean()) is None
    large = MapSession(MapSettings(**SETTINGS, max_grid_cells=400))
    large.ingest(_samples(_lanes()))
    assert overview(large, most=400).resolution > 0.1 and large.render().resolution == 0.1


def test_poses_all_over_the_earth_have_no_overview():
    """A localiser that has gone mad: the map is drawn where the robot was last, and nothing fails."""
    x = 9e6 * (
        2.0 * torch.rand((60, 2), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        - 1.0
    )
    session = MapSession(MapSettings(max_inducing=20, resolution=0.2))
    session.ingest(
        Samples(
            x=x,
            y=45e-6 + 1e-7 * torch.arange(60.0).double()[:, None],
            stamp=0.1 * torch.arange(60.0),
        )
    )
    session.flush()
    assert session.render() is not None and overview(session) is None

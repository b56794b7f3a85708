"""A session depends on its samples only: not on how they are split, not on a stop in between."""

import copy
import itertools

import numpy as np
import pytest
import torch
from mapping_data import UT, drive

from gp_mapping import MapSettings, Samples
from gp_mapping.core.stored import StoredState
from gp_mapping.mapping.session import MapSession

RUN, SECOND = (
    drive(0, lanes=2, length=3.0),
    drive(1, start=1000.0, lanes=3, length=3.0, across=True),
)
PLACES = torch.from_numpy(np.random.default_rng(0).uniform(-0.5, 4.5, (50, 2)))


def leaves(value, name="state"):
    if isinstance(value, StoredState):
        value = value.get()
    if isinstance(value, dict):
        return list(
            itertools.chain.from_iterable(leaves(v, f"{name}.{k}") for k, v in value.items())
        )
    if isinstance(value, (list, tuple)):
        return list(
            itertools.chain.from_iterable(leaves(v, f"{name}[{i}]") for i, v in enumerate(value))
        )
    return [(name, value)]


def difference(a, b) -> list[str]:
    """Names of what is not bit for bit the same in two nested states."""
    left, right = dict(leaves(a)), dict(leaves(b))
    names = left.keys() ^ right.keys()
    for name in left.keys() & right.keys():
        x, y = left[name], right[name]
        if not (
            torch.equal(x, y)
            if torch.is_tensor(x) and torch.is_tensor(y)
            else x == y and type(x) is type(y)
        ):
            names |= {name}
    return sorted(names)


# near what the field is: to find starts takes the first cells in again and again, and OPEN asks for that
STARTS = {
    "lengthscale": 1.0,
    "signal_stddev": 8 * UT,
    "noise_stddev": 0.7 * UT,
    "constant_stddev": 24 * UT,
}
OPEN = dict.fromkeys(STARTS, 0.0)


def settled(settings) -> MapSettings:
    """From given starts, of few cells, and drawn in few: how well is test_render.py's."""
    return MapSettings(**{"resolution": 0.25, "cell_length": 0.2} | STARTS | settings)


def fed(batches, **settings):
    session = MapSession(settled(settings))
    for batch in batches:
        session.ingest(batch)
    return session


@pytest.mark.parametrize(
    "settings",
    [
        OPEN,
        {"cells": False, "max_inducing": 30, "memory_size": 100},
        {"model": "exact", "learn_hyperparameters": False},
        {"memory_size": 30, "max_inducing": 40, "forgetting_time": 100.0},
    ],
)
def test_the_split_does_not_matter(settings):
    # raw samples, without cells: fewer of them fill the memory four times
    run = RUN[: 1000 if settings.get("cells", True) else 400]
    whole = fed([run], **settings)
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(len(run), 40, replace=False))
    parts = [run[int(a) : int(b)] for a, b in itertools.pairwise([0, *cuts, len(run)])]
    split = fed(parts, **settings)
    # the revision and all else, but for a session that was looked at on the way too
    watched = MapSession(settled(settings))
    for part in parts:
        watched.ingest(part)
        if watched.cell_count:
            watched.predict(PLACES)
            watched.render()
            watched.report()
    assert difference(whole.state_dict(), split.state_dict()) == []
    assert difference(whole.state_dict(), watched.state_dict()) == []
    for session in (whole, split, watched):
        session.flush()
    for other in (split, watched):
        assert torch.equal(whole.predict(PLACES).mean, other.predict(PLACES).mean)
        assert torch.equal(
            whole.predict(PLACES).noise_variance, other.predict(PLACES).noise_variance
        )


def to_the_end(session, rest):
    session.ingest(rest)
    session.break_pass()
    session.ingest(SECOND[:400])


@pytest.mark.parametrize(
    "settings",
    [
        OPEN,
        {"cells": False, "max_inducing": 30, "memory_size": 100},
        {"memory_size": 40, "max_inducing": 40, "dtype": "float32"},
    ],
)
def test_resume_is_bit_for_bit(settings):
    """Stopped within the first cell, and once the map is full."""
    late, end = (1237, 1400) if settings.get("cells", True) else (237, 400)
    straight, resumed, before = MapSession(settled(settings)), fed([], **settings), 0
    to_the_end(straight, RUN[:end])
    states = []
    for stop in (3, late):
        resumed.ingest(RUN[before:stop])
        state, before = copy.deepcopy(resumed.state_dict()), stop
        states.append((state, copy.deepcopy(state)))
        resumed = MapSession.from_state_dict(state)
        assert difference(resumed.state_dict(), states[-1][1]) == []
    to_the_end(resumed, RUN[before:end])
    assert difference(straight.state_dict(), resumed.state_dict()) == []
    a, b = straight.predict(PLACES), resumed.predict(PLACES)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)
    assert torch.equal(a.noise_variance, b.noise_variance)
    assert torch.equal(
        resumed.render().mean,
        fed([], **settings).from_state_dict(straight.state_dict()).render().mean,
    )
    for state, kept in states:
        assert difference(state, kept) == [], "the state that was loaded from was written into"


def test_state_is_tensors_and_plain_values_only():
    for session in (fed([]), fed([RUN[:700]]), fed([RUN[:710]], cells=False)):
        for name, value in leaves(session.state_dict()):
            assert (
                value is None or torch.is_tensor(value) or type(value) in (int, float, str, bool)
            ), name


def test_what_is_not_a_state_is_refused():
    good = fed([RUN[:300]]).state_dict()
    for bad in (
        {},
        None,
        {"settings": {}},
        good | {"map": {}},
        good | {"settings": good["settings"] | {"colour": 1}},
        {k: v for k, v in good.items() if k != "cells"},
        good | {"settings": good["settings"] | {"seed": -1}},
        good | {"path": {}},
        good | {"scores": None},
    ):
        with pytest.raises(ValueError):
            MapSession.from_state_dict(bad)
    with pytest.raises(ValueError, match="max_inducing"):
        MapSession.from_state_dict(good, max_inducing=7)
    assert MapSession.from_state_dict(good, resolution=0.2).settings.resolution == 0.2


def test_a_break_closes_the_cell_and_starts_a_pass():
    session = fed([RUN[:1000]])
    cells, length = session.report()["cells"], session.report()["path_length"]
    session.break_pass()
    report = session.report()
    assert report["cells"] == cells + 1 and report["passes"] == 1
    session.break_pass()
    assert session.report() == report, "a second break changed something"
    far = Samples(RUN.x[:200] + 30.0, RUN.y[:200], stamp=RUN.stamp[:200] - 50.0)
    session.ingest(far)
    report = session.report()
    assert report["passes"] == 2 and report["path_length"] < length + 1.0, "the jump was driven"
    assert report["samples"] == 1200
    assert float(session.memory[:, 0].max()) < 40.0
    inside = (session.memory[:, 0] > 6.0) & (session.memory[:, 0] < 29.9)
    assert not bool(inside.any()), "a cell holds samples of both passes"


def test_a_bad_batch_leaves_the_session_as_it_was():
    session = fed([RUN[:1003]])
    before = copy.deepcopy(session.state_dict())
    bad = [
        Samples(torch.zeros(60, 3), torch.zeros(60, 1)),
        Samples(torch.zeros(60, 1), torch.zeros(60, 1)),
        Samples(RUN.x[:60], torch.zeros(60, 2), stamp=RUN.stamp[:60] + 500),
    ]
    for samples in bad:
        with pytest.raises(ValueError):
            session.ingest(samples)
        assert difference(session.state_dict(), before) == []
    session.ingest(RUN[1003:1500])
    assert difference(session.state_dict(), fed([RUN[:1500]]).state_dict()) == []


@pytest.mark.parametrize("cells", [True, False])
def test_columns_may_come_and_go(cells):
    """A sensor that states its covariance now and then, or a pose without heading."""
    x, y, t = RUN.x, RUN.y, RUN.stamp
    told = {"sensor_variance": (0.2 * UT) ** 2}
    heading = {"heading": torch.tensor([[1.0, 0.0]]).repeat(10, 1), "position_variance": 1e-6}
    session = MapSession(settled({"cells": cells, "cell_length": 0.1}))
    for i in range(0, 300, 10):
        part = slice(i, i + 10)
        extra = (told, {}, heading, told | heading)[i // 10 % 4]
        session.ingest(Samples(x[part], y[part], stamp=t[part], **extra))
    session.flush()
    assert session.report()["samples"] == 300 and session.report()["cells"] >= 10
    assert bool(torch.isfinite(session.predict(PLACES).mean).all())


def test_nothing_yet():
    session = fed([])
    for ask in (lambda: session.predict(PLACES), session.render):
        with pytest.raises(RuntimeError):
            ask()
    report = session.report()
    assert report["samples"] == 0 and report["noise_stddev"] is None and report["inducing"] == 0
    fixed = MapSession(MapSettings(learn_hyperparameters=False, learn_time_offset=False))
    assert report["learning_steps"] == fixed.report()["learning_steps"] == 0
    session.flush()
    session.break_pass()
    assert session.ingest(RUN[:0]) is None and session.ingest(RUN[:2]) is None, (
        "the cell is still open"
    )
    assert (
        session.path.shape == (1, 2)
        and session.inducing.shape == (0, 2)
        and session.memory.shape == (0, 2)
    )


def test_clear():
    run = RUN[:1000]
    session = fed([run])
    session.render()
    revision = session.revision
    session.clear()
    assert (
        session.revision == revision + 1
        and session.report()["samples"] == 0
        and len(session.path) == 0
    )
    with pytest.raises(RuntimeError):
        session.predict(PLACES)
    session.ingest(run)
    other = fed([run])
    again, fresh = session.state_dict(), other.state_dict()
    again["revision"] = fresh["revision"]
    assert difference(again, fresh) == []
    assert torch.equal(session.render().mean, other.render().mean)


def test_the_revision_counts_changes_and_positions_are_in_the_maps_frame():
    origin = (1e6, -2e6)
    run = drive(0, lanes=2, origin=origin)
    session = MapSession(MapSettings())
    for i in range(0, len(run), 100):
        before = session.revision
        report = session.ingest(run[i : i + 100])
        assert (session.revision > before) == (report is not None)
    low, high = run.x.min(0).values - 1e-6, run.x.max(0).values + 1e-6
    for points in (session.path, session.inducing, session.memory):
        assert len(points) > 10 and bool((points >= low).all()) and bool((points <= high).all())
    report = session.report()
    assert report["inducing"] == len(session.inducing) and report["jitter"] == 0.0
    assert report["path_length"] == pytest.approx(4.0 * 2 + 0.8, abs=0.1)


def test_stamps_are_not_needed():
    session = fed([Samples(RUN.x, RUN.y)], cell_length=0.1)
    assert session.report()["cells"] > 50


def test_old_news_fades():
    """With forgetting a field that changed is followed; without, the map is in between."""
    changed = Samples(RUN.x, RUN.y + 20 * UT, stamp=RUN.stamp + 600.0)
    errors = []
    for tau in (0.0, 100.0):
        session = fed([RUN], forgetting_time=tau, learn_hyperparameters=False)
        session.ingest(changed)
        truth = changed.y[::50]
        errors.append(float((session.predict(changed.x[::50]).mean - truth).abs().mean()) / UT)
    assert errors[1] < 0.3 * errors[0] and errors[0] > 5.0, errors


def test_the_local_scale_changes_what_is_published_and_not_the_map():
    """Both variances times κ(x), the mean untouched; switched off, the map's own."""
    given = {
        "learn_hyperparameters": False,
        "learn_time_offset": False,
    }  # scores count from the start
    run = drive(0, lanes=3, length=3.0)
    on, off = fed([run], **given), fed([run], local_scale=False, **given)
    x = run.x[::97]
    scale = torch.from_numpy(on.scores.local.scale_at(x))[:, None]
    assert len(on.scores.local) > 5 and float((scale - 1).abs().max()) > 0.1
    a, b = on.predict(x), off.predict(x)
    assert torch.equal(a.mean, b.mean) and torch.allclose(
        a.variance, scale * b.variance, rtol=1e-12, atol=0.0
    )
    assert torch.allclose(a.noise_variance, scale * b.noise_variance, rtol=1e-12, atol=0.0)


def test_a_full_map_goes_on_and_counts_what_it_leaves_out():
    given = {"model": "exact", "max_exact_samples": 20, "learn_hyperparameters": False}
    session = fed([RUN[:1500]], cell_length=0.1, **given)
    report = session.report()
    assert report["cells"] == 20 and report["left_out"] > 5
    assert report["samples"] + report["refused_samples"] == 1500 and report["refused_samples"] > 900
    before = session.predict(PLACES)
    session.ingest(RUN[1500:])
    assert torch.equal(session.predict(PLACES).mean, before.mean)
    again = MapSession.from_state_dict(session.state_dict(), max_exact_samples=1000)
    assert again.left_out == session.left_out > report["left_out"]
    again.ingest(SECOND)
    assert again.cell_count > 20 and again.left_out == session.left_out


def test_starts_that_a_saved_map_does_not_take_are_named():
    """They were taken as settings, without a word, and changed nothing."""
    session = fed([RUN[:400]], lengthscale=0.8, noise_stddev=3e-7, learn_hyperparameters=False)
    state = copy.deepcopy(session.state_dict())
    for same in ({}, {"lengthscale": 0.8, "noise_stddev": 3e-7, "resolution": 0.5}):
        assert MapSession.from_state_dict(state, **same).resume_notes == []

    asked = {"lengthscale": 2.0, "signal_stddev": 9e-6, "time_offset": 0.1}
    resumed = MapSession.from_state_dict(state, **asked)
    kept = session.map.hyperparameters()
    assert resumed.resume_notes == [
        f"{name}: {asked[name]:g} has no effect: it is a start, and this map goes on with "
        f"{kept[name]:.4g}; begin a new map to have another"
        for name in asked
    ]
    assert set(resumed.resume_notes) <= set(resumed.warnings)
    assert resumed.map.hyperparameters() == kept
    resumed.clear()
    assert resumed.resume_notes == [] and resumed.map.hyperparameters()["lengthscale"] == 2.0


@pytest.mark.parametrize("metres", [0.0, 0.3])
def test_the_noise_of_a_measurement_is_not_that_of_a_cell_however_few_these_are(metres):
    """A robot that stands has few cells of hundreds of measurements each: it said a twentieth of the noise."""
    n, chance = 3000, np.random.default_rng(2)
    x = np.stack([np.minimum(0.01 * np.arange(n), metres), np.zeros(n)], 1)
    y = 45 * UT + 3 * UT * x[:, 0] + UT * chance.normal(size=n)
    session = fed([Samples(x, y, stamp=0.02 * np.arange(n))], **OPEN)
    assert 4 <= session.cell_count <= 9
    assert session.report()["noise_stddev"] == pytest.approx(UT, rel=0.1)

"""Refreshes of a WISKI map on their way: paid by samples, gone on with by drawings, never in anybody's way."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, drive, feed, samples
from map_contract import same_state

import gp_mapping.core.models.wiski.model as wiski
import gp_mapping.core.models.wiski.refresh as wiski_refresh
from gp_mapping import create_map
from gp_mapping.core.models.wiski.lattice.solver import MeanSolve
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.planning.suggest import suggest


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only as steps are done, and one second a million of what they are priced."""

    class Clock:
        now, longest = 0.0, 0.0

    def step(self, original=MeanSolve.step):
        took = 1e-6 * self.step_cost
        Clock.now, Clock.longest = Clock.now + took, max(Clock.longest, took)
        original(self)

    monkeypatch.setattr(MeanSolve, "step", step)
    monkeypatch.setattr(wiski, "perf_counter", lambda: Clock.now)
    return Clock


def off(posterior, field, places) -> float:
    """Error of a posterior's mean against a solution to 1e-8, in posterior sd."""
    true = copy.copy(field)
    true.tolerance = 1e-8
    told = true.solve_refresh().result()[0]
    inner = field.scaling.inner_x(places)
    return float(
        ((posterior.mean(inner) - told.mean(inner)).abs()[:, 0] / told.variance(inner).sqrt()).max()
    )


def test_drawings_of_a_stream_keep_to_their_budget_and_end_with_the_direct_solution(clock):
    """No call goes on for longer than it may; together they arrive at the stopping rule; nothing saved changes."""
    field, quiet = (create_map("wiski", **SETTINGS, refresh_samples=0) for _ in range(2))
    x, y = drive(400)
    batch, took, lags = samples(x, y), [], []
    feed(field, batch[:100], 20)
    feed(quiet, batch[:100], 20)
    for each in (field, quiet):
        each.refresh()
    solve, field.solve_refresh = field.solve_refresh, None  # whoever waits for a solve now fails
    for i in range(100, 400, 10):
        for each in (field, quiet):
            each.update(batch[i : i + 10])
            each.refine(math.inf)
        start = clock.now
        _, seen, _ = field.drawable(0.2)
        took.append(clock.now - start)
        lags.append(field.samples - seen)
    assert max(took) <= 0.2 + clock.longest and clock.longest < 0.2
    assert max(lags) < 100, "the drawings saw nothing new for long"
    for _ in range(100):  # the robot stands still: later drawings finish it
        posterior, seen, _ = field.drawable(0.2)
        if seen == field.samples:
            break
    field.solve_refresh = solve
    places = torch.from_numpy(np.random.default_rng(1).uniform(-0.5, 3.5, (300, 2)))
    assert seen == 400 and off(posterior, field, places) <= 1.1 * field.tolerance
    assert same_state(field.state_dict(), quiet.state_dict()), "drawing changed the map"


def test_steps_that_samples_have_paid_for_make_the_refresh_that_it_would_have_been(clock):
    """One by one they go on where the last one stopped; what cells pay is a constant; a refresh is of its beginning."""
    field = create_map("wiski", **SETTINGS, refresh_samples=0)
    x, y = drive(200)
    batch, paid, spent = samples(x, y), 0.0, clock.now
    began, finished = [], []
    for i in range(len(batch)):
        field.update(batch[i : i + 1])
        paid += wiski._WORK_PER_ROOT_SAMPLE
        before, base = field.ahead, field.base
        assert field.refine(math.inf) is False
        if field.base is not base:
            finished.append(field.samples - field.lag)
        if field.ahead is not None and field.ahead is not before:
            began.append(field.ahead.samples)
    assert 1e6 * (clock.now - spent) <= paid and len(finished) > 2
    assert set(finished) <= {*began, *range(1, 20)}, "a refresh is of the sums with which it began"
    fresh = create_map("wiski", **SETTINGS, refresh_samples=0)
    count = finished[-1]
    feed(fresh, batch[:count], 50)
    places = torch.from_numpy(x[::5])
    got, expected = field.base.predict(places), fresh.predict(places)
    assert float(((got.mean - expected.mean).abs() / expected.stddev).max()) <= 0.1
    assert torch.allclose(got.stddev, expected.stddev, rtol=1e-6, atol=0.0)


def test_a_refresh_on_its_way_is_saved_and_goes_on_to_the_same_digits():
    field, resumed = (create_map("wiski", **SETTINGS, refresh_samples=0) for _ in range(2))
    x, y = drive(200)
    batch = samples(x, y)
    i = 0
    while field.ahead is None or not field.ahead.solve.channels:
        field.update(batch[i : i + 1])
        field.refine(math.inf)
        i += 1
    assert not field.ahead.solve.finished
    resumed.load_state_dict(copy.deepcopy(field.state_dict()))
    for each in (field, resumed):
        for k in range(i, i + 40):
            each.update(batch[k : k + 1])
            each.refine(math.inf)
    assert same_state(field.state_dict(), resumed.state_dict())


def test_a_refresh_begins_once_samples_have_paid_for_a_copy_of_the_sums():
    """Which costs as several iterations on all the torus, however few nodes have been touched."""
    field, (x, y) = create_map("wiski", **SETTINGS, refresh_samples=0), drive(20)
    for i in range(20):
        field.update(samples(x[i : i + 1], y[i : i + 1]))
        field.refine()
        if field.ahead is not None:
            break
    assert 2.0 < (i + 1) * wiski._WORK_PER_ROOT_SAMPLE / field.ahead.solve.torus < 8.0


def test_lumps_make_a_solve_short_and_without_them_it_ends_at_the_same_mean():
    """As long as each sample is a lump, the preconditioner is nearly the inverse; the prior alone is a slow one."""
    field, (x, y) = create_map("wiski", **SETTINGS), drive(150)
    feed(field, samples(x, y), 50)
    field.tolerance = 1e-6
    one = wiski_refresh.Refresh.start(field)
    while not one.solve.channels:
        one.solve.step()
    slow = one.fork()
    slow.solve.channels[-1].coarse = None
    short, long = one.solve.run(), slow.solve.run()
    assert short.iterations <= 12 < 50 < long.iterations < 300
    assert max(short.residual, long.residual) <= 1.1e-6
    assert float((short.u - long.u).abs().max()) < 1e-5


def test_a_fork_goes_on_alone():
    field = create_map("wiski", **SETTINGS)
    x, y = drive(150)
    feed(field, samples(x, y), 50)
    one = wiski_refresh.Refresh.start(field)
    for _ in range(5):
        one.solve.step()
    two = one.fork()
    expected = two.solve.run()
    assert one.solve.steps == 5 and torch.equal(one.solve.run().p, expected.p)


def test_who_changes_the_map_meanwhile_is_heeded():
    """What is forgotten near a place is gone from the next drawing that is finished; θ moves under a solve."""
    field = create_map("wiski", **SETTINGS, refresh_samples=0)
    x, y = drive(300)
    feed(field, samples(x, y), 50)
    field.refresh()
    field.update(samples(x[:20], y[:20]))
    field.drawable(0.0)
    place = torch.from_numpy(x[100:101])
    field.forget_near(place, 0.5, newest=0)
    _, _, epoch = field.drawable(0.0)
    assert epoch < field.epoch, "nothing of now is finished yet"
    posterior, seen, epoch = field.drawable(math.inf)
    assert (seen, epoch) == (field.samples, field.epoch)
    assert off(posterior, field, torch.from_numpy(x[::10])) <= 1.1 * field.tolerance
    field.update(samples(x[20:40], y[20:40]))
    field.work_budget = 1e6 * 3
    assert field.state_dict()["credit"] == 1e6 * 3, "the name in files, also earlier ones"
    field.refine(0.0)
    field.adopt(replace(field.theta, signal_stddev=12.0))
    field.work_budget = math.inf
    field.refine(math.inf)
    assert (
        not field.is_refresh_due
        and off(field.base, field, torch.from_numpy(x[::10])) <= 1.1 * field.tolerance
    )


def test_a_drawing_of_what_is_drawn_begins_nothing(monkeypatch):
    """It began one refresh after the other until its time was over, and threw each away."""
    field, (x, y) = create_map("wiski", **SETTINGS, refresh_samples=0), drive(120)
    feed(field, samples(x[:100], y[:100]), 50)
    field.refresh()
    field.update(samples(x[100:], y[100:]))
    shown = field.drawable(math.inf)
    assert shown[1:] == (120, field.epoch) and field.is_refresh_due, (
        "the map's own refresh lags, the drawing not"
    )
    with monkeypatch.context() as patch:
        patch.setattr(wiski_refresh.Refresh, "start", None)  # whoever begins a refresh now fails
        assert field.drawable(0.1) is shown
    field.update(samples(x[:10], y[:10]))
    assert field.drawable(math.inf)[1] == 130, "what is new is drawn"
    field.forget_near(torch.from_numpy(x[60:61]), 0.5, newest=0)
    assert field.drawable(math.inf)[2] == field.epoch > shown[2], "and what is forgotten"


def test_planning_asks_for_no_mean():
    field, exact = (create_map(name, **SETTINGS) for name in ("wiski", "exact"))
    x, y = drive(200)
    for each in (field, exact):
        feed(each, samples(x, y), 50)
    field.solve_refresh = None  # whoever solves now fails
    shape = (24, 24)
    grid = FieldGrid(
        (-1.0, -1.0),
        0.2,
        torch.zeros(shape).double(),
        torch.ones(shape).double(),
        torch.ones(shape, dtype=torch.bool),
        1 * UT,
        1,
    )
    for kind in ("variance", "integrated_variance"):
        a, b = (suggest(each, grid, k=3, kind=kind, min_distance=0.5) for each in (field, exact))
        for mine, its in zip(a.items, b.items):
            assert mine.score == pytest.approx(its.score, rel=0.02)
    far = field.for_planning().fantasize(torch.tensor([[2.0, 2.0]]).double())
    assert torch.equal(
        far.predict(grid.centres()).mean, field.for_planning().predict(grid.centres()).mean
    )


def test_a_fantasy_of_no_place_is_the_map_and_another_one():
    """A plan that measures nowhere."""
    field = create_map("wiski", **SETTINGS)
    field.update(samples(*drive(60)))
    asked = torch.tensor([[1.0, 0.5], [3.0, 3.0]]).double()
    field.refresh()
    dreamt = field.fantasize(asked[:0])
    assert dreamt is not field and torch.equal(
        dreamt.predict(asked).mean, field.predict(asked).mean
    )
    dreamt.update(samples(*drive(10)))
    assert dreamt.samples == 70 and field.samples == 60

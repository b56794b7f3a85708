"""How slowly a sensor follows is found from what it tells on the way to and fro, and only then."""

import copy
import math

import pytest
import torch
from slow_sensor import field, lawnmower, track

from gp_mapping.mapping.response import lag as lag_module
from gp_mapping.mapping.response.lag import LagSearch, step_weights
from gp_mapping.mapping.response.track import Track


@pytest.mark.parametrize("seed", [6, 21, 28, 38])
def test_of_two_peaks_the_higher_one_is_found(seed):
    """It lies between two doublings here; the other one, at twice the time constant, was taken."""
    told = track(seed, 1.3, length=1.2, x=lawnmower(step=0.3, width=9.0), elapsed=0.3)
    lag = LagSearch(told, 1.2, "matern52").finish()
    assert 0.8 < lag.seconds < 1.5  # the other one is at 2.6 s
    assert abs(math.log(lag.seconds / 1.3)) < 2.0 * lag.deviation < 0.7


def test_a_lag_that_is_more_probable_than_a_delay_counts():
    """By less than three nats here."""
    told = track(11, 0.8, noise=0.05, length=2.0, x=lawnmower(step=0.25, width=9.0), elapsed=0.5)
    assert abs(LagSearch(told, 2.0, "matern52").finish().seconds - 0.8) < 0.2


@pytest.mark.parametrize(("tau", "seed"), [(1.5, 0), (4.0, 1), (10.0, 2)])
def test_time_constant_is_found_to_a_fifth(tau, seed):
    """With another lengthscale expected than the field has."""
    lag = LagSearch(track(seed, tau), 2.6, "matern52").finish()
    assert lag is not None
    assert abs(math.log(lag.seconds / tau)) < 0.22  # its likelihood is a tenth wide
    assert 1.2 < lag.lengthscale < 3.0


@pytest.mark.parametrize("seed", range(2))
def test_a_fast_sensor_has_none(seed):
    """Nor has one whose stamps are late: that is a time offset."""
    assert LagSearch(track(seed), 2.0, "matern52").finish() is None
    assert LagSearch(track(seed, delay=0.8), 2.0, "matern52").finish() is None


def test_a_copy_in_the_middle_goes_on_by_itself():
    """As when two maps are merged while one looks: what was there before is kept as a copy."""
    search = LagSearch(track(1, 3.0), 2.0, "matern52")
    for _ in range(5):
        assert not search.advance()
    again = copy.deepcopy(search)
    assert again.steps == 5
    while not again.advance():
        assert search.steps == 5
    while not search.advance():
        pass
    assert again.found == search.found and search.found is not None and again.steps == search.steps
    assert copy.deepcopy(search).found == search.found


@pytest.mark.parametrize("delay", [0.4, 1.6])
def test_a_late_sensor_is_no_slow_one(delay):
    """Where it was is on the way, not ahead on a line: at the ends of lanes 1.6 s were a lag."""
    assert LagSearch(track(100, delay=delay), 2.0, "matern52").finish() is None


def test_a_short_lag_is_none_of_the_delays():
    """With a field that is a line between blocks it was no better than a delay."""
    lag = LagSearch(track(102, 1.0), 2.0, "matern52").finish()
    assert lag is not None and lag.gain > 8.0
    assert abs(math.log(lag.seconds)) < 3.0 * lag.deviation < 0.7


def test_a_field_smoother_than_the_kernel_is_no_slow_sensor():
    """On a line that never comes back a lag and a smooth field look alike, also back in time."""
    x = torch.stack([torch.arange(0.0, 60.0, 0.4), torch.zeros(150)], 1).double()
    g = torch.Generator().manual_seed(0)
    waves = torch.randn(500, 2, dtype=torch.float64, generator=g) / 2.0
    phase = 2 * math.pi * torch.rand(500, dtype=torch.float64, generator=g)
    y = (2.0 / 500) ** 0.5 * torch.cos(x @ waves.mT + phase).sum(1)
    y = y + 0.002 * torch.randn(150, dtype=torch.float64, generator=g)
    begins = torch.zeros(150, dtype=torch.bool)
    begins[0] = True
    line = Track(x, y, 0.8 * torch.arange(150, dtype=torch.float64), begins)
    assert LagSearch(line, 2.0, "matern52").finish() is None


def test_a_drift_on_laps_in_one_direction_is_no_slow_sensor():
    """What a slow sensor would settle at has a slope in time taken out, and fits from lap to lap."""
    way = torch.arange(0.0, 80.0, 0.4, dtype=torch.float64)
    x = 3.2 * torch.stack([(way / 3.2).cos(), (way / 3.2).sin()], 1)
    g = torch.Generator().manual_seed(1)
    y = field(x, 1) + 0.002 * way + 0.012 * torch.randn(200, dtype=torch.float64, generator=g)
    begins = torch.zeros(200, dtype=torch.bool)
    begins[0] = True
    laps = Track(x, y, 2.0 * way, begins)
    assert LagSearch(laps, 2.0, "matern52").finish() is None


def test_weights_are_exact_for_a_field_that_changes_linearly():
    """A sensor at y follows f, which goes from 3 to 5 in 2 s: against Euler's steps."""
    a, before, now = (float(w) for w in step_weights(torch.tensor(2.0).double(), 1.3))
    y, steps = 1.0, 100_000
    for i in range(steps):
        y += (3.0 + 2.0 * (i + 0.5) / steps - y) / 1.3 * 2.0 / steps
    assert abs(a * 1.0 + before * 3.0 + now * 5.0 - y) < 1e-4


@pytest.mark.parametrize("top", [0.7, 1.0, 1.9])
def test_the_top_of_a_parabola_through_three_time_constants_is_found_exactly(top):
    """In the logarithm, also where they lie unevenly; at an end of what was tried it is that."""
    tried = {tau: (5.0 - 3.0 * math.log(tau / top) ** 2, 1.0) for tau in (0.25, 0.5, 0.8, 1.5, 3.0)}
    best = max(tried, key=lambda tau: tried[tau][0])
    assert lag_module._vertex(tried, best) == pytest.approx(top)  # noqa: SLF001
    for end in (0.25, 3.0):
        assert lag_module._vertex(tried, end) == end  # noqa: SLF001
    level = dict.fromkeys(tried, (1.0, 1.0))
    assert lag_module._vertex(level, 0.8) == 0.8  # noqa: SLF001


def test_one_and_the_same_number_shows_no_lag():
    """As of a thermometer of .1 °C in a hall, or a gas sensor that tells 0 for the first metres."""
    told = track(1, 3.0)
    for value in (0.0, 21.3):
        same = told._replace(y=torch.full_like(told.y, value))
        assert LagSearch(same, 2.0, "matern52").finish() is None

"""How well the values of a slow sensor tell its time constant."""

import math
from types import SimpleNamespace

import pytest
import torch
from drifting import done
from slow_sensor import lawnmower, track

from gp_mapping.mapping.response import posterior
from gp_mapping.mapping.response.block_evidence import BlockEvidence
from gp_mapping.mapping.response.posterior import known_constant, late_evidence, slow_evidence
from gp_mapping.mapping.response.track import Track


def known(told, seconds, lengthscale=2.0, noise=0.03):
    """The posterior of τ from a start."""
    y = told.y - told.y.mean()
    told = told._replace(y=y / y.std())
    work = known_constant(told, "matern52", seconds, lengthscale, noise)
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, steps
        steps += 1


def averaged(told, many):
    """Averages of `many` values each."""
    n = len(told.y) // many * many
    elapsed = float(told.stamp[1] - told.stamp[0])
    x, y, stamp = (
        column[:n].reshape(-1, many, *column.shape[1:]).mean(1)
        for column in (told.x, told.y, told.stamp)
    )
    begins = torch.zeros(len(y), dtype=torch.bool)
    begins[0] = True
    return Track(x, y, stamp, begins, torch.full((len(y),), many * elapsed).double())


@pytest.mark.parametrize("tau", [1.0, 4.0])
def test_its_deviation_is_that_of_its_error(tau):
    """In the root mean square over worlds; wherever the search for it begins."""
    scores = []
    for seed in range(3):
        told = track(seed, tau)
        one, steps = known(told, tau)
        other, _ = known(told, 1.5 * tau, 3.0, 0.1)
        assert steps < 250
        # lengthscale and noise are integrated over by a parabola, about another place
        assert abs(math.log(one.seconds / other.seconds)) < 0.2 * one.deviation
        assert abs(math.log(one.deviation / other.deviation)) < 0.25
        assert 0.02 < one.deviation < 0.3
        scores.append((math.log(one.seconds / tau) / one.deviation) ** 2)
    assert 0.05 < sum(scores) / len(scores) < 3.0


def test_averages_tell_the_time_constant_that_their_values_tell():
    """Taken for values of one moment, with the field a line in between, it was .1 too small."""
    fine = track(3, 1.0, x=lawnmower(step=0.1), elapsed=0.2, noise=0.02)
    whole, _ = known(fine, 1.0)
    coarse, _ = known(averaged(fine, 4), 1.0)
    assert abs(math.log(coarse.seconds / whole.seconds)) < 0.4 * whole.deviation
    assert coarse.deviation < 1.3 * whole.deviation
    blind, _ = known(averaged(fine, 4)._replace(span=None), 1.0)
    assert blind.seconds != coarse.seconds


def test_noise_that_alternates_is_counted_as_what_it_is():
    """A sensor without a field: the noise of e_i = y_i − a y_{i−1}, against 20000 draws."""
    told = track(0, 3.0)
    best = BlockEvidence(told, "matern52", 2.0, 0.03)
    weights = best.of_constant(3.0)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(20000, len(told.y), dtype=torch.float64, generator=generator)
    e = draws[:, 1:] - (1.0 - weights.gain) * draws[:, :-1]
    sample = e.mT @ e / len(e)
    assert (sample - weights.noise).abs().max() < 0.08
    # and the field's: a constant field is seen as 1 − a times it
    assert torch.allclose(
        weights.differences, told.y[1:] - (1.0 - weights.gain) * told.y[:-1], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("tau", [0.5, 2.0, 50.0])
def test_two_places_stand_for_an_average_along_the_way(tau):
    """Of a field of third degree, exactly: its mean over the blocks' own average and the response."""
    elapsed, span, fine = 0.8, 0.8, 4000
    x = torch.tensor([[0.0, 0.0], [0.4, 0.0]], dtype=torch.float64)
    two = Track(
        x,
        torch.zeros(2).double(),
        torch.tensor([0.0, elapsed]).double(),
        torch.tensor([True, False]),
        torch.full((2,), span).double(),
    )
    weights = BlockEvidence(two, "matern52", 2.0, 0.03).of_constant(tau)
    t = (torch.arange(fine, dtype=torch.float64) + 0.5) / fine * elapsed
    response = torch.exp(-(elapsed - t) / tau)
    response /= response.sum()
    inside = (torch.arange(fine // 4, dtype=torch.float64) + 0.5) / (fine // 4) * span - span / 2
    place = 0.5 * (t[:, None] + inside)
    for power in (1, 2):
        exact = (response[:, None] * place**power).sum() / len(inside)
        assert abs(float((weights.nodes[:, 0] ** power).mean() - exact)) < 1e-5


def test_blocks_of_several_lengths_each_widen_what_they_take_part_in():
    """e_i = y_i − a y_{i−1}: by the mean of both blocks' (v T)²/12."""
    x = torch.stack([0.4 * torch.arange(5), torch.zeros(5)], 1).double()
    span = torch.tensor([0.1, 0.4, 0.8, 0.3, 0.6]).double()
    begins = torch.tensor([True, False, False, False, False])
    stamp = 0.8 * torch.arange(5, dtype=torch.float64)
    spread = []
    for each in (span, None):
        told = Track(x, torch.zeros(5).double(), stamp, begins, each)
        nodes = BlockEvidence(told, "matern52", 2.0, 0.03).of_constant(2.0).nodes
        spread.append(nodes[:, 0].reshape(2, 4).var(0, unbiased=False))
    own = (0.5 * span).square() / 12
    assert (spread[0] - spread[1]).numpy() == pytest.approx(0.5 * (own[1:] + own[:-1]).numpy())


@pytest.mark.parametrize("span", [0.8, None])
def test_two_places_stand_for_an_average_that_comes_late(span):
    """They have its mean place, so much earlier, and its variance along the way: (v T)²/12."""
    t, speed, late, n = 0.8 * torch.arange(9, dtype=torch.float64), 0.5, 1.1, 9
    x = torch.stack([speed * t, torch.zeros(n)], 1)
    begins = torch.zeros(n, dtype=torch.bool)
    spans = None if span is None else torch.full((n,), span).double()
    moved = Track(x, torch.zeros(n).double(), t, begins, spans)
    two = BlockEvidence(moved, "matern52", 2.0, 0.03).of_delay(late).nodes.reshape(2, n, 2)[:, 3:-3]
    told = (x[3:-3, 0] - speed * late).numpy()
    assert two[..., 0].mean(0).numpy() == pytest.approx(told)
    spread = two[..., 0].var(0, unbiased=False).numpy()
    assert spread == pytest.approx([(speed * (span or 0.0)) ** 2 / 12.0] * 3)


def test_a_delay_has_a_prior_whose_half_width_is_that_of_stamps_that_come_late():
    """Cauchy's: of .2 s half as probable as of none, of 2 s a hundredth."""
    told = track(0, delay=0.8)
    for seconds, times in ((0.0, 1.0), (0.2, 2.0), (-2.0, 101.0)):
        best = BlockEvidence(told, "matern52", 2.0, 0.03)
        likely = done(best.evidence(best.of_delay(seconds)))
        late = done(late_evidence(told, "matern52", [seconds], 2.0, 0.03))
        assert late == pytest.approx(likely - math.log(times), abs=1e-9)


class Ridge(BlockEvidence):
    """Of an evidence with a ridge across both axes, whose top is six steps away."""

    def _see(self, seen, place):
        i, j = place
        seen.evidence[place] = -100.0 * (i + j) ** 2 - 0.5 * (i - j - 12) ** 2
        seen.signal[place] = 1.0
        yield


def test_the_top_of_a_ridge_is_found_along_its_parabola():
    ridge = Ridge(track(0, 3.0), "matern52", 2.0, 0.03)
    done(ridge.evidence(ridge.of_constant(3.0)))
    assert ridge.start == (6, -6)


def test_a_sensor_without_noise_is_given_a_thousandth_of_the_field():
    """The least that is looked at: of less, matrices do not factor."""
    told = track(0, noise=0.0)
    y = told.y - told.y.mean()
    best = BlockEvidence(told._replace(y=y / y.std()), "matern52", 2.0, 0.03)
    done(best.evidence(best.of_delay(0.0)))
    assert 0.0 <= best.vertex[1] - math.log(1e-3) < 0.12  # a step of the grid


class Parabola:
    """Evidence with a parabola of log τ, of which the top and the width are known."""

    def __init__(self, top, width):
        self.top, self.width = top, width
        self.vertex, self.signal = (0.0, 0.0), 1.0

    def of_constant(self, seconds):
        return math.log(seconds)

    def evidence(self, place):
        yield
        return -0.5 * ((place - self.top) / self.width) ** 2


@pytest.mark.parametrize("width", [0.05, 0.15])
@pytest.mark.parametrize("beside", [-0.93, 0.02, 0.7])
def test_evidence_is_taken_a_standard_deviation_apart_about_its_top(monkeypatch, width, beside):
    """So the sum over what is taken is the integral, wherever the climb begins."""
    hill = Parabola(math.log(2.0), width)
    monkeypatch.setattr(posterior, "BlockEvidence", lambda *_: hill)
    told = done(known_constant(None, "matern52", 2.0 * math.exp(beside), 2.0, 0.03))
    # what lies three deviations away may count on one side alone
    assert math.log(told.seconds / 2.0) == pytest.approx(0.0, abs=0.02 * width)
    assert told.deviation == pytest.approx(width, rel=0.02)


def test_the_evidence_of_a_slow_sensor_has_a_free_beginning_in_each_pass(monkeypatch):
    """Of 1e4 times the field's variance: half a logarithm of it less for each."""
    monkeypatch.setattr(posterior, "BlockEvidence", lambda *_: Parabola(math.log(2.0), 0.1))
    for begins in ([True, False, False], [True, False, True]):
        told = SimpleNamespace(begins=torch.tensor(begins))
        value = done(slow_evidence(told, "matern52", 2.2, 2.0, 0.03))
        assert value == pytest.approx(-0.5 * sum(begins) * math.log(1e4))

"""What a search for a slow or late sensor evaluates and where it goes: on surfaces that are known."""

import math
from functools import lru_cache

import pytest
import torch
from drifting import done

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.response import block_evidence, lag, late_posterior, posterior
from gp_mapping.mapping.response.block_evidence import BlockEvidence
from gp_mapping.mapping.response.lag import SURE, LagSearch, step_weights
from gp_mapping.mapping.response.late_posterior import KnownBoth, known_both
from gp_mapping.mapping.response.posterior import Known, delay_penalty, known_constant
from gp_mapping.mapping.response.track import Track

LENGTH = 2.0  # m
STAMP = torch.tensor([0.0, 0.8, 1.9, 2.5, 3.9, 20.0, 21.1, 21.9, 23.0, 23.6], dtype=torch.float64)
BEGINS = torch.arange(10) % 5 == 0
CHANCE = torch.Generator().manual_seed(3)
X = torch.rand((10, 2), generator=CHANCE, dtype=torch.float64) * 3.0
Y = torch.randn(10, generator=CHANCE, dtype=torch.float64)
TRACK = Track(X, 50.0 + 1e-3 * Y, STAMP, BEGINS)


def kernel(places, other=None):
    return make_kernel("matern52", 1.0, LENGTH)(places, places if other is None else other)


def gaussian(covariance, y):
    """log N(y; 0, s² C) at the best s², without −½ n (1 + log 2π)."""
    n = len(y)
    s2 = float(y @ torch.linalg.solve(covariance, y)) / n
    return -0.5 * n * math.log(s2) - 0.5 * float(torch.logdet(covariance)), s2


@lru_cache
def weights_of(tau):
    """A sensor's response (10, 10) to the field and (10, 2) to how its passes begin."""
    h, free = torch.zeros(10, 10).double(), torch.zeros(10, 2).double()
    for i in range(10):
        if i % 5 == 0:
            free[i, i // 5] = 1.0
            continue
        a, before, now = (float(w) for w in step_weights(STAMP[i] - STAMP[i - 1], tau))
        h[i], free[i] = a * h[i - 1], a * free[i - 1]
        h[i, i - 1] += before
        h[i, i] += now
    return h, free


# --- the search for a constant --------------------------------------------------------------------
def test_evidence_is_that_of_the_gaussian_at_the_best_scale():
    one = LagSearch(TRACK, LENGTH, "matern52")
    y = (Y - Y.mean()) / (Y - Y.mean()).square().mean().sqrt()
    covariance = kernel(X) + 0.04 * torch.eye(10)
    assert one._evidence(covariance) == pytest.approx(gaussian(covariance, y)[0])
    assert one._evidence(-covariance) == -math.inf
    flat = LagSearch(TRACK._replace(y=0.0 * Y), LENGTH, "matern52")
    assert float(flat.y.abs().max()) == 0.0


def test_the_usual_time_is_that_within_passes():
    assert LagSearch(TRACK, LENGTH, "matern52").usual == pytest.approx(0.8)
    again = TRACK._replace(stamp=STAMP.clone())
    again.stamp[1] = 0.0  # a stamp that comes twice does not count
    elapsed = sorted([1.9, 0.6, 1.4, 1.1, 0.8, 1.1, 0.6])
    assert LagSearch(again, LENGTH, "matern52").usual == pytest.approx(elapsed[3])
    alone = TRACK._replace(begins=torch.ones(10, dtype=torch.bool))
    search = LagSearch(alone, LENGTH, "matern52")
    assert search.usual == 0.0 and search.finish() is None


class Asked(LagSearch):
    """Keeps what it would compare, in place of doing that."""

    def _best(self, covariance):
        self.asked = covariance(LENGTH)
        return 7.0, LENGTH
        yield


@pytest.mark.parametrize("back", [False, True])
def test_a_sensor_that_is_late_and_slow_follows_the_field_of_earlier_places(back):
    """Or of later ones, where it follows the future."""
    one = Asked(TRACK, LENGTH, "matern52")
    assert done(one._slow(1.5, back=back, delay=0.3)) == (7.0, LENGTH)
    with_delay = one.asked
    moved = Asked(TRACK._replace(x=TRACK.places_before(-0.3 if back else 0.3)), LENGTH, "matern52")
    done(moved._slow(1.5, back=back))
    assert torch.allclose(with_delay, moved.asked)
    assert done(one._late(0.3)) == 7.0


def test_a_first_look_at_both_has_one_lengthscale_and_ratio():
    """Evidence by dense matrices, of every fourth and second quarter of doublings, and uphill."""
    one = LagSearch(TRACK, LENGTH, "matern52")
    value, at = done(one._coarse_with((3, 4), 2.0, 0.8))
    y = one.y[:, 0]

    def told(at):
        h, free = weights_of(2.0 * 2.0 ** (at[0] / 4))
        places = TRACK.places_before(0.8 * 2.0 ** (at[1] / 4))
        covariance = h @ (kernel(places) + 1e4) @ h.mT + 1e4 * free @ free.mT
        return gaussian(covariance + 0.3**2 * torch.eye(10), y)[0]

    assert value == pytest.approx(told(at), abs=1e-6)
    coarse = [(i, j) for i in range(-14, 3, 2) for j in range(-4, 17, 4)]
    assert value >= max(map(told, coarse)) - 1e-6
    near = [(at[0] + i, at[1] + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    assert value >= max(map(told, near)) - 1e-6


@pytest.mark.parametrize("steps", [(2, 1), (1,)])
def test_uphill_ends_at_a_place_from_which_no_step_is_higher(steps):
    """Each place is told once; a ridge across both axes is followed."""
    seen = []

    def tell(at):
        assert at not in seen
        seen.append(at)
        return -10.0 * (at[0] - at[1] - 2) ** 2 - (at[0] - 9) ** 2
        yield

    assert done(lag._uphill(tell, (0, 0), steps)) == (9, 7)
    assert (8, 6) in seen and (10, 8) in seen and (9, 8) in seen and (8, 7) in seen


@pytest.mark.parametrize("steps", range(6))
def test_two_steps_are_one(steps):
    def work():
        for _ in range(steps):
            yield
        return "done"

    pairs, count = lag._in_pairs(work()), 0
    with pytest.raises(StopIteration) as end:
        while True:
            next(pairs)
            count += 1
    assert end.value.value == "done" and count == steps // 2


class Coarse(LagSearch):
    """By given tops for each start."""

    def _coarse_with(self, start, tau, delay):
        self.begun = [*getattr(self, "begun", []), start]
        return self.tops[start]
        yield


def test_of_two_lengthscales_and_ratios_the_better_one_is_gone_on_with():
    one = Coarse(TRACK, LENGTH, "matern52")
    one.tops = {(1, 1): (5.0, (2, 3)), (3, 2): (4.0, (0, 1))}
    one.start = 1, 1
    assert done(one._coarse(2.0, 0.8)) == ((2, 3), (1, 1))
    one.tops[3, 2] = 6.0, (0, 1)
    assert done(one._coarse(2.0, 0.8)) == ((0, 1), (3, 2))
    one.start, one.begun = (3, 2), []
    assert done(one._coarse(2.0, 0.8)) == ((0, 1), (3, 2)) and one.begun == [(3, 2)]


class Hill(LagSearch):
    """By a given evidence of log₂ τ and log₂ of the delay, each in quarters about a top."""

    ask = ()

    def _coarse(self, tau, delay):
        assert (tau, delay) == (3.0, self.usual)
        return (-4, 4), (1, 4)
        yield

    def _slow(self, tau, back=False, delay=0.0):
        at = 4.0 * math.log2(tau / 3.0), 4.0 * math.log2(delay / self.usual)
        self.ask = [*self.ask, (self.start, at)]
        return self.height - (at[0] + 9.0) ** 2 - (at[1] - 9.0) ** 2, 1.25
        yield


def test_both_are_climbed_in_half_doublings_and_then_in_quarters():
    one = Hill(TRACK, LENGTH, "matern52")
    one.height, slow = 30.0, lag._Slow(3.0, 0.0, -21.0, LENGTH)
    found = done(one._both(slow))
    assert found.seconds == pytest.approx(
        3.0 * 2.0 ** (-9 / 4)
    ) and found.evidence == pytest.approx(30.0)
    assert found.delay == pytest.approx(one.usual * 2.0 ** (9 / 4)) and found.lengthscale == 1.25
    assert {start for start, _ in one.ask} == {(1, 4)} and one.start == (3, 2)
    # what begins lower than a constant alone is not climbed
    one = Hill(TRACK, LENGTH, "matern52")
    one.height = 30.0
    assert done(one._both(slow._replace(evidence=-19.0))) is None and len(one.ask) == 1
    assert done(one._both(slow._replace(evidence=30.0))) is None


class Judged(LagSearch):
    """By given evidence of what follows the future, and of a drift; delays are kept."""

    def _slow(self, tau, back=False, delay=0.0):
        self.asked = tau, back, delay
        return self.back, LENGTH
        yield

    def _late(self, seconds):
        return -seconds
        yield

    def _drifting(self, start):
        assert start == (1, 2)
        return self.drift
        yield

    def _unless_late(self, slow, tau, late, gain):
        return tau, sorted(late), gain
        yield


@pytest.mark.parametrize(("delay", "delays"), [(0.0, [0.75, 1.5, 3.0]), (5.0, [5.0, 6.5, 8.0])])
def test_rivals_of_a_constant_are_delays_of_its_size_and_what_follows_the_future(delay, delays):
    def judged(back, drift, others=(1.0, 2.0)):
        one = Judged(TRACK, LENGTH, "matern52")
        one.back, one.drift = back, drift
        slow = lag._Slow(3.0, delay, 20.0, LENGTH)
        told = done(one._judge(slow, 2.9, list(others), {}, (1, 2)))
        assert one.asked == (3.0, True, delay)
        return told

    assert judged(0.0, 20.0) == (2.9, delays, 18.0)
    assert judged(11.0, 20.0) == (2.9, delays, 9.0)
    assert judged(20.0 - SURE, 0.0) is not None and judged(20.1 - SURE, 0.0) is None
    assert judged(0.0, 20.1) is None and judged(0.0, 0.0, others=(12.1, 0.0)) is None


@pytest.fixture
def given(monkeypatch):
    """Evidence without the line between blocks, and posteriors, by a table; what was asked for."""
    table = {"slow": 5.0, "late": 4.0, "none": 5.0 - SURE, "asked": {}}

    def one(name, value):
        def work(*parts):
            if name == "late" and parts[2] == [0.0]:  # a sensor that is neither late nor slow
                table["asked"]["none"] = parts
                return table["none"]
            again = name == "slow" and "known" in table["asked"]
            table["asked"]["slow again" if again else name] = parts
            return value() if callable(value) else value
            yield

        return work

    known = Known(3.1, 0.2, 1.7, 0.05, 2.0)
    monkeypatch.setattr(lag, "slow_evidence", one("slow", lambda: table["slow"]))
    monkeypatch.setattr(lag, "late_evidence", one("late", lambda: table["late"]))
    monkeypatch.setattr(lag, "known_constant", one("known", known))
    monkeypatch.setattr(lag, "known_both", one("both", lambda: table["both"]))
    monkeypatch.setattr(lag, "best_length", lambda *_: 0.4)
    table["both"] = KnownBoth(known, 6.0, 0.5)
    return table


def unless_late(late, delay=0.0, evidence=20.0):
    one = LagSearch(TRACK, LENGTH, "matern52")
    one.start = 1, 4
    slow = lag._Slow(3.0, delay, evidence, 1.5)
    return done(one._unless_late(slow, 2.9, late, 30.0))


def test_where_a_delay_is_nearly_as_good_both_are_weighed_without_a_line_between_blocks(given):
    far, near = {1.0: 20.0 - SURE, 2.0: 0.0}, {1.0: 0.0, 2.0: 20.1 - SURE}
    told = unless_late(far)
    assert told.gain == SURE and "slow" not in given["asked"], "it is surely worse"
    variance = float((TRACK.y - TRACK.y.mean()).square().mean())
    assert (told.seconds, told.lengthscale, told.deviation, told.block) == (3.1, 1.7, 0.2, 0.4)
    assert told.signal == pytest.approx(2.0 * variance) and (told.delay, told.delay_stddev) == (
        0.0,
        0.0,
    )
    assert told.blur == pytest.approx(lag.blur("matern52", 1.7) * told.signal)
    assert given["asked"]["known"][1:] == ("matern52", 2.9, 1.5, 0.3)

    given["asked"].clear()
    assert unless_late(near).gain == 30.0
    assert given["asked"]["slow"][1:] == ("matern52", 2.9, 1.5, 0.3)
    track, _, delays, *rest = given["asked"]["late"]
    assert delays == pytest.approx([2.0 * 2.0**k for k in (-0.5, -0.25, 0.0, 0.25, 0.5)])
    assert rest == [1.5, 0.3] and float(track.y.square().mean()) == pytest.approx(1.0)
    given["late"] = 5.0
    given["asked"].clear()
    assert unless_late(near) is not None
    given["late"] = 5.1
    given["asked"].clear()
    assert unless_late(near) is None


def test_in_shorter_ways_a_lag_must_be_surely_better_than_none_too(given):
    """What long ways alone have blurred is no lag: it would be a fraction of the time to the next sample."""
    far = {1.0: 20.0 - SURE}
    assert unless_late(far).seconds == 3.1
    assert given["asked"]["slow again"][1:] == ("matern52", 3.1, 1.5, 0.3)
    assert given["asked"]["none"][1:] == ("matern52", [0.0], 1.5, 0.3)
    given["none"] = 5.1 - SURE
    assert unless_late(far) is None


def test_with_a_delay_before_it_a_delay_alone_must_be_surely_worse(given):
    assert unless_late({1.0: 20.1 - SURE}, delay=5.0) is None
    told = unless_late({1.0: 20.0 - SURE}, delay=5.0)
    assert (told.delay, told.delay_stddev, told.seconds) == (6.0, 0.5, 3.1)
    assert given["asked"]["both"][1:] == ("matern52", 2.9, 5.0, 1.5, 0.3)
    given["both"] = given["both"]._replace(delay=math.nan)
    assert unless_late({1.0: 0.0}, delay=5.0) is None


# --- posteriors on known hills ----------------------------------------------------------------------
class Gauss:
    """Log evidence of log τ and of a delay that is a Gaussian's, and what it was asked for."""

    vertex, signal = (math.log(1.5), math.log(0.2)), 3.0

    def __init__(self, mean, covariance):
        self.mean = torch.tensor(mean, dtype=torch.float64)
        self.inverse = torch.linalg.inv(torch.tensor(covariance, dtype=torch.float64))
        self.asked = []

    def of_constant(self, tau, delay=0.0):
        assert delay >= 0.0
        self.asked.append((tau, delay))
        return math.log(tau), delay

    def evidence(self, at):
        away = torch.tensor(at, dtype=torch.float64) - self.mean
        return -0.5 * float(away @ self.inverse @ away)
        yield


@pytest.mark.parametrize("start", [(2.0, 4.0), (3.0, 3.0)])
@pytest.mark.parametrize(("a", "b", "r"), [(0.1, 0.3, -0.6), (0.05, 0.2, 0.3), (0.2, 0.15, 0.0)])
def test_a_constant_and_a_delay_have_the_moments_of_their_evidence(monkeypatch, start, a, b, r):
    hill = Gauss([math.log(2.5), 3.6], [[a * a, r * a * b], [r * a * b, b * b]])
    monkeypatch.setattr(late_posterior, "BlockEvidence", lambda *_: hill)
    told = done(known_both(None, "matern52", *start, 2.0, 0.1))
    assert math.log(told.constant.seconds / 2.5) == pytest.approx(0.0, abs=0.15 * a)
    assert told.delay == pytest.approx(3.6, abs=0.15 * b)
    assert told.constant.deviation == pytest.approx(a, rel=0.13)
    assert told.stddev == pytest.approx(b, rel=0.13)
    assert hill.asked[-1] == pytest.approx((told.constant.seconds, told.delay))
    assert told.constant[2:] == pytest.approx((1.5, 0.2, 3.0))
    assert len(hill.asked) < 140


def test_a_delay_is_not_negative(monkeypatch):
    """Of a Gaussian about 0 the half above it: √(2/π) deviations on average, about."""
    hill = Gauss([math.log(2.5), 0.0], [[0.01, 0.0], [0.0, 0.09]])
    monkeypatch.setattr(late_posterior, "BlockEvidence", lambda *_: hill)
    told = done(known_both(None, "matern52", 2.5, 0.1, 2.0, 0.1))
    assert 0.1 < told.delay < 0.3 and all(delay >= 0.0 for _, delay in hill.asked)


def test_places_about_another_are_it_and_its_eight_neighbours():
    about = late_posterior._beside((2, -1))
    assert sorted(about) == [(i, j) for i in (1, 2, 3) for j in (-2, -1, 0)]


class Line:
    """Evidence of log τ by a function."""

    vertex, signal = (math.log(1.5), math.log(0.2)), 3.0

    def __init__(self, told):
        self.told, self.asked = told, []

    def of_constant(self, tau):
        return math.log(tau)

    def evidence(self, at):
        self.asked.append(at)
        return self.told(at)
        yield


def test_what_falls_nowhere_is_looked_at_to_six_wide_steps_on_either_side(monkeypatch):
    line = Line(lambda at: 0.0)
    monkeypatch.setattr(posterior, "BlockEvidence", lambda *_: line)
    told = done(known_constant(None, "matern52", 2.0, 2.0, 0.1))
    assert told.seconds == pytest.approx(2.0)
    assert told.deviation == pytest.approx(0.3 * math.sqrt(sum(k * k for k in range(-6, 7)) / 13))
    assert max(line.asked) - math.log(2.0) == pytest.approx(1.8)
    assert told[2:] == pytest.approx((1.5, 0.2, 3.0))


def test_a_climb_ends_after_twelve_steps_and_a_sharp_top_has_steps_of_three_hundredths(monkeypatch):
    line = Line(lambda at: 5.0 * at)
    start, width = done(posterior._peak(line, 0.0))
    assert (start, width) == pytest.approx((1.2, 0.3))
    line = Line(lambda at: -0.5 * ((at - 0.13) / 0.01) ** 2)
    assert done(posterior._peak(line, 0.0)) == pytest.approx((0.13, 0.03))
    line = Line(lambda at: -0.5 * ((at - 0.13) / 0.2) ** 2)
    assert done(posterior._peak(line, 0.0)) == pytest.approx((0.13, 0.2))
    line = Line(lambda at: -math.inf)
    assert done(posterior._peak(line, 0.0)) == (0.0, 0.3)


@pytest.mark.parametrize(("seconds", "times"), [(0.0, 1.0), (0.2, 2.0), (-0.6, 10.0)])
def test_a_delay_is_as_much_rarer_as_cauchys_density(seconds, times):
    assert delay_penalty(seconds) == pytest.approx(math.log(times))


# --- evidence of averages -------------------------------------------------------------------------
def test_the_covariance_of_blocks_is_that_of_means_of_two_places_and_a_free_level():
    one = BlockEvidence(TRACK, "matern52", LENGTH, 0.1)
    weights = one.of_constant(1.5, 0.2)
    n = len(weights.gain)
    early, late = weights.nodes[:n], weights.nodes[n:]
    mean = sum(kernel(a, b) for a in (early, late) for b in (early, late)) / 4
    wanted = torch.diag(weights.gain) @ (mean + 1e4) @ torch.diag(weights.gain)
    assert torch.allclose(one._covariance(weights, LENGTH), wanted)

    told, s2 = block_evidence._evidence(wanted, weights, 0.3)
    assert (told, s2) == pytest.approx(gaussian(wanted + 0.09 * weights.noise, weights.differences))
    assert block_evidence._evidence(-wanted, weights, 0.0) == (-math.inf, 1.0)


def test_the_place_of_a_late_average_is_so_much_earlier():
    line = Track(torch.stack([0.5 * STAMP, 0.0 * STAMP], 1), Y, STAMP, torch.arange(10) == 0)
    one = BlockEvidence(line, "matern52", LENGTH, 0.1)
    at, late = one.of_constant(1.5).nodes, one.of_constant(1.5, 0.4).nodes
    assert torch.allclose(late[:, 0], at[:, 0] - 0.2)


def surface(told):
    """Evidence at a place of a grid, its neighbours and its corner."""
    return {(i, j): told(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)}


def test_the_integral_about_a_place_is_that_of_its_parabola():
    """Where that hardly falls it is two steps wide; no farther than three steps, and three nats."""
    value, shift = block_evidence._laplace(
        surface(lambda i, j: 5.0 - 0.5 * (2.0 * (i - 0.3) ** 2 + 3.0 * (j + 0.4) ** 2)), (0, 0)
    )
    assert value == pytest.approx(5.0 - 0.5 * math.log(6.0)) and shift == pytest.approx([0.3, -0.4])
    flat = surface(lambda i, j: 5.0 + 0.1 * i - 0.5 * 3.0 * j * j)
    value, shift = block_evidence._laplace(flat, (0, 0))
    assert value == pytest.approx(5.0 + 0.5 * 0.01 / 0.25 - 0.5 * math.log(0.75))
    assert shift == pytest.approx([0.4, 0.0])
    steep = surface(lambda i, j: 5.0 + 9.0 * i - 0.5 * 3.0 * j * j)
    value, shift = block_evidence._laplace(steep, (0, 0))
    assert value == pytest.approx(8.0 - 0.5 * math.log(0.75)) and shift == pytest.approx([3.0, 0.0])
    broken = flat | {(1, 0): -math.inf}
    assert block_evidence._laplace(broken, (0, 0)) == (5.0, [0.0, 0.0])


class Given(BlockEvidence):
    """Evidence at each place of the grid is given."""

    def _see(self, seen, place):
        if place not in seen.evidence:
            seen.evidence[place], seen.signal[place] = self.told(*place), 2.0
            yield


@pytest.mark.parametrize(
    ("noise", "told", "at"),
    [
        (0.1, lambda i, j: float(i) - (j - 2.2) ** 2, (15, 2)),
        (0.1, lambda i, j: -float(i) - (j - 2.2) ** 2, (-15, 2)),
        (0.5, lambda i, j: float(j) - i * i, (0, 5)),  # .5 e^{.6} is .91
        (2e-3, lambda i, j: -float(j) - i * i, (0, -5)),  # 2e-3 e^{−.6} is 1.1e-3
    ],
)
def test_a_climb_ends_at_the_edge_of_what_is_looked_at(noise, told, at):
    """15 steps of the lengthscale, noise of a thousandth and of all of the field; there it is as it is."""
    one = Given(TRACK, "matern52", LENGTH, noise)
    one.told = told
    value = done(one.evidence(None))
    assert one.start == at and value == pytest.approx(told(*at))
    length, log_noise = one.vertex
    assert (length - math.log(LENGTH), log_noise - math.log(noise)) == pytest.approx(
        (0.1 * at[0], 0.12 * at[1])
    )

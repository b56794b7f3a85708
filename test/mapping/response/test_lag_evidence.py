"""What a search for a slow sensor compares and decides: by formulas, and by evidence that is given."""

import math

import pytest
import torch
from drifting import done

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.response.block_evidence import BlockEvidence
from gp_mapping.mapping.response.lag import SURE, LagSearch
from gp_mapping.mapping.response.track import Track

LENGTH, TAU = 2.0, 1.5  # m, s
STAMP = torch.tensor([0.0, 0.8, 1.9, 2.5, 3.9, 20.0, 21.1, 21.9, 23.0, 23.6], dtype=torch.float64)
BEGINS = torch.arange(10) % 5 == 0
CHANCE = torch.Generator().manual_seed(3)
X = torch.rand((10, 2), generator=CHANCE, dtype=torch.float64) * 3.0
Y = torch.randn(10, generator=CHANCE, dtype=torch.float64)
TRACK = Track(X, 50.0 + 1e-3 * Y, STAMP, BEGINS)


def kernel(places):
    return make_kernel("matern52", 1.0, LENGTH)(places, places)


class Asked(LagSearch):
    """Keeps what it would compare, in place of doing that."""

    def _best(self, covariance):
        self.asked = covariance(LENGTH)
        return 0.0, LENGTH
        yield

    def slow(self, tau, back):
        done(self._slow(tau, back))
        return self.asked

    def late(self, seconds):
        done(self._late(seconds))
        return self.asked

    def drifting(self):
        done(self._drifting((3, 2)))
        return self.asked


def followed(stamp, tau):
    """(n, n + 1): what a sensor tells of the field at each row and of its own first number, by its equation.

    τ ẏ + y = f in small steps, f linear from row to row.
    """
    out = torch.zeros((len(stamp), len(stamp) + 1), dtype=torch.float64)
    out[0, -1] = 1.0
    unit, n = torch.eye(len(stamp) + 1, dtype=torch.float64), 150
    for i in range(1, len(stamp)):
        y, step = out[i - 1].clone(), float(stamp[i] - stamp[i - 1]) / n
        for k in range(n):
            f = unit[i - 1] + (k + 0.5) / n * (unit[i] - unit[i - 1])
            y = y + step / tau * (f - y) / (1.0 + 0.5 * step / tau)
        out[i] = y
    return out


@pytest.mark.parametrize("back", [False, True])
def test_a_slow_sensor_follows_its_equation_in_each_pass_by_itself(back):
    """Its first number of a pass is anything; or that of the end, where it follows the future."""
    h = torch.zeros((10, 10), dtype=torch.float64)
    free = torch.zeros((10, 2), dtype=torch.float64)
    for p in range(2):
        rows = slice(5 * p, 5 * p + 5)
        stamp = STAMP[rows]
        out = followed(-stamp.flip(0) if back else stamp, TAU)
        told, first = out[:, :-1], out[:, -1]
        h[rows, rows] = told.flip(0, 1) if back else told
        free[rows, p] = first.flip(0) if back else first
    wanted = h @ (kernel(X) + 1e4) @ h.mT + 1e4 * free @ free.mT
    given = Asked(TRACK, LENGTH, "matern52").slow(TAU, back)
    assert torch.allclose(given, wanted, rtol=1e-5, atol=0.1)
    told = Asked(TRACK, LENGTH, "matern52").slow(1e-3, False)  # at once, but for each beginning
    rest = (~BEGINS).double()[:, None] * (~BEGINS).double()
    assert torch.allclose((told - 1e4) * rest, kernel(X) * rest, atol=0.02)


def test_late_stamps_are_the_field_where_the_sensor_was_before():
    one = Asked(TRACK, LENGTH, "matern52")
    places = TRACK.places_before(0.5)
    assert torch.allclose(one.late(0.5), kernel(places) + 1e4)
    between = X[1] + (X[2] - X[1]) * (1.4 - 0.8) / 1.1
    assert torch.allclose(places[2], between)
    before, after = X[0] - (X[1] - X[0]) * 0.5 / 0.8, X[9] + (X[9] - X[8]) * 0.5 / 0.6
    assert torch.allclose(places[0], before), "at the ends of a pass, with the speed there"
    assert torch.allclose(TRACK.places_before(-0.5)[9], after)
    assert torch.allclose(places[5], X[5] - (X[6] - X[5]) * 0.5 / 1.1)
    assert torch.allclose(TRACK.places_before(-0.5)[4], X[4] + (X[4] - X[3]) * 0.5 / 1.4)
    each = TRACK.places_before(0.1 * torch.arange(10.0).double())
    assert torch.allclose(each[3], TRACK.places_before(0.3)[3])


def test_a_drift_that_suits_best_is_compared():
    """Of the whole time or an eighth of it, and four spreads."""
    one = Asked(TRACK, LENGTH, "matern52")
    apart = (STAMP[:, None] - STAMP).abs()
    field = make_kernel("matern52", 1.0, one.lengths[3])(X, X) + 1e4
    field = field + 0.03**2 * torch.eye(10).double()
    drifts = [
        spread**2 * (-apart / (part * 23.6)).exp()
        for part in (1.0, 0.125)
        for spread in (0.05, 0.2, 0.8, 3.2)
    ]
    told = [one._evidence(field + drift) for drift in drifts]  # noqa: SLF001
    best = drifts[told.index(max(told))]
    assert torch.allclose(one.drifting() - kernel(X) - 1e4, best, atol=1e-6)


def test_a_climb_ends_at_the_best_lengthscale_and_noise():
    """Of all of them; from anywhere."""
    one = LagSearch(TRACK, LENGTH, "matern52")
    eye, ratios = torch.eye(10, dtype=torch.float64), (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)

    def covariance(length):
        return make_kernel("matern52", 1.0, length)(X, X) + 1e4

    told = {
        (i, j): one._evidence(covariance(length) + ratio**2 * eye)  # noqa: SLF001
        for i, length in enumerate(one.lengths)
        for j, ratio in enumerate(ratios)
    }
    best = max(told, key=told.__getitem__)
    for start in ((3, 2), (0, 0), (5, 5)):
        one.start = start
        value, length = done(one._best(covariance))  # noqa: SLF001
        assert value == pytest.approx(told[best]) and length == one.lengths[best[0]]
        assert one.start == best
    assert one.lengths == pytest.approx([LENGTH * c for c in (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)])


# --- decisions ------------------------------------------------------------------------------------
class Decided(LagSearch):
    """By given evidence of none, of time constants about a best one, of delays and of a drift."""

    none, best, top, back, delay, drift = 0.0, 3.0, 20.0, -9.0, -9.0, -9.0
    both, dead = -9.0, 3.2  # the top with a delay before the best, and that delay, s

    def _best(self, covariance):
        return self.none, LENGTH
        yield

    def _slow(self, tau, back=False, delay=0.0):
        if back:
            return self.back, LENGTH
        off = abs(math.log2(tau / self.best))
        if delay:
            return self.both - off - abs(math.log2(delay / self.dead)), LENGTH
        self.tried = getattr(self, "tried", {}) | {tau: self.top - off}
        return self.tried[tau], LENGTH
        yield

    def _coarse(self, tau, delay):
        return (-6, 2), self.start
        yield

    def _late(self, seconds):
        return self.delay - abs(seconds)
        yield

    def _drifting(self, start):
        return self.drift
        yield

    def _unless_late(self, slow, tau, late, gain):
        return self.tried, late, gain, slow
        yield


def decided(**table):
    one = Decided(TRACK, LENGTH, "matern52")
    for name, value in table.items():
        setattr(one, name, value)
    return one.finish()


@pytest.mark.parametrize("rival", [{}, {"none": 5.0}, {"back": 5.0}, {"none": -3.0, "back": -1.0}])
def test_a_time_constant_is_surer_than_none_and_than_one_that_follows_the_future(rival):
    usual = 0.8  # s, the median step
    others = max(rival.get("none", 0.0), rival.get("back", -9.0))
    best = 4.0 * usual
    tried, late, gain, slow = decided(best=best, top=others + SURE + 0.01, **rival)
    assert gain == pytest.approx(SURE + 0.01)
    assert max(tried, key=tried.__getitem__) == pytest.approx(best) == slow.seconds
    assert slow.delay == 0.0
    for c in (0.5, 1.0, 2.0, 8.0, 16.0, 32.0, 2.0**0.5, 4 * 2.0**0.25, 4 * 2.0**-0.125):
        assert any(tau == pytest.approx(c * usual) for tau in tried)
    for d in (-4.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0, 4.0):
        assert any(seconds == pytest.approx(d * usual) for seconds in late)
    assert decided(best=best, top=others + SURE - 0.01, **rival) is None


def test_a_drift_that_is_more_probable_takes_it_away_and_a_delay_is_told_apart_later():
    assert decided(drift=20.01) is None and decided(drift=19.9) is not None
    assert decided(delay=30.0) is not None


def test_a_delay_before_it_counts_where_it_is_surely_better():
    """Or where a time constant alone is not sure, and both are; rarely, the longer the delay is."""
    assert decided(both=20.0 + SURE - 0.1)[3].delay == 0.0
    slow = decided(both=20.0 + SURE + 0.1)[3]
    assert slow.delay == pytest.approx(3.2, rel=0.1) and slow.seconds == pytest.approx(3.0, rel=0.1)
    prior = math.log1p((3.2 / 0.2) ** 2)  # its nats
    assert decided(both=20.5 + prior, back=13.0)[3].delay > 0.0
    assert decided(both=19.5 + prior, back=13.0) is None
    assert decided(both=20.0 + SURE + 0.1, back=20.5) is None, "one that follows the future"
    assert decided(both=20.0 + SURE + 0.1, drift=29.0) is None


@pytest.mark.parametrize("share", [0.77, 1.2, 1.9])
def test_the_best_constant_is_found_to_a_sixteenth_of_a_doubling(share):
    """Nearly: by quarters and eighths about the best one so far."""
    tried = decided(best=4.4 * share)[0]
    best = max(tried, key=tried.__getitem__)
    assert abs(math.log2(best / (4.4 * share))) < 0.13


@pytest.mark.parametrize(
    "track", [TRACK._replace(y=Y * math.nan), TRACK._replace(stamp=0.0 * STAMP)]
)
def test_of_what_is_not_finite_or_has_no_time_there_is_none(track):
    assert LagSearch(track, LENGTH, "matern52").finish() is None


# --- averages of short ways -----------------------------------------------------------------------
def test_two_blocks_tell_of_the_ways_between_as_the_sensor_weighs_them():
    """The nodes have the mean and the variance of the weight exp(−s/τ), s before the later block."""
    line = Track(torch.stack([0.5 * STAMP, 0.0 * STAMP], 1), Y, STAMP, torch.arange(10) == 0)
    for spans in (None, torch.linspace(0.2, 0.6, 10, dtype=torch.float64)):
        one = BlockEvidence(line._replace(span=spans), "matern52", LENGTH, 0.1)
        told = one.of_constant(TAU)
        n = len(told.differences)
        assert n == 9 and told.nodes.shape == (18, 2)
        for k in (0, 4, 8):
            elapsed = float(STAMP[k + 1] - STAMP[k])
            a = math.exp(-elapsed / TAU)
            s = (torch.arange(20000).double() + 0.5) / 20000 * elapsed
            weight = torch.exp(-s / TAU)
            at = float(STAMP[k + 1]) - s
            mean = float((weight * at).sum() / weight.sum())
            variance = float((weight * (at - mean) ** 2).sum() / weight.sum())
            if spans is not None:
                variance += float(spans[k] ** 2 + spans[k + 1] ** 2) / 24
            nodes = told.nodes[[k, n + k], 0] / 0.5
            assert float(nodes.mean()) == pytest.approx(mean, abs=1e-4)
            assert float(nodes[1] - nodes[0]) / 2 == pytest.approx(variance**0.5, abs=1e-4)
            assert float(told.gain[k]) == pytest.approx(1.0 - a)
            assert float(told.differences[k]) == pytest.approx(float(Y[k + 1] - a * Y[k]))
            assert float(told.noise[k, k]) == pytest.approx(1.0 + a * a)
        ratio = math.exp(-float(STAMP[2] - STAMP[1]) / TAU)
        assert float(told.noise[0, 1]) == float(told.noise[1, 0]) == pytest.approx(-ratio)
        assert float(told.noise[0, 2]) == 0.0


def test_noise_is_shared_by_neighbours_of_one_pass_alone():
    one = BlockEvidence(TRACK, "matern52", LENGTH, 0.1)
    told = one.of_constant(TAU)
    assert len(told.differences) == 8 and float(told.noise[3, 4]) == 0.0 != float(told.noise[2, 3])


def test_a_delay_is_the_average_about_an_earlier_place():
    line = Track(torch.stack([0.5 * STAMP, 0.0 * STAMP], 1), Y, STAMP, BEGINS)
    spans = torch.full((10,), 0.6, dtype=torch.float64)
    told = BlockEvidence(line._replace(span=spans), "matern52", LENGTH, 0.1).of_delay(0.3)
    apart = 0.6 / math.sqrt(12.0)
    assert torch.allclose(told.nodes[:10, 0], 0.5 * (STAMP - 0.3 - apart))
    assert torch.allclose(told.nodes[10:, 0], 0.5 * (STAMP - 0.3 + apart))
    assert torch.equal(told.noise, torch.eye(10).double()) and torch.equal(told.differences, Y)


class Given(BlockEvidence):
    """Evidence at each place of the grid is a function of log lengthscale and log noise."""

    def _see(self, seen, place):
        if place not in seen.evidence:
            seen.evidence[place], seen.signal[place] = self.told(*self._at(place)), 2.0
            yield


@pytest.mark.parametrize("top", [(0.3, -0.5), (-0.17, 0.21), (0.9, 0.8)])
def test_evidence_is_integrated_about_its_top(top):
    """Of a Gaussian exactly, also where it is a ridge across both axes."""
    one = Given(TRACK, "matern52", LENGTH, 0.1)
    inverse = torch.tensor([[90.0, 40.0], [40.0, 80.0]], dtype=torch.float64)
    at = torch.tensor([math.log(LENGTH) + top[0], math.log(0.1) + top[1]], dtype=torch.float64)

    def told(length, noise):
        away = at.new_tensor([length, noise]) - at
        return 7.0 - 0.5 * float(away @ inverse @ away)

    one.told = told
    value = done(one.evidence(None))
    steps = torch.diag(torch.tensor([0.1, 0.12], dtype=torch.float64))
    curved = steps @ inverse @ steps
    assert value == pytest.approx(7.0 - 0.5 * float(torch.logdet(curved)))
    assert one.signal == 2.0
    assert one.vertex == pytest.approx(tuple(at.tolist()))

"""Where a sensor sits, and what else explains its values: each step by its formula, on known surfaces."""

import math

import pytest
import torch
from drifting import done

from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.types import Samples
from gp_mapping.mapping.drift import sensor_place, watch
from gp_mapping.mapping.drift.alternatives import DriftTrack, follow, roughness
from gp_mapping.mapping.drift.evidence import DriftSearch
from gp_mapping.mapping.drift.kept import KeptCells
from gp_mapping.mapping.drift.sensor_place import SensorPlace, _Placed
from gp_mapping.mapping.drift.told import Told
from gp_mapping.mapping.drift.track_evidence import (
    CHANGES,
    LIKELIER,
    MOVED,
    RATIOS,
    SPREADS,
    SURE,
    WANDERS,
    Alternative,
)
from gp_mapping.settings.mapping import MapSettings

LENGTH, N = 2.0, 12  # m; blocks
CHANCE = torch.Generator().manual_seed(2)
X = 4.0 * torch.rand((N, 2), generator=CHANCE, dtype=torch.float64)
Y = torch.randn(N, generator=CHANCE, dtype=torch.float64)
STAMP = torch.tensor([0, 1, 2, 4, 5, 6, 20, 21, 22, 23, 25, 26], dtype=torch.float64)
PASSES = 1 + (torch.arange(N) >= 6).long()
TURNS = 0.5 * torch.arange(N, dtype=torch.float64)
FACING = 0.9 * torch.stack([TURNS.cos(), TURNS.sin()], 1)  # of blocks in which the robot turns
MOTION = torch.randn((N, 2), generator=CHANCE, dtype=torch.float64)
TRACK = DriftTrack(X, Y, STAMP, PASSES, forward=FACING, motion=MOTION)


def kernel(places, length=LENGTH):
    return make_kernel("matern52", 1.0, length)(places, places)


def at(*v):
    return torch.tensor(v, dtype=torch.float64)


def search(kind=DriftSearch, *more, **columns):
    return kind(TRACK._replace(**columns), LENGTH, "matern52", *more)


# --- covariances ----------------------------------------------------------------------------------
def test_a_wandering_pose_adds_the_curvature_of_the_field():
    """−∇²k in the plane, ½ of it along each axis, by derivatives; per ℓ² of wander."""
    for r in (0.0, 0.3, 2.0):
        x = torch.tensor([max(r, 1e-7), 0.0], dtype=torch.float64, requires_grad=True)

        def k(x):
            s = math.sqrt(5.0) * x.norm() / LENGTH
            return (1.0 + s + s * s / 3.0) * (-s).exp()

        hessian = torch.autograd.functional.hessian(k, x)
        told = roughness(torch.tensor([[r]], dtype=torch.float64), LENGTH)
        assert float(told) == pytest.approx(-0.5 * LENGTH**2 * float(hessian.trace()), abs=1e-5)


def test_a_slow_sensor_begins_each_pass_settled():
    tau, f = 3.0, torch.randn(N, generator=CHANCE, dtype=torch.float64)
    told = []
    for i in range(N):
        keep = math.exp(-float(STAMP[i] - STAMP[i - 1]) / tau) if i % 6 else 0.0
        told.append(float(f[i]) if not i % 6 else keep * told[-1] + (1.0 - keep) * float(f[i]))
    assert follow(TRACK, tau, f[:, None])[:, 0].tolist() == pytest.approx(told)


def test_fields_have_five_lengthscales_and_are_free_in_level_and_passes():
    one = search()
    same = (PASSES[:, None] == PASSES).double()
    for i, factor in enumerate((0.5, 0.7, 1.0, 1.4, 2.0)):
        wanted = kernel(X, factor * LENGTH) + 1e4 * (1.0 + same)
        assert torch.allclose(one._field(i), wanted)
        assert torch.allclose(one._field_at(i, X + 1.0), wanted)
    assert RATIOS == (0.003, 0.01, 0.03, 0.1, 0.3, 1.0) and SPREADS == (0.03, 0.1, 0.3, 1.0, 3.0)
    turned = search(heading=FACING, forward=None)
    assert torch.allclose(turned.free, 1e4 * (1.0 + same + FACING @ FACING.mT))


def test_a_late_and_slow_sensor_is_climbed_from_the_best_of_a_grid():
    class Pair(tuple):
        def __add__(self, other):
            return self

    class Grid(DriftSearch):
        asked: tuple = ()

        def _followed(self, tau, delay):
            return lambda i: Pair((tau, delay))

        def _evidence(self, told):
            return self.told(*told)

        def _slow(self, tau, delay=0.0):
            self.asked = [*self.asked, (tau, delay)]
            return self.told(tau, delay)
            yield

        def told(self, tau, delay):
            return -((math.log2(tau / 5.7) * 2) ** 2) - (math.log2(delay / 2.9) * 2) ** 2

    one = search(Grid)
    value = done(one._slow_and_late())
    best = max(one.asked, key=lambda pair: one.told(*pair))
    assert best == pytest.approx((4.0 * 2**0.5, 2.0 * 2**0.5))
    assert value == one.told(*best) and len(one.asked) == len(set(one.asked))
    near = {
        (t * 2.0 ** (i / 2), d * 2.0 ** (j / 2))
        for t, d in [best]
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
    }
    for pair in near:
        assert any(pair == pytest.approx(other) for other in one.asked)


class Stretched(DriftSearch):
    """Evidence of how much longer the field is, by a table."""

    def _at(self, places):
        longer = float((places[0] / self.track.x[0])[0] / (places[0] / self.track.x[0])[1])
        self.asked = [*getattr(self, "asked", []), longer]
        return next((v for k, v in self.table.items() if math.isclose(k, longer)), 0.0)
        yield


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({8.0: 9.0}, (9.0, 8.0)),
        ({8.0: 7.9}, (7.9, 1.0)),
        ({8.0: 9.0, 4.0: 10.0}, (10.0, 4.0)),
        ({8.0: 9.0, 16.0: 10.0}, (10.0, 16.0)),
        ({1 / 32: 8.0, 1 / 64: 9.5}, (9.5, 1 / 64)),
        ({0.5: 8.0}, (8.0, 0.5)),
        ({}, (0.0, 1.0)),
    ],
)
def test_how_much_longer_a_field_is_is_found_in_powers_of_two(table, found):
    one = search(Stretched)
    one.table = table
    assert done(one._stretch(0.0)) == pytest.approx(found)
    assert len(one.asked) == (6 if not table else 8)


# --- wild blocks ----------------------------------------------------------------------------------
def test_a_wild_block_gets_the_noise_that_makes_it_one_deviation_off():
    """By leaving each out in turn; one within three deviations has none."""
    y = Y.clone()
    y[4] += 30.0
    one = search(y=y)
    own = torch.zeros(N, dtype=torch.float64)
    own[7] = 0.02
    covariance = kernel(X) + 0.01 * torch.eye(N) + own.diag()
    told = one._own_noise(covariance, own)
    values, rows = one.y[:, 0], torch.arange(N)
    s2 = float(values @ torch.linalg.solve(covariance, values)) / N
    for i in range(N):
        rest = rows != i
        weights = torch.linalg.solve(covariance[rest][:, rest], covariance[rest, i])
        error = float(values[i] - weights @ values[rest])
        expected = float(covariance[i, i] - weights @ covariance[rest, i] - own[i])
        square = error**2 / s2
        wanted = square - expected if square > 9.0 * expected else 0.0
        assert float(told[i]) == pytest.approx(wanted, abs=1e-9)
    assert 0 < int((told > 0).sum()) < N


class Forgiven(DriftSearch):
    """Evidence of rounds of noise that blocks have of their own."""

    def _best(self, covariance, added=None):
        self.asked = [*getattr(self, "asked", []), covariance(2)]
        return self.values[len(self.asked) - 1], (2, 3)
        yield

    def _own_noise(self, covariance, own):
        assert torch.allclose(covariance, torch.diag(own + 0.1**2))
        return own + 1.0


@pytest.mark.parametrize(
    ("values", "best", "own"),
    [
        ([1.0, 2.0, 2.0], 2.0, 1.0),
        ([1.0, 0.0], 1.0, 0.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 6.0, 5.0),
    ],
)
def test_noise_of_their_own_is_given_to_blocks_while_evidence_rises(values, best, own):
    """Six times at most."""
    one = search(Forgiven)
    one.values = values
    nothing = torch.zeros(N, dtype=torch.float64)
    value, most = done(one._forgiving(lambda i: torch.zeros((N, N)).double(), nothing))
    assert value == best and torch.equal(most, nothing + own) and len(one.asked) == len(values)
    for k, each in enumerate(one.asked):
        assert torch.equal(each.diagonal(), nothing + k)


class Holds(DriftSearch):
    """Evidence with forgiven blocks by a table: of none and of what is named, alone and with the other's."""

    def _forgiving(self, covariance, own):
        name = "none" if covariance == self._field else "named"
        begin = "own" if not own.any() else "other's"
        value = self.table[name, begin]
        return value, own + {"none": 1.0, "named": 2.0}[name]
        yield


def told(*parts):
    out = Told(sum(parts))
    out.parts = torch.tensor(parts, dtype=torch.float64)
    return out


@pytest.mark.parametrize(
    ("none", "none_too", "named", "named_too", "holds"),
    [
        (told(0.0, 0.0), told(-1.0, -1.0), told(4.0, 4.0), told(0.0, 0.0), True),
        (told(0.0, 0.0), told(-1.0, -1.0), told(0.0, 0.0), told(4.0, 4.0), True),
        (told(-9.0, 0.0), told(0.0, 0.0), told(4.0, 4.0), told(0.0, 0.0), True),
        (told(0.0, 0.0), told(0.1, 0.0), told(4.0, 4.0), told(0.0, 0.0), False),
        (told(0.0, 0.0), told(-1.0, -1.0), told(9.0, 0.0), told(0.0, 0.0), False),
        (told(0.0, 0.0), told(-1.0, -1.0), told(3.0, 3.0), told(0.0, 0.0), False),
    ],
)
def test_what_is_named_holds_with_wild_blocks_and_all_along_the_way(
    none, none_too, named, named_too, holds
):
    one = search(Holds)
    one.table = {
        ("none", "own"): none,
        ("none", "other's"): none_too,
        ("named", "own"): named,
        ("named", "other's"): named_too,
    }
    assert done(one._holds(lambda i: None)) == holds


# --- decisions ------------------------------------------------------------------------------------
class Compared(DriftSearch):
    """Alternatives by a table of margin, evidence and kind; of another place, and spread's number."""

    place_is, spread = -99.0, 1

    def _alternatives(self):
        for margin, value, kind in self.table:

            def one(value=value):
                self.start = (2, 3, self.spread)
                self.asked = getattr(self, "asked", 0) + 1
                return value
                yield

            yield Alternative(margin, one(), kind)

    def _misplaced(self):
        self.elsewhere = True
        return self.place_is
        yield


def compared(table, value=20.0, others=0.0, **more):
    one = search(Compared)
    one.table = table
    for name, each in more.items():
        setattr(one, name, each)
    return done(one._compare(value, others)), one


def test_a_drift_is_beaten_where_another_fault_is_within_its_margin():
    rivals = [(LIKELIER, 3.0, WANDERS), (SURE, 11.0, 4)]
    (beaten, others), one = compared(rivals)
    assert not beaten and others == 11.0 and one.elsewhere and not one.contradicts
    assert compared([(SURE, 12.0, 4)])[0] == (False, 12.0)
    assert compared([(SURE, 12.01, 4)])[0] == (True, 12.01)
    assert compared([], place_is=12.0)[0] == (False, 12.0)
    assert compared([], place_is=12.1)[0] == (True, 12.1)
    assert compared([], others=15.0)[0] == (False, 15.0)


@pytest.mark.parametrize(
    ("table", "more", "contradicts"),
    [
        ([(LIKELIER, 28.0, WANDERS)], {}, True),
        ([(LIKELIER, 27.9, WANDERS)], {}, False),  # the drift is nearly as good
        (
            [(LIKELIER, 28.0, WANDERS)],
            {"spread": 0},
            False,
        ),  # by less than a tenth of a lengthscale
        ([(LIKELIER, 28.0, CHANGES)], {}, False),  # poses have to wander, too
        ([(LIKELIER, 17.0, WANDERS), (LIKELIER, 28.0, CHANGES)], {}, True),
        ([(LIKELIER, 28.0, WANDERS)], {"place_is": 20.1}, False),
        ([(LIKELIER, 30.0, WANDERS), (SURE, 22.1, 4)], {}, False),
        ([(LIKELIER, 30.0, WANDERS), (SURE, 22.0, 4)], {}, True),
        ([(LIKELIER, 30.0, WANDERS), (LIKELIER, 34.0, MOVED)], {}, True),
        ([(LIKELIER, 30.0, WANDERS), (LIKELIER, 34.1, MOVED)], {}, False),
    ],
)
def test_places_contradict_each_other_where_only_poses_or_a_change_everywhere_explain_it(
    table, more, contradicts
):
    (beaten, _), one = compared(table, **more)
    assert beaten and one.contradicts == contradicts


class Turned(Compared):
    quick, best, forgotten = 1.0, 9.0, None

    def _quick(self, added):
        assert torch.equal(added, FACING @ FACING.mT)
        return self.quick
        yield

    def _more(self, added):
        self.start = (1, 2, 3)
        return self.best, (1, 2, 3)
        yield


def test_what_turns_with_the_robot_is_looked_at_where_a_quick_look_is_better_than_none():
    one = search(Turned)
    before = one.start
    assert done(one._turned(1.0)) == (-math.inf, before)
    assert done(one._turned(0.9)) == (9.0, (1, 2, 3)) and one.start == before
    assert done(search(Turned, forward=None)._turned(0.0)) == (-math.inf, before)


def test_what_turns_is_named_where_nothing_else_explains_as_much():
    def turning(table, place_is=-99.0):
        one = search(Turned)
        one.table, one.place_is, one.anisotropy = table, place_is, 4.0
        done(one._judge_turned(20.0, (2, 3, 1)))
        return one

    one = turning([(SURE, 12.0, 4), (LIKELIER, 16.0, CHANGES)], 12.0)
    added = FACING @ FACING.mT
    covariance = one._field(2) + 0.1**2 * added + 0.1**2 * torch.eye(N)
    y = Y - Y.mean()
    s = math.sqrt(float(y @ torch.linalg.solve(covariance, y)) / N)
    assert one.turning == pytest.approx(0.1 * s) and one.anisotropy == 1.0
    assert torch.allclose(one._named_added, 0.1**2 * added)
    for table, place in (([(SURE, 12.1, 4)], 0.0), ([(LIKELIER, 16.1, CHANGES)], 0.0), ([], 12.1)):
        assert turning(table, place).turning == 0.0 and turning(table, place).anisotropy == 4.0


# --- a sensor elsewhere ---------------------------------------------------------------------------
@pytest.mark.parametrize("axes", [None, at(1.0, 4.0)])
def test_a_sensor_ahead_and_to_the_left_and_late_is_at_other_places(axes):
    """x + a ĥ + b ĥ⊥ − δ ẋ, in units of the map's axes."""
    one = search(DriftSearch, True, axes)
    v = at(0.3, -0.2, 0.7)
    left = torch.stack([-FACING[:, 1], FACING[:, 0]], 1)
    per = torch.ones(2).double() if axes is None else axes
    moved = one._moved(v, one._shifts())
    assert torch.allclose(moved, (0.3 * FACING - 0.2 * left) / per - 0.7 * MOTION)

    # where it turns in a block the mean of both ends of its sweep is not the field in the middle
    swept = one._swept(v, 2)
    s = math.sqrt(0.13 * (1.0 - 0.81) / (1.0 if axes is None else 4.0))
    k = kernel(torch.tensor([[0.0, 0.0], [s, 0.0], [2.0 * s, 0.0]], dtype=torch.float64))
    w = at(0.5, -1.0, 0.5)
    assert swept.tolist() == pytest.approx([float(w @ k @ w)] * N)
    assert search(heading=FACING, forward=None)._shifts() is not None
    assert search(forward=None)._shifts() is None
    changing = kernel(X + moved) + swept.diag()
    assert torch.allclose(one._placed(v, one._shifts(), 2), changing + one.free)
    evidence = one._evidence(changing + one.free + 0.1**2 * one.eye)
    assert one._told_at(v, one._shifts(), 2, 3) == pytest.approx(evidence)


class Hill(DriftSearch):
    """A parabola of (a, b, δ), its gradient and its information."""

    top, inverse, height = at(0.0, 0.0, 0.0), torch.eye(3).double(), 0.0
    rises = 0.0

    def value(self, v):
        away = v - self.top
        return self.height - 0.5 * float(away @ self.inverse @ away)

    def _told_at(self, v, shifts, i, j):
        self.asked = [*getattr(self, "asked", []), (v.tolist(), i, j)]
        return self.value(v)

    def _slope(self, v, shifts, numbers):
        return -self.inverse @ (v - self.top), self.inverse
        yield

    def _best_at(self, v, shifts):
        return self.value(v) + self.rises, (1, 2)
        yield


@pytest.mark.parametrize(
    ("m", "c", "hinted"),
    [(0.5, 33.0, True), (0.5, 31.0, False), (-2.0, 9.0, True), (2.0, 7.0, False)],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_another_place_is_hinted_at_by_half_of_what_is_sure(m, c, hinted, axis):
    """By the top of the parabola, ½ c m², or by its slope over a step of an eighth of a lengthscale."""
    one = search(Hill)
    one.top, one.inverse = m * torch.eye(3).double()[axis], c * torch.eye(3).double()
    one.height = 0.5 * c * m * m
    assert done(one._hint(0.0)) == hinted
    assert sorted({tuple(v) for v, _, _ in one.asked}) == sorted(
        [(0.25, 0.0, 0.0), (-0.25, 0.0, 0.0), (0.0, 0.25, 0.0), (0.0, -0.25, 0.0)]
    )


def test_where_it_bends_upwards_its_slope_alone_hints():
    one = search(Hill)
    one.top, one.inverse = at(-9.0, 0.0, 0.0), -torch.eye(3).double()
    one.height = -0.5 * 81.0
    assert not done(one._hint(0.0)), "9 nats a metre, over a quarter of one"
    one.top, one.height = at(-16.5, 0.0, 0.0), -0.5 * 16.5**2
    assert done(one._hint(0.0))


def test_what_is_hardly_told_stays_within_a_lengthscale():
    one = search()
    speed = one.speed
    assert one._loose().tolist() == pytest.approx([0.25, 0.25, speed**2 / 4.0])
    fisher = torch.tensor([[9.0, 2.0, 1.0], [2.0, 8.0, 3.0], [1.0, 3.0, 7.0]], dtype=torch.float64)
    told = one._covariance(fisher, torch.tensor([True, False, True]))
    inside = torch.linalg.inv(fisher[[0, 2]][:, [0, 2]] + torch.diag(at(0.25, speed**2 / 4.0)))
    assert torch.allclose(told[[0, 2]][:, [0, 2]], inside)
    assert told[1].tolist() == told[:, 1].tolist() == [0.0] * 3


@pytest.mark.parametrize("free", [(True, True, True), (True, True, False), (False, False, True)])
def test_scoring_climbs_to_the_top_in_bounded_steps(free):
    """Of a quarter of a lengthscale; what is not free stays 0."""
    one = search(Hill)
    inverse = torch.tensor(
        [[90.0, 20.0, 0.0], [20.0, 80.0, 0.0], [0.0, 0.0, 50.0]], dtype=torch.float64
    )
    one.inverse, one.height, one.start = inverse, 70.0, (1, 2, 2)
    one.top = at(0.9, -0.4, 0.5) * torch.tensor(free)
    found = done(one._climbed(at(0.1, 0.1, 0.1), free, one._shifts()))
    assert found.at.tolist() == pytest.approx(one.top.tolist(), abs=0.03)
    assert found.value == pytest.approx(70.0, abs=0.1)
    rows = torch.tensor(free).nonzero()[:, 0]
    inside = torch.linalg.inv((inverse + one._loose().diag())[rows[:, None], rows])
    assert torch.allclose(found.covariance[rows[:, None], rows], inside)
    assert float(found.covariance.abs().sum()) == pytest.approx(float(inside.abs().sum()))
    visited = [at(*v) for v, _, _ in one.asked]
    assert torch.equal(visited[0], torch.where(torch.tensor(free), at(0.1, 0.1, 0.1), 0.0))
    way = ((visited[1] - visited[0]) * one._loose().sqrt()).abs().max()
    assert float(way) <= 0.25 * (1 + 1e-9) and (not free[0] or float(way) == pytest.approx(0.25))
    assert one.asked[0][1:] == (1, 4) and one.asked[-1][1:] in ((1, 4), (1, 2))


def test_a_step_that_falls_is_halved_three_times_and_then_left():
    one = search(Hill)
    one.inverse = 100.0 * torch.eye(3).double()
    one._slope = lambda *_: iter_of((at(-50.0, 0.0, 0.0), 100.0 * torch.eye(3).double()))
    found = done(one._climbed(at(0.0, 0.0, 0.0), (True, True, True), one._shifts()))
    assert found.at.tolist() == [0.0] * 3 and found.value == 0.0
    steps = [v[0] for v, _, _ in one.asked[1:4]]
    assert steps == pytest.approx([steps[0], steps[0] / 2, steps[0] / 4]) and steps[0] < 0.0


def iter_of(value):
    return value
    yield


class Placed(Hill):
    """What is climbed to is given by where it begins."""

    slope_at = (0.0, 0.0, 0.0)

    def _climbed(self, first, free, shifts):
        self.climbs = [*getattr(self, "climbs", []), (first.tolist(), free)]
        return _Placed(self.heights[len(self.climbs) - 1], first, torch.eye(3).double())
        yield

    def _slope(self, v, shifts, numbers):
        assert numbers == self.start[:2]
        return at(*self.slope_at), 0.75 * torch.eye(3).double() / LENGTH**2
        yield


def test_late_stamps_alone_are_taken_where_nothing_beside_them_is_better():
    """½ gᵀ (F + F₀)⁻¹ g of another place is less than half of what is sure."""

    def alone(slope, finds=True, stretch=1.0):
        one = search(Placed, finds)
        one.heights, one.slope_at, one.anisotropy = [5.0], (slope, 0.0, 0.0), stretch
        return done(one._late_alone(one._shifts())), one

    # F + F₀ = 1.75/ℓ² along a
    edge = math.sqrt(2.0 * 4.0 * 1.75) / LENGTH
    found, one = alone(0.99 * edge)
    assert found.value == 5.0 and one._delayed is found
    assert one.climbs == [([0.0] * 3, (False, False, True))]
    assert alone(1.01 * edge)[0] is None and alone(0.0, stretch=4.0)[0] is None
    assert alone(1.01 * edge)[1]._delayed.value == 5.0
    found, one = alone(0.0, finds=False)
    assert found is None and one._delayed is None


def test_the_best_two_of_forty_places_around_are_climbed_from():
    """With the noise that makes maxima wide; then all three from the best."""
    one = search(Placed)
    angle = 2.0 * math.pi * 3 / 8
    one.top = at(1.45 * math.cos(angle), 1.45 * math.sin(angle), 0.0)  # near three quarters of ℓ
    one.heights, one.start = [1.0, 3.0, 2.0, 4.0], (1, 2, 2)
    found = done(one._anywhere(one._shifts()))
    assert found.value == 4.0 and len(one.asked) == 40
    assert {(i, j) for _, i, j in one.asked} == {(1, 4)}
    radii = sorted({round(math.hypot(*v[:2]) / LENGTH, 6) for v, _, _ in one.asked})
    assert radii == [0.25, 0.5, 0.75, 1.0, 1.5] and all(v[2] == 0.0 for v, _, _ in one.asked)
    angles = {round(math.atan2(v[1], v[0]) / math.pi * 4) % 8 for v, _, _ in one.asked}
    assert angles == set(range(8))
    starts = [first for first, _ in one.climbs]
    assert starts[0] == [0.0] * 3 and starts[1] == pytest.approx((one.top * 1.5 / 1.45).tolist())
    assert starts[3] == starts[1] and len(starts) == 4
    assert [free for _, free in one.climbs] == [(True, True, False)] * 3 + [(True, True, True)]
    assert math.hypot(*starts[2][:2]) == pytest.approx(1.0), "the next best, half a lengthscale off"


# --- the watch ------------------------------------------------------------------------------------
def test_searches_see_places_as_the_map_does(monkeypatch):
    """So much earlier as its offset says, in units of the shorter lengthscale; the newest 400 blocks."""
    asked = []
    monkeypatch.setattr(watch, "DriftSearch", lambda *parts: asked.append(parts))
    kept = KeptCells()
    for k in range(450):
        kept.add(
            Samples([[0.5 * k, 8.0]], [[1.0 * k]], stamp=[0.5 * k], velocity=[[1.0, 2.0]]),
            1 + k // 300,
        )
    settings = MapSettings(time_offset=0.3, anisotropy=4.0)
    one = watch._PendingDrift(kept, 2.0, settings, False, True)
    ((track, length, kernel_name, finds, axes),) = asked
    assert (length, kernel_name, finds) == (2.0, settings.kernel, settings.learn_time_offset)
    assert axes.tolist() == [1.0, 4.0] and len(track.y) == 400 and float(track.y[0]) == 50.0
    assert track.x[0].tolist() == pytest.approx([25.0 - 0.3, (8.0 - 0.6) / 4.0])
    assert track.motion[0].tolist() == pytest.approx([1.0, 0.5])
    assert one.seconds == pytest.approx(0.5 * 448) and one.final
    assert (one.anisotropy, one.turning, one.place, one.contradicts) == (4.0, 0.0, None, False)
    asked.clear()
    watch._PendingDrift(kept, 2.0, MapSettings(anisotropy=0.25), True, False)
    track, axes = asked[0][0], asked[0][4]
    assert axes.tolist() == [4.0, 1.0] and [float(track.y[0]), float(track.y[-1])] == [0.0, 449.0]
    asked.clear()
    watch._PendingDrift(kept, 2.0, settings, False, False, rows=63)
    assert not asked
    watch._PendingDrift(kept, 2.0, settings, False, False, rows=64)
    assert len(asked[0][0].y) == 64


def test_a_place_of_a_search_is_what_it_found():
    place = sensor_place.PlaceEvidence._place(
        _Placed(1.0, at(1.0, 2.0, 3.0), torch.diag(at(4.0, 9.0, 16.0)))
    )
    assert place == SensorPlace(1.0, 2.0, 3.0, (2.0, 3.0, 4.0))

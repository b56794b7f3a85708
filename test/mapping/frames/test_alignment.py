"""The transform between two drives: its places, its climb, and how well it is known, by evidence that is given."""

import math

import numpy as np
import pytest
import torch
from drifting import LENGTH, done, lanes, passes, way

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.drift.track_evidence import RATIOS, SURE
from gp_mapping.mapping.frames import alignment
from gp_mapping.mapping.frames.alignment import NOWHERE, Aligned, Alignment
from gp_mapping.mapping.frames.matching import Moved, candidates, surface

PARTS = passes(5, [lanes(4.0, 3.0, 1.5, 0.8), lanes(3.0, 4.0, 1.5, 0.8) + 7.0])
COUNT = len(PARTS[0])
SECOND = PARTS[1].x
MIDDLE = SECOND.mean(0, keepdim=True)
RADIUS = float((SECOND - MIDDLE).norm(dim=1).square().mean().sqrt())
BEGIN = Moved(1.0, -2.0, 0.5)


class Peaked(Alignment):
    """Its evidence is a parabola about a transform, in metres of the middle and of outer places."""

    peak, precision, about, told = (0.0, 0.0, 0.0), torch.eye(3).double(), BEGIN, 0

    def _told(self, moved, at):
        self.told += 1
        away = (moved.places(MIDDLE) - self.about.places(MIDDLE))[0].tolist()
        away = torch.tensor([*away, (moved.yaw - self.about.yaw) * RADIUS], dtype=torch.float64)
        away = away - away.new_tensor(self.peak)
        return -0.5 * float(away @ self.precision @ away)

    def climb(self, ahead=-math.inf):
        return done(self._climb(BEGIN, (2, 3), ahead))

    def known(self):
        return done(self._known(BEGIN))

    def different(self, ranked):
        return self._different(ranked, self.lengths[2])

    def moved_by(self, move):
        return self._about(BEGIN, move)


def search(kind=Peaked, heading=None):
    return kind(way(PARTS)._replace(heading=heading), LENGTH, "matern52", COUNT)


def test_a_move_is_of_the_middle_and_of_what_lies_round_it():
    """A turn leaves the middle where it is, and moves what is a radius away by that many metres."""
    moved = search().moved_by((0.3, -0.2, 0.001))
    outer = MIDDLE + MIDDLE.new_tensor([RADIUS, 0.0])
    shift = (moved.places(MIDDLE) - BEGIN.places(MIDDLE))[0]
    assert shift.tolist() == pytest.approx([0.3, -0.2])
    turned = moved.places(outer) - BEGIN.places(outer) - shift
    assert float(turned.norm()) == pytest.approx(0.001, rel=1e-5)
    assert float((turned @ BEGIN.turn[:, 1:]).squeeze()) > 0.0  # to the left


@pytest.mark.parametrize("peak", [(0.41, -0.3, 0.2), (-1.0, 2.0, -0.7)])
def test_a_climb_ends_at_the_peak(peak):
    """To a hundredth of a lengthscale in each direction."""
    one = search()
    one.peak, one.precision = peak, torch.diag(torch.tensor([100.0, 50.0, 80.0])).double()
    value, moved = one.climb()
    shift = (moved.places(MIDDLE) - BEGIN.places(MIDDLE))[0].tolist()
    found = [*shift, (moved.yaw - BEGIN.yaw) * RADIUS]
    assert found == pytest.approx(list(peak), abs=0.01 * LENGTH)
    assert value == pytest.approx(one._told(moved, (2, 3)))  # noqa: SLF001


def test_a_climb_goes_on_only_where_it_may_come_first():
    """After its first, longest moves: one that is 30 nats behind another is given up."""
    one = search()
    one.peak, one.precision = (0.1, 0.0, 0.0), 1e4 * torch.eye(3).double()
    whole, _ = one.climb()
    asked, one.told = one.told, 0
    assert one.climb(ahead=-50.0 + 29.0)[0] == whole and one.told == asked
    one.told = 0
    assert one.climb(ahead=-50.0 + 31.0)[0] == pytest.approx(-50.0) and one.told == 1 + 6


def test_a_climb_is_bounded():
    """Forty moves of each length, where the evidence never ends to rise."""
    one = search()
    one.peak = (1e6, 0.0, 0.0)
    _, moved = one.climb()
    far = float((moved.places(MIDDLE) - BEGIN.places(MIDDLE)).norm())
    assert one.told == 1 + 4 * 40 * 6 and far == pytest.approx(40 * 0.44 * LENGTH)


def test_how_well_it_is_known_is_the_curvature():
    """The covariance of a Gaussian, and its volume beside that of all places and directions."""
    one = search()
    root = torch.tensor([[9.0, 0.0, 0.0], [3.0, 7.0, 0.0], [-2.0, 4.0, 20.0]], dtype=torch.float64)
    one.precision = root @ root.mT
    known, covariance = one.known(), torch.linalg.inv(one.precision)
    assert known.moved == BEGIN
    assert known.stddev == pytest.approx(math.sqrt(0.5 * float(covariance[:2, :2].trace())))
    assert known.turn_stddev == pytest.approx(math.sqrt(float(covariance[2, 2])) / RADIUS)
    extent = float((one.track.x.max(0).values - one.track.x.min(0).values).sum())
    prior = math.log(extent**2 * math.tau * RADIUS)
    assert known.volume == pytest.approx(prior - 0.5 * float(torch.logdet(math.tau * covariance)))


def test_where_nothing_is_known_the_prior_is_left():
    """As wide as the widest side of the prior, being uniform."""
    one = search()
    for precision in (torch.zeros((3, 3)), -torch.eye(3)):
        one.precision = precision.double()
        known = one.known()
        extent = float((one.track.x.max(0).values - one.track.x.min(0).values).sum())
        widest = max(extent, math.tau * RADIUS)
        assert known.stddev == pytest.approx(widest / math.sqrt(12.0))
        left = 1.5 * math.log(math.tau * widest**2 / 12.0)
        prior = math.log(extent**2 * math.tau * RADIUS)
        assert known.volume == pytest.approx(max(0.0, prior - left))


def test_candidates_are_the_best_that_are_a_lengthscale_apart():
    """Of the second drive's places, about: shifts of its middle, and turns about that; six at most."""
    one = search()
    near, turn = one.moved_by((0.95 * LENGTH, 0.0, 0.0)), 1.05 * LENGTH / RADIUS
    far = one.moved_by((1.05 * LENGTH, 0.0, 0.0))
    turned = one.moved_by((0.0, 0.0, turn * RADIUS))
    again = turned._replace(yaw=turned.yaw + math.tau)
    both = one.moved_by((-0.75 * LENGTH, 0.0, -0.75 * LENGTH))
    ranked = [(1.0, far), (5.0, BEGIN), (4.0, near), (2.0, turned), (1.5, again), (0.5, both)]
    assert one.different(ranked) == [BEGIN, turned, far, both]
    many = [(-float(k), Moved(10.0 * k, 0.0, 0.0)) for k in range(9)]
    assert one.different(many) == [moved for _, moved in many[:6]]


@pytest.mark.parametrize("turns", [False, True])
def test_together_they_are_one_track_with_the_second_part_moved(turns):
    ahead = torch.tensor([0.6, 0.8], dtype=torch.float64).expand(len(SECOND) + COUNT, 2)
    one = search(heading=ahead if turns else None)
    x, looks = one.track.x.clone(), ahead.clone()
    x[COUNT:] = BEGIN.places(x[COUNT:])
    looks[COUNT:] = looks[COUNT:] @ BEGIN.turn.mT
    heading = looks if turns else None
    moved = Alignment(one.track._replace(x=x, heading=heading), LENGTH, "matern52", COUNT)
    for i in (0, 2):
        assert torch.allclose(one._together(i, BEGIN), moved._field(i))  # noqa: SLF001
    told = Alignment._told(one, BEGIN, (1, 4))  # noqa: SLF001
    whole = moved._field(1) + RATIOS[4] ** 2 * one.eye  # noqa: SLF001
    assert told == pytest.approx(moved._evidence(whole))  # noqa: SLF001


class Decided(Alignment):
    """Both apart, together, and what climbs come to, are given."""

    separate, together, volume = 0.0, 0.0, 2.0

    def _best(self, covariance, added=None):
        apart = float(covariance(2)[:COUNT, COUNT:].abs().max()) == 0.0
        return (self.separate if apart else self.together), (2, 3)
        yield

    def _climb(self, moved, at, ahead):
        self.ahead.append(ahead)
        value = (3.0, 1.0, 7.0, 5.0, 4.0, 2.0)[len(self.ahead) - 1]
        return value, moved._replace(yaw=10.0 + value)
        yield

    def _known(self, moved):
        return Aligned(moved, self.volume, 0.1, 0.01)
        yield


def test_it_is_taken_where_it_is_surer_than_nothing_in_common():
    """The best climb of all; less what so many transforms would suit by chance."""
    for more, sure in ((0.01, True), (-0.01, False)):
        one = search(Decided)
        one.ahead, one.separate = [], 4.0
        one.together = 4.0 + 2.0 + SURE + more
        found = one.finish()
        assert one.ahead == [-math.inf, 3.0, 3.0, 7.0, 7.0, 7.0] and (found is not None) == sure
        assert not sure or found.moved.yaw == pytest.approx(17.0 - 3 * math.tau)
    assert NOWHERE.moved.places(SECOND).equal(SECOND) and NOWHERE.volume == 0.0


def test_no_step_ranks_more_than_twenty_candidates(monkeypatch):
    ranked, most = [], []

    def many(*arguments):
        for k in range(65):
            ranked.append(k)
            yield -float(k), Moved(10.0 * k, 0.0, 0.0)

    monkeypatch.setattr(alignment, "candidates", many)
    one = search(Decided)
    one.ahead = []
    while not one.advance():
        most.append(len(ranked))
        ranked.clear()
    assert [count for count in most if count] == [20, 20, 20] and len(ranked) == 5


# --- candidates -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("radius", "most"), [(1.0, 192), (30.0, 192), (30.0, 20)])
def test_a_surface_is_the_posterior_on_a_lattice_round_the_drive(radius, most, monkeypatch):
    """A lengthscale beyond it; coarser for a large drive, or one that is to be put on it."""
    monkeypatch.setitem(surface.__globals__, "_MOST", most)
    monkeypatch.setitem(surface.__globals__, "_TOGETHER", 50)
    x, kernel = PARTS[0].x, make_kernel("matern52", 1.0, LENGTH)
    y = PARTS[0].y - PARTS[0].y.mean()
    covariance = kernel(x, x) + 0.01 * torch.eye(len(x)).double()
    made = done(surface(x, torch.linalg.cholesky(covariance), y, kernel, LENGTH, radius))
    low, high = x.min(0).values.numpy() - LENGTH, x.max(0).values.numpy() + LENGTH
    assert made.step == pytest.approx(max(0.35 * LENGTH, 2.0 * radius / most))
    assert np.allclose(made.low, low)
    last = made.low + made.step * (np.array(made.mean.shape) - 1)
    assert (last >= high - 1e-9).all() and (last < high + made.step + 1e-9).all()
    i, j = made.mean.shape[0] - 2, 1
    point = torch.from_numpy(made.low + made.step * np.array([i, j]))[None]
    shared = kernel(point, x)
    assert made.mean[i, j] == pytest.approx(float(shared @ torch.linalg.solve(covariance, y)))
    known = float(shared @ torch.linalg.solve(covariance, shared.mT))
    assert made.variance[i, j] == pytest.approx(1.0 - known)


@pytest.mark.parametrize(("length", "turns"), [(LENGTH, 24), (0.5, None), (0.1, 180)])
def test_directions_are_so_many_that_no_place_moves_farther_than_half_a_lengthscale(length, turns):
    """At least 24, at most 180, evenly all round; two shifts of each."""
    x, kernel = PARTS[0].x, make_kernel("matern52", 1.0, LENGTH)
    y = PARTS[0].y - PARTS[0].y.mean()
    factor = torch.linalg.cholesky(kernel(x, x) + 0.01 * torch.eye(len(x)).double())
    field = done(surface(x, factor, y, kernel, LENGTH, 3.0))
    outer = (SECOND - MIDDLE).norm(dim=1).max()
    turns = turns or int(math.tau * float(outer) / (0.5 * length))
    found = list(candidates(field, SECOND, PARTS[1].y, 0.01, length))
    yaws = [moved.yaw for _, moved in found]
    assert yaws == pytest.approx([math.tau * (k // 2) / turns for k in range(2 * turns)])
    # each is worth what the field tells of the places it moves the drive to
    noise = 0.01 + 5.0 / 18.0 * (field.step / length) ** 2
    values = (PARTS[1].y - PARTS[1].y.mean())[:, 0].numpy()
    for value, moved in found[:: max(1, turns // 12)]:
        cells = ((moved.turn @ (SECOND - MIDDLE).mT).mT / field.step).numpy().round()
        shift = (moved.places(MIDDLE)[0].numpy() - field.low) / field.step
        assert np.allclose(shift, shift.round(), atol=1e-6)
        at, n = (cells + shift.round()).astype(int), np.array(field.mean.shape)
        inside = ((at >= 0) & (at < n)).all(1)
        mean, variance = np.zeros(len(at)), np.ones(len(at))
        mean[inside] = field.mean[tuple(at[inside].T)]
        variance[inside] = field.variance[tuple(at[inside].T)]
        weight, errors = 1.0 / (variance + noise), values - mean
        least = weight @ errors**2 - (weight @ errors) ** 2 / weight.sum()
        logs = np.log((variance + noise) / (1.0 + noise)).sum()
        assert value == pytest.approx(-0.5 * (least + logs), abs=1e-6)

"""Where a search looks for another frame, what it compares, and what it decides by evidence that is given."""

import math
from itertools import pairwise

import pytest
import torch
from drifting import LENGTH, SPEED, done, lanes, passes, way

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.drift.alternatives import change_window, follow, roughness
from gp_mapping.mapping.drift.track_evidence import RATIOS, SURE
from gp_mapping.mapping.frames import search
from gp_mapping.mapping.frames.alignment import NOWHERE, Aligned
from gp_mapping.mapping.frames.matching import Moved
from gp_mapping.mapping.frames.search import ALIKE, APART, CLOCK, MOVED, Break, FrameSearch

STEP = LENGTH / 2.5
LINES = [lanes(27.3, 0.0, 1.0, STEP) + 0.5 * k for k in range(3)]  # 35 rows each
N, ROWS = 105, 35
TRACK = way(passes(3, LINES))
AHEAD = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(N, 2)
THERE = Aligned(Moved(3.0, -2.0, 0.7), 5.0, 0.1, 0.01)


class Asked(FrameSearch):
    """Keeps what it would compare, in place of doing that; tells what is asked of its parts."""

    value = 0.0

    def _best(self, covariance, added=None):
        self.asked = [*getattr(self, "asked", []), (covariance(2), added and added(2))]
        return self.value, (2, 3)
        yield

    def rivals(self):
        self.asked, self._alone = [], (2, 3)
        assert all(done(rival) == 0.0 for rival in self._others())
        return self.asked

    def clocks(self, bound):
        self.asked = []
        return done(self._clocks(bound)), [base for base, _ in self.asked]

    def as_found(self, found, parts):
        self.asked = []
        assert done(self._as_found(found, parts))[0] == 0.0
        return self.asked[0][0]

    def told_apart(self, at, low, high):
        return self._told_apart(at, low, high, self._begins(low, high))

    def begins(self, low, high):
        return self._begins(low, high).tolist()

    def split(self, low, high):
        return done(self._split(low, high, self._begins(low, high)))


def asked(**more):
    return Asked(TRACK._replace(**more), LENGTH, "matern52")


def kernel(places):
    return make_kernel("matern52", 1.0, LENGTH)(places, places)


def taken(expected, given):
    """Take a covariance that is expected out of those that are given."""
    for i, told in enumerate(given):
        if torch.allclose(told, expected, rtol=1e-6, atol=1e-6):
            return given.pop(i)
    raise AssertionError("it is not asked for")


# --- what is compared -----------------------------------------------------------------------------
@pytest.mark.parametrize("turns", [False, True])
def test_each_fault_that_one_frame_may_have_has_its_covariance(turns):
    one = asked(heading=AHEAD if turns else None)
    given, same = one.rivals(), one.same
    apart, elapsed = torch.cdist(TRACK.x, TRACK.x), (TRACK.stamp[:, None] - TRACK.stamp).abs()
    field, usual = kernel(TRACK.x), STEP / SPEED
    beside = [more for _, more in given if more is not None]
    for width in (0.25 * LENGTH, 0.5 * LENGTH, LENGTH, 2.0 * LENGTH):  # a change about one place
        alone = field + one.free + RATIOS[3] ** 2 * one.eye
        window = change_window(alone, one.y, field * same, apart, width)
        taken(field * window[:, None] * window * same, beside)
    age = TRACK.stamp - torch.stack([TRACK.stamp[k // ROWS * ROWS] for k in range(N)])
    for seconds in (16.0 * usual, 64.0 * usual):
        memory = (-elapsed / seconds).exp()
        taken(roughness(apart, LENGTH) * memory, beside)
        taken((-apart / (SPEED * seconds)).exp(), beside)
        taken(memory * same, beside)
        decay = (-age / seconds).exp()
        taken(decay[:, None] * decay * same, beside)
    if turns:
        taken(same, beside)  # all look the same way
    assert not beside

    instead = [base - one.free for base, more in given if more is None]
    for delay in (0.5, 1.0, 2.0, 4.0):
        for seconds in (delay * usual, -delay * usual):
            taken(kernel(TRACK.x - seconds * TRACK.velocity()), instead)
    for lag in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        follows = follow(TRACK, lag * usual, one.eye)
        taken(follows @ field @ follows.mT, instead)
    assert not instead


def test_another_clock_moves_the_places_after_a_boundary_along_the_way():
    """Earlier or later, by up to sixteen usual times; nothing before the boundary."""
    one, usual = asked(), STEP / SPEED
    _, given = one.clocks(ROWS)
    late = (torch.arange(N) >= ROWS).double()[:, None]
    ahead = TRACK.x.new_tensor([SPEED, 0.0])  # all along x
    for delay in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        for seconds in (-delay * usual, delay * usual):
            taken(kernel(TRACK.x - seconds * late * ahead) + one.free, given)
    assert not given


def test_the_likeliest_clock_is_told():
    class Best(Asked):
        def _best(self, covariance, added=None):
            self.value -= 1.0
            return (7.0 if self.value == -4.0 else self.value), (2, 3)
            yield

    assert Best(TRACK, LENGTH, "matern52").clocks(ROWS)[0] == pytest.approx(
        (7.0, -4.0 * STEP / SPEED)
    )


@pytest.mark.parametrize("turns", [False, True])
def test_parts_are_moved_where_they_are_known_and_else_apart(turns):
    one = asked(heading=AHEAD if turns else None)
    parts = list(torch.arange(N).split(ROWS))
    covariance = one.as_found([NOWHERE, None, THERE], parts)
    x, ahead = TRACK.x.clone(), AHEAD.clone()
    x[parts[2]] = THERE.moved.places(x[parts[2]])
    ahead[parts[2]] = ahead[parts[2]] @ THERE.moved.turn.mT
    free = one.free + (1e4 * (ahead @ ahead.mT - AHEAD @ AHEAD.mT) if turns else 0.0)
    alike = torch.ones((N, N), dtype=torch.float64)
    alike[ROWS : 2 * ROWS] = alike[:, ROWS : 2 * ROWS] = 0.0
    alike[ROWS : 2 * ROWS, ROWS : 2 * ROWS] = 1.0
    assert torch.allclose(covariance, (kernel(x) + free) * alike)
    assert torch.equal(one.track.x, TRACK.x)


def test_a_part_without_a_transform_is_none_that_others_are_laid_on(monkeypatch):
    """What is known so far and the next one: for the third part the first one alone."""
    seen = []

    class Given:
        def __init__(self, track, length, name, count):
            seen.append((track.x, length, name, count))
            self.found, self.left = None, 2

        def advance(self):
            self.left -= 1
            return self.left < 0

    monkeypatch.setattr(search, "Alignment", Given)
    one = asked()
    steps = one._align(list(torch.arange(N).split(ROWS)))  # noqa: SLF001
    assert len(list(steps)) == 4
    (first, *others), (second, *again) = seen
    assert others == again == [LENGTH, "matern52", ROWS]
    assert torch.equal(first, TRACK.x[: 2 * ROWS])
    assert torch.equal(second, torch.cat([TRACK.x[:ROWS], TRACK.x[2 * ROWS :]]))


# --- boundaries -----------------------------------------------------------------------------------
def test_a_boundary_has_so_many_rows_on_either_side_and_is_where_a_pass_begins():
    numbers = torch.tensor([1] * 24 + [2] * 20 + [3] * 37 + [4] * 24)
    one = asked(passes=numbers)
    assert one.begins(0, N) == [24, 44, 81] and one.begins(0, N - 1) == [24, 44]
    assert one.begins(1, N) == [44, 81] and one.begins(44, N) == [81]
    assert one.begins(24, 81) == [] and one.begins(45, 60) == []


def test_evidence_of_two_fields_is_that_of_both_by_themselves():
    """With one unit of the values, and the surest of all boundaries."""
    one, at = asked(), (1, 2)
    for low, high, bounds in ((0, N, (ROWS, 2 * ROWS)), (ROWS, N, (2 * ROWS,))):
        together, apart, bound = one.told_apart(at, low, high)
        whole = one._field(1) + RATIOS[2] ** 2 * one.eye  # noqa: SLF001
        rows, told = torch.arange(low, high), {}
        one_y, one.y = one.y, one.y[low:high]
        for each in (low, *bounds):
            group = rows >= each
            alike = (group[:, None] == group).double()
            told[each] = one._evidence(whole[low:high, low:high] * alike)  # noqa: SLF001
        one.y = one_y
        assert together == pytest.approx(told.pop(low))
        assert bound == max(told, key=told.__getitem__) and apart == pytest.approx(told[bound])


def test_a_boundary_is_as_sure_as_the_best_of_two_fields_beside_the_best_of_one():
    """Each with the lengthscale and the noise that suit it, of all of them."""
    one = asked()
    told = [one.told_apart((i, j), 0, N) for i in range(5) for j in range(len(RATIOS))]
    _, apart, where = max(told, key=lambda each: each[1])
    for start in ((2, 3), (0, 0), (4, 5), (0, 5)):
        one.start = (*start, 2)
        gain, bound = one.split(0, N)
        assert bound == where and gain == pytest.approx(apart - max(each[0] for each in told))


class Split(FrameSearch):
    """By how much a part of the rows is better apart is given."""

    def _split(self, low, high, begins):
        gain = self.gains.get((low, high), 0.0) + SURE + math.log(len(begins))
        return gain, int(begins[len(begins) // 2])
        yield

    def bounds(self):
        return done(self._bounds(0, len(self.y), search._DEEPEST))  # noqa: SLF001


def test_boundaries_are_looked_for_in_halves_of_halves_of_halves():
    """Each surer than so many passes would be by chance."""
    count = 16
    track = way(passes(1, [lanes(24 * STEP + 0.1, 0.0, 1.0, STEP)] * count))
    one = Split(track, LENGTH, "matern52")
    n = len(track.y) // count
    one.gains = dict.fromkeys(((0, 16 * n), (0, 8 * n), (8 * n, 16 * n), (8 * n, 12 * n)), 0.01)
    one.gains |= {(0, 4 * n): -0.01, (4 * n, 8 * n): -0.01, (12 * n, 16 * n): -0.01}
    one.gains[8 * n, 10 * n] = 9.0  # deeper than is looked
    assert one.bounds() == [8 * n, 4 * n, 12 * n, 10 * n]
    one.gains[0, 16 * n] = -0.01
    assert one.bounds() == []


# --- decisions ------------------------------------------------------------------------------------
class Decided(FrameSearch):
    """The evidence of one frame, of another clock, of what is aligned and of rivals is given."""

    one_frame, clock, moved, rivals, bounds = 0.0, -1e3, -1e3, (), (2 * ROWS, ROWS)
    aligned = (NOWHERE, None, THERE)

    def _bounds(self, low, high, deep):
        return list(self.bounds)
        yield

    def _best(self, covariance, added=None):
        return self.one_frame, (2, 3)
        yield

    def _clocks(self, bound):
        assert bound == self.bounds[0]
        return self.clock, 1.5
        yield

    def _align(self, parts):
        ends = [0, *sorted(self.bounds), N] if self.bounds else [0, 2 * ROWS, N]
        assert [len(part) for part in parts] == [b - a for a, b in pairwise(ends)]
        return list(self.aligned[-len(parts) :])
        yield

    def _as_found(self, found, parts):
        return self.moved, (2, 3)
        yield

    def _others(self):
        def rival(value):
            return value
            yield

        return map(rival, self.rivals)


def decided(thorough=False, track=TRACK, **table):
    one = Decided(track, LENGTH, "matern52", thorough)
    for name, value in table.items():
        setattr(one, name, value)
    return one.finish()


@pytest.mark.parametrize(
    ("table", "others"), [({"rivals": [-5.0]}, 0.0), ({"rivals": [3.0, 1.0]}, 3.0)]
)
def test_another_frame_is_surer_than_one_frame_with_anything_else(table, others):
    """Less what so many transforms would suit by chance; and a clock, where that is as likely."""
    least = others + SURE
    two, three = decided(moved=least + 5.01, **table)
    stamps = TRACK.stamp[[ROWS, 2 * ROWS]].tolist()
    assert two[:4] == (APART, 2, stamps[0], NOWHERE.moved) and two[4:7] == (0.0, 0.0, 0.0)
    assert three[:4] == (MOVED, 3, stamps[1], THERE.moved) and three[4:7] == (0.1, 0.01, 0.0)
    assert two.gain == three.gain == pytest.approx(SURE + 0.01)
    assert decided(moved=least + 4.99, **table) is None
    (only,) = decided(moved=least + 5.0, clock=least + 0.01, **table)
    assert only[:4] == (CLOCK, 3, stamps[1], Moved(0.0, 0.0, 0.0))
    assert only[4:7] == (0.0, 0.0, 1.5) and only.gain == pytest.approx(SURE + 0.01)
    assert len(decided(moved=least + 5.02, clock=least + 0.01, **table)) == 2
    assert decided(moved=least, clock=least - 0.01, **table) is None


def test_passes_that_hardly_meet_are_compared_at_the_end_alone():
    """The one that meets those before it least, where three of ten of its rows do at most."""
    third = TRACK.x.clone()
    sure = SURE + math.log(2) + 5.0
    for meets, found in ((10, True), (11, False)):
        third[2 * ROWS :] = TRACK.x[:ROWS] + TRACK.x.new_tensor([0.0, 40.0])
        third[2 * ROWS : 2 * ROWS + meets] -= TRACK.x.new_tensor([0.0, 40.0 - 0.49 * LENGTH])
        track = TRACK._replace(x=third.clone())
        table = {"bounds": (), "track": track, "aligned": (NOWHERE, THERE), "moved": sure + 0.01}
        breaks = decided(True, **table)
        alike = Break(ALIKE, 3, float(TRACK.stamp[2 * ROWS]), THERE.moved, 0.1, 0.01, 0.0, 0.0)
        assert breaks == (None if not found else [alike._replace(gain=breaks[0].gain)])
        assert not found or breaks[0].gain == pytest.approx(sure - 5.0 + 0.01)
        assert decided(False, **table) is None
        assert decided(True, **(table | {"moved": sure - 0.01})) is None
        assert decided(True, **(table | {"one_frame": 0.02})) is None
        assert decided(True, **(table | {"aligned": (NOWHERE, None)})) is None


@pytest.mark.parametrize(
    "track", [TRACK._replace(y=TRACK.y * math.nan), TRACK._replace(x=0.0 * TRACK.x)]
)
def test_what_is_not_finite_or_does_not_move_is_one_frame(track):
    assert decided(track=track, moved=1e3, rivals=[0.0]) is None

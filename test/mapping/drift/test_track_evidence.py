"""What a search for a drift compares: each covariance by its formula, each decision by evidence that is given."""

import math

import pytest
import torch
from drifting import done

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.drift.alternatives import DriftTrack, change_window, follow, roughness
from gp_mapping.mapping.drift.evidence import DriftSearch
from gp_mapping.mapping.drift.track_evidence import LIKELIER, RATIOS, SPREADS, SURE, Alternative
from gp_mapping.mapping.response.track import Track

LENGTH, SPEED, ROWS = 2.0, 0.5, 40  # m, m/s, a pass


def two_lanes():
    """One row each second, to and fro; values of a large level and a small unit."""
    t = torch.arange(float(ROWS), dtype=torch.float64)
    x = torch.cat([SPEED * t, SPEED * t.flip(0)])
    y = torch.cat([torch.zeros(ROWS), torch.ones(ROWS)]).double()
    values = torch.randn(2 * ROWS, generator=torch.Generator().manual_seed(0)).double()
    values = torch.cat([values[:ROWS].cumsum(0), values[ROWS:].cumsum(0)])
    passes = torch.cat([torch.ones(ROWS), torch.full((ROWS,), 2.0)]).long()
    stamp = torch.cat([t, 100.0 + t])
    return DriftTrack(torch.stack([x, y], 1), 50.0 + 1e-3 * values, stamp, passes)


class Asked(DriftSearch):
    """Keeps what a search would compare, in place of doing that."""

    def _best(self, covariance, added=None):
        self.asked.append((covariance(2), added and added(2)))
        return 0.0, (2, 3)
        yield

    def rivals(self):
        """Of each alternative by how much a drift has to be better, and covariance and what is added."""
        self.asked, self._alone, margins = [], (2, 3), []
        for rival in self._alternatives():
            assert done(rival.evidence) == 0.0
            margins += [rival.margin] * (len(self.asked) - len(margins))
        return [(margin, *asked) for margin, asked in zip(margins, self.asked, strict=True)]

    def stretched(self):
        self.asked = []
        assert done(self._stretch(0.0)) == (0.0, 1.0)
        return [each for each, _ in self.asked]

    @property
    def times(self):
        return [self._time(k) for k in range(self._time_count)]


def taken(expected, given):
    """Take what is expected, a margin and a covariance, out of what is given."""
    for i, (margin, told) in enumerate(given):
        if margin == expected[0] and torch.allclose(told, expected[1], rtol=1e-6, atol=1e-6):
            return given.pop(i)
    raise AssertionError(f"not asked: {expected}")


def test_each_rival_has_the_covariance_of_its_fault():
    """The table of evidence.py, for every time scale, and delays in both directions."""
    track = two_lanes()
    search, kernel = Asked(track, LENGTH, "matern52"), make_kernel("matern52", 1.0, LENGTH)
    field, same = kernel(track.x, track.x), (track.passes[:, None] == track.passes).double()
    apart, elapsed = torch.cdist(track.x, track.x), (track.stamp[:, None] - track.stamp).abs()
    assert search.times == [16.0, 32.0, 64.0]
    given = search.rivals()

    beside = [(margin, more) for margin, base, more in given if more is not None]
    assert all(
        torch.allclose(base, field + search.free) for _, base, more in given if more is not None
    )
    changes, others = beside[7:11], beside[:7] + beside[11:]
    memories = [same, *((-elapsed / seconds).exp() for seconds in (16.0, 64.0))]
    first = torch.where(track.passes == 1, 0, ROWS)
    way = (track.x - track.x[first]).norm(dim=1)
    walk = torch.minimum(way[:, None], way) / way.max() * same
    taken((LIKELIER, roughness(apart, LENGTH) * walk), others)
    for memory in memories:
        taken((LIKELIER, field * memory), others)
        taken((LIKELIER, roughness(apart, LENGTH) * memory), others)
    for seconds in (16.0, 64.0):
        taken((SURE, (-apart / (SPEED * seconds)).exp()), others)
    assert not others

    alone = field + search.free + RATIOS[3] ** 2 * search.eye
    for memory in (memories[0], memories[2]):
        for width in (LENGTH, 2.0 * LENGTH):
            window = change_window(alone, search.y, field * memory, apart, width)
            taken((LIKELIER, field * window[:, None] * window * memory), changes)

    instead = [(margin, base - search.free) for margin, base, more in given if more is None]
    ahead = torch.where(track.passes == 1, 1.0, -1.0)[:, None] * track.x.new_tensor([SPEED, 0.0])
    for seconds in (0.5, 1.0, 2.0, 4.0):
        for late in (seconds, -seconds):
            places = track.x - late * ahead
            taken((SURE, kernel(places, places)), instead)
    for tau in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        follows = follow(track, tau, search.eye)
        taken((SURE, follows @ field @ follows.mT), instead)

    # late and slow: the best of a grid, and what lies about it
    on_path = Track(track.x, track.y, track.stamp, track.begins)
    both = []
    for tau in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        for late in (1.0, 2.0, 4.0, 8.0, 16.0):
            follows, places = follow(track, tau, search.eye), on_path.places_before(late)
            both.append(follows @ kernel(places, places) @ follows.mT)
    assert {margin for margin, _ in instead} == {SURE}
    assert min(float((one - told).abs().max()) for one in both for _, told in instead) < 1e-5


def test_a_stretched_field_has_the_same_geometric_mean_of_its_lengthscales():
    """2, 8 and 32 times longer along either axis."""
    track = two_lanes()
    search = Asked(track, LENGTH, "matern52")
    given = [(0, each - search.free) for each in search.stretched()]
    for ratio in (2.0, 8.0, 32.0):
        for longer in (ratio, 1.0 / ratio):
            lengths = track.x.new_tensor([LENGTH / longer**0.5, LENGTH * longer**0.5])
            places = track.x / lengths
            taken((0, make_kernel("matern52", 1.0, 1.0)(places, places)), given)
    assert not given


@pytest.mark.parametrize("turns", [False, True])
def test_level_constants_of_passes_and_what_turns_with_the_robot_are_free(turns):
    """Adding them to the values costs no evidence, another constant in the middle of a pass does."""
    track, ahead = two_lanes(), torch.zeros((2 * ROWS, 2), dtype=torch.float64)
    ahead[torch.arange(2 * ROWS), torch.arange(2 * ROWS) % 2] = 1.0
    track = track._replace(heading=ahead if turns else None)

    def told(more):
        """Evidence beside the values' unit: it is that of the values in their standard deviation."""
        search = DriftSearch(track._replace(y=track.y + more), LENGTH, "matern52")
        value = search._evidence(search._field(2) + 0.01 * search.eye)  # noqa: SLF001
        return value - 2 * ROWS * math.log(search.scale)

    none, step = told(0.0), 0.005 * (torch.arange(2 * ROWS) >= ROWS // 2)
    assert told(7.0) == pytest.approx(none, abs=1e-3)
    assert told(0.005 * track.passes) == pytest.approx(none, abs=0.1)
    assert told(step.double()) < none - 5.0
    turned = told(0.005 * ahead[:, 1])
    assert turned == pytest.approx(none, abs=0.1) if turns else turned < none - 5.0


def test_evidence_is_that_of_the_gaussian_at_the_best_scale():
    search = DriftSearch(two_lanes(), LENGTH, "matern52")
    covariance = make_kernel("matern52", 1.0, LENGTH)(search.track.x, search.track.x)
    covariance = covariance + 0.04 * search.eye
    n, y = len(search.y), search.y[:, 0]
    scale = search._scale(covariance)  # noqa: SLF001
    assert scale**2 == pytest.approx(float(y @ torch.linalg.solve(covariance, y)) / n)
    told = -0.5 * float(y @ torch.linalg.solve(covariance, y)) / scale**2
    told -= 0.5 * float(torch.logdet(scale**2 * covariance))
    wanted = told + 0.5 * n  # the constant
    assert search._evidence(covariance) == pytest.approx(wanted)  # noqa: SLF001
    assert search._evidence(-covariance) == -math.inf  # noqa: SLF001


def test_values_count_by_their_standard_deviation_about_their_mean():
    """By no unit and no level; of values that are all the same, too."""
    track = two_lanes()
    search = DriftSearch(track, LENGTH, "matern52")
    y = track.y - track.y.mean()
    assert search.scale == pytest.approx(float(y.square().mean().sqrt()))
    assert torch.allclose(search.y[:, 0] * search.scale, y)
    flat = DriftSearch(track._replace(y=0.0 * track.y), LENGTH, "matern52")
    assert float(flat.y.abs().max()) == 0.0


def test_usual_time_and_speed_are_those_inside_passes():
    """A stamp that comes twice, and the time between passes, do not count."""
    track = two_lanes()
    stamp = track.stamp.clone()
    stamp[1] = stamp[0]  # the half metre between them is left out
    search = DriftSearch(track._replace(stamp=stamp), LENGTH, "matern52")
    assert search.usual == 1.0
    seconds, metres = 2 * (ROWS - 1), SPEED * (2 * (ROWS - 1) - 1)
    assert search.speed == pytest.approx(metres / seconds)
    short = DriftSearch(DriftTrack(*(c if c is None else c[:7] for c in track)), LENGTH, "matern52")
    assert short._time_count == 1  # noqa: SLF001  16 s, however short the drive
    one_each = track._replace(passes=torch.arange(2 * ROWS))
    search = DriftSearch(one_each, LENGTH, "matern52")
    assert search.usual == search.speed == 0.0 and search.finish() is None and search.steps == 0


@pytest.mark.parametrize("added", [False, True])
def test_a_climb_ends_at_the_best_of_all(added):
    """Of every lengthscale, ratio and spread; where the next one begins."""
    search = DriftSearch(two_lanes(), LENGTH, "matern52")
    base, more = search._field, search._drift(False, 0)  # noqa: SLF001
    numbers = [range(5), range(len(RATIOS)), range(len(SPREADS) if added else 1)]
    told = {}
    for at in torch.cartesian_prod(*(torch.tensor(list(each)) for each in numbers)).tolist():
        whole = base(at[0]) + RATIOS[at[1]] ** 2 * search.eye
        whole = whole + (SPREADS[at[2]] ** 2 * more if added else 0.0)
        told[tuple(at if added else at[:2])] = search._evidence(whole)  # noqa: SLF001
    value, at = done(search._best(base, (lambda i: more) if added else None))  # noqa: SLF001
    assert at == max(told, key=told.__getitem__) and value == pytest.approx(told[at])
    assert search.start == (at if added else (*at, 2))
    quick = done(search._quick(more))  # noqa: SLF001
    i, j, _ = search.start
    wanted = base(i) + RATIOS[j] ** 2 * search.eye
    wanted = [search._evidence(wanted + spread**2 * more) for spread in (0.1, 0.3, 1.0)]  # noqa: SLF001
    assert quick == pytest.approx(max(wanted))


@pytest.mark.parametrize("warms_up", [False, True])
def test_a_drift_is_forgotten_or_decays_from_the_beginning_of_each_pass(warms_up):
    search, seconds = DriftSearch(two_lanes(), LENGTH, "matern52"), 32.0
    told = search._drift(warms_up, 1)  # noqa: SLF001
    assert float(told[3, 3]) == pytest.approx(math.exp(-6.0 / seconds) if warms_up else 1.0)
    assert float(told[3, 10]) == pytest.approx(math.exp(-(13.0 if warms_up else 7.0) / seconds))
    assert float(told[ROWS, ROWS + 5]) == pytest.approx(math.exp(-5.0 / seconds))
    assert float(told[:ROWS, ROWS:].abs().max()) == 0.0


# --- decisions: the evidence of each question is given ---------------------------------------------
class Decided(DriftSearch):
    """By a table: evidence of none, of a stretched field, of rivals, and of each drift."""

    none = stretch = 0.0
    rivals, drifts, quick = (), {}, {}
    holds = True  # where blocks are wild, and all along the way, too

    def _best(self, covariance, added=None):
        return self.none, (2, 3)
        yield

    def _holds(self, named):
        return self.holds
        yield

    def _stretch(self, none):
        return max(none, self.stretch), 4.0 if self.stretch >= none + SURE else 1.0
        yield

    def _alternatives(self):
        def rival(value):
            return value
            yield

        return (Alternative(margin, rival(value)) for margin, value in self.rivals)

    def _drift(self, warms_up, k):
        out = super()._drift(warms_up, k)
        self.named = [*getattr(self, "named", []), (out, (warms_up, k))]
        return out

    def _name(self, added):
        return next(name for matrix, name in self.named if matrix is added)

    def _quick(self, added):
        name = self._name(added)
        return self.quick.get(name, self.drifts.get(name, -1e3))
        yield

    def _more(self, added):
        name = self._name(added)
        assert name[1] in range(3)
        return self.drifts.get(name, -1e3), (2, 3, 1)
        yield


def decided(**table):
    """What is found, and the search."""
    search = Decided(two_lanes(), LENGTH, "matern52")
    for name, value in table.items():
        setattr(search, name, value)
    return search.finish(), search


@pytest.mark.parametrize(
    ("table", "others"),
    [
        ({}, 0.0),
        ({"none": 5.0}, 5.0),
        ({"none": 5.0, "stretch": 20.0}, 20.0),
        ({"rivals": [(LIKELIER, 9.0), (SURE, 1.0)]}, 9.0),
        ({"rivals": [(SURE, 1.0), (LIKELIER, 9.0)]}, 9.0),
        ({"rivals": [(SURE, 12.0)]}, 12.0),
    ],
)
def test_a_drift_is_found_where_it_is_better_by_enough_than_anything_else(table, others):
    least = max(
        [SURE + max(table.get("none", 0.0), table.get("stretch", 0.0))]
        + [margin + value for margin, value in table.get("rivals", [])]
    )
    drift, search = decided(drifts={(True, 1): least + 0.01}, **table)
    assert (drift.warms_up, drift.seconds, drift.shortest) == (True, 32.0, 32.0)
    assert drift.gain == pytest.approx(least + 0.01 - others) and search.anisotropy == 1.0
    nothing, search = decided(drifts={(True, 1): least - 0.01}, **table)
    assert nothing is None and search.anisotropy == (4.0 if "stretch" in table else 1.0)


def test_a_drift_that_a_few_blocks_explain_is_none():
    """Nor is a field longer along one axis then, beside which it was judged."""
    assert decided(drifts={(True, 1): 40.0})[0] is not None
    drift, search = decided(drifts={(True, 1): 40.0}, stretch=20.0, holds=False)
    assert drift is None and search.anisotropy == 1.0


def test_the_drift_is_the_best_one_by_itself_not_by_a_quick_look():
    """From where that seemed best it goes to better neighbours, and no farther."""
    drifts = {(False, 0): 20.0, (False, 1): 30.0, (False, 2): 40.0, (True, 0): 90.0}
    drift, _ = decided(quick={(False, 0): 50.0, (True, 0): 10.0}, drifts=drifts)
    assert (drift.warms_up, drift.seconds, drift.shortest) == (False, 64.0, 64.0)


def test_the_shortest_time_is_that_which_is_hardly_worse():
    """By two nats; what lies beyond a worse one does not count."""
    for second, shortest in ((38.1, 16.0), (37.9, 64.0)):
        drifts = {(False, 0): 39.0, (False, 1): second, (False, 2): 40.0}
        assert decided(drifts=drifts)[0].shortest == shortest
    assert decided(drifts={(False, 1): 38.1, (False, 2): 40.0})[0].shortest == 32.0


def test_its_standard_deviation_is_in_the_unit_of_the_values():
    drift, search = decided(drifts={(False, 1): 40.0})
    covariance = search._field(2) + 0.01 * search._drift(False, 1)  # noqa: SLF001
    covariance = covariance + RATIOS[3] ** 2 * search.eye
    y = search.track.y - search.track.y.mean()
    square = float(y @ torch.linalg.solve(covariance, y)) / len(y)
    assert drift.stddev == pytest.approx(0.1 * math.sqrt(square))


def test_the_place_of_a_change_is_where_the_evidence_rises_most():
    """By differences, for a window about each place."""
    track = two_lanes()
    search = DriftSearch(track, LENGTH, "matern52")
    field = make_kernel("matern52", 1.0, LENGTH)(track.x, track.x)
    covariance, change = field + 0.1 * search.eye, field * search.same
    apart, rises = torch.cdist(track.x, track.x), []
    windows = (-0.5 * (apart / 1.5).square()).exp()
    for each in windows:
        more = 1e-5 * each[:, None] * each * change
        told = [search._evidence(covariance + sign * more) for sign in (-1.0, 1.0)]  # noqa: SLF001
        rises.append(told[1] - told[0])
    found = change_window(covariance, search.y, change, apart, 1.5)
    assert torch.equal(found, windows[int(torch.tensor(rises).argmax())])

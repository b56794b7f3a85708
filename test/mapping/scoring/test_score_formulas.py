"""Formulas of noise and of change, each by numpy: dense matrices, filters, sums over a window."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.types import Prediction, Samples
from gp_mapping.mapping.averaging.gross_errors import GROSS
from gp_mapping.mapping.scoring import change, neighbouring_cells
from gp_mapping.mapping.scoring.autocorrelation import autocorrelation_time
from gp_mapping.mapping.scoring.change import ChangeDetector, log_ratio, student_weight
from gp_mapping.mapping.scoring.neighbouring_cells import NeighbouringCells
from gp_mapping.mapping.scoring.neighbours import Spread, noise_squares, step_squares
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.mapping.scoring.suspects import Judged, Suspects

CHANCE = np.random.default_rng(4)


# --- neighbouring cells ---------------------------------------------------------------------------
def test_a_difference_is_that_to_the_point_of_a_line_that_is_next_to_a_place():
    """Of both numbers the mean; beyond the ends of the line it is an end, of one place the middle."""

    def told(q, p=(1.0, 0.0), r=(5.0, 0.0)):
        sides = [math.dist(p, q), math.dist(q, r), math.dist(p, r)]
        u, a, *rest = neighbouring_cells._difference(
            (p, [1.0, 3.0]), (q, [7.0, 2.0]), (r, [2.0, 11.0])
        )
        assert rest == pytest.approx(sides)
        e = [7.0 - a * 1.0 - (1.0 - a) * 2.0, 2.0 - a * 3.0 - (1.0 - a) * 11.0]
        assert u == pytest.approx(0.5 * (e[0] ** 2 + e[1] ** 2) / (1.0 + a * a + (1.0 - a) ** 2))
        return a

    assert told((2.0, 0.7)) == pytest.approx(0.75)
    assert told((0.0, 0.0)) == 1.0 and told((9.0, 1.0)) == 0.0
    assert told((2.0, 0.7), r=(1.0, 0.0)) == 0.5


@pytest.mark.parametrize("kernel", ["matern32", "rbf"])
def test_the_field_has_its_share_in_a_difference(kernel):
    """wᵀ K w/c by the whole matrix of three places."""
    places = CHANCE.random((4, 3, 2)) * 3.0
    rows, wanted = [], []
    for p, q, r in places:
        row = neighbouring_cells._difference((p, [0.0]), (q, [0.0]), (r, [0.0]))
        x = torch.from_numpy(np.stack([p, q, r]))
        k = make_kernel(kernel, 1.0, 1.7)(x, x).numpy()
        w = np.array([-row[1], 1.0, row[1] - 1.0])
        rows.append(row)
        wanted.append(w @ k @ w / (w @ w))
    assert neighbouring_cells._share(np.array(rows), kernel, 1.7) == pytest.approx(wanted)


def test_means_of_squares_that_overlap_vary_by_twice_the_squares_of_their_correlations():
    """Of e, and of its twin two steps apart; for even steps."""
    first, second = np.zeros(9), np.zeros(9)
    first[[3, 4, 5]], second[[2, 4, 6]] = (-0.5, 1.0, -0.5), (-0.5, 1.0, -0.5)

    def correlations(a, b):
        return np.correlate(a, b, "full") / 1.5

    own, twin, cross = (
        (correlations(a, b) ** 2).sum()
        for a, b in ((first, first), (second, second), (first, second))
    )
    assert neighbouring_cells._ONE == pytest.approx(2.0 * own)
    assert neighbouring_cells._BOTH == pytest.approx(2.0 * own + 2.0 * twin - 4.0 * cross)


def given_white(n=40, rough=0.0, wild=()):
    """Squares u for k = 1 and 2 with the field's shares in them."""
    share, second_share = 0.3 + CHANCE.random(n), 1.0 + 2.0 * CHANCE.random(n)
    first = (1.0 + share) * CHANCE.chisquare(1, n)
    second = (1.0 + second_share) * CHANCE.chisquare(1, n) + rough
    for k in wild:
        first[k] = 1e6
    return first, share, second, second_share


@pytest.mark.parametrize(
    ("n", "rough", "wild"), [(400, 0.0, ()), (400, 9.0, ()), (400, 0.0, (3, 9))]
)
def test_white_noise_is_the_weighted_mean_of_what_squares_have_beyond_the_field(n, rough, wild):
    """A fixed point: weights 1/(σ² + F)²; less what two steps have more, and its standard deviation."""
    u, f, u2, f2 = given_white(n, rough, wild)
    told, count = neighbouring_cells._white(u, f, u2, f2)
    typical = np.median(u) / 0.4549
    good = (u <= 25.0 * (typical + f)) & (u2 <= 25.0 * (typical + f2))
    assert not good[list(wild)].any() and good.sum() > 380
    u, f, u2, f2 = u[good], f[good], u2[good], f2[good]
    found = typical
    for _ in range(200):
        weight = 1.0 / (max(found, 1e-3 * typical) + f) ** 2
        found = (weight * (u - f)).sum() / weight.sum()
    weight = 1.0 / (max(found, 1e-3 * typical) + f2) ** 2
    more = (weight * (u2 - f2 - u + f)).sum() / weight.sum()
    variance = neighbouring_cells._BOTH / weight.sum()
    left = max(0.0, more - math.sqrt(variance))
    assert (left > 0.0) == (rough > 0.0)
    assert count == pytest.approx(((found / (found + f)) ** 2).sum(), rel=1e-3)
    wanted = max(0.0, (found - left) * (1.0 - math.sqrt(35.0 / 9.0 / count)))
    assert told == pytest.approx(wanted, rel=1e-3)


def test_twenty_differences_tell_something():
    """Of which not less than twenty are of noise."""
    u = CHANCE.chisquare(1, 24)
    none = np.zeros(24)
    told = neighbouring_cells._white(u, none, u, none)
    assert told[1] == 24.0 and told[0] > 0.0
    assert neighbouring_cells._white(u[:19], none[:19], u[:19], none[:19]) == (0.0, 0.0)
    assert neighbouring_cells._white(u[:20], none[:20], u[:20], none[:20])[1] == 20.0
    share = none + 1.0
    assert neighbouring_cells._white(u + 1.0, share, u + 1.0, share) == (0.0, 0.0)
    assert neighbouring_cells._white(0.1 * u, share, u, share) == (0.0, 0.0)


def of_rows(n, first):
    """Differences that are numbered."""
    cells = NeighbouringCells()
    rows = torch.zeros(n, 10, dtype=torch.float64)
    rows[:, 0] = first + torch.arange(n)
    cells.load_state_dict(NeighbouringCells().state_dict() | {"rows": rows})
    return cells


def test_of_two_windows_each_gives_up_the_same_fraction_of_its_oldest():
    cells = of_rows(900, 0.0)
    cells.join(of_rows(300, 5000.0))
    told = cells.state_dict()["rows"][:, 0].tolist()
    assert told == [float(k) for k in range(150, 900)] + [5000.0 + k for k in range(50, 300)]
    assert cells.is_due and not of_rows(19, 0.0).is_due
    few = of_rows(3, 0.0)
    few.join(of_rows(0, 0.0))
    assert len(few.state_dict()["rows"]) == 3 and not few.is_due


def test_samples_lie_apart_by_the_median_of_the_newest():
    cells = NeighbouringCells()
    for k, x in enumerate((0.0, 1.0, 3.0, 6.0, 10.0, 30.0)):
        cells.add(Samples([[x, 0.0]], [[0.0]], count=[1.0]), 0)
        assert cells.apart == (0.0, 0.0, 0.0, 0.0, 2.5, 3.5)[k]
    assert len(cells.state_dict()["rows"]) == 2 and cells.state_dict()["fresh"] == 2


# --- neighbours in a cell -------------------------------------------------------------------------
def test_squares_of_differences_and_of_noise():
    """y interpolated at a sample's stamp; twice σ² on average. Of all at one moment the middle."""
    y, stamp = CHANCE.standard_normal((5, 2)), np.array([0.0, 1.0, 4.0, 4.0, 6.0])
    assert step_squares(y) == pytest.approx(((y[1:] - y[:-1]) ** 2).mean(1))
    assert noise_squares(y[:2], stamp[:2]) == step_squares(y[:2])
    told = []
    for k in (1, 2, 3):
        w = np.array([-np.interp(stamp[k], stamp[[k - 1, k + 1]], [1.0, 0.0]), 1.0, 0.0])
        w[2] = -1.0 - w[0]
        told.append(2.0 * ((w @ y[k - 1 : k + 2]) ** 2).mean() / (w @ w))
    assert noise_squares(y, stamp) == pytest.approx(told)
    once = noise_squares(y[:3], np.zeros(3))
    assert once == pytest.approx([2.0 * ((y[1] - 0.5 * y[0] - 0.5 * y[2]) ** 2).mean() / 1.5])


def test_what_is_typical_is_by_the_median_of_the_newest_51():
    spread = Spread()
    spread.note([4.0] * 9)
    assert spread.typical(math.inf) is None and spread.reweighted(math.inf) is None
    spread.note([1.0])
    assert spread.typical(math.inf) == pytest.approx(0.5 * 4.0 / 0.4549)
    spread.note([9.0] * 42)  # the first one leaves
    assert spread.typical(math.inf) == pytest.approx(0.5 * 9.0 / 0.4549)
    spread.note([1.0 + 0.01 * k for k in range(100)])
    newest = [1.0 + 0.01 * k for k in range(49, 100)]
    assert spread.reweighted(math.inf) == pytest.approx(
        max(0.5 * np.mean(newest), 0.5 * 1.74 / 0.4549)
    )
    even = Spread()
    even.note([1.0] * 5 + [3.0] * 5)
    assert even.typical(math.inf) == pytest.approx(0.5 / 0.4549), "the lower of two"
    assert even.typical(3.0) == pytest.approx(4.5), "a step of a sensor that rounds"
    assert even.typical(1.0) == pytest.approx(0.5 / 0.4549)


def test_a_variance_without_gross_errors_is_of_what_lies_within_some_typical_deviations():
    most = GROSS**2 / 0.4549  # squares, the typical one being 1
    for last, inside in ((most * (1 - 1e-9), True), (most * (1 + 1e-9), False)):
        spread = Spread()
        spread.note([1.0] * 9 + [last])
        total = 9.0 + last if inside else 9.0
        wanted = max(0.5 / 0.4549, 0.5 * total / (9 + inside))
        assert spread.reweighted(math.inf) == pytest.approx(wanted)


def begun(spread, cells):
    for squares in cells:
        spread.add(squares, False, math.inf)
    return spread


def test_wild_ones_of_the_first_nine_cells_do_not_count():
    """Beyond 25 times the lower quartile of the cells' means; all is found anew with each cell."""
    spread = begun(Spread(), [[1e6, 1e6], [2.0, 2.0, 2.0]])
    assert spread.variance == 0.0 and spread.sum == pytest.approx(2.0 * (1 + 0.999 + 0.999**2))
    begun(spread, [[1.0, 3.0], [25.0 * 2.0], [25.0 * 2.0 + 0.01], [2.0]])
    kept = [2.0, 2.0, 2.0, 1.0, 3.0, 50.0, 2.0]
    assert spread.sum == pytest.approx(sum(0.999**k * v for k, v in enumerate(kept[::-1])))
    assert spread.count == pytest.approx(sum(0.999**k for k in range(7)))
    assert spread.variance == 0.0, "of fewer than ten"
    begun(spread, [[2.0, 2.0]] * 3)
    assert spread.state_dict()["begun"] is None and spread.count > 10.0
    usual = spread.variance
    assert usual == pytest.approx(0.5 * spread.sum / spread.count)
    # later cells: no more than 25 times what is usual, on average
    before = spread.sum
    begun(spread, [[1e6]])
    assert spread.sum == pytest.approx(0.999 * before + 50.0 * usual)
    before, usual = spread.sum, spread.variance
    begun(spread, [[99.0 * usual, 0.0]])
    assert spread.sum == pytest.approx(0.999**2 * before + 0.999 * 99.0 * usual)
    before, usual = spread.sum, spread.variance
    begun(spread, [[101.0 * usual, 0.0]])
    assert spread.sum == pytest.approx(0.999**2 * before + 1.999 * 50.0 * usual)


def test_of_few_samples_a_wild_square_counts_fifty_half_typical_ones():
    spread = Spread()
    spread.add([1.0], True, math.inf)
    assert spread.sum == 0.0, "nothing is typical yet"
    spread.note([1.0] * 10)
    spread.add([1e6, 3.0], True, math.inf)
    assert spread.sum == pytest.approx(0.999 * 25.0 / 0.4549 + 3.0)
    plain = Spread(robust=False)
    plain.add([1e6, 3.0], True, math.inf)
    assert plain.sum == pytest.approx(0.999e6 + 3.0)


# --- a change -------------------------------------------------------------------------------------
def test_a_sum_of_ratios_is_that_of_variances_nine_times_as_large():
    for square in (0.0, 1.0, 24.0, 25.0, 30.0):
        z2 = min(square, 25.0)
        told = -0.5 * math.log(9.0) - 0.5 * z2 / 9.0 + 0.5 * z2
        assert log_ratio(square) == pytest.approx(told)
    assert student_weight(25.0) == 1.0 and student_weight(25.1) == pytest.approx(5.0 / 29.1)
    assert student_weight(26.0, 26.0) == 1.0 and student_weight(6.0, 1.0, 2.0) == pytest.approx(
        3.0 / 8.0
    )


def test_a_change_is_called_where_the_sum_of_a_patch_reaches_thirty_nats():
    """It starts anew where it falls to nothing; what is said is the mean error since."""
    detector, ratio = ChangeDetector(2.0), log_ratio(16.0)
    need = math.ceil(30.0 / ratio)
    assert detector.add([3.9, -0.1], 0.0, 1.0, 0.0, 0.0) is None
    for k in range(need):
        found = detector.add([3.9, -0.1], -4.0, 1.0, float(k), 1.0 + k)
        assert (found is None) == (k < need - 1)
    assert found == change.Change(3.9, -0.1, float(need - 1), -4.0)
    (row,) = detector.state_dict()["tiles"].tolist()
    assert row[:2] == [1.0, -1.0] and row[2] == 0.0


def test_squares_are_in_the_variance_that_is_predicted():
    detector = ChangeDetector(2.0)
    detector.add([0.5, 0.5], 6.0, 4.0, 0.0, 0.0)
    told = detector._patches[0, 0]
    assert told.total == pytest.approx(log_ratio(9.0)) and told.error == 6.0 and told.cells == 1.0
    assert detector.add([0.5, 0.5], 600.0, 4.0, 0.0, 0.039) is None and told.cells == 1.0, (
        "it stands"
    )
    detector.add([0.5, 0.5], 6.0, 4.0, 0.0, 0.041)
    assert told.here == 2.0 and told.squares == 18.0
    detector.add([0.5, 0.5], 2e4, 4.0, 0.0, 1.0)
    assert told.squares == 18.0 + 1e6
    detector.add([0.5, 0.5], 6.0, 4.0, 0.0, 1.0 + 8.0)  # four sides: still the same visit
    assert told.here == 4.0 and told.visits == 0.0
    detector.add([0.5, 0.5], 6.0, 4.0, 0.0, 9.0 + 8.01)
    assert (told.visits, told.misfit, told.here) == (1.0, 25.0, 1.0)
    assert told.usual == pytest.approx(30.0 / 6.0)
    detector.add([0.5, 0.5], 0.0, 4.0, 0.0, 1.0)  # a shorter way than before: another visit
    assert (told.visits, told.misfit) == (2.0, 34.0)


def test_old_visits_fade_beyond_twenty():
    patch = change._Patch(visits=20.0, misfit=40.0, here=2.0, squares=6.0)
    patch.leave()
    assert patch.visits == pytest.approx(20.0) and patch.misfit == pytest.approx(43.0 * 20.0 / 21.0)
    assert patch.here == patch.squares == 0.0
    patch.leave()
    assert patch.visits == pytest.approx(20.0), "a visit without cells is none"
    assert change._Patch(visits=5.0, misfit=1.0).usual == 1.0


def test_the_patch_that_was_unvisited_longest_goes_beyond_4096():
    detector = ChangeDetector(1.0)
    for k in range(4097):
        detector.add([k + 0.5, 0.5], 0.0, 1.0, 0.0, float(k))
        if k == 4000:
            detector.add([0.5, 0.5], 0.0, 1.0, 0.0, 4000.5)
    assert len(detector._patches) == 4096
    assert (1, 0) not in detector._patches and (0, 0) in detector._patches


# --- cells that wait ------------------------------------------------------------------------------
def judged(x, residual, suspect=True):
    cell = Samples([[x, 0.0]], [[1.0]], count=[3.0])
    return Judged(cell, Samples(cell.x, cell.y) if suspect else cell, residual)


def test_a_cell_goes_on_where_it_is_as_near_to_the_last_as_to_the_map():
    for last, count in ((4.99, 1), (5.0, 0)):
        held = Suspects(1.0)
        held.look(judged(0.0, [10.0, 0.0]))
        told = held.look(judged(1.0, [last, 0.0]))
        assert (len(told.cells), told.weakened) == (count, count)
        assert len(held) == 2 - count and held.samples == 3 * (2 - count)
    assert judged(0.0, [3.0, 4.0]).size == 5.0 and judged(0.0, None).size == 0.0


def test_three_places_confirm_where_the_last_is_expected():
    """Farther apart than a tenth of a cell; a ninth cell decides."""
    for apart, confirmed in ((0.101, True), (0.099, False)):
        held = Suspects(1.0)
        for k in range(2):
            held.look(judged(apart * k, [10.0]))
        told = held.look(judged(2 * apart, [10.0], suspect=False))
        assert (len(told.cells), told.weakened) == ((3, 0) if confirmed else (0, 0))
    still = Suspects(1.0)
    for k in range(9):
        told = still.look(judged(0.0, [10.0], suspect=k < 8))
        assert len(still) == (k + 1 if k < 8 else 0)
    assert len(told.cells) == 9 and told.weakened == 8


# --- a slow sensor's variance ---------------------------------------------------------------------
def slopes(deviation, value, count=4, forgotten=0):
    return SimpleNamespace(
        deviation=deviation,
        count=count,
        forgotten=forgotten,
        at=lambda places: np.full(len(places), value),
        of_cells=lambda xs, ys: np.full((len(ys), len(xs)), value),
    )


def test_uncertain_constants_add_their_variances():
    """(sd of log τ times the slope)², sensor by sensor, to variances and joint ones alike."""
    one, other = ResponseVariance(slopes(0.1, 3.0, 0, 2)), ResponseVariance(slopes(0.2, -2.0))
    assert not one.is_active
    one.join(other)
    one.own.count = 4
    x = torch.zeros(2, 2, dtype=torch.float64)
    joint = torch.eye(2, dtype=torch.float64)[None]
    prediction = Prediction(
        torch.zeros(2, 1).double(),
        torch.ones(2, 1).double(),
        torch.tensor([0.1]).double(),
        covariance=joint,
    )
    told = one.widened(prediction, x)
    assert told.variance[:, 0].tolist() == pytest.approx([1.0 + 0.09 + 0.16] * 2)
    assert torch.allclose(told.covariance[0], torch.eye(2).double() + 0.25)
    assert one.stddev_of_cells(np.zeros(3), np.zeros(2)) == pytest.approx(np.full((2, 3), 0.5))
    for k in range(10):
        one.join(ResponseVariance(slopes(0.1, 1.0, count=10 + k)))
    assert [each.count for each in one.joined] == [12 + k for k in range(8)]
    assert one.forgotten == 2 + 4 + 10 + 11


# --- errors that persist --------------------------------------------------------------------------
def persistent(share, n, seed):
    """A first-order autoregression: of each value that share is left in the next."""
    rng, out = np.random.default_rng(seed), np.zeros(n)
    for i, step in enumerate(rng.normal(0, (1 - share**2) ** 0.5, n)):
        out[i] = share * out[i - 1] + step
    return out


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_an_autocorrelation_time_is_an_autoregressions_own(share):
    found = np.mean([autocorrelation_time(3.0 + persistent(share, 2500, k)) for k in range(10)])
    assert found == pytest.approx((1 + share) / (1 - share), rel=0.15)


def test_an_autocorrelation_time_is_never_less_than_one_and_knows_what_says_nothing():
    alternating = np.where(np.arange(100) % 2, 1.0, -1.0)
    for values in (np.zeros(0), np.ones(3), np.ones(50), alternating):
        with np.errstate(all="raise"):
            assert autocorrelation_time(values) == 1.0

"""Points where a map is evaluated: which are stale, which are asked first, and the cells that are splined from them."""

import pickle

import numpy as np
import pytest
import torch
from pretended_card import CARD, pretended_card
from scipy.interpolate import RectBivariateSpline

from gp_mapping.core.device.transfers import to_processor
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.drawing import lattice as lattice_module
from gp_mapping.mapping.drawing.grid import GridWindow
from gp_mapping.mapping.drawing.lattice import Lattice

LENGTH, CENTRE, PRIOR = 1.2, np.array([5.0, -3.0]), np.array([4.0, 9.0])  # a point each .1 m


def over(left=0, bottom=0, width=120, height=90, resolution=0.04, length=LENGTH) -> Lattice:
    return Lattice(GridWindow(left, bottom, width, height, resolution), length, CENTRE, PRIOR)


def everywhere(lattice: Lattice) -> tuple[np.ndarray, np.ndarray]:
    return np.nonzero(np.ones_like(lattice.stale))


def filled(lattice: Lattice, rows=None, columns=None, shift: float = 0.0) -> Lattice:
    """Evaluated at these points, at all if None: two channels of a smooth field."""
    rows, columns = everywhere(lattice) if rows is None else (rows, columns)
    x = lattice.places(rows, columns)
    mean = torch.stack(
        [torch.sin(x[:, 0] + shift) * torch.cos(x[:, 1]), x[:, 0] - x[:, 1] + shift], 1
    )
    lattice.fill(rows, columns, Prediction(mean, 0.6 + 0.5 * torch.cos(x + shift), torch.zeros(2)))
    return lattice


def whole(lattice: Lattice) -> tuple[int, int, int, int]:
    return 0, len(lattice.rows), 0, len(lattice.columns)


def away(lattice: Lattice, points: torch.Tensor) -> np.ndarray:
    """Of each point of the lattice the distance (m) to the nearest of these."""
    at = lattice.places(*everywhere(lattice))
    return torch.cdist(at, points).min(1).values.reshape(lattice.stale.shape).numpy()


def test_it_begins_with_the_prior_and_knows_nothing():
    lattice = over()
    assert lattice.stale.all() and not lattice.exact.any() and not lattice.direct
    assert np.array_equal(lattice.drawn[:, 3, 7], CENTRE) and np.array_equal(
        lattice.stddev[:, 80, 2], [2.0, 3.0]
    )
    assert lattice.rows[1] - lattice.rows[0] == pytest.approx(0.1)
    assert (
        lattice.columns[0] < 0.0 < 4.8 < lattice.columns[-1]
        and lattice.rows[0] < 0.0 < 3.6 < lattice.rows[-1]
    )


@pytest.mark.parametrize("resolution, direct", [(0.04, False), (0.07, False), (0.2, True)])
def test_cells_are_the_spline_through_the_points(resolution, direct):
    """Or the points themselves, where these would be no denser than the cells."""
    lattice = filled(over(resolution=resolution, width=30, height=20))
    lattice.draw(whole(lattice))
    assert lattice.direct == direct and not lattice.stale.any()
    for channel in range(2):
        spline = RectBivariateSpline(
            lattice.rows, lattice.columns, lattice.mean[channel], kx=5, ky=5, s=0
        )
        assert np.allclose(
            lattice.drawn[channel], spline(lattice.ys, lattice.xs), rtol=0, atol=1e-9
        )
        x, y = np.meshgrid(lattice.xs, lattice.ys)
        expected = np.sin(x) * np.cos(y) if channel == 0 else x - y
        assert np.abs(lattice.drawn[channel].numpy() - expected).max() < 1e-5
        assert (
            np.abs(lattice.stddev[channel].numpy() ** 2 - 0.6 - 0.5 * np.cos((x, y)[channel])).max()
            < 1e-5
        )


@pytest.mark.parametrize(
    "box", [(0, 12, 0, 12), (20, 30, 20, 30), (36, 49, 50, 61), (0, 49, 25, 26), (28, 29, 0, 61)]
)
def test_a_part_that_is_drawn_alone_is_as_if_all_were(box):
    """Inside the lattice and at each of its ends; what lies far from it is left as it was."""
    lattice = filled(over())
    lattice.draw(whole(lattice))
    before = lattice.drawn.clone().numpy()
    rows, columns = np.meshgrid(np.arange(*box[:2]), np.arange(*box[2:]), indexing="ij")
    filled(lattice, rows.ravel(), columns.ravel(), shift=0.7)
    lattice.draw(box)
    parts = lattice.drawn.clone().numpy(), lattice.stddev.clone().numpy()
    lattice.draw(whole(lattice))
    for part, all_of_it in zip(parts, (lattice.drawn.numpy(), lattice.stddev.numpy())):
        assert np.abs(part - all_of_it).max() < 1e-4 * np.abs(all_of_it - before).max() + 1e-5
    changed = (np.abs(parts[0] - before) > 1e-12).any(0)
    far = np.zeros_like(changed)
    low, high = (
        lattice.rows[max(box[0] - 17, 0)],
        lattice.rows[min(box[1] + 17, len(lattice.rows) - 1)],
    )
    far[(lattice.ys < low) | (lattice.ys > high)] = True
    assert not changed[far].any() and (np.abs(parts[0] - before) > 0.01).any()


@pytest.mark.parametrize("count", [1, 3, 64, 65, 400])
def test_stale_is_what_lies_near_new_samples(count):
    """Of many, middles of squares stand for those in them; far from all of them nothing is asked again."""
    lattice, reach = filled(over()), 0.5
    along = torch.linspace(0.5, 3.5, count, dtype=torch.float64)
    points = torch.stack([along, 0.5 + 0.6 * along], 1)
    lattice.mark(points, reach, 7)
    distance = away(lattice, points)
    assert (
        lattice.stale[distance <= reach].all() and not lattice.stale[distance > 1.19 * reach].any()
    )
    if count <= 64:
        assert np.array_equal(lattice.stale, distance <= 1.1 * reach)
    assert (lattice.since[lattice.stale] == 7).all() and not lattice.since[~lattice.stale].any()
    lattice.mark(points, 2 * reach, 9)
    assert (lattice.since[distance <= reach] == 7).all(), "what waits has waited since then"
    assert (lattice.since[(distance > 1.2 * reach) & (distance < 1.4 * reach)] == 9).all()


def test_boxes_all_and_what_is_followed_are_marked():
    lattice = filled(over())
    lattice.mark_box([0.95, 1.95], [2.95, 2.45], 4)
    x, y = lattice.places(*everywhere(lattice)).numpy().T.reshape(2, *lattice.stale.shape)
    assert np.array_equal(lattice.stale, (x > 0.95) & (x < 2.95) & (y > 1.95) & (y < 2.45))
    stale = lattice.stale.copy()
    lattice.exact[:] = 2
    lattice.mark_box([0.95, 1.95], [2.95, 2.45], 5)
    assert np.array_equal(lattice.exact == 0, stale), "its change is known of no moment"
    lattice.exact[:] = 0
    lattice.exact[5, :], lattice.exact[5, 0] = 3, 1
    lattice.mark_exact_stale(6)
    assert lattice.stale[5].all() and not lattice.exact.any() and (lattice.since[5] == 6).all()
    assert np.array_equal(np.delete(lattice.stale, 5, 0), np.delete(stale, 5, 0))
    lattice.mark_all(8)
    assert (
        lattice.stale.all() and (lattice.since[stale] == 4).all() and (lattice.since[5] == 6).all()
    )
    assert (lattice.since == 8).sum() == lattice.stale.size - stale.sum() - len(lattice.columns)
    lattice.ignore_beyond(np.array([[1.0, 1.0, 1.5, 2.0], [4.0, 0.5, 4.0, 0.5]]), 0.35)
    near = ((x > 0.65) & (x < 1.85) & (y > 0.65) & (y < 2.35)) | (
        (np.abs(x - 4.0) < 0.35) & (np.abs(y - 0.5) < 0.35)
    )
    assert np.array_equal(lattice.stale, near)


def test_a_budget_goes_to_what_is_near_the_robot_and_to_what_has_waited():
    lattice = over()
    rng = np.random.default_rng(0)
    lattice.since[:] = rng.permutation(lattice.since.size).reshape(lattice.since.shape)
    lattice.newest = [1.0, 2.0]
    size, distance = (
        lattice.stale.size,
        away(lattice, torch.tensor([[1.0, 2.0]], dtype=torch.float64)),
    )
    for budget in (None, size, size + 1):
        assert len(lattice.choose(budget, False)[0]) == size
    rows, columns = lattice.choose(200, False)
    assert len(rows) == 200 == len({*zip(rows.tolist(), columns.tolist())})
    picked = np.zeros_like(lattice.stale)
    picked[rows, columns] = True
    nearest = np.sort(distance.ravel())[99]
    assert picked[distance < nearest - 1e-9].all()
    rest = lattice.since[~picked | (distance <= nearest + 1e-9)]
    assert lattice.since[picked & (distance > nearest + 1e-9)].max() < np.sort(rest)[120]
    rows, columns = lattice.choose(200, True)
    assert np.array_equal(np.sort(lattice.since[rows, columns]), np.arange(200))
    # what is in doubt comes before what has waited
    lattice.doubt[:] = rng.permutation(lattice.doubt.size).reshape(lattice.doubt.shape)
    rows, columns = lattice.choose(200, False)
    picked[:] = False
    picked[rows, columns] = True
    rest = lattice.doubt[~picked | (distance <= nearest + 1e-9)]
    assert lattice.doubt[picked & (distance > nearest + 1e-9)].min() > np.sort(rest)[-120]


def test_another_window_keeps_the_points_that_it_shares():
    old = filled(over())
    old.stale[:, 3], old.since[:, 4] = True, 5
    new = old.over_window(GridWindow(20, -10, 130, 95, 0.04))
    x, y = new.places(*everywhere(new)).numpy().T.reshape(2, *new.stale.shape)
    shared = (
        (x > old.columns[0] - 1e-9)
        & (x < old.columns[-1] + 1e-9)
        & (y > old.rows[0] - 1e-9)
        & (y < old.rows[-1] + 1e-9)
    )
    assert (
        np.allclose(new.mean[0][shared], (np.sin(x) * np.cos(y))[shared])
        and new.stale[~shared].all()
    )
    assert (new.mean[:, ~shared] == CENTRE[:, None]).all() and (
        new.variance[:, ~shared] == PRIOR[:, None]
    ).all()
    assert not new.stale[shared].any(), "its column 3 lies beyond"
    apart = old.over_window(GridWindow(900, 900, 10, 10, 0.04))
    assert apart.stale.all() and (apart.mean == CENTRE[:, None, None]).all()


@pytest.mark.parametrize("length", [0.9, 2.0])
def test_another_lengthscale_shows_what_was_known_until_it_is_drawn_anew(length):
    """Nearest point by nearest point; all of it waits."""
    old, new = filled(over()), over(length=length, width=150)
    new.copy_nearest(old)
    x, y = new.places(*everywhere(new)).numpy().T.reshape(2, *new.stale.shape)
    inside = (
        (x >= old.columns[0]) & (x <= old.columns[-1]) & (y >= old.rows[0]) & (y <= old.rows[-1])
    )
    assert new.stale.all() and 0.5 < inside.mean() < 1.0
    assert (
        np.abs(new.mean[0] - np.sin(x) * np.cos(y))[inside].max() < 0.06
    )  # half a point, .05 m, along each axis
    assert (new.mean[:, ~inside] == CENTRE[:, None]).all()
    other = Lattice(new.window, length, CENTRE[:1], PRIOR[:1])
    other.copy_nearest(old)
    assert (other.mean == CENTRE[0]).all(), "a map of another number of channels tells nothing"


def test_a_window_of_one_row_is_taken_over_too():
    """Of coarse cells, which are the points themselves: one row has no pitch."""
    old = filled(over(height=1, resolution=0.2))
    new = over(height=1, resolution=0.2, length=1.5)
    assert old.direct and new.direct and len(old.rows) == 1
    new.copy_nearest(old)
    assert np.array_equal(new.mean, old.mean)


def test_covariances_of_components_are_kept_and_splined_too():
    lattice = over(width=40, height=30)
    rows, columns = everywhere(lattice)
    n = len(rows)
    mean = torch.tensor([[3.0, 4.0]], dtype=torch.float64).expand(n, -1)
    joint = torch.tensor([[1.0, 0.4], [0.4, 1.0]], dtype=torch.float64).expand(n, -1, -1)
    lattice.fill(rows, columns, Prediction(mean, torch.ones_like(mean), torch.zeros(2), joint))
    lattice.draw(whole(lattice))
    assert np.allclose(lattice.drawn_excess, 2 * 0.6 * 0.8 * 0.4, rtol=1e-9)
    moved = lattice.over_window(GridWindow(10, 5, 40, 30, 0.04))
    assert moved.excess is not None and moved.excess.max() == pytest.approx(0.384)
    fresh = over(width=40, height=30, length=1.5)
    fresh.copy_nearest(lattice)
    assert fresh.excess is not None and fresh.excess.max() == pytest.approx(0.384)


def test_places_of_arrays_that_nobody_can_write_to_are_kept_for_the_next_call():
    lattice = over()
    rows, columns = np.array([0, 2, 3]), np.array([1, 1, 4])
    places = lattice.places(rows, columns)
    assert lattice.places(rows, columns) is not places
    rows[0] = 1  # whoever owns them may
    assert not torch.equal(lattice.places(rows, columns), places)

    for numbers in (rows, columns):
        numbers.flags.writeable = False
    kept = lattice.places(rows, columns)
    assert lattice.places(rows, columns) is kept
    assert lattice.places(rows.copy(), columns) is not kept
    assert over(left=5).places(rows, columns) is not kept


def test_a_cell_beside_a_steep_rise_is_no_surer_than_an_eighth_of_the_points_around_it():
    """Ground that is known to a thousandth of the prior, and beside it, from one point on, hardly."""
    lattice = over()
    rows, columns = everywhere(lattice)
    x = lattice.places(rows, columns)
    variance = torch.where(x[:, :1] < 2.0, 1e-6, 1.0) * torch.tensor(PRIOR)
    lattice.fill(rows, columns, Prediction(torch.zeros_like(variance), variance, torch.zeros(2)))
    lattice.draw(whole(lattice))
    least = np.sqrt(1e-6 * PRIOR)[:, None, None] / 8.0
    stddev = lattice.stddev.numpy()
    assert (stddev >= (1.0 - 1e-6) * least).all()
    assert stddev[:, :, :7] == pytest.approx(
        np.broadcast_to(np.sqrt(1e-6 * PRIOR)[:, None, None], (2, 90, 7)), rel=0.05
    )


def test_a_spline_is_factored_once_while_the_same_points_are_drawn(monkeypatch):
    """The cells are those of a spline that is made anew, also after a part was drawn."""
    made, make = [], lattice_module.spline_operator
    monkeypatch.setattr(
        lattice_module, "spline_operator", lambda *axes: made.append(1) or make(*axes)
    )
    lattice = over()
    part, everything = (20, 24, 20, 26), whole(lattice)
    for turn, (box, count) in enumerate(((everything, 2), (everything, 2), (part, 4), (part, 4))):
        filled(lattice, shift=turn).draw(box)
        assert len(made) == count
    lattice.draw(everything)
    fresh = filled(over(), shift=3)
    fresh.draw(everything)
    assert np.array_equal(lattice.drawn, fresh.drawn) and len(made) == 8

    again = pickle.loads(pickle.dumps(lattice))
    again.draw(everything)
    assert np.array_equal(again.drawn, lattice.drawn) and len(made) == 10


@pytest.mark.parametrize("resolution", [0.04, 0.2])
def test_a_card_draws_what_the_processor_does(resolution):
    """Splined cells, the bound of their variance beside a steep rise, covariances; or the points."""

    def drawn(device: str) -> list[torch.Tensor]:
        window = GridWindow(0, 0, 30, 20, resolution)
        lattice = Lattice(window, LENGTH, CENTRE, PRIOR, torch.device(device))
        filled(lattice)
        lattice.variance[:, :, lattice.columns < 0.6] = 1e-6
        lattice.allocate_covariances()
        lattice.excess[:] = lattice.mean[0]
        lattice.draw(whole(lattice))
        again = pickle.loads(pickle.dumps(lattice))
        again.draw((0, 1, 0, 1))
        cells = [lattice.drawn, lattice.stddev, lattice.drawn_excess, again.drawn]
        assert all(part.device.type == device for part in cells)
        return to_processor(cells)

    here = drawn("cpu")
    with pretended_card():
        there = drawn(CARD)
    for one, other in zip(here, there):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-9)
    assert float(here[1].min()) > 0.12e-3

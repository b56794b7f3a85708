"""Every operation on the lattice's sums against sums over samples.

Written out with Keys' formula, node by node and pair by pair, under the global numbers of the nodes. The
sums are those of gp_mapping.core.models.wiski.lattice.sites and gp_mapping.core.models.wiski.lattice.pass_columns.
"""

import math

import numpy as np
import pytest
import torch

from gp_mapping.core.models.wiski.lattice.box import TILE
from gp_mapping.core.models.wiski.lattice.moments import MOMENTS
from gp_mapping.core.models.wiski.lattice.sites import OFFSETS, GridSites

SPACING, ORIGIN = 0.25, np.array([0.3, -7.1])
PASSES = (4.0, 2.0)


def drawn(n: int = 14, seed: int = 0, low: float = 0.0):
    """x (n, 2) m, heading (n, 2), passes (n,), beta (n,), lam (n, 2)."""
    rng = np.random.default_rng(seed)
    return (
        rng.uniform(low, low + 1.2, (n, 2)),
        rng.normal(size=(n, 2)),
        rng.choice([*PASSES, -1.0], n),
        rng.uniform(0.5, 2.0, n),
        rng.normal(size=(n, 2)),
    )


def tensors(*arrays):
    return [torch.from_numpy(a) for a in arrays]


def filled(*parts, origin=ORIGIN, spacing=SPACING) -> GridSites:
    """A grid about an origin, of samples given in the map's frame less ORIGIN."""
    grid = GridSites(spacing, torch.from_numpy(origin), 2, "cpu")
    for part in parts:
        put(grid, part, origin=origin)
    return grid


def put(grid, part, sign=1.0, origin=ORIGIN):
    x, heading, of, beta, lam = tensors(*part)
    x = x + torch.from_numpy(ORIGIN - origin)
    grid.grow(*grid.box_for(x))
    grid.add(x, grid.covariates(heading, of), sign * beta, sign * lam)


def keys(d: float) -> float:
    d = abs(d)
    if d <= 1:
        return 1.5 * d**3 - 2.5 * d**2 + 1
    return -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2 if d < 2 else 0.0


def written_out(parts, numbers=PASSES, spacing=SPACING, scale=1.0, keep=lambda place: True):
    """{key: sum} of G, sides and aggregates, and F with Σ φ λᵀ."""
    out, total = {}, 0.0

    def count(key, value):
        out[key] = out.get(key, 0.0) + scale * np.asarray(value)

    for x, heading, of, beta, lam in parts:
        for i in range(len(x)):
            phi = np.concatenate(
                [[1.0], heading[i], [float(of[i] == number) for number in numbers]]
            )
            sides = np.concatenate([beta[i] * phi, lam[i]])
            units = (x[i] + ORIGIN) / spacing
            base = np.floor(units).astype(int)
            nodes = [
                ((r, c), keys(units[0] - r) * keys(units[1] - c))
                for r in range(base[0] - 1, base[0] + 3)
                for c in range(base[1] - 1, base[1] + 3)
            ]
            for (r, c), w in nodes:
                if keep(np.array([r, c]) * spacing):
                    count(("side", r, c), w * sides)
                for (r2, c2), w2 in nodes:
                    step = (r2 - r, c2 - c)
                    places = np.array([[r, c], [r2, c2]]) * spacing
                    if step in OFFSETS and keep(places[0]) and keep(places[1]):
                        count(("pair", r, c, OFFSETS.index(step)), beta[i] * w * w2)
            square = np.floor(2 * units).astype(int)
            a, b = units - (square + 0.5) / 2
            moments = beta[i] * np.array([1.0, a, b, a * a, b * b, a * b])
            count(("aggregate", *square), np.concatenate([moments, beta[i] * phi[1:], lam[i]]))
            total = total + scale * np.outer(phi, sides)
    return out, total


def table(grid: GridSites):
    """The same of a grid, with all that is not 0."""
    out = {}
    first = np.array(grid.first) + np.array(grid.low)
    for name, array, fine in (
        ("pair", grid.stencil, 1),
        ("side", grid.sides, 1),
        ("aggregate", grid.aggregates, 2),
    ):
        width = fine * grid.shape[1]
        for row in (array.abs() > 1e-13).any(1).nonzero()[:, 0].tolist():
            place = (row // width + fine * int(first[0]), row % width + fine * int(first[1]))
            if name != "pair":
                out[(name, *place)] = array[row].numpy()
                continue
            for k in (array[row].abs() > 1e-13).nonzero()[:, 0].tolist():
                out[(name, *place, k)] = float(array[row, k])
    return out, torch.cat([grid.features, grid.linear], 1).numpy()


def assert_is(grid: GridSites, expected) -> None:
    (got, total), (wanted, wanted_total) = table(grid), expected
    assert np.allclose(total, wanted_total, atol=1e-11)
    wanted = {key: value for key, value in wanted.items() if np.abs(value).max() > 1e-13}
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        assert np.allclose(got[key], value, atol=1e-11), key


def test_samples_of_passes_enter_all_sums_and_leave_them():
    one, two = drawn(), drawn(seed=1)
    grid = filled(one, two)
    assert sorted(grid.numbers) == sorted(PASSES)
    assert_is(grid, written_out([one, two], grid.numbers))
    put(grid, two, -1.0)
    assert_is(grid, written_out([one], grid.numbers))
    grid.scale(0.4)
    assert_is(grid, written_out([one], grid.numbers, scale=0.4))


def test_a_box_that_grows_to_every_side_keeps_all_in_place():
    one = drawn(8)
    grid = filled(one)
    for corner in ([[-9.0, 0.5]], [[0.5, -9.0]], [[12.0, 12.0]]):
        box = grid.box_for(torch.tensor(corner, dtype=torch.float64))
        low, shape = grid.low, grid.shape
        grid.grow(*box)
        for d in range(2):
            assert (grid.low[d] + grid.first[d]) % TILE == 0 and grid.shape[d] % TILE == 0
            # sixteen nodes at least lie about it, and no tile more than that asks for
            at = math.floor(corner[0][d] / SPACING + float(grid.shift[d]))
            assert grid.low[d] <= min(low[d], at - 16)
            assert grid.low[d] + TILE > min(low[d], at - 16)
            end = max(low[d] + shape[d], at + 17)
            assert end <= grid.low[d] + grid.shape[d] < end + TILE
        assert_is(grid, written_out([one], grid.numbers))
    assert grid.box_for(torch.tensor([[0.5, 0.5]], dtype=torch.float64)) == (grid.low, grid.shape)
    # whose sixteen nodes are in the box
    edge = (np.array(grid.low) + 1 - grid.shift.numpy()) * SPACING
    end = (np.array(grid.low) + np.array(grid.shape) - 2 - grid.shift.numpy()) * SPACING
    at = np.array(
        [
            edge + 0.01,
            edge - [0.01, 0.0],
            edge - [0.0, 0.01],
            end - 0.01,
            end + np.array([0.01, 0.0]),
        ]
    )
    inside = grid.inside(torch.from_numpy(at))
    assert inside.tolist() == [True, False, False, True, False]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_another_map_s_sums_are_added_where_its_nodes_are(sign):
    """Of another origin, another box, and other passes in another order."""
    one, two = drawn(8), drawn(8, 3, low=6.0)
    two = (*two[:2], np.where(two[2] == 4.0, 9.0, two[2]), *two[3:])
    grid = filled(one)
    other = filled(two, origin=ORIGIN + np.array([3.21, 1.7]))
    box = grid.joint_box(other)
    both = grid.box_for(torch.from_numpy(np.array([[0.0, 0.0], [7.2, 7.2]])))
    assert all(both[0][d] <= box[0][d] for d in (0, 1))
    grid.grow(*box)
    for d in range(2):
        ends = (
            [g.low[d] + g.first[d] for g in (grid, other)],
            [g.low[d] + g.first[d] + g.shape[d] for g in (grid, other)],
        )
        assert ends[0][0] <= ends[0][1] and ends[1][0] >= ends[1][1]
    untouched = grid.stencil
    grid.merge(other, sign)
    assert grid.stencil is not untouched, "a transaction keeps the old sums"
    wanted, total = written_out([one], grid.numbers)
    more, more_total = written_out([two], grid.numbers)
    for key, value in more.items():
        wanted[key] = wanted.get(key, 0.0) + sign * value
    assert_is(grid, (wanted, total + sign * more_total))


def test_only_lattices_of_the_same_nodes_add():
    grid = filled(drawn(4))
    with pytest.raises(ValueError, match=r"spacing 0.25 m and 0.5 m do not add"):
        grid.merge(filled(drawn(4), spacing=0.5))
    other = filled(drawn(4))
    other.move(torch.tensor([0.1, 0.0]))
    assert not grid.coincides(other)
    with pytest.raises(ValueError, match="between each other"):
        grid.offset_of(other)
    # in a frame in which it lies whole nodes further, it coincides again, and lies there
    other.move(torch.tensor([0.4, -0.75]))
    assert grid.coincides(other) and grid.offset_of(other) == (2, -3)
    low, shape = grid.joint_box(other)
    assert (low[0], low[1]) == (grid.low[0], grid.low[1] - 3)
    assert shape == (grid.shape[0] + 2, grid.shape[1] + 3)
    empty = GridSites(SPACING, torch.from_numpy(ORIGIN), 2, "cpu")
    assert empty.joint_box(grid) == (grid.low, grid.shape)


def test_another_centre_is_as_if_all_values_had_been_larger():
    one, delta = drawn(), np.array([0.7, -2.0])
    grid = filled(one)
    grid.shift_centre(torch.from_numpy(delta))
    x, heading, of, beta, lam = one
    assert_is(
        grid, written_out([(x, heading, of, beta, lam + beta[:, None] * delta)], grid.numbers)
    )


def test_two_passes_that_share_a_column_differ_by_what_is_known():
    """b = (b₁ + b₂)/2 for both: values of the first are less by half the difference, of the other more."""
    one, difference = drawn(), np.array([0.6, -0.2])
    grid = filled(one)
    grid.share_column(4.0, 2.0, torch.from_numpy(difference))
    x, heading, of, beta, lam = one
    half = np.where(of == 4.0, -0.5, np.where(of == 2.0, 0.5, 0.0))
    lam = lam + (beta * half)[:, None] * difference
    assert grid.numbers == (2.0,)
    assert_is(grid, written_out([(x, heading, np.where(of == 4.0, 2.0, of), beta, lam)], (2.0,)))
    grid.renumber(10.0)
    assert grid.numbers == (12.0,)


def moments_of(part):
    """{square: (x, mean covariates and λ, beta, covariance)} of the samples in each square."""
    x, heading, of, beta, lam = part
    square = np.floor(2 * (x + ORIGIN) / SPACING).astype(int)
    out = {}
    for key in {tuple(s) for s in square.tolist()}:
        here = (square == key).all(1)
        w = beta[here] / beta[here].sum()
        mean = w @ x[here]
        about = x[here] - mean
        phi = np.hstack([heading[here], of[here][:, None] == np.array([PASSES])])
        out[key] = mean, w @ phi, beta[here].sum(), lam[here].sum(0), (about * w[:, None]).T @ about
    return out


def test_aggregates_are_the_samples_of_each_square():
    """Many in each: as weighted samples, within a box, and split so that their spread is kept."""
    part = drawn(60, 5)
    part = (part[0] / 2, *part[1:])
    grid = filled(part)
    order = [grid.numbers.index(number) for number in PASSES]
    wanted = moments_of(part)
    x, covariates, beta, lam = (t.numpy() for t in grid.samples())
    covariates = np.hstack([covariates[:, :2], covariates[:, 2:][:, order]])
    assert len(x) == len(wanted)
    for i, place in enumerate(x):
        mean, phi, mass, linear, _ = wanted[
            tuple(np.floor(2 * (place + ORIGIN) / SPACING).astype(int))
        ]
        assert np.allclose(place, mean, atol=1e-10) and beta[i] == pytest.approx(mass)
        assert np.allclose(covariates[i], phi, atol=1e-10) and np.allclose(lam[i], linear)

    # those whose square meets a box
    low, high = np.array([0.13, 0.21]), np.array([0.31, 0.47])
    corners = (np.array(list(wanted)) / 2) * SPACING - ORIGIN
    meets = ((corners <= high) & (corners + SPACING / 2 >= low)).all(1)
    around = grid.around(*tensors(low, high))
    assert 0 < len(around[0]) == meets.sum() < len(x)
    assert float(around[2].sum()) == pytest.approx(
        sum(w[2] for w, here in zip(wanted.values(), meets) if here)
    )
    assert len(grid.around(*tensors(low + 90.0, high + 90.0))[0]) == 0
    assert len(grid.around(*tensors(low - 90.0, high + 90.0))[0]) == len(x)

    spreads = {key: np.linalg.eigvalsh(w[4]) * w[2] for key, w in wanted.items()}
    worth = float(np.median([s[1] for s in spreads.values()]))
    places, headings, masses = (t.numpy() for t in grid.split(worth))
    where = [tuple(k) for k in np.floor(2 * (x + ORIGIN) / SPACING).astype(int)]
    counts = {}
    for key in where:
        mean, phi, mass, _, covariance = wanted[key]
        # the samples that were made of it have its features, or nearly so
        mine = np.isclose(headings[:, :2], phi[:2], atol=1e-9).all(1)
        pieces = 4 if spreads[key][0] > worth else 2 if spreads[key][1] > worth else 1
        counts[pieces] = counts.get(pieces, 0) + 1
        assert mine.sum() == pieces, key
        w = masses[mine]
        assert w == pytest.approx([mass / pieces] * pieces)
        assert np.allclose(w @ places[mine] / mass, mean, atol=1e-10)
        about = places[mine] - mean
        got = (about * w[:, None]).T @ about / mass
        if pieces == 4:
            assert np.allclose(got, covariance, atol=1e-10)
        elif pieces == 2:
            long = np.linalg.eigh(covariance)
            axis = long.eigenvectors[:, 1:]
            assert np.allclose(got, long.eigenvalues[1] * axis @ axis.T, atol=1e-10)
    assert set(counts) == {1, 2, 4} or set(counts) == {1, 2}


def test_what_is_wiped_is_gone_and_what_lies_far_is_as_it_was():
    """Aggregates within the radius leave F and B; no node within it is in any sum."""
    part, place, radius = drawn(60, 8), np.array([0.6, 0.6]), 0.4
    part = (2.0 * part[0], *part[1:])
    grid = filled(part)
    before = table(grid)
    wanted = moments_of(part)
    grid.wipe(*tensors(place[None]), radius)
    after, total = table(grid)

    centres = {key: (np.array(key) + 0.5) / 2 * SPACING - ORIGIN for key in wanted}
    gone = {key for key, at in centres.items() if np.linalg.norm(at - place) <= radius}
    assert 2 < len(gone) < len(wanted) - 2
    assert {key[1:] for key in after if key[0] == "aggregate"} == set(wanted) - gone
    # what leaves F is the aggregates' mass times their means
    left = 0.0
    for key in gone:
        _, phi, mass, linear, _ = wanted[key]
        phi = np.concatenate([[1.0], phi])
        left = left + np.hstack([mass * np.outer(phi, phi), np.outer(phi, linear)])
    order = [0, 1, 2, *(3 + grid.numbers.index(number) for number in PASSES)]
    difference = before[1] - total
    assert np.allclose(difference[order][:, [*order, 5, 6]], left, atol=1e-10)

    def within(r, c):
        return np.linalg.norm(np.array([r, c]) * SPACING - ORIGIN - place) <= radius

    for key in after:
        if key[0] == "side":
            assert not within(*key[1:])
        if key[0] == "pair":
            i, j = OFFSETS[key[3]]
            assert not within(key[1], key[2]) and not within(key[1] + i, key[2] + j)
    far = [
        key
        for key in before[0]
        if key[0] == "side"
        and np.linalg.norm(np.array(key[1:]) * SPACING - ORIGIN - place) > radius + 4 * SPACING
    ]
    assert far and all(np.allclose(after[key], before[0][key], atol=1e-12) for key in far)


def test_copies_and_files_are_independent():
    one, two = drawn(), drawn(seed=2)
    grid = filled(one)
    grid.move(torch.tensor([0.4, 1.0]))
    state = grid.state_dict()
    clone, again = grid.clone(), GridSites.from_state_dict(state, torch.from_numpy(ORIGIN), "cpu")
    put(grid, two)
    for copied in (clone, again):
        assert_is(copied, written_out([one], grid.numbers))
        assert torch.equal(copied.anchor, grid.anchor) and copied.first == grid.first
    put(again, two)
    assert_is(again, written_out([one, two], grid.numbers))
    assert torch.equal(state["stencil"], clone.stencil) and torch.equal(state["sides"], clone.sides)
    empty = grid.emptied()
    assert not any(
        bool(getattr(empty, n).any()) for n in ("stencil", "sides", "aggregates", "start")
    )
    assert not empty.features.any() and not empty.linear.any() and grid.features.any()
    with pytest.raises(ValueError, match="does not fit a box"):
        GridSites.from_state_dict(
            state | {"sides": state["sides"][1:]}, torch.from_numpy(ORIGIN), "cpu"
        )


def test_a_transaction_puts_back_what_was_written_since():
    one, two = drawn(), drawn(seed=2)
    grid = filled(one)
    grid.grow(*grid.box_for(torch.from_numpy(two[0])))
    grid.mark()
    put(grid, two)
    put(grid, drawn(seed=3))
    grid.revert()
    assert_is(grid, written_out([one], grid.numbers))
    grid.mark()
    put(grid, two)
    grid.release()
    assert_is(grid, written_out([one, two], grid.numbers))
    assert MOMENTS == 6

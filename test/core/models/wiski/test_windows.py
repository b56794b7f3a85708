"""Aggregates about a place, merged and thinned: against loops over all of them.

The functions are those of gp_mapping.core.models.wiski.lattice.windows.
"""

import numpy as np
import pytest
import torch

from gp_mapping.core.kernels.stationary import make_kernel
from gp_mapping.core.models.wiski.lattice import windows
from gp_mapping.core.models.wiski.lattice.windows import Aggregates

LENGTH = 0.5
KERNEL = make_kernel("matern52", 4.0, LENGTH)


def drawn(n: int, seed: int = 0, side: float = 6.0, passes: int = 0) -> Aggregates:
    """About 0, so that there are tiles below it too."""
    rng = np.random.default_rng(seed)
    of = np.eye(passes)[rng.integers(0, passes, n)] if passes else np.zeros((n, 0))
    parts = (
        rng.uniform(-0.5 * side, 0.5 * side, (n, 2)),
        np.hstack([rng.normal(size=(n, 2)), of]),
        rng.uniform(0.5, 2.0, n),
    )
    x, covariates, mass = (torch.from_numpy(p) for p in parts)
    return Aggregates.from_samples(
        x, covariates, mass, LENGTH, torch.from_numpy(rng.normal(size=(n, 2)))
    )


def rows_of(aggregates: Aggregates) -> np.ndarray:
    """All columns side by side, sorted."""
    value = [] if aggregates.value is None else [aggregates.value]
    table = torch.cat([aggregates.x, aggregates.covariates, aggregates.mass[:, None], *value], 1)
    return table.numpy()[np.lexsort(table.numpy().T)]


def merged(aggregates: Aggregates, keys: list) -> dict:
    """{key: mass, sums of mass times each column, mean squared distance from the mean place}."""
    x, covariates, mass, value = (
        t.numpy() for t in (aggregates.x, aggregates.covariates, aggregates.mass, aggregates.value)
    )
    out = {}
    for key in set(keys):
        here = [i for i, other in enumerate(keys) if other == key]
        w = mass[here] / mass[here].sum()
        place = w @ x[here]
        before = 0.0 if aggregates.spread is None else aggregates.spread.numpy()[here]
        spread = w @ (((x[here] - place) ** 2).sum(1) + before)
        out[key] = (mass[here].sum(), place, w @ covariates[here], w @ value[here], spread)
    return out


def assert_merged(got: Aggregates, wanted: dict) -> None:
    assert len(got) == len(wanted)
    rest = list(wanted.values())
    for i in range(len(got)):
        at = next(
            k for k, (_, place, *_) in enumerate(rest) if np.allclose(place, got.x[i], atol=1e-12)
        )
        mass, _, covariates, value, spread = rest.pop(at)
        assert float(got.mass[i]) == pytest.approx(mass)
        assert np.allclose(got.covariates[i], covariates) and np.allclose(got.value[i], value)
        assert float(got.spread[i]) == pytest.approx(spread, abs=1e-12)


def test_around_a_box_are_all_within_two_lengthscales():
    everything = drawn(500)
    reach = 2.0 * LENGTH
    assert everything.side == reach
    for low in (np.array([-1.3, 0.2]), np.array([2.9, -2.8]), np.array([9.0, 9.0])):
        high = low + np.array([0.7, 0.4])
        inside = (
            (everything.x.numpy() >= low - reach) & (everything.x.numpy() <= high + reach)
        ).all(1)
        got = everything.around(torch.from_numpy(low), torch.from_numpy(high))
        assert np.array_equal(
            rows_of(got), rows_of(everything.take(torch.from_numpy(inside).nonzero()[:, 0]))
        )
    assert inside.sum() == 0
    none = Aggregates.from_samples(
        *(t[:0] for t in (everything.x, everything.covariates, everything.mass)), LENGTH
    )
    assert len(none.around(torch.zeros(2), torch.ones(2))) == 0 and none.value is None


def test_what_is_merged_on_squares_is_the_mean_by_mass():
    some, side = drawn(200, side=2.0), 0.3
    squares = [tuple(k) for k in np.floor(some.x.numpy() / side).astype(int).tolist()]
    once = windows.thinned(some, side)
    assert_merged(once, merged(some, squares))
    # merged again, the spread of each adds to that of their places
    again = [tuple(k) for k in np.floor(once.x.numpy() / 0.9).astype(int).tolist()]
    assert_merged(windows.thinned(once, 0.9), merged(once, again))

    # away from a box alone; what lies near stays as it is
    low, high, reach = np.array([-0.3, -0.2]), np.array([0.2, 0.4]), 0.15
    x = some.x.numpy()
    near = ((x >= low - reach) & (x <= high + reach)).all(1)
    keys = [i if stays else square for i, (stays, square) in enumerate(zip(near, squares))]
    assert 5 < near.sum() < 100
    rim = windows.rim_thinned(some, *(torch.from_numpy(v) for v in (low, high)), reach, side)
    assert_merged(rim, merged(some, keys))


def test_passes_that_cross_are_merged_apart():
    some, side = drawn(150, side=1.0, passes=3), 0.25
    of = some.covariates[:, 2:].argmax(1).tolist()
    squares = np.floor(some.x.numpy() / side).astype(int).tolist()
    assert_merged(
        windows.pass_by_pass(some, side),
        merged(some, [(*square, number) for square, number in zip(squares, of)]),
    )
    # without passes they are those of a square
    plain = drawn(60, side=1.0)
    squares = [tuple(k) for k in np.floor(plain.x.numpy() / side).astype(int).tolist()]
    assert_merged(windows.pass_by_pass(plain, side), merged(plain, squares))


@pytest.mark.parametrize(
    "whole, full, most", [(700, 600, 1200), (50, 60, 150), (50, 20, 40), (9, 8, 12)]
)
def test_every_place_has_one_window_that_is_small_and_holds_what_is_near(
    monkeypatch, whole, full, most
):
    """All mass within the reach is in it, and what lies beside the places is not merged."""
    for name, value in (("_WHOLE", whole), ("_FULL", full), ("_MOST", most)):
        monkeypatch.setattr(windows, name, value)
    everything = drawn(400, side=4.0)
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.uniform(-2.2, 2.2, (60, 2)))
    seen = []
    assert windows.fits_one_window(everything) == (whole >= 400)
    for index, near in windows.groups(everything, x, LENGTH):
        seen += index.tolist()
        if whole >= 400:
            assert near is everything
            continue
        places = x[index].numpy()
        low, high = places.min(0), places.max(0)
        assert ((high - low) <= 2.0 * LENGTH).all()
        reach = 2.0 * LENGTH
        at = everything.x.numpy()
        inside = ((at >= low - reach) & (at <= high + reach)).all(1)
        assert float(near.mass.sum()) == pytest.approx(float(everything.mass.numpy()[inside].sum()))
        if most >= 150:
            # within half a lengthscale nothing is merged
            close = ((at >= low - 0.5 * LENGTH) & (at <= high + 0.5 * LENGTH)).all(1)
            apart = np.linalg.norm(at[close][:, None] - near.x.numpy()[None], axis=2)
            assert (apart.min(1, initial=1.0) < 1e-12).all() and len(near) <= most
        if inside.sum() <= full:
            assert len(near) == inside.sum()
    assert sorted(seen) == list(range(60))


@pytest.mark.parametrize("passes", [0, 2])
def test_of_many_aggregates_coarser_ones_tell_the_features_and_are_not_surer(monkeypatch, passes):
    few = drawn(80, side=2.0, passes=passes)
    size = 3 + passes
    scatter, prior = torch.zeros(size, size).double(), torch.full((size,), 4.0).double()
    linear = torch.zeros(size, 2).double()
    fine, mean = windows.feature_posterior(KERNEL, few, scatter, linear, prior, LENGTH)
    monkeypatch.setattr(windows, "_FEATURE_AGGREGATES", 50)
    coarse, other = windows.feature_posterior(KERNEL, few, scatter, linear, prior, LENGTH)
    assert torch.equal(windows.feature_covariance(KERNEL, few, scatter, prior, LENGTH), coarse)
    assert bool((coarse.diagonal() >= fine.diagonal() * (1 - 1e-9)).all()) and not torch.equal(
        coarse, fine
    )
    assert bool((coarse.diagonal() < 4.0).all())

    # written out: squares of an eighth of a lengthscale, doubled until they are few enough
    side, wanted = 0.125 * LENGTH, few
    while len(wanted) > 50:
        wanted = (windows.pass_by_pass if passes and side <= 2.0 * LENGTH else windows.thinned)(
            wanted, side
        )
        side *= 2.0
    noise = 1.0 / wanted.mass
    if passes:
        noise = noise + (6.25 * 4.0 * (wanted.spread / LENGTH**2) ** 2).clamp_max(2.0 * 4.0)
    phi = torch.cat([torch.ones(len(wanted), 1).double(), wanted.covariates], 1)
    solved = torch.linalg.solve(
        KERNEL(wanted.x, wanted.x) + torch.diag(noise), torch.cat([phi, wanted.value], 1)
    )
    expected = torch.linalg.inv(torch.diag(1.0 / prior) + phi.mT @ solved[:, :size])
    assert torch.allclose(coarse, expected) and torch.allclose(
        other, expected @ phi.mT @ solved[:, size:]
    )
    assert not torch.allclose(other, mean)


def test_without_data_the_features_have_their_prior():
    nothing = drawn(5).take(torch.zeros(0, dtype=torch.long))
    prior = torch.tensor([4.0, 0.0, 0.25]).double()
    covariance, mean = windows.feature_posterior(
        KERNEL, nothing, torch.zeros(3, 3).double(), None, prior, LENGTH
    )
    assert mean is None and torch.allclose(covariance, torch.diag(prior))
    covariance, mean = windows.feature_posterior(
        KERNEL, drawn(5), torch.eye(3).double(), torch.ones(3, 2).double(), 0.0 * prior, LENGTH
    )
    assert not covariance.any() and mean.shape == (3, 2) and not mean.any()

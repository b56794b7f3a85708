"""Starts from the first cells: the evidence of a fine grid, cut values, and what is said where nothing can be."""

import numpy as np
import pytest
import torch
from core_data import correlation

from gp_mapping.core.hyper.first_guess import (
    SMOOTHNESS,
    first_guess,
    likeliest_kernel,
    robust_stddev,
)


def cells(
    n: int,
    channels: int = 1,
    seed: int = 0,
    step: float = 0.2,
    length: float = 0.8,
    noise: float = 0.6,
    kernel: str = "matern52",
):
    """x (n, 2) along a bent way, y (n, C) drawn from a GP of signal 3 about 48, with white noise."""
    rng = np.random.default_rng(seed)
    along = step * np.arange(n)
    x = np.stack([along, np.sin(along)], 1)
    r = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)) / length
    low = np.linalg.cholesky(9.0 * correlation(kernel, r) + 1e-9 * np.eye(n))
    return torch.from_numpy(x), torch.from_numpy(
        48.0 + low @ rng.normal(size=(n, channels)) + noise * rng.normal(size=(n, channels))
    )


def by_a_fine_grid(x, y, spread: float):
    """Means of log ℓ, log s, log σ: ℓ from a step to twice the extent, τ from .006 to 5, s² at its best.

    p(y | ℓ, τ, s²) with the constant integrated out, and a scaled inverse χ² of three degrees of freedom about the
    values' own spread for s².
    """
    n, channels = y.shape
    r = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    steps, extent = np.diag(r, 1), np.linalg.norm(np.ptp(x, axis=0))
    step = np.median(steps[steps > 0.0])
    found, scores = [], []
    for length in np.geomspace(step, 2.0 * extent, 34):
        for tau in np.geomspace(0.01 / 3**0.5, 3.0 * 3**0.5, 30):
            gram = correlation("matern52", r / length) + tau**2 * np.eye(n)
            ones, values = np.linalg.solve(gram, np.ones((n, 1))), np.linalg.solve(gram, y / spread)
            left = (y / spread * values).sum() - (
                ones.T @ y / spread @ (ones.T @ y / spread).T
            ).sum() / ones.sum()
            square = left / channels
            variance = (square + 3.0) / (n + 2.0)
            fit = (
                (n - 1) * np.log(variance)
                + np.linalg.slogdet(gram)[1]
                + np.log(ones.sum())
                + square / variance
            )
            scores.append(-0.5 * channels * fit - 1.5 * (np.log(variance) + 1.0 / variance))
            found.append(np.log([length, spread * variance**0.5, tau * spread * variance**0.5]))
    weights = np.exp(np.array(scores) - max(scores))
    return np.exp(weights @ np.array(found) / weights.sum())


@pytest.mark.parametrize(
    "n, channels, stands", [(4, 1, 1), (6, 1, 1), (25, 1, 1), (40, 3, 1), (12, 1, 4)]
)
def test_starts_are_the_means_under_the_evidence(n, channels, stands):
    """Whatever the unit of the values; also of a robot that measures several times where it stands."""
    x, y = cells(n * stands, channels)
    x = x[:n].repeat_interleave(stands, 0)
    spread = float(robust_stddev(y).square().mean().sqrt())
    told, expected = first_guess(x, y), by_a_fine_grid(x.numpy(), y.numpy(), spread)
    assert np.abs(np.log(np.array(told[:3]) / expected)).max() < 0.25, (told, expected)
    assert told.centre == y.median(0).values.tolist()
    small = first_guess(x, 1e-7 * y)
    assert small[:3] == pytest.approx(
        (told.lengthscale, 1e-7 * told.signal, 1e-7 * told.noise), rel=1e-6
    )
    # as a counter has it: the field is a billionth of its level and less
    assert first_guess(x, y + 1e11)[:3] == pytest.approx(told[:3], rel=1e-4)


def test_of_many_cells_an_even_choice_is_looked_at():
    """As many as 160 all of them."""
    x, y = cells(401, step=0.05)
    even = torch.linspace(0, 400, 160, dtype=torch.float64).round().long()
    assert first_guess(x, y) == first_guess(x[even], y[even]) != first_guess(x[:160], y[:160])


def test_the_robust_spread_is_that_of_most_values():
    """Of each channel; where more than half are equal, the plain one."""
    y = torch.tensor(
        [[0.0, 7.0, 1.0], [1.0, 7.0, 1.0], [2.0, 7.0, 1.0], [3.0, 7.0, 1.0], [900.0, 17.0, 1.0]]
    ).double()
    assert robust_stddev(y).tolist() == pytest.approx([1.206 * 1.4826, 4.0, 0.0])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 9, 10, 31])
def test_the_robust_spread_of_few_normal_values_is_right(n):
    """On average; without b an interval of the first map would be a third of what it should be."""
    y = torch.randn(n, 20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    assert float(robust_stddev(48.0 + y).mean()) == pytest.approx(1.0, abs=0.02)


def test_a_wild_value_is_no_field():
    x, y = cells(30)
    plain = first_guess(x, y)
    y[7] += 1e6
    wild = first_guess(x, y)
    assert wild.signal < 4.0 * plain.signal and wild.noise < 5.0 * plain.noise
    assert abs(wild.centre[0] - plain.centre[0]) < plain.signal


@pytest.mark.parametrize(
    "y, signal",
    [
        ([5.0, 5.0, 5.0], 0.5),
        ([0.0, 0.0, 0.0], 7.0),
        ([1.0, 9.0, 5.0], 3 * 1.495 * 5.9304),
        ([40.0, 41.0, 42.0], 3 * 1.495 * 1.4826),
        ([50.0] * 8, 5.0),
    ],
)
def test_of_few_or_equal_values_the_start_is_wide(y, signal):
    """A tenth of their size, thrice their spread where that is more, the unit where all are 0; a third of it noise."""
    x = torch.arange(len(y)).double()[:, None].expand(-1, 2)
    told = first_guess(x, torch.tensor(y).double()[:, None], unit=7.0)
    assert told[:3] == pytest.approx((1.0, signal, 0.3 * signal)) and told.centre == [
        float(np.median(y))
    ]
    assert first_guess(x, torch.zeros(len(y), 1).double()).signal == 1.0


def test_of_a_single_place_the_spread_alone_is_known():
    y = 48.0 + torch.tensor([[-1.0], [0.0], [1.0], [2.0], [-2.0]]).double()
    told = first_guess(torch.zeros(5, 2).double(), y)
    spread = 1.206 * 1.4826
    assert told[:3] == pytest.approx((1.0, spread, 0.3 * spread)) and told.centre == [48.0]


def test_an_offset_changes_no_start():
    """A pressure of 1e5 Pa that varies by a thousandth of one: the start was one Pascal."""
    x, y = cells(40)
    y = 1e-3 * (y - 48.0)
    plain, high = first_guess(x, y), first_guess(x, 1e5 + y)
    assert high[:3] == pytest.approx(plain[:3], rel=1e-4)


def test_rounding_is_no_field():
    """Means of equal values differ in their last digits."""
    x, y = cells(40)
    told = first_guess(x, 50.0 + 1e-14 * (y - 48.0))
    assert told.signal > 1e-4


def test_the_likeliest_kernel_is_as_smooth_as_the_field():
    """Of ten fields each, the smoothness 3/2 … 9/2 is found to less than a step in the mean."""
    found = []
    for kernel in SMOOTHNESS:
        ranks = []
        for seed in range(10):
            x, y = cells(96, seed=seed, step=0.1, noise=0.03, kernel=kernel)
            ranks.append(SMOOTHNESS.index(likeliest_kernel(x, y, first_guess(x, y).lengthscale)))
        found.append(np.mean(ranks))
    assert np.abs(np.array(found) - np.arange(4)).max() < 0.7 and (np.diff(found) > 0.4).all(), (
        found
    )


def test_the_likeliest_kernel_is_that_of_the_greatest_evidence():
    """By NumPy alone, the constant integrated out and s² at its best, on a grid of its own."""
    x, y = (each.numpy() for each in cells(60, seed=3, step=0.1, noise=0.02, kernel="matern92"))
    r = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    scores = []
    for kernel in SMOOTHNESS:
        each = []
        for length in np.geomspace(0.3, 3.0, 25):
            for tau in np.geomspace(0.001, 1.0, 25):
                gram = correlation(kernel, r / length) + tau**2 * np.eye(60)
                ones, values = np.linalg.solve(gram, np.ones(60)), np.linalg.solve(gram, y[:, 0])
                left = float(y[:, 0] @ values - (ones @ y[:, 0]) ** 2 / ones.sum())
                each.append(
                    -29.5 * np.log(left / 59)
                    - 0.5 * (np.linalg.slogdet(gram)[1] + np.log(ones.sum()))
                )
        scores.append(max(each) + np.log(np.exp(np.array(each) - max(each)).sum()))
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    chosen = scores[SMOOTHNESS.index(likeliest_kernel(x, y, first_guess(x, y).lengthscale))]
    assert chosen > max(scores) - 0.3 and min(scores) < chosen - 3.0, scores


@pytest.mark.parametrize(
    "x, y",
    [
        (torch.zeros(300, 2), torch.arange(300.0)[:, None]),
        (1e6 * torch.rand(40, 2), torch.rand(40, 1)),
        (torch.rand(40, 2), torch.ones(40, 1)),
    ],
)
def test_what_tells_no_smoothness_leaves_it_as_it_is(x, y):
    """A robot that stands, places too far apart, a field of one value."""
    assert likeliest_kernel(x.double(), y.double(), 1.0) == "matern52"
    assert likeliest_kernel(x.double(), y.double(), 1.0, "matern72") == "matern72"


@pytest.mark.parametrize("level", [0.0, 1e9])
def test_more_cells_than_are_used_and_a_level_far_beyond_the_field(level):
    """Of a robot that stands there are more: an even choice of all is used."""
    x, y = cells(300, seed=1, step=0.1, noise=0.03, kernel="matern92")
    assert likeliest_kernel(x, y + level, 0.8) == "matern92"


def test_a_peak_that_is_cut_is_no_kink():
    """Tall beside what the field is elsewhere, and as smooth as that."""
    along = torch.linspace(0.0, 9.0, 90, dtype=torch.float64)
    x = torch.stack([along, 0.0 * along], 1)
    small = 0.3 * (torch.sin(2.1 * along) + torch.sin(3.3 * along + 1.0))
    y = (small + 12.0 * torch.exp(-0.5 * ((along - 4.5) / 0.6) ** 2))[:, None]
    assert likeliest_kernel(x, y, first_guess(x, y).lengthscale) == "matern92"

"""Predictive densities of surprising values: against adaptive quadrature in many digits, from −700 to 0 nats."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp
from torch.utils._python_dispatch import TorchDispatchMode

from gp_mapping.core.likelihoods import discrete
from gp_mapping.core.likelihoods.discrete import Poisson, Softmax
from gp_mapping.core.likelihoods.student_t import StudentT

mpmath.mp.dps = 30


def poisson_exact(y, m, v):
    """log ∫ Poisson(y|e^f) N(f|m, v) df."""

    def h(f):
        return y * f - mpmath.exp(f) - (f - m) ** 2 / (2 * v)

    # the mode: h' is decreasing
    low, high = mpmath.mpf(-2000), mpmath.mpf(50)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if y - mpmath.exp(middle) - (middle - m) / v > 0 else (low, middle)
        )
    scale, top = 1 / mpmath.sqrt(mpmath.exp(low) + 1 / mpmath.mpf(v)), h(low)
    edges = [low + k * scale for k in (-60, -30, -12, -6, -3, 0, 3, 6, 12, 30, 60)]
    area = mpmath.quad(lambda f: mpmath.exp(h(f) - top), edges)
    return float(
        top + mpmath.log(area) - mpmath.loggamma(y + 1) - mpmath.log(2 * mpmath.pi * v) / 2
    )


@pytest.mark.parametrize(
    "y, m, v",
    [
        (0, 0.0, 1.0),
        (3, 1.0, 0.5),
        (300, 0.0, 1.0),
        (300, 0.0, 0.25),
        (0, 6.4, 0.001),
        (1, -30.0, 2.0),
        (10000, 9.0, 0.01),
        (50, 3.9, 25.0),
        (0, 12.0, 9.0),
        (0, 6.5, 0.0005),
        (7, 2.0, 1e-8),
    ],
)
def test_counts(y, m, v):
    told = Poisson().log_predictive(
        *(torch.tensor(part, dtype=torch.float64) for part in ([[y]], [[m]], [v], [1.0]))
    )
    exact = poisson_exact(y, m, v)
    assert float(told) == pytest.approx(exact, rel=1e-6, abs=1e-6) and exact < 0.0


def test_counts_reach_from_nothing_to_seven_hundred_nats():
    lowest = min(poisson_exact(y, m, v) for y, m, v in ((300, 0.0, 0.25), (0, 6.5, 0.0005)))
    assert -800.0 < lowest < -500.0


@pytest.mark.parametrize("nu", [2.1, 4.0, 30.0, 1000.0])
@pytest.mark.parametrize(
    "r, v, noise",
    [
        (0.0, 1.0, 1.0),
        (5.0, 0.01, 1.0),
        (40.0, 1.0, 0.01),
        (1e6, 1.0, 1.0),
        (3.0, 1e-9, 0.2),
        (30.0, 100.0, 1e-4),
    ],
)
def test_gross_errors(nu, r, v, noise):
    height = (
        mpmath.gamma((nu + 1) / 2)
        / mpmath.gamma(mpmath.mpf(nu) / 2)
        / mpmath.sqrt(nu * mpmath.pi * noise)
    )

    def density(f):
        return (
            height
            * (1 + (r - f) ** 2 / (nu * noise)) ** (-(nu + 1) / 2)
            * mpmath.npdf(f, 0, math.sqrt(v))
        )

    spread, own = math.sqrt(v), math.sqrt(noise)
    edges = sorted(
        {k * spread for k in (-40, -12, -6, -3, -1, 0, 1, 3, 6, 12, 40)}
        | {r + k * own for k in (-300, -100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300)}
    )
    exact = float(mpmath.log(mpmath.quad(density, [mpmath.mpf(e) for e in edges])))
    told = StudentT(nu).log_predictive(
        *(torch.tensor(p, dtype=torch.float64) for p in ([[r]], [[0.0]], [v], [noise]))
    )
    if exact > -700.0:
        assert float(told) == pytest.approx(exact, rel=1e-6, abs=1e-6)


def softmax_told(label, mean, variance):
    """log p of a label, by the package."""
    rows = (torch.tensor([part], dtype=torch.float64) for part in (mean, variance))
    mean, variance = rows
    hot = torch.nn.functional.one_hot(torch.tensor([label]), len(mean[0])).double()
    return float(Softmax(len(mean[0])).log_predictive(hot, mean, variance, torch.ones(1).double()))


@pytest.mark.parametrize(
    "gap, v", [(0.0, 1.0), (6.0, 1e-3), (40.0, 25.0), (300.0, 100.0), (700.0, 1.0)]
)
def test_classes(gap, v):
    """Two of them: log E[1/(1 + e^d)], d ~ N(gap, 2v), by quadrature in logarithms over all that d may be."""
    spread = math.sqrt(2 * v)
    d = np.linspace(gap - 40 * spread - gap - 60, gap + 40 * spread + 60, 100_001)
    log_p = log_expit(-d) - 0.5 * ((d - gap) / spread) ** 2
    exact = logsumexp(log_p) + math.log((d[1] - d[0]) / spread) - 0.5 * math.log(2 * math.pi)
    assert softmax_told(1, [0.5 * gap, -0.5 * gap], [v, v]) == pytest.approx(
        exact, rel=1e-6, abs=1e-6
    )


def test_three_classes():
    """Each variance its own, the label 10 and 200 nats unlikely: by a grid about the mode of the product."""
    for mean, v in (([9.0, 1.0, -4.0], [0.5, 2.0, 1.0]), ([0.0, 210.0, 190.0], [9.0, 1.0, 30.0])):

        def log_product(f, label, mean=mean, v=v):
            shares = f[label] - logsumexp(f, axis=0)
            return shares - sum(0.5 * (f[k] - mean[k]) ** 2 / v[k] for k in range(3))

        label = int(np.argmin(mean))
        mode = minimize(lambda f, label=label: -log_product(f, label), mean, tol=1e-12).x
        axes = [mode[k] + math.sqrt(v[k]) * np.linspace(-8, 8, 61) for k in range(3)]
        step = math.prod(axis[1] - axis[0] for axis in axes)
        grid = np.stack(np.meshgrid(*axes, indexing="ij"))
        exact = (
            logsumexp(log_product(grid, label))
            + math.log(step)
            - 0.5 * sum(math.log(2 * math.pi * part) for part in v)
        )
        assert (
            softmax_told(label, mean, v) == pytest.approx(exact, rel=1e-6, abs=1e-6)
            and exact < -5.0
        )


class _Made(TorchDispatchMode):
    """Numbers that were exponentiated, and the largest tensor that was made."""

    exponentials, largest = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if torch.is_tensor(made):
            self.largest = max(self.largest, made.numel())
            self.exponentials += made.numel() if func.__name__.startswith("exp") else 0
        return made


@pytest.mark.parametrize("widest", [2.0, 10.0])
def test_integrals_of_classes_keep_to_the_cache_and_take_few_exponentials(monkeypatch, widest):
    """However wide they are: nodes are so many more of each sample."""
    g = torch.Generator().manual_seed(0)
    mean, variance = torch.rand(2, 100, 3, generator=g, dtype=torch.float64)
    mean, variance = 3.0 * mean, (widest * variance).square()
    rows = slice(None, int(200 / widest))
    given = 0.0, mean[rows], variance[rows], None
    with _Made() as products:
        told = Softmax(3).derivatives(*given)
    monkeypatch.setattr(discrete, "_WIDEST", 0.0)
    with _Made() as plain:
        wanted = Softmax(3).derivatives(*given)
    for one, other in zip(told, wanted):
        assert torch.allclose(one, other, rtol=1e-11, atol=1e-14)
    assert products.exponentials < 0.6 * plain.exponentials
    assert products.largest <= 5e5

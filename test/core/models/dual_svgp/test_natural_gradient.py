"""Natural-gradient steps with likelihoods that are not conjugate: exact where they should be, and at their fixed point.

That sweeps end at the batch variational optimum is in test_likelihoods_maps.py.
"""

import numpy as np
import pytest
import torch
from core_data import close, drive, lattice

from gp_mapping import Samples
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.stationary import Matern52
from gp_mapping.core.likelihoods.base import NonGaussian
from gp_mapping.core.likelihoods.discrete import Poisson
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.dual_svgp.natural_gradient import _choose, refresh

X, Y = drive(150)
Y = Y - 48.0
Z = lattice(0.5)
XS = torch.from_numpy(np.random.default_rng(1).uniform(0, 3, (40, 2)))


class WrappedGaussian(NonGaussian):
    """A Gaussian that does not say so: α = (y − f)/σ², β = 1/σ²; λ = α + βf is y/σ² wherever f is."""

    name, metric = "wrapped", True

    def __init__(self, rate=1.0):
        self.rate = rate

    def step(self, y, mean, variance, noise):
        beta = 1.0 / noise
        return (y - mean) * beta[:, None], beta, torch.full_like(beta, self.rate)

    def encode(self, y):
        return y

    def noise_variance(self, variance):
        return variance


class Louder(Matern52):
    """k(a, b) w(a) w(b) with w(x) = 1 + x₀/2: its prior variance depends on the place."""

    def __call__(self, a, b):
        return super().__call__(a, b) * (1 + a[:, :1] / 2) * (1 + b[:, 0] / 2)

    def diag(self, a):
        return super().diag(a) * (1 + a[:, 0] / 2).square()


class LouderTheta(Theta):
    def kernel(self):
        return Louder(self.signal_stddev**2, self.lengthscale)


def built(**options):
    return DualSVGP(Theta(0.5, 10.0, 1.0, 20.0), inducing_inputs=Z, centre=[0.0], **options)


@pytest.mark.parametrize("steps", [1, 4])
def test_one_step_lands_exactly_where_the_likelihood_is_gaussian(steps):
    conjugate, wrapped = built(), built(likelihood=WrappedGaussian(), steps=steps)
    for i in range(0, 150, 30):
        for field in (conjugate, wrapped):
            field.update(Samples(X[i : i + 30], Y[i : i + 30]))
    a, b = conjugate.predict(XS), wrapped.predict(XS)
    close(b.mean, a.mean, 1e-9)
    close(b.variance, a.variance, 1e-9)
    close(wrapped.sites.precision, conjugate.sites.precision, 1e-9)


@pytest.mark.parametrize("rate", [0.3, 0.7])
def test_smaller_steps_converge_geometrically(rate):
    """ρ damps the pull towards the target: after s steps the mean's error has shrunk by (1 − ρ)^s."""
    exact = built()
    exact.update(Samples(X, Y))
    wanted = exact.sites.linear
    for steps in (1, 2, 40):
        field = built(likelihood=WrappedGaussian(rate), steps=steps)
        field.update(Samples(X, Y))
        close(field.sites.precision, exact.sites.precision, 1e-9)  # the precision is not damped
        off = float((field.sites.linear - wanted).norm() / wanted.norm())
        assert off < 2.0 * (1 - rate) ** steps + 1e-9


def test_at_the_fixed_point_a_sweep_changes_nothing():
    """λ = α + βf at the final q, and what is added is the difference to what a sample had."""
    field = built(likelihood=WrappedGaussian())
    field.update(Samples(X, Y))
    before = field.sites.precision.clone(), field.sites.linear.clone()
    assert refresh(field) < 1e-9
    close(field.sites.precision, before[0], 1e-9)
    close(field.sites.linear, before[1], 1e-9)
    field.sites.subtract(
        field.memory.whitened(field.basis.size), field.memory.beta, field.memory.lam
    )
    close(field.sites.precision, torch.eye(field.sites.size, dtype=torch.float64), 1e-7)


def test_of_a_large_memory_half_are_those_nearest_to_the_batch_and_half_are_drawn():
    """Nearest by the prior's correlation through the inputs, with any sample of the batch."""
    likelihood = WrappedGaussian()
    likelihood.refreshed = 20
    field = built(likelihood=likelihood)
    field.update(Samples(X[:20], Y[:20]))
    everything = field.memory.whitened(field.basis.size)
    assert _choose(field, everything).tolist() == list(range(20))

    field.update(Samples(X[20:], Y[20:]))
    everything = field.memory.whitened(field.basis.size)
    first = field.basis.features
    near = np.stack([(everything[first:, i] @ everything[first:, (40, 90)]) for i in range(150)])
    nearest = set(np.argsort(-near.max(1))[:10].tolist())
    chosen = [set(_choose(field, everything[:, (40, 90)]).tolist()) for _ in range(2)]
    assert all(nearest <= some and 15 <= len(some) <= 20 for some in chosen)
    assert chosen[0] != chosen[1]


def test_residuals_are_those_of_where_the_sensor_was():
    """Also of remembered samples, and of what θ is learned from: samples of a late sensor are those of its places."""
    rate, still = np.exp((Y - Y.min()) / 12.0), np.zeros_like(X)
    velocity = np.tile([[1.0, 0.5]], (len(X), 1))
    velocity[:30] = 0.0  # the origin is that of the first batch, and the kernel depends on it
    counts = torch.from_numpy(np.random.default_rng(3).poisson(rate).astype(float))
    late, placed = (
        DualSVGP(
            LouderTheta(0.5, 1.0, 1.0, 2.0, time_offset=offset),
            inducing_inputs=Z[::3],
            likelihood=Poisson(),
        )
        for offset in (0.4, 0.0)
    )
    for i in range(0, 150, 30):
        part = slice(i, i + 30)
        # the sensor's place is x − δ v
        late.update(Samples(X[part] + 0.4 * velocity[part], counts[part], velocity=velocity[part]))
        placed.update(Samples(X[part], counts[part], velocity=still[part]))
    a, b = late.predict(XS), placed.predict(XS)
    close(a.mean, b.mean, 1e-9)
    close(a.variance, b.variance, 1e-9)
    chosen = torch.arange(0, 150, 7)
    for mine, its in zip(*(f.learning_data()["marginals"](chosen) for f in (late, placed))):
        close(mine, its, 1e-9)


def test_a_map_of_counts_whose_inputs_must_tell_something_goes_over_to_another_theta():
    """How much a remembered sample tells is its site's precision, at any θ: the map stays what it was."""
    rate = np.exp((Y - Y.min()) / 12.0)
    counts = torch.from_numpy(np.random.default_rng(3).poisson(rate).astype(float))
    field = DualSVGP(Theta(0.5, 1.0, 1.0, 2.0), likelihood=Poisson(), information=0.1)
    for i in range(0, 150, 30):
        field.update(Samples(X[i : i + 30], counts[i : i + 30]))
    before, count = field.predict(XS), len(field.basis)
    assert torch.equal(field.remembered_precision(Theta(0.9, 2.0, 3.0, 2.0)), field.memory.beta)
    assert field.adopt(Theta(0.55, 1.0, 1.0, 2.0))
    after = field.predict(XS)
    assert float(((after.mean - before.mean).abs() / before.stddev).max()) < 0.5
    assert torch.allclose(after.stddev, before.stddev, rtol=0.2, atol=0.0)
    assert 0.5 * count < len(field.basis) <= 1.2 * count

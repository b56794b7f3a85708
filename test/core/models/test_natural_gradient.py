"""The λ form with likelihoods that are not conjugate: it converges, and in one step where it should."""

import numpy as np
import pytest
import torch
from core_data import THETA, close, covariance, drive, lattice

from gp_mapping import Samples
from gp_mapping.core.hyper import Theta
from gp_mapping.core.models.dual_svgp import DualSVGP

X, Y = drive(150)
Y = Y - 48.0
Z = lattice(0.5)
XS = torch.from_numpy(np.random.default_rng(1).uniform(0, 3, (40, 2)))
INNER = Theta(0.5, 10.0, 1.0, 20.0)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)


class WrappedGaussian:
    """A Gaussian that does not say so: α = (y − f)/σ², β = 1/σ²; λ = α + βf is y/σ² wherever f is."""

    conjugate = False

    def sites(self, y, mean, variance, noise):
        beta = 1.0 / noise
        alpha = (y - mean) * beta[:, None]
        return alpha + beta[:, None] * mean, beta


class StudentT:
    """ν = 4, scale 1: α = E_q[∂ log p], β = E_q[−∂² log p] by Gauss–Hermite, β bounded below."""

    conjugate = False

    def moments(self, y, mean, variance):
        f = mean + variance.sqrt()[:, None] * torch.from_numpy(NODES)  # (N, nodes)
        r, w = y - f, torch.from_numpy(WEIGHTS / WEIGHTS.sum())
        alpha = (5 * r / (4 + r**2)) @ w
        beta = (5 * (4 - r**2) / (4 + r**2) ** 2) @ w
        return alpha, beta

    def sites(self, y, mean, variance, noise):
        alpha, beta = self.moments(y, mean, variance)
        beta = beta.clamp_min(1e-3)
        return (alpha + beta * mean[:, 0])[:, None], beta


class Bernoulli:
    """p(y|f) = 1/(1 + exp(−y f)), y = ±1."""

    conjugate = False

    def sites(self, y, mean, variance, noise):
        f = mean + variance.sqrt()[:, None] * torch.from_numpy(NODES)
        p, w = torch.sigmoid(f), torch.from_numpy(WEIGHTS / WEIGHTS.sum())
        alpha, beta = ((y + 1) / 2 - p) @ w, (p * (1 - p)) @ w
        return (alpha + beta * mean[:, 0])[:, None], beta


def built(theta=INNER, **options):
    return DualSVGP(theta, inducing_inputs=Z, centre=[0.0], **options)


def test_one_step_lands_exactly_where_the_likelihood_is_gaussian():
    conjugate, wrapped = built(), built(likelihood=WrappedGaussian())
    for i in range(0, 150, 30):
        for field in (conjugate, wrapped):
            field.update(Samples(X[i: i + 30], Y[i: i + 30]))
    a, b = conjugate.predict(XS), wrapped.predict(XS)
    close(b.mean, a.mean, 1e-9)
    close(b.variance, a.variance, 1e-9)


@pytest.mark.parametrize("rate", [0.3, 0.7])
def test_smaller_steps_converge_geometrically(rate):
    """After s steps of rate ρ the sites have 1 − (1 − ρ)^s of what they should."""
    exact = built()
    exact.update(Samples(X, Y))
    for steps in (1, 2, 40):
        field = built(likelihood=WrappedGaussian(), rate=rate, steps=steps)
        field.update(Samples(X, Y))
        share = 1 - (1 - rate) ** steps
        close(field.sites.linear, share * exact.sites.linear, 1e-9)
        eye = torch.eye(field.sites.size, dtype=torch.float64)
        close(field.sites.precision - eye, share * (exact.sites.precision - eye), 1e-9)


def test_student_t_converges_to_its_fixed_point():
    """At convergence every site is what the likelihood says at the final q: λ = α + βf, β."""
    y = Y.copy()
    y[::15] += 40.0  # outliers
    fields = [built(likelihood=StudentT(), rate=0.5, steps=steps) for steps in (60, 120)]
    for field in fields:
        field.update(Samples(X, y))
    a, b = (f.predict(XS) for f in fields)
    assert float((a.mean - b.mean).abs().max()) < 1e-6
    field = fields[1]
    mean, variance = field.posterior.inner(field.scaling.inner_x(torch.from_numpy(X)))
    a_x = field.basis.white(field.scaling.inner_x(torch.from_numpy(X)))
    q_var = variance - (500.0 - a_x.square().sum(0))  # of the projection onto z: what the sites are made from
    lam, beta = StudentT().sites(torch.from_numpy(y), mean, q_var, None)
    close(field.memory.beta, beta, 1e-5)
    close(field.memory.lam, lam, 1e-5)
    # and it is what it is for: outliers of 40 pull a Gaussian, not a Student-t
    gaussian, clean = built(), built()
    gaussian.update(Samples(X, y))
    clean.update(Samples(X, Y))
    wanted = clean.predict(XS).mean
    assert float((b.mean - wanted).abs().mean()) < 0.3 * float((gaussian.predict(XS).mean - wanted).abs().mean())


def test_bernoulli_in_batches_learns_the_boundary():
    theta = Theta(1.0, 3.0, 1.0, 1.0)
    label = np.sign(np.sin(2 * X[:, :1]) + 1e-9)
    field = built(theta, likelihood=Bernoulli(), rate=0.7, steps=15)
    for i in range(0, 150, 25):
        field.update(Samples(X[i: i + 25], label[i: i + 25]))
    inside = torch.from_numpy(X[::3])
    right = torch.sign(field.predict(inside).mean[:, 0]).numpy() == label[::3, 0]
    assert right.mean() > 0.94
    assert bool((field.sites.precision.diagonal() >= 1.0).all())
    # the same as a damped Newton fit of all sites at once, since it stops where the gradient is zero
    batch = built(theta, likelihood=Bernoulli(), rate=0.5, steps=80)
    batch.update(Samples(X, label))
    a, b = field.predict(XS).mean, batch.predict(XS).mean
    assert float((a - b).abs().mean()) < 0.5 * float(b.abs().mean())


def test_the_fixed_point_is_that_of_dense_natural_gradients():
    """The same iteration with dense matrices: q(u) with natural parameters in u itself (Chang et al., eq. 9)."""
    theta, label = Theta(0.7, 3.0, 1.0, 1e-12), np.sign(np.sin(2 * X[:, :1]) + 1e-9)
    field = built(theta, likelihood=Bernoulli(), rate=0.4, steps=25)
    field.update(Samples(X, label))
    dense = THETA | {"length": 0.7, "signal": 3.0}
    k, k_x, k_s = (covariance(Z, b, **dense) for b in (Z, X, XS.numpy()))
    a = np.linalg.solve(k, k_x)
    lam, beta = np.zeros((150, 1)), np.zeros(150)
    for _ in range(25):
        s = np.linalg.inv(np.linalg.inv(k) + (a * beta) @ a.T)
        f, v = a.T @ (s @ (a @ lam)), ((s @ a) * a).sum(0)
        target = Bernoulli().sites(torch.from_numpy(label), torch.from_numpy(f), torch.from_numpy(v), None)
        lam, beta = lam + 0.4 * (target[0].numpy() - lam), beta + 0.4 * (target[1].numpy() - beta)
    s = np.linalg.inv(np.linalg.inv(k) + (a * beta) @ a.T)
    close(field.predict(XS).mean, np.linalg.solve(k, k_s).T @ (s @ (a @ lam)), 1e-8)

"""The bounds (8) and (9), and minibatch training up to them."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from core_data import THETA, UT, close, covariance, drive, feed, lattice, samples
from scipy.stats import multivariate_normal

from gp_mapping import Samples
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Gaussian
from gp_mapping.core.likelihoods.discrete import Poisson as Counts
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.dual_svgp.natural_gradient import refresh
from gp_mapping.core.models.solve_gp.model import SolveGP
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.offline.solve_gp_batch import BatchTrainer
from gp_mapping.offline.solve_gp_bounds import Blocks, bound, collapsed_bound, optimal_blocks

INNER = Theta(0.5, 10.0, 1.0, 20.0)
Z, O = lattice(1.0), lattice(1.0, 2.0) + 0.5
PLACES = torch.from_numpy(np.random.default_rng(5).uniform(0.0, 3.0, (30, 2)))


class Poisson:
    """Counts of rate e^f, everything in closed form: E e^f = e^{m + v/2}."""

    name, conjugate, metric, steps, rate = "poisson", False, False, 1, 1.0

    def at(self, scaling):
        return self

    def encode(self, y):
        return y

    def weight(self, count):
        return torch.ones_like(count)

    def noise_variance(self, variance):
        return 1.0

    def start(self, y, noise):
        return torch.zeros_like(y), torch.zeros_like(noise)

    def step(self, y, mean, variance, noise):
        rate = (mean + 0.5 * variance[:, None]).exp()
        return y - rate, rate[:, 0], torch.ones_like(noise)

    def expected_log_prob(self, y, mean, variance, noise):
        return (y * mean - (mean + 0.5 * variance[:, None]).exp() - torch.lgamma(y + 1)).sum(1)


class Parts:
    """Features of a drive: white (R, N), residual, noise (N,), y (N, C); split: rows of u."""

    def __init__(self, inputs, n=90, channels=2):
        x, y = drive(n, channels=channels)
        self.numpy_x, self.y = x, torch.from_numpy(y - 48)
        self.noise = torch.from_numpy(np.random.default_rng(4).uniform(0.5, 2.0, n))
        basis = Basis.at(torch.from_numpy(inputs), Basis(INNER, 2, 1, torch.float64, "cpu"))
        self.white, self.split = basis.whitened(torch.from_numpy(x)), basis.features + len(Z)
        self.residual = basis.residual(torch.from_numpy(x), self.white)

    def eight(self, q):
        return bound(q, Gaussian(), self.white, self.residual, self.y, self.noise)

    def nine(self, q):
        return collapsed_bound(
            q.mean[self.split :], q.second, self.white, self.residual, self.y, self.noise
        )

    def evidence(self):
        gram = covariance(self.numpy_x, self.numpy_x, **THETA) + 400 + np.diag(self.noise.numpy())
        return sum(
            multivariate_normal(np.zeros(len(gram)), gram).logpdf(column)
            for column in self.y.numpy().T
        )

    def titsias(self):
        """Titsias (2009), eq. 9, on all inputs, without the core's algebra."""
        q = (self.white.mT @ self.white).numpy()
        gram = q + np.diag(self.noise.numpy())
        fit = sum(
            multivariate_normal(np.zeros(len(gram)), gram).logpdf(column)
            for column in self.y.numpy().T
        )
        return fit - 0.5 * self.y.shape[1] * float((self.residual / self.noise).sum())


@pytest.fixture(scope="module")
def parts():
    return Parts(np.vstack([Z, O]))


def test_the_bounds_lie_in_their_order(parts):
    """SVGP on z < ODVGP < SOLVE-GP < SVGP on z and o < evidence: each may do what the one before may."""
    alone = Parts(Z)
    q = optimal_blocks(parts.white, parts.split, parts.y, parts.noise)
    odvgp = Blocks(q.mean, q.first, torch.eye(len(O), dtype=torch.float64))
    order = [
        alone.titsias(),
        float(parts.eight(odvgp)),
        float(parts.eight(q)),
        parts.titsias(),
        parts.evidence(),
    ]
    assert all(a + 1.0 < b for a, b in pairwise(order)), order


def test_without_a_second_set_both_are_titsias():
    alone = Parts(Z)
    q = optimal_blocks(alone.white, alone.split, alone.y, alone.noise)
    for value in (alone.eight(q), alone.nine(q)):
        assert float(value) == pytest.approx(alone.titsias(), rel=1e-10)


def test_eight_is_nine_where_q_of_u_is_best_and_less_elsewhere(parts):
    q = optimal_blocks(parts.white, parts.split, parts.y, parts.noise)
    assert float(parts.eight(q)) == pytest.approx(float(parts.nine(q)), rel=1e-12)
    g = torch.Generator().manual_seed(0)
    s = parts.split
    for _ in range(5):
        mean = q.mean + 0.1 * torch.randn(q.mean.shape, dtype=torch.float64, generator=g)
        other = Blocks(mean, q.first, q.second * 1.2)
        assert float(parts.eight(other)) < float(parts.nine(other)) < float(parts.nine(q))
        # q(u) that is best for this q(v): the mean of what v leaves over
        left = parts.y - parts.white[s:].mT @ mean[s:]
        best = optimal_blocks(parts.white[:s], s, left, parts.noise)
        met = Blocks(torch.cat([best.mean, mean[s:]]), best.first, other.second)
        assert float(parts.eight(met)) == pytest.approx(float(parts.nine(other)), rel=1e-12)


def gradients(q, value_of):
    """Of a bound by m, R_u and R_v."""
    variables = [t.clone().requires_grad_(True) for t in (q.mean, q.first, q.second)]
    value_of(Blocks(*variables)).backward()
    return [float(t.grad.abs().max()) for t in variables if t.numel()]


def test_the_optimum_is_one(parts):
    q = optimal_blocks(parts.white, parts.split, parts.y, parts.noise)
    assert max(gradients(q, parts.eight)) < 1e-8


def test_minibatches_reach_the_collapsed_optimum_and_the_stream():
    x, y = drive(150)
    batch = samples(x, y, noise_variance=np.random.default_rng(4).uniform(0.5, 2.0, 150))
    settings = {"inducing_inputs": Z, "orthogonal_inputs": O, "scale": UT, "centre": [48 * UT]}
    trained, stream = SolveGP(INNER, **settings), SolveGP(INNER, **settings)
    trainer = BatchTrainer(trained, batch, minibatch=20)
    trainer.epoch()
    feed(stream, batch, 40)
    close(trained.predict(PLACES).mean, stream.predict(PLACES).mean, 1e-9, "mean")
    close(trained.predict(PLACES).variance, stream.predict(PLACES).variance, 1e-9, "variance")
    white = stream.basis.whitened(stream.scaling.inner_x(batch.x))
    residual = stream.basis.residual(stream.scaling.inner_x(batch.x), white)
    q, noise = trainer.blocks, batch.noise_variance / UT**2
    optimum = collapsed_bound(
        q.mean[len(q.first) :], q.second, white, residual, batch.y / UT - 48, noise
    )
    assert trainer.evidence() == pytest.approx(float(optimum), rel=1e-10)
    trained.update(samples(x + 0.3, y))  # it is a map: it may go on
    assert trained.samples == 300 and bool(
        (trained.predict(PLACES).variance <= stream.predict(PLACES).variance).all()
    )


@pytest.mark.parametrize("orthogonal", [0, 8])
def test_counts_are_trained_to_the_optimum_of_their_bound(orthogonal):
    rng = np.random.default_rng(2)
    x, _ = drive(200)
    y = rng.poisson(np.exp(1.0 + np.sin(2 * x[:, :1]) * np.cos(1.5 * x[:, 1:]))).astype(float)
    model = SolveGP(
        Theta(0.8, 1.0, 1.0, 2.0),
        max_inducing=12,
        max_orthogonal=orthogonal,
        tolerance=1e-4,
        likelihood=Poisson(),
    )
    trainer, values = BatchTrainer(model, Samples(x, y), minibatch=40, rate=0.7), []
    for _ in range(20):
        trainer.epoch()
        values.append(trainer.evidence())
    assert (
        values[0] < values[1] < values[2] <= values[-1] + 1e-9
        and len(model.basis) == 12 + orthogonal
    )

    def eight(q):
        places = model.scaling.inner_x(torch.from_numpy(x))
        white = model.basis.whitened(places)
        residual = model.basis.residual(places, white)
        return bound(
            q, Poisson(), white, residual, torch.from_numpy(y), torch.ones(len(x)).double()
        )

    assert max(gradients(trainer.blocks, eight)) < 1e-6
    assert trainer.evidence() == pytest.approx(float(eight(trainer.blocks)), rel=1e-12)


def test_a_stream_of_counts_ends_where_the_batch_does():
    """Natural gradients in the stream, then sweeps over the memory: the optimum of the same bound (8)."""
    rng = np.random.default_rng(2)
    x, _ = drive(120)
    y = rng.poisson(np.exp(1.0 + np.sin(2 * x[:, :1]) * np.cos(1.5 * x[:, 1:]))).astype(float)
    settings = {"inducing_inputs": Z[:12], "orthogonal_inputs": O, "likelihood": Counts()}
    theta = Theta(0.8, 1.0, 1.0, 2.0)
    stream, trained = SolveGP(theta, **settings), SolveGP(theta, **settings)
    feed(stream, Samples(x, y), 10)
    trainer = BatchTrainer(trained, Samples(x, y), minibatch=40, rate=0.7)
    for _ in range(25):
        refresh(stream)
        trainer.epoch()
    got, expected = stream.predict(PLACES), trained.predict(PLACES)
    close(got.mean, expected.mean, 1e-6, "mean")
    close(got.variance, expected.variance, 1e-6, "variance")


def test_without_orthogonal_inputs_a_stream_of_counts_is_the_dual_svgp_s():
    x, _ = drive(100)
    y = np.random.default_rng(1).poisson(2.0 + np.sin(2 * x[:, :1])).astype(float)
    theta = Theta(0.8, 1.0, 1.0, 2.0)
    mine, its = (
        SolveGP(theta, max_inducing=20, max_orthogonal=0, likelihood=Counts()),
        DualSVGP(theta, max_inducing=20, likelihood=Counts()),
    )
    for field in (mine, its):
        feed(field, Samples(x, y), 10)
    close(mine.predict(PLACES).mean, its.predict(PLACES).mean, 1e-12, "mean")
    close(mine.predict(PLACES).variance, its.predict(PLACES).variance, 1e-12, "variance")


def test_hyperparameters_follow_the_bound():
    """From a poor start the noise is found, ℓ and s move towards what made the data, and the bound grows by far.

    ℓ and s trade against each other: along that ridge Adam creeps, since q is held in whitened coordinates.
    """
    x, y = drive(400)
    rng = np.random.default_rng(0)
    gram = covariance(x, x, "matern52", 0.6, 10.0) + 1e-9 * np.eye(400)
    y = 48 + np.linalg.cholesky(gram) @ rng.normal(0, 1, (400, 1)) + rng.normal(0, 1.0, (400, 1))
    model = SolveGP(
        Theta(0.3, 4.0, 3.0, 20.0), max_inducing=40, max_orthogonal=60, tolerance=1e-3, scale=UT
    )
    trainer = BatchTrainer(model, samples(x, y), minibatch=100, learn=True, learning_rate=0.08)
    trainer.epoch()
    first = trainer.evidence()
    for _ in range(15):
        trainer.epoch()
    found = model.theta
    assert trainer.evidence() > first + 50
    assert (
        0.38 < found.lengthscale < 0.7
        and 4.5 < found.signal_stddev < 11
        and 0.9 < found.noise_stddev < 1.15
    ), found


def test_a_map_that_has_seen_samples_is_refused():
    model = SolveGP(INNER, scale=UT)
    batch = samples(*drive(20))
    model.update(batch)
    with pytest.raises(ValueError, match="20 samples already"):
        BatchTrainer(model, batch)
    assert math.isfinite(float(model.predict(PLACES).mean[0, 0]))

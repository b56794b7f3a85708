"""The oracle's own oracles: GPyTorch, and NumPy."""

from dataclasses import replace

import gpytorch
import numpy as np
import pytest
import torch
from core_data import SETTINGS, THETA, UT, close, covariance, drive, exact_gp, in_ut, samples

from gp_mapping import create_map
from gp_mapping.core.kernels.stationary import Constant, make_kernel

X, Y = drive(150)
XS = np.random.default_rng(1).uniform(-1, 4, (40, 2))
NU = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


def gpytorch_kernel(name, variance, lengthscale):
    ard = len(lengthscale) if isinstance(lengthscale, list) else None
    base = (
        gpytorch.kernels.RBFKernel(ard_num_dims=ard)
        if name == "rbf"
        else gpytorch.kernels.MaternKernel(nu=NU[name], ard_num_dims=ard)
    )
    kernel = gpytorch.kernels.ScaleKernel(base).double()
    base.lengthscale, kernel.outputscale = torch.tensor(lengthscale, dtype=torch.float64), variance
    return kernel


class GPyTorchExact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gpytorch_predict(kernel, x, y, noise, xs):
    x, y, xs = (torch.as_tensor(v, dtype=torch.float64) for v in (x, y, xs))
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(
        torch.as_tensor(noise, dtype=torch.float64)
    )
    model = GPyTorchExact(x, y, likelihood, kernel).double().eval()
    with (
        torch.no_grad(),
        gpytorch.settings.fast_computations(False, False, False),
        gpytorch.settings.cholesky_jitter(double_value=0.0),
    ):
        out = model(xs)
        return out.mean.numpy(), out.covariance_matrix.numpy()


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52"])
def test_equals_gpytorch(name):
    noise = np.random.default_rng(2).uniform(0.5, 4.0, len(X))
    kernel = gpytorch_kernel(name, 100.0, 0.5) + gpytorch_constant(400.0)
    mean, covariance = gpytorch_predict(kernel, X, Y[:, 0] - 48.0, noise, XS)
    field = create_map("exact", centre=[48 * UT], **(SETTINGS | {"kernel": name}))
    field.update(samples(X, Y, noise_variance=noise))
    got = in_ut(field.predict(torch.from_numpy(XS)))
    close(got[0][:, 0] - 48.0, mean, 1e-6)
    close(got[1][:, 0] / np.diag(covariance), np.ones(len(XS)), 1e-6)
    close(field.covariance(XS, XS) / UT**2, covariance, 1e-6)


def gpytorch_constant(variance):
    kernel = gpytorch.kernels.ConstantKernel().double()
    kernel.constant = torch.tensor(variance, dtype=torch.float64)
    return kernel


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52"])
def test_kernel_with_a_lengthscale_per_dimension_equals_gpytorch(name):
    rng = np.random.default_rng(4)
    x, xs = (torch.from_numpy(rng.uniform(0, 3, (n, 3))) for n in (60, 20))
    y = torch.from_numpy(rng.normal(0, 5, 60))
    lengths = [0.4, 1.3, 2.2]
    ours = make_kernel(name, 100.0, torch.tensor(lengths, dtype=torch.float64)) + Constant(9.0)
    theirs = gpytorch_kernel(name, 100.0, lengths) + gpytorch_constant(9.0)
    mean, covariance = gpytorch_predict(theirs, x, y, np.full(60, 2.0), xs)
    gram, cross = ours(x, x) + 2.0 * torch.eye(60, dtype=torch.float64), ours(x, xs)
    close(cross.mT @ torch.linalg.solve(gram, y), mean, 1e-6)
    close(ours(xs, xs) - cross.mT @ torch.linalg.solve(gram, cross), covariance, 1e-6)


def test_equals_the_textbook_and_any_batches():
    expected = exact_gp(X, Y - 48, np.ones(len(X)), XS, **THETA)
    for size in (1, 13, 150):
        field = create_map("exact", centre=[48 * UT], **SETTINGS)
        for i in range(0, 150, size):
            field.update(samples(X[i : i + size], Y[i : i + size]))
        mean, variance = in_ut(field.predict(torch.from_numpy(XS)))
        close(mean - 48, expected[0], 1e-9)
        close(variance[:, 0], np.diag(expected[1]), 1e-9)


def test_counts_and_sensor_variance_make_the_noise():
    rng = np.random.default_rng(3)
    count, sensor = rng.integers(1, 20, len(X)).astype(float), rng.uniform(0.0, 9.0, len(X))
    field = create_map("exact", centre=[48 * UT], **SETTINGS)
    field.update(samples(X, Y, count=count, sensor_variance=sensor))
    expected = exact_gp(X, Y - 48, 1.0 + sensor / count, XS, **THETA)
    mean, variance = in_ut(field.predict(torch.from_numpy(XS)))
    close(mean - 48, expected[0], 1e-9)
    close(variance[:, 0], np.diag(expected[1]), 1e-9)


def test_centre_is_the_first_batch_median_unless_given():
    field = create_map("exact", **SETTINGS)
    field.update(samples(X[:51], Y[:51]))
    c = np.median(Y[:51])
    expected = exact_gp(X[:51], Y[:51] - c, np.ones(51), XS, **THETA)
    close(in_ut(field.predict(torch.from_numpy(XS)))[0] - c, expected[0], 1e-8)
    with pytest.raises(ValueError, match="channels"):
        create_map("exact", centre=[1.0, 2.0], **SETTINGS).update(samples(X, Y))


@pytest.mark.parametrize("dimension", [1, 3])
def test_other_dimensions_than_two(dimension):
    rng = np.random.default_rng(3)
    x, xs = rng.uniform(0, 3, (40, dimension)), rng.uniform(0, 3, (10, dimension))
    y = np.sin(x.sum(1, keepdims=True))
    expected = exact_gp(x, y, np.ones(40), xs, **THETA)
    for model, extra in (("exact", {}), ("dual_svgp", {"inducing_inputs": x})):
        for heading in (
            0.0,
            0.3 * UT,
        ):  # the default heading needs a plane: without velocities it must not matter
            field = create_map(
                model, centre=[0.0], **(SETTINGS | extra | {"heading_stddev": heading})
            )
            field.update(samples(x, y))
            mean, variance = in_ut(field.predict(torch.from_numpy(xs)))
            close(mean, expected[0], 1e-7, model)
            close(variance[:, 0], np.diag(expected[1]), 1e-7, model)


def test_refuses_to_grow_beyond_its_bound():
    field = create_map("exact", max_exact_samples=60, **SETTINGS)
    with pytest.raises(ValueError, match="max_exact_samples"):
        field.update(samples(X, Y))
    with pytest.raises(RuntimeError, match="no sample"):
        field.predict(torch.from_numpy(XS))
    field.update(samples(X[:40], Y[:40]))
    before = field.predict(torch.from_numpy(XS)).mean
    with pytest.raises(ValueError, match="max_exact_samples"):
        field.update(samples(X[:21], Y[:21]))
    other = create_map("exact", **SETTINGS)
    other.update(samples(X, Y))
    with pytest.raises(ValueError, match="max_exact_samples"):
        field.merge(other)
    assert torch.equal(field.predict(torch.from_numpy(XS)).mean, before)


def with_passes(count=3, stddev=3.0, n=60):
    """A map of passes, each with a constant of its own, and A = K + Σ, C = A + s_b² ZZᵀ, Z, y of it in NumPy."""
    of = np.arange(n) // (n // count)
    y = Y[:n] + np.array([2.0, -4.0, 1.0])[of, None]
    field = create_map("exact", centre=[48 * UT], bias_stddev=stddev * UT, **SETTINGS)
    field.update(samples(X[:n], y, pass_number=of.astype(float)))
    z = (of[:, None] == np.arange(count)).astype(float)
    plain = covariance(X[:n], X[:n], **THETA) + 400.0 + np.eye(n)
    return field, plain, plain + stddev**2 * z @ z.T, z, y - 48


def test_each_pass_has_a_constant_of_its_own():
    """f without any, f + b of a pass, and the constants themselves: as the joint Gaussian says."""
    field, _, whole, z, y = with_passes()
    cross = covariance(X[:60], XS, **THETA) + 400.0
    for number, with_b in ((None, 0.0), (1.0, 9.0)):
        k = cross + (0.0 if number is None else 9.0 * z[:, 1:2])
        p = torch.from_numpy(XS)
        mean, variance = in_ut(
            field.predict(p) if number is None else field.predict_in_pass(p, number)
        )
        close(mean - 48, k.T @ np.linalg.solve(whole, y), 1e-9)
        close(variance[:, 0], 500.0 + with_b - (k * np.linalg.solve(whole, k)).sum(0), 1e-9)
    told = field.biases()
    close([float(b.mean) / UT for b in told], 9.0 * (z.T @ np.linalg.solve(whole, y))[:, 0], 1e-9)


@pytest.mark.parametrize("count", [2, 3])
def test_what_the_samples_say_of_their_passes_is_the_likelihood_of_the_constants(count):
    """ZᵀA⁻¹Z and ZᵀA⁻¹y of what is left of K + Σ without the constants; nothing of a single pass."""
    field, plain, _, z, y = with_passes(count)
    told = field.posterior.bias_evidence()
    close(told.precision, z.T @ np.linalg.solve(plain, z), 1e-8)
    close(told.linear, z.T @ np.linalg.solve(plain, y), 1e-8)
    alone = create_map("exact", bias_stddev=UT, **SETTINGS)
    alone.update(samples(X[:20], Y[:20], pass_number=np.zeros(20)))
    assert alone.posterior.bias_evidence() is None


def test_what_else_a_map_does_is_the_exact_gp_too():
    """At another θ, with a fantasy, saved and read again; and what calibrates a robot is what was measured."""
    field = create_map("exact", centre=[48 * UT], **SETTINGS)
    assert field.calibration_data() is None
    field.update(samples(X, Y))
    close(field.calibration_data().y, Y - 48, 1e-9)
    at = XS[:3]
    told = in_ut(field.predict(torch.from_numpy(at)))[0]
    expected = exact_gp(
        np.vstack([X, at]), np.vstack([Y, told]) - 48, np.ones(len(X) + 3), XS, **THETA
    )
    mean, variance = in_ut(field.fantasize(torch.from_numpy(at)).predict(torch.from_numpy(XS)))
    close(mean - 48, expected[0], 1e-8)
    close(variance[:, 0], np.diag(expected[1]), 1e-8)

    assert field.adopt(replace(field.theta, lengthscale=0.7)) is True
    again = create_map("exact", centre=[48 * UT], **SETTINGS)
    again.load_state_dict(field.state_dict())
    expected = exact_gp(X, Y - 48, np.ones(len(X)), XS, **(THETA | {"length": 0.7}))
    for one in (field, again):
        close(in_ut(one.predict(torch.from_numpy(XS)))[0] - 48, expected[0], 1e-9)

"""θ's own uncertainty: the covariance that a learner tells, and the variance that follows from it."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import t as students
from test_learner_bayes import LEARNED, NOISE, SIGNAL, cells_of, drive, learn, random_field

from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.freedom import degrees_of_freedom, interval_factor, noise_factor
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels import make_kernel

TRUTH = Theta(1.0, SIGNAL, NOISE, 5.0)


def of_all(learner: HyperLearner, data: dict) -> torch.Tensor:
    """(3, 3) what all samples and the prior know of log ℓ, log s², log s_p²: one factor of all of them."""
    n = len(data["x"])
    information = learner.score(learner.vector, data, torch.arange(n))[1]
    return (information + torch.diag(learner.prior_precision(n, n, n)))[:3, :3]


@pytest.mark.parametrize("count", [60, 150, 600])
def test_samples_that_were_looked_at_often_are_counted_once(count):
    """Of some cells, of a neighbourhood of all, and of several: standard deviations as of all cells at once."""
    data = cells_of(1.0, count, 4, 0.1, 0.5)
    learner = learn(TRUTH, TRUTH, data)
    known = torch.linalg.inv(of_all(learner, data)).diagonal().sqrt()
    told = learner.summary().covariance.diagonal()[:3].sqrt()
    # neighbourhoods overlap, lag behind, and know less of each other than all together
    assert bool((told / known > 0.7).all() and (told / known < 1.7).all()), told / known
    assert bool((learner.summary().covariance[3:] == 0).all()), (
        "what is not learned is not in doubt"
    )


def test_the_factor_is_students_quantile():
    for degrees in (3.0, 5.0, 20.0, 200.0):
        assert interval_factor(degrees) == pytest.approx(
            (students.ppf(0.975, degrees) / 1.959964) ** 2, rel=2e-3
        )
    assert interval_factor(math.inf) == interval_factor(1e6) == 1.0


@pytest.mark.parametrize("variance, noise", [(0.05, 1e-3), (0.7, 1e-3), (6.5, 1e-3), (6.5, 2.0)])
def test_errors_of_noise_that_is_known_to_a_factor_only_are_covered(variance, noise):
    """As far as log σ² is normal; noise beyond all that varies there is not."""
    theta = replace(TRUTH, noise_stddev=noise)
    normal = torch.randn(2, 200_000, generator=torch.Generator().manual_seed(0)).double()
    log = math.sqrt(variance) * normal[0]
    covariance = torch.zeros(7, 7).double()
    covariance[2, 2] = variance
    learned, total = Learned(theta, torch.eye(7), covariance), SIGNAL**2 + noise**2
    bound = total * math.exp(1.645 * math.sqrt(variance) * noise**2 / total)
    log = log[log < math.log(bound / noise**2)]
    error = (0.5 * log).exp() * normal[1, : len(log)]
    factor = noise_factor(learned)
    beyond = (error.abs() > 1.959964 * math.sqrt(factor)).double().mean()
    assert float(beyond) == pytest.approx(0.05, abs=0.002)
    assert factor * noise**2 < bound
    unknown = [noise_factor(replace(learned, covariance=covariance * k)) for k in (1e3, 1e9)]
    assert factor < unknown[0] <= unknown[1] < 40.0, "bounded, however little is known"


def test_what_is_not_learned_is_not_in_doubt():
    held = HyperLearner(TRUTH, TRUTH, free=(False,) * 7)
    assert noise_factor(None) == noise_factor(held.summary()) == pytest.approx(1.0)
    assert noise_factor(Learned(TRUTH, torch.eye(7))) == 1.0
    assert degrees_of_freedom(None) == degrees_of_freedom(held.summary()) == math.inf
    assert degrees_of_freedom(Learned(TRUTH, torch.eye(7))) == math.inf
    fresh = HyperLearner(TRUTH, TRUTH, free=LEARNED)
    assert degrees_of_freedom(fresh.summary()) == 3.0, "a start's own prior, before the first step"


def test_a_state_goes_on_with_what_it_knew():
    data = cells_of(1.0, 80, 0, 0.1, 0.5)
    learner, again = learn(TRUTH, TRUTH, data), HyperLearner(TRUTH, TRUTH, free=LEARNED)
    again.load_state_dict(learner.state_dict())
    assert torch.equal(again.summary().covariance, learner.summary().covariance)


def test_intervals_beside_a_first_lane_hold_what_they_say():
    """A lane and a half in sixty fields, exact at the learned θ: intervals of v(θ) fall short, t's do not."""
    x, inside, plain, degrees = drive(90, 0.1, 0.5), [], [], []
    for seed in range(60):
        data = cells_of(0.6, 90, seed, 0.1, 0.5)
        learner = learn(
            replace(TRUTH, lengthscale=0.6), replace(TRUTH, lengthscale=0.6), data, seed
        )
        theta, g = learner.theta, torch.Generator().manual_seed(seed)
        places = x[::3] + 0.3 * (2 * torch.rand(30, 2, dtype=torch.float64, generator=g) - 1)
        truth = SIGNAL * random_field(0.6, seed)(places)
        y = data["y"] + 0.0
        offset = SIGNAL * random_field(0.6, seed)(x) + NOISE * torch.randn(
            90, dtype=torch.float64, generator=torch.Generator().manual_seed(100 + seed)
        )
        kernel = make_kernel("matern52", theta.signal_stddev**2, theta.lengthscale)
        gram = kernel(x, x) + 25.0 + theta.noise_stddev**2 * torch.eye(90)
        cross = kernel(x, places) + 25.0
        mean = (cross.mT @ torch.linalg.solve(gram, y))[:, 0]
        variance = theta.signal_stddev**2 + 25.0 - (cross * torch.linalg.solve(gram, cross)).sum(0)
        error = truth - offset[0] - mean
        degrees.append(degrees_of_freedom(learner.summary()))
        plain.append(float((error.abs() <= 1.96 * variance.sqrt()).double().mean()))
        inside.append(
            float(
                (error.abs() <= 1.96 * (interval_factor(degrees[-1]) * variance).sqrt())
                .double()
                .mean()
            )
        )
    assert 0.93 <= sum(inside) / 60 <= 0.975, (sum(inside) / 60, sum(plain) / 60)
    assert sum(plain) / 60 < sum(inside) / 60 - 0.01 and min(degrees) < 20

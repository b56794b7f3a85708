"""Hyper-parameters under other likelihoods: the score is the slope of the evidence of the pseudo-data."""

import numpy as np
import pytest
import torch
from core_data import covariance
from scipy.stats import multivariate_normal, norm, t

from gp_mapping.core.hyper.pseudo_data import PseudoLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.discrete import Poisson
from gp_mapping.core.likelihoods.student_t import StudentT

RNG = np.random.default_rng(2)
N, NU = 12, 4.0
X = RNG.uniform(0, 2, (N, 2))
BETA = RNG.uniform(0.3, 2.0, N)
TARGETS = RNG.normal(size=(N, 2))
MEAN, VARIANCE = RNG.normal(size=(N, 2)), RNG.uniform(0.05, 0.5, N)
EXTRA, WEIGHT = RNG.uniform(0.0, 0.1, N), RNG.uniform(0.5, 1.5, N)
Y = MEAN + RNG.normal(size=(N, 2))
THETA = Theta(0.6, 1.3, 0.4, 2.0)


def data(likelihood=None) -> dict:
    """The last sample's site says next to nothing, and its target is absurd."""
    beta = torch.from_numpy(np.append(BETA, 1e-9))
    targets = torch.from_numpy(np.vstack([TARGETS, [1e6, -1e6]]))
    x = torch.from_numpy(np.vstack([X, [0.5, 0.5]]))
    mean = torch.from_numpy(np.vstack([MEAN, MEAN[:1]]))
    return {
        "x": x,
        "velocity": torch.zeros_like(x),
        "heading": torch.zeros_like(x),
        "y": torch.from_numpy(np.vstack([Y, Y[:1]])),
        "beta": beta,
        "lam": beta[:, None] * targets,
        "extra": torch.from_numpy(np.append(EXTRA, 0.0)),
        "weight": torch.from_numpy(np.append(WEIGHT, 0.0)),
        "likelihood": likelihood,
        "marginals": lambda near: (mean[near], torch.from_numpy(np.append(VARIANCE, 0.1))[near]),
    }


def negative_log_evidence(vector) -> float:
    """Of the targets with variances 1/β, mean over channels."""
    length, signal = np.exp(vector[0]), np.exp(vector[1] / 2)
    gram = covariance(X, X, "matern52", length, signal) + 2.0**2 + np.diag(1.0 / BETA)
    return -np.mean([multivariate_normal.logpdf(TARGETS[:, c], np.zeros(N), gram) for c in (0, 1)])


def slope(function, vector, k: int) -> float:
    step = np.zeros(7)
    step[k] = 1e-5
    return (function(vector + step) - function(vector - step)) / 2e-5


@pytest.mark.parametrize("likelihood", [Poisson(), StudentT(NU)])
def test_the_score_is_the_slope_of_the_evidence_of_what_the_sites_say(likelihood):
    free = (True, True, likelihood.metric, False, False, False, False)
    learner = PseudoLearner(THETA, THETA, likelihood=likelihood, free=free)
    vector = THETA.vector()
    gradient, information = learner.score(vector, data(likelihood), torch.arange(N + 1))
    for k in (0, 1):
        assert float(gradient[k]) == pytest.approx(slope(negative_log_evidence, vector.numpy(), k))
    assert float(torch.linalg.eigvalsh(information[:2, :2])[0]) > 0.0
    assert not gradient[3:].any() and not information[3:].any()
    # how loud the samples are is not in the sites: of counts nothing is learned of it
    assert not information[:2, 2].any() and not information[2, :2].any()
    assert likelihood.metric or (float(gradient[2]), float(information[2, 2])) == (0.0, 0.0)
    assert learner.free == list(free), "the learner's own list is as it was"


def test_the_scale_of_gross_errors_follows_the_expected_density():
    learner = PseudoLearner(THETA, THETA, likelihood=StudentT(NU), free=(True,) * 3 + (False,) * 4)
    vector = THETA.vector()
    gradient, information = learner.score(vector, data(StudentT(NU)), torch.arange(N + 1))
    f = np.linspace(-8.0, 8.0, 4001)

    def expected(vector) -> float:
        """−Σ w E_q log p(y | f), mean over channels; a sample's own variance adds to the scale's."""
        total = np.exp(vector[2]) + EXTRA
        out = 0.0
        for i in range(N):
            for c in (0, 1):
                at = MEAN[i, c] + f * VARIANCE[i] ** 0.5
                each = t.logpdf(Y[i, c] - at, NU, scale=total[i] ** 0.5)
                out -= WEIGHT[i] * np.trapezoid(norm.pdf(f) * each, f) / 2
        return out

    assert float(gradient[2]) == pytest.approx(slope(expected, vector.numpy(), 2), rel=1e-5)

    # Fisher's information of the logarithm of a variance, of one sample, is ν/(2(ν + 3))
    r = np.linspace(-400.0, 400.0, 400_001)
    score = 0.5 * ((NU + 1) * r**2 / (NU + r**2) - 1.0)
    one = np.trapezoid(t.pdf(r, NU) * score**2, r)
    part = THETA.noise_stddev**2 / (THETA.noise_stddev**2 + EXTRA)
    assert float(information[2, 2]) == pytest.approx(one * (WEIGHT * part**2).sum(), rel=1e-4)

"""A pass that drifts, in segments: the dense GP with the kernel term s_b² ρ^|i − j| within a pass."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import THETA, UT, covariance
from test_passes import BIAS, NOISE, PLACES, mapped, passes

from gp_mapping.core.hyper.bias import SEGMENT
from gp_mapping.core.hyper.evidence import negative_log_evidence
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.sparse.pass_evidence import PassEvidence

RHO = 0.8


def alike(one, other, rho=RHO):
    """ρ^|i − j| of segments of one pass, 0 between passes."""
    apart = np.abs(one[:, None] - other) / SEGMENT
    return (np.floor(one[:, None]) == np.floor(other)) * rho**apart


def drifting(n=60, count=2, segments=4, seed=0):
    """Samples of passes that cross each other, each in segments whose constant moves."""
    x, y, of = passes(n, count, seed)
    of = of + np.arange(n) * segments // n * SEGMENT
    rng, known = np.random.default_rng(seed), np.unique(of)
    root = np.linalg.cholesky(alike(known, known))
    steps = BIAS * (root @ rng.normal(size=len(known)))
    return x, y + steps[np.searchsorted(known, of)][:, None], of


def at_rho(model, x, y, of, **settings):
    """The map at ρ, which nothing has learned."""
    field = mapped(model, x, y, of, **settings)
    assert field.adopt(replace(field.theta, bias_correlation=RHO))
    return field


def assert_is(field, x, y, of, noise=NOISE**2):
    """The field, and what is measured in each segment, one to come, and another pass."""
    gram = covariance(x, x, **THETA) + THETA["constant"] ** 2 + BIAS**2 * alike(of, of)
    gram = gram + noise * np.eye(len(x))
    places = torch.from_numpy(PLACES)
    for number in (None, *np.unique(of), 1.0 + 9 * SEGMENT, 77.0):
        cross = covariance(x, PLACES, **THETA) + THETA["constant"] ** 2
        prior = THETA["signal"] ** 2 + THETA["constant"] ** 2
        told = field.predict(places)
        if number is not None:
            cross = cross + BIAS**2 * alike(of, np.array([number]))
            told, prior = field.predict_in_pass(places, number), prior + BIAS**2
        solved = np.linalg.solve(gram, np.hstack([y - 48.0, cross]))
        assert np.abs(told.mean.numpy() / UT - cross.T @ solved[:, :1] - 48.0).max() < 1e-6
        variance = prior - (cross * solved[:, 1:]).sum(0)
        assert np.abs(told.variance.numpy()[:, 0] / UT**2 - variance).max() < 1e-6


@pytest.mark.parametrize("model", ("dual_svgp", "solve_gp", "fitc", "exact"))
def test_segments_are_the_dense_gp_with_an_autoregressive_constant(model):
    x, y, of = drifting()
    field = at_rho(model, x, y, of)
    assert_is(field, x, y, of)
    gram = covariance(x, x, **THETA) + THETA["constant"] ** 2 + BIAS**2 * alike(of, of)
    known = np.unique(of)
    cross = BIAS**2 * alike(of, known)
    joint = BIAS**2 * alike(known, known) - cross.T @ np.linalg.solve(gram + np.eye(60), cross)
    told = [float(b.stddev) / UT for b in field.biases()]
    assert np.abs(np.array(told) - np.diag(joint) ** 0.5).max() < 1e-6


@pytest.mark.parametrize("model", ("dual_svgp", "exact"))
def test_files_and_a_second_robot_keep_the_segments(model):
    x, y, of = drifting()
    first = of < 1.0
    one, other = (at_rho(model, x[part], y[part], of[part], inputs=x) for part in (first, ~first))
    again = mapped(model, x[:1], y[:1], of[:1], inputs=x)
    again.load_state_dict(one.state_dict())
    again.merge(other)
    # whole numbers are added, whatever the last segment here
    assert_is(again, x, y, of + (of >= 1.0))


@pytest.mark.parametrize("model", ("dual_svgp", "exact"))
def test_the_evidence_of_rho_is_the_dense_gp_s_and_finds_what_drifts(model):
    x, y, of = drifting(100, 3, 8, seed=2)
    evidence = at_rho(model, x, y, of).posterior.bias_evidence()

    def value(variance, rho):
        gram = covariance(x, x, **THETA) + THETA["constant"] ** 2 + np.eye(len(x))
        gram = gram + variance * alike(of, of, rho)
        return -0.5 * (
            np.linalg.slogdet(gram)[1] + (y[:, 0] - 48.0) @ np.linalg.solve(gram, y[:, 0] - 48.0)
        )

    for variance, rho in ((1.0, 0.5), (9.0, 0.9)):
        told = float(evidence.log_likelihood(torch.tensor([variance]).double(), rho))
        assert told == pytest.approx(value(variance, rho) - value(0.0, 0.0), abs=1e-5)
    assert evidence.spread(0.1, segments=True).correlation >= 0.5
    assert evidence.spread(0.1).correlation == 0.0


def test_rho_is_learned_as_the_map_goes_on():
    x, y, of = drifting(140, 3, 8, seed=2)
    field = mapped("dual_svgp", x, y, of, bias_stddev=0.0, learn_noise=True)
    assert field.theta.bias_correlation >= 0.5 and field.learner.theta.bias_correlation >= 0.5
    again = mapped("dual_svgp", x[:1], y[:1], of[:1], inputs=x, bias_stddev=0.0, learn_noise=True)
    again.load_state_dict(field.state_dict())
    assert again.learner.theta.bias_correlation == field.theta.bias_correlation


def test_neighbourhoods_know_the_segments():
    x, y, of = (torch.from_numpy(part) for part in drifting(25))
    theta, zero = Theta(0.5, 6.0, 1.0, 20.0, bias_stddev=2.0, bias_correlation=RHO), x * 0.0
    told = negative_log_evidence(theta, theta.vector(), x, zero, zero, y - 48.0, zero[:, 0], of)
    gram = theta.kernel()(x, x) + 400.0 + torch.eye(25)
    gram = gram + 4.0 * torch.from_numpy(alike(of.numpy(), of.numpy()))
    normal = torch.distributions.MultivariateNormal(zero[:, 0], gram)
    assert 25 * float(told) == pytest.approx(-float(normal.log_prob(y[:, 0] - 48.0)), rel=1e-10)


def test_joined_segments_leave_the_field_honest():
    """Beyond the bound neighbours share a constant: the field stays near the dense GP's."""
    x, y, of = drifting(80, 2, 8)
    field = at_rho("dual_svgp", x, y, of, max_biases=6)
    assert len(field.biases()) == 6 < len(np.unique(of)) and not field.counters()["closed_passes"]
    whole = at_rho("dual_svgp", x, y, of).predict(torch.from_numpy(PLACES))
    told = field.predict(torch.from_numpy(PLACES))
    assert float(((told.mean - whole.mean) / whole.stddev).abs().max()) < 1.0
    assert math.isfinite(float(told.variance.sum()))


def test_what_other_tiles_say_is_told_on_to_the_segments_beside():
    """Σ = (N + (s_b²C)⁻¹)⁻¹ over all segments, also those that nothing was said of."""
    known, asked = np.array([0.0, SEGMENT, 1.0]), np.array([2 * SEGMENT, 1.0, 0.0, 5.0])
    rows = np.random.default_rng(0).normal(size=(3, 3))
    told = PassEvidence(
        tuple(known), torch.from_numpy(rows @ rows.T), torch.tensor([[1.0], [2.0], [3.0]]).double()
    )
    every = np.array([*known, 2 * SEGMENT, 5.0])
    precision, linear = np.zeros((5, 5)), np.zeros((5, 1))
    precision[:3, :3], linear[:3] = told.precision, told.linear
    covariance = np.linalg.inv(precision + np.linalg.inv(4.0 * alike(every, every)))
    at = [3, 2, 0, 4]
    mean, found = told.prior_of(tuple(asked), 4.0, RHO)
    assert np.allclose(mean, (covariance @ linear)[at], atol=1e-10)
    assert np.allclose(found, covariance[at][:, at], atol=1e-10)
    assert abs(float(mean[0, 0])) > 0.1 and float(mean[3, 0]) == pytest.approx(0.0, abs=1e-12)


def test_beyond_the_bound_neighbours_share_a_constant_as_if_they_were_one_segment():
    """Of 12 segments in 2 passes 7 are left: the newest of a pass, and the others two by two."""
    x, y, of = drifting(72, 2, 6)
    field = mapped("dual_svgp", x, y, of, max_biases=7)
    numbers = [bias.number for bias in field.biases()]
    assert len(numbers) == 7 and field.closed_passes == 0 and not field.notes()
    assert numbers[-1] == of.max() and {math.floor(n) for n in numbers} == {0, 1}

    # each has the number of its newest part
    kept = np.sort(numbers)
    joined = kept[np.searchsorted(kept, of)]
    assert (np.floor(joined) == np.floor(of)).all()
    given = mapped("dual_svgp", x, y, joined)
    places = torch.from_numpy(PLACES)
    one, other = field.predict(places), given.predict(places)
    assert torch.allclose(one.mean, other.mean, rtol=1e-9, atol=0.0)
    assert torch.allclose(one.variance, other.variance, rtol=1e-6, atol=0.0)
    assert set(field.memory.pass_number.tolist()) <= set(numbers)


def test_whole_passes_are_closed_as_before():
    x, y, of = drifting(60, 5, 1)
    field = mapped("dual_svgp", x, y, of, max_biases=3)
    assert len(field.biases()) == 3 and field.closed_passes == 2


def evidence_of(values):
    """Of the constants of 5 passes of 6 segments, which are known to 0.1."""
    numbers = [k + i * SEGMENT for k in range(5) for i in range(6)]
    precision = 100.0 * torch.eye(30, dtype=torch.float64)
    return PassEvidence(tuple(numbers), precision, precision @ torch.from_numpy(values[:, None]))


@pytest.mark.parametrize("decays", [True, False])
def test_a_future_pass_is_as_uncertain_as_the_beginnings_of_passes(decays):
    """Also where the sensor warms up, so that all of a pass differs less than its beginning."""
    rng, inside = np.random.default_rng(1), []
    for _ in range(40):
        starts = np.repeat(4.0 * rng.normal(size=5), 6)
        decay = np.exp(-np.tile(np.arange(6), 5)) if decays else 1.0
        values = starts * decay + 0.1 * rng.normal(size=30)
        spread = evidence_of(values).spread(0.1, segments=True)
        if decays:
            assert spread.future_pass_variance > 1.5 * spread.stddev**2
        inside.append(
            (np.abs(4.0 * rng.normal(size=200)) < 1.96 * spread.future_pass_variance**0.5).mean()
        )
    assert 0.90 < np.mean(inside) < 0.99


def test_where_beginnings_are_as_the_rest_they_say_nothing_more():
    """Of an autoregressive process."""
    rng, root = (
        np.random.default_rng(2),
        np.linalg.cholesky(alike(np.arange(6) * SEGMENT, np.arange(6) * SEGMENT)),
    )
    told = [evidence_of((4.0 * rng.normal(size=(5, 6)) @ root.T).ravel()) for _ in range(20)]
    assert sum(each.spread(0.1, segments=True).beginning == 0.0 for each in told) >= 17
    assert told[0].spread(0.1).beginning == 0.0

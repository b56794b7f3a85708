"""What other maps say of the passes' constants: two maps far apart are told what one GP of both knows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, THETA, UT, covariance

from gp_mapping import Samples, create_map
from gp_mapping.core.hyper.bias import SEGMENT
from gp_mapping.core.sparse.pass_evidence import PassEvidence

BIAS, NOISE, CENTRE = 3.0, 1.0, 48.0  # s_b, s_p, centre, µT
PLACES = np.random.default_rng(3).uniform(0.0, 1.5, (8, 2))


def samples(seed: int, passes: tuple[float, ...], n: int = 24):
    """Places (n, 2), values (n, 1) in µT and passes (n,) of one of the two areas."""
    rng = np.random.default_rng(seed)
    x = np.stack(np.meshgrid(np.linspace(0, 1.5, 6), np.linspace(0, 1.5, 4)), -1).reshape(-1, 2)
    of = np.asarray(passes)[rng.integers(0, len(passes), n)]
    y = CENTRE + 5.0 * np.sin(3.0 * x[:, :1] + seed) + 4.0 * np.cos(2.0 * of)[:, None]
    return x, y + rng.normal(0.0, NOISE, (n, 1)), of


A, B = samples(1, (0.0, 1.0, 2.0)), samples(2, (1.0, 2.0, 5.0))


def dense(number=None):
    """The GP of both areas, each with a constant of its own: mean (K, 1) and variance (K,) in A."""
    x, y, of = (np.concatenate(both) for both in zip(A, B))
    area = np.repeat([0, 1], len(A[0]))
    same = area[:, None] == area[None]
    gram = same * (covariance(x, x, **THETA) + THETA["constant"] ** 2)
    gram += BIAS**2 * (of[:, None] == of[None]) + NOISE**2 * np.eye(len(x))
    cross = (area == 0)[:, None] * (covariance(x, PLACES, **THETA) + THETA["constant"] ** 2)
    prior = THETA["signal"] ** 2 + THETA["constant"] ** 2
    if number is not None:
        cross, prior = cross + BIAS**2 * (of == number)[:, None], prior + BIAS**2
    solved = np.linalg.solve(gram, np.hstack([y - CENTRE, cross]))
    return cross.T @ solved[:, :1] + CENTRE, prior - (cross * solved[:, 1:]).sum(0)


def mapped(model: str, data):
    x, y, of = data
    field = create_map(
        model,
        **SETTINGS | {"bias_stddev": BIAS * UT, "centre": [CENTRE * UT], "inducing_inputs": x},
    )
    field.update(Samples(x, torch.as_tensor(y) * UT, pass_number=of))
    return field


@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp", "fitc"])
def test_a_map_that_is_told_predicts_as_one_gp_of_both_areas(model):
    here, there = mapped(model, A), mapped(model, B)
    alone = here.predict(torch.from_numpy(PLACES)).mean.clone()
    here.adopt_pass_evidence(there.posterior.pass_evidence())

    at = torch.from_numpy(PLACES)
    # pass 5 has samples in the other area alone, and of pass 77 nothing is known
    for number in (None, 0.0, 1.0, 5.0, 77.0):
        told = here.predict(at) if number is None else here.predict_in_pass(at, number)
        mean, variance = dense(number)
        assert np.abs(told.mean.numpy() / UT - mean).max() < 1e-6, number
        assert np.abs(told.variance[:, 0].numpy() / UT**2 - variance).max() < 1e-6, number
    assert float((here.predict(at).mean - alone).abs().max()) > 0.05 * UT


def test_what_a_map_says_does_not_depend_on_what_it_was_told():
    here, there = mapped("dual_svgp", A), mapped("dual_svgp", B)
    before = here.posterior.pass_evidence()
    here.adopt_pass_evidence(there.posterior.pass_evidence())
    after = here.posterior.pass_evidence()
    assert after.numbers == before.numbers
    assert torch.allclose(after.precision, before.precision, rtol=1e-9, atol=1e-9)
    assert torch.allclose(after.linear, before.linear, rtol=1e-9, atol=1e-8)


def longer(theta):
    return replace(theta, lengthscale=1.1 * theta.lengthscale)


def test_what_was_told_stays_where_a_map_is_made_anew(monkeypatch):
    """With other hyper-parameters at once or in slices, and after something was forgotten."""
    for module in ("rebuild", "rebuilding"):
        monkeypatch.setattr(f"gp_mapping.core.models.dual_svgp.{module}.SLICE", 1.0)
    told = mapped("dual_svgp", B).posterior.pass_evidence()
    here = mapped("dual_svgp", A)
    here.adopt_pass_evidence(told)
    assert here.adopt(longer(here.theta)) and here.sites.passes.elsewhere is told

    # told meanwhile: the copy that takes the map's place was made before
    here.in_slices(True, driven=True)
    assert not here.adopt_in_slices(longer(here.theta)) and here.rebuild is not None
    newer = told.scale(0.5)
    here.adopt_pass_evidence(newer)
    while here.rebuild is not None:
        here.advance_rebuild()
    assert here.sites.passes.elsewhere is newer

    assert here.forget_near(torch.tensor([[0.7, 0.7]], dtype=torch.float64), 0.4, 0) > 0
    assert here.sites.passes.elsewhere is newer


def test_a_map_that_closes_its_passes_is_no_surer_than_one_gp_of_both_areas():
    """What it was told of each has the level of all in common, which would count with each anew."""
    here, there = mapped("dual_svgp", A), mapped("dual_svgp", B)
    here.adopt_pass_evidence(there.posterior.pass_evidence().of_differences())
    open_ = here.predict(torch.from_numpy(PLACES)).variance.clone()
    for number in (0.0, 1.0, 2.0):
        here.sites.close({number}, here.theta.bias_stddev**2)
    here.mark_changed()
    assert bool((here.predict(torch.from_numpy(PLACES)).variance >= open_).all())


def test_the_spread_is_learned_from_both():
    here, there = mapped("dual_svgp", A), mapped("dual_svgp", B)
    both = here.posterior.pass_evidence().plus(there.posterior.pass_evidence())
    here.adopt_pass_evidence(there.posterior.pass_evidence())
    evidence = here.posterior.bias_evidence()
    assert torch.allclose(evidence.precision, both.precision, rtol=1e-8, atol=1e-8)
    assert torch.allclose(evidence.linear, both.linear, rtol=1e-8, atol=1e-7)


def some(numbers, seed=0):
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(len(numbers), len(numbers) + 2, generator=g, dtype=torch.float64)
    linear = torch.randn(len(numbers), 2, generator=g, dtype=torch.float64)
    return PassEvidence(tuple(numbers), root @ root.mT, linear)


def test_differences_are_what_a_common_constant_does_not_change():
    evidence = some((0.0, 1.0, 4.0)).of_differences()
    assert float(evidence.precision.sum(1).abs().max()) < 1e-12
    # a level δ common to all adds N1 δ to v
    raw = some((0.0, 1.0, 4.0))
    shifted = PassEvidence(
        raw.numbers, raw.precision, raw.linear + 3.0 * raw.precision.sum(1, keepdim=True)
    )
    assert torch.allclose(shifted.of_differences().linear, evidence.linear, atol=1e-12)
    # and it is the limit of a common constant of great variance, integrated out
    common = raw.precision.sum(1, keepdim=True)
    limit = raw.precision - common @ common.mT / (float(common.sum()) + 1e-9)
    assert torch.allclose(limit, evidence.precision, atol=1e-6)


def test_what_is_taken_out_leaves_what_was_there():
    first, second = some((0.0, 1.0), 1), some((1.0, 7.0), 2)
    left = first.plus(second).without(second, 1.0)
    at = [left.numbers.index(number) for number in (0.0, 1.0, 7.0)]
    expected = torch.zeros(3, 3, dtype=torch.float64)
    expected[:2, :2] = first.precision
    assert torch.allclose(left.precision[at][:, at], expected, atol=1e-12)
    assert torch.allclose(left.linear[at][:2], first.linear, atol=1e-12)
    # more than there is: nothing negative is left
    assert float(torch.linalg.eigvalsh(first.without(first.scale(2.0), 1.0).precision)[0]) >= -1e-12


def test_passes_integrated_out_leave_what_is_known_of_the_others():
    evidence = some((0.0, 1.0, 4.0), 5)
    left = evidence.integrated_out({1.0}, BIAS**2)
    assert left.numbers == (0.0, 4.0)
    for a, b in zip(left.prior_of((4.0, 0.0), BIAS**2), evidence.prior_of((4.0, 0.0), BIAS**2)):
        assert torch.allclose(a, b, atol=1e-12)


def test_segments_of_a_pass_are_independent_where_no_correlation_is_told():
    """As constants of passes of their own: by (I + s²N)⁻¹ s²."""
    evidence = some((3.0, 3.0 + SEGMENT, 4.0), 5)
    mean, covariance = evidence.prior_of(evidence.numbers, BIAS**2)
    prior = torch.linalg.inv(evidence.precision + torch.eye(3, dtype=torch.float64) / BIAS**2)
    assert torch.allclose(covariance, prior, atol=1e-12)
    assert torch.allclose(mean, prior @ evidence.linear, atol=1e-12)


def test_the_divergence_is_that_of_the_two_normals():
    before, after = some((0.0, 1.0), 3), some((1.0, 0.0), 4)
    numbers = (0.0, 1.0, 9.0)
    normals = [
        [
            torch.distributions.MultivariateNormal(mean[:, c], covariance)
            for c in range(mean.shape[1])
        ]
        for mean, covariance in (part.prior_of(numbers, 2.0) for part in (after, before))
    ]
    expected = sum(
        float(torch.distributions.kl_divergence(new, old)) for new, old in zip(*normals)
    ) / len(normals[0])
    assert after.divergence(before, numbers, 2.0) == pytest.approx(expected, rel=1e-9)
    assert after.divergence(after, numbers, 2.0) == pytest.approx(0.0, abs=1e-12)

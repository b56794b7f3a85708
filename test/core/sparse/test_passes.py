"""The constant of each pass against a dense GP with the kernel term s_b² δ(p, p′), written without the core.

Of gp_mapping.core.models.dual_svgp.model, gp_mapping.core.models.solve_gp.model,
gp_mapping.core.models.anytime.model and gp_mapping.core.models.exact.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, THETA, UT, covariance
from scipy import stats

from gp_mapping import Samples, create_map
from gp_mapping.core.hyper.bias import BiasSpread
from gp_mapping.core.hyper.evidence import evidence_score, negative_log_evidence
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.sparse.passes import NO_PASS, PassSums
from gp_mapping.core.types import Prediction
from gp_mapping.errors import NumericalError

BIAS, NOISE = 3.0, 1.0  # s_b, s_p, µT
MODELS = ("dual_svgp", "solve_gp", "dtc", "fitc", "exact")
PLACES = np.random.default_rng(9).uniform(0.0, 2.0, (15, 2))


def passes(n: int = 60, count: int = 3, seed: int = 0):
    """Places that lie apart, in passes that cross each other: x (n, 2), y (n, 1), pass (n,)."""
    rng = np.random.default_rng(seed)
    side = np.linspace(0.0, 2.0, math.ceil(n**0.5))
    x = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)[rng.permutation(len(side) ** 2)[:n]]
    of = np.sort(rng.integers(0, count, n)).astype(float)
    biases = BIAS * 3.0**0.5 * np.linspace(-1.0, 1.0, count)
    y = 48.0 + 6.0 * np.sin(2.0 * x[:, :1]) + rng.permutation(biases)[of.astype(int)][:, None]
    return x, y + rng.normal(0, NOISE, (n, 1)), of


def judge(x, y, of, noise, number=None, at=PLACES, bias=BIAS, centre=0.0):
    """Mean (K, 1), variance (K,) of the field at `at`, or of what pass `number` measures there."""
    shared = bias**2 * (of[:, None] == of[None]) * (of >= 0)[:, None]
    gram = covariance(x, x, **THETA) + THETA["constant"] ** 2 + shared + np.diag(noise)
    cross = covariance(x, at, **THETA) + THETA["constant"] ** 2
    prior = THETA["signal"] ** 2 + THETA["constant"] ** 2
    if number is not None:
        cross, prior = cross + bias**2 * (of == number)[:, None], prior + bias**2
    solved = np.linalg.solve(gram, np.hstack([y - centre, cross]))
    return cross.T @ solved[:, :1] + centre, prior - (cross * solved[:, 1:]).sum(0)


def mapped(model: str, x, y, of, step: int = 7, inputs=None, **settings):
    """A map of these samples, streamed; its inducing inputs lie at all of them, or at `inputs`."""
    apart = {} if model == "exact" else {"inducing_inputs": x if inputs is None else inputs}
    field = create_map(
        model, **SETTINGS | {"bias_stddev": BIAS * UT, "centre": [48.0 * UT]} | apart | settings
    )
    for i in range(0, len(x), step):
        field.update(batch_of(x[i : i + step], y[i : i + step], of[i : i + step]))
    return field


def batch_of(x, y, of):
    return Samples(x, torch.as_tensor(y) * UT, pass_number=of)


def agrees(told: Prediction, expected, digits: float = 1e-6) -> bool:
    mean, variance = expected
    return bool(
        np.abs(told.mean.numpy() / UT - mean).max() < digits
        and np.abs(told.variance.numpy()[:, 0] / UT**2 - variance).max() < digits
    )


def assert_is(field, x, y, of, noise, **others):
    """Field, and measurements of each pass and of one to come, as the dense GP has them."""
    at = torch.from_numpy(PLACES)
    assert agrees(field.predict(at), judge(x, y, of, noise, centre=48.0, **others))
    for number in (*np.unique(of), 77.0):
        if number >= 0:
            assert agrees(
                field.predict_in_pass(at, number),
                judge(x, y, of, noise, number, centre=48.0, **others),
            )


@pytest.mark.parametrize("model", MODELS)
def test_a_constant_of_each_pass_is_the_dense_gp_with_that_kernel_term(model):
    x, y, of = passes()
    of[::11] = -1.0  # some know no pass
    field = mapped(model, x, y, of)
    assert_is(field, x, y, of, np.full(len(x), NOISE**2))
    assert float(field.bias_variance()) == pytest.approx((BIAS * UT) ** 2, rel=1e-6, abs=0.0)
    told = {b.number: b for b in field.biases()}
    assert sorted(told) == [0.0, 1.0, 2.0]
    # b of a pass is what is measured in it beside the field, where the field is known to be: far from all samples
    far = torch.full((1, 2), 1e4, dtype=torch.float64)
    gap = field.predict_in_pass(far, 1.0).mean - field.predict(far).mean
    assert float(told[1.0].mean) == pytest.approx(float(gap), abs=1e-6 * UT)
    assert float(told[1.0].stddev) < BIAS * UT


@pytest.mark.parametrize("model", MODELS)
def test_what_is_known_of_the_differences_between_passes_is_the_dense_gp_s(model):
    """The field's level is in every constant and in no difference: these are known far better."""
    x, y, of = passes()
    shared = BIAS**2 * (of[:, None] == of[None])
    gram = covariance(x, x, **THETA) + THETA["constant"] ** 2 + shared + NOISE**2 * np.eye(len(x))
    cross = BIAS**2 * (of[:, None] == np.arange(3.0))
    joint = BIAS**2 * np.eye(3) - cross.T @ np.linalg.solve(gram, cross)
    apart = np.eye(3) - 1.0 / 3.0
    expected = np.diag(apart @ joint @ apart) ** 0.5
    told = mapped(model, x, y, of).biases()
    assert np.abs(np.array([float(b.stddev_apart) for b in told]) / UT - expected).max() < 1e-6
    assert (
        np.abs(np.array([float(b.stddev) for b in told]) / UT - np.diag(joint) ** 0.5).max() < 1e-6
    )
    assert all(float(b.stddev_apart) < 0.5 * float(b.stddev) for b in told)


@pytest.mark.parametrize("together", [12, 1])
def test_sums_are_written_out_also_of_features_that_came_later(together):
    """Σ β a, Σ β and Σ λ of each pass, however many samples come together.

    Samples of no pass are in none, and rows that come are bordered.
    """
    generator = torch.Generator().manual_seed(2)
    a = torch.randn(5, 12, dtype=torch.float64, generator=generator)
    beta = torch.rand(12, dtype=torch.float64, generator=generator)
    lam = torch.randn(12, 2, dtype=torch.float64, generator=generator)
    of = torch.tensor([3.0, NO_PASS, 1.0] * 4, dtype=torch.float64)
    weighted, sums = beta * a, PassSums.empty(3, 2, "cpu")
    for i in range(0, 12, together):
        part = slice(i, i + together)
        sums = sums.add(of[part], weighted[:3, part], beta[part], lam[part])
    sums = sums.pad(2)
    assert not bool(sums.whitened[:, 3:].any())
    sums = sums.border(of, weighted[3:])
    assert sorted(sums.numbers) == [1.0, 3.0]
    for row, number in enumerate(sums.numbers):
        mine = [i for i in range(12) if float(of[i]) == number]
        assert torch.allclose(sums.whitened[row], sum(beta[i] * a[:, i] for i in mine))
        assert float(sums.precision[row]) == pytest.approx(sum(float(beta[i]) for i in mine))
        assert torch.allclose(sums.linear[row], sum(lam[i] for i in mine))
    # without passes there is nothing to do
    assert sums.border(None, weighted[3:]) is sums and sums.add(None, weighted, beta, lam) is sums
    nobody = torch.full((12,), NO_PASS, dtype=torch.float64)
    assert sums.add(nobody, weighted, beta, lam) is sums
    assert sums.add(nobody[:1], weighted[:, :1], beta[:1], lam[:1]) is sums


def test_passes_beyond_the_bound_are_integrated_out_and_change_nothing():
    x, y, of = passes(80, 12)
    field = mapped("dual_svgp", x, y, of, max_biases=2)
    at, expected = torch.from_numpy(PLACES), judge(x, y, of, np.ones(len(x)), centre=48.0)
    assert agrees(field.predict(at), expected)
    assert len(field.biases()) == 2 and field.counters()["closed_passes"] == 10
    assert field.biases()[-1].number == 11.0, "the newest pass goes on"
    assert agrees(
        field.predict_in_pass(at, 11.0), judge(x, y, of, np.ones(len(x)), 11.0, centre=48.0)
    )
    assert len(field.remembered_places()) < 80, (
        "of a closed pass no sample can be taken out by itself"
    )


def test_forgetting_other_hyperparameters_and_growth_keep_it_exact():
    x, y, of = passes()
    grown = mapped(
        "dual_svgp",
        x,
        y,
        of,
        inducing_inputs=None,
        inducing_tolerance=1e-5,
        inducing_information=0.0,
        max_inducing=len(x),
        tiles=False,
    )
    assert len(grown.inducing_inputs()) == len(x)
    assert_is(grown, x, y, of, np.ones(len(x)))
    grown.forget(0.25)
    assert_is(grown, x, y, of, np.full(len(x), 4.0))
    assert grown.adopt(replace(grown.theta, bias_stddev=0.5, noise_stddev=2.0))
    assert_is(grown, x, y, of, np.full(len(x), 16.0), bias=0.5)


def test_forgetting_a_place_leaves_the_samples_that_remain():
    x, y, of = passes()
    field = mapped("dual_svgp", x, y, of)
    gone = np.linalg.norm(x - [1.0, 1.0], axis=1) <= 0.5
    assert field.forget_near(torch.tensor([[1.0, 1.0]]), 0.5, 0) == gone.sum() > 3
    assert_is(field, x[~gone], y[~gone], of[~gone], np.ones((~gone).sum()))


@pytest.mark.parametrize("model", ("dual_svgp", "exact"))
def test_two_robots_passes_are_not_the_same_ones(model):
    x, y, of = passes(64)
    first, second = slice(0, 30), slice(30, 64)
    of[second] -= of[second].min()
    one, other = (mapped(model, x[part], y[part], of[part], inputs=x) for part in (first, second))
    one.merge(other)
    of[second] += of[first].max() + 1.0
    assert_is(one, x, y, of, np.ones(len(x)))
    assert one.samples == 64


def test_sums_of_two_are_those_of_all_their_samples():
    """Of passes that one of them has, that both have, and none."""
    draw = torch.Generator().manual_seed(0)
    white, beta, lam = (
        torch.randn(shape, dtype=torch.float64, generator=draw)
        for shape in ((4, 30), (30,), (30, 2))
    )
    of = torch.tensor([0.0] * 8 + [1.0] * 12 + [NO_PASS] * 2 + [7.0] * 8).double()
    none = PassSums.empty(4, 2, "cpu")
    one, other = (
        none.add(of[part], (white * beta)[:, part], beta[part], lam[part])
        for part in (slice(0, 12), slice(12, 30))
    )
    both = one.merge(other)
    assert both.numbers == (0.0, 1.0, 7.0) and one.merge(none) is one
    for i, number in enumerate(both.numbers):
        mine = of == number
        for told, each in (
            (both.whitened[i], (white * beta)[:, mine].sum(1)),
            (both.precision[i], beta[mine].sum()),
            (both.linear[i], lam[mine].sum(0)),
        ):
            assert torch.allclose(told, each, rtol=1e-12)


def test_a_saved_map_and_its_snapshots_know_the_passes():
    x, y, of = passes()
    field = mapped("dual_svgp", x, y, of)
    again = mapped("dual_svgp", x[:1], y[:1], of[:1], inputs=x)
    again.load_state_dict(field.state_dict())
    kept = field.load_snapshot(field.snapshot().state_dict())
    for other in (again, kept):
        assert_is(other, x, y, of, np.ones(len(x)))
    again.update(batch_of(x[:2], y[:2], np.array([2.0, 2.0])))
    assert_is(kept, x, y, of, np.ones(len(x)))
    old = field.state_dict()
    del old["sites"]["passes"]
    with pytest.raises(ValueError, match="older version|not a state"):
        again.load_state_dict(old | {"format": 3})


def test_a_refused_update_leaves_the_sums_of_passes():
    x, y, of = passes()
    field = mapped("dual_svgp", x, y, of)
    before = field.sites.passes
    with pytest.raises(NumericalError):
        field.update(Samples(x[:2], [[1e12], [48 * UT]], pass_number=[2.0, 3.0]))
    assert field.sites.passes is before
    assert_is(field, x, y, of, np.ones(len(x)))


def test_the_evidence_of_other_hyperparameters_knows_the_constants():
    x, y, of = (torch.from_numpy(part) for part in passes(25))
    theta = Theta(0.5, 6.0, 1.0, 20.0, bias_stddev=2.0)
    vector = theta.vector().requires_grad_(True)
    parts = (
        x,
        torch.zeros_like(x),
        torch.zeros_like(x),
        y - 48.0,
        torch.zeros(25, dtype=torch.float64),
    )
    value = 25 * negative_log_evidence(theta, vector, *parts, of)
    (expected,) = torch.autograd.grad(value, vector)
    value = value.detach()
    gradient, information = evidence_score(theta, theta.vector(), [True] * 7, *parts, of)
    assert torch.allclose(gradient, expected, atol=1e-8)
    hot = (of[:, None] == torch.arange(3.0)[None]).double()
    field = theta.kernel()(x, x)
    gram = field + 400.0 + 4.0 * hot @ hot.mT + torch.eye(25)
    assert float(value) == pytest.approx(
        -float(
            torch.distributions.MultivariateNormal(
                torch.zeros(25, dtype=torch.float64), gram
            ).log_prob(y[:, 0] - 48.0)
        ),
        rel=1e-12,
    )
    solved = torch.linalg.solve(gram, field)
    assert float(information[1, 1]) == pytest.approx(
        0.5 * float((solved * solved.mT).sum()), rel=1e-9
    )


@pytest.mark.parametrize("model", ("dual_svgp", "exact"))
@pytest.mark.parametrize("told", (0.01, BIAS, 300.0))
def test_the_spread_of_the_constants_is_that_of_the_evidence_from_any_start(model, told):
    x, y, of = passes(64, 8)
    field = mapped(model, x, y, of, bias_stddev=told * UT)
    evidence = field.posterior.bias_evidence()
    logs = np.linspace(-12.0, 12.0, 2001)

    def value(variance: float) -> float:
        gram = (
            covariance(x, x, **THETA)
            + THETA["constant"] ** 2
            + np.eye(len(x))
            + variance * (of[:, None] == of)
        )
        sign, size = np.linalg.slogdet(gram)
        return -0.5 * (size + (y[:, 0] - 48.0) @ np.linalg.solve(gram, y[:, 0] - 48.0))

    own = evidence.log_likelihood(torch.from_numpy(np.exp(logs))).numpy()
    some = range(0, 2001, 250)
    expected = np.array([value(np.exp(logs[i])) for i in some])
    assert np.allclose(own[list(some)] - own[0], expected - expected[0], atol=1e-5)
    spread = evidence.spread(0.1)
    best = math.exp(0.5 * logs[own.argmax()])
    assert 0.7 < spread.stddev / best < 1.3, (spread, best)
    assert 6.0 < spread.determined < 7.01, "of eight constants seven differences are known"
    assert 1.3 < spread.future_pass_variance / spread.stddev**2 < 1.6, (
        "2.36² over 1.96²: Student's t of seven"
    )


def test_one_pass_says_nothing_of_others():
    x, y, of = passes(40, 1)
    field = mapped(
        "dual_svgp", x, y, of, bias_stddev=0.0, noise_stddev=NOISE * UT, learn_noise=True
    )
    assert field.hyperparameters()["bias_stddev"] == pytest.approx(0.1 * NOISE * UT), (
        "a tenth of the noise"
    )
    assert float(field.bias_variance()) == pytest.approx((0.1 * NOISE * UT) ** 2, rel=1e-6, abs=0.0)


@pytest.mark.parametrize("model", ("dual_svgp", "exact"))
def test_the_spread_is_learned_while_the_map_goes_on_and_kept(model):
    x, y, of = passes(100, 5)
    field = mapped(model, x, y, of, bias_stddev=0.0, learn_noise=True)
    values = np.array([y[of == k].mean() for k in range(5)])
    assert 0.5 * values.std() < field.hyperparameters()["bias_stddev"] / UT < 2.0 * values.std()
    again = mapped(model, x[:1], y[:1], of[:1], inputs=x, bias_stddev=0.0, learn_noise=True)
    again.load_state_dict(field.state_dict())
    assert torch.equal(again.bias_variance(), field.bias_variance())


def test_a_model_without_such_constants_says_so():
    with pytest.raises(ValueError, match="bias_stddev: model 'pic'"):
        create_map("pic", bias_stddev=1e-6)
    assert create_map("pic").hyperparameters()["bias_stddev"] == 0.0


@pytest.mark.parametrize("degrees", (1.0, 2.0, 4.0, 7.3, 49.0))
def test_few_passes_widen_the_interval_of_one_to_come_as_student_s_distribution(degrees):
    widened = (stats.t.ppf(0.975, degrees) / stats.norm.ppf(0.975)) ** 2
    assert BiasSpread(2.0, degrees).future_pass_variance == pytest.approx(4.0 * widened, rel=0.02)
    assert BiasSpread(2.0, 0.0).future_pass_variance == pytest.approx(4.0), (
        "the prior alone is believed"
    )

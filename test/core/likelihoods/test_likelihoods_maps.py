"""Maps of classes, counts and gross errors: against dense variational inference, and as streams.

What they are made of: gp_mapping.core.models.dual_svgp.natural_gradient,
gp_mapping.core.models.dual_svgp.growing and gp_mapping.core.models.dual_svgp.merging, and
gp_mapping.core.hyper.pseudo_data for hyper-parameters.
"""

import copy
import math

import numpy as np
import pytest
import torch
from likelihood_maps import BASE, KINDS, LIMITS, METRIC, PLACES, build, data, settle, stream

from gp_mapping import FieldMap, MapSettings
from gp_mapping.core.likelihoods import make_likelihood


def prior_of(x, lengthscale=None, signal=None):
    """Matérn-5/2 + s_c², (n, n)."""
    ell, s = lengthscale or BASE["lengthscale"], signal or BASE["signal_stddev"]
    r = torch.cdist(x, x) * (math.sqrt(5.0) / ell)
    return s**2 * (1 + r + r * r / 3) * torch.exp(-r) + BASE["constant_stddev"] ** 2


def dense(kind, x, y, start=None):
    """max ELBO over q = Π_c N(m_c, V) by L-BFGS on m and chol V, whitened by the prior: ELBO, m (n, C), diag V (n,)."""
    like = make_likelihood(build_settings(kind))
    x, coded = torch.from_numpy(x), like.encode(torch.from_numpy(y))
    factor = torch.linalg.cholesky(prior_of(x))
    n, channels = coded.shape
    m, low = (
        torch.zeros(n, channels, dtype=torch.float64),
        torch.eye(n, dtype=torch.float64).mul(0.3),
    )
    if start is not None:  # where optima are many
        m, low = torch.linalg.solve(factor, start[0]), torch.linalg.solve(factor, start[1])
    m, low = m.contiguous().requires_grad_(True), low.contiguous().requires_grad_(True)
    optimiser = torch.optim.LBFGS(
        [m, low],
        max_iter=200,
        tolerance_grad=1e-8,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
        history_size=60,
    )

    def parts():
        return factor @ m, (factor @ low.tril()).square().sum(1)

    def loss():
        optimiser.zero_grad()
        mean, variance = parts()
        energy = like.expected_log_prob(
            coded, mean, variance, torch.full((n,), 0.09).double()
        ).sum()
        lower = low.tril()
        divergence = 0.5 * (
            m.square().sum()
            + channels * (lower.square().sum() - n - 2 * lower.diagonal().abs().log().sum())
        )
        value = divergence - energy
        value.backward()
        return value

    value = optimiser.step(loss)
    value = loss()
    with torch.no_grad():
        return -float(value), *parts()


def build_settings(kind):
    low, high = LIMITS
    return MapSettings(likelihood=kind, classes=3, lower_limit=low, upper_limit=high)


@pytest.mark.parametrize("kind", KINDS)
def test_sweeps_end_at_the_batch_optimum(kind):
    """Streamed in pieces, all remembered, z = x: equal to the dense variational optimum."""
    x, y = data(kind, 10, noise=0.15)
    field = stream(build(kind, inducing_inputs=x), x, y, 5)
    settle(field)
    got = field.predict(torch.from_numpy(x))
    start = None
    if kind == "student_t":
        spread = field.covariance(torch.from_numpy(x), torch.from_numpy(x))
        start = got.mean + 0.01, torch.linalg.cholesky(spread)
    _, mean, variance = dense(kind, x, y, start)
    assert float((got.mean - mean).abs().max()) < 1e-6
    assert float((got.variance[:, 0] - variance).abs().max()) < 1e-6


def test_softmax_with_one_variance_is_close_to_one_with_many():
    """The family q = Π N(m_c, V) against Π N(m_c, V_c), by L-BFGS on each: what sharing costs."""
    x, y = data("softmax", 10)
    like = make_likelihood(build_settings("softmax"))
    shared = dense("softmax", x, y)
    x, coded = torch.from_numpy(x), like.encode(torch.from_numpy(y))
    factor = torch.linalg.cholesky(prior_of(x))
    m = torch.linalg.solve(factor, shared[1]).contiguous().requires_grad_(True)
    low = torch.eye(10, dtype=torch.float64).mul(0.5).expand(3, 10, 10).clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([m, low], max_iter=150, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        lower = low.tril()
        variance = (factor @ lower).square().sum(2).mT
        energy = (coded * (factor @ m)).sum() - like._moments(factor @ m, variance, False)[2].sum()
        value = (
            0.5
            * (
                m.square().sum()
                + lower.square().sum()
                - 30
                - 2 * lower.diagonal(dim1=1, dim2=2).abs().log().sum()
            )
            - energy
        )
        value.backward()
        return value

    optimiser.step(loss)
    gap = -float(loss()) - shared[0]
    assert -1e-6 < gap < 0.2  # nats, of 10 samples
    p = like.observable(shared[1], shared[2][:, None].expand(-1, 3))[0]
    q = like.observable((factor @ m).detach(), (factor @ low.tril()).square().sum(2).mT.detach())[0]
    assert float((p - q).abs().max()) < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_a_stream_washes_out(kind):
    x, y = data(kind, 40, seed=1)
    order = np.random.default_rng(0).permutation(40)
    one, other = stream(build(kind), x, y), stream(build(kind), x[order], y[order])
    streamed = one.predict(PLACES)
    for field in (one, other):
        settle(field, 1e-4)
    a, b = one.predict(PLACES), other.predict(PLACES)
    assert float((a.mean - b.mean).abs().max()) < 0.02 and torch.allclose(
        a.variance, b.variance, rtol=0.03
    )
    # what a stream leaves without any further sweep is already close
    assert float((streamed.mean - a.mean).abs().max()) < 0.25


@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp"])
@pytest.mark.parametrize("kind", KINDS)
def test_contract(kind, model, tmp_path):
    """A map like every other: resume, fantasy, forgetting, refusals, bounded memory."""
    x, y = data(kind, 60, seed=2)
    small = {
        "memory_size": 30,
        "max_inducing": 20,
        "inducing_tolerance": 1e-3,
        "inducing_information": 0.0,
        "learn_hyperparameters": True,
    }
    straight, first, resumed = (build(kind, model, **small) for _ in range(3))
    assert isinstance(straight, FieldMap)
    for field in (straight, first):
        stream(field, x[:40], y[:40])
        field.refine(math.inf)
    state = copy.deepcopy(first.state_dict())
    resumed.load_state_dict(state)
    for field in (straight, resumed):
        stream(field, x[40:], y[40:])
        field.refine(math.inf)
    a, b = straight.predict(PLACES), resumed.predict(PLACES)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)
    assert len(straight.memory) <= 30 and straight.samples == 60 and straight.jitter == 0.0
    assert bool((straight.memory.beta >= 0).all()) and bool(torch.isfinite(a.mean).all())
    fantasy = straight.fantasize(PLACES[:3])
    after = fantasy.predict(PLACES)
    assert float((after.mean - a.mean).abs().max()) < 1e-6
    assert bool((after.variance <= a.variance * (1 + 1e-6)).all())
    assert float(after.variance[0, 0]) < float(a.variance[0, 0])
    fantasy.forget(0.5)
    assert bool((fantasy.predict(PLACES).variance >= after.variance * (1 - 1e-9)).all())
    seen = straight.observable(PLACES)
    assert seen.mean.shape == a.mean.shape and bool((seen.variance >= 0).all())
    if kind == "softmax":
        assert float((seen.mean.sum(1) - 1).abs().max()) < 1e-6
    with pytest.raises(ValueError, match="likelihood"):
        straight.load_state_dict(build("gaussian", model, **small).state_dict())
    with pytest.raises(ValueError, match="merge"):
        straight.merge(
            stream(build("gaussian", model, **small), x, np.zeros((60, a.mean.shape[1])))
        )


@pytest.mark.parametrize("kind", KINDS)
def test_merge_is_the_union(kind):
    x, y = data(kind, 40, seed=4)
    left, right = stream(build(kind), x[:20], y[:20]), stream(build(kind), x[20:], y[20:])
    left.merge(right)
    union = stream(build(kind), x, y)
    for field in (left, union):
        settle(field, 1e-4)
    a, b = left.predict(PLACES), union.predict(PLACES)
    assert float((a.mean - b.mean).abs().max()) < 0.02 and torch.allclose(
        a.variance, b.variance, rtol=0.03
    )


@pytest.mark.parametrize("kind", KINDS)
def test_hyperparameters_climb_the_evidence_bound(kind):
    """The learner's gradient on pseudo-data is the slope of the ELBO at its optimum: q held (envelope theorem)."""
    x, y = data(kind, 14, seed=6, noise=0.15)
    field = stream(build(kind, inducing_inputs=x, learn_hyperparameters=True), x, y)
    settle(field)
    gradient, information = field.learner.score(
        field.learner.vector, field.learning_data(), torch.arange(14)
    )
    like, x, coded = (
        field.likelihood,
        torch.from_numpy(x),
        field.likelihood.encode(torch.from_numpy(y)),
    )
    mean, spread = field.predict(x).mean, field.covariance(x, x)
    channels = mean.shape[1]

    def bound(lengthscale=0.8, signal=1.5, noise=0.3):
        prior = prior_of(x, lengthscale, signal)
        inverse = torch.linalg.inv(prior)
        divergence = 0.5 * (
            (mean * (inverse @ mean)).sum()
            + channels * ((inverse * spread).sum() + torch.logdet(prior))
        )
        energy = like.expected_log_prob(
            coded, mean, spread.diagonal(), torch.full((14,), noise**2).double()
        )
        return float(energy.sum() - divergence)

    for k, name, centre, power in (
        (0, "lengthscale", 0.8, 1.0),
        (1, "signal", 1.5, 0.5),
        (2, "noise", 0.3, 0.5),
    ):
        if not field.learner.free[k]:
            assert name == "noise" and kind not in METRIC
            continue
        ends = [bound(**{name: centre * math.exp(power * step)}) for step in (1e-4, -1e-4)]
        slope = -(ends[0] - ends[1]) / 2e-4 / channels
        assert float(gradient[k]) == pytest.approx(slope, rel=1e-3, abs=1e-4), name
    assert float(torch.linalg.eigvalsh(information[:3, :3])[0]) > -1e-9

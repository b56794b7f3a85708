"""SOLVE-GP (Shi et al. 2020) against its formulas in NumPy, the dual SVGP and Titsias' SGPR."""

import copy

import numpy as np
import pytest
import torch
from core_data import (
    SETTINGS,
    THETA,
    UT,
    close,
    covariance,
    drive,
    feed,
    in_ut,
    lattice,
    samples,
    titsias,
)
from map_contract import PLACES, MapContract, same_state

from gp_mapping import create_map
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.solve_gp.mean import solve_blocks
from gp_mapping.core.models.solve_gp.model import SolveGP
from gp_mapping.core.types import Samples

INNER = Theta(0.5, 10.0, 1.0, 20.0)
Z, O = lattice(1.0), lattice(1.0, 2.0) + 0.5
CONSTANT = 20.0


def fixed(**settings) -> SolveGP:
    return SolveGP(
        INNER, inducing_inputs=Z, orthogonal_inputs=O, scale=UT, centre=[48 * UT], **settings
    )


def with_constant(left, right):
    """K_u·: the constant beside k(z, ·)."""
    return np.vstack([np.full((1, len(right)), CONSTANT**2), covariance(left, right, **THETA)])


def by_the_notes(x, y, noise, xs, prior_v=False):
    """Mean (K, C), covariance (K, K) by the unwhitened formulas, term by term. u = [w, g(z)]."""
    k_uu = np.zeros((len(Z) + 1, len(Z) + 1))
    k_uu[0, 0], k_uu[1:, 1:] = CONSTANT**2, covariance(Z, Z, **THETA)

    def c(left, right):
        full = covariance(left, right, **THETA) + CONSTANT**2
        return full - with_constant(Z, left).T @ np.linalg.solve(k_uu, with_constant(Z, right))

    c_vv = c(O, O)
    a, b = np.linalg.solve(k_uu, with_constant(Z, x)), np.linalg.solve(c_vv, c(O, x))
    beta = np.diag(1 / noise)
    s_u = np.linalg.inv(np.linalg.inv(k_uu) + a @ beta @ a.T)
    s_v = c_vv if prior_v else np.linalg.inv(np.linalg.inv(c_vv) + b @ beta @ b.T)
    system = np.block(
        [
            [np.linalg.inv(k_uu) + a @ beta @ a.T, a @ beta @ b.T],
            [b @ beta @ a.T, np.linalg.inv(c_vv) + b @ beta @ b.T],
        ]
    )
    m = np.linalg.solve(system, np.vstack([a, b]) @ beta @ y)
    a_s, b_s = np.linalg.solve(k_uu, with_constant(Z, xs)), np.linalg.solve(c_vv, c(O, xs))
    prior = covariance(xs, xs, **THETA) + CONSTANT**2
    spent_u = with_constant(Z, xs).T @ np.linalg.solve(k_uu, with_constant(Z, xs))
    spent_v = c(O, xs).T @ np.linalg.solve(c_vv, c(O, xs))
    return np.vstack(
        [a_s, b_s]
    ).T @ m, prior - spent_u + a_s.T @ s_u @ a_s - spent_v + b_s.T @ s_v @ b_s


@pytest.fixture(scope="module")
def data():
    x, y = drive(150)
    noise = np.random.default_rng(4).uniform(0.5, 2.0, 150)
    return x, y, noise, samples(x, y, noise_variance=noise)


@pytest.mark.parametrize(
    "exactly", [{}, {"direct": 0, "solve_tolerance": 1e-12}], ids=["direct", "iterated"]
)
@pytest.mark.parametrize("prior_v", [False, True], ids=["SOLVE-GP", "ODVGP"])
def test_mean_and_covariance_are_those_of_the_notes(data, exactly, prior_v):
    x, y, noise, batch = data
    field = fixed(orthogonal_covariance=not prior_v, **exactly)
    feed(field, batch, 40)
    mean, spread = by_the_notes(x, y - 48, noise, PLACES.numpy(), prior_v)
    close(field.predict(PLACES).mean / UT - 48, mean, 1e-8, "mean")
    close(field.covariance(PLACES, PLACES) / UT**2, spread, 1e-8, "covariance")
    close(field.predict(PLACES).variance[:, 0] / UT**2, np.diag(spread), 1e-8, "variance")


@pytest.mark.parametrize(
    "exactly", [{}, {"direct": 0, "solve_tolerance": 1e-12}], ids=["direct", "iterated"]
)
def test_the_mean_is_that_of_an_svgp_on_both_sets(data, exactly):
    x, y, noise, batch = data
    field = fixed(**exactly)
    feed(field, batch, 40)
    mean, variance = titsias(x, y - 48, noise, np.vstack([Z, O]), PLACES.numpy(), **THETA)
    close(field.predict(PLACES).mean / UT - 48, mean, 1e-8, "mean")
    assert np.abs(np.sqrt(in_ut(field.predict(PLACES))[1][:, 0] / variance) - 1).max() > 1e-3, (
        "no difference at all"
    )


def test_without_orthogonal_inputs_it_is_titsias(data):
    x, y, noise, batch = data
    field = SolveGP(INNER, inducing_inputs=Z, scale=UT, centre=[48 * UT])
    feed(field, batch, 40)
    mean, variance = titsias(x, y - 48, noise, Z, PLACES.numpy(), **THETA)
    close(field.predict(PLACES).mean / UT - 48, mean, 1e-8, "mean")
    close(field.predict(PLACES).variance[:, 0] / UT**2, variance, 1e-8, "variance")


def test_without_orthogonal_inputs_the_stream_is_the_dual_svgp_s():
    """The budget overflows, the memory too, θ is learned: every path, bit for bit."""
    x, y = drive(200)
    settings = SETTINGS | {"max_inducing": 25, "memory_size": 60, "learn_hyperparameters": True}
    maps = create_map("solve_gp", max_orthogonal=0, **settings), create_map("dual_svgp", **settings)
    for field in maps:
        for i in range(0, 200, 10):
            field.update(samples(x[i : i + 10], y[i : i + 10]))
            field.refine()
    mine, its = (field.predict(PLACES) for field in maps)
    assert torch.equal(mine.mean, its.mean) and torch.equal(mine.variance, its.variance)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_block_solution(channels):
    g = torch.Generator().manual_seed(0)
    a = torch.randn(60, 90, dtype=torch.float64, generator=g)
    precision = torch.eye(60).double() + a @ a.mT
    linear = torch.randn(60, channels, dtype=torch.float64, generator=g)
    linear[:, 1:2] *= 1e-9  # a column that is as good as solved must not spoil the others
    factors = [torch.linalg.cholesky(block) for block in (precision[:25, :25], precision[25:, 25:])]
    expected = torch.linalg.solve(precision, linear)
    nothing = torch.zeros_like(linear)
    exact, steps = solve_blocks(precision, linear, *factors, nothing, 1e-12, 200)
    close(exact, expected, 1e-10, "weights")
    assert 0 < steps < 100 and solve_blocks(precision, linear, *factors, exact, 1e-9, 200)[1] == 0
    # as many steps as it takes, and one fewer
    for given, told in ((steps, steps), (steps - 1, -1), (3, -1)):
        assert solve_blocks(precision, linear, *factors, nothing, 1e-12, given)[1] == told
    # the bound of the docstring, in the norm in which it is stated
    cross = torch.linalg.solve_triangular(factors[0], precision[:25, 25:], upper=False)
    largest = torch.linalg.svdvals(
        torch.linalg.solve_triangular(factors[1], cross.mT, upper=False)
    )[0]
    for tolerance in (1e-1, 1e-3):
        error = solve_blocks(precision, linear, *factors, nothing, tolerance, 200)[0] - expected
        norm = (error * (precision @ error)).sum(0).sqrt()
        assert float(norm.max()) <= tolerance / float((1 - largest**2).sqrt())


def test_a_channel_that_is_zero_keeps_no_other_from_its_solution():
    """Exactly zero, as of a channel that is at its centre everywhere; and one that is solved at the start."""
    a = torch.randn(60, 90, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    precision, linear = torch.eye(60).double() + a @ a.mT, a[:, :1]
    factors = [torch.linalg.cholesky(block) for block in (precision[:25, :25], precision[25:, 25:])]
    alone, steps = solve_blocks(precision, linear, *factors, torch.zeros_like(linear), 1e-9, 200)
    zero = torch.zeros_like(linear)
    weights, taken = solve_blocks(
        precision, torch.cat([linear, zero], 1), *factors, torch.zeros(60, 2).double(), 1e-9, 200
    )
    assert taken == steps > 1 and torch.allclose(weights[:, :1], alone, rtol=1e-12)
    assert not bool(weights[:, 1].any())


def streamed(n=200, every=10, orthogonal=40, **settings) -> SolveGP:
    field = SolveGP(
        INNER, max_inducing=25, max_orthogonal=orthogonal, tolerance=1e-3, scale=UT, **settings
    )
    x, y = drive(n, seed=2)
    feed(field, samples(x, y), every)
    return field


def test_orthogonal_inputs_come_when_the_first_set_is_full_and_bring_the_map_nearer_to_the_whole():
    both, alone = streamed(), streamed(orthogonal=0)
    whole = create_map(
        "dual_svgp",
        **(
            SETTINGS | {"max_inducing": 65, "inducing_tolerance": 1e-3, "inducing_information": 0.0}
        ),
    )
    x, y = drive(200, seed=2)
    feed(whole, samples(x, y), 10)
    assert both.split == both.basis.features + 25 < both.basis.size and torch.equal(
        both.basis.z, whole.basis.z
    )
    places = torch.from_numpy(x[::5])
    expected = whole.predict(places)
    assert torch.allclose(both.predict(places).mean, expected.mean, rtol=1e-9, atol=0.0)
    ratio = [
        float((f.predict(places).stddev / expected.stddev).log().abs().mean())
        for f in (both, alone)
    ]
    assert ratio[0] < 0.25 * ratio[1], (
        ratio
    )  # .13 to .70 with batches of 1, 3, 7 and 10: two blocks are not the whole


def test_iterations_in_a_stream_stay_within_their_tolerance_and_begin_where_they_ended():
    exact, quick = streamed(), streamed(direct=0, solve_tolerance=1e-3)
    a, b = exact.predict(PLACES), quick.predict(PLACES)
    assert exact.solve_steps == 0 and 0 <= quick.solve_steps < 20
    assert float(((a.mean - b.mean).abs() / a.stddev).max()) < 0.01
    assert torch.allclose(a.variance, b.variance, rtol=1e-9, atol=0.0)


def test_what_data_say_of_the_passes_is_of_both_sets_together():
    x, y = drive(240, seed=3)
    of = np.repeat(np.arange(4.0), 60)
    y = y + 0.4 * np.random.default_rng(1).normal(size=4)[of.astype(int), None]
    wanted = {"inducing_tolerance": 1e-3, "inducing_information": 0.0, "learn_noise": True}
    both, whole = (
        create_map(model, **SETTINGS | wanted | {"centre": [48 * UT]} | budgets)
        for model, budgets in (
            ("solve_gp", {"max_inducing": 25, "max_orthogonal": 40}),
            ("dual_svgp", {"max_inducing": 65}),
        )
    )
    for i in range(0, len(x), 20):
        part = Samples(
            x[i : i + 20], torch.as_tensor(y[i : i + 20]) * UT, pass_number=of[i : i + 20]
        )
        both.update(part)
        whole.update(part)

    assert both.basis.size > both.split and torch.equal(both.basis.z, whole.basis.z)
    told, expected = (field.joint_posterior.pass_evidence() for field in (both, whole))
    assert torch.allclose(told.precision, expected.precision, rtol=1e-7, atol=1e-7)
    assert torch.allclose(told.linear, expected.linear, rtol=1e-7, atol=1e-6)
    # two independent blocks would say that constants of any size explain the data
    learned = [field.hyperparameters()["bias_stddev"] for field in (both, whole)]
    assert learned[0] == pytest.approx(learned[1], rel=1e-6, abs=0.0)


def test_a_question_does_not_change_what_comes_after():
    asked, silent = (
        SolveGP(
            INNER,
            max_inducing=25,
            max_orthogonal=40,
            tolerance=1e-3,
            scale=UT,
            direct=0,
            memory_size=50,
        )
        for _ in range(2)
    )
    x, y = drive(200, seed=2)
    for i in range(0, 200, 10):
        for field in (asked, silent):
            field.update(samples(x[i : i + 10], y[i : i + 10]))
            if i == 120:
                field.forget(0.9)
        asked.predict(PLACES)
        asked.fantasize(PLACES[:2])
    assert same_state(asked.state_dict(), silent.state_dict())


def test_a_fantasy_keeps_an_iterated_mean_too():
    field = streamed(direct=0, solve_tolerance=1e-2)
    before = field.predict(PLACES)
    after = field.fantasize(PLACES[:4]).predict(PLACES)
    assert float((after.mean - before.mean).abs().max()) < 1e-9 * float(before.mean.abs().max())
    assert bool((after.variance <= before.variance * (1 + 1e-9)).all())


def test_the_stream_resumes_bit_for_bit_while_it_iterates():
    x, y = drive(200, seed=2)
    settings = {
        "max_inducing": 25,
        "max_orthogonal": 40,
        "tolerance": 1e-3,
        "scale": UT,
        "direct": 0,
    }
    straight, resumed = SolveGP(INNER, **settings), SolveGP(INNER, **settings)
    feed(straight, samples(x[:150], y[:150]), 10)
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    for field in (straight, resumed):
        feed(field, samples(x[150:], y[150:]), 10)
    assert straight._start is not None and same_state(straight.state_dict(), resumed.state_dict())
    other = SolveGP(INNER, **(settings | {"max_inducing": 20, "max_orthogonal": 45}))
    with pytest.raises(ValueError, match="first is 25 in the state and 20"):
        other.load_state_dict(straight.state_dict())


def test_orthogonal_inputs_alone_are_refused():
    with pytest.raises(ValueError, match="give both"):
        SolveGP(INNER, orthogonal_inputs=O)


@pytest.mark.parametrize("model", ["direct", "iterated"])
class TestContractWithOrthogonalInputs(MapContract):
    """The contract of every map where the second set is in use, and most of what is known is in it."""

    def build(self, model, device, **settings):
        field = create_map(
            "solve_gp",
            device=device,
            **(SETTINGS | {"max_inducing": 8, "max_orthogonal": 392} | settings),
        )
        if model == "iterated":
            field.direct, field.solve_tolerance = 0, 1e-12
        return field

    def test_fantasy_keeps_the_mean_and_shrinks_the_variance(self, model, device):
        """One measurement shrinks each of the two independent parts by itself: no more is promised by q(u) q(v_⊥)."""
        field = self.built(model, device)
        before, at = copy.deepcopy(field.state_dict()), PLACES[:3]
        old, fantasy = field.predict(PLACES), field.fantasize(at)
        new = fantasy.predict(PLACES)
        assert float((new.mean - old.mean).abs().max()) < 1e-9 * float(old.mean.abs().max())
        assert bool((new.variance <= old.variance * (1 + 1e-9)).all())
        posterior, noise = field.posterior, old.noise_variance[0] / UT**2
        half = posterior.solve_root(posterior.whitened(field.scaling.inner_x(at)))
        u = half[: field.split].square().sum(0)
        v = old.variance[:3, 0] / UT**2 - u
        limit = u * noise / (u + noise) + v * noise / (v + noise)
        assert bool((new.variance[:3, 0] / UT**2 <= limit * (1 + 1e-6)).all())
        assert same_state(before, field.state_dict()), "the original changed"

    def test_merge_with_nothing_and_into_nothing(self, model, device):
        """In another map the same inputs may fall into the other set: the mean is the same, the stddev about so."""
        field, empty = (
            build(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
            for build in (self.built, self.build)
        )
        before = copy.deepcopy(field.state_dict())
        field.merge(self.build(model, device))
        assert same_state(before, field.state_dict())
        empty.merge(field)
        got, expected = empty.predict(PLACES), field.predict(PLACES)
        assert float((got.mean - expected.mean).abs().max()) < 0.05 * UT
        assert float((got.stddev / expected.stddev).log().abs().max()) < 0.3


def test_the_setting_is_odvgp():
    """orthogonal_covariance: false keeps the mean and leaves the second set's variance at the prior's."""
    x, y = drive(150)
    told = {}
    for own in (True, False):
        field = create_map(
            "solve_gp",
            orthogonal_covariance=own,
            max_inducing=8,
            max_orthogonal=60,
            learn_bias=False,
            **SETTINGS,
        )
        field.update(samples(x, y))
        told[own] = field.predict(torch.from_numpy(x))
    close(told[True].mean, told[False].mean, 1e-8)
    wider = told[False].variance / told[True].variance
    assert float(wider.min()) > 1 - 1e-9 and float(wider.max()) > 1.5, wider


@pytest.mark.parametrize("other", [None, Theta(0.8, 5.0, 1.0, 20.0)])
def test_inputs_that_are_placed_make_room_and_the_sums_of_samples_there_are_the_map(other):
    """As the offline fit does: samples in inner units, inputs, sites of all samples at once."""
    x, y = drive(90)
    field = SolveGP(INNER, max_inducing=20, max_orthogonal=180, scale=UT, centre=[48 * UT])
    inner = field.prepare(samples(x, y))
    assert np.allclose(inner.y.numpy(), y - 48.0) and len(field.basis) == 0
    z = field.scaling.inner_x(torch.from_numpy(np.vstack([Z, O])))
    field.place_inputs(z, other)
    before = field.posterior.z
    field.place_inputs(z[1:], other)
    assert len(before) == len(z) == len(field.posterior.z) + 1, "it is of the new inputs"
    field.place_inputs(z, other)
    theta = other or INNER
    assert field.theta == theta and len(field.basis) == len(z)
    assert field.sites.size == field.basis.size == len(z) + 1
    assert field.max_inducing == 200 and field.split == 21
    whitened = field.basis.whitened(inner.x)
    gram = (whitened.mT @ whitened).numpy()
    k = covariance(x, np.vstack([Z, O]), "matern52", theta.lengthscale, theta.signal_stddev)
    kzz = covariance(*(np.vstack([Z, O]),) * 2, "matern52", theta.lengthscale, theta.signal_stddev)
    assert np.allclose(gram, k @ np.linalg.solve(kzz, k.T) + CONSTANT**2, atol=1e-4)


def test_iterations_that_do_not_converge_are_not_tried_in_the_next_eight_updates(monkeypatch):
    """Where they do, each update iterates; a factorisation of all of D gives the same weights."""
    tried, converges = [], [True]

    def solve(precision, linear, *others):
        tried.append(field.samples)
        return torch.linalg.solve(precision, linear), 3 if converges[0] else -1

    monkeypatch.setattr("gp_mapping.core.models.solve_gp.model.solve_blocks", solve)
    field = SolveGP(INNER, max_inducing=25, max_orthogonal=40, tolerance=1e-3, scale=UT, direct=0)
    x, y = drive(200, seed=2)
    feed(field, samples(x[:100], y[:100]), 10)  # the second set of inputs is in use by then
    tried.clear()
    feed(field, samples(x[100:110], y[100:110]), 5)
    assert len(tried) == 2 and field.solve_steps == 3

    converges[0] = False
    feed(field, samples(x[110:115], y[110:115]), 5)
    converges[0] = True
    told = feed(field, samples(x[115:155], y[115:155]), 5)
    assert len(told) == 8 and len(tried) == 3 and field.solve_steps == 0
    feed(field, samples(x[155:165], y[155:165]), 5)
    assert len(tried) == 5 and field.solve_steps == 3

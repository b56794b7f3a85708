"""The vector field: kernels against differences of potentials, the map against dense algebra, curl and divergence."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, feed, samples
from curl_free_world import dipoles, drive
from map_contract import PLACES, PRIOR_VARIANCE, same_state

from gp_mapping import MapSettings, Samples, create_map
from gp_mapping.core.hyper.vector_theta import VectorTheta
from gp_mapping.core.kernels.curl_free import CurlFreeKernel, HarmonicKernel, to_rows
from gp_mapping.mapping.session import MapSession

POTENTIALS = ("harmonic", "free")


def built(potential="harmonic", n=60, **settings):
    field = create_map("curl_free", potential=potential, **(SETTINGS | settings))
    feed(field, samples(*drive(n)), 20)
    return field


def potential_covariance(kind, a, b, ell=0.7, gamma=0.4):
    """k_φ(a, b) at two points (3,), whose mixed second derivatives are the kernel, s = 1."""
    d = a - b
    if kind == "free":  # of an RBF
        return ell**2 * math.exp(-0.5 * (d @ d) / ell**2)
    depth, total = math.sqrt(6.0) * ell, 0.0
    for side, share in ((1, (1 + gamma) / 2), (-1, (1 - gamma) / 2)):
        h = depth + side * (a[2] + b[2])
        total += share * 0.5 * depth**3 / math.sqrt(d[0] ** 2 + d[1] ** 2 + h**2)
    return total


@pytest.mark.parametrize("plane", [True, False])
@pytest.mark.parametrize("kind", POTENTIALS)
def test_the_kernel_is_the_potentials_second_derivative(kind, plane):
    rng, step = np.random.default_rng(0), 1e-3
    a, b = rng.normal(0, 0.4, (3, 3)), rng.normal(0, 0.4, (2, 3))
    if plane:
        a[:, 2] = b[:, 2] = 0.0
    kernel = CurlFreeKernel(1.0, 0.7, "rbf") if kind == "free" else HarmonicKernel(1.0, 0.7, 0.4)
    width = 2 if plane else 3
    rows = [to_rows(torch.from_numpy(p[:, :width])) for p in (a, b)]
    got = kernel(*rows).reshape(3, 3, 2, 3).numpy()
    e = step * np.eye(3)
    for i, c, j, d in np.ndindex(3, 3, 2, 3):
        f = [
            potential_covariance(kind, a[i] + s * e[c], b[j] + t * e[d])
            for s in (1, -1)
            for t in (1, -1)
        ]
        assert got[i, c, j, d] == pytest.approx(
            (f[0] - f[1] - f[2] + f[3]) / (4 * step**2), abs=2e-5
        )
    own = kernel(rows[0], rows[0])
    assert torch.allclose(own.diagonal(), kernel.diag(rows[0])) and torch.allclose(own, own.mT)


@pytest.mark.parametrize("name", ["rbf", "matern32", "matern52"])
def test_every_kernel_is_positive(name):
    x = to_rows(torch.from_numpy(np.random.default_rng(1).uniform(0, 2, (60, 2))))
    for kernel in (
        CurlFreeKernel(2.0, 0.5, name),
        *(HarmonicKernel(2.0, 0.3, g) for g in (-1.0, 0.0, 0.9)),
    ):
        assert float(torch.linalg.eigvalsh(kernel(x, x))[0]) > -1e-9
    with pytest.raises(ValueError, match="matern32"):
        CurlFreeKernel(1.0, 1.0, "matern12")
    with pytest.raises(ValueError, match="sources"):
        space = to_rows(torch.tensor([[0.0, 0.0, -1.0]], dtype=torch.float64))
        HarmonicKernel(1.0, 0.5)(space, space)


@pytest.mark.parametrize("kind", POTENTIALS)
def test_equal_to_the_exact_gp_of_three_components(kind):
    """All samples' rows may become inducing: then it is Gaussian regression on 3n numbers, to rounding."""
    x = np.random.default_rng(4).uniform(0, 3, (40, 2))
    y = dipoles(x)
    field = create_map("curl_free", potential=kind, inducing_information=0.0, **SETTINGS)
    field.rows.tolerance = 1e-12
    feed(field, samples(x, y), 10)
    theta, centre = field.theta, np.sort(y[:10], 0)[4]  # the median of ten, the lower one
    at, there = to_rows(torch.from_numpy(x)), to_rows(PLACES)
    kernel, same = (
        theta.kernel(),
        lambda p, q: (p[:, -1:] == q[:, -1]).double() * theta.constant_stddev**2,
    )
    gram = (
        kernel(at, at) + same(at, at) + torch.eye(120, dtype=torch.float64) * theta.noise_stddev**2
    )
    cross = kernel(at, there) + same(at, there)
    target = torch.from_numpy((y - centre).reshape(-1, 1))
    mean = (cross.mT @ torch.linalg.solve(gram, target)).reshape(-1, 3).numpy() + centre
    joint = kernel(there, there) + same(there, there) - cross.mT @ torch.linalg.solve(gram, cross)
    got = field.predict(PLACES)
    assert np.abs(got.mean.numpy() / UT - mean).max() < 1e-8 * np.abs(mean).max()
    assert (
        np.abs(got.variance.numpy().ravel() / UT**2 - joint.diagonal().numpy()).max()
        < 1e-8 * PRIOR_VARIANCE
    )
    shift = torch.tensor([12.3, -7.0], dtype=torch.float64)
    elsewhere = copy.deepcopy(field)
    elsewhere.move(torch.eye(2, dtype=torch.float64), shift)  # the same vectors, elsewhere
    moved = elsewhere.predict(PLACES + shift)
    assert np.abs(moved.mean.numpy() / UT - mean).max() < 1e-8 * np.abs(mean).max()
    assert torch.allclose(moved.variance, got.variance, rtol=1e-8, atol=0.0)
    cov = field.cross_covariance(PLACES[:5], PLACES).numpy().reshape(15, -1) / UT**2
    assert np.abs(cov - joint[:15].numpy()).max() < 1e-8 * PRIOR_VARIANCE
    local = field.posterior.local(PLACES)[1].numpy() / UT**2
    blocks = joint.reshape(40, 3, 40, 3).numpy()[range(40), :, range(40)]
    assert np.abs(local - blocks).max() < 1e-8 * PRIOR_VARIANCE


def test_merged_about_another_centre_it_is_the_map_of_both():
    """Also what is not remembered of the other one: its targets are about its own centre."""
    x = np.random.default_rng(6).uniform(0, 3, (30, 2))
    y = dipoles(x)
    maps = []
    for part, memory in ((slice(0, 15), 2000), (slice(15, 30), 6), (slice(0, 30), 2000)):
        field = create_map("curl_free", inducing_information=0.0, memory_size=memory, **SETTINGS)
        field.rows.tolerance = 1e-9  # every row is an inducing input
        feed(field, samples(x[part], y[part]), 15)
        maps.append(field)
    one, other, union = maps
    assert float((one.centre - other.centre).abs().max()) > UT
    one.merge(other)
    got, expected = one.predict(PLACES), union.predict(PLACES)
    assert float(((got.mean - expected.mean) / expected.stddev).abs().max()) < 1e-3
    assert float((got.stddev / expected.stddev - 1).abs().max()) < 1e-3


@pytest.mark.parametrize("kind", POTENTIALS)
def test_neither_curl_nor_divergence(kind):
    """Differences of the mean in space: B = ∇φ has no curl; a harmonic φ no divergence, a free one has."""
    x, y = drive(80)
    field = create_map("curl_free", potential=kind, **SETTINGS)
    feed(field, samples(np.pad(x, ((0, 0), (0, 1))), y), 20)
    step, at = (
        1e-4,
        torch.from_numpy(
            np.random.default_rng(2).uniform([0.3, 0.3, -0.05], [2.7, 2.7, 0.1], (20, 3))
        ),
    )
    gradient = torch.stack(
        [
            (field.predict(at + e).mean - field.predict(at - e).mean) / (2 * step * UT)
            for e in step * torch.eye(3, dtype=torch.float64)
        ],
        2,
    )  # (n, c, d): ∂_d B_c
    size = float(gradient.abs().mean())
    assert float((gradient - gradient.mT).abs().max()) < 1e-5 * size
    divergence = gradient.diagonal(dim1=1, dim2=2).sum(1).abs()
    assert (float(divergence.max()) < 1e-5 * size) == (kind == "harmonic")


def test_the_physics_is_worth_much():
    """Dipoles below the floor: against three independent maps, on the same samples with the same θ start, learned."""
    x, y = drive(240)
    learn = SETTINGS | {"learn_hyperparameters": True, "lengthscale_prior": 0.5}
    grid = np.random.default_rng(3).uniform(0.3, 2.7, (150, 2))
    truth = np.linalg.norm(dipoles(grid), axis=1)
    errors = {}
    for model in ("curl_free", "dual_svgp"):
        field = create_map(model, **learn)
        for part in np.array_split(np.arange(240), 12):
            field.update(samples(x[part], y[part]))
            field.refine()
        errors[model] = np.sqrt(
            ((field.predict(torch.from_numpy(grid)).mean.numpy() / UT - dipoles(grid)) ** 2).mean()
        )
        if model == "curl_free":
            assert field.hyperparameters()["coherence"] > 0.5, "the sources are below"
            length = field.norm(torch.from_numpy(grid))
            mean, stddev = length.mean[:, 0].numpy() / UT, length.stddev[:, 0].numpy() / UT
            inside = np.abs(mean - truth) <= 1.96 * stddev
            assert inside.mean() > 0.75
    assert errors["curl_free"] < 0.75 * errors["dual_svgp"], errors


def test_the_norm_by_samples():
    field = built()
    mean, covariance = field.posterior.local(PLACES)
    draw = np.random.default_rng(0)
    got = field.norm(PLACES)
    unit = mean / mean.norm(dim=1, keepdim=True)
    noise = (unit.square() @ field.noise_variance()).mean() / UT**2
    assert float(got.noise_variance) / UT**2 == pytest.approx(float(noise), rel=1e-9)
    for i in range(0, 40, 8):
        b = np.linalg.norm(
            draw.multivariate_normal(mean[i] / UT, covariance[i] / UT**2, 40000), axis=1
        )
        sd = float(got.stddev[i, 0]) / UT
        assert abs(b.mean() - float(got.mean[i, 0]) / UT) < 0.1 * sd and abs(b.std() / sd - 1) < 0.1


def test_the_norm_is_of_second_order():
    """Where samples are, a little beside them, and where nothing is known."""
    field = built()
    places = torch.cat([PLACES[:5], PLACES[:5] + 3.0, PLACES[:5] + 100.0])
    told = field.norm(places).mean[:, 0]
    for mean, covariance, norm in zip(*field.posterior.local(places), told):
        length = mean.norm()
        across = torch.eye(3) - torch.outer(mean, mean) / length**2
        series = length + (across @ covariance).trace() / (2.0 * length)
        assert float(norm) == pytest.approx(float(series), rel=1e-9)
        assert float(norm) > float(length)


def test_what_turns_with_the_robot_is_told_apart():
    rng = np.random.default_rng(0)
    x, psi = rng.uniform(0, 3, (150, 2)), rng.uniform(-math.pi, math.pi, 150)
    cos, sin = np.cos(psi), np.sin(psi)
    body = np.stack([3 * cos - 2 * sin, 3 * sin + 2 * cos, np.zeros(150)], 1)
    y = dipoles(x) + body + rng.normal(0, 0.3, (150, 3))
    field = create_map(
        "curl_free", **(SETTINGS | {"heading_stddev": 3 * UT, "noise_stddev": 0.3 * UT})
    )
    feed(field, samples(x, y, heading=np.stack([cos, sin], 1)), 50)
    still = field.predict(PLACES)
    turned = field.predict(
        PLACES, torch.zeros(40, 2), torch.tensor([[0.0, 1.0]], dtype=torch.float64).expand(40, 2)
    )
    robot = (turned.mean - still.mean) / UT
    assert float((robot[:, :2] - torch.tensor([[-2.0, 3.0]])).abs().max()) < 0.5
    mean, stddev = (part / UT for part in field.posterior.body())
    torch.testing.assert_close(mean, torch.tensor([robot[0, 1], -robot[0, 0], robot[0, 2]]))
    assert (
        float((mean - torch.tensor([3.0, 2.0, 0.0])).abs().max()) < 0.5
        and 0.01 < float(stddev[0]) < 0.3
    )


@pytest.mark.parametrize("kind", POTENTIALS)
def test_the_learner_follows_the_evidence(kind):
    field = built(
        kind,
        n=30,
        heading_stddev=UT,
        learn_hyperparameters=True,
        learn_time_offset=True,
        learn_lever_arm=True,
        kernel="rbf",
    )
    learner, data = field.learner, field.rows.learning_data()
    rng, n = torch.Generator().manual_seed(0), len(data["x"])
    velocity = torch.nn.functional.pad(torch.rand(n, 2, generator=rng).double(), (0, 1))
    data |= {
        "velocity": velocity,
        "heading": velocity[:, :2] / velocity[:, :2].norm(dim=1, keepdim=True),
    }
    vector = learner.vector + 0.05
    gradient, information = learner.score(vector, data, torch.arange(n))
    assert gradient.shape == (9,) and float(torch.linalg.eigvalsh(information)[0]) > -1e-6

    def loss(v):
        theta = field.theta.with_vector(v)
        at = data["x"].clone()
        d, h = data["velocity"], data["heading"]
        left = torch.stack([-h[:, 1], h[:, 0]], 1)
        at[:, :2] += -v[4] * d[:, :2] + v[5] * h + v[6] * left
        f = theta.feature_rows(at, h)
        c = (
            theta.kernel()(at, at)
            + f.mT @ f
            + torch.diag(theta.row_noise(at[:, -1]) + data["extra"])
        )
        return 0.5 * float(torch.logdet(c)) + 0.5 * float(
            (data["y"].mT @ torch.linalg.solve(c, data["y"])).sum()
        )

    for k in range(9):
        if not learner.free[k]:
            assert kind == "free" and k == 8
            continue
        e = torch.zeros(9, dtype=torch.float64)
        e[k] = 1e-4
        slope = (loss(vector + e) - loss(vector - e)) / 2e-4
        assert float(gradient[k]) == pytest.approx(slope, rel=1e-3, abs=1e-3), k


def test_a_session_of_three_axes():
    """Cells, scores, learning, drawing; resumed from its state it goes on."""
    x, y = drive(200)
    batch = samples(x, y, stamp=np.arange(200) * 0.1)
    session = MapSession(MapSettings(model="curl_free", max_inducing=60, resolution=0.2))
    session.ingest(batch[:160])
    again = MapSession.from_state_dict(copy.deepcopy(session.state_dict()))
    for one in (session, again):
        one.ingest(batch[160:])
        one.flush()
    a, b = session.predict(PLACES), again.predict(PLACES)
    assert a.mean.shape == (40, 3) and session.inducing.shape[1] == session.memory.shape[1] == 2
    assert np.isfinite(session.render().mean.numpy()).all() and session.report()["samples"] == 200
    assert float((a.mean - b.mean).abs().max()) < 2 * UT, (
        "scores pause after a resume, as the exact model's do"
    )


def test_what_does_not_fit_is_refused():
    for y in (np.zeros((4, 1)), np.zeros((4, 2))):
        with pytest.raises(ValueError, match="three components"):
            create_map("curl_free").update(Samples(np.zeros((4, 2)), y))
    with pytest.raises(ValueError, match="three components"):
        create_map("curl_free").update(Samples(np.zeros((4, 1)), np.zeros((4, 3))))
    with pytest.raises(ValueError, match="inducing"):
        create_map("curl_free", inducing_inputs=[[0.0, 0.0]])
    with pytest.raises(ValueError, match="matern12"):
        create_map("curl_free", kernel="matern12", potential="free")
    with pytest.raises(ValueError, match="Gaussian"):
        create_map("curl_free", likelihood="student_t")
    free, harmonic = built("free"), built()
    before = copy.deepcopy(harmonic.state_dict())
    for act in (lambda: harmonic.merge(free), lambda: harmonic.load_state_dict(free.state_dict())):
        with pytest.raises(ValueError, match="potential"):
            act()
    assert same_state(before, harmonic.state_dict())


def test_theta_goes_through_its_vector():
    theta = VectorTheta(0.5, 10.0, 1.0, 20.0, 0.3, 0.1, 0.2, -0.1, vertical=0.4, coherence=0.6)
    again = theta.with_vector(theta.vector())
    assert torch.allclose(again.vector(), theta.vector()) and again.potential == theta.potential
    assert theta.distance(again) < 1e-9 and theta.distance(
        VectorTheta.from_theta(again, coherence=0.4)
    ) == pytest.approx(0.2)
    longer = replace(theta, lengthscale=0.5 * 1.1)
    assert theta.distance(longer) == pytest.approx(math.log(1.1))


def test_the_body_fixed_field_is_at_first_as_unsure_as_given():
    given = {"lengthscale": 0.8, "signal_stddev": 10 * UT, "noise_stddev": UT}
    field = create_map("curl_free", **given, heading_stddev=0.1 * UT, learn_hyperparameters=False)
    x = torch.zeros(1, 2, dtype=torch.float64)
    heading = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    y = UT * torch.tensor([[20.0, 0.0, -40.0]], dtype=torch.float64)
    field.update(Samples(x, y, heading=heading))
    _, stddev = field.posterior.body()
    assert stddev.tolist() == pytest.approx([0.1 * UT] * 3, rel=0.01)


@pytest.mark.parametrize("noise, vertical", [(0.4, 1.0), (2.5, 1.0), (0.4, 3.0)])
def test_the_noise_of_a_new_measurement_is_its_component_s(noise, vertical):
    """σ² of each, that of the third times `vertical`², and what poses and averages add is that of the plane."""
    x, y = drive(20)
    field = create_map("curl_free", **(SETTINGS | {"noise_stddev": noise * UT}))
    field.update(samples(x, y))
    field.rows.adopt(replace(field.theta, vertical=vertical))
    expected = noise**2 * torch.tensor([1.0, 1.0, vertical**2], dtype=torch.float64)
    assert torch.allclose(field.noise_variance() / UT**2, expected, rtol=1e-9)
    assert torch.allclose(field.posterior.component_noise, expected, rtol=1e-9)
    assert torch.allclose(field.predict(PLACES[:2]).noise_variance / UT**2, expected, rtol=1e-9)

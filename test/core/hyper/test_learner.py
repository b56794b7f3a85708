"""Hyper-parameters learned online: found where known, tame in the first metres, never wild, bounded, seeded."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import UT, covariance, samples
from scipy.stats import multivariate_normal

from gp_mapping import create_map
from gp_mapping.core.hyper.evidence import evidence_score, negative_log_evidence
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta

DEFAULT = {
    "inducing_tolerance": 0.005,
    "inducing_information": 0.0,
    "heading_stddev": 0.0,
    "learn_time_offset": False,
}


def path(n, seed, step=0.1, size=6.0):
    """A smooth random drive in a square: n positions `step` metres apart."""
    rng = np.random.default_rng(seed)
    heading, at, out = rng.uniform(0, 6.28), np.full(2, size / 2), []
    turn = 0.0
    for _ in range(n):
        turn = 0.9 * turn + 0.1 * rng.normal()
        heading += turn + (0.3 if (np.abs(at - size / 2) > 0.4 * size).any() else 0.0)
        at = np.clip(at + step * np.array([np.cos(heading), np.sin(heading)]), 0, size)
        out.append(at)
    return np.array(out)


def drawn(x, length, signal, noise, seed):
    """y (n, 1) from a Matérn-5/2 GP about 48."""
    rng = np.random.default_rng(seed + 1)
    gram = covariance(x, x, "matern52", length, signal) + 1e-8 * signal**2 * np.eye(len(x))
    return (
        48
        + (np.linalg.cholesky(gram) @ rng.normal(size=len(x)) + noise * rng.normal(size=len(x)))[
            :, None
        ]
    )


def streamed(x, y, batch=1, **settings):
    """A map with learning, refined after every batch, and θ after each."""
    field, thetas = create_map("dual_svgp", **(DEFAULT | settings)), []
    for i in range(0, len(x), batch):
        field.update(samples(x[i : i + batch], y[i : i + batch]))
        while field.refine(math.inf):
            pass
        thetas.append(field.hyperparameters())
    return field, thetas


@pytest.mark.parametrize(
    "length, signal, noise", [(0.4, 12.0, 1.0), (1.2, 6.0, 0.5), (0.7, 25.0, 2.0)]
)
def test_finds_what_the_field_was_drawn_from(length, signal, noise):
    """From the default start, along a path of 60 m: ℓ within a factor 1.5, s within 1.6, s_p within 1.5."""
    x = path(600, 3)
    field, thetas = streamed(x, drawn(x, length, signal, noise, 3), batch=2)
    h = field.hyperparameters()
    for name, truth, factor in (
        ("lengthscale", length, 1.5),
        ("signal_stddev", signal * UT, 1.6),
        ("noise_stddev", noise * UT, 1.5),
    ):
        assert truth / factor < h[name] < truth * factor, (name, h[name], truth)
    assert all(math.isfinite(v) for theta in thetas for v in theta.values())
    assert field.learner.rejected == 0


def test_the_first_metres_do_not_make_it_wild():
    """Ten metres: θ moves from its start to what the field is, and never far beyond either, whatever the field.

    Of a field that is smooth over all of the path, one stretch is seen: it may vary less than half as much as s says.
    """
    default = {"lengthscale": (0.6, 1.0), "signal_stddev": (10.0, 14.0), "noise_stddev": (0.7, 1.0)}
    fields = [(0.05, 30.0, 0.1), (10.0, 3.0, 0.1), (0.5, 12.0, 1.0), (0.5, 1e-3, 3.0)]
    for seed, (length, signal, noise) in enumerate(fields):
        if length < 0.1:  # cells 10 cm apart see it as noise
            noise = signal
        x = path(100, seed)
        _, thetas = streamed(x, drawn(x, length, signal, noise, seed))
        for name, truth, unit in zip(default, (length, signal, noise), (1.0, UT, UT)):
            low, high = min(*default[name], truth), max(*default[name], truth)
            values = [h[name] / unit for h in thetas]
            assert low / 3.0 < min(values) and max(values) < 2.0 * high, (
                seed,
                name,
                min(values),
                max(values),
            )


def test_deterministic_by_seed():
    """While all is remembered nothing is drawn; where most is forgotten, samples and neighbourhoods are."""
    x = path(150, 5)
    y = drawn(x, 0.5, 12.0, 1.0, 5)
    a, b, c = (streamed(x, y, batch=3, seed=s)[0].hyperparameters() for s in (0, 0, 1))
    assert a == b == c
    forgetful = {"batch": 3, "memory_size": 40}
    a, b, c = (streamed(x, y, seed=s, **forgetful)[0].hyperparameters() for s in (0, 0, 1))
    assert a == b and a != c


def test_debt_is_bounded_and_paid():
    x = path(500, 2, step=0.04)
    field = create_map("dual_svgp", **DEFAULT)
    for _ in range(3):
        field.update(samples(x, drawn(x[:50], 0.5, 10.0, 1.0, 0).repeat(10, 0)))
    assert 1.0 <= field.learner.pending <= 40.0
    while field.refine(math.inf):
        pass
    assert 0.0 <= field.learner.pending < 1.0 and 1 <= field.learner.steps <= 40
    theta = Theta(0.5, 10.0, 1.0, 20.0)
    learner = HyperLearner(theta, theta)
    learner.schedule(10**6)  # which would owe two hundred
    assert learner.pending == 40.0


def test_a_slice_of_time_is_kept():
    from time import perf_counter

    x = path(400, 2)
    field = create_map("dual_svgp", **DEFAULT)
    for i in range(4):
        field.update(samples(x[i::4], drawn(x[i::4], 0.5, 10.0, 1.0, 0)))
    steps = field.learner.steps
    start = perf_counter()
    assert field.refine(0.002) is True
    assert perf_counter() - start < 0.5, "one step and one adoption at the most beyond the budget"
    assert steps < field.learner.steps < steps + 30


def test_what_is_not_learned_does_not_move():
    """Priors are in the default's unit; a fixed θ far from them must stay where it is."""
    x = path(200, 1)
    velocity = np.gradient(x, axis=0) * 2
    y = drawn(x - 0.5 * velocity, 2.0, 3.0, 0.3, 1)
    fixed = {
        "field_scale": 1.0,
        "signal_stddev": 3.0,
        "noise_stddev": 0.3,
        "constant_stddev": 30.0,
        "lengthscale": 2.0,
        "heading_stddev": 0.0,
        "learn_hyperparameters": False,
    }
    for learn_offset in (False, True):
        field = create_map("dual_svgp", learn_time_offset=learn_offset, **fixed)
        before = field.hyperparameters()
        for i in range(0, 200, 10):
            field.update(samples(x[i : i + 10], y[i : i + 10] / UT, velocity=velocity[i : i + 10]))
            while field.refine(math.inf):
                pass
        after = field.hyperparameters()
        assert (after["time_offset"] != 0.0) == learn_offset
        for name in (
            "lengthscale",
            "signal_stddev",
            "noise_stddev",
            "constant_stddev",
            "heading_stddev",
        ):
            assert after[name] == pytest.approx(before[name], rel=1e-12), name


def test_learning_without_a_memory_or_with_a_tiny_one_is_no_error():
    x = path(60, 1)
    for size in (0, 1, 3, 20):
        field, _ = streamed(x, drawn(x, 0.5, 10.0, 1.0, 1), batch=10, memory_size=size)
        assert field.samples == 60 and field.learner.pending < 1.0


def test_samples_with_a_noise_of_their_own_do_not_teach_the_models_noise():
    x = path(300, 4)
    y = drawn(x, 0.6, 10.0, 0.0, 4) + np.random.default_rng(0).normal(0, 4.0, (300, 1))
    field = create_map("dual_svgp", **DEFAULT)
    for i in range(0, 300, 5):
        field.update(samples(x[i : i + 5], y[i : i + 5], noise_variance=np.full(5, 16.0)))
        field.refine(math.inf)
    assert (
        0.3 < field.hyperparameters()["lengthscale"] < 1.3
        and field.hyperparameters()["noise_stddev"] < 2.5 * UT
    )


def test_evidence_is_that_of_the_gaussian():
    """Value against SciPy, gradient against differences."""
    rng = np.random.default_rng(0)
    x, y, extra = rng.uniform(0, 2, (12, 2)), rng.normal(0, 5, (12, 1)), rng.uniform(0, 1, 12)
    theta = Theta(0.6, 9.0, 1.2, 20.0)
    zero = torch.zeros(12, 2, dtype=torch.float64)

    def value(vector):
        return negative_log_evidence(
            theta,
            vector,
            torch.from_numpy(x),
            zero,
            zero,
            torch.from_numpy(y),
            torch.from_numpy(extra),
        )

    vector = theta.vector().requires_grad_(True)
    loss = value(vector)
    gram = covariance(x, x, "matern52", 0.6, 9.0) + 400.0 + np.diag(1.44 + extra)
    assert float(loss) == pytest.approx(
        -multivariate_normal(np.zeros(12), gram).logpdf(y[:, 0]) / 12, rel=1e-10
    )
    loss.backward()
    for i in range(3):
        step = torch.zeros_like(vector)
        step[i] = 1e-5
        numeric = (value(theta.vector() + step) - value(theta.vector() - step)) / 2e-5
        assert float(vector.grad[i]) == pytest.approx(float(numeric), rel=1e-5, abs=1e-9)


def test_theta_and_its_vector_are_the_same_thing():
    theta = Theta(0.6, 9.0, 1.2, 20.0, heading_stddev=0.4, time_offset=0.1, kernel_name="rbf")
    again = theta.with_vector(theta.vector())
    for name in (
        "lengthscale",
        "signal_stddev",
        "noise_stddev",
        "constant_stddev",
        "heading_stddev",
        "time_offset",
    ):
        assert getattr(again, name) == pytest.approx(getattr(theta, name), rel=1e-14)
    assert again.kernel_name == "rbf" and theta.distance(theta) == 0.0
    assert theta.distance(replace(theta, lengthscale=0.6 * math.exp(0.1))) == pytest.approx(0.1)
    assert Theta(0.6, 9.0, 1.2, 20.0).with_vector(theta.vector()).heading_stddev == 0.0, (
        "a heading left out stays out"
    )


@pytest.mark.parametrize("constant", [0.0, 0.5])
@pytest.mark.parametrize("heading", [0.0, 0.5])
def test_features_beside_the_inducing_inputs_are_as_many_as_are_named(constant, heading):
    """s_c, s_h cos ψ, s_h sin ψ; a standard deviation of 0 has none."""
    theta = Theta(0.6, 9.0, 1.2, constant, heading_stddev=heading)
    ahead = torch.tensor([[0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
    rows = theta.feature_rows(torch.zeros(2, 2, dtype=torch.float64), ahead)
    expected = [[0.5, 0.5]] * (constant > 0) + [[0.3, 0.0], [0.4, 0.5]] * (heading > 0)
    assert rows.tolist() == expected and rows.shape == (len(theta.feature_names()), 2)


def test_the_time_offset_is_found():
    """A sensor 0.2 s late on a robot that drives both ways."""
    rng = np.random.default_rng(0)
    x = path(500, 8)
    velocity = np.gradient(x, axis=0) * 3.0  # 0.3 m/s
    both = np.concatenate([x, x[::-1]])
    v = np.concatenate([velocity, -velocity[::-1]])
    late = both - 0.2 * v
    y = (
        48
        + 10 * np.sin(2.0 * late[:, :1]) * np.cos(1.6 * late[:, 1:])
        + rng.normal(0, 0.5, (1000, 1))
    )
    field = create_map("dual_svgp", learn_time_offset=True, heading_stddev=0.0)
    for i in range(0, 1000, 4):
        field.update(samples(both[i : i + 4], y[i : i + 4], velocity=v[i : i + 4]))
        field.refine(math.inf)
    assert 0.12 < field.hyperparameters()["time_offset"] < 0.26, field.hyperparameters()


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
def test_the_closed_form_score_is_the_gradient_and_the_fisher_information_its_variance(kernel):
    """Against automatic differentiation; F against the textbook's trace with derivatives by differences."""
    rng = np.random.default_rng(1)
    n = 14
    x, v, y = (torch.from_numpy(rng.normal(0, 1, (n, 2))) for _ in range(3))
    heading = torch.nn.functional.normalize(torch.from_numpy(rng.normal(0, 1, (n, 2))), dim=1)
    extra = torch.from_numpy(rng.uniform(0, 1, n))
    theta = Theta(
        0.6,
        3.0,
        1.2,
        20.0,
        heading_stddev=0.7,
        time_offset=0.1,
        lever_arm_along=0.05,
        lever_arm_across=-0.1,
        kernel_name=kernel,
    )
    vector = theta.vector().requires_grad_(True)
    parts = (x, v, heading, y, extra)
    (negative_log_evidence(theta, vector, *parts) * n).backward()
    gradient, information = evidence_score(theta, theta.vector(), [True] * 7, *parts)
    assert torch.allclose(gradient, vector.grad, rtol=1e-9, atol=1e-9)

    def gram(at):
        t = theta.with_vector(at)
        places = t.sensor_place(x, v, heading)
        return (
            t.kernel()(places, places)
            + t.constant_stddev**2
            + t.heading_stddev**2 * heading @ heading.mT
            + torch.diag(t.noise_stddev**2 + extra)
        )

    inverse = torch.linalg.inv(gram(theta.vector()))
    steps = 1e-5 * torch.eye(7, dtype=torch.float64)
    products = [
        inverse @ (gram(theta.vector() + h) - gram(theta.vector() - h)) / 2e-5 for h in steps
    ]
    expected = torch.tensor([[0.5 * float((a * b.mT).sum()) for b in products] for a in products])
    assert torch.allclose(information, expected.double(), rtol=2e-5, atol=1e-5)
    held, nothing = evidence_score(
        theta, theta.vector(), [True, False] * 3 + [False], *parts, fisher=False
    )
    assert nothing is None and torch.allclose(
        held[::2], torch.cat([gradient[:6:2], torch.zeros(1)]).double()
    )
    assert float(held[1::2].abs().max()) == 0.0


def test_a_far_start_is_forgotten():
    """ℓ and s a factor of three off either way: the same θ after 40 m, to half of what is known of s."""
    x = path(400, 3)
    y = drawn(x, 0.6, 12.0, 0.5, 3)
    ends = [
        streamed(x, y, batch=2, lengthscale=0.6 * f, signal_stddev=12 * f * UT)[0].hyperparameters()
        for f in (1 / 3, 3.0)
    ]
    for name in ("lengthscale", "signal_stddev", "noise_stddev"):
        assert ends[0][name] == pytest.approx(ends[1][name], rel=0.15), name


def test_theta_is_taken_over_beyond_what_is_known_of_it():
    """½ ΔᵀPΔ against a nat; without knowledge (Λ small) only a change of five times what may be small."""
    usual = Theta(lengthscale=1.0, signal_stddev=5.0, noise_stddev=0.5, constant_stddev=30.0)
    learner = HyperLearner(usual, usual, adopt_change=0.1)
    learner.turns += (
        1000.0  # steps are short by now: a fifth of 0.1 is no longer too small a change
    )
    learner.rounds = torch.ones_like(learner.vector)

    def moved(change, known):
        learner.vector = usual.vector()
        learner.vector[0] += change
        learner.theta = replace(usual, lengthscale=usual.lengthscale * math.exp(change))
        learner.metric = torch.diag(torch.full((len(learner.vector),), known, dtype=torch.float64))
        return learner.should_adopt(usual)

    for change, known, taken in (
        (0.05, 900.0, True),
        (0.05, 700.0, False),  # 1.12 and .87 nat
        (-0.05, 900.0, True),
        (0.015, 1e9, False),  # well known, but not worth a rebuild
        (0.3, 1e-9, False),
        (0.55, 1e-9, True),
    ):
        assert moved(change, known) == taken, (change, known)

        # many rounds of the same samples in Λ know no more than one
        learner.rounds = torch.full_like(learner.vector, 25.0)
        assert moved(change, 25.0 * known) == taken, (change, known)
        learner.rounds = torch.ones_like(learner.vector)


def remembered(n: int) -> dict[str, torch.Tensor]:
    """What a learner is given of n samples."""
    x = torch.from_numpy(path(n, 1))
    still = torch.zeros(n, 2, dtype=torch.float64)
    return {
        "x": x,
        "velocity": still,
        "heading": still,
        "y": torch.sin(x[:, :1]),
        "extra": still[:, 0],
        "order": torch.arange(n).double(),
    }


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_step_that_cannot_be_computed_is_refused_and_counted(name):
    """Neither a covariance that does not factor nor a slope that is no number moves anything."""
    theta, data = Theta(0.5, 10.0, 1.0, 20.0), remembered(40)
    learner, generator = HyperLearner(theta, theta), torch.Generator().manual_seed(0)
    learner.use_minibatches()
    data[name] = torch.full_like(data[name], math.nan)
    for refused in (1, 2):
        assert not learner.step(data, generator)
        assert (learner.rejected, learner.steps) == (refused, 0) and learner.theta == theta


@pytest.mark.parametrize("came, streams", [(40, False), (80, False), (81, True)])
def test_blocks_are_left_once_most_samples_are_forgotten(came, streams):
    """Of forty that are remembered: where more than eighty came, steps are those of a stream."""
    theta = Theta(0.5, 10.0, 1.0, 20.0)
    learner = HyperLearner(theta, theta)
    for _ in range(came):
        learner.schedule(1)
    learner.step(remembered(40), torch.Generator().manual_seed(0))
    assert learner.streams == streams and learner.steps == 1

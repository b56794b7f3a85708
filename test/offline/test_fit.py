"""Offline fits of θ: bounds lie below the exact evidence and near it, and no start was better than what is found."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import UT, drive, samples
from scipy.stats import multivariate_normal

from gp_mapping import Samples
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.discrete import Poisson
from gp_mapping.core.models.solve_gp.model import SolveGP
from gp_mapping.core.models.wiski.lattice.interpolation import interpolation_matrix
from gp_mapping.core.registry import make_theta_and_learner
from gp_mapping.offline.ascent import ascend, information
from gp_mapping.offline.fit import FITTED, check_fits, fit_theta
from gp_mapping.offline.lattice_evidence import LatticeEvidence, interpolated_gram
from gp_mapping.offline.minibatches import train
from gp_mapping.offline.objectives import CollapsedBound, ExactEvidence, Objective
from gp_mapping.offline.stored_cells import StoredCells
from gp_mapping.settings.mapping import MapSettings

START = {
    "lengthscale": 1.5,
    "signal_stddev": 4 * UT,
    "noise_stddev": 2 * UT,
    "constant_stddev": 20 * UT,
    "heading_stddev": 0.0,
    "time_offset": 0.0,
}


def settings(model="dual_svgp", **others):
    return MapSettings(model=model, **{**START, "learn_time_offset": False, **others})


def parts(n=240, seed=3):
    """Batches of cells, not all of which have the same columns."""
    x, y = drive(n, seed=seed)
    white = np.full(n // 2, 0.01)
    return [
        samples(x[: n // 2], y[: n // 2], sensor_variance=white),
        samples(x[n // 2 :], y[n // 2 :]),
    ]


def dense(theta: Theta, given) -> float:
    """log N(y | 0, K + Σ), without the package's algebra."""
    x, y = (np.concatenate([np.asarray(getattr(p, name)) for p in given]) for name in ("x", "y"))
    extra = np.concatenate(
        [
            np.zeros(len(p)) if p.sensor_variance is None else p.sensor_variance.numpy() / UT**2
            for p in given
        ]
    )
    r = math.sqrt(5) * np.linalg.norm(x[:, None] - x[None], axis=-1) / theta.lengthscale
    gram = theta.signal_stddev**2 * (1 + r + r * r / 3) * np.exp(-r) + theta.constant_stddev**2
    gram += np.diag(theta.noise_stddev**2 + extra)
    middle = np.sort(y[:, 0])[(len(y) - 1) // 2]  # torch's median is the lower one
    inner = (y[:, 0] - middle) / UT
    return float(multivariate_normal(np.zeros(len(x)), gram).logpdf(inner))


@pytest.fixture(scope="module")
def exact():
    return fit_theta(settings("exact"), START, parts())


@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp", "pic", "wiski"])
def test_every_fit_is_near_the_exact_gp_s(model, exact):
    """Bound ≤ evidence, within a nat of it where there are inputs enough, and its θ as good as the exact GP's."""
    assert set(FITTED) > {model}
    found = fit_theta(settings(model, seed=1), START, parts(), most=40)
    assert found.evidence_after == pytest.approx(dense(found.theta, parts()), abs=1e-6)
    assert found.evidence_before == pytest.approx(dense(found.theta_before, parts()), abs=1e-6)
    assert found.evidence_after > found.evidence_before + 20
    assert exact.after - 1.0 < found.evidence_after < exact.after + 0.1
    if model != "wiski":
        assert found.after <= found.evidence_after + 1e-6
    assert abs(found.after - found.evidence_after) < 1.5, "the bound is far from the evidence"
    assert found.converged


def test_the_fit_is_the_maximum(exact):
    """At the exact GP's θ the slope of evidence and prior vanishes, by a difference quotient of the dense one."""
    learner = make_theta_and_learner(settings("exact"))[1]
    vector = exact.theta.vector()
    for k in range(3):
        ends = []
        for step in (1e-3, -1e-3):
            there = vector.clone()
            there[k] += step
            ends.append(dense(exact.theta.with_vector(there), parts()) + learner.log_prior(there))
        cells = StoredCells.from_batches(parts(), UT, exact.theta)
        curvature = math.sqrt(float(information(learner, exact.theta, cells)[k, k]))
        assert (
            abs(ends[0] - ends[1]) / 2e-3 < 0.2 * curvature
        )  # a fifth of a standard deviation away


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_far_start_ends_there_too(factor, exact):
    far = START | {
        "lengthscale": 1.5 * factor,
        "signal_stddev": 4 * UT * factor,
        "noise_stddev": 2 * UT / factor,
    }
    found = fit_theta(settings(), far, parts())
    assert found.evidence_after > exact.after - 1.0


def test_a_good_start_is_not_made_worse(exact):
    told = START | {
        "lengthscale": exact.theta.lengthscale,
        "signal_stddev": exact.theta.signal_stddev * UT,
        "noise_stddev": exact.theta.noise_stddev * UT,
    }
    found = fit_theta(settings(max_inducing=20), told, parts(), most=10)
    assert found.after >= found.before, (
        "a bound that is of its budget was raised at the cost of what was given"
    )


def test_blocks_hold_every_cell_once_and_lie_together():
    cells = StoredCells.from_batches(parts(), UT, Theta(0.5, 10.0, 1.0, 20.0))
    blocks = cells.blocks(50)
    assert sum(map(len, blocks)) == len(cells) == 240 and max(map(len, blocks)) <= 50
    assert torch.equal(torch.cat([b.y for b in blocks]).sort(0).values, cells.y.sort(0).values)
    theta = Theta(0.5, 10.0, 1.0, 20.0)
    assert ExactEvidence(cells, 50).value(theta) < ExactEvidence(cells).value(theta), (
        "blocks know less"
    )


def test_cells_keep_the_stretch_that_they_average():
    theta, extent = Theta(0.5, 10.0, 1.0, 20.0), torch.linspace(0.01, 0.05, 240).double()
    given, first = [], 0
    for part in parts():
        given.append(replace(part, extent=extent[first : first + len(part)]))
        first += len(part)
    cells = StoredCells.from_batches(given, UT, theta)
    assert torch.equal(cells.learning_data(theta)["extent"], extent)
    some = torch.tensor([3, 1])
    assert torch.equal(cells[some].learning_data(theta)["extent"], extent[some])


def test_the_interpolated_kernel_is_w_k_w():
    theta, spacing = Theta(0.7, 3.0, 1.0, 20.0), 0.2
    places = torch.from_numpy(np.random.default_rng(0).uniform(0.3, 1.9, (40, 2)))
    nodes = torch.cartesian_prod(*[torch.arange(13).double() * spacing] * 2)
    w = interpolation_matrix(places / spacing, (13, 13))
    wanted = w @ theta.kernel()(nodes, nodes) @ w.mT
    assert torch.allclose(interpolated_gram(theta, places, spacing), wanted, atol=1e-12)


def test_an_uncertain_position_adds_the_slope_to_the_noise():
    x, y = drive(30)
    batch = replace(samples(x, y), position_variance=np.full(30, 0.04))
    slope = torch.full((30,), 9.0 * UT**2, dtype=torch.float64)
    steep = StoredCells.from_batches(
        [batch], UT, Theta(0.5, 10.0, 1.0, 20.0), slope=lambda at: slope
    )
    assert torch.allclose(steep.extra, torch.full((30,), 0.36, dtype=torch.float64))


def test_the_constants_of_passes_are_in_evidence_and_bound():
    """s_b² between cells of one pass, by the dense evidence of the difference that it makes."""
    theta = Theta(0.8, 8.0, 1.0, 20.0, bias_stddev=2.0)
    given = [
        replace(part, pass_number=np.full(len(part), float(k))) for k, part in enumerate(parts())
    ]
    cells = StoredCells.from_batches(given, UT, theta)
    own = torch.cat([torch.full((len(part),), k) for k, part in enumerate(given)])
    gram = (
        theta.kernel()(cells.x, cells.x)
        + 20.0**2
        + 4.0 * (own[:, None] == own)
        + torch.diag(cells.variance(theta))
    )
    wanted = multivariate_normal(np.zeros(len(gram)), gram.numpy()).logpdf(cells.y[:, 0].numpy())
    assert ExactEvidence(cells).value(theta) == pytest.approx(wanted, abs=1e-6)
    for second in (0, 100):
        bound = CollapsedBound(cells, 240 - second, second)
        bound.renew(theta)
        assert wanted - 15.0 * (second > 0) - 1.0 < bound.value(theta) <= wanted + 1e-6
    lattice, without = LatticeEvidence(cells, 16.0), replace(theta, bias_stddev=0.0)
    lattice.renew(theta)
    apart = lattice.value(theta) - lattice.value(without)
    assert apart == pytest.approx(wanted - ExactEvidence(cells).value(without), abs=0.01)
    assert wanted != pytest.approx(
        ExactEvidence(cells).value(replace(theta, bias_stddev=0.0)), abs=0.1
    )


def test_a_time_offset_is_found():
    """Lanes to and fro, stamps .3 s late: δ within .03 s of it."""
    rng = np.random.default_rng(1)
    along = np.concatenate(
        [np.linspace(0, 3, 40) if k % 2 == 0 else np.linspace(3, 0, 40) for k in range(8)]
    )
    x = np.stack([along, np.repeat(np.arange(8) * 0.3, 40)], 1)
    velocity = np.stack([np.repeat([0.4 * (-1) ** k for k in range(8)], 40), np.zeros(320)], 1)
    at = x - 0.3 * velocity
    y = 48 + 8 * np.sin(2.2 * at[:, 0]) * np.cos(1.5 * at[:, 1]) + 0.3 * rng.normal(size=320)
    found = fit_theta(
        settings(learn_time_offset=True), START, [samples(x, y[:, None], velocity=velocity)]
    )
    assert found.theta.time_offset == pytest.approx(0.3, abs=0.03)


def test_counts_by_minibatches_on_bound_8():
    """Poisson: the bound rises, and the best epoch is what comes back."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 4, (300, 2))
    y = rng.poisson(np.exp(1.5 + np.sin(2 * x[:, 0])))
    values = []
    model = SolveGP(
        Theta(3.0, 0.3, 1.0, 5.0),
        max_inducing=60,
        max_orthogonal=0,
        tolerance=1e-3,
        memory_size=0,
        likelihood=Poisson(),
    )
    found = train(
        model,
        Samples(torch.from_numpy(x), torch.from_numpy(y[:, None]).double()),
        30,
        0.05,
        values.append,
    )
    assert found.after == max(values[-found.epochs :]) > found.before + 20
    assert 0.4 < found.theta.lengthscale < 2.5


def test_what_cannot_be_fitted_is_said():
    with pytest.raises(ValueError, match="curl_free"):
        check_fits(settings("curl_free"))
    with pytest.raises(ValueError, match="learn_hyperparameters"):
        check_fits(settings(learn_hyperparameters=False))
    with pytest.raises(ValueError, match="no cells"):
        fit_theta(settings(), START, [])


def test_a_settled_learner_moves_little(exact):
    """What all cells said weighs more than one neighbourhood of them."""
    learner, cells = (
        copy.deepcopy(exact.learner),
        StoredCells.from_batches(parts(), UT, Theta(0.5, 10.0, 1.0, 20.0)),
    )
    data = cells.learning_data(exact.theta) | {"order": torch.arange(240).double()}
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        learner.step(data, generator)
    move = learner.vector - exact.theta.vector()
    assert 0.0 < float(move @ information(learner, exact.theta, cells) @ move) < 1.0, (
        "beyond a standard deviation"
    )


class Cusp(Objective):
    """Highest at the start, with a slope to one side: no step along it raises it, and no line search succeeds."""

    name, blocks = "cusp", [None]

    def __init__(self, start: Theta):
        self.start = math.log(start.lengthscale)

    def of_block(self, number, theta):
        away = math.log(theta.lengthscale) - self.start
        return torch.tensor(-300.0 * abs(away) ** 0.5 - 500.0 * away, dtype=torch.float64)


def test_an_ascent_that_was_broken_off_has_not_converged():
    """By a line search without success, or by the number of iterations; a smooth maximum is one."""
    theta = Theta(1.0, 4.0, 1.0, 20.0)
    free = (True,) + (False,) * 6
    learner = HyperLearner(theta, theta, free=free)
    fisher = 1e4 * torch.eye(7, dtype=torch.float64)

    def of(objective, most=40):
        return ascend(objective, learner, theta, fisher, most, 1e-3, lambda value: None)

    broken = of(Cusp(theta))
    assert broken.theta == theta and not broken.converged and broken.iterations < 40

    evidence = ExactEvidence(StoredCells.from_batches(parts(60), UT, theta))
    assert of(evidence).converged and not of(evidence, 1).converged


def test_nothing_free_is_nothing_found():
    theta, learner = make_theta_and_learner(
        settings("exact", learn_hyperparameters=False, learn_time_offset=True)
    )
    learner.free = [False] * 7
    cells = StoredCells.from_batches(parts(), UT, Theta(0.5, 10.0, 1.0, 20.0))
    bound = CollapsedBound(cells, 100)
    bound.renew(theta)
    assert (
        ascend(bound, learner, theta, torch.eye(7).double(), 5, 0.1, lambda value: None).theta
        == theta
    )

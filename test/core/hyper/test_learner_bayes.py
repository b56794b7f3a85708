"""Bayes' rule for hyper-parameters: where the learner ends, the evidence of all cells is near its own maximum."""

import math
from dataclasses import replace

import pytest
import torch

from gp_mapping.core.hyper.evidence import evidence_score, negative_log_evidence
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta

LEARNED = (True, True, True, False, False, False, False)
SIGNAL, NOISE = 1.5, 0.2


def random_field(length: float, seed: int, waves: int = 400):
    """A draw of a Matérn-5/2 process of unit variance, by random Fourier features: its spectrum is a Student-t's."""
    g = torch.Generator().manual_seed(seed)
    normal = torch.randn(waves, 2, dtype=torch.float64, generator=g)
    chi = torch.randn(waves, 5, dtype=torch.float64, generator=g).square().sum(1, keepdim=True)
    frequency = normal * (5.0 / chi).sqrt() / length
    phase = 2 * math.pi * torch.rand(waves, dtype=torch.float64, generator=g)
    height = (2.0 / waves) ** 0.5 * torch.randn(waves, dtype=torch.float64, generator=g)
    return lambda x: torch.cos(x @ frequency.mT + phase) @ height


def drive(count: int, step: float, lane: float) -> torch.Tensor:
    """(count, 2) cells `step` apart along the lanes of a square, in the order of a drive."""
    side, places = (count * step * lane) ** 0.5, []
    across, down = max(2, round(side / step)), max(1, round(lane / step))
    x, y, sign = 0.0, 0.0, 1.0
    while len(places) < count:
        for _ in range(across):
            places.append((x, y))
            x += sign * step
        for _ in range(down):
            places.append((x, y))
            y += lane / down
        sign = -sign
    return torch.tensor(places[:count], dtype=torch.float64)


def cells_of(
    length: float, count: int, seed: int, step: float, lane: float
) -> dict[str, torch.Tensor]:
    """What a memory holds after such a drive."""
    x = drive(count, step, lane)
    noise = torch.randn(
        count, dtype=torch.float64, generator=torch.Generator().manual_seed(100 + seed)
    )
    y = SIGNAL * random_field(length, seed)(x) + NOISE * noise
    still = torch.zeros_like(x)
    return {
        "x": x,
        "velocity": still,
        "heading": still,
        "y": (y - y[0])[:, None],
        "extra": torch.zeros(count, dtype=torch.float64),
        "order": torch.arange(count, dtype=torch.float64),
    }


def learn(theta: Theta, prior: Theta, data: dict, seed: int = 0) -> HyperLearner:
    """Cell by cell, each step as soon as it is pending."""
    learner, generator = (
        HyperLearner(theta, prior, free=LEARNED),
        torch.Generator().manual_seed(seed),
    )
    for n in range(1, len(data["x"]) + 1):
        learner.schedule(1)
        while learner.pending >= 1.0:
            learner.step({name: column[:n] for name, column in data.items()}, generator)
    return learner


def evidence(data: dict, vector: torch.Tensor) -> float:
    """log p(y) of all cells, nats."""
    parts = (data[name] for name in ("x", "velocity", "heading", "y", "extra"))
    return -len(data["x"]) * float(negative_log_evidence(Theta(1, 1, 1, 5.0), vector, *parts))


def highest(data: dict, vector: torch.Tensor) -> float:
    """The evidence's own maximum: Fisher scoring on all cells, each step halved until it climbs."""
    theta, best = Theta(1, 1, 1, 5.0), evidence(data, vector)
    parts = [data[name] for name in ("x", "velocity", "heading", "y", "extra")]
    for _ in range(20):
        gradient, information = evidence_score(theta, vector, list(LEARNED), *parts)
        step, before = torch.zeros(7, dtype=torch.float64), best
        step[:3] = torch.linalg.solve(
            information[:3, :3] + 1e-6 * torch.eye(3), gradient[:3]
        ).clamp(-1.0, 1.0)
        for _ in range(8):
            found = evidence(data, vector - step)
            if found > best:
                vector, best = vector - step, found
                break
            step = step / 2
        if best - before < 0.01:  # nats, of which three may be lost
            break
    return best


@pytest.mark.parametrize(
    "length, step, lane", [(0.2, 0.1, 0.5), (2.0, 0.1, 0.5), (0.2, 0.04, 0.1), (20.0, 3.0, 10.0)]
)
def test_the_evidence_of_all_cells_comes_near_its_maximum(length, step, lane):
    """300 cells; start and prior right, and each of ℓ, s, σ wrong by ten either way: 3 nats of the maximum."""
    data = cells_of(length, 300, 1, step, lane)
    truth = Theta(length, SIGNAL, NOISE, 5.0)
    starts = {
        replace(truth, **{name: factor * getattr(truth, name)})
        for name in ("lengthscale", "signal_stddev", "noise_stddev")
        for factor in (0.1, 1.0, 10.0)
    }
    assert len(starts) == 7, "the right one, and six wrong ones"
    found = {wrong: learn(wrong, wrong, data).vector for wrong in sorted(starts, key=repr)}
    reached = {wrong: evidence(data, vector) for wrong, vector in found.items()}
    most = highest(data, found[max(reached, key=reached.get)])
    lost = {case: most - value for case, value in reached.items()}
    assert max(lost.values()) <= 3.0, lost


def test_a_thousand_cells():
    """More than a neighbourhood holds: the prior, a tenth of the lengthscale, is outweighed."""
    data = cells_of(2.0, 1000, 1, 0.1, 0.5)
    wrong = Theta(0.2, SIGNAL, NOISE, 5.0)
    vector = learn(wrong, wrong, data).vector
    assert highest(data, vector) - evidence(data, vector) <= 3.0, vector.exp()


def test_it_comes_to_rest_at_the_posterior_of_all_cells():
    """One neighbourhood holds all: the resting point has a gradient of the posterior of 0, prior taken once."""
    data = cells_of(3.0, 150, 2, 0.1, 0.5)
    start = Theta(2.0, 1.0, 0.4, 5.0)
    learner, generator = HyperLearner(start, start, free=LEARNED), torch.Generator().manual_seed(0)
    for _ in range(300):
        learner.step(data, generator)
    gradient, information = learner.score(learner.vector, data, torch.arange(150))
    pull = learner.prior_precision(150, 150, 150) * (learner.vector - start.vector())
    away = torch.linalg.solve(information[:3, :3] + torch.eye(3), (gradient + pull)[:3])
    # neighbourhoods near a corner reach fewer than all: the rest is their scatter, a small part of one sd
    scale = torch.linalg.inv(information[:3, :3] + torch.eye(3)).diagonal().sqrt()
    assert float((away / scale).abs().max()) < 0.3, away / scale


def test_neighbourhoods_follow_the_lengthscale_that_is_learned():
    data = cells_of(1.0, 600, 0, 0.1, 0.5)
    generator, sizes = torch.Generator().manual_seed(0), {}
    for length in (0.01, 0.3, 3.0):
        learner = HyperLearner(Theta(length, 1.0, 1.0, 1.0), Theta(0.3, 1.0, 1.0, 1.0))
        drawn = [learner.neighbourhood(data["x"], data["order"], generator) for _ in range(60)]
        assert all(
            len(near) <= learner.NEIGHBOURS and len(near) <= count <= 600 for near, count in drawn
        )
        sizes[length] = max(count for _, count in drawn)
    # never fewer than tell that it is longer; all of them where it is long
    assert sizes[0.01] == HyperLearner.LEAST and sizes[0.01] < sizes[0.3] < sizes[3.0] == 600

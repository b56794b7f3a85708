"""A time offset that a way cannot tell: the stamps are believed until lanes in two directions speak against them."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from test_learner_bayes import drive, random_field

from gp_mapping.core.hyper.blocks import Blocks
from gp_mapping.core.hyper.evidence import negative_log_evidence
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.stamps import Stamps
from gp_mapping.core.hyper.theta import Theta, heading_from_velocity

LEARNED = (True, True, True, False, True, False, False)
START, SPEED, NOISE = Theta(0.8, 1.0, 0.1, 5.0), 0.5, 0.05


def spiral(turns: float = 4.0, apart: float = 0.5, step: float = 0.1) -> torch.Tensor:
    """(N, 2) places `step` apart on a way that always turns to one side."""
    angle = torch.linspace(1.0, 2 * math.pi * turns, 4000, dtype=torch.float64)
    at = apart / (2 * math.pi) * angle[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    along = torch.cat(
        [torch.zeros(1, dtype=torch.float64), (at[1:] - at[:-1]).norm(dim=1).cumsum(0)]
    )
    return at[
        torch.searchsorted(along, torch.arange(0.0, float(along[-1]), step, dtype=torch.float64))
    ]


def measured(x: torch.Tensor, seed: int, offset: float) -> dict[str, torch.Tensor]:
    """Of a sensor whose stamps are `offset` s late."""
    ahead = torch.cat([x[1:] - x[:-1], x[-1:] - x[-2:-1]])
    velocity = SPEED * ahead / ahead.norm(dim=1, keepdim=True)
    noise = NOISE * torch.randn(
        len(x), dtype=torch.float64, generator=torch.Generator().manual_seed(500 + seed)
    )
    y = random_field(0.8, seed)(x - offset * velocity) + noise
    return {
        "x": x,
        "velocity": velocity,
        "heading": heading_from_velocity(velocity),
        "y": (y - y.mean())[:, None],
        "extra": torch.zeros(len(x), dtype=torch.float64),
        "order": torch.arange(len(x), dtype=torch.float64),
    }


def learned(data: dict, start: Theta = START, seed: int = 0) -> HyperLearner:
    learner = HyperLearner(start, replace(start, time_offset=0.0), free=LEARNED)
    generator = torch.Generator().manual_seed(seed)
    for n in range(20, len(data["x"]) + 1, 5):
        learner.step({name: column[:n] for name, column in data.items()}, generator)
    return learner


def test_on_a_spiral_noise_does_not_become_an_offset():
    """Six fields, stamps that are right: what the map believes is less off than where the slope leads, as it should."""
    found = [learned(measured(spiral(), seed, 0.0)) for seed in range(6)]
    steepest = sum(abs(float(learner.vector[4])) for learner in found) / 6
    believed = sum(abs(learner.theta.time_offset) for learner in found) / 6
    assert believed < 0.8 * steepest, (believed, steepest)
    assert all(abs(learner.theta.time_offset) < abs(float(learner.vector[4])) for learner in found)


@pytest.mark.parametrize("said, truth", [(0.0, 0.2), (0.2, 0.2), (0.2, 0.0)])
def test_lanes_in_two_directions_tell_it_whatever_was_said(said, truth):
    data = measured(drive(300, 0.1, 0.4), 3, truth)
    learner = learned(data, replace(START, time_offset=said))
    assert learner.theta.time_offset == pytest.approx(truth, abs=0.03)
    if said != truth:
        assert learner.theta.time_offset == pytest.approx(float(learner.vector[4]), abs=0.005), (
            "all of it is believed"
        )


@pytest.mark.parametrize("said", [0.0, 0.15, -0.3])
@pytest.mark.parametrize("found", [0.02, 0.16])
def test_the_two_hypotheses_are_weighed_by_savage_and_dickey(said, found):
    """Whatever the stamps were said to be late by; the prior of any other offset is N(0, .2²)."""
    learner = HyperLearner(
        replace(START, time_offset=said), replace(START, time_offset=0.0), free=LEARNED
    )
    information = torch.diag(
        torch.tensor([90.0, 40.0, 60.0, 0.0, 500.0, 0.0, 0.0], dtype=torch.float64)
    )
    learner.continue_from(replace(START, time_offset=found), information)
    stddev = (500.0 + 1.0 / 0.2**2) ** -0.5
    ratio = stats.norm.pdf(said, found, stddev) / stats.norm.pdf(said, 0.0, 0.2)
    assert float(learner.supported_vector()[4]) == pytest.approx(
        said + (found - said) / (1.0 + ratio), rel=1e-9
    )


def loss_of_stamps(learner: HyperLearner, data: dict) -> float:
    """By how many nats all samples at once have less evidence with stamps that are right: the exact GP's."""
    stamps = learner.vector.clone()
    stamps[4] = 0.0
    columns = [data[name] for name in ("x", "velocity", "heading", "y", "extra")]
    at_stamps, at_offset = (
        float(negative_log_evidence(learner.theta, vector, *columns))
        for vector in (stamps, learner.vector)
    )
    return len(data["x"]) * (at_stamps - at_offset)


def test_what_speaks_against_the_stamps_is_their_evidence_and_not_a_curvature():
    """Where chance has chosen δ̂ the curvature there is chosen, too: it says 1.4 nats where there is .3."""
    data = measured(spiral(), 2, 0.0)
    learner = learned(data)
    exact = loss_of_stamps(learner, data)
    assert learner.blocks.loss_of_stamps(learner.vector) == pytest.approx(exact, abs=0.1)

    # the odds that follow; the other entries would move for right stamps, as far as they are tied to δ
    found, within = float(learner.vector[4]), float(learner.covariance()[4, 4])
    lost = exact - 0.5 * found**2 * (float(learner.precision()[4, 4]) - 1.0 / within)
    odds = 0.2 / math.sqrt(within) * math.exp(0.5 * (found / 0.2) ** 2 - lost)
    assert learner.theta.time_offset == pytest.approx(found / (1.0 + odds), rel=0.1)

    bend, slope = learner.blocks.information[:, 4, 4], learner.blocks.gradient[:, 4]
    away = -learner.blocks.at[:, 4]
    by_curvature = float(((slope + 0.5 * bend * away) * away).sum())
    assert abs(by_curvature - exact) > 0.5, (by_curvature, exact)


def test_the_variance_is_that_of_both_hypotheses():
    """p C + p (1 − p) δ̂² about E[δ] = p δ̂, also where a large map is cut into blocks; 0 where δ is not learned."""
    learner = learned(measured(spiral(), 2, 0.0))
    mean, variance = learner.offset_belief()
    change = float(learner.vector[4])
    late, within = mean / change, float(learner.covariance()[4, 4])
    assert 0.0 < late < 1.0 and learner.summary().offset_variance == variance
    assert variance == pytest.approx(late * within + late * (1.0 - late) * change**2, rel=1e-9)

    held = HyperLearner(START, START, free=(True, True, True, False, False, False, False))
    assert held.summary().offset_variance == 0.0


def test_a_learner_that_was_saved_before_stamps_were_weighed_goes_on():
    learner = learned(measured(spiral(), 2, 0.0))
    state = learner.state_dict()
    again = HyperLearner(START, START, free=LEARNED)
    again.load_state_dict(state)
    assert again.offset_belief() == learner.offset_belief()

    del state["blocks"]["against"]
    again.load_state_dict(state)
    assert 0.0 < again.offset_belief()[0] < float(again.vector[4]), "by the curvature, as then"


def blocks_that_said(against: float, slope: float, bend: float) -> Blocks:
    """One block, evaluated at δ = .1 s."""
    at, gradient = torch.zeros(2, 7, dtype=torch.float64)
    at[4], gradient[4] = 0.1, slope
    information = torch.zeros(7, 7, dtype=torch.float64)
    information[4, 4] = bend
    return Blocks.empty(2, 7).with_evaluation(0, 50, 49.0, at, gradient, information, against)


def test_what_a_block_said_of_stamps_is_carried_to_where_the_offset_is_now():
    """Its own loss at δ = .12 s, by its quadratic, is less to be lost; a block that is passed over says the same."""
    blocks, now = blocks_that_said(3.0, 20.0, 400.0), torch.zeros(7, dtype=torch.float64)
    now[4] = 0.12
    wanted = 3.0 - (20.0 * 0.02 + 0.5 * 400.0 * 0.02**2)
    assert blocks.loss_of_stamps(now) == pytest.approx(wanted)
    assert blocks.with_skipped(0, 50, 49.0, now).loss_of_stamps(now) == pytest.approx(wanted)


def test_right_stamps_are_judged_with_the_other_entries_at_their_best():
    """The prior is N(0, .2²), δ̂ = .1 s; of 3 nats, ½ (300 − 100) .1² = 1 are what the others make up for."""
    blocks, vector = blocks_that_said(3.0, 0.0, 300.0), torch.zeros(7, dtype=torch.float64)
    vector[4] = 0.1
    mean, variance = Stamps(0.0, 0.0, 0.2).belief(vector, 0.01, 300.0, blocks)
    late = 1.0 / (1.0 + 2.0 * math.exp(0.5 * 0.5**2 - 2.0))
    assert mean == pytest.approx(0.1 * late)
    assert variance == pytest.approx(late * 0.01 + late * (1 - late) * 0.01)

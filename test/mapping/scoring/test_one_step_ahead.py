"""Scores one step ahead, by the exact GP as the map: each against what the posterior of that moment says.

Of gp_mapping.mapping.scoring.one_step_ahead.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.freedom import noise_factor
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.registry import build_map
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.mapping.scoring.error_shape import ErrorShape
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.scoring.predictions import ScoredPredictions
from gp_mapping.mapping.scoring.response_slopes import ResponseSlopes
from gp_mapping.mapping.scoring.response_variance import ResponseVariance

SETTINGS = MapSettings(
    model="exact",
    field_scale=1.0,
    lengthscale=0.5,
    signal_stddev=2.0,
    noise_stddev=0.2,
    constant_stddev=3.0,
    heading_stddev=0.0,
    learn_hyperparameters=False,
    learn_time_offset=False,
    learn_bias=False,
    score_distance=1.0,
    cell_length=0.1,
)
RNG = np.random.default_rng(3)
STILL = torch.zeros(2, dtype=torch.float64)


def truth(x):
    return torch.sin(2.0 * x[:, :1]) + 0.5 * x[:, 1:]


def batch(x, off=0.0, n=None, **columns) -> Samples:
    x = torch.as_tensor(x, dtype=torch.float64)
    defaults = {"count": torch.full((len(x),), 4.0), "sensor_variance": torch.full((len(x),), 0.04)}
    moving = {"velocity": torch.zeros(len(x), 2)}
    return Samples(x, truth(x) + off, **(defaults | moving | columns))


def lane(start: float, end: float, y: float = 0.0, n: int = 12):
    return np.stack([np.linspace(start, end, n), np.full(n, y)], 1)


def begun(**settings):
    """A map of a lane, and scores without any."""
    given = replace(SETTINGS, **settings)
    field = build_map(given)
    field.update(batch(lane(0.0, 2.0)))
    return field, OneStepAhead(given)


def test_samples_are_picked_ten_a_second_while_the_robot_moves():
    stamps = np.cumsum(RNG.uniform(0.0, 0.08, 200))
    lengths = np.cumsum(RNG.uniform(0.0, 0.006, 200))
    stamps[120:] -= 3.0  # the clock leaps back
    expected, last = [], None
    for i, (t, s) in enumerate(zip(stamps, lengths)):
        if last is None or (abs(t - last[0]) >= 0.1 and s - last[1] >= 0.01):
            last = (t, s)
            expected.append(i)
    scores = OneStepAhead(SETTINGS)
    rows = [[float(i), 0.0] for i in range(200)]
    values, headings, rates = [[0.0]] * 200, [None] * 200, [0.0] * 200
    scores.pick_rows(rows, values, stamps.tolist(), lengths.tolist(), headings, rates)
    picked = [int(p["x"][0]) for p in scores.state_dict()["picked"]]
    assert picked == expected and 10 < len(picked) < 150
    # another pass begins with a pick of its own
    scores.pick(rows[0], [0.0], float(stamps[-1]), float(lengths[-1]))
    assert len(scores.state_dict()["picked"]) == len(expected)
    scores.break_pass()
    scores.pick(rows[0], [0.0], float(stamps[-1]), float(lengths[-1]))
    assert len(scores.state_dict()["picked"]) == len(expected) + 1
    # and where nobody asks for scores there are none
    for ask, needed in ((("predictive_noise",), True), (("follow_changes",), True), ((), False)):
        others = {"predictive_noise": False, "follow_changes": False} | dict.fromkeys(ask, True)
        scores = OneStepAhead(replace(SETTINGS, **others))
        scores.pick(rows[0], [0.0], 0.0, 0.0)
        assert scores.is_needed == needed == bool(scores.state_dict()["picked"])


def test_a_sample_is_scored_by_the_newest_posterior_that_is_a_distance_older():
    """Also of a pass of its own; an error counts as five standard deviations at most."""
    field, scores = begun()
    moments, at = [], torch.tensor([[1.0, 0.0]]).double()
    for k, length in enumerate((0.0, 0.3, 0.5, 0.9, 1.0, 1.5, 2.0)):
        scores.keep_posterior(length, field, at)
        if length in (0.0, 0.5, 1.0, 1.5, 2.0):  # half a distance apart
            moments.append((length, field.snapshot(None, 0.0)))
        field.update(batch(lane(0.1 * k, 0.1 * k + 1.0, 0.1 * (k + 1), 3)))
    moments = moments[-4:]  # the first is no longer kept

    queries = [(1.4, 0.0), (1.55, 0.1), (2.0, -0.2), (2.45, 0.3), (2.5, 9.0), (3.3, 0.05)]
    wanted_square, wanted_latent, z_square = [], [], []
    scores.note_white(0.09, 0.05)
    current = float(field.noise_variance()) + 0.04
    assert float(scores.component_variances(field)) == pytest.approx(current)
    for i, (length, off) in enumerate(queries):
        x = torch.tensor([[0.3 * i, 0.05]]).double()
        y = float(truth(x)) + off
        scores.pick(x[0].tolist(), [y], float(i), length)
        old = [s for at_length, s in moments if length - at_length >= 1.0]
        if not old:
            continue
        told = old[-1].predict_in_pass(x, NO_PASS, STILL[None], None)
        total = float(told.variance) + current
        residual = float(np.clip(y - float(told.mean), -5 * total**0.5, 5 * total**0.5))
        wanted_square.append(residual**2)
        wanted_latent.append(float(told.variance))
        z_square.append(min(residual**2 / total, 9.0))
    assert len(wanted_square) == 5  # the first has none that is old enough
    scores.score(STILL, field, NO_PASS)

    order = np.argsort(scores.noise.latent[:, 0].numpy())
    mine = np.argsort(wanted_latent)
    assert np.allclose(scores.noise.latent[order, 0], np.array(wanted_latent)[mine])
    assert np.allclose(scores.noise.residual_square[order, 0], np.array(wanted_square)[mine])
    # the local scale counts three standard deviations at most, each score a fifth
    sums = np.array(scores.local.sums())
    assert sums[:, 0].sum() == pytest.approx(0.2 * 5)
    assert sums[:, 1].sum() == pytest.approx(0.2 * sum(z_square)) and max(z_square) == 9.0
    # the noise is fitted with the first scores, and with every twenty after
    fitted = scores.noise.variances([current], 0.09)
    assert scores.fitted == pytest.approx(fitted)
    assert float(scores.component_variances(field)) == pytest.approx(fitted[0])
    assert scores.variance(field) == pytest.approx(fitted[0])
    fitted = scores.fitted
    for k in range(20):
        scores.break_pass()
        scores.pick([0.1 * k, 0.0], [3.0], 0.0, 3.5)
        scores.score(STILL, field, NO_PASS)
        assert (scores.fitted != fitted) == (k == 19), k
    assert len(scores.noise) == 25
    # who does not want it has the model's
    off = OneStepAhead(replace(SETTINGS, predictive_noise=False))
    off.load_state_dict(scores.state_dict(), field)
    assert float(off.component_variances(field)) == pytest.approx(current)


def test_a_change_is_forgotten_but_for_what_has_just_seen_it():
    field, scores = begun()
    radius = field.hyperparameters()["lengthscale"]
    assert scores.is_settled(field)
    place = torch.tensor([[1.0, 0.0]]).double()
    scores.keep_posterior(0.0, field, place)
    scores.local.add(np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([9.0, 9.0]))
    known = field.predict(place).variance
    for k in range(5):  # five cells with one and the same error
        field.update(batch([[1.0 + 0.02 * k, 0.0]], 3.0))
        samples = field.samples
        scores.detect_change(
            batch([[1.0 + 0.02 * k, 0.0]], 3.0, stamp=[7.0 + k]), 1.5 + 0.1 * k, field, 2
        )
        if scores.change_count:
            break
    assert scores.change_count == len(scores.changes) == 1 and 2 <= k <= 4
    # of the alarm, which may have waited for a cell that makes it sure
    (change,) = scores.changes
    alarmed = round(change.stamp - 7.0)
    assert 2 <= alarmed <= k and change.x == pytest.approx(1.0 + 0.02 * alarmed)
    # what lies within a lengthscale of it, but the newest two
    lane_x = lane(0.0, 2.0)[:, 0]
    at = change.x
    gone = (abs(lane_x - at) <= radius).sum() + (k + 1 - 2)
    assert len(field.remembered_places()) == samples - gone
    assert len(scores.local) == 1 and float(known) < float(field.predict(place).variance)
    assert float(field.predict(torch.tensor([[at, 0.0]]).double()).mean) == pytest.approx(
        float(truth(torch.tensor([[at, 0.0]]))) + 3.0, abs=0.5
    )


@pytest.mark.parametrize(
    "settings, place, length",
    [
        ({"follow_changes": False}, [1.0, 0.0], 1.5),
        ({}, [1.0, 0.9], 1.5),  # was hardly known before
        ({}, [1.0, 0.0], 0.9),  # no posterior is old enough
    ],
)
def test_what_is_no_change(settings, place, length):
    field, scores = begun(**settings)
    scores.keep_posterior(0.0, field, torch.tensor([place]).double())
    before = field.samples
    for k in range(8):
        scores.detect_change(batch([[place[0] + 0.02 * k, place[1]]], 3.0), length, field, 0)
    assert scores.change_count == 0 and field.samples == before


@pytest.mark.parametrize("off", [0.1, 2.0, -3.0, 40.0])
def test_a_cell_far_from_the_map_weighs_as_students_t_has_it(off):
    field, scores = begun()
    cell = batch([[0.7, 0.02]], off)
    told = field.predict_in_pass(cell.x, NO_PASS, STILL[None], None)
    noise = 0.2**2 + 0.04 / 4.0
    square = float((cell.y - told.mean).square()) / (float(told.variance) + noise)
    judged = scores.judge(cell, field)
    assert judged.cell is cell and judged.residual == (cell.y - told.mean)[0].tolist()
    if square <= 25.0:
        assert judged.weakened is cell and not judged.is_suspect
        return
    weight = 5.0 / (4.0 + square)
    # the noise of the cell is then that over its weight
    assert 0.2**2 + float(judged.weakened.sensor_variance) / 4.0 == pytest.approx(noise / weight)
    for spared in ({"robust": False}, {"cells": False}):
        got = OneStepAhead(replace(SETTINGS, **spared)).judge(cell, field)
        assert got.cell is got.weakened is cell and got.residual is None


def test_what_is_fitted_is_no_less_than_the_white_noise_of_one_sample():
    """However well a survey's few scores were foretold: every measurement has it."""
    field, scores = begun()
    scores.keep_posterior(0.0, field, torch.zeros(1, 2).double())
    scores.note_white(0.5, 0.5)
    scores.pick([1.0, 0.0], [float(truth(torch.tensor([[1.0, 0.0]])))], 0.0, 1.5)
    scores.score(STILL, field, NO_PASS)
    assert scores.predicts_finite(torch.zeros(1, 2).double())
    assert len(scores.noise) == 1 and scores.noise.variances([0.2**2])[0] < 0.1
    assert scores.fitted == [0.5] and float(scores.component_variances(field)) == 0.5


def test_predictions_are_scaled_by_the_scores_around_a_place():
    """The latent variance also by how little θ is known; the noise is no less than the white part."""
    field, scores = begun(local_scale=True)
    x = torch.tensor([[0.5, 0.1], [1.5, 0.0], [40.0, 0.0]]).double()
    fast = ResponseVariance(ResponseSlopes(0.0, 0.6, 1.0, "matern52"))
    answers = ScoredPredictions(field, scores, scores.settings, fast)
    plain = answers.predict(x)
    assert torch.equal(plain.variance, field.predict(x).variance)

    scores.local.add(np.repeat([[0.5, 0.1], [1.5, 0.0]], 200, 0), np.repeat([4.0, 0.2], 200))
    factor = torch.from_numpy(scores.local.scale_at(x))[:, None]
    assert factor[0] > 2.0 and factor[1] < 0.5 and factor[2] == 1.0
    for white in (0.0, 0.03):
        scores.note_white(white, white)
        told = answers.predict(x)
        torch.testing.assert_close(
            told.variance, plain.variance * factor * scores.local.everywhere, rtol=1e-9, atol=0.0
        )
        noise = (plain.noise_variance * factor).clamp_min(white)
        torch.testing.assert_close(told.noise_variance, noise, rtol=1e-9, atol=0.0)
        assert torch.equal(told.mean, plain.mean)

    # far from every score errors have the scores' own shape; those around a place make it normal
    assert plain.degrees is None and answers.error_degrees == math.inf
    scores.shape = ErrorShape(4.0, 10.0)
    degrees = answers.predict(x).degrees
    count = scores.local.scale_and_count_at(x)[1]
    assert degrees.shape == (3, 1) and float(degrees[2]) == answers.error_degrees == 4.0
    assert count[0] > 90.0 and degrees[:, 0].tolist() == pytest.approx((4.0 + count / 10).tolist())


def test_noise_that_nothing_but_the_evidence_tells_is_known_to_a_factor():
    """Of samples far apart; those that are neighbours tell the white part of it."""
    covariance = torch.zeros(7, 7).double()
    covariance[2, 2] = 2.0
    learned = Learned(Theta(1.0, 5.0, 0.2, 5.0), torch.eye(7), covariance)
    field = SimpleNamespace(
        noise_variance=lambda: torch.tensor([0.04]).double(), learned=lambda: learned
    )
    scores = OneStepAhead(SETTINGS)
    told = scores.variance(field)
    assert told == pytest.approx(0.04 * noise_factor(learned)) and told > 0.1
    scores.note_white(0.03, 0.01)
    assert scores.variance(field) == pytest.approx(0.06)


def test_two_sessions_scores_are_joined_by_how_many_they_are():
    field, one = begun()
    other = OneStepAhead(SETTINGS)
    for scores, n, white in ((one, 30, (0.2, 0.1)), (other, 10, (0.6, 0.5))):
        scores.noise.add(*(torch.from_numpy(RNG.random((n, 1))) for _ in range(2)))
        scores.note_white(*white)
        scores.local.add(RNG.random((n, 2)) * 4, np.ones(n))
    one.change_count, other.change_count, one.weakened, other.weakened = 2, 3, 5, 7
    one.join(other, field)
    assert one.white_variance == pytest.approx(0.75 * 0.2 + 0.25 * 0.6)
    assert one.white_averaged == pytest.approx(0.75 * 0.1 + 0.25 * 0.5)
    assert (one.change_count, one.weakened, len(one.noise)) == (5, 12, 40)
    assert np.array(one.local.sums())[:, 0].sum() == pytest.approx(0.2 * 40)
    expected = one.noise.variances([0.2**2 + max(0.0, 0.3 - 0.2)], one.white_variance)
    assert one.fitted == pytest.approx(expected)
    assert 2.0 < one.shape.degrees < math.inf
    resumed = OneStepAhead(SETTINGS)
    resumed.load_state_dict(one.state_dict(), field)
    assert resumed.shape == one.shape

    # of nothing and nothing nothing is known
    none = OneStepAhead(SETTINGS)
    none.join(OneStepAhead(SETTINGS), field)
    assert (
        none.fitted is None and none.white_variance == 0.0 and math.isfinite(none.variance(field))
    )


def judged(scores, field, off, place=0.5):
    """A cell that is so far off, judged."""
    return scores.judge(batch([[place, 0.0]], off), field)


def test_cells_are_judged_as_soon_as_it_is_known_what_is_usual(monkeypatch):
    """By sixteen cells, where the map has not learned for long; a resume knows it as well."""
    field, scores = begun()
    monkeypatch.setattr(OneStepAhead, "is_settled", lambda *_: False)
    for k in range(16):
        assert not scores.can_judge(field)
        wild = judged(scores, field, 40.0 if k % 8 == 7 else 0.2 * (-1) ** k)
        assert not wild.is_suspect and wild.residual is None
    again = OneStepAhead(scores.settings)
    again.load_state_dict(scores.state_dict(), field)
    for each in scores, again:
        assert each.can_judge(field)
        wild = judged(each, field, 3.0)
        assert wild.is_suspect and wild.residual == pytest.approx([3.0], abs=0.3)
        assert not judged(each, field, 0.5).is_suspect


@pytest.mark.parametrize("settled", [False, True])
def test_a_start_that_is_too_quiet_makes_no_gross_errors_of_the_field(monkeypatch, settled):
    """Far is five times what is usual, and no less than five standard deviations of the map."""
    field, scores = begun(noise_stddev=0.01)
    monkeypatch.setattr(OneStepAhead, "is_settled", lambda *_: settled)
    errors = np.random.default_rng(8).normal(0.0, 1.0, 80)
    suspects = [judged(scores, field, off).is_suspect for off in errors]
    assert not any(suspects[16:])
    assert judged(scores, field, 9.0).is_suspect
    quiet = begun()[1]
    for _ in range(20):
        judged(quiet, field, 0.0)
    assert not judged(quiet, begun()[0], 0.5).is_suspect

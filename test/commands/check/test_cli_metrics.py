from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm, t

from gp_mapping.analysis.metrics import PredictionScores, score, velocities
from gp_mapping.core.types import Prediction, Samples


def test_scores_are_those_of_a_gaussian():
    generator = np.random.default_rng(0)
    variance = generator.uniform(0.5, 4.0, 20000)
    error = generator.standard_normal(20000) * np.sqrt(variance)
    result = score(error, variance)
    assert result["rmse_ut"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert result["nlpd"] == pytest.approx(-norm.logpdf(error, scale=np.sqrt(variance)).mean())
    assert result["coverage"] == pytest.approx(0.95, abs=0.005) and result["n"] == 20000


def test_no_sample_is_no_number():
    assert score([], []) == {"rmse_ut": None, "nlpd": None, "coverage": None, "n": 0}


class Flat:
    """A map that says 50 µT with sd 1 µT everywhere, and noise of sd 2 µT."""

    def predict(self, x, velocity=None):
        one = torch.ones((len(x), 1), dtype=torch.float64)
        return Prediction(50e-6 * one, 1e-12 * one, torch.tensor([4e-12], dtype=torch.float64))


def test_bands_go_by_the_distance_to_the_training_path():
    scores = PredictionScores(Flat(), np.array([[0.0, 0.0], [10.0, 0.0]]))
    x = torch.tensor([[0.05, 0.0], [10.0, 0.09], [0.0, 0.1], [0.0, 0.29], [0.0, 0.31], [5.0, 0.0]])
    y = torch.tensor([51.0, 49.0, 52.0, 48.0, 50.0, 60.0]) * 1e-6
    scores.add(Samples(x[:3], y[:3], stamp=[1.0, 2.0, 3.0]))
    scores.add(Samples(x[3:], y[3:], stamp=[1.0, 2.0, 3.0]), new_pass=True)
    result = scores.result()
    assert {name: band["n"] for name, band in result["bands"].items()} == {
        "<0.1": 2,
        "0.1-0.3": 2,
        ">0.3": 2,
    }
    assert result["bands"]["<0.1"]["rmse_ut"] == pytest.approx(1.0, rel=1e-5)
    assert result["bands"]["0.1-0.3"]["rmse_ut"] == pytest.approx(2.0, rel=1e-5)
    assert result["bands"][">0.3"]["coverage"] == 0.5
    assert result["n"] == 6
    assert result["nlpd"] == pytest.approx(
        -norm.logpdf([1, 1, 2, 2, 0, 10], scale=np.sqrt(5.0)).mean(), rel=1e-5
    )


class Heavy(Flat):
    """The same with errors of three degrees of freedom at x > 1 m."""

    def predict(self, x, velocity=None):
        degrees = torch.where(x[:, :1] > 1.0, 3.0, torch.inf).double()
        return replace(super().predict(x), degrees=degrees)


def test_each_error_has_the_density_of_its_own_degrees_of_freedom():
    scores = PredictionScores(Heavy(), np.array([[0.0, 0.0], [5.0, 0.0]]))
    x = torch.tensor([[0.0, 0.0], [5.0, 0.0]])
    scores.add(Samples(x, torch.tensor([60.0, 60.0]) * 1e-6, stamp=[1.0, 2.0]))
    unit = np.sqrt(5.0) * norm.ppf(0.975)
    heavy = t.logpdf(10.0, 3.0, scale=unit / t.ppf(0.975, 3.0))
    expected = -0.5 * (norm.logpdf(10.0, scale=np.sqrt(5.0)) + heavy)
    assert scores.result()["nlpd"] == pytest.approx(expected, rel=1e-5)


def test_nothing_added_is_no_number():
    assert PredictionScores(Flat(), np.zeros((1, 2))).result()["bands"]["<0.1"]["n"] == 0


class Lagging:
    """What a sensor that lags behind by 0.2 s measures of a field that rises by 1 µT/m along x."""

    def predict(self, x, velocity):
        mean = (x[:, :1] - 0.2 * velocity[:, :1]) * 1e-6
        return Prediction(
            mean, torch.full_like(mean, 1e-18), torch.tensor([1e-18], dtype=torch.float64)
        )


def test_predictions_know_the_velocity_within_each_pass():
    """Passes in opposite directions, handed over in pieces: no velocity may come from across a pass or a piece."""
    t = np.arange(0.0, 4.0, 0.02)
    scores = PredictionScores(Lagging(), np.zeros((1, 2)))
    for start, speed in ((1.7e9, 0.5), (1.7e9 + 60, -0.3)):
        samples = Samples(
            np.stack([speed * t, 0 * t], 1), speed * (t - 0.2) * 1e-6, stamp=start + t
        )
        for at in range(0, 200, 50):
            scores.add(samples[at : at + 50], new_pass=at == 0)
    assert scores.result()["rmse_ut"] < 1e-5


def test_velocities():
    t = np.array([0.0, 0.1, 0.3, 1.0, 2.0])
    np.testing.assert_allclose(
        velocities(t, np.stack([2 * t, 1 - t], 1)), np.tile([2.0, -1.0], (5, 1))
    )
    np.testing.assert_array_equal(velocities(t[:1], np.ones((1, 2))), [[0.0, 0.0]])

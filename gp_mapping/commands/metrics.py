"""How good a map is on measurements it has not seen: RMSE, density, coverage, also by distance to the path."""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial import cKDTree

__all__ = ["BANDS", "PredictionScores", "score"]

BANDS = ("<0.1", "0.1-0.3", ">0.3")  # metres to the nearest training position
_EDGES = (0.1, 0.3)
_QUANTILE = 1.959963984540054  # of the standard normal at 97.5 %


def score(error, variance) -> dict:
    """RMSE, NLPD and 95 % coverage of Gaussian predictions, and how many; None for all where there is none.

    nlpd = mean of ½ log(2π v) + e² / (2 v), the density being that of values in the unit of `error`.
    error: (N,) value − mean.  variance: (N,) of a measurement (latent + noise), the unit squared.
    """
    error, variance = np.asarray(error, np.float64).ravel(), np.asarray(variance, np.float64).ravel()
    if not len(error):
        return {"rmse_ut": None, "nlpd": None, "coverage": None, "n": 0}
    return {"rmse_ut": math.sqrt(float(np.mean(error**2))),
            "nlpd": float(np.mean(0.5 * np.log(2.0 * np.pi * variance) + 0.5 * error**2 / variance)),
            "coverage": float(np.mean(np.abs(error) <= _QUANTILE * np.sqrt(variance))), "n": len(error)}


class PredictionScores:
    """Collects errors of one map; `train` is where it was trained, all positions (N, 2) in metres.

    unit: what the numbers are in, in SI (1e-6 T = 1 µT).
    """

    def __init__(self, session, train: np.ndarray, unit: float = 1e-6):
        self._session, self._unit, self._tree = session, unit, cKDTree(train)
        self._errors: list[np.ndarray] = []
        self._variances: list[np.ndarray] = []
        self._distances: list[np.ndarray] = []

    def add(self, samples) -> None:
        """Predict at the samples and keep errors, predictive variances and distances to the training path."""
        prediction = self._session.predict(samples.x)
        self._errors.append((samples.y - prediction.mean.cpu()).numpy()[:, 0] / self._unit)
        self._variances.append(prediction.measurement_variance.cpu().numpy()[:, 0] / self._unit**2)
        self._distances.append(self._tree.query(samples.x.numpy())[0])

    def result(self) -> dict:
        """rmse_ut, nlpd, coverage, n over all, and `bands`: the same by distance to the training path in metres."""
        error, variance, distance = (np.concatenate(a) if a else np.empty(0)
                                     for a in (self._errors, self._variances, self._distances))
        band = np.digitize(distance, _EDGES)
        bands = {name: score(error[band == i], variance[band == i]) for i, name in enumerate(BANDS)}
        return {**score(error, variance), "bands": bands}

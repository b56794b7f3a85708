"""How good a map is on unseen measurements: RMSE, density, coverage; also by distance."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.spatial import cKDTree

from gp_mapping.analysis.changed import at_changes
from gp_mapping.core.types import Samples
from gp_mapping.mapping.scoring.error_shape import degrees_of, log_density
from gp_mapping.mapping.session import MapSession

__all__ = ["BANDS", "PredictionScores", "as_mapped", "score", "velocities"]

BANDS = ("<0.1", "0.1-0.3", ">0.3")  # metres to the nearest training position
_EDGES = (0.1, 0.3)  # m, between BANDS
_HALF_STEP = 0.25  # s, h of the velocities
_CHUNK = 5000  # samples predicted at once
_QUANTILE = 1.959963984540054  # of the standard normal at 97.5 %


def score(error, variance, degrees=math.inf) -> dict:
    """Return RMSE, NLPD and 95 % coverage of predictions, and their number.

        nlpd = mean of −log p(e),   normal: ½ log(2π v) + e² / (2 v)

    The density is that of values in the unit of `error`. Without a prediction all but n are None.

    Args:
        error: (N,) value − mean.
        variance: (N,) of a measurement (latent + noise), the unit squared.
        degrees: (N,) or one, of freedom of Student's t that errors are expected to follow.
    """
    error, variance = (
        np.asarray(error, np.float64).ravel(),
        np.asarray(variance, np.float64).ravel(),
    )

    if not len(error):
        return {"rmse_ut": None, "nlpd": None, "coverage": None, "n": 0}
    return {
        "rmse_ut": math.sqrt(float(np.mean(error**2))),
        "nlpd": -float(np.mean(log_density(error, variance, degrees))),
        # The central 95 % interval.
        "coverage": float(np.mean(np.abs(error) <= _QUANTILE * np.sqrt(variance))),
        "n": len(error),
    }


def velocities(stamp: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the velocities (N, D) m/s along one pass.

        (x(t + h) − x(t − h)) / 2h,   h = 0.25 s

    One-sided at the ends; 0 for one sample.

    Args:
        stamp: (N,) s, increasing.
        x: (N, D) m.
    """
    early, late = (
        np.maximum(stamp - _HALF_STEP, stamp[0]),
        np.minimum(stamp + _HALF_STEP, stamp[-1]),
    )
    moved = [np.interp(late, stamp, column) - np.interp(early, stamp, column) for column in x.T]
    return np.stack(moved, 1) / np.where(late > early, late - early, 1.0)[:, None]


def as_mapped(session, samples: Samples) -> Samples:
    """Return one pass as a session takes it in (MapSession.as_mapped).

    Unchanged where the predictor is no MapSession.
    """
    return session.as_mapped(samples) if isinstance(session, MapSession) else samples


class PredictionScores:
    """Errors of one map on unseen measurements, predicted as a robot makes them on its way.

    Of a map of several components each one is an error; n counts measurements all the same. With
    classes and counts an error is label − probability, or count − what the rate says of one
    measurement; nlpd is the likelihood's own (log ∫ p(y|f) q(f) df), and there is no interval to
    count: coverage is None.

    Args:
        session: the map, or a baseline with the same predict.
        train: (N, 2) m, every position it was trained at.
        unit: what the numbers are in, in SI (1e-6 T = 1 µT); the key stays rmse_ut whatever it is.
    """

    def __init__(self, session, train: np.ndarray, unit: float = 1e-6):
        self._session, self._unit, self._tree = session, unit, cKDTree(train)

        self._pass: list[Samples] = []
        self._channels = 1
        # Baselines predict the field.
        self._metric = not isinstance(session, MapSession) or session.settings.metric
        self._parts: list[np.ndarray] = []  # rows of error, variance, ν, distance, x, y

    def add(self, samples: Samples, new_pass: bool = False) -> None:
        """Take in the next samples of the stream.

        Args:
            samples: of one pass.
            new_pass: whether a new pass begins, as of `Intake.batches`.
        """
        if new_pass:
            self._score_pass()
        self._pass.append(samples)

    def _score_pass(self) -> None:
        """Predict along one pass.

        With its velocity and heading: the map may have learned a time offset and a heading term.
        """
        if not self._pass:
            return
        whole, self._pass = Samples.concatenate(self._pass), []
        samples = as_mapped(self._session, whole)
        # A predictor other than a session takes no headings.
        headings = None if samples is whole else samples.heading

        x = samples.x.numpy()
        velocity = velocities(samples.stamp.numpy() - float(samples.stamp[0]), x)

        for at in range(0, len(x), _CHUNK):
            part = slice(at, at + _CHUNK)
            heading = () if headings is None else (headings[part],)
            error, variance, degrees = self._errors(
                samples[part], torch.from_numpy(velocity[part]), *heading
            )

            # One row for each component.
            distance = np.repeat(self._tree.query(x[part])[0], error.shape[1])
            self._channels = error.shape[1]
            places = np.repeat(x[part, :2], error.shape[1], axis=0)
            nu = np.repeat(degrees, error.shape[1])
            self._parts.append(
                np.column_stack([error.ravel(), variance.ravel(), nu, distance, places])
            )

    def _errors(self, samples: Samples, velocity, *heading) -> tuple[np.ndarray, ...]:
        """Return errors (n, C), their variances, ν; of classes and counts −log of the density."""
        if self._metric:
            prediction = self._session.predict(samples.x, velocity, *heading)
            return (
                (samples.y - prediction.mean.cpu()).numpy() / self._unit,
                prediction.measurement_variance.cpu().numpy() / self._unit**2,
                degrees_of(prediction),
            )

        field, settings = self._session.map, self._session.settings
        y = field.outcome(samples.y)
        prediction = field.observable(samples.x).mean.cpu()
        # A rate is for one second, a count for the duration of one measurement.
        if settings.likelihood == "poisson":
            prediction = prediction * settings.count_duration

        surprise = -field.log_predictive(samples).cpu()
        return (
            (y - prediction).numpy(),
            surprise[:, None].expand(-1, y.shape[1]).numpy(),
            np.full(len(y), math.inf),
        )

    def result(self, changes: list[dict] | None = None) -> dict:
        """Return rmse_ut, nlpd, coverage and n over all, and `bands`: the same by distance.

        That is the distance to the nearest training position.

        Args:
            changes: of the field, as of ChangeFollower; with them `changed` and `unchanged` are the
                same at their places, and elsewhere.
        """
        self._score_pass()
        told, (distance, *places) = np.split(
            np.concatenate([np.empty((0, 6)), *self._parts]).T, [3]
        )

        by_change = {}
        if changes:
            in_changed_place = at_changes(np.stack(places, 1), changes)
            by_change = {
                name: self._score(*told[:, mask])
                for name, mask in (("changed", in_changed_place), ("unchanged", ~in_changed_place))
            }

        band = np.digitize(distance, _EDGES)
        bands = {name: self._score(*told[:, band == i]) for i, name in enumerate(BANDS)}
        return {**self._score(*told), "bands": bands, **by_change}

    def _score(self, error: np.ndarray, variance: np.ndarray, degrees: np.ndarray) -> dict:
        """Return the scores of some errors; n counts measurements, not components."""
        if self._metric:
            scores = score(error, variance, degrees)
        else:
            scores = score(error, np.ones_like(error)) | {"coverage": None}
            scores["nlpd"] = float(variance.mean()) if len(variance) else None
        return scores | {"n": scores["n"] // self._channels}

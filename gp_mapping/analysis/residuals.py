"""Predictions of unseen measurements against what was measured: coverage, PIT, autocorrelation."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from scipy.spatial import cKDTree

from gp_mapping.analysis.metrics import BANDS, as_mapped, score, velocities
from gp_mapping.core.types import Samples
from gp_mapping.mapping.drawing.vector import excess, norm
from gp_mapping.mapping.scoring.error_shape import degrees_of, half_width, probability_below

__all__ = ["GRID", "LEVELS", "Residuals", "norm_residuals", "residuals", "slots_of"]

LEVELS = (0.5, 0.8, 0.95, 0.99)
LAGS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # s, of the autocorrelation
_EDGES = (0.1, 0.3)  # m, between BANDS
_CHUNK = 5000
GRID = 0.1  # s, to which errors are averaged for the autocorrelation


@dataclass(frozen=True)
class Residuals:
    """Errors of N predicted measurements.

    Attributes:
        stamp: (N,) s.
        x: (N, 2) m.
        error: (N,) measured − predicted, display unit.
        variance: (N,) of that difference, display unit squared.
        distance: (N,) m to the nearest training position.
        which: (N,) the pass, 0, 1, ….
        degrees: (N,) of freedom of Student's t that errors are expected to follow.
    """

    stamp: np.ndarray
    x: np.ndarray
    error: np.ndarray
    variance: np.ndarray
    distance: np.ndarray
    which: np.ndarray
    degrees: np.ndarray

    def __len__(self) -> int:
        return len(self.error)

    def part(self, mask: np.ndarray) -> Residuals:
        """Return the measurements that mask (N,) selects."""
        return Residuals(*(getattr(self, field.name)[mask] for field in fields(self)))

    @property
    def pit(self) -> np.ndarray:
        """P(error): uniform over (0, 1) where the predicted distribution is right."""
        return probability_below(self.error, self.variance, self.degrees)

    def coverage(self, mask=None) -> dict[str, float]:
        """Return the fraction of measurements inside each central interval.

        By the interval's level in per cent; {} without measurements.

        Args:
            mask: (N,) bool, the measurements that count; None: all.
        """
        z, degrees = np.abs(self.error) / np.sqrt(self.variance), self.degrees
        z, degrees = (z, degrees) if mask is None else (z[mask], degrees[mask])

        return (
            {
                f"{100 * level:g}": float(np.mean(z <= half_width(level, degrees)))
                for level in LEVELS
            }
            if len(z)
            else {}
        )

    def summary(self) -> dict:
        """Return rmse_ut, nlpd, coverage (95 %) and n, and more on the distribution of errors.

        That is: coverage_levels, bands (the same by distance), pit (a histogram of 10 bins), bias
        (the mean error) and autocorrelation.
        """
        band = np.digitize(self.distance, _EDGES)
        bands = {
            name: score(self.error[band == i], self.variance[band == i], self.degrees[band == i])
            | {"coverage_levels": self.coverage(band == i)}
            for i, name in enumerate(BANDS)
        }

        counts = np.histogram(self.pit, bins=10, range=(0.0, 1.0))[0] / max(1, len(self))
        return score(self.error, self.variance, self.degrees) | {
            "coverage_levels": self.coverage(),
            "bands": bands,
            "pit": counts.tolist(),
            "bias": float(self.error.mean()),
            "autocorrelation": self.autocorrelation(),
        }

    def autocorrelation(self, lags=LAGS) -> dict[str, float]:
        """Return the autocorrelation of error/σ along each pass, averaged over slots of 0.1 s.

        Args:
            lags: s; a lag that no pass reaches is left out.
        """
        z = self.error / np.sqrt(self.variance)
        products, before, after = np.zeros((3, len(lags)))

        for number in np.unique(self.which):
            members = self.which == number
            # Errors are averaged over slots, so that samples at any rate can be compared.
            slot = slots_of(self.stamp[members])
            total, n = (
                np.bincount(slot, weights=w)
                for w in (z[members] - z.mean(), np.ones(members.sum()))
            )

            occupied = n > 0
            series = np.where(occupied, total / np.maximum(n, 1), 0.0)
            for i, lag in enumerate(lags):
                step = max(1, round(lag / GRID))
                # Only pairs of slots that both hold a measurement.
                both = occupied[step:] & occupied[:-step]
                earlier, later = series[:-step][both], series[step:][both]
                products[i] += float(earlier @ later)
                before[i] += float(earlier @ earlier)
                after[i] += float(later @ later)

        # By the pairs' own squares it lies within −1 and 1, however few they are.
        return {
            f"{lag:g}": float(products[i] / np.sqrt(before[i] * after[i]))
            for i, lag in enumerate(lags)
            if before[i] * after[i] > 0
        }


def slots_of(stamp: np.ndarray) -> np.ndarray:
    """Return the slot of `GRID` seconds, from 0, of each stamp (N,) s of a pass.

    The first stamp is the middle of its slot, not an edge, so that those of a sensor with a period
    of whole slots stay that far apart, however they are rounded.
    """
    return np.rint((stamp - stamp.min()) / GRID).astype(int)


def _predicted(session, passes: list[Samples], trained: np.ndarray, still: bool = False):
    """Predict the samples of the passes, part by part: a part bounds the memory.

    Yields:
        The number of the pass, the samples, the prediction, and distances to the training path (m).
    """
    tree = cKDTree(trained)
    for number, samples in enumerate(passes):
        samples = as_mapped(session, samples)

        x, stamp = samples.x.numpy(), samples.stamp.numpy()
        velocity = torch.from_numpy(velocities(stamp - stamp[0], x))

        for at in range(0, len(x), _CHUNK):
            part = slice(at, at + _CHUNK)
            prediction = session.predict(
                samples.x[part],
                *(
                    ()
                    if still
                    else (
                        velocity[part],
                        None if samples.heading is None else samples.heading[part],
                    )
                ),
            )
            yield number, samples[part], prediction, tree.query(x[part])[0]


def residuals(
    session, passes: list[Samples], trained: np.ndarray, still: bool = False
) -> Residuals:
    """Predict every measurement of the passes as the robot makes it, moving and heading as it does.

    Of a map of several components each one counts as a pass of its own.

    Args:
        session: the map.
        passes: the measurements.
        trained: (N, 2) m, training positions.
        still: predict the field at the place alone, without time offset and the body-fixed field.
    """
    unit, parts = session.settings.field_scale, []
    for k, samples, prediction, distance in _predicted(session, passes, trained, still):
        error = (samples.y - prediction.mean.cpu()).numpy() / unit  # (n, C)
        variance = prediction.measurement_variance.cpu().numpy() / unit**2
        for c in range(error.shape[1]):
            # Number of the pass and the component, as component_scores takes it apart.
            which = np.full(len(error), k * error.shape[1] + c)
            parts.append(
                (
                    samples.stamp.numpy(),
                    samples.x.numpy(),
                    error[:, c],
                    variance[:, c],
                    distance,
                    which,
                    degrees_of(prediction),
                )
            )
    return _joined(parts)


def norm_residuals(session, passes: list[Samples], trained: np.ndarray) -> Residuals:
    """Return the residuals of the norm of a map of several components, to first order.

    Args:
        session: a map of several components.
        passes: of the test, each in order of time.
        trained: (N, 2) m, training positions.

    Returns:
        Residuals in the display unit; `which` is the number of the pass.

    Raises:
        ValueError: a prediction is not finite.
    """
    unit, parts = session.settings.field_scale, []
    for k, samples, prediction, distance in _predicted(session, passes, trained):
        mean, stddev = (
            part.numpy()
            for part in norm(
                prediction.mean.mT.cpu(),
                prediction.measurement_variance.mT.cpu(),
                torch.from_numpy(excess(prediction)),
            )
        )
        error = (samples.y.norm(dim=1).numpy() - mean) / unit
        parts.append(
            (
                samples.stamp.numpy(),
                samples.x.numpy(),
                error,
                (stddev / unit) ** 2,
                distance,
                np.full(len(error), k),
                degrees_of(prediction),
            )
        )
    return _joined(parts)


def _joined(parts: list[tuple]) -> Residuals:
    """Return the parts as one Residuals; ValueError where an error is not finite."""
    columns = [np.concatenate(column) for column in zip(*parts)] if parts else [np.empty(0)] * 7
    if parts and not math.isfinite(float(columns[2].sum())):
        raise ValueError("the map predicts values that are not finite")
    return Residuals(*columns)

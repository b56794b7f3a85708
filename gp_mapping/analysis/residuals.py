"""What a map said of measurements it has not seen, against what was measured: coverage, PIT, autocorrelation."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.special import ndtr, ndtri

from gp_mapping.analysis.metrics import BANDS, score, seen, velocities
from gp_mapping.core.types import Samples
from gp_mapping.mapping.drawing.vector import excess, norm

__all__ = ["LEVELS", "Residuals", "norm_residuals", "residuals"]

LEVELS = (0.5, 0.8, 0.95, 0.99)
LAGS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # s
_EDGES = (0.1, 0.3)  # m, of BANDS
_CHUNK = 5000
_GRID = 0.1  # s, of the autocorrelation


@dataclass(frozen=True)
class Residuals:
    """Of each measurement, (N,) unless said: stamp (s), x (N, 2) m, error and variance (display unit, squared),
    distance to the nearest training position (m), which pass (0, 1, …)."""

    stamp: np.ndarray
    x: np.ndarray
    error: np.ndarray
    variance: np.ndarray
    distance: np.ndarray
    which: np.ndarray

    def __len__(self) -> int:
        return len(self.error)

    def part(self, mask: np.ndarray) -> Residuals:
        """Those where mask (N,) says so."""
        return Residuals(*(getattr(self, field.name)[mask] for field in fields(self)))

    @property
    def pit(self) -> np.ndarray:
        """Φ(error/σ): uniform over (0, 1) where the map means what it says."""
        return ndtr(self.error / np.sqrt(self.variance))

    def coverage(self, mask=None) -> dict[str, float]:
        """Share of the measurements inside each central interval, by its level in per cent."""
        z = np.abs(self.error) / np.sqrt(self.variance)
        z = z if mask is None else z[mask]
        return (
            {f"{100 * level:g}": float(np.mean(z <= ndtri(0.5 + level / 2))) for level in LEVELS}
            if len(z)
            else {}
        )

    def summary(self) -> dict:
        """rmse_ut, nlpd, coverage (95 %), n; coverage_levels; bands: the same by distance; PIT; autocorrelation."""
        band = np.digitize(self.distance, _EDGES)
        bands = {
            name: score(self.error[band == i], self.variance[band == i])
            | {"coverage_levels": self.coverage(band == i)}
            for i, name in enumerate(BANDS)
        }
        counts = np.histogram(self.pit, bins=10, range=(0.0, 1.0))[0] / max(1, len(self))
        return score(self.error, self.variance) | {
            "coverage_levels": self.coverage(),
            "bands": bands,
            "pit": counts.tolist(),
            "bias": float(self.error.mean()),
            "autocorrelation": self.autocorrelation(),
        }

    def autocorrelation(self, lags=LAGS) -> dict[str, float]:
        """Of error/σ along each pass at lags in s, averaged over 0.1 s; a lag that no pass reaches is left out."""
        z = self.error / np.sqrt(self.variance)
        top = np.zeros(len(lags))
        pairs, square, count = np.zeros(len(lags)), 0.0, 0
        for k in np.unique(self.which):
            on = self.which == k
            slot = np.floor((self.stamp[on] - self.stamp[on].min()) / _GRID).astype(int)
            total, n = (np.bincount(slot, weights=w) for w in (z[on] - z.mean(), np.ones(on.sum())))
            there = n > 0
            series = np.where(there, total / np.maximum(n, 1), 0.0)
            square, count = square + float((series**2).sum()), count + int(there.sum())
            for i, lag in enumerate(lags):
                step = max(1, round(lag / _GRID))
                both = there[step:] & there[:-step]
                top[i] += float((series[step:] * series[:-step])[both].sum())
                pairs[i] += int(both.sum())
        level = square / max(1, count)
        return {
            f"{lag:g}": float(top[i] / pairs[i] / level)
            for i, lag in enumerate(lags)
            if pairs[i] and level > 0
        }


def _told(session, passes: list[Samples], trained: np.ndarray, still: bool = False):
    """(number of the pass, part of its samples, what the map says of them, distances in m), part by part."""
    tree = cKDTree(trained)
    for k, samples in enumerate(passes):
        samples = seen(session, samples)
        x, stamp = samples.x.numpy(), samples.stamp.numpy()
        velocity = torch.from_numpy(velocities(stamp - stamp[0], x))
        for at in range(0, len(x), _CHUNK):
            part = slice(at, at + _CHUNK)
            told = session.predict(
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
            yield k, samples[part], told, tree.query(x[part])[0]


def residuals(
    session, passes: list[Samples], trained: np.ndarray, still: bool = False
) -> Residuals:
    """Predict every measurement of the passes as the robot would make it, with its velocity and heading.

    Of a map of several components each one counts as a pass of its own.
    trained: (N, 2) m.  still: the field at the place alone, without time offset and the robot's own field.
    """
    unit, parts = session.settings.field_scale, []
    for k, samples, told, away in _told(session, passes, trained, still):
        error = (samples.y - told.mean.cpu()).numpy() / unit  # (n, C)
        variance = told.measurement_variance.cpu().numpy() / unit**2
        for c in range(error.shape[1]):
            which = np.full(len(error), k * error.shape[1] + c)
            parts.append(
                (samples.stamp.numpy(), samples.x.numpy(), error[:, c], variance[:, c], away, which)
            )
    return _joined(parts)


def norm_residuals(session, passes: list[Samples], trained: np.ndarray) -> Residuals:
    """The same of the norm of a map of several components, to first order."""
    unit, parts = session.settings.field_scale, []
    for k, samples, told, away in _told(session, passes, trained):
        mean, spread = norm(
            told.mean.mT.cpu().numpy(), told.measurement_variance.mT.cpu().numpy(), excess(told)
        )
        error = (samples.y.norm(dim=1).numpy() - mean) / unit
        parts.append(
            (
                samples.stamp.numpy(),
                samples.x.numpy(),
                error,
                (spread / unit) ** 2,
                away,
                np.full(len(error), k),
            )
        )
    return _joined(parts)


def _joined(parts: list[tuple]) -> Residuals:
    columns = [np.concatenate(column) for column in zip(*parts)] if parts else [np.empty(0)] * 6
    if parts and not math.isfinite(float(columns[2].sum())):
        raise ValueError("the map predicts values that are not finite")
    return Residuals(*columns)

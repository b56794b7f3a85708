"""Hard and soft iron of a magnetometer, from readings made while the robot turned in one place.

A field of fixed strength F that turns in the sensor's axes is read as m = A b + h: an ellipsoid
about h. So with S = A⁻¹ up to a rotation and a scale, for all readings

    |S (m − h)| = F

Lengths do not show a rotation: S is taken symmetric. Nor do they show the scale: its determinant is
1. A robot that turns about one axis only draws an ellipse: what lies in its plane can be found, but
the offset along the axis and the scale against it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from gp_mapping.errors import UserError

__all__ = ["Calibration", "CalibrationError", "calibrate"]

_FEWEST = 30  # readings left after thinning
# side of a box, as a fraction of the spread: standing still must not outweigh turning
_THIN = 0.02
_MOST = 4000  # points to fit
_SPIKE = 2.5  # a reading this many median distances from the middle is none of an ellipsoid's
# spread across the plane over spread within it; below, the third dimension is tilt and noise
_FLAT = 0.25
_WIDEST_GAP = np.radians(100.0)  # largest angle without a reading, in the plane
_CAP = np.radians(60.0)  # in space, each direction needs a reading this near
_STRONGEST = 1.0  # T
_WORST_FIT = 0.15  # rms of |b| / F − 1: beyond, there is no ellipsoid


class CalibrationError(UserError):
    """Readings that cannot be calibrated from; the text says why, and how to drive instead."""


@dataclass(frozen=True)
class Calibration:
    """What corrects a reading m: soft (m − hard).

    Attributes:
        hard: (3,) T.
        soft: (3, 3).
        planar: whether it was found in a plane only; along the plane's normal nothing is changed.
        normal: (3,) of that plane, in the sensor's axes.
        field: strength of the corrected field, T: in space, or where planar in the plane.
        before: rms deviation of the strength (planar: of the part in the plane) from its own mean,
            of the readings as they came, as a fraction of `field`.
        after: the same of the corrected readings.
        used: how many points the fit used.
        readings: how many readings there were.
        turned: fraction of directions that were seen, of the circle or of the sphere.
    """

    hard: np.ndarray
    soft: np.ndarray
    planar: bool
    normal: np.ndarray
    field: float
    before: float
    after: float
    used: int
    readings: int
    turned: float

    def correct(self, readings) -> np.ndarray:
        """Correct readings.

        Args:
            readings: (N, 3) T.

        Returns:
            (N, 3) T.
        """
        return (np.asarray(readings, np.float64) - self.hard) @ self.soft.T


def calibrate(readings) -> Calibration:
    """Least squares of |S (m − h)| = F over readings.

    In space or, for a planar robot, in its plane.

    Args:
        readings: (N, 3) T, while the robot turned.

    Raises:
        CalibrationError: there are too few readings, they turn too little, or no ellipsoid fits
            them.
    """
    readings = np.asarray(readings, np.float64).reshape(-1, 3)

    # a comparison with NaN is false; no sensor on a robot reads beyond 1 T, and 1e200² overflows
    readings = readings[(np.abs(readings) <= _STRONGEST).all(1)]
    if len(readings) < _FEWEST:
        raise CalibrationError(
            f"{len(readings)} readings, expected {_FEWEST} at the least: let the robot turn for "
            "longer"
        )

    points = _thin(readings)
    centre = points.mean(0)
    # rows of `axes` are the principal axes; of readings in a plane the last is its normal
    _, _, axes = np.linalg.svd(points - centre, full_matrices=False)
    spread = np.ptp((points - centre) @ axes.T, axis=0)
    if len(points) < _FEWEST or spread[0] == 0.0:
        raise CalibrationError(
            f"the readings keep to {len(points)} places; the robot does not turn, or the sensor "
            "hangs: let it turn on the spot for two full turns"
        )

    planar = spread[2] < _FLAT * spread[1]
    # of the two normals the one whose largest component is positive
    normal = axes[2] * np.sign(axes[2][np.argmax(np.abs(axes[2]))])
    basis = _plane(normal) if planar else np.eye(3)  # rows: the axes that the readings spread along

    local = points @ basis.T
    hard, soft = _fit(local, planar)
    corrected = (local - hard) @ soft.T
    strength = np.linalg.norm(corrected, axis=1)
    after = float(np.sqrt(np.mean((strength / strength.mean() - 1.0) ** 2)))
    if after > _WORST_FIT:
        raise CalibrationError(
            f"the strength still varies by {100 * after:.0f} % after the best correction: the "
            "robot does not turn enough, or drives where the field itself changes; let it turn on "
            "the spot, away from steel, for two full turns"
        )

    turned = _turned(corrected, planar)
    # along the normal nothing is changed
    full = soft if not planar else basis.T @ soft @ basis + np.outer(normal, normal)
    raw = np.linalg.norm(local, axis=1)

    return Calibration(
        hard=basis.T @ hard,
        soft=full,
        planar=planar,
        normal=normal,
        field=float(strength.mean()),
        before=float(raw.std() / strength.mean()),
        after=after,
        used=len(points),
        readings=len(readings),
        turned=turned,
    )


def _thin(readings: np.ndarray) -> np.ndarray:
    """One reading, the mean, for each occupied box of 2 % of the spread, without spikes.

    At most about 4000.
    """
    low = readings.min(0)
    side = (
        _THIN * float(np.ptp(np.percentile(readings, [1.0, 99.0], axis=0), axis=0).max()) or 1e-12
    )

    _, box = np.unique(
        np.floor((readings - low) / side).astype(np.int64), axis=0, return_inverse=True
    )
    box = box.ravel()

    count = np.bincount(box)
    points = np.stack([np.bincount(box, readings[:, k]) / count for k in range(3)], 1)

    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    # spikes
    points = points[distance <= _SPIKE * np.median(distance)]
    return points[:: len(points) // _MOST + 1]


def _plane(normal: np.ndarray) -> np.ndarray:
    """Two orthonormal rows (2, 3) that span the plane with this normal; x and y where it is z."""
    first = np.eye(3)[0] if abs(normal[0]) < 0.9 else np.eye(3)[1]
    first = first - normal * (first @ normal)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(normal, first)])


def _fit(points: np.ndarray, planar: bool) -> tuple[np.ndarray, np.ndarray]:
    """Fit an ellipsoid (D = 3) or an ellipse (D = 2).

    An algebraic start, then geometric least squares.

    Args:
        points: (N, D) T.
        planar: for the wording of an error.

    Returns:
        Hard (D,) in T and soft (D, D), symmetric with determinant 1.

    Raises:
        CalibrationError: the readings lie on no closed curve or surface.
    """
    shift, scale = points.mean(0), float(np.sqrt(((points - points.mean(0)) ** 2).sum(1).mean()))
    # scaled, so that the equations are well conditioned
    p = (points - shift) / scale
    d = p.shape[1]
    rows, columns = np.triu_indices(d)

    # algebraic: linear least squares of pᵀ Q p + 2 uᵀ p = 1
    design = np.hstack([p[:, rows] * p[:, columns] * np.where(rows == columns, 1.0, 2.0), 2.0 * p])
    solution, *_ = np.linalg.lstsq(design, np.ones(len(p)), rcond=None)
    q = np.zeros((d, d))
    q[rows, columns] = q[columns, rows] = solution[: len(rows)]

    values, vectors = np.linalg.eigh(q)
    if values[0] <= 1e-3 * values[-1] or values[-1] <= 0.0:
        raise CalibrationError(
            "the readings lie on no closed curve: the robot does not turn enough; let it turn on "
            "the spot for two full turns" + ("" if planar else ", and tilt it, too")
        )

    centre = -np.linalg.solve(q, solution[len(rows) :])
    # |shape (p − centre)| is the same for all
    shape = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    size = 1.0 + centre @ q @ centre

    def unpack(theta):
        """Centre (d,) and symmetric matrix (d, d)."""
        s = np.zeros((d, d))
        s[rows, columns] = s[columns, rows] = theta[d:]
        return theta[:d], s

    def residual(theta):
        """|S (p − c)| − 1 of each point."""
        c, s = unpack(theta)
        return np.linalg.norm((p - c) @ s, axis=1) - 1.0

    # geometric: a robust loss, so that single readings do not decide
    start = np.concatenate([centre, (shape / np.sqrt(size))[rows, columns]])
    found = least_squares(residual, start, loss="soft_l1", f_scale=0.05, max_nfev=200)

    centre, shape = unpack(found.x)
    values = np.linalg.eigvalsh(shape)
    if not found.success or values[0] <= 0.0:
        raise CalibrationError(
            "no ellipsoid fits the readings: the robot does not turn enough, or drives where the "
            "field itself changes; let it turn on the spot for two full turns"
        )

    return shift + scale * centre, shape / np.prod(values) ** (1.0 / d)


def _turned(corrected: np.ndarray, planar: bool) -> float:
    """Fraction of directions that were seen.

    Args:
        corrected: (N, D) fields, T.
        planar: whether they lie in a plane: D = 2.

    Raises:
        CalibrationError: a part of the circle or of the sphere is missing.
    """
    if planar:
        angle = np.sort(np.arctan2(corrected[:, 1], corrected[:, 0]))
        # the last gap closes the circle
        gap = float(np.diff(angle, append=angle[0] + 2 * np.pi).max())
        if gap > _WIDEST_GAP:
            raise CalibrationError(
                f"the robot does not turn enough: {np.degrees(gap):.0f} degrees of the circle are "
                "missing; let it turn on the spot for two full turns"
            )
        return 1.0 - gap / (2 * np.pi) if gap > np.radians(30.0) else 1.0

    # n directions spread evenly: Fibonacci's sphere
    n = 200
    z = 1.0 - (2.0 * np.arange(n) + 1.0) / n
    turn = np.pi * (1.0 + np.sqrt(5.0)) * np.arange(n)
    sphere = np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], 1)

    unit = corrected / np.linalg.norm(corrected, axis=1, keepdims=True)

    seen = (sphere @ unit.T).max(1) > np.cos(_CAP / 2)
    if not ((sphere @ unit.T).max(1) > np.cos(_CAP)).all():
        raise CalibrationError(
            f"the robot does not turn enough: it tilts, but only {100 * seen.mean():.0f} % of all "
            "directions are seen; turn the sensor about all three axes, or keep it level and turn "
            "about the vertical only"
        )
    return float(seen.mean())

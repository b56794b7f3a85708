"""Hard and soft iron of a magnetometer, from readings made while the robot turned in one place.

A field of fixed strength F that turns in the sensor's axes is read as m = A b + h: an ellipsoid
about h. So with S = A⁻¹ up to a rotation and a scale, for all readings

    |S (m − h)| = F

Lengths do not show a rotation: S is taken symmetric. Nor do they show the scale: its determinant is
1. How well the rest is known depends on how far the sensor was tilted, and is told with it. A robot
that turns about one axis only draws an ellipse: what lies in its plane can be found, but the offset
along the axis and the scale against it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gp_mapping.errors import UserError
from gp_mapping.intake.sensors.iron_fit import fit_ellipsoid, noise_beside

__all__ = ["Calibration", "CalibrationError", "calibrate"]

_FEWEST = 30  # readings left after thinning
# side of a box, as a fraction of the spread: standing still must not outweigh turning
_THIN = 0.02
_MOST = 4000  # points to fit
_SPIKE = 2.5  # a reading this many median distances from the middle is none of an ellipsoid's
# spread across the plane, where that is less than a quarter of the one within it: below so many
# standard deviations of noise it is noise; below such a part of the spread it may be a field that
# is not quite the same all around
_FLAT, _LEVEL, _THICK = 3.0, 0.05, 0.25
_KNOWN = 0.3  # of the strength: beyond, nothing is known of the offset in some direction
_WIDEST_GAP = np.radians(100.0)  # largest angle without a reading, in the plane
_NEAR = np.radians(30.0)  # in space, from a direction that was seen to a reading
_STRONGEST = 1.0  # T
_WORST_FIT = 0.15  # rms deviation of the strength: beyond, there is no ellipsoid


class CalibrationError(UserError):
    """Readings that cannot be calibrated from; the text says why, and how to drive instead."""


@dataclass(frozen=True)
class Calibration:
    """What corrects a reading m: soft (m − hard).

    Attributes:
        hard: (3,) T.
        hard_stddev: (3,) T: how well it is known; planar: of the middle of the circle in the plane.
        soft: (3, 3).
        soft_stddev: of each entry (3, 3), likewise.
        planar: whether it was found in a plane only; along the plane's normal nothing is changed.
        normal: (3,) of that plane, in the sensor's axes.
        field: strength of the corrected field, T: in space, or where planar in the plane.
        before: rms deviation of the strength (planar: of the part in the plane) from its own mean,
            of the readings as they came, as a fraction of `field`.
        after: the same of the corrected readings, without what tilting explains.
        used: how many points the fit used.
        readings: how many readings there were.
        turned: fraction of directions that were seen, of the circle or of the sphere.
    """

    hard: np.ndarray
    hard_stddev: np.ndarray
    soft: np.ndarray
    soft_stddev: np.ndarray
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
    """The most probable S and h of |S (m − h)| = F, given readings.

    In space or, where they do not tell the offset in all directions, in their plane.

    Args:
        readings: (N, 3) T, in order of time, while the robot turned.

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

    points, weights = _thin(readings)
    centre = points.mean(0)
    # rows of `axes` are the principal axes; of readings in a plane the last is its normal
    _, _, axes = np.linalg.svd(points - centre, full_matrices=False)
    spread = np.ptp((points - centre) @ axes.T, axis=0)
    if len(points) < _FEWEST or spread[0] == 0.0:
        raise CalibrationError(
            f"the readings keep to {len(points)} places; the robot does not turn, or the sensor "
            "hangs: let it turn on the spot for two full turns"
        )

    # of the two normals the one whose largest component is positive
    normal = axes[2] * np.sign(axes[2][np.argmax(np.abs(axes[2]))])
    across = np.eye(3) - np.outer(normal, normal)
    level = points @ across
    noise = noise_beside(points, weights)
    wide, _, high = ((points - centre) @ axes.T).std(0)
    planar = bool(high < min(max(_FLAT * noise, _LEVEL * wide), _THICK * wide))
    if not planar:
        found = fit_ellipsoid(points, weights)
        strength = _strength(points, found.hard, found.soft)
        _must_be_fixed(strength)
        worst = np.sqrt(np.linalg.eigvalsh(found.hard_covariance)[-1])
        planar = bool(worst > _KNOWN * strength.mean())
    if planar:
        found = fit_ellipsoid(level, weights, normal)
    else:
        level, across = points, np.eye(3)

    strength = _strength(level, found.hard, found.soft)
    corrected = (points - found.hard) @ found.soft.T @ across
    field = float(np.linalg.norm(corrected, axis=1).mean())
    # in a plane, what of |b|² is not fixed belongs to the part in it
    after = _must_be_fixed(np.sqrt(np.maximum(strength**2 - (strength**2).mean() + field**2, 0.0)))

    turned = _turned(corrected @ _plane(normal).T) if planar else _seen(corrected)
    raw = np.linalg.norm(points @ across, axis=1)
    hard_covariance = across @ found.hard_covariance @ across

    return Calibration(
        hard=across @ found.hard,  # along the normal nothing is changed
        hard_stddev=np.sqrt(np.maximum(np.diag(hard_covariance), 0.0)),
        soft=found.soft,
        soft_stddev=found.soft_stddev,
        planar=planar,
        normal=normal,
        field=field,
        before=float(raw.std() / field),
        after=after,
        used=len(points),
        readings=len(readings),
        turned=turned,
    )


def _must_be_fixed(strength: np.ndarray) -> float:
    """Rms deviation of a strength from its mean, as a fraction of that.

    Args:
        strength: (N,) T.

    Raises:
        CalibrationError: it varies too much.
    """
    varies = float(strength.std() / strength.mean())
    if varies > _WORST_FIT:
        raise CalibrationError(
            f"the strength still varies by {100 * varies:.0f} % after the best correction: the "
            "robot does not turn enough, or drives where the field itself changes; let it turn on "
            "the spot, away from steel, for two full turns"
        )
    return varies


def _strength(points: np.ndarray, hard: np.ndarray, soft: np.ndarray) -> np.ndarray:
    """|S (m − h)| of each reading, T."""
    return np.linalg.norm((points - hard) @ soft, axis=1)


def _thin(readings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One reading, the mean, for each occupied box of 2 % of the spread, without spikes.

    At most about 4000, in order of the first reading of each. A box that holds few, as where the
    ellipsoid cuts a corner of it, weighs less than most do; none weighs more.

    Returns:
        Readings (N, 3) in T, and their weights (N,), 1 at most.
    """
    low = readings.min(0)
    side = (
        _THIN * float(np.ptp(np.percentile(readings, [1.0, 99.0], axis=0), axis=0).max()) or 1e-12
    )

    _, first, box = np.unique(
        np.floor((readings - low) / side).astype(np.int64),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    box = box.ravel()
    in_time = np.argsort(first)

    count = np.bincount(box)
    points = np.stack([np.bincount(box, readings[:, k]) / count for k in range(3)], 1)
    points, weights = points[in_time], np.minimum(count[in_time] / np.median(count), 1.0)

    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    near = np.flatnonzero(distance <= _SPIKE * np.median(distance))  # no spikes
    near = near[:: len(near) // _MOST + 1]
    return points[near], weights[near]


def _plane(normal: np.ndarray) -> np.ndarray:
    """Two orthonormal rows (2, 3) that span the plane with this normal; x and y where it is z."""
    first = np.eye(3)[0] if abs(normal[0]) < 0.9 else np.eye(3)[1]
    first = first - normal * (first @ normal)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(normal, first)])


def _turned(corrected: np.ndarray) -> float:
    """Fraction of the circle that was seen.

    Args:
        corrected: fields in the plane (N, 2), T.

    Raises:
        CalibrationError: a part of the circle is missing.
    """
    angle = np.sort(np.arctan2(corrected[:, 1], corrected[:, 0]))
    # the last gap closes the circle
    gap = float(np.diff(angle, append=angle[0] + 2 * np.pi).max())
    if gap > _WIDEST_GAP:
        raise CalibrationError(
            f"the robot does not turn enough: {np.degrees(gap):.0f} degrees of the circle are "
            "missing; let it turn on the spot for two full turns"
        )
    return 1.0 - gap / (2 * np.pi) if gap > np.radians(30.0) else 1.0


def _seen(corrected: np.ndarray) -> float:
    """Fraction of all directions that were seen.

    Args:
        corrected: fields (N, 3), T.
    """
    # n directions spread evenly: Fibonacci's sphere
    n = 200
    z = 1.0 - (2.0 * np.arange(n) + 1.0) / n
    turn = np.pi * (1.0 + np.sqrt(5.0)) * np.arange(n)
    sphere = np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], 1)

    unit = corrected / np.linalg.norm(corrected, axis=1, keepdims=True)
    return float(((sphere @ unit.T).max(1) > np.cos(_NEAR)).mean())

"""sensor_msgs/MagneticField: corrected for the robot's iron, then its norm, one axis or all three in map axes."""

from __future__ import annotations

import math

import numpy as np

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.messages import Reading
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["MagneticField", "iron"]

_AXES = {"x": 0, "y": 1, "z": 2}


def iron(settings: IntakeSettings) -> tuple[np.ndarray, np.ndarray]:
    """Hard iron h (3,) T and soft iron matrix S (3, 3): corrected = S (measured − h)."""
    hard = [getattr(settings, f"hard_iron_{a}") for a in "xyz"]
    return np.array(hard), np.array([[getattr(settings, f"soft_iron_{a}{b}") for b in "xyz"] for a in "xyz"])


def _known(values) -> tuple[float, ...] | None:
    """Nine numbers, or None where they mean unknown: zeros (REP-103), a −1 in front, NaN, or no variance at all."""
    values = tuple(map(float, values))
    if len(values) != 9 or not all(map(math.isfinite, values)):
        return None
    diagonal = values[::4]
    return values if min(diagonal) >= 0.0 and max(diagonal) > 0.0 else None


class MagneticField:
    """b = S (m − h) in the sensor's axes, T.

    norm: y = |b|, var = b̂ᵀ S C Sᵀ b̂.  An axis k: y = (R b)_k, var = (R S C Sᵀ Rᵀ)_kk, R: sensor -> map.
    xyz: y = R b (N, 3), var = tr(S C Sᵀ) / 3, one for the three as a map has it.
    """

    def __init__(self, settings: IntakeSettings):
        self._axis = _AXES.get(settings.field_component)
        self._all = settings.field_component == "xyz"
        self.needs_rotation = settings.field_component != "norm" and settings.rotate_field
        self._hard, self._soft = iron(settings)
        self._corrected = bool(self._hard.any()) or not np.array_equal(self._soft, np.eye(3))
        self._limit = settings.max_field

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """NOT_FINITE or OUT_OF_RANGE where it cannot be used.

        An axis that is not mapped may be NaN ("not measured") only where nothing mixes it with the one that is.
        """
        vector = msg.magnetic_field
        field = (float(vector.x), float(vector.y), float(vector.z))
        mixes = self._axis is None or self.needs_rotation or self._corrected
        needed = field if mixes else (field[self._axis],)
        if not all(map(math.isfinite, needed)):
            return DropReason.NOT_FINITE
        if math.sqrt(sum(v * v for v in needed)) > self._limit:
            return DropReason.OUT_OF_RANGE
        return Reading(stamp, field, _known(msg.magnetic_field_covariance))

    def vector(self, readings: list[Reading]) -> np.ndarray:
        """The corrected field in the sensor's axes, (N, 3) T."""
        b = np.array([r.values for r in readings])
        if not self._corrected:
            return b
        b = b - self._hard
        return sum(b[:, k, None] * self._soft[:, k] for k in range(3))  # no BLAS: a row must not depend on the others

    def _covariances(self, readings) -> np.ndarray:
        """(N, 3, 3) in the sensor's axes as measured, 0 where unknown."""
        return np.array([r.covariance or (0.0,) * 9 for r in readings]).reshape(-1, 3, 3)

    def _values_of_all(self, readings, turn) -> tuple[np.ndarray, np.ndarray]:
        b = self.vector(readings)
        if self.needs_rotation:
            turned = turn.inv().apply  # rows of R: each component as a sum over its own row, as for one axis
            b = np.stack([(turned(axis) * b).sum(1) for axis in np.eye(3)], 1)
        if all(r.covariance is None for r in readings):
            return b, np.zeros(len(b))
        squares = self._soft.T @ self._soft  # tr(S C Sᵀ) = Σ_ij C_ij (SᵀS)_ij
        return b, np.maximum((self._covariances(readings) * squares).sum((1, 2)) / 3.0, 0.0)

    def values(self, readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """y (N,) or (N, 3) T and the variance of its white noise (N,), T²."""
        if self._all:
            return self._values_of_all(readings, turn)
        b = self.vector(readings)
        if self._axis is None:
            y = np.linalg.norm(b, axis=1)
            direction = b / np.where(y > 0.0, y, 1.0)[:, None]
            direction[y == 0.0] = 1.0 / math.sqrt(3.0)
        elif self.needs_rotation:
            direction = np.broadcast_to(turn.inv().apply(np.eye(3)[self._axis]), b.shape)  # rows of R
            y = (direction * b).sum(1)
        else:
            direction = np.broadcast_to(np.eye(3)[self._axis], b.shape)
            y = b[:, self._axis]
        if all(r.covariance is None for r in readings):
            return y, np.zeros(len(y))
        if self._corrected:  # Sᵀ d
            direction = sum(direction[:, k, None] * self._soft[k] for k in range(3))
        covariance = self._covariances(readings)
        return y, np.maximum(np.einsum("ni,nij,nj->n", direction, covariance, direction), 0.0)

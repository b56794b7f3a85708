"""sensor_msgs/MagneticField, corrected for the robot's iron.

Mapped is its norm, one axis, or all three components in the map's axes.
"""

from __future__ import annotations

import math

import numpy as np

from gp_mapping.intake.columns import Columns, Readings
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.messages import Reading
from gp_mapping.intake.sensors.absent_axes import AbsentAxes
from gp_mapping.intake.sensors.dead_axes import DeadAxes
from gp_mapping.intake.sensors.other_unit import OtherUnit
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["MagneticField", "iron_of_settings"]

_AXES = {"x": 0, "y": 1, "z": 2}
_UNKNOWN = -1.0  # in front of a covariance: unknown, as IMU drivers write it


def iron_of_settings(settings: IntakeSettings) -> tuple[np.ndarray, np.ndarray]:
    """Hard iron h (3,) in T and soft iron matrix S (3, 3) of the settings.

    corrected = S (measured − h)
    """
    hard = [getattr(settings, f"hard_iron_{a}") for a in "xyz"]

    return np.array(hard), np.array(
        [[getattr(settings, f"soft_iron_{a}{b}") for b in "xyz"] for a in "xyz"]
    )


def _stated(values, limit: float) -> tuple[float, ...] | DropReason | None:
    """The covariance that a message states, row-major.

    Args:
        values: nine numbers.
        limit: largest field of the sensor, T.

    Returns:
        None where they mean unknown: all zeros (REP-103), or −1 in front, as IMU drivers write it.
        BAD_COVARIANCE where this sensor cannot have them: not finite, negative, beyond the square
        of `limit`.
    """
    values = tuple(map(float, values))
    if len(values) != 9 or values[0] == _UNKNOWN or not any(values):
        return None

    if (
        not all(map(math.isfinite, values))
        or min(values[::4]) < 0.0
        or max(map(abs, values)) > limit**2
    ):
        return DropReason.BAD_COVARIANCE

    return values if max(values[::4]) > 0.0 else None


def _watch(settings: IntakeSettings, corrected: bool) -> DeadAxes:
    """What watches the axes on which the map depends, of a robot that drives on level ground."""
    component = settings.field_component
    is_level = not corrected and settings.mounting != "tf"
    is_level &= settings.sensor_roll == settings.sensor_pitch == 0.0
    mapped = {"x": (0, 1), "y": (0, 1), "z": (2,)} if is_level else {}
    if not (settings.rotate_field or corrected) and component in _AXES:
        mapped = {component: (_AXES[component],)}
    return DeadAxes(mapped.get(component, (0, 1, 2)), component, is_level)


class MagneticField:
    """Reads a field b = S (m − h) in the sensor's axes, T, from measurements m with covariance C.

    With R the rotation from sensor to map, what is mapped and its noise variance are:

        norm:        y = |b|,            variance = b̂ᵀ S C Sᵀ b̂
        one axis k:  y = (R b)_k,        variance = (R S C Sᵀ Rᵀ)_kk
        xyz:         y = R b, (N, 3),    variance = tr(S C Sᵀ) / 3

    A map has one variance for all three components. R is the identity where `rotate_field` is off.
    """

    def __init__(self, settings: IntakeSettings):
        self._axis = _AXES.get(settings.field_component)
        self._all = settings.field_component == "xyz"
        self.needs_rotation = settings.field_component != "norm" and settings.rotate_field

        self._hard, self._soft = iron_of_settings(settings)
        self._corrected = bool(self._hard.any()) or not np.array_equal(self._soft, np.eye(3))
        self._limit, self._beyond = settings.max_field, OtherUnit()
        self._dead = _watch(settings, self._corrected)
        self._absent = AbsentAxes(settings.field_component)

    @property
    def notes(self) -> list[str]:
        """Measurements beyond the range, and axes that tell nothing, in sentences."""
        return [*self._beyond.notes(self._limit), *self._absent.notes, *self._dead.notes]

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """Read a message as a Reading, or say why it cannot be used.

        An axis that is not mapped may be NaN ("not measured") only where nothing mixes it with the
        axis that is mapped.

        Args:
            msg: sensor_msgs/MagneticField, T and T².
            stamp: ns, which the Reading gets.

        Returns:
            NOT_FINITE, OUT_OF_RANGE or BAD_COVARIANCE where it cannot be used.
        """
        vector = msg.magnetic_field

        return self._judge(
            (float(vector.x), float(vector.y), float(vector.z)),
            msg.magnetic_field_covariance,
            stamp,
        )

    def read_columns(self, columns: Columns) -> Readings | None:
        """Read each message as `read` does: those in order together, the others one by one.

        Returns:
            None where the messages have no magnetic field.
        """
        if "magnetic_field.x" not in columns:
            return None
        field = columns.numbers(*(f"magnetic_field.{a}" for a in "xyz"))
        stated = columns.array("magnetic_field_covariance")
        diagonal = stated[:, ::4]

        with np.errstate(all="ignore"):  # rows that are not finite are looked at one by one below
            x, y, z = field.T
            fits = np.sqrt(x * x + y * y + z * z) <= self._limit
            # the cases of _stated, for all rows at once
            unknown = ~stated.any(1) | (stated[:, 0] == _UNKNOWN)
            known = (
                (diagonal >= 0.0).all(1)
                & diagonal.any(1)
                & (np.abs(stated) <= self._limit**2).all(1)
            )

        covariance, known = np.where(unknown[:, None], 0.0, stated), ~unknown & known

        refused = {}
        for i in np.flatnonzero(~(fits & (unknown | known))).tolist():
            reading = self._judge(tuple(field[i].tolist()), stated[i].tolist(), 0)
            if isinstance(reading, DropReason):
                refused[i] = reading
            else:
                covariance[i], known[i] = reading.covariance or 0.0, reading.covariance is not None

        return Readings(field, covariance, known, refused)

    def _judge(self, field: tuple[float, ...], stated, stamp: int) -> Reading | DropReason:
        """A Reading of these numbers, or why they cannot be used."""
        # whether each axis takes part in what is mapped
        mixes = self._axis is None or self.needs_rotation or self._corrected
        needed = field if mixes or self._axis is None else (field[self._axis],)

        if not all(map(math.isfinite, needed)):
            self._absent.add(field)
            return DropReason.NOT_FINITE

        x, y, z = field if mixes else (*needed, 0.0, 0.0)
        if (norm := math.sqrt(x * x + y * y + z * z)) > self._limit:
            self._beyond.add(norm)
            return DropReason.OUT_OF_RANGE

        # of an axis that is not measured nothing is known: its covariances count as 0
        if len(needed) < 3 and not all(map(math.isfinite, field)):
            measured = [math.isfinite(v) for v in field]
            stated = [
                c if measured[i // 3] and measured[i % 3] else 0.0 for i, c in enumerate(stated)
            ]

        covariance = _stated(stated, self._limit)
        return (
            covariance if isinstance(covariance, DropReason) else Reading(stamp, field, covariance)
        )

    def corrected(self, b: np.ndarray) -> np.ndarray:
        """Correct measured fields for the robot's iron.

        Args:
            b: (N, 3) as measured, T.

        Returns:
            (N, 3) in the sensor's axes, T.
        """
        if not self._corrected:
            return b

        b = b - self._hard
        # no BLAS: a row must not depend on the others
        return sum(b[:, k, None] * self._soft[:, k] for k in range(3))

    def _white(self, covariance: np.ndarray, quadratic) -> np.ndarray:
        """Variances Σ_ij C_ij Q_ij, (N,), at least 0; 0 where C is unknown.

        Summed term by term, so that no row depends on the others.

        Args:
            covariance: C, (N, 9), row-major.
            quadratic: Q, (3, 3) or (N, 3, 3).
        """
        c = covariance.reshape(-1, 3, 3)
        q = np.broadcast_to(quadratic, c.shape)
        return np.maximum(sum(c[:, i, j] * q[:, i, j] for i in range(3) for j in range(3)), 0.0)

    def _values_of_all(self, readings: Readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """As `values_of_rows`, of all three components."""
        b = self.corrected(readings.values)
        if self.needs_rotation:
            b = np.stack([_dot(row, b) for row in np.moveaxis(turn.as_matrix(), 1, 0)], 1)
        if not readings.known.any():
            return b, np.zeros(len(b))

        # tr(S C Sᵀ) = Σ_ij C_ij (SᵀS)_ij
        return b, self._white(readings.covariance, self._soft.T @ self._soft) / 3.0

    def values(self, readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """What is mapped, corrected for the robot's iron, and the variance of its white noise.

        Args:
            readings: N of them.
            turn: N rotations from the sensor's axes to the map's, where `needs_rotation` says so.

        Returns:
            y (N,) or (N, 3) in T, and its noise variance (N,) in T², 0 where it is unknown.
        """
        nothing = Readings(np.empty((0, 3)), np.empty((0, 9)), np.empty(0, bool), {})
        return self.values_of_rows(nothing.preceded_by(readings), turn)

    def values_of_rows(self, readings: Readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """As `values`, for rows.

            variance = dᵀ S C Sᵀ d

        d: the direction that is mapped, S: the soft-iron matrix, C: the stated covariance; of all
        three components it is a third of the trace of S C Sᵀ.

        Args:
            readings: n of them.
            turn: n rotations from the sensor's axes to the map's, where `needs_rotation` says so.

        Returns:
            y (n,) or (n, 3) in T, and its noise variance (n,) in T², 0 where it is unknown.
        """
        # here and not where messages are read, for these may be read again one by one
        self._dead.see(readings.values)
        if self._all:
            return self._values_of_all(readings, turn)

        # direction d
        b = self.corrected(readings.values)
        if self._axis is None:
            y = np.sqrt(_dot(b, b))
            direction = b / np.where(y > 0.0, y, 1.0)[:, None]
            direction[y == 0.0] = 1.0 / math.sqrt(3.0)  # a field of 0 has no direction: all alike
        elif self.needs_rotation:
            direction = turn.as_matrix()[:, self._axis]  # rows of R
            y = _dot(direction, b)
        else:
            direction = np.broadcast_to(np.eye(3)[self._axis], b.shape)
            y = b[:, self._axis]

        if not readings.known.any():
            return y, np.zeros(len(y))

        # Sᵀ d
        if self._corrected:
            direction = sum(direction[:, k, None] * self._soft[k] for k in range(3))
        return y, self._white(readings.covariance, direction[:, :, None] * direction[:, None, :])


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Scalar product of each pair of rows, (N, 3) each: (N,).

    No reduction of NumPy's, whose order may follow the shape.
    """
    return a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2]

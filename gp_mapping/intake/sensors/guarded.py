"""An adaptor that fails costs the measurement that it failed on, and says so.

Adaptors may be of another package, and messages of any content: what an adaptor raises, or returns
in place of numbers, must neither end the program nor take other measurements with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gp_mapping.errors import one_line
from gp_mapping.intake.columns import Columns, Readings, reads_columns
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.messages import Adaptor, Reading
from gp_mapping.intake.sensors.adaptor import ScalarAdaptor
from gp_mapping.intake.sensors.judged import JudgedAdaptor
from gp_mapping.intake.sensors.magnetic import MagneticField
from gp_mapping.threads import contained

__all__ = ["GuardedAdaptor"]

_NAMED = 3  # failures that are named; all are counted
_LONGEST = 200  # characters of what was raised


class GuardedAdaptor:
    """An adaptor of which nothing is raised.

    A message that it cannot read is ADAPTOR_FAILED. A reading of which it makes no value, or a
    variance that is negative or no number, has the value NaN, which cannot be placed.

    Args:
        adaptor: reads the messages.
        sensor: its name, for sentences.
    """

    def __init__(self, adaptor: Adaptor, sensor: str):
        self._adaptor, self._sensor = adaptor, sensor
        self.needs_rotation = bool(adaptor.needs_rotation)
        self._failures: list[str] = []
        self._numbers: int | None = None  # in a reading
        self._channels: tuple[int, ...] | None = None  # of a value

    @property
    def notes(self) -> list[str]:
        """The first failures, and what the package's own adaptor has to say, in sentences."""
        adaptor = self._adaptor
        if isinstance(adaptor, JudgedAdaptor):
            adaptor = adaptor.inner
        own = adaptor.notes if isinstance(adaptor, (MagneticField, ScalarAdaptor)) else []
        return [*self._failures, *own]

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """Read a message as the adaptor does; ADAPTOR_FAILED where it does not.

        Args:
            msg: as of the adaptor.
            stamp: ns.
        """
        with contained(partial(self._note, "read")):
            reading = self._adaptor.read(msg, stamp)
            return reading if isinstance(reading, DropReason) else self._checked(reading)
        return DropReason.ADAPTOR_FAILED

    def _checked(self, reading) -> Reading:
        """A reading as plain numbers, as many as the first one had."""
        if not isinstance(reading, Reading):
            raise TypeError(
                f"a {type(reading).__name__} was returned, expected a Reading or a DropReason"
            )
        values = tuple(map(float, reading.values))
        if self._numbers is None:
            self._numbers = len(values)
        if len(values) != self._numbers or not values:
            raise ValueError(f"{len(values)} numbers, expected {self._numbers or 'one or more'}")

        covariance = None if reading.covariance is None else tuple(map(float, reading.covariance))
        return Reading(int(reading.stamp), values, covariance)

    def read_columns(self, columns: Columns) -> Readings | None:
        """As the adaptor's; None where it reads messages one by one, or fails."""
        if not reads_columns(self._adaptor):
            return None
        # one by one the messages on which it fails are named and counted
        with contained(lambda error: None):
            return self._adaptor.read_columns(columns)
        return None

    def values(self, readings: list[Reading], turn) -> tuple[np.ndarray, np.ndarray]:
        """As the adaptor's, with NaN where it gives no value.

        Args:
            readings: as of the adaptor.
            turn: as of the adaptor.
        """
        return self._values(
            len(readings),
            lambda: self._adaptor.values(readings, turn),
            lambda i: self._adaptor.values([readings[i]], _of(turn, i)),
        )

    def values_of_rows(self, readings: Readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """As `values`, for rows.

        Args:
            readings: as of the adaptor.
            turn: as of the adaptor.

        Raises:
            TypeError: the adaptor reads messages one by one.
        """
        adaptor = self._adaptor
        if not reads_columns(adaptor):
            raise TypeError(f"{type(adaptor).__name__} reads one by one")
        return self._values(
            len(readings),
            lambda: adaptor.values_of_rows(readings, turn),
            lambda i: adaptor.values_of_rows(readings.select(np.array([i])), _of(turn, i)),
        )

    def _values(
        self, count: int, all_values: Callable, values_of: Callable
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values and variances of readings.

        Args:
            count: N of them.
            all_values: returns those of all.
            values_of: returns those of one, by its number.
        """
        with contained(partial(self._note, "values")):
            return self._fitting(count, all_values())

        found: list[tuple[np.ndarray, np.ndarray] | None] = [None] * count
        for i in range(count):
            with contained(partial(self._note, "values")):
                found[i] = self._fitting(1, values_of(i))

        missing = np.full((1, *(self._channels or ())), np.nan), np.zeros(1)
        y, variance = zip(*(missing if one is None else one for one in found))
        return np.concatenate(y), np.concatenate(variance)

    def _fitting(self, count: int, made) -> tuple[np.ndarray, np.ndarray]:
        """Values and variances as arrays.

        Raises:
            ValueError: there are others than asked for, or a variance is no variance.
        """
        y, variance = (np.asarray(part, np.float64) for part in made)
        if y.shape[:1] != (count,) or y.ndim > 2 or variance.shape != (count,):
            raise ValueError(
                f"values of shape {y.shape} and variances of shape {variance.shape} for {count} readings"
            )
        if not (variance >= 0.0).all():
            wrong = variance[~(variance >= 0.0)][0]
            raise ValueError(f"a variance of {wrong:g}, expected 0 (unknown) or more")
        if self._channels is None:
            self._channels = y.shape[1:]
        if y.shape[1:] != self._channels:
            raise ValueError(f"values of shape {y.shape[1:]}, and {self._channels} before")
        return y, variance

    def _note(self, method: str, error: BaseException) -> None:
        """Keep the first failures for a person."""
        if len(self._failures) < _NAMED:
            text = (
                f"the adaptor of sensor {self._sensor} failed in {method}: {type(error).__name__}: "
                f"{one_line(error, _LONGEST)}; such measurements are left out"
            )
            if text not in self._failures:
                self._failures.append(text)


def _of(turn, i: int):
    """The rotation of one reading; None where there are none."""
    return None if turn is None else turn[i : i + 1]

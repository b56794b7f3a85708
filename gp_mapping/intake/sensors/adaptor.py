"""Adaptors for sensor messages that hold one number: value, valid range, variance.

A sensor of your own: publish std_msgs/Float64 (or any message with `data` or `value`, better with a
header, too) and set `sensor: scalar`, or register a SensorType (docs/extending.md).
"""

from __future__ import annotations

import math

import numpy as np

from gp_mapping.errors import UserError, named, one_line
from gp_mapping.intake.columns import Columns, Readings
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.messages import Adaptor, Reading
from gp_mapping.intake.sensors.judged import Judge, JudgedAdaptor
from gp_mapping.intake.sensors.sources import Sources
from gp_mapping.intake.sensors.value_field import DEFAULT, NotChosenError, number_at
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.parts import Part
from gp_mapping.settings.sensors import SENSOR_TYPES, SensorType

__all__ = ["ScalarAdaptor", "make_adaptor"]

_UNKNOWN = -1.0  # a variance; so is 0


class ScalarAdaptor:
    """Reads messages with one number, and a `variance` where their type has one (0: unknown).

    Args:
        kind: which attribute holds the number, and the range of the sensor.
        settings: min_value and max_value, a range in place of that one unless both are 0.
    """

    needs_rotation = False

    def __init__(self, kind: SensorType, settings: IntakeSettings):
        default_range = settings.min_value == settings.max_value == 0.0
        self._low, self._high = (
            (kind.low, kind.high) if default_range else (settings.min_value, settings.max_value)
        )
        # a larger variance leaves nothing that is known of the value
        self._widest = (kind.high - kind.low) ** 2

        self._names: tuple[str, ...] = (kind.value or "value",)
        if kind.value == "data":
            self._names = (settings.value_field,) if settings.value_field else DEFAULT
        # a message of ROS's own sensor types is of one sensor
        self._sources = Sources(self._names) if kind.value == "data" else None

    @property
    def notes(self) -> list[str]:
        """Whether the topic tells of several things, in sentences."""
        return [] if self._sources is None else self._sources.notes

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """Read a message as a Reading, or say why it cannot be used.

        Args:
            msg: with one of the attributes that hold a sensor's number.
            stamp: ns, which the Reading gets.

        Returns:
            NOT_CHOSEN, of another than `value_field` chooses; NOT_FINITE; OUT_OF_RANGE by the
            sensor's range or the message's own (min_range, max_range; both 0, or NaN, where its
            driver does not fill them in); or BAD_COVARIANCE.
        """
        low, high = getattr(msg, "min_range", self._low), getattr(msg, "max_range", self._high)

        try:
            number = _number(msg, self._names)
        except NotChosenError as error:
            if self._sources is not None:
                self._sources.missed(error)
            return DropReason.NOT_CHOSEN
        if self._sources is not None:
            self._sources.see(msg)

        return self._judge(number, low, high, float(getattr(msg, "variance", 0.0)), stamp)

    def read_columns(self, columns: Columns) -> Readings | None:
        """Read each message as `read` does: those in order together, the others one by one.

        Returns:
            None where the messages have no such number, or an array of them.
        """

        def column(name: str, default: float) -> np.ndarray:
            """A field, or where it is missing a default, (n,).

            Args:
                name: of the field.
                default: what stands in for it.
            """
            return (
                columns.numbers(name)[:, 0] if name in columns else np.full(len(columns), default)
            )

        name = next((name for name in self._names if name in columns), None)
        if name is None or columns.rows[name].ndim > 1:
            return None

        value, low, high = (
            column(name, 0.0),
            column("min_range", self._low),
            column("max_range", self._high),
        )
        variance = column("variance", 0.0)

        good = (
            (value >= np.maximum(low, self._low))
            & (value <= np.minimum(high, self._high))
            & np.isfinite(value)
        )

        refused = {}
        # rows that may be unusable, one by one: `_judge` names the reason
        stated = (variance <= self._widest) & ((variance >= 0.0) | (variance == _UNKNOWN))
        for i in np.flatnonzero(~(good & stated)).tolist():
            reading = self._judge(
                float(value[i]), float(low[i]), float(high[i]), float(variance[i]), 0
            )
            if isinstance(reading, DropReason):
                refused[i] = reading

        known = variance > 0.0
        return Readings(value[:, None], np.where(known, variance, 0.0)[:, None], known, refused)

    def _judge(
        self, value: float, low: float, high: float, variance: float, stamp: int
    ) -> Reading | DropReason:
        """A Reading of these numbers, or why they cannot be used."""
        if not math.isfinite(value):  # a Range of ±inf (REP-117): nothing in reach, or too close
            return DropReason.NOT_FINITE
        # the driver has not filled in the message's own range
        if math.isnan(low) or math.isnan(high) or low == high == 0.0:
            low, high = self._low, self._high
        if not max(low, self._low) <= value <= min(high, self._high):
            return DropReason.OUT_OF_RANGE
        if not variance <= self._widest or (variance < 0.0 and variance != _UNKNOWN):
            return DropReason.BAD_COVARIANCE

        # a variance of 0, or of −1, means unknown
        return Reading(stamp, (value,), (variance,) if variance > 0.0 else None)

    def values_of_rows(self, readings: Readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """As `values`, for rows.

        Args:
            readings: n of them.
            turn: not used; a number has no direction.

        Returns:
            y (n,) in the sensor's unit, and its variance (n,) in the square of it, 0 where unknown.
        """
        return readings.values[:, 0], readings.covariance[:, 0]

    def values(self, readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """What is mapped, and its noise variance.

        Args:
            readings: N of them.
            turn: not used; a number has no direction.

        Returns:
            y (N,) in the sensor's unit, and its variance (N,) in the square of it, 0 where unknown.
        """
        return (
            np.array([r.values[0] for r in readings]),
            np.array([0.0 if r.covariance is None else r.covariance[0] for r in readings]),
        )


def _number(msg, names: tuple[str, ...]) -> float:
    """The first of these attributes that the message has, as a float.

    Raises:
        AttributeError: it lacks the one attribute that its type must have.
        ValueError: it has none of several.
    """
    for name in names:
        if (number := number_at(msg, name)) is not None:
            return number

    if len(names) == 1:
        raise AttributeError(f"a {type(msg).__name__} has no `{names[0]}`")
    raise ValueError(
        f"a {type(msg).__name__} has neither `data` nor `value`; sensor 'scalar' needs a message with "
        "one of them, for example std_msgs/Float64"
    )


def make_adaptor(settings: IntakeSettings, judge: Judge | None = None) -> Adaptor:
    """The adaptor of `settings.sensor`.

    Args:
        settings: which sensor, and its range.
        judge: says which values the map can take; None: every number.

    Raises:
        UserError: the adaptor of another package cannot be made.
    """
    kind = SENSOR_TYPES[settings.sensor]
    adaptor: Adaptor
    if kind.adaptor is None:
        adaptor = ScalarAdaptor(kind, settings)
    else:
        try:
            adaptor = Part(kind.adaptor).load()(settings)
            _ = adaptor.needs_rotation, adaptor.read, adaptor.values
        except Exception as error:  # of another package, it may be anything
            name = getattr(kind.adaptor, "__qualname__", kind.adaptor)
            raise UserError(
                f"sensor {settings.sensor!r}: its adaptor {named(name)} cannot be made: "
                f"{type(error).__name__}: {one_line(error, 200)}"
            ) from error
    return adaptor if judge is None or adaptor.needs_rotation else JudgedAdaptor(adaptor, judge)

"""One small adaptor for each kind of sensor message: value, valid range, variance.

A sensor of your own: publish std_msgs/Float64 (or any message with `data` or `value`, better with a header, too) and
set `sensor: scalar`, or register a SensorType (docs/extending.md).
"""

from __future__ import annotations

import math

import numpy as np

from gp_mapping.intake.columns import Columns, Readings
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.messages import Adaptor, Reading
from gp_mapping.intake.sensors.judged import Judge, JudgedAdaptor
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.parts import Part
from gp_mapping.settings.sensors import SENSOR_TYPES, SensorType

__all__ = ["ScalarAdaptor", "make_adaptor"]


class ScalarAdaptor:
    """A message with one number, and a `variance` where its type has one (0: unknown)."""

    needs_rotation = False

    def __init__(self, kind: SensorType, settings: IntakeSettings):
        own = settings.min_value == settings.max_value == 0.0
        self._low, self._high = (
            (kind.low, kind.high) if own else (settings.min_value, settings.max_value)
        )
        self._widest = (
            kind.high - kind.low
        ) ** 2  # a variance beyond it leaves nothing that is known of the value
        # std_msgs' `data`; also the `value` that stamped scalars of other packages carry
        self._names: tuple[str, ...] = (
            ("data", "value") if kind.value == "data" else (kind.value or "value",)
        )

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """NOT_FINITE, OUT_OF_RANGE by the sensor's range and the message's own (min_range, max_range), BAD_COVARIANCE."""
        low, high = getattr(msg, "min_range", self._low), getattr(msg, "max_range", self._high)
        return self._judge(
            _number(msg, self._names), low, high, float(getattr(msg, "variance", 0.0)), stamp
        )

    def read_columns(self, columns: Columns) -> Readings | None:
        """As `read` of each: those that are in order as they stand together, the others one by one."""

        def column(name: str, default: float) -> np.ndarray:
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
        for i in np.flatnonzero(~(good & (variance <= self._widest))).tolist():
            one = self._judge(float(value[i]), float(low[i]), float(high[i]), float(variance[i]), 0)
            if isinstance(one, DropReason):
                refused[i] = one
        known = variance > 0.0
        return Readings(value[:, None], np.where(known, variance, 0.0)[:, None], known, refused)

    def _judge(
        self, value: float, low: float, high: float, variance: float, stamp: int
    ) -> Reading | DropReason:
        if not math.isfinite(value):  # a Range of ±inf (REP-117): nothing in reach, or too close
            return DropReason.NOT_FINITE
        if not max(low, self._low) <= value <= min(high, self._high):
            return DropReason.OUT_OF_RANGE
        if not variance <= self._widest:
            return DropReason.BAD_COVARIANCE
        return Reading(
            stamp, (value,), (variance,) if variance > 0.0 else None
        )  # 0, or −1: unknown

    def values_of_rows(self, readings: Readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """As `values`."""
        return readings.values[:, 0], readings.covariance[:, 0]

    def values(self, readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """y (N,) and its variance (N,), in the sensor's unit and its square."""
        return (
            np.array([r.values[0] for r in readings]),
            np.array([0.0 if r.covariance is None else r.covariance[0] for r in readings]),
        )


def _number(msg, names: tuple[str, ...]) -> float:
    """The first of these attributes that the message has; ValueError where it has none."""
    for name in names:
        if hasattr(msg, name):
            return float(getattr(msg, name))
    if len(names) == 1:
        raise AttributeError(f"a {type(msg).__name__} has no `{names[0]}`")
    raise ValueError(
        f"a {type(msg).__name__} has neither `data` nor `value`; sensor 'scalar' needs a message with "
        "one of them, for example std_msgs/Float64"
    )


def make_adaptor(settings: IntakeSettings, judge: Judge | None = None) -> Adaptor:
    """The adaptor of `settings.sensor`; judge: of what it reads, where a map does not take every number."""
    kind = SENSOR_TYPES[settings.sensor]
    adaptor: Adaptor = (
        ScalarAdaptor(kind, settings)
        if kind.adaptor is None
        else Part(kind.adaptor).load()(settings)
    )
    return adaptor if judge is None or adaptor.needs_rotation else JudgedAdaptor(adaptor, judge)

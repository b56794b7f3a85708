"""One small adaptor for each kind of sensor message: value, valid range, variance.

A sensor of your own: publish std_msgs/Float64 (or any message with `data` or `value`, better with a header, too) and
set `sensor: scalar`, or register a SensorType (docs/extending.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.messages import Adaptor, Reading
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.parts import Part
from gp_mapping.settings.sensors import SENSOR_TYPES, SensorType

__all__ = ["ScalarAdaptor", "make_adaptor"]


class ScalarAdaptor:
    """A message with one number, and a `variance` where its type has one (0: unknown)."""

    needs_rotation = False

    def __init__(self, kind: SensorType, settings: IntakeSettings):
        own = settings.min_value == settings.max_value == 0.0
        self._low, self._high = (kind.low, kind.high) if own else (settings.min_value, settings.max_value)
        self._widest = (kind.high - kind.low) ** 2  # a variance beyond it leaves nothing that is known of the value
        self._get = _reader(kind.value)

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """NOT_FINITE, OUT_OF_RANGE by the sensor's range and the message's own (min_range, max_range), BAD_COVARIANCE.
        """
        value = self._get(msg)
        if not math.isfinite(value):  # a Range of ±inf (REP-117): nothing in reach, or too close
            return DropReason.NOT_FINITE
        low, high = getattr(msg, "min_range", self._low), getattr(msg, "max_range", self._high)
        if not max(low, self._low) <= value <= min(high, self._high):
            return DropReason.OUT_OF_RANGE
        variance = float(getattr(msg, "variance", 0.0))
        if not variance <= self._widest:
            return DropReason.BAD_COVARIANCE
        return Reading(stamp, (value,), (variance,) if variance > 0.0 else None)  # 0, or −1: unknown

    def values(self, readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """y (N,) and its variance (N,), in the sensor's unit and its square."""
        return (np.array([r.values[0] for r in readings]),
                np.array([0.0 if r.covariance is None else r.covariance[0] for r in readings]))


def _reader(name: str) -> Callable[[object], float]:
    """Reads that attribute; for std_msgs' `data`, also the `value` that stamped scalars of other packages carry."""
    if name != "data":
        return lambda msg: float(getattr(msg, name))

    def read(msg) -> float:
        for attribute in ("data", "value"):
            if hasattr(msg, attribute):
                return float(getattr(msg, attribute))
        raise ValueError(f"a {type(msg).__name__} has neither `data` nor `value`; sensor 'scalar' needs a message with "
                         "one of them, for example std_msgs/Float64")
    return read


def make_adaptor(settings: IntakeSettings) -> Adaptor:
    """The adaptor of `settings.sensor`."""
    kind = SENSOR_TYPES[settings.sensor]
    return ScalarAdaptor(kind, settings) if kind.adaptor is None else Part(kind.adaptor).load()(settings)

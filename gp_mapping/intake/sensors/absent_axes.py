"""Which axes of a magnetometer are not measured: NaN, by REP-103, in message after message."""

from __future__ import annotations

import math

__all__ = ["AbsentAxes"]

_ENOUGH = 10  # messages; a glitch is no axis that is missing


class AbsentAxes:
    """Watches the messages that an axis which is no number has cost.

    Args:
        component: what is mapped, for sentences.
    """

    def __init__(self, component: str):
        self._component = component
        self._counts = [0, 0, 0]

    def add(self, field: tuple[float, ...]) -> None:
        """Take in a message that was dropped, (x, y, z)."""
        for axis, value in enumerate(field):
            self._counts[axis] += math.isnan(value)

    @property
    def notes(self) -> list[str]:
        """Which axes are missing, and what can be mapped without them, in a sentence."""
        axes = [axis for axis in range(3) if self._counts[axis] >= _ENOUGH]
        if not axes:
            return []

        told = " and ".join("xyz"[axis] for axis in axes)
        told = f"axis {told} is" if len(axes) == 1 else f"axes {told} are"
        return [
            f"the magnetometer's {told} NaN (not measured), and field_component: {self._component} does not go "
            f"without: such measurements are left out; {_remedy(axes)}"
        ]


def _remedy(axes: list[int]) -> str:
    """What of a sensor that sits level can be mapped without these axes."""
    if axes == [2]:
        return (
            "where the sensor sits level, have its driver write 0 there: field_component: x or y then maps what the "
            "others tell"
        )
    if 2 in axes:
        return "where its driver writes 0 there, field_component: norm maps the one that is left"
    return (
        "where the sensor sits level, field_component: z with rotate_field: false maps what is left"
    )

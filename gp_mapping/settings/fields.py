"""A setting: a dataclass field with its meaning, unit and range; and the check of all of them."""

from __future__ import annotations

import math
from dataclasses import field, fields
from typing import Any

from gp_mapping.errors import named, not_one_of

__all__ = ["FULL_TURN", "check_settings", "setting"]

FULL_TURN = 6.3  # rad; an angle beyond a full turn is one in degrees


def setting(
    default, doc: str, unit: str = "", low=None, high=None, choices=None, live: bool = False
):
    """Return a dataclass field with its meaning, unit and range as metadata.

    Args:
        default: of the setting; its type is the setting's type.
        doc: what it means, a sentence without its full stop, for parameter descriptions and the
            manual.
        unit: SI, or "SI" for the unit of the sensor.
        low: smallest value, inclusive; None: no bound.
        high: largest value, inclusive; None: no bound.
        choices: the values that it may take; None: any in the range.
        live: whether it may be set while a node runs.
    """
    return field(
        default=default,
        metadata={
            "doc": doc,
            "unit": unit,
            "low": low,
            "high": high,
            "choices": choices,
            "live": live,
        },
    )


def check_settings(settings) -> None:
    """Check type, range and choice of every field; a whole number becomes a float where one is due.

    Raises:
        ValueError: the first that is wrong: what came, what was expected, and what to write.
    """
    for f in fields(settings):
        value: Any = getattr(settings, f.name)
        meta = f.metadata
        kind: type = type(f.default)
        # beyond 2**1023 it may be no float, stays an int, and is refused below
        if kind is float and type(value) is int and abs(value) < 2**1023:
            value = float(value)
            object.__setattr__(settings, f.name, value)  # the class is frozen

        # not isinstance: True is an int to Python, and no number to a person
        if type(value) is not kind:
            raise ValueError(
                f"{f.name}: {_shown(value)} is {type(value).__name__}, expected {kind.__name__}, "
                f"for example {f.default!r}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(
                f"{f.name}: {value!r} is not finite, expected for example {f.default!r}"
            )

        low, high, choices = meta.get("low"), meta.get("high"), meta.get("choices")
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError(
                f"{f.name}: {value!r} {meta['unit']} is outside [{low}, {high}], "
                f"for example {f.default!r}"
            )
        if choices and value not in choices:
            raise ValueError(f"{f.name}: {not_one_of(value, choices)}")


def _shown(value: object) -> str:
    """A value for a sentence; a text may be of any length."""
    return named(value) if isinstance(value, str) else repr(value)

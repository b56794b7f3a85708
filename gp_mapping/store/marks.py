"""What JSON does not have: tensors, parts in other places, numbers that are not finite.

Keys stand for them, and plain keys that look like these are escaped. Python would write a number
that is not finite as a bare word, and no other program reads such a file.
"""

from __future__ import annotations

import math

__all__ = ["NUMBER", "Marks", "number_of", "with_nulls", "written"]

# key by which a dict in JSON stands for such a number, which is to come back as it was
NUMBER = "__number__"


class Marks:
    """Keys by which a dict in JSON stands for a tensor, or for a part in another place.

    Args:
        marks: they begin with two "_".
    """

    def __init__(self, *marks: str):
        self._words = {mark.lstrip("_") for mark in marks}

    def escape(self, key: str) -> str:
        """A key as it stands in the JSON.

        A key that would be read as a mark, or as an escaped mark, gets one more "_" in front.
        """
        return f"_{key}" if key.startswith("__") and key.lstrip("_") in self._words else key

    def unescape(self, key: str) -> str:
        """The key of an escaped key."""
        return key[1:] if key.startswith("___") and key.lstrip("_") in self._words else key


def written(value: float) -> float | dict[str, str]:
    """A float as JSON has it: itself, or a dict that `number_of` reads."""
    return value if math.isfinite(value) else {NUMBER: repr(float(value))}


def number_of(value: dict[str, str]) -> float:
    """The number that a dict of `written` stands for.

    Raises:
        ValueError: it stands for none of nan, inf and -inf.
    """
    if value[NUMBER] not in ("nan", "inf", "-inf"):
        raise ValueError(f"{value[NUMBER]!r:.40} is no number")
    return float(value[NUMBER])


def with_nulls(value):
    """Plain values for people and other programs: None (null) where a number is not finite."""
    if isinstance(value, dict):
        return {name: with_nulls(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_nulls(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Keys that stand for something else in JSON, and plain keys that look like them."""

from __future__ import annotations

__all__ = ["Marks"]


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

"""Tiles on the shelf that a question is about: copies, of which the map itself knows nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.layout import Key
from gp_mapping.core.stored import StoredState

__all__ = ["TileLost", "Visits"]


class TileLost(ValueError):
    """A tile that cannot be read any more. key: which.  why: one line."""

    def __init__(self, key: Key, why: str):
        super().__init__(why)
        self.key, self.why = key, why


class Visits:
    """At most `most` copies, the newest. restore: a tile's map from the `map` of its state."""

    def __init__(self, restore: Callable[[dict], DualSVGP], most: int):
        self._restore, self._most = restore, most
        self._copies: dict[Key, tuple[StoredState, float, DualSVGP]] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def get(self, key: Key, stored: StoredState, forgot: float) -> DualSVGP:
        """The tile's map as it would be now. forgot: log of what has been forgotten of all. TileLost."""
        held = self._copies.pop(key, None)
        if held is None or held[0] is not stored or held[1] != forgot:
            while len(self._copies) >= self._most:
                self._copies.pop(next(iter(self._copies)))
            held = stored, forgot, self.made(key, stored, forgot)
        self._copies[key] = held  # the newest is the last to go
        return held[2]

    def made(self, key: Key, stored: StoredState, forgot: float) -> DualSVGP:
        """The tile's map, of which no copy is kept."""
        state = read(key, stored)
        try:
            new = self._restore(state["map"])
            if forgot < state["forgot"]:
                new.forget(math.exp(forgot - state["forgot"]))
        except (ValueError, KeyError, TypeError) as error:
            raise TileLost(key, f"its content does not fit together ({error})") from error
        return new

    def clear(self) -> None:
        self._copies.clear()


def read(key: Key, stored: StoredState) -> dict:
    """A tile's state; TileLost where it is damaged or gone."""
    try:
        return stored.get()
    except (ValueError, OSError) as error:
        raise TileLost(key, str(error)) from error

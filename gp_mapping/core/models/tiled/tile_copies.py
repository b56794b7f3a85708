"""Copies of shelved tiles, made for questions: the map itself does not depend on them."""

from __future__ import annotations

import math
from collections.abc import Callable

from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.layout import Key
from gp_mapping.core.stored import StoredState

__all__ = ["TileCopies", "TileLost", "make_copy", "read_tile"]


class TileLost(ValueError):
    """A tile that cannot be read.

    Args:
        key: of the tile.
        why: the reason, in one line.
        passing: whether it may be read later: out of reach, not known to be damaged.
    """

    def __init__(self, key: Key, why: str, passing: bool = False):
        super().__init__(why)
        self.key, self.why, self.passing = key, why, passing


class TileCopies:
    """Copies of shelved tiles, the newest.

    It knows nothing of the map that it belongs to, which would else stay in memory in a circle.

    Args:
        most: the number of copies that are kept.
    """

    def __init__(self, most: int):
        self._most = most
        self._copies: dict[Key, tuple[StoredState, float, DualSVGP]] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def get(
        self,
        key: Key,
        stored: StoredState,
        forgot: float,
        restore: Callable[[dict], DualSVGP],
        prepare: Callable[[Key, DualSVGP, dict], None] | None = None,
    ) -> DualSVGP:
        """The tile's map as it would be now.

        Args:
            key: of the tile.
            stored: its state.
            forgot: logarithm of the product of all forgetting factors so far.
            restore: makes a tile's map from the `map` of its state.
            prepare: is given a tile, its new copy and its state, where something is to be done.

        Raises:
            TileLost: it cannot be read.
        """
        copy = self._copies.pop(key, None)
        if copy is None or copy[0] is not stored or copy[1] != forgot:
            # the state or the forgetting has changed: read it anew, in place of the oldest copy
            while len(self._copies) >= self._most:
                self._copies.pop(next(iter(self._copies)))
            copy = stored, forgot, make_copy(key, stored, forgot, restore, prepare)
        self._copies[key] = copy  # at the end: the newest is the last to go
        return copy[2]

    def clear(self) -> None:
        """Drop all copies."""
        self._copies.clear()


def make_copy(
    key: Key,
    stored: StoredState,
    forgot: float,
    restore: Callable[[dict], DualSVGP],
    prepare: Callable[[Key, DualSVGP, dict], None] | None = None,
) -> DualSVGP:
    """As TileCopies.get, but no copy is kept.

    Without `prepare` the copy is not told what all others say of the passes' constants.

    Args:
        key: as there.
        stored: as there.
        forgot: as there.
        restore: as there.
        prepare: as there.

    Raises:
        TileLost: the state cannot be read.
    """
    state = read_tile(key, stored)
    try:
        new = restore(state["map"])
        if forgot < state["forgot"]:
            new.forget(math.exp(forgot - state["forgot"]))
        if prepare is not None:
            prepare(key, new, state)
    except (ValueError, KeyError, TypeError) as error:
        raise TileLost(key, f"its content does not fit together ({error})") from error
    return new


def read_tile(key: Key, stored: StoredState) -> dict:
    """A tile's state.

    Args:
        key: of the tile.
        stored: where its state is.

    Raises:
        TileLost: it is damaged or out of reach.
    """
    try:
        return stored.get()
    except (ValueError, OSError) as error:
        passing = isinstance(error, OSError) or isinstance(error.__context__, OSError)
        raise TileLost(key, str(error), passing) from error

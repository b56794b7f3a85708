"""Where tiles are that nobody needs now: by key, as states. In memory here; store/ has one on disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gp_mapping.core.models.tiled.layout import Key

__all__ = ["MemoryShelf", "Shelf"]


class Shelf(Protocol):
    """States of tiles by their keys."""

    def __contains__(self, key: Key) -> bool: ...

    def __len__(self) -> int: ...

    def keys(self) -> Iterable[Key]: ...

    def put(self, key: Key, state: dict) -> None:
        """Keep a state; it is not changed afterwards."""

    def take(self, key: Key) -> dict:
        """The state, which leaves the shelf. KeyError where there is none."""

    def peek(self, key: Key) -> dict:
        """The state, which stays."""

    def state_dict(self) -> dict:
        """What a checkpoint keeps of it."""

    def restored(self, state: dict) -> Shelf:
        """One like this with what a checkpoint kept."""


class MemoryShelf:
    """States in memory: for maps without a file, and for tests."""

    def __init__(self, states: dict[Key, dict] | None = None):
        self._states = dict(states or {})

    def __contains__(self, key: Key) -> bool:
        return key in self._states

    def __len__(self) -> int:
        return len(self._states)

    def keys(self) -> Iterable[Key]:
        return list(self._states)

    def put(self, key: Key, state: dict) -> None:
        self._states[key] = state

    def take(self, key: Key) -> dict:
        return self._states.pop(key)

    def peek(self, key: Key) -> dict:
        return self._states[key]

    def state_dict(self) -> dict:
        return {f"{column} {row}": state for (column, row), state in self._states.items()}

    def restored(self, state: dict) -> MemoryShelf:
        return MemoryShelf({tuple(map(int, name.split())): part for name, part in state.items()})

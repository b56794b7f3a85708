"""Tiles that are not needed now: their states, in memory or where the shelf's room has put them."""

from __future__ import annotations

from collections.abc import Iterable

from gp_mapping.core.models.tiled.layout import Key, key_of, name_of
from gp_mapping.core.stored import Room, StoredState

__all__ = ["Shelf"]


class Shelf:
    """States of tiles by their keys.

    Args:
        room: where they are written to; None keeps them in memory.
        states: to begin with.
    """

    def __init__(self, room: Room | None = None, states: dict[Key, StoredState] | None = None):
        self.room, self._states = room, dict(states or {})

    def __contains__(self, key: Key) -> bool:
        return key in self._states

    def __len__(self) -> int:
        return len(self._states)

    def keys(self) -> Iterable[Key]:
        """Keys of the tiles that are here."""
        return list(self._states)

    def put(self, key: Key, state: StoredState) -> None:
        """Keep a state, and write it where there is a room.

        Args:
            key: of the tile.
            state: of the tile; one that lies in a file is not written again.
        """
        self._states[key] = state
        if self.room is not None and state.in_memory:
            self.room.put(state)

    def take(self, key: Key) -> StoredState:
        """Remove a state from the shelf and return it; KeyError where there is none."""
        return self._states.pop(key)

    def peek(self, key: Key) -> StoredState:
        """The state of a tile, which stays on the shelf."""
        return self._states[key]

    def problem(self) -> str:
        """Why states stay in memory that should not; '' where none do."""
        return "" if self.room is None else self.room.problem()

    def copy(self) -> Shelf:
        """An independent shelf with the same states."""
        return Shelf(self.room, self._states)

    def __deepcopy__(self, memo) -> Shelf:
        return self.copy()

    def state_dict(self) -> dict:
        """States by the tiles' names."""
        return {name_of(key): state for key, state in self._states.items()}

    def restored(self, state: dict) -> Shelf:
        """A shelf with the same room and the states of a checkpoint.

        Args:
            state: states by the tiles' names; plain ones in files before tiles had their own.
        """
        return Shelf(
            self.room,
            {
                key_of(name): part if isinstance(part, StoredState) else StoredState(name, part)
                for name, part in state.items()
            },
        )

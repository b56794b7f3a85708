"""Tiles that nobody needs now, by key: their states, in memory or where the shelf's room has put them."""

from __future__ import annotations

from collections.abc import Iterable

from gp_mapping.core.models.tiled.layout import Key, key_of, name_of
from gp_mapping.core.stored import Room, StoredState

__all__ = ["Shelf"]


class Shelf:
    """States of tiles by their keys. room: where they are written to; None: they stay in memory."""

    def __init__(self, room: Room | None = None, states: dict[Key, StoredState] | None = None):
        self.room, self._states = room, dict(states or {})

    def __contains__(self, key: Key) -> bool:
        return key in self._states

    def __len__(self) -> int:
        return len(self._states)

    def keys(self) -> Iterable[Key]:
        return list(self._states)

    def put(self, key: Key, state: StoredState) -> None:
        """Keep a state."""
        self._states[key] = state
        if self.room is not None and state.held:
            self.room.put(state)

    def take(self, key: Key) -> StoredState:
        """The state, which leaves the shelf. KeyError where there is none."""
        return self._states.pop(key)

    def peek(self, key: Key) -> StoredState:
        """The state, which stays."""
        return self._states[key]

    def problem(self) -> str:
        """Why states stay in memory that should not; '' where none do."""
        return "" if self.room is None else self.room.problem()

    def copy(self) -> Shelf:
        """Another with the same states, from which they can be taken apart from this one's."""
        return Shelf(self.room, self._states)

    def __deepcopy__(self, memo) -> Shelf:
        return self.copy()

    def state_dict(self) -> dict:
        """States by the tiles' names."""
        return {name_of(key): state for key, state in self._states.items()}

    def restored(self, state: dict) -> Shelf:
        """One with the same room and what a checkpoint kept; of files before tiles had their own, plain states."""
        return Shelf(
            self.room,
            {
                key_of(name): part if isinstance(part, StoredState) else StoredState(name, part)
                for name, part in state.items()
            },
        )

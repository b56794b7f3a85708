"""A part of a map that need not be in memory: held as a state, or read again from where somebody has put it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Room", "Source", "StoredState"]


class Source(Protocol):
    """Where a state has been put. What it gives never changes."""

    def read(self) -> dict:
        """The state. ValueError, in one line, where it is damaged or gone."""

    def trouble(self) -> str:
        """What can be seen to be wrong with it without reading it; '' where nothing is."""


class Room(Protocol):
    """Where states go that nobody needs now."""

    def put(self, state: StoredState) -> None:
        """Have it written, soon; from then on it is no longer held. Where that cannot be, it stays in memory."""

    def problem(self) -> str:
        """Why states stay in memory, in one sentence; '' where they do not."""


class StoredState:
    """A state of one moment. It never changes, so a copy is the thing itself; where it is may change.

    name: of what it is the state.
    """

    __slots__ = ("__weakref__", "_held", "_source", "name")

    def __init__(self, name: str, held: dict | None = None, source: Source | None = None):
        self.name, self._held, self._source = name, held, source

    def get(self) -> dict:
        """The state, which is not to be changed. ValueError where it cannot be read any more."""
        held = self._held  # read once: another thread may be letting go of it
        return self._source.read() if held is None else held

    @property
    def held(self) -> bool:
        """Whether it is in memory."""
        return self._held is not None

    @property
    def source(self) -> Source | None:
        """Where it can be read from; None while it is in memory only."""
        return self._source

    def trouble(self) -> str:
        """What can be seen to be wrong with it without reading it; '' where nothing is."""
        return "" if self._held is not None or self._source is None else self._source.trouble()

    def move_to(self, source: Source) -> None:
        """It can be read there from now on, and is no longer held."""
        self._source = source  # first: who asks meanwhile finds one of the two
        self._held = None

    def __copy__(self) -> StoredState:
        return self

    def __deepcopy__(self, memo) -> StoredState:
        return self

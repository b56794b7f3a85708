"""A part of a map that need not be in memory: held as a state, or read from where it was put."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Room", "Source", "StoredState"]


class Source(Protocol):
    """Where a state has been put. It always gives the same state."""

    def read(self) -> dict:
        """Read the state; ValueError with a one-line text where it is damaged or gone."""

    def visible_fault(self) -> str:
        """What is visibly wrong with it without reading it; '' where nothing is."""


class Room(Protocol):
    """Storage for states that are not needed in memory now."""

    def put(self, state: StoredState) -> None:
        """Have a state written soon; it then leaves memory, or stays where writing fails."""

    def problem(self) -> str:
        """Why states stay in memory, in one sentence; '' where they do not."""


class StoredState:
    """A state of one moment, in memory or in a Source.

    The state never changes, so a copy is the object itself. Only where it is kept may change.

    Args:
        name: of the thing whose state it is.
        held: the state; None: it is in the source.
        source: from which it can be read; None: it is in memory only.

    Attributes:
        name: of the thing whose state it is.
    """

    __slots__ = ("__weakref__", "_held", "_source", "name")

    def __init__(self, name: str, held: dict | None = None, source: Source | None = None):
        self.name, self._held, self._source = name, held, source

    def get(self) -> dict:
        """The state, which must not be changed; ValueError where it cannot be read any more."""
        held = self._held  # read once: another thread may be letting go of it
        return self._source.read() if held is None else held

    @property
    def in_memory(self) -> bool:
        """Whether the state is in memory."""
        return self._held is not None

    @property
    def source(self) -> Source | None:
        """Where the state can be read from; None while it is in memory only."""
        return self._source

    def visible_fault(self) -> str:
        """What is visibly wrong with its source without reading it; '' where nothing is."""
        return (
            "" if self._held is not None or self._source is None else self._source.visible_fault()
        )

    def move_to(self, source: Source) -> None:
        """Let go of the state in memory, since it can be read from a source from now on."""
        self._source = source  # first: a reader in another thread finds one of the two
        self._held = None

    def __copy__(self) -> StoredState:
        return self

    def __deepcopy__(self, memo) -> StoredState:
        return self

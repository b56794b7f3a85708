"""Searches that are done a few steps at a time, while the map goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Generic, TypeVar

__all__ = ["PendingSearch", "Stepwise"]

_Found = TypeVar("_Found")


class Stepwise(ABC, Generic[_Found]):
    """A search whose work comes in steps. It depends on its arguments alone.

    So it is saved as the number of its steps, and a copy does them again: a generator that waits
    cannot be copied.

    Args:
        arguments: of the subclass, by which an equal search is made.

    Attributes:
        steps: done so far.
        found: at the end, what was found, or None.
    """

    def __init__(self, *arguments: Any):
        self._arguments = arguments
        self.steps = 0
        self.found: _Found | None = None
        self._work = self._search()

    @abstractmethod
    def _search(self) -> Generator[None, None, _Found | None]:
        """The work; yields after each step, and returns what it has found."""

    def advance(self) -> bool:
        """Do one more step; return whether that was the last one."""
        try:
            next(self._work)
        except StopIteration as end:
            self.found = end.value
            return True
        self.steps += 1
        return False

    def finish(self) -> _Found | None:
        """Do all steps that are left, and return what was found."""
        while not self.advance():
            pass
        return self.found

    def __deepcopy__(self, memo) -> Stepwise[_Found]:
        """A search of its own, as far as this one."""
        new = type(self)(*self._arguments)
        for _ in range(self.steps):
            new.advance()
        new.found = self.found
        return new


class PendingSearch(Generic[_Found]):
    """A search among the cells that there were when it began.

    Args:
        search: the search; None where the cells are too few for one.
    """

    def __init__(self, search: Stepwise[_Found] | None):
        self._search = search

    def advance(self, steps: float) -> bool:
        """Do so many steps; return whether the end is reached."""
        while self._search is not None and steps > 0:
            if self._search.advance():
                return True
            steps -= 1
        return self._search is None

    @property
    def steps(self) -> int:
        """Steps done so far."""
        return 0 if self._search is None else self._search.steps

    @property
    def found(self) -> _Found | None:
        """What was found, at the end."""
        return None if self._search is None else self._search.found

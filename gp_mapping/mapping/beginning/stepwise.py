"""Searches that are done a few steps at a time, beside the map that goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Generic, TypeVar

__all__ = ["Stepwise", "go_on_with"]

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

    def go_on(self) -> bool:
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
        while not self.go_on():
            pass
        return self.found

    def __deepcopy__(self, memo) -> Stepwise[_Found]:
        """A search of its own, as far as this one."""
        new = type(self)(*self._arguments)
        go_on_with(new, self.steps)
        new.found = self.found
        return new


def go_on_with(search: Stepwise | None, steps: float) -> bool:
    """Do so many steps of a search; return whether its end is reached. None has no step."""
    while search is not None and steps > 0:
        if search.go_on():
            return True
        steps -= 1
    return search is None

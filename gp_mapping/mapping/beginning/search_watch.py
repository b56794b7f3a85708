"""When a search among the cells so far is due, and a few steps of it with each cell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sized
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from gp_mapping.mapping.beginning.stepwise import PendingSearch

__all__ = ["Schedule", "SearchWatch"]

_Kept = TypeVar("_Kept", bound=Sized)
_Search = TypeVar("_Search", bound=PendingSearch)


@dataclass(frozen=True)
class Schedule:
    """When a search is due.

    Attributes:
        checks: blocks at which it is, in ascending order.
        fewest: blocks that can tell anything.
        most: cells that are kept at most; then it is due for the last time.
        parts: blocks in a lengthscale.
        steps: of a search with each cell.
        every: cells between two looks at how far the way has come.
        new: times the blocks of the last search, at the end of a drive.
    """

    checks: tuple[int, ...]
    fewest: int
    most: int
    parts: float
    steps: int
    every: int = 16
    new: float = 1.2


class SearchWatch(ABC, Generic[_Kept, _Search]):
    """Searches the cells so far for what a map would have to begin again with.

    The cells are averaged along the way to blocks, so many in a lengthscale; by their number a
    search is due.

    Args:
        kept: cells since the beginning; None where nothing is looked for (any more).
    """

    schedule: ClassVar[Schedule]

    def __init__(self, kept: _Kept | None):
        self._kept = kept
        self._checks, self._looked, self._way = 0, 0, 0.0
        self._search: _Search | None = None

    @abstractmethod
    def _make_search(self, kept: _Kept, length: float, whole: bool, final: bool) -> _Search:
        """Make a search among the cells so far.

        Args:
            kept: these.
            length: lengthscale of the map, m.
            whole: whether it is of the whole way; else of the newest blocks.
            final: whether no other search comes after it.
        """

    @abstractmethod
    def _adopt(self, search: _Search, last: bool) -> bool:
        """Take over what a search has found; return whether the map has to begin again.

        Args:
            search: at its end.
            last: whether no more cells may come.
        """

    def look(self, lengthscale: Callable[[], float | None]) -> bool:
        """Search, where it is due: a few steps in each call.

        Args:
            lengthscale: tells the map's, m; None while there is no map.

        Returns:
            Whether something is found, so that the map has to begin again with `again`.
        """
        if self._search is None:
            self._begin_search(lengthscale, last=False)
        search = self._search
        if search is None or not search.advance(self.schedule.steps):
            return False

        self._search = None
        return self._adopt(search, last=False)

    def looking_last(self, lengthscale: Callable[[], float | None]) -> Generator[None, None, bool]:
        """As `look`, since no more cells may come: to the end, yielding between some steps."""
        if self._search is None:
            self._begin_search(lengthscale, last=True)
        while self._search is not None and not self._search.advance(self.schedule.steps):
            yield
        search, self._search = self._search, None
        return search is not None and self._adopt(search, last=True)

    def finishing_search(self) -> Generator[None, None, bool]:
        """Finish the search that has begun, yielding between some steps; return as `look`."""
        return self._search is not None and (yield from self.looking_last(lambda: None))

    def _begin_search(self, lengthscale: Callable[[], float | None], last: bool) -> None:
        """Begin to search, where it is due."""
        kept, s = self._kept, self.schedule
        if kept is None or not len(kept) or not (last or len(kept) % s.every == 0):
            return
        length, full = lengthscale(), len(kept) >= s.most
        if length is None:
            self._kept = None if full else kept
            return

        blocks = min(len(kept), int(self._way * s.parts / length))
        due = full or blocks >= s.checks[self._checks]
        if not due and not (last and blocks >= max(s.fewest, s.new * self._looked)):
            return

        passed = None
        while self._checks < len(s.checks) - 1 and blocks >= s.checks[self._checks]:
            passed = s.checks[self._checks]
            self._checks += 1
        final = full or blocks >= s.checks[-1]
        self._looked = blocks
        whole = final or (last if passed is None else self._is_whole(passed))
        self._search = self._make_search(kept, length, whole, final)

    def _is_whole(self, check: int) -> bool:
        """Whether a search at so many blocks is of the whole way."""
        return True

"""A map that begins again with all its cells, beside the one that answers.

Where a sensor is found to be slow, or to drift, the cells so far say something else of the field
than the map has taken from them. The new map takes a few of them with each new cell, so no update
is long. Until it has caught up the map of before answers, and takes nothing more; new cells wait in
the same queue. It is never longer than what it began with, for it shrinks with each cell.

Afterwards the map is the one that would have been, had all of it been done at once: each cell comes
with the length of the path at which it came, which scores and changes go by.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, NamedTuple

from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.first_values import FirstValues
from gp_mapping.mapping.bias_numbers import BiasNumbers
from gp_mapping.mapping.gathering import Gathering

__all__ = ["Renewing"]

TOGETHER = 2  # earlier cells that go in with each new one; early ones may cost 0.04 s each
# What belongs to one of the two maps, beside what a subclass names.
_OWN = ("_first", "_bias", "raw_count", "refused", "lost", "last_refusal")


class _Waiting(NamedTuple):
    """What the new map has yet to see.

    Attributes:
        cell: it; None: the pass has ended.
        passes: number of its pass.
        length: of the path when it came, m.
    """

    cell: Samples | None
    passes: int
    length: float


class Renewing(Gathering):
    """Gathers cells for a map that may begin again."""

    own_names: tuple[str, ...] = ()  # attributes of a subclass that belong to one of the two maps

    def _begin(self) -> None:
        """Start with nothing: no sample has come yet."""
        super()._begin()
        # the new map's attributes by name, and what it has yet to see; None: there is no new map
        self._new: dict[str, Any] | None = None
        self._waiting: deque[_Waiting] = deque()
        self._length_then: float | None = None

    @abstractmethod
    def _lengthscale(self) -> float | None:
        """The field's, m, as a map has learned it; None where there is none."""

    @abstractmethod
    def _end_pass(self) -> None:
        """Let the map know that a pass has ended."""

    @property
    def _length(self) -> float:
        """Length of the path when the cell came that the map takes now, m."""
        return self._path.length if self._length_then is None else self._length_then

    @property
    def is_renewing(self) -> bool:
        """Whether a new map is on its way."""
        return self._new is not None

    @property
    def waiting_count(self) -> int:
        """Number of cells that the new map has yet to see, and of ends of passes among them."""
        return len(self._waiting)

    # --- cells in ---------------------------------------------------------------------------------
    def _pass_on(self, cells: Iterable[Samples]) -> None:
        """Hand over cells of the pass that is open, or let them wait for the new map."""
        cells = list(cells)
        for cell in cells:
            self.drift.add(cell, self.passes)
        if self._new is None:
            super()._pass_on(cells)
            return
        new = [_Waiting(cell, self.passes, self._path.length) for cell in cells]
        self._waiting.extend(new)
        self._catch_up(len(new))  # so that the queue never grows

    def _admit(self, cell: Samples) -> None:
        """Hand over a finished cell; look a few steps on for a slow sensor, or one that drifts."""
        super()._admit(cell)
        if self._new is not None:
            self._catch_up(TOGETHER)
        elif self.response.look(self._lengthscale):
            self._renew_settled()
        elif self.drift.look(self._lengthscale):
            self._renew(self.drift.again())

    def break_pass(self) -> None:
        """Close the open cell at a gap or a time jump: the next sample starts a new pass."""
        super().break_pass()
        if self._new is None:
            self._end_pass()
        elif not self._waiting or self._waiting[-1].cell is not None:
            self._waiting.append(_Waiting(None, self.passes, self._path.length))

    def flush(self) -> None:
        """Hand over the open cell, and all that waits."""
        super().flush()
        if self.response.finish_search():
            self._renew_settled()
        self._catch_up(len(self._waiting))
        if self.drift.finish_search():
            self._renew(self.drift.again())
            self._catch_up(len(self._waiting))

    def finish(self) -> None:
        """Leave nothing pending: the stream has ended."""
        self.flush()
        if self.response.look(self._lengthscale, last=True):
            self._renew_settled()
            self.flush()
        if self.drift.look(self._lengthscale, last=True):
            self._renew(self.drift.again())
            self.flush()

    # --- the new map ------------------------------------------------------------------------------
    @contextmanager
    def _on_new_map(self) -> Iterator[None]:
        """Work on the new map, and put the one that answers back afterwards."""
        assert self._new is not None
        new = self._new
        shown = {name: getattr(self, name) for name in (*_OWN, *self.own_names)}
        self.__dict__ |= new
        try:
            yield
        finally:
            new |= {name: self.__dict__[name] for name in new}
            self.__dict__ |= shown

    def _renew_settled(self) -> None:
        """Begin the new map, with what a slow sensor's cells say of the field."""
        cells = self.response.again()
        self.drift.replace(cells)
        self._renew(cells)

    def _renew(self, cells: list[tuple[Samples, int]]) -> None:
        """Begin the new map.

        Args:
            cells: all so far, each with the number of its pass.
        """
        self._new = {name: getattr(self, name) for name in (*_OWN, *self.own_names)}
        with self._on_new_map():
            # what it refuses, from here on
            self.raw_count = self.refused = self.lost = 0
            self._begin_over()
            notes, self._first = self._first.notes, FirstValues(self.settings)
            self._first.notes, self._bias = notes, BiasNumbers(self.drift.bias_time)
        self._waiting = deque(_Waiting(cell, passes, self._path.length) for cell, passes in cells)

    def _catch_up(self, count: int) -> None:
        """Let the new map see so much of what waits; once nothing does, it is the map."""
        if self._new is None:
            return
        with self._on_new_map():
            try:
                # ends of passes cost nothing, and do not count
                while self._waiting and (count > 0 or self._waiting[0].cell is None):
                    cell, passes, self._length_then = self._waiting.popleft()
                    if cell is not None:
                        count -= 1
                        self._admit_block(cell, passes)
                    else:
                        self._first.drop_held()
                        self._end_pass()
            finally:
                self._length_then = None
        if self._waiting:
            return

        # cells that the map of before has refused were offered once more
        new, self._new = self._new, None
        used, refused = self.raw_count + self.lost, self.refused - self.lost
        self.__dict__ |= new
        self.raw_count, self.refused = used + self.raw_count, refused + self.refused

    # --- resume -----------------------------------------------------------------------------------
    @abstractmethod
    def _map_state(self) -> dict:
        """Collect the state of the map and of all else in `own_names`."""

    def _renewal_state(self) -> dict | None:
        """Collect what an exact resume of the new map needs; None: there is none."""
        if self._new is None:
            return None
        with self._on_new_map():
            state = self._map_state()
        return {
            "map": state,
            "waiting": [
                {
                    "cell": cell and {f.name: getattr(cell, f.name) for f in fields(cell)},
                    "passes": passes,
                    "length": length,
                }
                for cell, passes, length in self._waiting
            ],
        }

    def _load_renewal(self, state: dict, new: Renewing) -> None:
        """Continue where `_renewal_state` was taken.

        Args:
            state: it.
            new: made of the state of the new map.
        """
        self._new = {name: getattr(new, name) for name in (*_OWN, *self.own_names)}
        self._waiting = deque(
            _Waiting(each["cell"] and Samples(**each["cell"]), each["passes"], each["length"])
            for each in state["waiting"]
        )

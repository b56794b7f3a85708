"""Draws all of a map in slices, so that the map absorbs new measurements between two of them."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from gp_mapping.mapping.drawing.levels import field_limits

__all__ = ["WholeMap", "WholeMaps"]

# Work of one slice, in s of processor time: on a busy machine it takes longer, and is as much work.
SLICE = 0.05
FIRST = 500  # points of the first slice
# At most so many times the points of the whole drawing are drawn, where hyper-parameters change
# meanwhile.
TIMES = 2


class WholeMap:
    """One drawing of all that is known, shared by all requests that came before it began.

    What changes while it is drawn is shown as before or as after the change.

    Attributes:
        future: its result is (FieldGrid, Limits or None), or None for an empty map.
        begun: whether a slice has been drawn; later requests need a new drawing.
    """

    def __init__(self) -> None:
        self.future: Future = Future()
        self.begun = False
        self._points, self._drawn, self._most = FIRST, 0, 0
        # the map's revision when the drawing began, and the newest of its samples that was not
        # drawn
        self._since = (0, 0)

    def draw_slice(self, session) -> bool:
        """Draw one slice, in the map's thread.

        Args:
            session: the session to draw.

        Returns:
            Whether the drawing has ended, also by an exception, or since nobody wants it any more.
        """
        self.begun = True
        if self.future.cancelled():
            return True
        try:
            return self._slice(session)
        except BaseException as error:
            with suppress(InvalidStateError):  # cancelled meanwhile
                self.future.set_exception(error)
            return True

    def finish(self, session) -> None:
        """Draw all slices at once, for when the map has nothing else to do."""
        while not self.draw_slice(session):
            pass

    def _slice(self, session) -> bool:
        """Evaluate some more points, or make the grid once none is left; whether it is made."""
        if not session.cell_count:
            self.future.set_result(None)
            return True

        if not self._drawn:
            self._since = session.revision, session.renderer.newest

        start = time.thread_time()
        session.draw_ahead(self._points)
        took = time.thread_time() - start

        remaining = session.renderer.stale_since(*self._since)
        self._drawn += session.renderer.points_drawn
        self._most = max(self._most, remaining + session.renderer.points_drawn)
        if remaining and self._drawn < TIMES * self._most:
            # the next slice takes about SLICE; its size changes by at most a factor of four
            self._points = max(
                FIRST, int(self._points * min(4.0, max(0.25, SLICE / max(took, 1e-4))))
            )
            return False

        grid = session.render(0)
        self.future.set_result((grid, field_limits(grid)))
        return True


class WholeMaps:
    """Drawings of the whole map that are requested: the oldest is drawn first.

    It has no lock of its own: `request` and `take_all` are for who holds the caller's, the other
    methods for the map's thread.
    """

    def __init__(self) -> None:
        self._waiting: deque[WholeMap] = deque()
        self._newest: WholeMap | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def request(self) -> Future:
        """Request a drawing, or share the newest one where it has not begun; return its Future."""
        if self._newest is None or self._newest.begun:
            self._newest = WholeMap()
            self._waiting.append(self._newest)
        return self._newest.future

    def draw_slice(self, session) -> None:
        """Draw a slice of the oldest, in the map's thread; a session as in WholeMap."""
        if self._waiting and self._waiting[0].draw_slice(session):
            self._waiting.popleft()

    def finish(self, session) -> None:
        """Draw all of all of them at once."""
        while self._waiting:
            self._waiting.popleft().finish(session)

    def take_all(self) -> list[WholeMap]:
        """Take out the drawings that wait."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

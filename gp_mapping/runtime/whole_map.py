"""All of a map drawn, slice by slice: between two slices the map takes in what has come."""

from __future__ import annotations

import time
from concurrent.futures import Future

from gp_mapping.mapping.drawing.levels import field_limits

__all__ = ["WholeMap"]

SLICE = 0.05  # s of work that one slice should be; on a busy machine that takes longer, and is no less to be done
FIRST = 500  # points of the first slice
TIMES = 2  # so many times the points of the whole drawing, at most, where its hyper-parameters change meanwhile


class WholeMap:
    """One drawing of all that is known, for everybody who asked before it began.

    What changes while it is drawn is as it was, or as it is then: a map that goes on is never quite drawn.

    future: its result is (FieldGrid, Limits or None), or None for an empty map.
    """

    def __init__(self) -> None:
        self.future: Future = Future()
        self.begun = False
        self._points, self._drawn, self._most = FIRST, 0, 0
        self._since = (
            0,
            0,
        )  # revision of the map when it began, and of its samples the newest that was not drawn

    def go_on(self, session) -> bool:
        """In the map's thread: one slice; True when it is done. An exception ends it, too."""
        self.begun = True
        try:
            return self._slice(session)
        except BaseException as error:
            self.future.set_exception(error)
            return True

    def finish(self, session) -> None:
        """All at once, where nothing else waits any more."""
        while not self.go_on(session):
            pass

    def _slice(self, session) -> bool:
        if not session.cell_count:
            self.future.set_result(None)
            return True

        if not self._drawn:
            self._since = session.revision, session.renderer.newest
        start = time.thread_time()
        session.draw_ahead(self._points)
        took = time.thread_time() - start

        left = session.renderer.stale_since(*self._since)
        self._drawn += session.renderer.points_drawn
        self._most = max(self._most, left + session.renderer.points_drawn)
        if left and self._drawn < TIMES * self._most:
            self._points = max(
                FIRST, int(self._points * min(4.0, max(0.25, SLICE / max(took, 1e-4))))
            )
            return False
        grid = session.render(0)
        self.future.set_result((grid, field_limits(grid)))
        return True

"""How long measurements take from their arrival until they are in the map."""

from __future__ import annotations

from collections import deque

from gp_mapping.runtime.timing import Durations

__all__ = ["Latency"]

_MOST = 100_000  # arrivals that are kept
_WAIT = 60.0  # s; what is not in the map by then never will be
_SAME = 1e-6  # s between stamps that are the same


class Latency:
    """Matches the stamps of measurements that have arrived with those of the map's samples.

    Args:
        durations: where each latency is recorded.
    """

    def __init__(self, durations: Durations):
        self._durations = durations
        self._arrivals: deque[tuple[float, float]] = deque(maxlen=_MOST)

    def add_arrival(self, stamp: float, arrived: float) -> None:
        """Record that a measurement has come.

        Args:
            stamp: of it, s.
            arrived: monotonic time, s.
        """
        self._arrivals.append((stamp, arrived))

    def reach(self, newest: float, now: float) -> None:
        """Record the latencies of all measurements up to the newest sample of the map.

        Args:
            newest: its stamp, s.
            now: monotonic time, s.
        """
        while self._arrivals and (
            self._arrivals[0][0] <= newest + _SAME or now - self._arrivals[0][1] > _WAIT
        ):
            stamp, arrived = self._arrivals.popleft()
            if stamp <= newest + _SAME:
                self._durations.add(now - arrived)

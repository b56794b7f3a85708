"""Bounded records of durations and latencies, for percentiles in diagnostics."""

from __future__ import annotations

from collections import deque

__all__ = ["Durations", "Latency"]

_MOST = 100_000  # arrivals that are kept
_WAIT = 60.0  # s; what is not in the map by then never will be
_SAME = 1e-6  # s between stamps that are the same


class Durations:
    """The last durations in seconds, and the count of all.

    Args:
        size: durations that are kept.
    """

    def __init__(self, size: int = 1000):
        self._last: deque[float] = deque(maxlen=size)
        self.count = 0

    def add(self, seconds: float) -> None:
        """Record a duration."""
        self._last.append(seconds)
        self.count += 1

    def summary(self) -> dict[str, float]:
        """Percentiles p50_ms, p99_ms and max_ms of the last `size`, and the count of all.

        Empty where nothing was recorded.
        """
        if not self._last:
            return {}

        ordered = sorted(self._last)
        last = len(ordered) - 1
        return {
            "count": self.count,
            "p50_ms": 1e3 * ordered[last // 2],
            "p99_ms": 1e3 * ordered[int(0.99 * last)],
            "max_ms": 1e3 * ordered[-1],
        }


class Latency:
    """How long measurements take from their arrival until they are in the map.

    Matches their stamps with those of the map's samples.

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

"""A bounded record of durations, for percentiles in diagnostics."""

from __future__ import annotations

from collections import deque

__all__ = ["Durations"]


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

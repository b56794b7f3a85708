"""The time of the measurements, by their stamps alone: jumps back, and pauses that end a pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median_low

__all__ = ["PERIODS", "RECENT_STEPS", "FieldClock", "longest_pause"]

PERIODS = 4  # a longer pause of a slow sensor, in units of its own period, ends a pass
RECENT_STEPS = 15  # whose median is the period


class FieldClock:
    """Stamps of the measurements that were accepted.

    Args:
        jump_back: a stamp that goes back by more begins a new epoch, ns.
        pass_gap: a longer pause ends a pass, ns, unless the sensor is slower than that.

    Attributes:
        epoch: it grows where stamps jump back, and is the poses' where both are in one time again.
        newest: stamp of the newest measurement, ns; None before the first.
        advance: how far stamps have advanced in all, without jumps back, ns.
        steps: between the newest measurements, ns.
    """

    def __init__(self, jump_back: int, pass_gap: int):
        self._jump_back, self._pass_gap = jump_back, pass_gap
        self.epoch, self.advance = 0, 0
        self.newest: int | None = None
        self.steps: deque[int] = deque(maxlen=RECENT_STEPS)

    def jumps_back(self, stamp: int) -> bool:
        """Whether a measurement at `stamp`, ns, begins a new epoch."""
        return self.newest is not None and stamp < self.newest - self._jump_back

    def is_past(self, stamp: int) -> bool:
        """Whether `stamp`, ns, is at or before the newest one, which two samples cannot be."""
        return self.newest is not None and stamp <= self.newest

    def is_in_time_of(self, stamp: int, other: int | None) -> bool:
        """Whether a stamp is not ahead of another stream's newest one.

        Args:
            stamp: ns.
            other: ns; None where that stream has none.
        """
        return other is not None and stamp <= other + self._jump_back

    def move_to(self, stamp: int) -> None:
        """Take the stamp of the next measurement, ns."""
        if self.newest is not None and stamp > self.newest:
            self.advance += stamp - self.newest
            self.steps.append(stamp - self.newest)
        self.newest = stamp

    def move_through(self, stamps: Sequence[int]) -> None:
        """Take the stamps of many measurements, ns, each after the one before."""
        # one step more than is remembered: the first, over all that is passed over, falls out
        for stamp in stamps[-RECENT_STEPS - 1 :]:
            self.move_to(stamp)

    def restart(self, epoch: int) -> None:
        """Forget the newest measurement: what comes is of another time.

        Args:
            epoch: of that time.
        """
        self.epoch, self.newest = epoch, None

    def longest_pause(self) -> tuple[int, bool]:
        """The longest pause within a pass, ns, and whether a person has to be told (below)."""
        return longest_pause(self.steps, self._pass_gap)


def longest_pause(steps: Sequence[int], pass_gap: int) -> tuple[int, bool]:
    """The longest pause within a pass: pass_gap, or PERIODS periods of a sensor that is slower.

    It depends on the sensor's stamps alone.

    Args:
        steps: between the newest measurements, ns, at most RECENT_STEPS.
        pass_gap: ns.

    Returns:
        That pause in ns, and whether the sensor is so slow that a person has to be told.
    """
    slow = sum(PERIODS * step > pass_gap for step in steps)
    if 2 * slow <= len(steps):
        return pass_gap, False

    period = median_low(steps)
    return PERIODS * period, period > pass_gap and len(steps) >= RECENT_STEPS

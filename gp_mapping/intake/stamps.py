"""A stamp that leaps waits for the message after it, which tells a stray from a pause and from a bag that loops.

Of a stream whose newest stamp is s, with usual step d, a stamp t leaps where t < s − jump_back, or t > s + ahead,
ahead = max(jump_back, 5 d). A message that leaps is held. The next one decides:

    it goes on from s                      the one that was held is a stray: a wrong stamp, or another publisher's clock
    it goes on from the one that was held  there was a pause, or time jumped back: both are taken, in order
    neither                                the one that was held is a stray, and this one is held in its place

Only the stream's own order counts, so that it does not matter when, or beside what, its messages come.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["StampGate", "Stamped"]

_STEPS = 5  # usual steps that are no leap
_NO_STEP = 60_000_000_000  # ns; ahead while no step is known
_WEIGHT = 0.1  # of a new step in the usual one


class Stamped(NamedTuple):
    """A message, or what was read of it, with its stamp in ns."""

    stamp: int
    content: object


class StampGate:
    """One stream. jump_back: ns by which stamps may go back without leaping."""

    def __init__(self, jump_back: int):
        self.jump_back = jump_back
        self.clear()

    def clear(self) -> None:
        """Forget the stream; what is held is forgotten, too."""
        self._last: int | None = None
        self._usual: float | None = None
        self._held: Stamped | None = None

    @property
    def holding(self) -> int:
        """Messages that wait: 0 or 1."""
        return int(self._held is not None)

    def admit(self, stamp: int, content) -> tuple[list[Stamped], int]:
        """What is to be taken now, in order, and how many strays have been found (0 or 1)."""
        new, held, last = Stamped(stamp, content), self._held, self._last
        if last is None or (held is None and not self._leaps(stamp, last)):
            self._follow(stamp)
            return [new], 0
        if held is None:
            self._held = new
            return [], 0

        self._held = None
        if not self._leaps(stamp, last) and stamp > last:
            self._follow(stamp)
            return [new], 1
        if self._goes_on(held.stamp, stamp, last):
            if held.stamp > last and self._leaps(stamp, held.stamp):  # leap after leap: the stream is that slow
                self._usual = float(stamp - held.stamp)
            self._last = held.stamp
            self._follow(stamp)
            return [held, new], 0
        self._held = new
        return [], 1

    def finish(self) -> list[Stamped]:
        """The end of the stream: nothing speaks against what is held."""
        held, self._held = self._held, None
        if held is None:
            return []
        self._last = held.stamp
        return [held]

    def _ahead(self) -> float:
        return _NO_STEP if self._usual is None else max(self.jump_back, _STEPS * self._usual)

    def _leaps(self, stamp: int, last: int) -> bool:
        return stamp < last - self.jump_back or stamp > last + self._ahead()

    def _goes_on(self, held: int, stamp: int, last: int) -> bool:
        """Whether a stream that was at `last` and leapt to `held` goes on there with `stamp`."""
        if stamp < held - self.jump_back:
            return False
        return held > last or stamp < last - self.jump_back

    def _follow(self, stamp: int) -> None:
        step = None if self._last is None else stamp - self._last
        if step is not None and 0 < step <= self._ahead():
            self._usual = float(step) if self._usual is None else self._usual + _WEIGHT * (step - self._usual)
        if self._last is None or stamp > self._last or stamp < self._last - self.jump_back:
            self._last = stamp

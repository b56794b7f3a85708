"""A stamp that leaps waits for the message after it, which tells a stray from a pause and from a bag that loops.

Of a stream whose newest stamp is s, with usual step d, a stamp t leaps where t < s − jump_back, or t > s + ahead,
ahead = max(jump_back, 5 d). A message that leaps is held. The next one decides:

    it goes on from s                      what was held is stray: a wrong stamp, or another publisher's clock
    it goes on from the one that was held  there was a pause, or time jumped back: both are taken, in order
    it leaps again, on from the one held   held as well; of five in a row all are taken: the stream has become that slow
    none of these                          what was held is stray, and this one is held in its place

Only the stream's own order counts, so that it does not matter when, or beside what, its messages come.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["StampGate", "Stamped"]

_STEPS = 5  # usual steps that are no leap
_NO_STEP = 60_000_000_000  # ns; ahead while no step is known
_SLOW = 5  # leaps in a row that are a slow stream's steps
_WEIGHT = 0.1  # of a new step in the usual one


class Stamped(NamedTuple):
    """A message, or what was read of it, with its stamp in ns."""

    stamp: int
    content: Any


class StampGate:
    """One stream. jump_back: ns by which stamps may go back without leaping."""

    def __init__(self, jump_back: int):
        self.jump_back = jump_back
        self.clear()

    def clear(self) -> None:
        """Forget the stream; what is held is forgotten, too."""
        self._last: int | None = None
        self._usual: float | None = None
        self._held: list[Stamped] = []

    @property
    def holding(self) -> int:
        """Messages that wait: at most four."""
        return len(self._held)

    def admit(self, stamp: int, content) -> tuple[list[Stamped], int]:
        """What is to be taken now, in order, and how many strays have been found."""
        new, held, last = Stamped(stamp, content), self._held, self._last
        if last is None or (not self._leaps(stamp, last) and (not held or stamp > last)):
            self._held = []
            self._follow(stamp)
            return [new], len(held)
        if held and not self._follows(held[-1].stamp, stamp):
            self._held = [new]
            return [], len(held)

        self._held = [*held, new]
        slow = len(self._held) >= (2 if self._usual is None else _SLOW)
        if held and (slow or 0 < stamp - held[-1].stamp <= self._ahead()):
            return self.finish(), 0
        return [], 0

    def steady(self, stamps: list[int]) -> tuple[int, float, dict[int, bool]] | None:
        """What admitting all of these leads to, where none of them leaps and nothing is held; None: it is not so.

        The newest stamp, the usual step, and those that are late: which -> whether they repeat the newest.
        """
        last, usual, back = self._last, self._usual, self.jump_back
        if self._held or last is None or usual is None:
            return None
        late: dict[int, bool] = {}
        for i, stamp in enumerate(stamps):
            step = stamp - last
            if step <= 0:
                if step < -back:
                    return None
                late[i] = step == 0
            elif step > back and step > _STEPS * usual:
                return None
            else:
                usual += _WEIGHT * (step - usual)
                last = stamp
        return last, usual, late

    @property
    def newest(self) -> int | None:
        """Newest stamp that was admitted, ns."""
        return self._last

    def go_on(self, last: int, usual: float) -> None:
        """All that `steady` was asked of has been admitted."""
        self._last, self._usual = last, usual

    def finish(self) -> list[Stamped]:
        """The end of the stream: nothing speaks against what is held."""
        taken, self._held = self._held, []
        for before, after in pairwise(taken):
            if after.stamp > before.stamp + self._ahead():
                self._usual = float(after.stamp - before.stamp)
        for one in taken:
            self._follow(one.stamp)
        return taken

    def _ahead(self) -> float:
        return _NO_STEP if self._usual is None else max(self.jump_back, _STEPS * self._usual)

    def _leaps(self, stamp: int, last: int) -> bool:
        return stamp < last - self.jump_back or stamp > last + self._ahead()

    def _follows(self, held: int, stamp: int) -> bool:
        """Whether a stream that has leapt from `_last` to `held` may be at `stamp` next."""
        if stamp < held:
            return False
        return self._last is not None and (held > self._last or stamp < self._last - self.jump_back)

    def _follow(self, stamp: int) -> None:
        step = None if self._last is None else stamp - self._last
        if step is not None and 0 < step <= self._ahead():
            self._usual = float(step) if self._usual is None else self._usual + _WEIGHT * (step - self._usual)
        if self._last is None or stamp > self._last or stamp < self._last - self.jump_back:
            self._last = stamp

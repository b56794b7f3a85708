"""A stamp that leaps waits for the message after it, which tells a stray from a pause and from a bag that loops.

Of a stream whose newest stamp is s, with usual step d, a stamp t leaps where t < s − jump_back, or t > s + ahead,
ahead = max(jump_back, 5 d). A message that leaps is held. The next one decides:

    it goes on from s                      what was held is stray: a wrong stamp, or another publisher's clock
    it goes on from the one that was held  there was a pause, or time jumped back: both are taken, in order
    it leaps again, on from the one held   held as well; of five in a row all are taken: the stream has become that slow
    none of these                          what was held is stray, and this one is held in its place

A robot's measurements and its poses have one clock, so each of the two streams is witness of the other: a leap that
is confirmed by what follows it is still held until the other has come to t, or holds a leap of its own to there; a
message that goes on from s makes it stray, however many said it. The other may be late, or not have begun: that is no
word against s. Of a stream whose s has never been near the other, a t that is near is the right one at once. What is
far from any pose could not be placed.

Which messages are taken follows from the two streams' own orders, so that it does not matter how they interleave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["Spans", "StampGate", "Stamped"]

Spans = Iterable[tuple[int, int]]  # stamps from … to …, ns: where a stream is, or may be

_STEPS = 5  # usual steps that are no leap
_NO_STEP = 60_000_000_000  # ns; ahead while no step is known
_SLOW = 5  # leaps in a row that are a slow stream's steps
_WEIGHT = 0.1  # of a new step in the usual one


class Stamped(NamedTuple):
    """A message, or what was read of it, with its stamp in ns."""

    stamp: int
    content: Any


class StampGate:
    """One stream.

    jump_back: ns by which stamps may go back without leaping.  near: ns from the witness that are near it.
    most: messages that are held; beyond them a leap is taken without a word of the witness.
    """

    def __init__(self, jump_back: int, near: int = 0, most: int = 1000):
        self.jump_back, self._near, self._most = jump_back, near, most
        self._witness: Callable[[], Spans | None] = lambda: None
        self.clear()

    def believe(self, witness: Callable[[], Spans | None]) -> None:
        """Who tells where the robot's clock is: no span while it has not begun, None where it cannot tell."""
        self._witness = witness

    def spans(self) -> Spans:
        """Where this stream is, and where what it holds would be."""
        if self._last is not None:
            yield self._last, self._last
        if self._held:
            yield self._held[0].stamp, self._held[-1].stamp

    def clear(self) -> None:
        """Forget the stream; what is held is forgotten, too."""
        self._last: int | None = None
        self._usual: float | None = None
        self._held: list[Stamped] = []
        self._confirmed = False  # what is held, by its own order
        self._sure = False  # that this stream has been where the witness was

    @property
    def holding(self) -> int:
        """Messages that wait: at most `most`."""
        return len(self._held)

    def admit(self, stamp: int, content) -> tuple[list[Stamped], int]:
        """What is to be taken now, in order, and how many strays have been found."""
        new, held, last = Stamped(stamp, content), self._held, self._last
        if last is None or (not self._leaps(stamp, last) and (not held or stamp > last)):
            self._drop()
            self._follow(stamp)
            return [new], len(held)
        if held and not self._follows(held[-1].stamp, stamp):
            self._drop()
            held, strays = self._held, len(held)
        else:
            strays = 0

        slow = len(held) + 1 >= (2 if self._usual is None else _SLOW)
        self._confirmed |= bool(held) and (slow or 0 < stamp - held[-1].stamp <= self._ahead())
        held.append(new)
        return self.release(), strays

    def release(self) -> list[Stamped]:
        """What was held and is to be taken now: the witness may have gone on meanwhile."""
        if not self._held:
            return []
        told = self._witness()
        seen = [] if told is None else list(told)
        there = any(self._is_near(one.stamp, seen) for one in (self._held[0], self._held[-1]))
        if self._confirmed:
            right = there or told is None or len(self._held) > self._most
        else:
            here = self._last is not None and self._is_near(self._last, seen)
            right = there and not here and not self._sure
            self._usual = None if right else self._usual  # what came before was not this stream
        self._sure &= there
        return self._take() if right else []

    def _is_near(self, stamp: int, spans: list[tuple[int, int]]) -> bool:
        reach = max(self._near, 0 if self._usual is None else min(self._ahead(), _NO_STEP))
        return any(start - reach <= stamp <= end + reach for start, end in spans)

    def _drop(self) -> None:
        self._held, self._confirmed = [], False

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

    def finish(self) -> tuple[list[Stamped], int]:
        """The end of the stream: what is held is taken, or so many are strays, where the witness speaks against it."""
        seen, held = list(self._witness() or ()), self._held
        if (
            held
            and self._last is not None
            and self._is_near(self._last, seen)
            and not any(self._is_near(one.stamp, seen) for one in held)
        ):
            self._drop()
            return [], len(held)
        return self._take(), 0

    def _take(self) -> list[Stamped]:
        taken = self._held
        self._drop()
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
            self._usual = (
                float(step) if self._usual is None else self._usual + _WEIGHT * (step - self._usual)
            )
        if self._last is None or stamp > self._last or stamp < self._last - self.jump_back:
            self._last = stamp
        self._sure = self._sure or self._is_near(stamp, list(self._witness() or ()))

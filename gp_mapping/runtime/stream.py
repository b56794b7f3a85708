"""One stream of stamped messages looked at from outside: its period, what is missing, how many clocks it has."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

__all__ = ["StreamWatch"]

_KEPT = 101  # intervals that the period is the median of
_LEAST = 10  # intervals before anything is said
_EVERY = 20  # messages between two looks at the period
_STEADY = 0.8  # share of the intervals within half a period of it, in a steady stream
_FILLED = 0.5  # share of the time that they fill, before a shorter period than ever is believed: bursts have pauses
_BURST = 0.05  # s, and so long at least
_GAP = 1.6  # periods: what is longer is a gap
_PATIENCE = 5.0  # periods of a slow stream that are no silence
_LEAP = 1.0  # s; stamps that leap by more, to and fro, are of two clocks
_LEAPS = 4  # in each direction within _RECENT messages; a loop of a bag, or a single wrong stamp, makes fewer
_RECENT = 200


class StreamWatch:
    """Counts what a steady stream lacks.

    A gap of k periods between two stamps stands for round(k) − 1 messages. It is not counted where nothing came for
    longer than `silence` s while the node was listening: then nobody sent. Where the middleware numbers messages
    (publication_sequence_number), the numbers that are left out are counted besides.
    missing: by the stamps.  skipped: by the numbers.
    """

    def __init__(self, silence: float = 2.0):
        self.silence = silence
        self.missing = self.skipped = 0
        self.period: float | None = None  # s between two stamps; None: not steady, or not known
        self.usual: float | None = None  # the shortest period that was steady
        self.apart: float | None = None  # s between the clocks of two publishers; None: one clock
        self._last: tuple[int, float] | None = None  # stamp in ns, arrival
        self._number: int | None = None
        self._intervals: deque[float] = deque(maxlen=_KEPT)
        self._arrivals: deque[float] = deque(maxlen=_KEPT + 1)
        self._leaps: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._count = 0

    @property
    def lost(self) -> int:
        """About how many messages did not reach the node."""
        return max(self.missing, self.skipped)

    def add(self, stamp: int, now: float, number: int | None = None, stalled: bool = False) -> None:
        """One message. stamp: ns.  now: monotonic s.  number: as its publisher counts.

        stalled: the node itself has not looked for a while, so that silence is not its publisher's.
        """
        self._count += 1
        last, self._last = self._last, (stamp, now)
        self._arrivals.append(now)
        if last is None:
            self._number = number
            return

        step, quiet = 1e-9 * (stamp - last[0]), now - last[1]
        speed = self._speed()
        if abs(step) > _LEAP and (step < 0.0 or step > 2.0 * quiet * speed + _LEAP):
            self._leaps.append((self._count, step))
        elif step > 0.0:
            patience = max(self.silence, _PATIENCE * (self.period or 0.0))
            self._watch_gap(step, quiet > patience and not stalled)
            self._intervals.append(step)
        self._watch_number(number, step)
        if self._count % _EVERY == 0:
            self._measure()

    def _speed(self) -> float:
        """How fast stamps advance beside the wall: a recording may be played at many times its speed."""
        if self.period is None or len(self._arrivals) < _LEAST:
            return 1.0
        spent = (self._arrivals[-1] - self._arrivals[0]) / (len(self._arrivals) - 1)
        return max(1.0, self.period / max(spent, 1e-6))

    def _watch_gap(self, step: float, nobody_sent: bool) -> None:
        if self.period is not None and step > _GAP * self.period and not nobody_sent:
            self.missing += round(step / self.period) - 1

    def _watch_number(self, number: int | None, step: float) -> None:
        """Count left out numbers, as far as the stamps can stand for them: a second publisher counts for itself."""
        before, self._number = self._number, number
        if number is None or before is None or self.period is None or not 1 < number - before:
            return
        most = math.ceil(_GAP * max(step, 0.0) / self.period)
        self.skipped += min(number - before - 1, most)

    def _measure(self) -> None:
        if len(self._intervals) >= _LEAST:
            middle = median(self._intervals)
            near = [each for each in self._intervals if 0.5 * middle <= each <= 1.5 * middle]
            known = self.usual is not None and middle > 0.5 * self.usual
            steady = len(near) >= _STEADY * len(self._intervals) and (
                known or sum(near) >= max(_FILLED * sum(self._intervals), _BURST)
            )
            self.period = middle if steady else None
            if steady:
                self.usual = middle if self.usual is None else min(self.usual, middle)

        recent = [step for count, step in self._leaps if count > self._count - _RECENT]
        forward, back = [s for s in recent if s > 0], [-s for s in recent if s < 0]
        two = min(len(forward), len(back)) >= _LEAPS
        self.apart = median([*forward, *back]) if two else None

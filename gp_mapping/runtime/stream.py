"""Watches a stream of stamped messages: its period, what is missing, who sends, by which clocks."""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from statistics import median

__all__ = ["StreamWatch"]

_KEPT = 101  # intervals that the period is the median of
_LEAST = 10  # intervals before anything is reported
_EVERY = 20  # messages between two estimates of the period
_STEADY = 0.8  # fraction of the intervals within half a period of it, in a steady stream
# Fraction of the time, and least seconds, that these intervals fill before a period that is shorter
# than ever is believed: bursts have pauses.
_FILLED = 0.5
_BURST = 0.05
_GAP = 1.6  # periods: a longer interval is a gap
# A publisher that was late makes up for it: intervals of fewer periods, and so many others between.
_EARLY, _PAUSES = 0.75, 3
_PATIENCE = 5.0  # periods of a slow stream that are no silence
_LEAP = 1.0  # s; stamps that leap by more, to and fro, are of two clocks
# Leaps in each direction within _RECENT messages; a loop of a bag, or one wrong stamp, makes fewer.
_LEAPS = 4
_RECENT = 200
_TURNS = 4  # of the middleware's numbers backwards within _RECENT messages: of several publishers


class StreamWatch:
    """Counts messages that are missing in a steady stream.

    A gap of k periods between two stamps stands for round(k) − 1 messages, less those that follow
    it at once: a publisher that was late makes up for it. It is not counted where nothing came for
    longer than `silence` s while the node was listening: then nothing was sent. Where the
    middleware numbers messages (publication_sequence_number), the numbers that are left out are
    counted, too; a gap between two numbers in a row is the publisher's own.

    Args:
        silence: s without a message that count as nothing sent.

    Attributes:
        missing: messages missing by the stamps, where the numbers do not say otherwise.
        unsent: messages missing by the stamps that their publisher never sent, by the numbers.
        skipped: messages missing by the numbers.
        period: s between two stamps; None where it is not steady, or not known.
        usual: the shortest period that was steady, s.
        apart: s between the clocks of two publishers; None: one clock.
        several: whether several publishers send: each counts its messages for itself, so that the
            numbers turn back again and again.
        alone: whether one publisher sends, whose numbers then tell what is missing also while the
            period is not known; None: not known yet.
    """

    def __init__(self, silence: float = 2.0):
        self.silence = silence
        self.missing = self.unsent = self.skipped = 0
        # of the newest gap: periods that are missing; after how many messages that are not early
        # it is settled; whether its publisher left it
        self._gap, self._left, self._own_gap = 0.0, 0, False
        self.period: float | None = None
        self.usual: float | None = None
        self.apart: float | None = None
        self.several = False
        self.alone: bool | None = None
        self._unsure = 0  # numbers left out while neither period nor publishers were known
        self._last: tuple[int, float] | None = None  # stamp in ns, arrival
        self._number: int | None = None
        self._intervals: deque[float] = deque(maxlen=_KEPT)
        self._lasted = 0.0  # s for which such intervals have filled the time
        self._arrivals: deque[float] = deque(maxlen=_KEPT + 1)
        self._leaps: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._turns: deque[int] = deque(maxlen=_TURNS)  # messages whose number is not a larger one
        self._count = 0

    @property
    def lost(self) -> int:
        """About how many messages did not reach the node."""
        return max(self.missing, self.skipped + (self._unsure if self.alone else 0))

    def add(self, stamp: int, now: float, number: int | None = None, stalled: bool = False) -> None:
        """Take one message into account.

        Args:
            stamp: of the message, ns.
            now: arrival, monotonic s.
            number: as its publisher counts; None where it is not known.
            stalled: the node itself has not read for a while, so a silence is not its publisher's.
        """
        self._count += 1
        last, self._last = self._last, (stamp, now)
        self._arrivals.append(now)
        if last is None:
            self._number = number
            return

        # a leap is no interval: it is backwards, or far more than the time that has passed
        step, quiet = 1e-9 * (stamp - last[0]), now - last[1]
        speed = self._speed()
        if abs(step) > _LEAP and (step < 0.0 or step > 2.0 * quiet * speed + _LEAP):
            self._leaps.append((self._count, step))
        elif step > 0.0:
            patience = max(self.silence, _PATIENCE * (self.period or 0.0))
            in_a_row = (
                number is not None and self._number is not None and number == self._number + 1
            )
            self._watch_gap(step, quiet > patience and not stalled, in_a_row)
            self._intervals.append(step)

        self._watch_number(number, step)
        if self._count % _EVERY == 0:
            self._measure()

    def note_pause(self) -> None:
        """Nothing was listened to for a while: what was sent meanwhile is not lost."""
        self._last = self._number = None

    def _speed(self) -> float:
        """Speed of the stamps compared with the wall clock, ≥ 1: a recording may play faster."""
        if self.period is None or len(self._arrivals) < _LEAST:
            return 1.0

        interval = (self._arrivals[-1] - self._arrivals[0]) / (len(self._arrivals) - 1)
        return max(1.0, self.period / max(interval, 1e-6))

    def _watch_gap(self, step: float, nothing_sent: bool, in_a_row: bool) -> None:
        """Count messages that are missing by the stamps.

        Args:
            step: between two stamps, s.
            nothing_sent: the silence was the publisher's.
            in_a_row: by the numbers no message is missing between the two.
        """
        if self.period is None or nothing_sent:
            self._left = 0
            return
        periods, is_gap = step / self.period, step > _GAP * self.period
        if is_gap and (not self._left or in_a_row != self._own_gap):
            self._gap, self._own_gap = 0.0, in_a_row
        elif not is_gap and not self._left:
            return

        before, self._gap = round(self._gap), max(0.0, self._gap + periods - 1.0)
        self._left = _PAUSES if is_gap or periods < _EARLY else self._left - 1
        if self._own_gap:
            self.unsent += round(self._gap) - before
        else:
            self.missing += round(self._gap) - before

    def _watch_number(self, number: int | None, step: float) -> None:
        """Count numbers that are left out, at most as many as the stamps have room for.

        The bound is for a second publisher, which counts for itself; once numbers have turned back,
        they say nothing of what is missing for a while.
        """
        before, self._number = self._number, number
        if number is not None and before is not None and number <= before:
            self._turns.append(self._count)
        if self._turns and self._turns[-1] > self._count - _RECENT:
            return
        if number is None or before is None or not 1 < number - before:
            return

        if self.period is not None:
            most = math.ceil(_GAP * max(step, 0.0) / self.period)
            self.skipped += min(number - before - 1, most)
        elif self.alone:
            self.skipped += number - before - 1
        elif self.alone is None:
            self._unsure += number - before - 1

    def _measure(self) -> None:
        """Estimate the period, and whether stamps are of two clocks."""
        if len(self._intervals) >= _LEAST:
            middle = median(self._intervals)
            near = [
                interval for interval in self._intervals if 0.5 * middle <= interval <= 1.5 * middle
            ]
            known = self.usual is not None and middle > 0.5 * self.usual
            alike = len(near) >= _STEADY * len(self._intervals)
            # a burst is short intervals that fill little of the time, or not for long; those of a
            # sensor at some kHz last for longer than are kept
            filled = alike and sum(near) >= _FILLED * sum(self._intervals)
            newest = sum(islice(reversed(self._intervals), _EVERY))
            self._lasted = self._lasted + newest if filled else 0.0
            steady = alike and (known or (filled and max(sum(near), self._lasted) >= _BURST))
            self.period = middle if steady else None
            if steady:
                self.usual = middle if self.usual is None else min(self.usual, middle)

        self.several = len(self._turns) == _TURNS and self._turns[0] > self._count - _RECENT
        recent = [step for count, step in self._leaps if count > self._count - _RECENT]
        forward, back = [s for s in recent if s > 0], [-s for s in recent if s < 0]
        two_clocks = min(len(forward), len(back)) >= _LEAPS
        self.apart = median([*forward, *back]) if two_clocks else None

"""Tells a stray stamp from a pause, and from a bag that loops, by the messages that follow it.

Of a stream whose newest stamp is s, with usual step d, a stamp t leaps where t < s − jump_back, or
t > s + ahead, with ahead = max(jump_back, 5 d). A message that leaps is held, and the next one
decides:

- It goes on from s: what is held is stray (a wrong stamp, or another publisher's clock).
- It goes on from the one that is held: there was a pause, or time jumped back. Both are taken, in
  order.
- It leaps again, on from the one held: it is held as well. Of five in a row all are taken, since
  the stream has become that slow.
- None of these: what is held is stray, and this message is held in its place.

A robot's measurements and its poses have one clock, so each of the two streams is a witness of the
other. A leap that is confirmed by what follows it is still held until the other stream has come to
t, or holds a leap of its own to there. A message that goes on from s makes the held ones stray,
however many they are. The other stream may be late, or may not have begun: that does not speak
against s. Where s has never been near the other stream, a t that is near it is right at once. What
is far from any pose could not be placed anyway.

Which messages are taken follows from the two streams' own orders, so that it does not matter how
they interleave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["ClockRanges", "Spans", "StampGate", "Stamped"]

Spans = Iterable[tuple[int, int]]  # first and last stamp, ns: where a stream is, or may be

_STEPS = 5  # a step forward of so many usual steps is no leap
_NO_STEP = 60_000_000_000  # ns; such a step while no usual step is known
_SLOW = 5  # so many leaps in a row are the steps of a stream that has become slow
_STANDING = 10  # measurements with one stamp that are spoken of while more may come
_WEIGHT = 0.1  # of a new step in the usual step, an exponential average


class Stamped(NamedTuple):
    """A message with its stamp.

    Attributes:
        stamp: ns.
        content: the message, or what was read of it.
    """

    stamp: int
    content: Any


class ClockRanges:
    """From when to when measurements and poses are stamped: whether they have one clock at all."""

    def __init__(self):
        self._fields = 0  # measurements; not counted on once their stamps have moved
        self._field: tuple[int, int] | None = None  # first and last stamp, ns
        self._pose: tuple[int, int] | None = None

    def add_field(self, stamp: int) -> None:
        """Note the stamp of a measurement, ns."""
        self._field = _widened(self._field, stamp)
        self._fields += self._field[0] == self._field[1]

    def add_pose(self, stamp: int) -> None:
        """Note the stamp of a pose, ns."""
        self._pose = _widened(self._pose, stamp)

    def note_standing(self, fewest: int) -> str:
        """Say that all measurements have one stamp.

        Args:
            fewest: of which that is said.

        Returns:
            "" where stamps move, or there are fewer.
        """
        if self._field is None or self._field[0] < self._field[1] or self._fields < fewest:
            return ""
        return (
            f"all {self._fields} measurements have one stamp, {self._field[0] / 1e9:.3f} s, so that nothing tells "
            "where each was taken: mend the driver, which has to set header.stamp; or publish the bare number "
            "(std_msgs/Float64, sensor: scalar), which counts by when it was received"
        )

    def notes(self, near: int, lost: bool, mends: str = "") -> list[str]:
        """Return what is wrong with the clocks, in sentences.

        Args:
            near: two ranges that are further apart are of two clocks, ns.
            lost: no measurement has found a pose so far.
            mends: the setting that makes one clock of two; '' where it is not known.
        """
        standing = self.note_standing(_STANDING)
        return [standing] if standing else self._note_apart(near, mends) if lost else []

    def _note_apart(self, near: int, mends: str) -> list[str]:
        """Return a sentence where the two ranges are more than `near` (ns) apart."""
        if self._field is None or self._pose is None:
            return []
        apart = max(self._field[0] - self._pose[1], self._pose[0] - self._field[1])
        if apart <= near:
            return []

        (begun, ended), (pose_begun, pose_ended) = (
            (low / 1e9, high / 1e9) for low, high in (self._field, self._pose)
        )
        return [
            f"measurements are stamped from {begun:.1f} to {ended:.1f} s and poses from {pose_begun:.1f} to "
            f"{pose_ended:.1f} s, {apart / 1e9:.1f} s apart: these are two clocks, or parts of two recordings; "
            "synchronise the computers, or mend the driver that does not stamp"
            + (f"; of this recording, {mends} makes one clock of them" if mends else "")
        ]


def _widened(span: tuple[int, int] | None, stamp: int) -> tuple[int, int]:
    """Return the span with a stamp in it."""
    if span is None:
        return stamp, stamp
    return (span[0], stamp) if stamp > span[1] else (min(span[0], stamp), span[1])


class StampGate:
    """Admits the messages of one stream, and holds back those whose stamps leap.

    Args:
        jump_back: stamps may go back by so much without leaping, ns.
        near: a stamp so far from a span of the witness is near it, ns.
        most: messages that are held; beyond them a confirmed leap is taken whatever the witness
            says.
    """

    def __init__(self, jump_back: int, near: int = 0, most: int = 1000):
        self.jump_back, self._near, self._most = jump_back, near, most
        self._witness: Callable[[], Spans | None] = lambda: None

        self.clear()

    def set_witness(self, witness: Callable[[], Spans | None]) -> None:
        """Set the witness: a function that tells where the robot's clock is.

        Args:
            witness: returns no span while the other stream has not begun, None where it cannot
                tell.
        """
        self._witness = witness

    def covered_and_held(self) -> Spans:
        """Where this stream is, and where what it holds would be."""
        if self._last is not None:
            yield self._last, self._last
        if self._held:
            yield self._held[0].stamp, self._held[-1].stamp

    def clear(self) -> None:
        """Forget the stream, and what is held of it."""
        self._last: int | None = None  # s, ns
        self._usual: float | None = None  # d, ns
        self._held: list[Stamped] = []
        self._confirmed = False  # what is held is confirmed by its own order
        self._sure = False  # this stream has been near the witness

    @property
    def holding(self) -> int:
        """Messages that are held: at most `most`."""
        return len(self._held)

    def admit(self, stamp: int, content) -> tuple[list[Stamped], int]:
        """Take in the next message of the stream.

        Args:
            stamp: ns.
            content: handed out together with the stamp.

        Returns:
            The messages that are to be taken now, in order, and how many strays have been found.
        """
        new, held, last = Stamped(stamp, content), self._held, self._last

        # it goes on from s
        if last is None or (not self._leaps(stamp, last) and (not held or stamp > last)):
            self._drop()
            self._follow(stamp)
            return [new], len(held)

        # it neither goes on from s nor from what is held
        if held and not self._follows(held[-1].stamp, stamp):
            self._drop()
            held, strays = self._held, len(held)
        else:
            strays = 0

        # while no usual step is known, one more leap is enough to confirm
        slow = len(held) + 1 >= (2 if self._usual is None else _SLOW)
        self._confirmed |= bool(held) and (slow or 0 < stamp - held[-1].stamp <= self._ahead())

        held.append(new)
        return self.release(), strays

    def release(self) -> list[Stamped]:
        """Return held messages that are to be taken now.

        To be asked again where the witness has gone on meanwhile.
        """
        if not self._held:
            return []
        answer = self._witness()
        spans = [] if answer is None else list(answer)

        held_is_near = any(
            self._is_near(message.stamp, spans) for message in (self._held[0], self._held[-1])
        )
        if self._confirmed:
            # the witness cannot tell, or nothing may wait for it any longer
            take = held_is_near or answer is None or len(self._held) > self._most
        else:
            last_is_near = self._last is not None and self._is_near(self._last, spans)
            # not confirmed: only what was near the witness, while s never was, is right at once
            take = held_is_near and not last_is_near and not self._sure
            self._usual = None if take else self._usual  # that step was of another clock

        self._sure &= held_is_near
        return self._take() if take else []

    def _is_near(self, stamp: int, spans: list[tuple[int, int]]) -> bool:
        """Whether a stamp is near one of the witness's spans."""
        reach = max(self._near, 0 if self._usual is None else min(self._ahead(), _NO_STEP))
        return any(start - reach <= stamp <= end + reach for start, end in spans)

    def _drop(self) -> None:
        """Forget what is held."""
        self._held, self._confirmed = [], False

    def plan_admission(self, stamps: list[int]) -> tuple[int, float, dict[int, bool]] | None:
        """Where admitting these stamps would lead, if none of them leaps and nothing is held.

        Nothing is changed; `admit_planned` admits them.

        Args:
            stamps: ns, in the order of the messages.

        Returns:
            The newest stamp, the usual step, and those stamps that are late: number -> whether it
            repeats the newest stamp. None where a stamp leaps, something is held, or this stream
            has not been near the witness: whether it comes near it then is seen one by one.
        """
        last, usual, jump_back = self._last, self._usual, self.jump_back
        if self._held or not self._sure or last is None or usual is None:
            return None

        late: dict[int, bool] = {}
        for i, stamp in enumerate(stamps):
            step = stamp - last
            if step <= 0:
                if step < -jump_back:
                    return None
                late[i] = step == 0
            elif step > jump_back and step > _STEPS * usual:
                return None
            else:
                usual += _WEIGHT * (step - usual)
                last = stamp

        return last, usual, late

    @property
    def newest(self) -> int | None:
        """Newest stamp that was admitted, ns; None before the first."""
        return self._last

    def admit_planned(self, last: int, usual: float) -> None:
        """Admit all stamps that `plan_admission` was asked about.

        Args:
            last: newest stamp, as `plan_admission` returned it, ns.
            usual: usual step, as `plan_admission` returned it, ns.
        """
        self._last, self._usual = last, usual

    def finish(self) -> tuple[list[Stamped], int]:
        """End the stream.

        Returns:
            What is held and is taken now, and how many strays there are. What is held is stray
            where s is near the witness and none of it is.
        """
        spans, held = list(self._witness() or ()), self._held

        if (
            held
            and self._last is not None
            and self._is_near(self._last, spans)
            and not any(self._is_near(message.stamp, spans) for message in held)
        ):
            self._drop()
            return [], len(held)

        return self._take(), 0

    def _take(self) -> list[Stamped]:
        """Admit all that is held."""
        taken = self._held
        self._drop()

        # a confirmed pause: its step is the usual one from now on
        for before, after in pairwise(taken):
            if after.stamp > before.stamp + self._ahead():
                self._usual = float(after.stamp - before.stamp)

        for message in taken:
            self._follow(message.stamp)
        return taken

    def _ahead(self) -> float:
        """The largest step forward that is no leap, ns."""
        return _NO_STEP if self._usual is None else max(self.jump_back, _STEPS * self._usual)

    def _leaps(self, stamp: int, last: int) -> bool:
        return stamp < last - self.jump_back or stamp > last + self._ahead()

    def _follows(self, held: int, stamp: int) -> bool:
        """Whether a stream that has leapt to `held` may be at `stamp` next.

        Args:
            held: stamp of the newest message that is held, ns.
            stamp: of the message after it, ns.
        """
        if stamp < held:
            return False
        return self._last is not None and (held > self._last or stamp < self._last - self.jump_back)

    def _follow(self, stamp: int) -> None:
        """Admit one stamp: update usual step and newest stamp, and compare it with the witness."""
        step = None if self._last is None else stamp - self._last
        if step is not None and 0 < step <= self._ahead():
            self._usual = (
                float(step) if self._usual is None else self._usual + _WEIGHT * (step - self._usual)
            )

        if self._last is None or stamp > self._last or stamp < self._last - self.jump_back:
            self._last = stamp

        self._sure = self._sure or self._is_near(stamp, list(self._witness() or ()))

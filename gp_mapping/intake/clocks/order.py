"""Puts messages that come late, and so out of the order of their stamps, in order.

A stream that is in order passes through untouched. The first message that is late says how far
messages have to wait from then on: half as long again as the latest one was late. Each is handed
out when the newest stamp is so much ahead of it, until _CALM messages in a row were in order. So
only the few messages that are later than any before them come too late to be put in order.

What is handed out follows from the stream's own order alone, so that it does not matter how two
streams interleave.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

from gp_mapping.intake.clocks.stamps import Stamped

__all__ = ["InOrder"]

_ROOM = 1.5  # messages wait for so many times as long as the latest one was late
_CALM = 1000  # after so many messages in order, none waits any longer
_FEW = 10  # of so many a person is told
_NONE = 2**63  # ns; no stamp is further back


class InOrder:
    """Hands out the messages of one stream in the order of their stamps.

    Args:
        most_wait: messages wait for at most so much newer stamps, ns.
        jump_back: a stamp that goes back by more begins a new time, ns: what waits is handed out
            before it.
        most: messages that wait; beyond them the oldest is handed out.

    Attributes:
        sorted: messages that came late and were put in order.
        latest: how late the latest of them was, ns.
    """

    def __init__(self, most_wait: int, jump_back: int, most: int):
        self._most_wait, self._jump_back, self._most = min(most_wait, jump_back), jump_back, most
        self.sorted = self.latest = 0
        self.clear()

    def clear(self) -> None:
        """Forget the stream, and what waits."""
        self._newest: int | None = None  # stamp, ns
        self._handed_out = -_NONE  # newest stamp that was handed out, ns
        self._window = self._calm = 0
        self._waiting: list[Stamped] = []  # by stamp; of one stamp as they came

    @property
    def holding(self) -> int:
        """Messages that wait."""
        return len(self._waiting)

    @property
    def passing(self) -> bool:
        """Whether messages are handed out as they come."""
        return not self._window

    def add(self, message: Stamped) -> list[Stamped]:
        """Take in the next message.

        Returns:
            The messages that are to be taken now. One that is too late to be put in order is among
            them.
        """
        newest, stamp = self._newest, message.stamp
        late = 0 if newest is None else newest - stamp

        if newest is None or late > self._jump_back:
            before = self.finish()
            self._newest, self._handed_out = stamp, -_NONE
            return [*before, *self._enter(message)]

        if late > 0:
            self._calm = 0
            self._window = max(self._window, min(self._most_wait, round(_ROOM * late)))
            if stamp > self._handed_out:
                self.sorted, self.latest = self.sorted + 1, max(self.latest, late)
        else:
            self._newest = stamp
            if self._window:
                self._calm += 1
                if self._calm >= _CALM:
                    self._window = self._calm = 0
        return self._enter(message)

    def _enter(self, message: Stamped) -> list[Stamped]:
        """Let a message wait among the others; return those that need not wait any longer."""
        # later than what was handed out, or as it: whoever takes it sees that, too
        if message.stamp <= self._handed_out:
            return [message]
        if not self._window and not self._waiting:
            self._handed_out = message.stamp
            return [message]

        insort(self._waiting, message, key=attrgetter("stamp"))
        until, n = (self._newest or 0) - self._window, max(0, len(self._waiting) - self._most)
        while n < len(self._waiting) and self._waiting[n].stamp <= until:
            n += 1
        return self._hand_out(n)

    def _hand_out(self, n: int) -> list[Stamped]:
        """The n oldest messages that wait."""
        out, self._waiting = self._waiting[:n], self._waiting[n:]
        if out:
            self._handed_out = out[-1].stamp
        return out

    def finish(self) -> list[Stamped]:
        """All that waits, since nothing more will come in this time."""
        return self._hand_out(len(self._waiting))

    def go_on(self, newest: int) -> None:
        """Note that messages up to this stamp, ns, were in order and taken, where `passing`."""
        self._newest = self._handed_out = newest

    def note(self, what: str) -> list[str]:
        """Say in words that messages came out of order, where more than a few did.

        Args:
            what: they are, in the plural.
        """
        if self.sorted < _FEW:
            return []
        return [
            f"{what} came out of the order of their stamps, up to {self.latest / 1e9:.2g} s late, and {self.sorted} "
            f"were put in order; while this goes on, each waits for up to {self._most_wait / 1e9:g} s of newer ones"
        ]

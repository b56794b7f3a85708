"""Decides which part of a map to send when: changed parts first, then all in rounds.

A bandwidth bounds what is sent.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from gp_mapping.core.stored import StoredState
from gp_mapping.runtime.team.totals import HEAD, Totals, stored_states
from gp_mapping.store.message import encode

__all__ = ["Outgoing"]

_LEFT = 16  # ids of maps that this one has replaced
_BURST = 1.0  # s of the bandwidth that may be saved up


@dataclass
class _Part:
    """A part of the map: the head, or a tile.

    Attributes:
        content: of the message.
        number: of the totals with which it changed last.
        sent: number that was sent last.
        sent_at: when, monotonic s.
    """

    content: StoredState | dict
    number: int
    sent: int = -1
    sent_at: float = float("-inf")


class Outgoing:
    """Parts of the newest totals, and which of them is due.

    A bucket of bytes fills at the bandwidth. A message may be sent while the bucket is not
    overdrawn, and is taken out of it as a whole. So over any time T at most bandwidth · (T + 1 s)
    and one message are sent.

    Args:
        source: name in the messages, for people who look at them.
        slimmed: makes a tile's state smaller (FieldMap.slimmed).

    Attributes:
        messages: how many were sent.
        bytes: in them.
    """

    def __init__(self, source: str, slimmed=lambda state: state):
        self._source, self._slimmed = source, slimmed
        self._map = ""
        self._instead: list[str] = []
        self._parts: dict[str, _Part] = {}
        self._tokens = 0.0
        self._then: float | None = None
        self.messages = self.bytes = 0

    def update(self, totals: Totals) -> None:
        """Take the newest totals of the map; those of another map than before replace that map."""
        if totals.map_id != self._map:
            if self._map:
                self._instead = [*self._instead, self._map][-_LEFT:]
            self._map, self._parts = totals.map_id, {}

        # a stored tile never changes: another object is another content
        tiles = stored_states(totals.state["map"])
        for name, stored in tiles.items():
            held = self._parts.get(name)
            if held is None or held.content is not stored:
                self._renew(name, stored, totals.number)
        for name in self._parts.keys() - tiles.keys() - {HEAD}:
            del self._parts[name]

        held = self._parts.get(HEAD)
        if held is None or held.number < totals.number:
            self._renew(HEAD, totals.state, totals.number)

    def clear(self, map_id: str) -> None:
        """Take back what was sent, unless it is of that map: it is in nobody's sum any more.

        Until there are other totals, an empty head is sent, of a map that takes the place of the
        one before.

        Args:
            map_id: of the robot's map now; '' while it has none.
        """
        if self._parts and self._map != map_id and self._parts[HEAD].content:
            self._instead = [*self._instead, self._map][-_LEFT:]
            self._map, self._parts = uuid.uuid4().hex, {HEAD: _Part({}, 0)}

    def _renew(self, name: str, content, number: int) -> None:
        """Replace a part's content; what was sent of it before is remembered."""
        before = self._parts.get(name)
        self._parts[name] = _Part(
            content, number, *(() if before is None else (before.sent, before.sent_at))
        )

    def due(self, now: float, bandwidth: float, period: float, round_time: float) -> str | None:
        """Choose the part to send now: of those that have changed, else of all, the oldest sent.

        Args:
            now: monotonic s.
            bandwidth: B/s.
            period: least s between two messages of a part that has changed.
            round_time: s after which a part is sent again, changed or not.

        Returns:
            Name of the part, None for nothing.
        """
        then, self._then = (now if self._then is None else self._then), now
        self._tokens = min(self._tokens + bandwidth * (now - then), _BURST * bandwidth)
        if self._tokens < 0.0 or not self._parts:
            return None

        changed = [
            (part.sent_at, name)
            for name, part in self._parts.items()
            if part.sent < part.number and now - part.sent_at >= period
        ]
        old = [
            (part.sent_at, name)
            for name, part in self._parts.items()
            if now - part.sent_at >= round_time
        ]
        return min(changed or old, default=(0.0, None))[1]

    def message(self, name: str) -> Callable[[], tuple[bytes, str, str, int]]:
        """Prepare a part's message.

        Args:
            name: of the part.

        Returns:
            A function that encodes it, in any thread, and returns bytes, id of the map, name and
            number, as `mark_sent` takes them. It may have to read a file, and raises
            ValueError where that fails.
        """
        part, content = self._parts[name], self._parts[name].content
        map_id, number = self._map, part.number
        about = {
            "source": self._source,
            "map": map_id,
            "part": name,
            "number": number,
            "instead": list(self._instead),
        }

        def encoded() -> tuple[bytes, str, str, int]:
            """Encode the part; its content may have to be read from a file."""
            state = self._slimmed(content.get()) if isinstance(content, StoredState) else content
            return encode(about, state), map_id, name, number

        return encoded

    def mark_sent(self, data: bytes, map_id: str, name: str, number: int, now: float) -> None:
        """Note that a message was sent.

        Args:
            data: its bytes.
            map_id: of its map, which may have been replaced while it was encoded.
            name: of the part.
            number: of the part, as encoded.
            now: monotonic s.
        """
        self._tokens -= len(data)
        self.messages, self.bytes = self.messages + 1, self.bytes + len(data)

        if map_id == self._map and name in self._parts:
            self._parts[name].sent, self._parts[name].sent_at = number, now

    @property
    def waiting(self) -> int:
        """Number of parts that have changed since they were sent."""
        return sum(part.sent < part.number for part in self._parts.values())

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self._parts)

"""Notices two mappers that send under one robot's name: what both measure would count twice.

A robot that was restarted sends another map, too, but nothing more of the one before. So two
mappers are there where a map is still heard long after the first message of a later one.
"""

from __future__ import annotations

__all__ = ["Rivals"]

# s; a message on the way when its mapper was ended comes sooner
_LASTS = 30.0


class Rivals:
    """The maps that one robot sends, and which of them are sent by two mappers at once.

    Of these the one counts that was heard first, as long as it is heard: where it is silent for
    `_LASTS` and another is heard, that one counts in its place.
    """

    def __init__(self):
        # s, by map, in the order of the first messages: that one, and the newest
        self._first: dict[str, float] = {}
        self._heard: dict[str, float] = {}
        self._together: set[str] = set()  # maps of mappers that ran at the same time
        self._counts = ""  # the one of them that counts

    @property
    def found(self) -> bool:
        """Whether there are two mappers, or were."""
        return len(self._together) > 1

    def note(self, map_id: str, now: float) -> bool:
        """Note that a map was heard.

        Args:
            map_id: of it.
            now: monotonic s.

        Returns:
            Whether it is another map that counts from now on, or one more that does not.
        """
        self._first.setdefault(map_id, now)
        self._heard[map_id] = now
        before = self._counts, len(self._together)

        order = list(self._first)
        later = {m for m in order[order.index(map_id) + 1 :] if self._first[m] <= now - _LASTS}
        if later - self._together:
            self._together |= later | {map_id}
            self._counts = self._counts or map_id
        if map_id in self._together and now - self._heard[self._counts] > _LASTS:
            self._counts = map_id
        return before != (self._counts, len(self._together))

    def drop(self, map_id: str) -> None:
        """Forget a map that is held no longer."""
        self._first.pop(map_id, None)
        self._heard.pop(map_id, None)
        self._together.discard(map_id)
        if len(self._together) < 2:
            self._together.clear()
            self._counts = ""
        elif self._counts == map_id:
            self._counts = next(m for m in self._first if m in self._together)

    def leaves_out(self, map_id: str) -> bool:
        """Whether a map is left out, since another one of the same robot counts."""
        return map_id in self._together and map_id != self._counts

"""Holds what one robot has sent: the newest totals of each of its maps.

Messages may be lost, repeated or out of order. Totals replace totals of the same map, part by part,
where their number is larger; nothing else changes anything. So what is held depends on which
messages have come, and not on how often or in which order. A map that its robot has replaced (by a
clear, a load) is dropped. A map from before its robot was restarted stays next to the new one,
since none of its measurements is in the new one; of two mappers at once under one name one counts.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace

from gp_mapping.core.stored import StoredState
from gp_mapping.errors import one_line
from gp_mapping.runtime.team.rivals import Rivals
from gp_mapping.runtime.team.totals import HEAD
from gp_mapping.store.message import MessageError, decode, names_of_parts, with_parts

__all__ = ["MapTotals", "MemoryPool", "Source"]

_MOST = 64_000_000  # bytes of one message
_MAPS = 8  # of one robot
_GONE = 256  # ids of replaced maps, and unusable totals, that are remembered
_NAMES = 100_000  # tiles of one map
_LONGEST = 100  # characters of a name


@dataclass
class _Part:
    """A part of a map as received; `size` is that of its message, bytes."""

    number: int
    state: dict
    size: int


@dataclass
class _Map:
    """What is held of one map.

    Attributes:
        parts: the newest part of each name.
        ready: parts of the newest head of which all tiles are here.
        good: the newest `ready` parts that could be used.
        lent: the `ready` parts of which the last sum was made, or is being made.
        arrived: monotonic s of the newest part.
        size: bytes of all of these parts.
    """

    parts: dict[str, _Part] = field(default_factory=dict)
    ready: dict[str, _Part] = field(default_factory=dict)
    good: dict[str, _Part] = field(default_factory=dict)
    lent: dict[str, _Part] = field(default_factory=dict)
    arrived: float = 0.0
    size: int = 0

    def sizes(self) -> int:
        """Bytes of all its parts; one that is newest, ready and good counts once."""
        kept = (self.parts, self.ready, self.good, self.lent)
        return sum({id(part): part.size for parts in kept for part in parts.values()}.values())


def _complete(parts: dict[str, _Part]) -> dict[str, _Part]:
    """The newest head and its tiles; nothing where one of them is missing."""
    head = parts.get(HEAD)
    if head is None:
        return {}
    names = names_of_parts(head.state)
    return {name: parts[name] for name in (HEAD, *sorted(names))} if names <= parts.keys() else {}


def _numbers(parts: dict[str, _Part]) -> frozenset[tuple[str, int]]:
    """What distinguishes parts of a map from earlier ones."""
    return frozenset((name, part.number) for name, part in parts.items())


class MemoryPool:
    """Memory for all robots' totals together.

    Attributes:
        most: bound, MB.
        used: bytes, also of older parts that are kept until newer ones are in a sum.
    """

    def __init__(self, most: float):
        self.most, self.used = most, 0


class Source:
    """One robot's totals.

    Args:
        name: as in merge_from.
        holdings: shared by all robots.

    Attributes:
        received: messages.
        repeated: messages that contained nothing new.
        dropped: messages, and totals, that were refused, by reason.
        bytes: of all messages.
        news: grows when something has come that changes the sum.
        fault: sentence on what was wrong with the newest message.
        problem: sentence on why its newest totals are not in the sum.
        newest: monotonic s of the last message that was taken, or None.
    """

    def __init__(self, name: str, holdings: MemoryPool):
        self.name, self._holdings = name, holdings
        self._maps: OrderedDict[str, _Map] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        # totals that were unusable, by map and numbers: they come again in every round
        self._unusable: OrderedDict[tuple[str, int], None] = OrderedDict()
        # why a map's newest totals are not in the sum, though older ones may be
        self._wrong: dict[str, str] = {}
        self._rivals = Rivals()
        self.received = self.repeated = self.bytes = self.news = 0
        self.dropped: Counter = Counter()
        self.fault = self.problem = ""
        self.newest: float | None = None

    def accept(self, data: bytes, now: float) -> bool:
        """Take one message; an unusable one is counted, and explained in `fault`.

        Args:
            data: the message.
            now: monotonic s.

        Returns:
            Whether it was taken.
        """
        self.received, self.bytes = self.received + 1, self.bytes + len(data)
        try:
            about, state = decode(data, _MOST)
            self._take(_Address.of(about), state, len(data), now)
        except MessageError as error:
            self.dropped[error.reason] += 1
            self.fault = f"a message of {self.name} is dropped: {one_line(error, 300)}"
            return False
        self.fault = ""
        return True

    def refuse(self, reason: str, text: str) -> None:
        """Note that the robot's totals cannot be added.

        Args:
            reason: one word, under which it is counted.
            text: a sentence.
        """
        self.dropped[reason] += 1
        self.problem = text

    def _take(self, address: _Address, state: dict, size: int, now: float) -> None:
        """Hold a part that is newer than the one that is held; MessageError where it cannot be."""
        for replaced in address.instead:
            self._give_up(replaced)
        if address.map in self._gone:
            self.repeated += 1
            return

        if address.part == HEAD and not state:  # a map without data, in the place of another
            self.newest = now
            return

        held = self._maps.get(address.map)
        if held is not None:
            self._note_rivals(address.map, now)
        before = held.parts.get(address.part) if held is not None else None
        if before is not None and before.number >= address.number:
            self.repeated += 1
            self.newest = now
            return

        then = _Map() if held is None else held
        new = self._with_part(then, address, state, size, now)
        if new is None:
            self.repeated += 1
            self.newest = now
            return

        self._holdings.used += new.size - then.size
        self._maps[address.map], self.newest = new, now
        if held is None:
            self._note_rivals(address.map, now)
        if new.ready is not then.ready:
            self.news += 1
            self._wrong.pop(address.map, None)
        self._drop_oldest(address.map)

    def _with_part(
        self, then: _Map, address: _Address, state: dict, size: int, now: float
    ) -> _Map | None:
        """Return what is held of a map together with one more part; nothing is changed.

        Args:
            then: what is held of it; an empty one of a new map.
            address: of the part.
            state: of the part.
            size: of its message, bytes.
            now: monotonic s.

        Returns:
            None where the totals that it completes have been unusable before.

        Raises:
            MessageError: the part cannot be held.
        """
        if address.part == HEAD and not isinstance(state.get("map"), dict):
            raise MessageError("malformed", "a head without a map")
        if address.part not in then.parts and len(then.parts) >= _NAMES:
            raise MessageError("malformed", f"more than {_NAMES} tiles")

        new = replace(
            then,
            parts=then.parts | {address.part: _Part(address.number, state, size)},
            arrived=now,
        )
        complete = _complete(new.parts)
        if (address.map, hash(_numbers(complete))) in self._unusable:
            return None
        if complete and _numbers(complete) != _numbers(then.ready):
            new.ready = complete
        new.size = new.sizes()
        if self._holdings.used + new.size - then.size > 1e6 * self._holdings.most:
            raise MessageError(
                "memory_full",
                f"{self._holdings.used / 1e6:.0f} MB of other robots' totals are kept "
                "already; raise merge_memory",
            )
        return new

    def _drop_oldest(self, newest: str) -> None:
        """Drop maps beyond _MAPS, those that have not come for longest first.

        Args:
            newest: id of the map that has just come, which stays.
        """
        while len(self._maps) > _MAPS:
            oldest = min(
                (name for name in self._maps if name != newest),
                key=lambda m: self._maps[m].arrived,
            )
            self._drop(oldest)
            self.refuse(
                "too_many_maps",
                f"{self.name} has sent more than {_MAPS} maps; the oldest is left out",
            )

    def _note_rivals(self, map_id: str, now: float) -> None:
        """Note that a map was heard, and whether two mappers send under this name."""
        if self._rivals.note(map_id, now):
            self.news += 1
            self.dropped["two_mappers"] += 1

    @property
    def rivals(self) -> str:
        """That two mappers send under this name, in a sentence; '' where there is one."""
        if not self._rivals.found:
            return ""
        return (
            f"two mappers send maps as {self.name}, and what both measure would count twice: the map of "
            "one of them is left out; end one, or start it in a namespace of its own"
        )

    def _give_up(self, map_id: str) -> None:
        """Drop a map that its robot has replaced, and refuse it from now on."""
        if map_id not in self._gone:
            self._gone[map_id] = None
            while len(self._gone) > _GONE:
                self._gone.popitem(last=False)

        if map_id in self._maps:
            self._drop(map_id)

    def _drop(self, map_id: str) -> None:
        """Free a map that is held."""
        self._holdings.used -= self._maps.pop(map_id).size
        self._wrong.pop(map_id, None)
        self._rivals.drop(map_id)
        self.news += 1

    def _weigh(self, held: _Map) -> None:
        """Count the parts of a map anew."""
        before, held.size = held.size, held.sizes()
        self._holdings.used += held.size - before

    def ready(self) -> list[MapTotals]:
        """The complete maps, in the order of their ids, for a sum in place of the last one."""
        for held in self._maps.values():
            held.lent = held.ready
            self._weigh(held)
        return [
            MapTotals(self, map_id, held.ready)
            for map_id, held in sorted(self._maps.items())
            if held.ready and not self._rivals.leaves_out(map_id)
        ]

    def mark_added(self, given: MapTotals) -> None:
        """Note that totals could be added."""
        held = self._maps.get(given.map_id)
        if held is not None:
            held.good, self.problem = given.parts, next(iter(self._wrong.values()), "")
            self._weigh(held)

    def mark_failed(self, given: MapTotals, text: str) -> None:
        """Drop unusable totals; those that were used before count again until others come.

        The same ones are not tried again.

        Args:
            given: the totals.
            text: what is wrong with them.
        """
        self.refuse("unusable", f"totals of {self.name} are dropped: {one_line(text, 300)}")
        held = self._maps.get(given.map_id)
        if held is None:
            return

        self.news += 1
        if _numbers(given.parts) != _numbers(held.good):
            self._unusable[given.map_id, hash(_numbers(given.parts))] = None
            while len(self._unusable) > _GONE:
                self._unusable.popitem(last=False)
        for name, part in given.parts.items():
            good = held.good.get(name)
            if held.parts.get(name) is part and good is not part:
                del held.parts[name]
                if good is not None:
                    held.parts[name] = good

        if held.ready is given.parts:
            held.ready = held.good
            self._wrong[given.map_id] = self.problem
        self._weigh(held)
        if not held.parts:
            self._holdings.used -= self._maps.pop(given.map_id).size
            self._wrong.pop(given.map_id, None)
            self._rivals.drop(given.map_id)

    def status(self, now: float) -> dict[str, object]:
        """Numbers for diagnostics, by name.

        Args:
            now: monotonic s.
        """
        parts = [
            len(held.ready)
            for map_id, held in self._maps.items()
            if held.ready and not self._rivals.leaves_out(map_id)
        ]
        out: dict[str, object] = {
            "maps": len(parts),
            "tiles": sum(max(1, n - 1) for n in parts),
            "version": max(
                (held.ready[HEAD].number for held in self._maps.values() if held.ready), default=0
            ),
            "received": self.received,
            "repeated": self.repeated,
            "bytes": self.bytes,
        }
        if self.newest is not None:
            out["age (s)"] = now - self.newest
        return out | {f"dropped: {reason}": n for reason, n in sorted(self.dropped.items())}


@dataclass(frozen=True)
class MapTotals:
    """Complete totals of one map of a robot.

    Attributes:
        source: the robot.
        map_id: of the map.
        parts: the head and all tiles, by name.
    """

    source: Source
    map_id: str
    parts: dict[str, _Part]

    @property
    def version(self) -> tuple:
        """A key that differs wherever the content does."""
        return (
            self.source.name,
            self.map_id,
            *((name, part.number) for name, part in self.parts.items()),
        )

    def state(self) -> dict:
        """State of a session, with its tiles in place."""
        tiles = {
            name: StoredState(name, part.state) for name, part in self.parts.items() if name != HEAD
        }
        return with_parts(self.parts[HEAD].state, tiles)


@dataclass(frozen=True)
class _Address:
    """Where a message belongs.

    Attributes:
        map: id of the map.
        part: name of the part.
        number: grows with each change of the part.
        instead: ids of maps that this one has replaced.
    """

    map: str
    part: str
    number: int
    instead: tuple[str, ...]

    @staticmethod
    def of(about: dict) -> _Address:
        """The address in a message's `about`.

        Raises:
            MessageError: there is none, or it is malformed.
        """
        map_id, part = about.get("map", ""), about.get("part", "")
        number, instead = about.get("number"), about.get("instead", [])
        names_valid = all(isinstance(n, str) and 0 < len(n) <= _LONGEST for n in (map_id, part))
        instead_valid = (
            isinstance(instead, list)
            and len(instead) <= _GONE
            and all(isinstance(n, str) and 0 < len(n) <= _LONGEST for n in instead)
        )
        # type(), not isinstance(): a bool is an int, too
        if (
            not names_valid
            or not instead_valid
            or type(number) is not int
            or not 0 <= number < 2**62
        ):
            raise MessageError(
                "malformed", f"it does not say of which map and tile it is ({one_line(about, 100)})"
            )
        if map_id in instead:
            raise MessageError("malformed", "a map that takes its own place")
        return _Address(map_id, part, number, tuple(instead))

"""Reads rosbag2 bags (sqlite3, mcap) without a ROS installation, through `rosbags`.

Messages come back with the attribute names that ROS gives them. bag_writer.py writes bags.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

from gp_mapping.errors import one_line
from gp_mapping.recording.bag_files import BagError, damage_of, open_bag, reading
from gp_mapping.recording.position import Position, messages_after
from gp_mapping.recording.stored_bytes import all_present

__all__ = [
    "MAGNETIC_FIELD",
    "ODOMETRY",
    "ROS_TYPES",
    "STORE",
    "BagError",
    "Loss",
    "RawMessage",
    "RawMessages",
    "UnreadableError",
    "bag_span",
    "bag_topics",
    "choose_topic",
    "deserialize",
    "pass_over",
    "read_batches",
    "read_messages",
    "read_raw",
    "read_span",
]

MAGNETIC_FIELD = "sensor_msgs/msg/MagneticField"
ODOMETRY = "nav_msgs/msg/Odometry"

# The types that we read are the same in every ROS 2 so far, but for Range, which has a variance
# since Iron (stored_bytes.py). Types of other topics in a bag are never looked at: an unknown one
# does no harm.
STORE = get_typestore(Stores.ROS2_JAZZY)
ROS_TYPES = frozenset(STORE.types)  # which ROS itself has; bags teach the store others

_BOTH: dict[str, str | None] = {MAGNETIC_FIELD: None, ODOMETRY: None}
# messages that are read together where they are handed out one by one
_FIRST, _LATER = (1, 7, 56), 500
_NAME = 100  # characters of a name, or of a reason, that comes out of a bag


class UnreadableError(BagError):
    """Bytes that are no message of their type.

    Args:
        why: in a few words.
    """

    def __init__(self, why: str):
        super().__init__(f"{why}; the bag is damaged, or recorded in another format than CDR")
        self.why = why


class RawMessage(NamedTuple):
    """A message as it is stored.

    Attributes:
        topic: its topic.
        type: its ROS type.
        stamp_ns: when it was recorded, ns.
        data: CDR bytes, of the type as it is today.
    """

    topic: str
    type: str
    stamp_ns: int
    data: bytes


class RawMessages(NamedTuple):
    """Stored messages as columns, in record order.

    Attributes:
        topics: of each.
        types: of each, its ROS type.
        stamps: when each was recorded, ns.
        data: CDR bytes of each, of its type as it is today.
    """

    topics: list[str]
    types: list[str]
    stamps: list[int]
    data: list[bytes]

    @staticmethod
    def of(messages: Iterable[RawMessage]) -> RawMessages:
        """Collect messages."""
        columns = [list(column) for column in zip(*messages)]
        return RawMessages(*columns) if columns else RawMessages([], [], [], [])

    def rows(self) -> Iterator[RawMessage]:
        """Each message by itself."""
        return map(RawMessage, *self)

    def select(self, which: Iterable[int]) -> RawMessages:
        """The messages of these numbers."""
        numbers = list(which)
        return RawMessages(*([column[i] for i in numbers] for column in self))


class Loss(NamedTuple):
    """What could not be read of a bag.

    Attributes:
        path: of the bag.
        words: a sentence: what was read, and what not.
        counts: messages that were recorded and are not there, by topic, as far as that is known.
    """

    path: Path
    words: str
    counts: dict[str, int]


def pass_over(_: Loss) -> None:
    """Say nothing of a loss, where another reading of the same bag does."""


def bag_topics(path, prefer: Iterable[str] = ()) -> dict[str, tuple[str, int]]:
    """Topics of one bag, with the type and the number of their messages.

    A topic may have messages of several types, as where recordings were put together. Its type is
    then the one that is preferred, else the one that most of them have; the number is of all.

    Args:
        path: of the bag.
        prefer: types.

    Raises:
        BagError: it cannot be read.
    """
    with open_bag(path) as reader:
        _learn_types(reader.connections)
        return _topics(reader, prefer)


def bag_span(path) -> tuple[int, int]:
    """When the first and the last message of a bag were recorded, ns.

    Raises:
        BagError: it cannot be read.
    """
    with open_bag(path) as reader:
        return reader.start_time, reader.end_time


def _topics(reader: Reader, prefer: Iterable[str] = ()) -> dict[str, tuple[str, int]]:
    """As bag_topics, of an open bag."""
    counts: dict[str, Counter] = {}
    for connection in reader.connections:
        of_types = counts.setdefault(connection.topic, Counter())
        of_types[connection.msgtype] += connection.msgcount

    # what has no messages is not preferred to what has
    wanted = set(prefer)
    return {
        topic: (
            max(of_types, key=lambda t: (t in wanted and of_types[t] > 0, of_types[t])),
            of_types.total(),
        )
        for topic, of_types in sorted(counts.items())
    }


def _has(topics: dict[str, tuple[str, int]]) -> str:
    """Topics, types and numbers of messages in words."""
    return (
        ", ".join(f"{name} ({kind}, {n} messages)" for name, (kind, n) in topics.items())
        or "no topic at all"
    )


def _choose(path, there: dict[str, tuple[str, int]], kind: str, name: str | None) -> str:
    """As choose_topic, of one message type."""
    return choose_topic(path, there, (kind,), name)


def choose_topic(
    path,
    there: dict[str, tuple[str, int]],
    kinds: tuple[str, ...],
    name: str | None = None,
    any_kind: bool = False,
    option: str = "",
) -> str:
    """Choose the topic of a name, or the only topic of some types that has messages.

    Args:
        path: of the bag, for the text of an error.
        there: topics of the bag, from bag_topics.
        kinds: types.
        name: of the topic; None: the only one.
        any_kind: a topic that is named may be of another type.
        option: of the command that names it, for the text of an error; "" where there is none.

    Raises:
        BagError: there is no such topic, or several; it lists the topics of the bag.
    """
    expected = " or ".join(kinds)
    if name is not None:
        # a leading slash may be missing
        found = name if name in there else "/" + name.lstrip("/")
        if found not in there:
            near = difflib.get_close_matches(found, there, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BagError(f"{path}: there is no topic {name}{hint}; the bag has {_has(there)}")
        if there[found][0] not in kinds and not any_kind:
            raise BagError(f"{path}: topic {found} is a {there[found][0]}, expected {expected}")
        if there[found][1] == 0:
            raise BagError(f"{path}: topic {found} has no messages")
        return found

    candidates = [topic for topic, (type_, n) in there.items() if type_ in kinds and n]
    if not candidates:
        raise BagError(f"{path}: no messages of type {expected}; the bag has {_has(there)}")
    if len(candidates) > 1:
        how = f": {option} {candidates[0]}" if option else ""
        raise BagError(
            f"{path}: several topics of type {expected}: {', '.join(candidates)}; say which one to use{how}"
        )
    return candidates[0]


def _plan(path, there: dict[str, tuple[str, int]], topics) -> list[str]:
    """The topics to read of one bag; arguments as read_raw."""
    if topics is None or isinstance(topics, Mapping):
        return [_choose(path, there, kind, name) for kind, name in (topics or _BOTH).items()]
    chosen = []
    for name in topics:
        # a topic that is missing has type '', and _choose names what is there
        kind = there.get(name, there.get("/" + name.lstrip("/"), ("", 0)))[0]
        chosen.append(_choose(path, there, kind, name))
    return chosen


def _fixed(topics):
    """Topics that can be iterated over more than once: once for each bag."""
    return topics if topics is None or isinstance(topics, Mapping) else list(topics)


def _paths(paths) -> list[Path]:
    """One path or several as a list, which is not empty."""
    paths = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    if not paths:
        raise BagError("no bag was given")
    return paths


def read_raw(
    paths,
    topics: Mapping[str, str | None] | Iterable[str] | None = None,
    position: Position | None = None,
    on_loss: Callable[[Loss], None] | None = None,
) -> Iterator[RawMessage]:
    """Stored messages in record order, bag after bag in the order given.

    Of a bag that is cut off or damaged, those that are left.

    Args:
        paths: one bag, or several.
        topics: names, or type -> name (None: the only topic of that type); by default magnetic
            field and odometry.
        position: of the first bag, after which reading goes on, with the same topics; None: from
            the start.
        on_loss: called after the last message of a bag of which not all could be read; None: a
            BagError is raised there.

    Raises:
        BagError: a bag is missing, empty, or cannot be read; or a topic is missing, or not the
            only one.
    """
    topics = _fixed(topics)
    for path in _paths(paths):
        # a few at first: many callers look at the beginning alone
        for batch in read_batches(path, topics, chain(_FIRST, repeat(_LATER)), position, on_loss):
            yield from batch.rows()
        position = None


def read_batches(
    path,
    topics: Mapping[str, str | None] | Iterable[str] | None,
    sizes: Iterator[int],
    position: Position | None = None,
    on_loss: Callable[[Loss], None] | None = None,
) -> Iterator[RawMessages]:
    """Stored messages of one bag in record order, many at once.

    Args:
        path: of the bag.
        topics: as of read_raw.
        sizes: of the batches; the last one is smaller.
        position: as of read_raw.
        on_loss: as of read_raw.

    Raises:
        BagError: as of read_raw.
    """
    topics = _fixed(topics)
    with open_bag(path) as reader:
        wanted = topics if isinstance(topics, Mapping) else ()
        promised = _topics(reader, _BOTH if topics is None else wanted)
        read_count = Counter(position.counts if position else {})
        last = position.stamp_ns if position else None
        names = _plan(path, promised, topics)

        with reading(path):
            # of a topic with several types only those that were asked for
            kinds = _BOTH if topics is None else wanted
            chosen = [
                c
                for c in reader.connections
                if c.topic in names and (not kinds or c.msgtype in kinds)
            ]
            messages = (
                reader.messages(chosen)
                if position is None
                else messages_after(reader, chosen, position)
            )

        _learn_types(chosen)
        for size in sizes:
            batch, error = _next_batch(path, messages, size)
            if batch.data:
                read_count.update(batch.topics)
                last = batch.stamps[-1]
                yield batch
            if error is not None:
                raise error
            if len(batch.data) < size:
                break

        recorded: Counter[str] = Counter()
        for connection in chosen:
            recorded[connection.topic] += connection.msgcount
        loss = _loss_of(path, damage_of(reader), recorded, read_count, last)
        if loss is not None and on_loss is None:
            raise BagError(f"{path}: {loss.words}")
        if loss is not None:
            on_loss(loss)


def _next_batch(path, messages: Iterator[tuple], size: int) -> tuple[RawMessages, BagError | None]:
    """Read some more messages: those before an error, and the error.

    Args:
        path: of the bag.
        messages: connection, stamp in ns and bytes of each.
        size: the most that are read.
    """
    # by extend: what came before an error stays
    rows: list[tuple] = []
    failed = None
    try:
        with reading(path):
            rows.extend(islice(messages, size))
    except BagError as error:
        failed = error
    if not rows:
        return RawMessages([], [], [], []), failed
    connections, stamps, data = zip(*rows)
    kinds = [c.msgtype for c in connections]
    topics = [c.topic for c in connections]
    return RawMessages(topics, kinds, list(stamps), all_present(kinds, list(data))), failed


def _loss_of(
    path: Path, damage: str, recorded: Counter[str], found: Counter[str], last: int | None
) -> Loss | None:
    """What could not be read of a bag; None where all could.

    Args:
        path: of the bag.
        damage: of its files, in words.
        recorded: messages that it promises, by topic.
        found: messages that were read, by topic.
        last: stamp of the last one, ns; None: there was none.
    """
    counts = {name: n - found[name] for name, n in recorded.items() if n > found[name]}
    if not damage and not counts:
        return None
    missing = [
        f"{recorded[name]} messages were recorded on {one_line(name, _NAME)} and {found[name]} are there"
        for name in counts
    ]
    until = "" if last is None else f", the last one recorded at {last} ns"
    return Loss(
        path,
        f"the bag is cut off or damaged, {sum(found.values())} messages of it were read{until}: "
        + "; ".join([damage] * bool(damage) + missing),
        counts,
    )


def read_span(path, topics: Iterable[str], start: int, stop: int) -> Iterator[RawMessage]:
    """Stored messages of one bag that were recorded within a time, in record order.

    Args:
        path: of the bag.
        topics: names.
        start: ns.
        stop: ns.

    Raises:
        BagError: the bag cannot be read.
    """
    names = set(topics)
    with open_bag(path) as reader, reading(path):
        chosen = [c for c in reader.connections if c.topic in names]
        for connection, stamp, data in reader.messages(chosen, start, stop) if chosen else ():
            kind = connection.msgtype
            yield RawMessage(connection.topic, kind, stamp, *all_present([kind], [data]))


def _learn_types(connections) -> None:
    """Register types that ROS itself does not have, from the definitions that newer bags carry."""
    for connection in connections:
        if connection.msgtype not in STORE.types and connection.msgdef.data:
            parse = (
                get_types_from_idl
                if connection.msgdef.format.name == "IDL"
                else partial(get_types_from_msg, name=connection.msgtype)
            )
            # a definition that cannot be read shows, as one line, when the first message is read
            with suppress(Exception):
                STORE.register(
                    {k: v for k, v in parse(connection.msgdef.data).items() if k not in STORE.types}
                )


def read_messages(
    paths,
    topics: Mapping[str, str | None] | Iterable[str] | None = None,
    on_unreadable: Callable[[RawMessage, str], None] | None = None,
    on_loss: Callable[[Loss], None] | None = None,
) -> Iterator[tuple[str, int, Any]]:
    """Messages of bags in record order; raises what read_raw raises.

    A message has `__msgtype__` and the attributes of its ROS type. A message whose bytes cannot be
    read is left out, and the others are read.

    Args:
        paths: one bag, or several.
        topics: as of read_raw.
        on_unreadable: called with each message that is left out, and why; None: the first one
            raises a BagError.
        on_loss: as of read_raw.

    Yields:
        Topic, record time in ns, message.

    Raises:
        BagError: a bag cannot be read, or a message cannot and there is no on_unreadable.
    """
    for raw in read_raw(paths, topics, on_loss=on_loss):
        try:
            message = deserialize(raw)
        except UnreadableError as error:
            if on_unreadable is None:
                raise
            on_unreadable(raw, error.why)
            continue
        yield raw.topic, raw.stamp_ns, message


def deserialize(raw: RawMessage) -> Any:
    """Read a stored message; it has `__msgtype__` and the attributes of its ROS type.

    Raises:
        UnreadableError: the bytes are no such message.
    """
    try:
        return STORE.deserialize_cdr(raw.data, raw.type)
    # numpy, struct and rosbags each have errors of their own for bytes that are no such message
    except Exception as error:
        raise UnreadableError(
            f"the {one_line(raw.type, _NAME)} recorded on {one_line(raw.topic, _NAME)} at "
            f"{raw.stamp_ns} ns cannot be read ({one_line(error, _NAME)})"
        ) from error

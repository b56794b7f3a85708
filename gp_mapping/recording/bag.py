"""Reads rosbag2 bags (sqlite3, mcap) without a ROS installation, through `rosbags`.

Messages come back with the attribute names that ROS gives them. bag_writer.py writes bags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

from gp_mapping.errors import UserError, one_line
from gp_mapping.recording.position import Position, messages_after
from gp_mapping.recording.stored_bytes import present_bytes

__all__ = [
    "MAGNETIC_FIELD",
    "ODOMETRY",
    "ROS_TYPES",
    "STORE",
    "BagError",
    "RawMessage",
    "UnreadableError",
    "bag_span",
    "bag_topics",
    "choose_topic",
    "choose_topics",
    "count_messages",
    "deserialize",
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
_SUFFIXES = (".mcap", ".db3")
_COMPRESSED = ".zstd"  # of a file of a bag, as its recorder packs it
_FILES = 12  # of a bag that are named
_DIGITS = re.compile(r"(\d+)")  # the recorder numbers files without leading zeros
_NAME = 100  # characters of a name, or of a reason, that comes out of a bag


class BagError(UserError):
    """A bag that cannot be read or written; the text is one line and says what to do."""


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


def _check_path(path: Path) -> None:
    """Raise a BagError for what is wrong with a path before it is opened."""
    if not path.exists():
        raise BagError(f"{path}: no such bag; expected a rosbag2 folder, or a .mcap or .db3 file")
    if path.is_dir():
        if not (path / "metadata.yaml").exists():
            # a recorder that is killed leaves no metadata
            if parts := _files_of(path):
                raise BagError(
                    f"{path}: metadata.yaml is missing, the recording was cut off; pass {parts}, or run: ros2 bag "
                    f"reindex {path}"
                )
            if any(path.glob("*.gpm")):
                raise BagError(
                    f"{path}: a saved map, not a recording; give the bags it was made from"
                )
            packed = sorted(p.name for p in path.iterdir() if p.suffix == _COMPRESSED)
            if packed:
                raise BagError(
                    f"{path}: metadata.yaml is missing, the recording was cut off; unpack the files "
                    f"(zstd -d {packed[0]}) and pass what comes of them"
                )
            bags = sorted(p.parent.name for p in path.glob("*/metadata.yaml"))
            inside = (
                f"; it holds {len(bags)}: name one, {path / bags[0]}, or all, {path}/*"
                if bags
                else ""
            )
            old = min(path.glob("*.bag"), default=None)
            if old is not None and not bags:
                raise _of_ros1(old)
            raise BagError(f"{path}: not a rosbag2 folder, it has no metadata.yaml{inside}")
    elif path.suffix == ".bag":
        raise _of_ros1(path)
    elif path.suffix == _COMPRESSED:
        raise BagError(
            f"{path}: a compressed file of a bag; pass its folder, {path.parent}, or unpack it: "
            f"zstd -d {path.name}"
        )
    elif path.suffix not in _SUFFIXES:
        raise BagError(f"{path}: expected a rosbag2 folder, or a .mcap or .db3 file")
    elif path.stat().st_size == 0:
        raise BagError(f"{path}: the file is empty")

    for database in (
        sorted(path.glob("*.db3")) if path.is_dir() else [path] * (path.suffix == ".db3")
    ):
        _check_database(database)


def _stored_in(path: Path) -> list[str]:
    """Names of the files with the messages of a bag, in their order."""
    return sorted(
        (p.name for p in path.iterdir() if p.suffix in _SUFFIXES),
        key=lambda name: [int(part) if part.isdigit() else part for part in _DIGITS.split(name)],
    )


def _files_of(path: Path) -> str:
    """The files with the messages of a bag, in words, for whoever is to pass them; "" without."""
    stored = _stored_in(path)
    if len(stored) <= 1:
        return f"the file itself ({stored[0]})" if stored else ""
    shown = " ".join(stored[:_FILES]) + (" …" if len(stored) > _FILES else "")
    return f"its {len(stored)} files ({shown}) in this order"


def _past_metadata(path: Path) -> str:
    """What to do where metadata.yaml alone is damaged, in words; "" where more is."""
    try:
        for name in _stored_in(path) if path.is_dir() else ():
            with Reader(path / name):
                pass
    except Exception:  # as in _reading
        return ""
    parts = _files_of(path) if path.is_dir() else ""
    return f"pass {parts}, or " if parts else ""


def _of_ros1(path: Path) -> BagError:
    """What to do with a bag of ROS 1."""
    new = path.with_suffix("").name
    return BagError(
        f"{path}: a bag of ROS 1; write one of ROS 2 from it: rosbags-convert --src {path.name} "
        f"--dst {new}, and pass {new}"
    )


def _check_database(path: Path) -> None:
    """Raise a BagError for damage that SQLite would pass over in silence.

    Messages in a log next to the file, and a last page that is cut off.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:  # rosbags reads the database only
        raise BagError(
            f"{path}: {log.name} holds messages that the recorder had no time to put into the bag; "
            f"run: sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'"
        )

    with _reading(path), path.open("rb") as file:
        header = file.read(100)
    page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    # in SQLite's header a page size of 1 stands for 65536
    expected = (65536 if page == 1 else page) * pages
    if path.stat().st_size < expected:
        raise BagError(
            f"{path}: the bag is cut off, {path.stat().st_size} bytes of {expected} are there; "
            "try ros2 bag reindex"
        )


@contextmanager
def _reading(path: Path, instead: Callable[[], str] = str) -> Iterator[None]:
    """Turn whatever a library raises about a damaged file into one clear BagError.

    Args:
        path: of the bag.
        instead: tells what else may be done than to mend it.
    """
    try:
        yield
    except BagError:
        raise
    # rosbags, sqlite, lz4, zstd and struct each have errors of their own for data that is cut off
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise BagError(
            f"{path}: the bag is cut off or damaged ({text}); {instead()}try ros2 bag reindex or mcap recover"
        ) from error


@contextmanager
def _open(path) -> Iterator[Reader]:
    """The reader of a bag that holds at least one message; BagError where there is none."""
    path = Path(path)
    _check_path(path)

    with _reading(path, partial(_past_metadata, path)):
        reader = Reader(path)
        reader.open()

    try:
        if reader.message_count == 0:
            raise BagError(f"{path}: the bag is empty, it holds no message")
        yield reader
    finally:
        reader.close()


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
    with _open(path) as reader:
        _learn_types(reader.connections)
        return _topics(reader, prefer)


def bag_span(path) -> tuple[int, int]:
    """When the first and the last message of a bag were recorded, ns.

    Raises:
        BagError: it cannot be read.
    """
    with _open(path) as reader:
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


def choose_topics(path, topics: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Choose a topic of one bag for each message type.

    Args:
        path: of the bag.
        topics: type -> name; None as a name means: the only topic of that type that has messages.
            By default {MAGNETIC_FIELD: None, ODOMETRY: None}.

    Returns:
        Type -> topic.

    Raises:
        BagError: there is no such topic, or several; it lists the topics of the bag.
    """
    there = bag_topics(path, topics or _BOTH)
    return {kind: _choose(path, there, kind, name) for kind, name in (topics or _BOTH).items()}


def _choose(path, there: dict[str, tuple[str, int]], kind: str, name: str | None) -> str:
    """As choose_topic, of one message type."""
    return choose_topic(path, there, (kind,), name)


def choose_topic(
    path,
    there: dict[str, tuple[str, int]],
    kinds: tuple[str, ...],
    name: str | None = None,
    any_kind: bool = False,
) -> str:
    """Choose the topic of a name, or the only topic of some types that has messages.

    Args:
        path: of the bag, for the text of an error.
        there: topics of the bag, from bag_topics.
        kinds: types.
        name: of the topic; None: the only one.
        any_kind: a topic that is named may be of another type.

    Raises:
        BagError: there is no such topic, or several; it lists the topics of the bag.
    """
    expected = " or ".join(kinds)
    if name is not None:
        # a leading slash may be missing
        found = name if name in there else "/" + name.lstrip("/")
        if found not in there:
            raise BagError(f"{path}: there is no topic {name}; the bag has {_has(there)}")
        if there[found][0] not in kinds and not any_kind:
            raise BagError(f"{path}: topic {found} is a {there[found][0]}, expected {expected}")
        if there[found][1] == 0:
            raise BagError(f"{path}: topic {found} has no messages")
        return found

    candidates = [topic for topic, (type_, n) in there.items() if type_ in kinds and n]
    if not candidates:
        raise BagError(f"{path}: no messages of type {expected}; the bag has {_has(there)}")
    if len(candidates) > 1:
        raise BagError(
            f"{path}: several topics of type {expected}: {', '.join(candidates)}; say which one to use "
            "(--field-topic, --odometry-topic)"
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


def count_messages(paths, topics: Mapping[str, str | None] | Iterable[str] | None = None) -> int:
    """How many messages read_messages will give.

    All errors that show before messages are read are raised here.

    Args:
        paths: one bag, or several.
        topics: as of read_raw.
    """
    topics, total = _fixed(topics), 0
    for path in _paths(paths):
        there = bag_topics(path, topics if isinstance(topics, Mapping) else _BOTH)
        total += sum(there[topic][1] for topic in _plan(path, there, topics))
    return total


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
) -> Iterator[RawMessage]:
    """Stored messages in record order, bag after bag in the order given.

    Args:
        paths: one bag, or several.
        topics: names, or type -> name (None: the only topic of that type); by default magnetic
            field and odometry.
        position: of the first bag, after which reading goes on, with the same topics; None: from
            the start.

    Raises:
        BagError: a bag is missing, empty, cut off or damaged; or a topic is missing, or not the
            only one.
    """
    topics = _fixed(topics)
    for path in _paths(paths):
        with _open(path) as reader:
            wanted = topics if isinstance(topics, Mapping) else ()
            promised = _topics(reader, _BOTH if topics is None else wanted)
            read_count = Counter(position.counts if position else {})
            names = _plan(path, promised, topics)

            with _reading(path):
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
                position = None

            _learn_types(chosen)
            # errors of the code that uses a message do not come back here through `yield`
            with _reading(path):
                for connection, stamp, data in messages:
                    read_count[connection.topic] += 1
                    kind = connection.msgtype
                    yield RawMessage(connection.topic, kind, stamp, present_bytes(kind, data))

            for name in names:
                # readers end quietly where a file is cut off
                recorded = sum(c.msgcount for c in chosen if c.topic == name)
                if read_count[name] < recorded:
                    raise BagError(
                        f"{path}: the bag is cut off, {recorded} messages were recorded on "
                        f"{name} and {read_count[name]} are there"
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
    with _open(path) as reader, _reading(path):
        chosen = [c for c in reader.connections if c.topic in names]
        for connection, stamp, data in reader.messages(chosen, start, stop) if chosen else ():
            kind = connection.msgtype
            yield RawMessage(connection.topic, kind, stamp, present_bytes(kind, data))


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
) -> Iterator[tuple[str, int, Any]]:
    """Messages of bags in record order; raises what read_raw raises.

    A message has `__msgtype__` and the attributes of its ROS type. A message whose bytes cannot be
    read is left out, and the others are read.

    Args:
        paths: one bag, or several.
        topics: as of read_raw.
        on_unreadable: called with each message that is left out, and why; None: the first one
            raises a BagError.

    Yields:
        Topic, record time in ns, message.

    Raises:
        BagError: a bag cannot be read, or a message cannot and there is no on_unreadable.
    """
    for raw in read_raw(paths, topics):
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

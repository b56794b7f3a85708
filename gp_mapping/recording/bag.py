"""rosbag2 bags (sqlite3, mcap) read without a ROS installation, through `rosbags`.

Messages come back with the attribute names that ROS gives them. bag_writer.py writes bags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

from gp_mapping.errors import UserError, one_line

__all__ = [
    "MAGNETIC_FIELD",
    "ODOMETRY",
    "STORE",
    "BagError",
    "RawMessage",
    "UnreadableError",
    "bag_topics",
    "choose_topic",
    "choose_topics",
    "count_messages",
    "deserialize",
    "read_messages",
    "read_raw",
]

MAGNETIC_FIELD = "sensor_msgs/msg/MagneticField"
ODOMETRY = "nav_msgs/msg/Odometry"

# The types that we read are the same in every ROS 2 so far, but for Range, which has a variance since Iron. Types of
# other topics in a bag are never looked at, so that an unknown one does no harm.
STORE = get_typestore(Stores.ROS2_JAZZY)

_BOTH: dict[str, str | None] = {MAGNETIC_FIELD: None, ODOMETRY: None}
_SUFFIXES = (".mcap", ".db3")
_NAME = 100  # characters of a name, or of a reason, that comes out of a bag


class BagError(UserError):
    """A bag that cannot be read or written; the text is one line and says what to do."""


class UnreadableError(BagError):
    """Bytes that are no message of their type; `why` in a few words."""

    def __init__(self, why: str):
        super().__init__(f"{why}; the bag is damaged, or recorded in another format than CDR")
        self.why = why


class RawMessage(NamedTuple):
    """A message as it is stored: topic, type, record time (ns), CDR bytes."""

    topic: str
    type: str
    stamp_ns: int
    data: bytes


def _check_path(path: Path) -> None:
    """What can be said about a path before it is opened."""
    if not path.exists():
        raise BagError(f"{path}: no such bag; expected a rosbag2 folder, or a .mcap or .db3 file")
    if path.is_dir():
        if not (path / "metadata.yaml").exists():
            stored = sorted(p.name for p in path.iterdir() if p.suffix in _SUFFIXES)
            if stored:
                raise BagError(
                    f"{path}: metadata.yaml is missing, the recording was cut off; pass the file itself "
                    f"({stored[0]}), or run: ros2 bag reindex {path}"
                )
            raise BagError(f"{path}: not a rosbag2 folder, it has no metadata.yaml")
    elif path.suffix not in _SUFFIXES:
        raise BagError(f"{path}: expected a rosbag2 folder, or a .mcap or .db3 file")
    elif path.stat().st_size == 0:
        raise BagError(f"{path}: the file is empty")
    for database in (
        sorted(path.glob("*.db3")) if path.is_dir() else [path] * (path.suffix == ".db3")
    ):
        _check_database(database)


def _check_database(path: Path) -> None:
    """What SQLite would pass over in silence: messages in a log beside the file, and a last page that is cut off."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:  # rosbags reads the database only
        raise BagError(
            f"{path}: {log.name} holds messages that the recorder had no time to put into the bag; "
            f"run: sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'"
        )
    with _reading(path), path.open("rb") as file:
        header = file.read(100)
    page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    expected = (65536 if page == 1 else page) * pages  # 1 stands for 65536 in SQLite's header
    if path.stat().st_size < expected:
        raise BagError(
            f"{path}: the bag is cut off, {path.stat().st_size} bytes of {expected} are there; "
            "try ros2 bag reindex"
        )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a library says about a damaged file becomes one clear BagError."""
    try:
        yield
    except BagError:
        raise
    except Exception as error:  # rosbags, sqlite, lz4, zstd and struct each have errors of their own for cut-off data
        text = " ".join(str(error).split()) or type(error).__name__
        raise BagError(
            f"{path}: the bag is cut off or damaged ({text}); try ros2 bag reindex or mcap recover"
        ) from error


@contextmanager
def _open(path) -> Iterator[Reader]:
    path = Path(path)
    _check_path(path)
    with _reading(path):
        reader = Reader(path)
        reader.open()
    try:
        if reader.message_count == 0:
            raise BagError(f"{path}: the bag is empty, it holds no message")
        yield reader
    finally:
        reader.close()


def bag_topics(path) -> dict[str, tuple[str, int]]:
    """Topic -> (message type, number of messages) of one bag; BagError where it cannot be read."""
    with _open(path) as reader:
        return _topics(reader)


def _topics(reader: Reader) -> dict[str, tuple[str, int]]:
    counts, types = Counter(), {}
    for connection in reader.connections:
        counts[connection.topic] += connection.msgcount
        types[connection.topic] = connection.msgtype
    return {topic: (types[topic], counts[topic]) for topic in sorted(types)}


def _has(topics: dict[str, tuple[str, int]]) -> str:
    return (
        ", ".join(f"{name} ({kind}, {n} messages)" for name, (kind, n) in topics.items())
        or "no topic at all"
    )


def choose_topics(path, topics: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Message type -> topic for one bag; None as a topic means: the only one of that type that has messages.

    topics: by default {MAGNETIC_FIELD: None, ODOMETRY: None}.
    Raises BagError where there is none or more than one, naming what is there.
    """
    there = bag_topics(path)
    return {kind: _choose(path, there, kind, name) for kind, name in (topics or _BOTH).items()}


def _choose(path, there: dict[str, tuple[str, int]], kind: str, name: str | None) -> str:
    return choose_topic(path, there, (kind,), name)


def choose_topic(
    path,
    there: dict[str, tuple[str, int]],
    kinds: tuple[str, ...],
    name: str | None = None,
    any_kind: bool = False,
) -> str:
    """The topic of that name, or the only one of these types that has messages; `there` comes from bag_topics.

    any_kind: a topic that is named may be of another type.  Raises BagError, naming what is there.
    """
    expected = " or ".join(kinds)
    if name is not None:
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
    """The topics to read from one bag."""
    if topics is None or isinstance(topics, Mapping):
        return [_choose(path, there, kind, name) for kind, name in (topics or _BOTH).items()]
    chosen = []
    for name in topics:
        kind = there.get(name, there.get("/" + name.lstrip("/"), ("", 0)))[0]
        chosen.append(_choose(path, there, kind, name))
    return chosen


def count_messages(paths, topics: Mapping[str, str | None] | Iterable[str] | None = None) -> int:
    """How many messages read_messages will give; all errors that show before reading come here."""
    topics, total = _fixed(topics), 0
    for path in _paths(paths):
        there = bag_topics(path)
        total += sum(there[topic][1] for topic in _plan(path, there, topics))
    return total


def _fixed(topics):
    """Topics that can be gone through once for each bag."""
    return topics if topics is None or isinstance(topics, Mapping) else list(topics)


def _paths(paths) -> list[Path]:
    paths = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    if not paths:
        raise BagError("no bag was given")
    return paths


def read_raw(
    paths, topics: Mapping[str, str | None] | Iterable[str] | None = None
) -> Iterator[RawMessage]:
    """Stored messages in record order, bag after bag in the order given.

    topics: names, or type -> name (None: the only topic of that type); by default magnetic field and odometry.
    Raises BagError: missing, empty, cut-off or damaged bag; a topic that is missing or not the only one.
    """
    topics = _fixed(topics)
    for path in _paths(paths):
        with _open(path) as reader:
            promised, found = _topics(reader), Counter()
            names = _plan(path, promised, topics)
            with _reading(path):
                chosen = [c for c in reader.connections if c.topic in names]
                messages = reader.messages(chosen)
            _learn_types(chosen)
            with _reading(path):  # what goes wrong where these are used does not come back here
                for connection, stamp, data in messages:
                    found[connection.topic] += 1
                    yield RawMessage(connection.topic, connection.msgtype, stamp, data)
            for name in names:
                if found[name] < promised[name][1]:
                    raise BagError(
                        f"{path}: the bag is cut off, {promised[name][1]} messages were recorded on "
                        f"{name} and {found[name]} are there"
                    )


def _learn_types(connections) -> None:
    """Types that ROS itself does not have, from the definitions that newer bags carry."""
    for connection in connections:
        if connection.msgtype not in STORE.types and connection.msgdef.data:
            read = (
                get_types_from_idl
                if connection.msgdef.format.name == "IDL"
                else partial(get_types_from_msg, name=connection.msgtype)
            )
            with suppress(
                Exception
            ):  # what cannot be read is said, in one line, when the first message is
                STORE.register(
                    {k: v for k, v in read(connection.msgdef.data).items() if k not in STORE.types}
                )


def read_messages(
    paths,
    topics: Mapping[str, str | None] | Iterable[str] | None = None,
    on_unreadable: Callable[[RawMessage, str], None] | None = None,
) -> Iterator[tuple[str, int, Any]]:
    """(topic, record time in ns, message) of bags in record order; arguments and errors as read_raw.

    A message has `__msgtype__` and the attributes of its ROS type. One whose bytes are no message of its type is left
    out, and the others come.

    on_unreadable: told of each one that is left out, and why; None: the first one is a BagError.
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
    """The message; it has `__msgtype__` and the attributes of its ROS type. UnreadableError where the bytes are none."""
    try:
        return STORE.deserialize_cdr(raw.data, raw.type)
    except (
        Exception
    ) as error:  # numpy, struct and rosbags each have their own for bytes that are no such message
        raise UnreadableError(
            f"the {one_line(raw.type, _NAME)} recorded on {one_line(raw.topic, _NAME)} at "
            f"{raw.stamp_ns} ns cannot be read ({one_line(error, _NAME)})"
        ) from error

"""From bags through an intake to samples.

The loop that `map` runs for training and for testing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from gp_mapping.core.types import Samples
from gp_mapping.errors import one_line
from gp_mapping.intake import Intake, inputs_of
from gp_mapping.intake.columns import Stream
from gp_mapping.intake.fixes import FIX as FIX_TYPE
from gp_mapping.intake.fixes import ROLE as FIX
from gp_mapping.intake.poses.messages import POSE_MESSAGES, TF_MESSAGE
from gp_mapping.intake.sensors.sketch import SHARED
from gp_mapping.intake.topics import Input, feed
from gp_mapping.recording.bag import (
    ROS_TYPES,
    STORE,
    BagError,
    Loss,
    RawMessage,
    RawMessages,
    UnreadableError,
    bag_topics,
    choose_topic,
    deserialize,
    pass_over,
    read_batches,
    read_raw,
)
from gp_mapping.recording.cdr import columns_of
from gp_mapping.recording.numeric_fields import has_number, numbers_of
from gp_mapping.recording.position import Position
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.sensors import SENSOR_TYPES

__all__ = ["BagPlan", "Taken", "plan_bags", "samples_of"]

_TOGETHER = 2000  # messages that are read at once; the samples do not depend on it
# the same of the first messages, which come one by one while they decide on frames
_FIRST = 510
_NAMED = 12  # numbers of a message that are named
# messages of a robot that hold numbers, and no field
_NO_FIELD = {
    *POSE_MESSAGES.values(),
    TF_MESSAGE,
    FIX_TYPE,
    "rosgraph_msgs/msg/Clock",
    "rcl_interfaces/msg/Log",
    "rcl_interfaces/msg/ParameterEvent",
    "nav_msgs/msg/Path",
    "nav_msgs/msg/OccupancyGrid",
    "geometry_msgs/msg/Twist",
    "geometry_msgs/msg/TwistStamped",
}


class BagPlan(NamedTuple):
    """What to read of one bag.

    Attributes:
        path: of the bag.
        roles: topic -> what it is to the intake.
        types: topic -> the type that its messages are to have.
        count: how many messages these topics have in all.
        note: what seems wrong with the choice, in a sentence; "" where nothing does.
    """

    path: Path
    roles: dict[str, str]
    types: dict[str, str]
    count: int
    note: str = ""


class Taken(NamedTuple):
    """What an intake has had of some plans.

    Attributes:
        messages: of all plans together.
        position: in the plan that was being read.
    """

    messages: int
    position: Position


def plan_bags(
    bags, settings: IntakeSettings, names: dict[str, str | None], fixes: bool = False
) -> list[BagPlan]:
    """Plan what to read of each bag.

    Args:
        bags: one path, or several.
        settings: those of the intake.
        names: role (measurement, pose) -> topic; None: the only one of its type.
        fixes: whether to read `fix_topic`, too, for callers that take fixes from the intake.

    Raises:
        BagError: a bag is given twice, cannot be read, or has no such topic, or several.
    """
    if isinstance(bags, str | Path):
        bags = [bags]

    # resolved: one bag may be given by two names
    paths = [Path(bag).resolve() for bag in bags]
    twice = next((bag for i, bag in enumerate(bags) if paths[i] in paths[:i]), None)
    if twice is not None:
        raise BagError(f"{twice} is given twice; its measurements would count twice")

    plans, inputs = [], inputs_of(settings)
    for bag in bags:
        there = bag_topics(bag, [kind for each_input in inputs for kind in each_input.messages])
        roles = {
            topic: each_input.role
            for each_input in inputs
            if (fixes or each_input.role != FIX)
            and (topic := _topic(bag, there, each_input, names.get(each_input.role), settings))
            is not None
        }
        types = {topic: there[topic][0] for topic in roles}
        count = sum(there[topic][1] for topic in roles)
        plans.append(BagPlan(Path(bag), roles, types, count, _two_robots(there, roles)))

    return plans


def _two_robots(there, roles: dict[str, str]) -> str:
    """Whether measurements are of one robot and poses of another, by their namespaces, in words.

    Args:
        there: topics of the bag.
        roles: topic -> what it is to the intake.
    """
    chosen = {role: topic for topic, role in roles.items()}
    if not {"measurement", "pose"} <= set(chosen):
        return ""
    sensor, pose = chosen["measurement"], chosen["pose"]
    robot, other = (topic.lstrip("/").rpartition("/")[0].split("/")[0] for topic in (sensor, pose))
    own = [
        topic
        for topic, (kind, n) in there.items()
        if n and kind == there[pose][0] and topic.lstrip("/").startswith(f"{robot}/")
    ]
    if not robot or robot == other or not own:
        return ""
    return (
        f"measurements of {sensor} are placed by the poses of {pose}, and {own[0]} is there: of two robots? Write "
        f"--odometry-topic {own[0]}"
    )


def _topic(bag, there, wanted: Input, name: str | None, settings: IntakeSettings) -> str | None:
    """The topic of one input; None for /tf_static, or fixes, that are not there.

    Raises:
        BagError: its text says which setting would help.
    """
    try:
        return _found(bag, there, wanted, name, settings)
    except BagError as error:
        raise BagError(f"{error}{_mend(there, wanted.role, name, settings)}") from error


def _found(bag, there, wanted: Input, name: str | None, settings: IntakeSettings) -> str | None:
    """As `_topic`, with the plain text of an error.

    Raises:
        BagError: there is no such topic, or several.
    """
    if wanted.role == FIX:  # a day without a receiver is mapped all the same
        names = wanted.topic, f"/{wanted.topic.lstrip('/')}"
        return next((t for t in names if t in there and there[t][0] in wanted.messages), None)

    if wanted.role not in ("tf", "tf_static"):
        scalar = wanted.role == "measurement" and settings.sensor == "scalar"
        option = "--field-topic" if wanted.role == "measurement" else "--odometry-topic"
        topic = choose_topic(bag, there, wanted.messages, name, any_kind=scalar, option=option)
        kind = there[topic][0]
        if scalar and kind in STORE.fielddefs and not has_number(kind, settings.value_field, STORE):
            raise BagError(f"{bag}: topic {topic} is a {kind}, {_numbers_in(kind, settings)}")
        return topic

    found = [
        t
        for t, (kind, n) in there.items()
        if kind in wanted.messages and n and t.endswith(wanted.topic)
    ]
    if len(found) > 1:
        found = [t for t in found if t == wanted.topic] or found
        if len(found) > 1:
            raise BagError(
                f"{bag}: several topics that end in {wanted.topic}: {', '.join(found)}; expected one of them"
            )

    # a robot's mounting may be in /tf_static only, and a bag without /tf_static may hold all its
    # links in /tf
    if not found and wanted.role == "tf" and settings.pose_source == "tf":
        return choose_topic(bag, there, wanted.messages, wanted.topic)
    return found[0] if found else None


def _numbers_in(kind: str, settings: IntakeSettings) -> str:
    """That a type has no such number, and which it has, in words."""
    wanted = f"at {settings.value_field}" if settings.value_field else "called data or value"
    known = numbers_of(kind, STORE)
    shown = ", ".join(map(_quoted, known[:_NAMED])) + (", …" if len(known) > _NAMED else "")
    return f"which has no number {wanted}" + (
        f"; write as value_field one of {shown}" if known else ""
    )


def _mend(there, role: str, name: str | None, settings: IntakeSettings) -> str:
    """The setting with which this bag, or this topic of it, would do, in words.

    "" where there is none.
    """
    if name is not None:
        kinds = {there[topic][0] for topic in (name, "/" + name.lstrip("/")) if topic in there}
    else:
        kinds = {kind for kind, n in there.values() if n}

    # settings under which messages of these types would be read
    if role == "measurement":
        option, current = "sensor", settings.sensor
        fitting = [sensor for sensor, kind in SENSOR_TYPES.items() if kinds & set(kind.messages)]
    else:
        option, current = "pose_source", settings.pose_source
        fitting = [
            source for source, kind in {**POSE_MESSAGES, "tf": TF_MESSAGE}.items() if kind in kinds
        ]

    words = [f"--set {option}={word}" for word in fitting if word != current]
    if words and current not in fitting:
        return f"; write {' or '.join(words)} (or {option}: in --params)"
    if fitting or role not in ("measurement", "pose", "tf"):
        return ""
    if role != "measurement":
        receiver = next(
            (topic for topic, (kind, n) in there.items() if kind == FIX_TYPE and n), None
        )
        fixes = (
            f"; {receiver} has latitudes and longitudes, of which navsat_transform_node of robot_localization makes "
            "poses in metres: record those"
            if receiver
            else ""
        )
        return f"; poses may be {', '.join(POSE_MESSAGES.values())}, or {TF_MESSAGE} on /tf{fixes}"

    # else a topic with numbers in its messages can be mapped as a scalar
    given = "" if current == "scalar" else "--set sensor=scalar "
    return _mend_by_number(there, name, given, settings.value_field)


def _mend_by_number(there, name: str | None, given: str, path: str) -> str:
    """How a number of some message would be mapped, in words; "" where none has one.

    Args:
        there: topics of the bag.
        name: of the only topic that is meant; None: any.
        given: options that are needed in any case.
        path: value_field, as it is set.
    """
    searched = there if name is None else [t for t in (name, "/" + name.lstrip("/")) if t in there]
    for topic in searched:
        kind, n = there[topic]
        if n and has_number(kind, path, STORE):
            found = f"has a number at {path}" if path else "has one number in a message"
            return f"; {topic} {found}: write {given}--field-topic {topic}"
    for topic in searched:
        kind, n = there[topic]
        # an Imu is no hint for somebody whose magnetometer was not recorded
        meant = n and kind not in _NO_FIELD and (name or not given or kind not in ROS_TYPES)
        known = numbers_of(kind, STORE) if meant else []
        if known:
            first, *others = known[:_NAMED]
            more = ", ".join([*others, *["…"] * (len(known) > _NAMED)])
            return (
                f"; {topic} has numbers in a message: write {given}--field-topic {topic} "
                f"--set {_quoted(f'value_field={first}')}"
                + (f" (or one of {more})" if more else "")
            )
    return ""


def _quoted(word: str) -> str:
    """A word as a shell takes it literally, which gives brackets a meaning of their own."""
    return f"'{word}'" if "[" in word else word


def samples_of(
    plans: list[BagPlan],
    intake: Intake,
    label: str,
    together: int = _TOGETHER,
    shown: bool = True,
    before: Taken | None = None,
    taken: Callable[[Taken], None] | None = None,
    goes_on: bool = False,
) -> Iterator[tuple[bool, Samples]]:
    """Samples of bags in the order given.

    Samples that the intake may yet find to be void, because most messages are in another frame, are
    kept back until it has decided: what is handed out stands, and the caller need not begin again.

    With a progress bar where stderr is a terminal.

    Args:
        plans: what to read.
        intake: pairs measurements and poses.
        label: of the progress bar.
        together: messages that are read at once; the samples do not depend on it.
        shown: whether the progress bar may be shown.
        before: what the intake has had of these plans already, by an earlier call that ended before
            its time.
        taken: called with what the intake has had, each time that the caller has had all samples of
            it.
        goes_on: whether they go into a map that holds other measurements, which `intake` knows.

    Yields:
        Whether a new pass begins, and the samples.

    Raises:
        BagError: as of read_raw; or measurements are in the map already that goes on; or all have
            one stamp.
    """
    total, seen = sum(plan.count for plan in plans), 0
    kept_back: list[tuple[bool, Samples]] = []
    # in a file, the one line that says what went wrong is to stand alone
    hidden = not (shown and sys.stderr.isatty())

    with tqdm(
        total=total, desc=label, unit=" messages", file=sys.stderr, mininterval=0.3, disable=hidden
    ) as bar:
        for plan in plans:
            if before is not None and seen + plan.count < before.messages:
                seen += plan.count
                continue

            position = None
            if before is not None:
                seen, position, before = before.messages, before.position, None
                bar.update(seen)

            if position is None:
                if plan.note:
                    intake.add_note(plan.note)
                _expect_links(intake, plan)
            begun = seen - (sum(position.counts.values()) if position else 0)
            losses: list[Loss] = []
            first = together if seen else min(together, _FIRST)
            sizes = chain([first], repeat(together))
            stored = read_batches(plan.path, list(plan.roles), sizes, position, losses.append)
            for chunk in stored:
                position = Position.after(position, chunk)
                yield from _standing(intake, _samples(intake, plan, chunk), kept_back)
                if goes_on and intake.sketch.repeats >= SHARED:
                    raise BagError(
                        f"{plan.path}: measurements of it are in the map already, and would count twice; leave "
                        "it out, cut it where the map ends, or begin a new map without --resume"
                    )
                seen += len(chunk.data)
                bar.update(len(chunk.data))
                if taken is not None and not kept_back:
                    taken(Taken(seen, position))
            _count_lost(intake, plan, losses)
            # what is lost counts as well, so that `before` finds its plan
            seen = begun + plan.count

        intake.make_final()  # no message comes that could change a frame
        yield from _standing(intake, intake.batches(finish=True), kept_back)
        bar.update(total - seen)

    if intake.standing:
        names = {
            topic for plan in plans for topic, role in plan.roles.items() if role == "measurement"
        }
        raise BagError(f"{', '.join(sorted(names))}: {intake.standing}")


def _count_lost(intake: Intake, plan: BagPlan, losses: list[Loss]) -> None:
    """Let an intake count, and say, what could not be read of a bag."""
    for loss in losses:
        intake.add_lost(
            {plan.roles[topic]: n for topic, n in loss.counts.items()},
            f"{plan.path.name}: {loss.words}",
        )


def _expect_links(intake: Intake, plan: BagPlan) -> None:
    """Let an intake have the static links of a bag before its measurements.

    A recorder may get /tf_static after them. What cannot be read is counted when it comes.
    """

    def messages() -> Iterator:
        for raw in read_raw(plan.path, topics, on_loss=pass_over):
            if raw.type == plan.types[raw.topic]:
                with suppress(UnreadableError):
                    yield deserialize(raw)

    topics = [topic for topic, role in plan.roles.items() if role == "tf_static"]
    if topics:
        intake.add_static_ahead(messages())


def _standing(
    intake: Intake, batches: Iterator[tuple[bool, Samples]], kept_back: list[tuple[bool, Samples]]
) -> Iterator[tuple[bool, Samples]]:
    """Batches that stand, whatever comes.

    Args:
        intake: whose batches they are.
        batches: those that come now.
        kept_back: those that came before and may turn out to be void; changed in place.

    Yields:
        Whether a new pass begins, and the samples.
    """
    new = list(batches)  # messages are taken in here, and may have begun everything anew
    if intake.take_restart():
        kept_back.clear()
    kept_back += new

    if intake.is_final:
        yield from kept_back
        kept_back.clear()


def _samples(intake: Intake, plan: BagPlan, chunk: RawMessages) -> Iterator[tuple[bool, Samples]]:
    """Stored messages through the intake.

    All at once where nothing in them is out of the ordinary, else one by one. A message that cannot
    be read does not cost the others: it is counted, and the first ones are named.

    Args:
        intake: pairs measurements and poses.
        plan: of the bag.
        chunk: messages.

    Yields:
        Whether a new pass begins, and the samples.
    """
    # fixes have no columns
    fixes, remaining = RawMessages.of(()), chunk
    if FIX in plan.roles.values():
        is_fix = [plan.roles[topic] == FIX for topic in chunk.topics]
        fixes = chunk.select(i for i, fix in enumerate(is_fix) if fix)
        remaining = chunk.select(i for i, fix in enumerate(is_fix) if not fix)

    streams = _streams(plan, remaining)
    batches = None if streams is None else intake.add_recorded(*streams)

    if batches is not None:
        yield from batches
        remaining = RawMessages.of(())

    for raw in chain(remaining.rows(), fixes.rows()):  # each fix finds its pose by its stamp
        role = plan.roles[raw.topic]
        if raw.type != plan.types[raw.topic]:
            intake.add_unreadable(role, f"{plan.path.name}: {_of_another_type(raw, plan)}")
            continue
        try:
            message = deserialize(raw)
        except UnreadableError as error:
            intake.add_unreadable(role, f"{plan.path.name}: {error.why}")
            continue
        feed(intake, role, message, raw.stamp_ns)

    yield from intake.batches()


def _of_another_type(raw: RawMessage, plan: BagPlan) -> str:
    """What is wrong with a message whose type is not the one that its topic is read as."""
    return (
        f"the message recorded on {raw.topic} at {raw.stamp_ns} ns is a {one_line(raw.type, 100)}, and the "
        f"topic is read as {plan.types[raw.topic]}"
    )


def _streams(plan: BagPlan, chunk: RawMessages) -> tuple[Stream, Stream] | None:
    """Measurements and poses of a chunk as columns.

    None where the chunk holds other messages, or messages that have no common layout.
    """
    roles, there = plan.roles, set(chunk.topics)
    # exactly one topic of each
    if sorted(roles[topic] for topic in there) != ["measurement", "pose"]:
        return None

    streams = {}
    recorded = np.array(chunk.stamps)
    for topic in there:
        kind = plan.types[topic]
        positions = [i for i, name in enumerate(chunk.topics) if name == topic]
        messages = chunk.select(positions)
        columns = columns_of(messages.data, kind, STORE) if set(messages.types) == {kind} else None
        if columns is None:
            return None
        where = np.array(positions)
        streams[roles[topic]] = Stream(where, recorded[where], columns)
    return streams["measurement"], streams["pose"]

"""Bags -> Intake -> whoever wants the samples: the loop that `map` runs for training and for testing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rosbags.interfaces import Nodetype
from tqdm import tqdm

from gp_mapping.core.types import Samples
from gp_mapping.intake import Intake, inputs_of
from gp_mapping.intake.columns import Stream
from gp_mapping.intake.fixes import ROLE as FIX
from gp_mapping.intake.poses.messages import POSE_MESSAGES, TF_MESSAGE
from gp_mapping.intake.topics import Input, feed
from gp_mapping.recording.bag import (
    STORE,
    BagError,
    RawMessage,
    UnreadableError,
    bag_topics,
    choose_topic,
    deserialize,
    read_raw,
)
from gp_mapping.recording.cdr import columns_of
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.sensors import SENSOR_TYPES

__all__ = ["BagPlan", "plan_bags", "samples_of"]

_TOGETHER = 2000  # messages that are read at once; the samples do not depend on it
_FIRST = 510  # as many of the first, which come one by one while they decide on frames


class BagPlan(NamedTuple):
    """One bag, what each of its topics is to the intake, and how many messages they have in all."""

    path: Path
    roles: dict[str, str]
    count: int


def plan_bags(
    bags, settings: IntakeSettings, names: dict[str, str | None], fixes: bool = False
) -> list[BagPlan]:
    """What to read of each bag. names: role (measurement, pose) -> topic, None: the only one of its type.

    fixes: those of `fix_topic`, too, for who takes them from the intake.

    Raises BagError where a bag cannot be read, or has no such topic, or several.
    """
    if isinstance(bags, str | Path):
        bags = [bags]
    plans = []
    for bag in bags:
        there = bag_topics(bag)
        roles = {
            topic: one.role
            for one in inputs_of(settings)
            if (fixes or one.role != FIX)
            and (topic := _topic(bag, there, one, names.get(one.role), settings)) is not None
        }
        plans.append(BagPlan(Path(bag), roles, sum(there[topic][1] for topic in roles)))
    return plans


def _topic(bag, there, one: Input, name: str | None, settings: IntakeSettings) -> str | None:
    """The topic of one input; None for /tf_static, or fixes, that are not there. An error names what mends it."""
    try:
        return _found(bag, there, one, name, settings)
    except BagError as error:
        raise BagError(f"{error}{_mend(there, one.role, name, settings)}") from error


def _found(bag, there, one: Input, name: str | None, settings: IntakeSettings) -> str | None:
    if one.role == FIX:  # a day without a receiver is mapped all the same
        names = one.topic, f"/{one.topic.lstrip('/')}"
        return next((t for t in names if t in there and there[t][0] in one.messages), None)
    if one.role not in ("tf", "tf_static"):
        scalar = one.role == "measurement" and settings.sensor == "scalar"
        topic = choose_topic(bag, there, one.messages, name, any_kind=scalar)
        if scalar and there[topic][0] in STORE.fielddefs and not _is_number(there[topic][0]):
            raise BagError(
                f"{bag}: topic {topic} is a {there[topic][0]}, which has no number called data or value"
            )
        return topic
    found = [
        t for t, (kind, n) in there.items() if kind in one.messages and n and t.endswith(one.topic)
    ]
    if len(found) > 1:
        found = [t for t in found if t == one.topic] or found
        if len(found) > 1:
            raise BagError(
                f"{bag}: several topics that end in {one.topic}: {', '.join(found)}; expected one of them"
            )
    # a robot's mounting may be in /tf_static only, and a bag without /tf_static may hold all its links in /tf
    if not found and one.role == "tf" and settings.pose_source == "tf":
        return choose_topic(bag, there, one.messages, one.topic)
    return found[0] if found else None


def _mend(there, role: str, name: str | None, settings: IntakeSettings) -> str:
    """The setting with which this bag, or this topic of it, would do; "" where there is none."""
    if name is not None:
        kinds = {there[topic][0] for topic in (name, "/" + name.lstrip("/")) if topic in there}
    else:
        kinds = {kind for kind, n in there.values() if n}
    if role == "measurement":
        option, now = "sensor", settings.sensor
        fitting = [sensor for sensor, kind in SENSOR_TYPES.items() if kinds & set(kind.messages)]
    else:
        option, now = "pose_source", settings.pose_source
        fitting = [
            source for source, kind in {**POSE_MESSAGES, "tf": TF_MESSAGE}.items() if kind in kinds
        ]
    words = [f"--set {option}={word}" for word in fitting if word != now]
    if words and now not in fitting:
        return f"; write {' or '.join(words)} (or {option}: in --params)"
    if role != "measurement" or fitting:
        return ""
    wanted = there if name is None else (name, "/" + name.lstrip("/"))
    one = next(
        (topic for topic, (kind, n) in there.items() if n and topic in wanted and _is_number(kind)),
        None,
    )
    given = "" if now == "scalar" else "--set sensor=scalar "
    return (
        f"; {one} has one number in a message: write {given}--field-topic {one}"
        if one is not None
        else ""
    )


def _is_number(kind: str) -> bool:
    """Whether messages of this type have a number called data or value, which sensor: scalar maps."""
    fields = dict(STORE.fielddefs[kind][1]) if kind in STORE.fielddefs else {}
    found = next((fields[name] for name in ("data", "value") if name in fields), None)
    return (
        found is not None
        and found[0] == Nodetype.BASE
        and found[1][0].startswith(("int", "uint", "float"))
    )


def samples_of(
    plans: list[BagPlan],
    intake: Intake,
    label: str,
    together: int = _TOGETHER,
    shown: bool = True,
    skip: int = 0,
    taken: Callable[[int], None] | None = None,
) -> Iterator[tuple[bool, Samples]]:
    """(begins a new pass, samples) of bags in the order given, with a progress bar where stderr is a terminal.

    together: messages that are read at once; the samples do not depend on it.
    skip: messages of these plans that the intake has had already, by an earlier call that ended before its time.
    taken: told how many messages the intake has had, each time that whoever asks for samples has had all of theirs.
    """
    total, seen = sum(plan.count for plan in plans), 0
    hidden = not (
        shown and sys.stderr.isatty()
    )  # in a file the one line that says what went wrong is to stand alone
    with tqdm(
        total=total, desc=label, unit=" messages", file=sys.stderr, mininterval=0.3, disable=hidden
    ) as bar:
        for plan in plans:
            stored = read_raw(plan.path, list(plan.roles))
            had = sum(1 for _ in islice(stored, skip - seen)) if seen < skip else 0
            seen += had
            bar.update(had)
            while chunk := list(islice(stored, together if seen else min(together, _FIRST))):
                yield from _samples(intake, plan, chunk)
                seen += len(chunk)
                bar.update(len(chunk))
                if taken is not None:
                    taken(seen)
        yield from intake.batches(finish=True)
        bar.update(total - seen)


def _samples(
    intake: Intake, plan: BagPlan, chunk: list[RawMessage]
) -> Iterator[tuple[bool, Samples]]:
    """Stored messages through the intake: together where nothing in them is out of the ordinary, else one by one.

    One message that no reader understands does not cost the others: it is counted, and the first ones are named.
    """
    fixes = [raw for raw in chunk if plan.roles[raw.topic] == FIX]
    rest = [raw for raw in chunk if plan.roles[raw.topic] != FIX] if fixes else chunk
    streams = _streams(plan.roles, rest)
    taken = None if streams is None else intake.take_together(*streams)
    if taken is not None:
        yield from taken
        rest = []
    for raw in [*rest, *fixes]:  # each fix finds its pose by its stamp
        role = plan.roles[raw.topic]
        try:
            message = deserialize(raw)
        except UnreadableError as error:
            intake.add_unreadable(role, f"{plan.path.name}: {error.why}")
            continue
        feed(intake, role, message, raw.stamp_ns)
    yield from intake.batches()


def _streams(roles: dict[str, str], chunk: list[RawMessage]) -> tuple[Stream, Stream] | None:
    """The measurements and the poses of a chunk as columns; None where it holds others, or some that have no layout."""
    members: dict[str, list[int]] = {}
    for i, raw in enumerate(chunk):
        members.setdefault(raw.topic, []).append(i)
    if sorted(roles[topic] for topic in members) != ["measurement", "pose"]:
        return None

    streams = {}
    for topic, places in members.items():
        kinds = {chunk[i].type for i in places}
        columns = (
            columns_of([chunk[i].data for i in places], kinds.pop(), STORE)
            if len(kinds) == 1
            else None
        )
        if columns is None:
            return None
        recorded = np.array([chunk[i].stamp_ns for i in places])
        streams[roles[topic]] = Stream(np.array(places), recorded, columns)
    return streams["measurement"], streams["pose"]

"""Tells whether a bag has been mapped before, by its first messages, wherever its file lies."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from itertools import combinations, islice
from pathlib import Path

from gp_mapping.intake.fixes import ROLE as FIX
from gp_mapping.intake.sensors.sketch import MEASURED, Sketch
from gp_mapping.recording.bag import (
    STORE,
    BagError,
    RawMessage,
    bag_span,
    bag_topics,
    pass_over,
    read_raw,
    read_span,
)
from gp_mapping.recording.replay import BagPlan

__all__ = [
    "mapped_before",
    "marks_of",
    "no_test",
    "note_mapped",
    "note_marks",
    "recordings_in",
    "require_distinct",
    "require_new",
]

_FIRST = 64  # messages that tell one recording from another
_SHARED = 3  # measurements in two bags that are no chance; their stamps are equal to the nanosecond
_SLACK = 10 * 10**9  # ns; two recorders receive one message at different times
_MAPPED = "recordings"  # in `about` of a session
_FILES = (".mcap", ".db3")


def marks_of(plan: BagPlan) -> set[str]:
    """What a recording is recognised by, also a copy of it in another format.

    A recording that a recorder has split has one for each of its files, so that one of these alone
    is recognised, too.
    """
    # a map has fixes or not: that says nothing about its measurements
    topics = [topic for topic, role in plan.roles.items() if role != FIX]
    files = (
        sorted(p for p in plan.path.iterdir() if p.suffix in _FILES) if plan.path.is_dir() else []
    )
    marks = {_digest_of(plan.path, topics)}
    for file in files if len(files) > 1 else []:
        try:
            there = bag_topics(file)
        except BagError:  # nothing is left of it
            continue
        found = [topic for topic in topics if topic in there and there[topic][1]]
        if found:
            marks.add(_digest_of(file, found))
    return marks


def _digest_of(path: Path, topics: list[str]) -> str:
    """Digest of the first messages of these topics."""
    digest = hashlib.sha256()
    for raw in islice(read_raw(path, topics, on_loss=pass_over), _FIRST):
        digest.update(str(raw.stamp_ns).encode() + bytes(raw.data))
    return digest.hexdigest()[:16]


def recordings_in(about: dict) -> set[str]:
    """Marks of the bags in a map, by `about` of its session; the node notes none."""
    noted = about.get(_MAPPED)
    return {str(mark) for mark in noted} if isinstance(noted, list) else set()


def mapped_before(plans: list[BagPlan], about: dict) -> list[BagPlan]:
    """Bags whose measurements are in a map.

    Args:
        plans: of the bags.
        about: of the map's session.
    """
    known = recordings_in(about)
    return [plan for plan in plans if marks_of(plan) & known] if known else []


def no_test(option: str, plans: list[BagPlan], tested: Sketch, about: dict) -> list[str]:
    """Sentences on what is given as a test of a map and is in it.

    Args:
        option: by which it was given.
        plans: of the bags.
        tested: of their measurements.
        about: of the map's session.
    """
    words = "its scores are no test on measurements that the map has not seen"
    whole = [
        f"{option}: {plan.path} is in the map: {words}" for plan in mapped_before(plans, about)
    ]
    if whole or not Sketch(about.get(MEASURED, "")).shares(tested):
        return whole
    return [f"{option}: some of its measurements are in the map: {words}"]


def require_distinct(plans: list[BagPlan]) -> None:
    """Check that no bag is a copy of another, or a file of it, nor begins within another.

    Raises:
        BagError: one is, or does.
    """
    first: dict[str, BagPlan] = {}
    for plan in plans if len(plans) > 1 else []:
        marks = marks_of(plan)
        same = next((first[mark] for mark in marks if mark in first), None)
        if same is not None:
            raise BagError(
                f"{plan.path}: its measurements are those of {same.path}, and would count twice; leave one of them out"
            )
        first |= dict.fromkeys(marks, plan)

    spans = {plan.path: bag_span(plan.path) for plan in plans if len(plans) > 1}
    for pair in combinations(plans, 2):
        earlier, later = sorted(pair, key=lambda plan: spans[plan.path])
        begun, ended = spans[later.path][0], spans[earlier.path][1]
        if begun <= ended + _SLACK and _begins_within(earlier, later, begun):
            raise BagError(
                f"{later.path}: its first measurements are in {earlier.path}, too, and would count twice: two "
                "recorders have run at once; leave one of them out, or cut one where the other begins or ends"
            )


def _begins_within(earlier: BagPlan, later: BagPlan, begun: int) -> bool:
    """Whether the first measurements of a bag, recorded from `begun` (ns) on, are in another."""
    stored = read_raw(later.path, _measured(later), on_loss=pass_over)
    first = list(islice(stored, _FIRST))
    if not first:
        return False
    known = {_identity(raw) for raw in first}
    there = read_span(earlier.path, _measured(earlier), begun - _SLACK, first[-1].stamp_ns + _SLACK)
    return len(known & {_identity(raw) for raw in there}) >= min(_SHARED, len(known))


def _measured(plan: BagPlan) -> list[str]:
    """Topics of a bag's measurements."""
    return [topic for topic, role in plan.roles.items() if role == "measurement"]


def _identity(raw: RawMessage) -> Hashable:
    """What no two measurements share: the bytes with their stamp, else when they were recorded."""
    fields = STORE.fielddefs[raw.type][1] if raw.type in STORE.fielddefs else ()
    stamped = any(name == "header" for name, _ in fields)
    return bytes(raw.data) if stamped else (raw.stamp_ns, bytes(raw.data))


def require_new(plans: list[BagPlan], about: dict, name) -> None:
    """Check that no bag is in a map already.

    Args:
        plans: of the bags.
        about: of the session that would go on with them.
        name: of the saved map.

    Raises:
        BagError: one is.
    """
    for plan in mapped_before(plans, about)[:1]:
        raise BagError(
            f"{plan.path} is in the map {name} already, and its measurements would count twice; leave it out, or "
            "begin a new map without --resume"
        )


def note_mapped(plans: list[BagPlan], about: dict, others: Iterable[dict] = ()) -> None:
    """Note in `about` of a session that its map holds these bags.

    Args:
        plans: of the bags.
        about: of the session.
        others: `about` of sessions that were merged into it, whose bags it holds, too.
    """
    marks = [marks_of(plan) for plan in plans] + [recordings_in(other) for other in others]
    note_marks(set().union(*marks), about)


def note_marks(marks: set[str], about: dict) -> None:
    """Note in `about` of a session that its map holds recordings of these marks."""
    held = recordings_in(about) | marks
    if held:
        about[_MAPPED] = sorted(held)

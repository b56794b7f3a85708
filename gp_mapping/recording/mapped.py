"""Tells whether a bag has been mapped before, by its first messages, wherever its file lies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import islice

from gp_mapping.recording.bag import BagError, read_raw
from gp_mapping.recording.replay import BagPlan

__all__ = ["mapped_before", "no_test", "note_mapped", "recordings_in", "require_new"]

_FIRST = 64  # messages that tell one recording from another
_MAPPED = "recordings"  # in `about` of a session


def _digest_of(plan: BagPlan) -> str:
    """The same for the same recording, also of a copy in another format."""
    digest = hashlib.sha256()
    for raw in islice(read_raw(plan.path, list(plan.roles)), _FIRST):
        digest.update(str(raw.stamp_ns).encode() + bytes(raw.data))
    return digest.hexdigest()[:16]


def recordings_in(about: dict) -> set[str]:
    """Digests of the bags in a map, by `about` of its session; the node notes none."""
    noted = about.get(_MAPPED)
    return {str(digest) for digest in noted} if isinstance(noted, list) else set()


def mapped_before(plans: list[BagPlan], about: dict) -> list[BagPlan]:
    """Those of the bags whose measurements are in a map, by `about` of its session."""
    known = recordings_in(about)
    return [plan for plan in plans if _digest_of(plan) in known] if known else []


def no_test(option: str, plans: list[BagPlan], about: dict) -> list[str]:
    """A sentence for each bag that is given as a test of a map and is in it.

    Args:
        option: by which it was given.
        plans: of the bags.
        about: of the map's session.
    """
    return [
        f"{option}: {plan.path} is in the map: its scores are no test on measurements that the map has not seen"
        for plan in mapped_before(plans, about)
    ]


def require_new(plans: list[BagPlan], about: dict, name) -> None:
    """Raise BagError where a bag is in a map already.

    Args:
        plans: of the bags.
        about: of the session that would go on with them.
        name: of the saved map.
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
    held = recordings_in(about).union(map(_digest_of, plans), *map(recordings_in, others))
    if held:
        about[_MAPPED] = sorted(held)

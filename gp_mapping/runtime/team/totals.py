"""What a map knows, as it is sent to others and summed with theirs: the state of its session without its work in hand.

Left out are the open cell, what waits to be confirmed, the snapshots behind scores: all of it begins anew. A map's id
tells whose totals replace whose: those of one id replace each other, those of two ids add up.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass

from gp_mapping.core.stored import StoredState
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = [
    "HEAD",
    "MADE_OF",
    "MAP_ID",
    "Totals",
    "map_ids",
    "stored_in",
    "totals_of",
    "young_state",
]

HEAD = "head"  # name of the part that holds all but the tiles
MAP_ID, MADE_OF = (
    "map_id",
    "made_of",
)  # in session.about: of this map, and of those that went into it before


@dataclass(frozen=True)
class Totals:
    """Of one moment.

    map_id: of which map.  number: grows with every change of that map.  state: of its session, tiles as StoredStates.
    key: as MapWorker.key, of the same moment.
    """

    map_id: str
    number: int
    state: dict
    key: tuple


def totals_of(session: MapSession, key: tuple = ()) -> Totals | None:
    """In the map's thread; None while a map is too young to be added to another."""
    if not session.cell_count or session.opening:
        return None
    if not session.about.get(MAP_ID):
        session.about[MAP_ID] = uuid.uuid4().hex
    state = session.state_dict()
    scores = state["scores"] | {"snapshots": [], "picked": [], "last": None}
    first = state["first_values"] | {"first": [], "held": [], "early": None}
    start = state["start"] | {"cells": [], "open": False}
    out = {
        name: value
        for name, value in state.items()
        if name not in ("cells", "raw", "track", "settings")
    }
    out |= {
        "settings": asdict(session.started_settings),
        "scores": scores,
        "first_values": first,
        "start": start,
        "again": None,
        "pass_open": False,
        "map": session.map.slimmed(state["map"]),
    }
    return Totals(session.about[MAP_ID], session.revision, out, key)


def young_state(settings: MapSettings) -> dict:
    """The state of a session that has seen nothing: what stands where totals leave something out."""
    return MapSession(settings).state_dict()


def stored_in(value) -> dict[str, StoredState]:
    """The tiles in a state, by name."""
    if isinstance(value, StoredState):
        return {value.name: value}
    each = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {name: part for one in each for name, part in stored_in(one).items()}


def map_ids(about: dict) -> set[str]:
    """Of which maps this one is made: none of them may be added to it again."""
    before = about.get(MADE_OF)
    ids = [about.get(MAP_ID), *(before if isinstance(before, list) else [])]
    return {each for each in ids if isinstance(each, str) and each}

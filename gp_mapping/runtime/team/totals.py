"""Totals: what a map knows, as it is sent to other robots and summed with their maps.

They are the state of the map's session without its unfinished work: the open cell, what waits to be
confirmed, and the snapshots behind scores all begin anew. Totals of one map id replace each other,
those of two ids add up.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass

from gp_mapping.core.stored import StoredState
from gp_mapping.intake.sensors.sketch import MEASURED
from gp_mapping.mapping.session import MapSession

__all__ = [
    "HEAD",
    "MADE_OF",
    "MAP_ID",
    "Totals",
    "map_ids",
    "stored_states",
    "totals_of",
]

HEAD = "head"  # name of the part with everything but the tiles
# keys of session.about: the id of this map, and the ids of those that were merged into it
MAP_ID, MADE_OF = ("map_id", "made_of")


@dataclass(frozen=True)
class Totals:
    """A map's totals at one moment.

    Attributes:
        map_id: of the map.
        number: grows with every change of that map.
        state: of its session, with tiles as StoredStates.
        key: MapWorker.key of the same moment.
    """

    map_id: str
    number: int
    state: dict
    key: tuple


def totals_of(session: MapSession, key: tuple = ()) -> Totals | None:
    """Take the totals of a session, in the map's thread.

    Args:
        session: it gets a map id where it has none.
        key: MapWorker.key now.

    Returns:
        None while the map is too young to be added to another.
    """
    if not session.cell_count or session.is_opening:
        return None

    if not session.about.get(MAP_ID):
        session.about[MAP_ID] = uuid.uuid4().hex

    # without unfinished work
    state = session.state_dict()
    scores = state["scores"] | {"snapshots": [], "picked": [], "last": None}
    # an alarm that waits for more cells is decided by this robot alone
    scores["run"] = scores["run"] | {"rows": [], "alarms": [], "waited": 0}
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
        "suspects": [],
        "first_values": first,
        "start": start,
        # the cells with which a slow sensor's map may begin again: nobody else begins it
        "response": state["response"] | {"kept": None, "open": [], "last": None},
        "drift": state["drift"] | {"kept": None},
        "frames": state["frames"] | {"kept": None},
        "again": None,
        "renewal": None,
        "pass_open": False,
        # long, and for recordings: what of a robot's map counts twice is known by the map's id
        "about": {name: value for name, value in state["about"].items() if name != MEASURED},
        "map": session.map.slimmed(state["map"]),
    }
    return Totals(session.about[MAP_ID], session.revision, out, key)


def stored_states(value) -> dict[str, StoredState]:
    """The tiles in a state, by name."""
    if isinstance(value, StoredState):
        return {value.name: value}
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return {name: part for child in children for name, part in stored_states(child).items()}


def map_ids(about: dict) -> set[str]:
    """Ids of the maps that this one is made of; none of them may be added to it again."""
    before = about.get(MADE_OF)
    ids = [about.get(MAP_ID), *(before if isinstance(before, list) else [])]
    return {map_id for map_id in ids if isinstance(map_id, str) and map_id}

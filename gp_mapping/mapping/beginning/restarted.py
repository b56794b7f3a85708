"""The map of the first cells made again with other starts, next to the one that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Samples
from gp_mapping.mapping.feeding import absorb_batch, forget_elapsed

__all__ = ["RestartedMap"]

_TOGETHER = 8  # batches of earlier cells that go in with each new one


class RestartedMap:
    """A map on its way: it takes some of the first cells with each new one.

    Args:
        field: empty, with the new starts.
        rough: whether the starts before were little more than a guess.

    Attributes:
        map: the same field.
        used: batches of first cells that it has seen.
        taken: what it took of them.
        last_stamp: up to which it has forgotten, s.
    """

    def __init__(self, field: FieldMap, rough: bool):
        self.map, self.rough = field, rough
        self.used = 0
        self.taken: list[Samples] = []
        self.last_stamp: float | None = None

    def feed(
        self,
        cells: list[Samples],
        forgetting_time: float,
        refuse: Callable[[Samples, Exception], None],
    ) -> bool:
        """Feed some more of the cells to the map, which forgets between two batches.

        Args:
            cells: all first cells, batch by batch.
            forgetting_time: s; 0: nothing is forgotten.
            refuse: called with each single sample that the map refuses, and the reason.

        Returns:
            Whether the map has seen all of them.
        """
        # bounded work with each new cell, however many there are
        for batch in cells[self.used : self.used + _TOGETHER]:
            stamp = forget_elapsed(self.map, forgetting_time, self.last_stamp, batch)
            taken = [part for part, _ in absorb_batch(self.map, batch, refuse)]
            self.taken += taken
            self.last_stamp = stamp
            self.used += 1
        return self.used >= len(cells)

    def state_dict(self) -> dict:
        """Return the map's state and how many of the first cells it has seen."""
        return {
            "map": self.map.state_dict(),
            "rough": self.rough,
            "used": self.used,
            "last_stamp": self.last_stamp,
            "taken": [{f.name: getattr(c, f.name) for f in fields(c)} for c in self.taken],
        }

    @staticmethod
    def restored(state: dict, field: FieldMap) -> RestartedMap:
        """Continue where state_dict was taken.

        Args:
            state: as of state_dict.
            field: an empty map with the new starts, which takes the saved state.
        """
        again = RestartedMap(field, bool(state["rough"]))
        field.load_state_dict(state["map"])
        again.used, again.last_stamp = int(state["used"]), state["last_stamp"]
        again.taken = [Samples(**c) for c in state["taken"]]
        return again

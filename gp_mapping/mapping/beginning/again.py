"""The map of the first cells made again with other starts, beside the one that answers: some with each new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Samples

__all__ = ["Again"]

_TOGETHER = 8  # cells of before that go in with each new one


class Again:
    """A map on its way.

    Args:
        field: empty, with the new starts.
        rough: whether the starts before were little more than a guess.
    """

    def __init__(self, field: FieldMap, rough: bool):
        self.map, self.rough = field, rough
        self.used = 0  # of the batches of first cells
        self.taken: list[Samples] = []  # what the map took of them
        self.last_stamp: float | None = None

    def go_on(
        self, cells: list[Samples], feed: Callable[[FieldMap, float | None, Samples], tuple]
    ) -> bool:
        """Some of the cells more; whether the map has seen all of them.

        feed: lets a map forget since a stamp, and take in and learn from a batch: what it took, and the new stamp.
        """
        for batch in cells[self.used : self.used + _TOGETHER]:
            taken, self.last_stamp = feed(self.map, self.last_stamp, batch)
            self.taken += taken
            self.used += 1
        return self.used >= len(cells)

    def state_dict(self) -> dict:
        return {
            "map": self.map.state_dict(),
            "rough": self.rough,
            "used": self.used,
            "last_stamp": self.last_stamp,
            "taken": [{f.name: getattr(c, f.name) for f in fields(c)} for c in self.taken],
        }

    @staticmethod
    def restored(state: dict, field: FieldMap) -> Again:
        """field: an empty map with the new starts."""
        new = Again(field, bool(state["rough"]))
        field.load_state_dict(state["map"])
        new.used, new.last_stamp = int(state["used"]), state["last_stamp"]
        new.taken = [Samples(**c) for c in state["taken"]]
        return new

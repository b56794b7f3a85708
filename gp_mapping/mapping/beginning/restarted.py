"""The map of the first cells made again with other starts, next to the one that answers.

All of the cells are there, so they enter together: one update with many samples reaches the sites
that as many updates make at the same inducing inputs, and the learner looks at all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from itertools import groupby

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Samples
from gp_mapping.mapping.feeding import absorb_batch, forget_elapsed

__all__ = ["RestartedMap"]

_TOGETHER = 32  # earlier cells that go in with each new one, in one update
_BATCHES = 8  # batches of them at least; one by one, where the map forgets between two


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
            forgetting_time: s; 0: nothing is forgotten, and batches go in together.
            refuse: called with each single sample that the map refuses, and the reason.

        Returns:
            Whether the map has seen all of them.
        """
        ahead = cells[self.used :]
        blocks = [[batch] for batch in ahead[:_BATCHES]] if forgetting_time > 0 else _blocks(ahead)
        for block in blocks:
            cell = block[0] if len(block) == 1 else Samples.concatenate(block)
            stamp = forget_elapsed(self.map, forgetting_time, self.last_stamp, cell)
            self.taken += [part for part, _ in absorb_batch(self.map, cell, refuse)]
            self.last_stamp = stamp
            self.used += len(block)
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


def _blocks(ahead: list[Samples]) -> list[list[Samples]]:
    """The next batches, those with the same columns as one block: bounded work with each new one.

    Args:
        ahead: all batches that the map has not seen, with the newest at the end.
    """
    room = max(_TOGETHER, _BATCHES * len(ahead[-1])) if ahead else 0
    count = 0
    while count < len(ahead) and (not count or len(ahead[count]) <= room):
        room, count = room - len(ahead[count]), count + 1
    runs = groupby(
        ahead[:count], lambda each: [getattr(each, f.name) is None for f in fields(each)]
    )
    return [list(run) for _, run in runs]

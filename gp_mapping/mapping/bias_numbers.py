"""Which samples share a constant: each pass has a number, and a segment each `bias_time`."""

from __future__ import annotations

import math
from collections import OrderedDict

from gp_mapping.core.hyper.bias import SEGMENT
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.types import Samples

__all__ = ["BiasNumbers"]

_REMEMBERED = 1000  # newest numbers whose beginning is kept


class BiasNumbers:
    """Numbers cells by their pass, whole numbers, and by its segments, fractions of one.

    A pass of more segments than there are fractions goes on as another one.

    Args:
        time: s after which another segment of a pass begins; 0: never.

    Attributes:
        number: the newest.
        began: of each of the newest numbers its pass, counted from 1, and its first stamp, s.
    """

    def __init__(self, time: float):
        self.time, self.number = time, NO_PASS
        self.began: OrderedDict[float, tuple[int, float]] = OrderedDict()

    def with_numbers(self, batch: Samples, passes: int) -> Samples:
        """A cell, or raw samples of one moment, with the number of its pass.

        Args:
            batch: the cell.
            passes: how many passes have begun so far.
        """
        stamp = 0.0 if batch.stamp is None else float(batch.stamp[-1])

        newest = self.began.get(self.number)
        another = newest is None or newest[0] != passes
        # the same pass for longer than a sensor's bias stays
        if another or (self.time > 0 and stamp - newest[1] >= self.time):
            self.number = math.floor(self.number) + 1.0 if another else self.number + SEGMENT
            self.began[self.number] = passes, stamp
            if len(self.began) > _REMEMBERED:
                self.began.popitem(last=False)

        return batch.of_pass(self.number)

    def join(self, other: "BiasNumbers") -> None:
        """Number on after another session's map was added, its passes numbered after these."""
        self.number = math.floor(self.number) + 1.0 + other.number
        # so the pass that goes on gets a new number, too
        self.began.clear()

    def state_dict(self) -> dict:
        """Return time, newest number, and pass and stamp (s) at which each one began."""
        return {
            "time": self.time,
            "number": self.number,
            "began": [[n, *what] for n, what in self.began.items()],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken; a time that is set counts, else the one there."""
        self.time = self.time or float(state.get("time", 0.0))
        self.number = float(state["number"])
        self.began = OrderedDict(
            (float(n), (int(passes), float(stamp))) for n, passes, stamp in state["began"]
        )

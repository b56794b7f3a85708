"""Which cells a map gets, and in what order: numbers of passes, first values, a sensor's warm-up.

    cell → number of its pass → had the sensor begun to measure? → is it one of the first cells?
         → does it wait until the next ones confirm it? → the map

Whatever takes the cells is a `CellTaker`: a growing map, or a reader of a fleet's bags.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.first_values import FirstValues
from gp_mapping.mapping.bias_numbers import BiasNumbers
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.mapping.growing.counts import SampleCounts
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Admission", "CellTaker"]


class CellTaker(Protocol):
    """What takes the cells that are admitted."""

    def open_with(self, first: Samples, cell: Samples, length: float) -> None:
        """Take one more of the first few cells.

        Args:
            first: all of the first cells so far that are not far from their median.
            cell: the new one.
            length: of the path when it came, m.
        """

    def absorb(self, cell: Samples, length: float) -> None:
        """Take a cell that is none of the first.

        Args:
            cell: it.
            length: of the path when it, or the one that confirms it, came, m.
        """

    def begin_over(self) -> None:
        """Drop all cells so far: those that were no warm-up of the sensor come once more."""

    def is_settled(self) -> bool:
        """Whether there is a map that can judge cells by itself."""


class Admission:
    """Decides which cells one map gets.

    Args:
        settings: of the map.
        gathered: where its cells come from.
        bias_time: s after which a pass gets another constant; 0: never.

    Attributes:
        first: the first values, and cells that wait to be confirmed.
        bias: numbers of passes that have a constant of their own.
        counts: raw samples that were used, or not.
    """

    def __init__(self, settings: MapSettings, gathered: Gathering, bias_time: float):
        self._settings, self._gathered = settings, gathered
        self.first = FirstValues(settings)
        self.bias = BiasNumbers(bias_time)
        self.counts = SampleCounts()

    def admit(self, cell: Samples, passes: int, length: float, taker: CellTaker) -> None:
        """Hand over what the map is to get, or all again where the sensor had not begun to measure.

        Args:
            cell: the new one.
            passes: number of its pass.
            length: of the path when it came, m.
            taker: gets it, once it is admitted.
        """
        if self._settings.has_biases:
            cell = self.bias.with_numbers(cell, passes)

        again = self.first.check_warm_up(cell, self._gathered.cells.resolution)
        if again is None:
            self._hand_over(cell, length, taker)
            return

        # the sensor's warm-up has spoiled what was measured of its white noise, too
        taker.begin_over()
        stamp = again[0].stamp
        unknown = self._gathered.forget_before(None if stamp is None else float(stamp[0]))
        for early_cell in again:
            variance = early_cell.sensor_variance
            if unknown and variance is not None:
                early_cell = replace(early_cell, sensor_variance=torch.zeros_like(variance))
            self._hand_over(early_cell, length, taker)

    def _hand_over(self, cell: Samples, length: float, taker: CellTaker) -> None:
        """Give a cell to the taker, unless it has to wait for the next ones (first_values.py)."""
        if self.first.is_open:
            taker.open_with(self.first.add_first(cell), cell, length)
            return

        for admitted in self.first.admit(cell, taker.is_settled()):
            taker.absorb(admitted, length)

    def join(self, other: Admission) -> None:
        """Add another map's counts and numbers of passes: neither begins again any more."""
        self.first.join(other.first.notes)
        self.bias.join(other.bias)
        self.counts.join(other.counts)

    @property
    def gross_errors(self) -> int:
        """Raw samples of cells that were left out as gross errors."""
        return self.first.gross

    def state_dict(self) -> dict:
        """Collect what an exact resume needs."""
        return {
            "first_values": self.first.state_dict(),
            "bias": self.bias.state_dict(),
            **self.counts.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken; `cell_count` is the map's number of cells."""
        if "bias" in state:  # else of a version in which no pass had a constant
            self.bias.load_state_dict(state["bias"])
        if "first_values" in state:  # in older maps the first cell has decided
            self.first.load_state_dict(state["first_values"])
        else:
            self.first.seen = state.get("cell_count", 0)
        self.counts.load_state_dict(state)

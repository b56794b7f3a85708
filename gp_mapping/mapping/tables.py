"""Numbers that are kept by squares of the ground, as one tensor that is quick to copy.

A snapshot is taken in the map's own thread. Twenty thousand small lists cost little to make, and
then a tenth of a second in which Python looks through them for garbage, in the middle of a
snapshot. One tensor holds the same numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

__all__ = ["Squares", "rows_of", "table_of"]


class Squares:
    """Rows of `width` numbers by squares of the ground, in the order in which squares were put.

    A square is a pair of whole numbers (i, j). The rows lie in one array, so that a copy of twenty
    thousand of them takes a millisecond.

    Args:
        width: numbers of each square.
    """

    def __init__(self, width: int):
        # square -> row of the array, in the order of putting
        self._slots: OrderedDict[tuple[int, int], int] = OrderedDict()
        # rows of squares that were taken away, to be used again
        self._free: list[int] = []
        # each row: the square, then its numbers
        self._rows = np.empty((64, 2 + width))
        # of each row, how many squares were put before; -1 where it holds none
        self._order = np.full(64, -1)
        self._count = 0  # squares that were put so far, those that were taken away among them

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, square: tuple[int, int]) -> bool:
        return square in self._slots

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._slots)

    def get(self, square: tuple[int, int]) -> list[float] | None:
        """Numbers of a square; None where it is not there."""
        slot = self._slots.get(square)
        return None if slot is None else self._rows[slot, 2:].tolist()

    def put(self, square: tuple[int, int], numbers) -> None:
        """Set the numbers of a square; a new one comes last.

        Args:
            square: its indices.
            numbers: (width,).
        """
        slot = self._slots.get(square)
        if slot is None:
            slot = self._slots[square] = self._free.pop() if self._free else len(self._slots)
            if slot == len(self._rows):
                self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
                self._order = np.concatenate([self._order, np.full_like(self._order, -1)])
            self._rows[slot, :2] = square
            self._order[slot] = self._count
            self._count += 1

        self._rows[slot, 2:] = numbers

    def pop(self, square: tuple[int, int]) -> list[float] | None:
        """Take a square away and return its numbers; None where it was not there."""
        numbers = self.get(square)
        if numbers is not None:
            self._give_back(self._slots.pop(square))
        return numbers

    def pop_oldest(self) -> list[float]:
        """Take away the square that was put first, and return its numbers."""
        slot = self._slots.popitem(last=False)[1]
        self._give_back(slot)
        return self._rows[slot, 2:].tolist()

    def _give_back(self, slot: int) -> None:
        """Let a row be used again."""
        self._free.append(slot)
        self._order[slot] = -1

    def numbers(self) -> np.ndarray:
        """Numbers of all squares: (K, width), in order."""
        return self._ordered()[:, 2:]

    def numbers_of(self, squares: Iterable[tuple[float, float]]) -> np.ndarray:
        """Numbers of some squares (K, width); zeros for those that are not there."""
        slots = np.fromiter((self._slots.get(square, -1) for square in squares), np.int64)
        numbers = self._rows[slots, 2:]
        numbers[slots < 0] = 0.0
        return numbers

    def table(self) -> Tensor:
        """Squares with their numbers: (K, 2 + width), a copy."""
        return torch.from_numpy(self._ordered())

    def load(self, table) -> None:
        """Replace all by what `table` made, or by nested lists (square, numbers)."""
        self._slots.clear()
        self._free.clear()
        self._order[:] = -1
        for square, numbers in rows_of(table):
            self.put(square, numbers)

    def _ordered(self) -> np.ndarray:
        # to walk through the dictionary takes ten times as long
        used = np.flatnonzero(self._order >= 0)
        return self._rows[used[np.argsort(self._order[used], kind="stable")]]


def table_of(rows: Mapping[tuple[int, int], object], names: Sequence[str]) -> Tensor:
    """Squares with their values as one tensor: (K, 2 + width).

    Args:
        rows: square -> an object with `width` floats.
        names: its attributes that are these.
    """
    values = chain.from_iterable(map(attrgetter(*names), rows.values()))
    return torch.from_numpy(
        np.column_stack(
            [
                np.fromiter(chain.from_iterable(rows), np.float64, 2 * len(rows)).reshape(-1, 2),
                np.fromiter(values, np.float64, len(names) * len(rows)).reshape(-1, len(names)),
            ]
        )
    )


def rows_of(table) -> Iterator[tuple[tuple[int, int], list[float]]]:
    """Iterate over (square, values) of a table of `table_of`, or of older maps' nested lists."""
    for i, j, *values in table.tolist() if isinstance(table, Tensor) else table:
        yield (int(i), int(j)), list(map(float, values))

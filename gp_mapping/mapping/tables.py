"""Numbers that are kept by squares of the ground, as one tensor that is quick to copy.

A snapshot is taken in the map's own thread. Twenty thousand small lists cost little to make, and
then a tenth of a second in which Python looks through them for garbage, in the middle of a
snapshot. One tensor holds the same numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

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
            self._rows[slot, :2] = square

        self._rows[slot, 2:] = numbers

    def pop(self, square: tuple[int, int]) -> list[float] | None:
        """Take a square away and return its numbers; None where it was not there."""
        numbers = self.get(square)
        if numbers is not None:
            self._free.append(self._slots.pop(square))
        return numbers

    def pop_oldest(self) -> list[float]:
        """Take away the square that was put first, and return its numbers."""
        slot = self._slots.popitem(last=False)[1]
        self._free.append(slot)
        return self._rows[slot, 2:].tolist()

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
        for square, numbers in rows_of(table):
            self.put(square, numbers)

    def _ordered(self) -> np.ndarray:
        return self._rows[np.fromiter(self._slots.values(), np.int64, len(self._slots))]


def table_of(rows: Mapping[tuple[int, int], object], width: int) -> Tensor:
    """Squares with their values as one tensor: (K, 2 + width).

    Args:
        rows: square -> `width` floats.
        width: number of values of each square.
    """
    flat = chain.from_iterable(chain.from_iterable(rows.items()))
    return torch.from_numpy(
        np.fromiter(flat, np.float64, len(rows) * (2 + width)).reshape(-1, 2 + width)
    )


def rows_of(table) -> Iterator[tuple[tuple[int, int], list[float]]]:
    """Iterate over (square, values) of a table of `table_of`, or of older maps' nested lists."""
    for i, j, *values in table.tolist() if isinstance(table, Tensor) else table:
        yield (int(i), int(j)), list(map(float, values))

"""What is counted by squares of the ground, as one tensor: a snapshot of it is taken in the map's thread.

Twenty thousand small lists cost little to make, and then a tenth of a second in which Python looks through them for
garbage, in the middle of a snapshot. One tensor holds the same numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np
import torch
from torch import Tensor

__all__ = ["Squares", "rows_of", "table_of"]


class Squares:
    """Rows of `width` numbers by squares of the ground, in the order in which they were put.

    The numbers lie in one array, so that a copy of twenty thousand rows takes a millisecond.
    """

    def __init__(self, width: int):
        self._slots: OrderedDict[tuple[int, int], int] = OrderedDict()  # square -> row of the array
        self._free: list[int] = []
        self._rows = np.empty((64, 2 + width))  # the square, then its numbers

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, square: tuple[int, int]) -> bool:
        return square in self._slots

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._slots)

    def get(self, square: tuple[int, int]) -> list[float] | None:
        """Its numbers; None where it is not there."""
        slot = self._slots.get(square)
        return None if slot is None else self._rows[slot, 2:].tolist()

    def put(self, square: tuple[int, int], numbers) -> None:
        """Its numbers from now on; a new square comes last."""
        slot = self._slots.get(square)
        if slot is None:
            slot = self._slots[square] = self._free.pop() if self._free else len(self._slots)
            if slot == len(self._rows):
                self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._rows[slot, :2] = square
        self._rows[slot, 2:] = numbers

    def pop(self, square: tuple[int, int]) -> list[float] | None:
        """Take it away; its numbers, None where it was not there."""
        numbers = self.get(square)
        if numbers is not None:
            self._free.append(self._slots.pop(square))
        return numbers

    def pop_oldest(self) -> list[float]:
        """Take away the one that was put first; its numbers."""
        slot = self._slots.popitem(last=False)[1]
        self._free.append(slot)
        return self._rows[slot, 2:].tolist()

    def numbers(self) -> np.ndarray:
        """(K, width), in order."""
        return self._ordered()[:, 2:]

    def table(self) -> Tensor:
        """(K, 2 + width): of each square its two numbers, then its own; a copy."""
        return torch.from_numpy(self._ordered())

    def load(self, table) -> None:
        """In place of all that is there, what table() made, or nested lists (square, numbers)."""
        self._slots.clear()
        self._free.clear()
        for square, numbers in rows_of(table):
            self.put(square, numbers)

    def _ordered(self) -> np.ndarray:
        return self._rows[np.fromiter(self._slots.values(), np.int64, len(self._slots))]


def table_of(rows: Mapping[tuple[int, int], object], width: int) -> Tensor:
    """(K, 2 + width): of each square its two numbers, then its values.

    Args:
        rows: square -> `width` floats.
        width: how many.
    """
    flat = chain.from_iterable(chain.from_iterable(rows.items()))
    return torch.from_numpy(
        np.fromiter(flat, np.float64, len(rows) * (2 + width)).reshape(-1, 2 + width)
    )


def rows_of(table) -> Iterator[tuple[tuple[int, int], list[float]]]:
    """(square, values) of what table_of made, or of the nested lists that stood in its place before."""
    for i, j, *values in table.tolist() if isinstance(table, Tensor) else table:
        yield (int(i), int(j)), list(map(float, values))

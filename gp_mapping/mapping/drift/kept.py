"""The cells so far, as the map got them, for a map that begins again with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import torch
from torch import Tensor

from gp_mapping.core.types import Samples

__all__ = ["KeptCells"]

_TOGETHER = 64  # cells in one table: one by one they take ten times the memory
_COLUMNS = tuple(f.name for f in fields(Samples))


class KeptCells:
    """Cells in order of time, each with the number of its pass.

    Attributes:
        rows: in all of them.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._tables: list[tuple[Samples, list[tuple[int, int]]]] = []
        self._open: list[tuple[Samples, int]] = []

    def __iter__(self) -> Iterator[tuple[Samples, int]]:
        for table, counts in self._tables:
            first = 0
            for rows, passes in counts:
                yield table[first : first + rows], passes
                first += rows
        yield from self._open

    def __len__(self) -> int:
        return self.rows

    def add(self, cell: Samples, passes: int) -> None:
        """Keep one more.

        Args:
            cell: it.
            passes: number of its pass.
        """
        if self._open and _present(cell) != _present(self._open[0][0]):
            self._close()
        self._open.append((cell, passes))
        self.rows += len(cell)
        if len(self._open) >= _TOGETHER:
            self._close()

    def tables(self) -> tuple[list[Samples], Tensor]:
        """All cells in a few tables, and the number of the pass of each row (N,)."""
        whole = [*self._tables, *([_table(self._open)] if self._open else [])]
        numbers = [p for _, counts in whole for rows, p in counts for _ in range(rows)]
        return [table for table, _ in whole], torch.tensor(numbers)

    def _close(self) -> None:
        """Put the open cells into a table."""
        self._tables.append(_table(self._open))
        self._open = []

    def state_dict(self) -> list:
        """For an exact resume."""
        tables = [*self._tables, *([_table(self._open)] if self._open else [])]
        return [
            {
                "cells": {name: getattr(table, name) for name in _COLUMNS},
                "counts": [list(each) for each in counts],
            }
            for table, counts in tables
        ]

    @staticmethod
    def restored(state: list) -> KeptCells:
        """The cells of which state_dict was taken."""
        out = KeptCells()
        for each in state:
            table, first = Samples(**each["cells"]), 0
            for rows, passes in each["counts"]:
                out.add(table[first : first + int(rows)], int(passes))
                first += int(rows)
        return out


def _present(cell: Samples) -> tuple[bool, ...]:
    """Which columns a cell has."""
    return tuple(getattr(cell, name) is not None for name in _COLUMNS)


def _table(cells: list[tuple[Samples, int]]) -> tuple[Samples, list[tuple[int, int]]]:
    """Cells in one, and of each its rows and the number of its pass."""
    return (
        Samples.concatenate([cell for cell, _ in cells]),
        [(len(cell), passes) for cell, passes in cells],
    )

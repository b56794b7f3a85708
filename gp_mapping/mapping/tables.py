"""What is counted by squares of the ground, as one tensor: a snapshot of it is taken in the map's thread.

Twenty thousand small lists cost little to make, and then a tenth of a second in which Python looks through them for
garbage, in the middle of a snapshot. One tensor holds the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np
import torch
from torch import Tensor

__all__ = ["rows_of", "table_of"]


def table_of(rows: Mapping[tuple[int, int], object], width: int) -> Tensor:
    """(K, 2 + width): of each square its two numbers, then its values.

    Args:
        rows: square -> `width` floats.
        width: how many.
    """
    flat = chain.from_iterable(chain.from_iterable(rows.items()))
    return torch.from_numpy(np.fromiter(flat, np.float64, len(rows) * (2 + width)).reshape(-1, 2 + width))


def rows_of(table) -> Iterator[tuple[tuple[int, int], list[float]]]:
    """(square, values) of what table_of made, or of the nested lists that stood in its place before."""
    for i, j, *values in table.tolist() if isinstance(table, Tensor) else table:
        yield (int(i), int(j)), list(map(float, values))

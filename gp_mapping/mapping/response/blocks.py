"""Cells of a slow sensor as rows, and blocks of them along the way.

A block is the mean of cells that lie within a step of its first one. Two blocks of a pass say what
the sensor would settle at between them (response.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.response.lag import step_weights
from gp_mapping.mapping.response.track import Track

__all__ = [
    "Row",
    "as_samples",
    "averaged",
    "blocks_of",
    "rows_of_cell",
    "rows_of_table",
    "settled",
    "table_of",
    "track_of",
    "way_between",
]


class Row(NamedTuple):
    """A cell, or a block of them.

    Attributes:
        x: place, m.
        y: value, SI.
        stamp: s.
        variance: white variance of y, squared SI.
        position: variance of x, m²; negative: not known.
        passes: number of its pass.
        count: cells that it averages.
        way: driven since the row before it in its pass, m.
    """

    x: tuple[float, float]
    y: float
    stamp: float
    variance: float
    position: float
    passes: int
    count: float
    way: float


def table_of(rows: list[Row]) -> torch.Tensor:
    """Rows as a table (n, 9), as a file holds them."""
    values = [[*row.x, *row[1:]] for row in rows]
    return torch.tensor(values, dtype=torch.float64).reshape(len(rows), 9)


def rows_of_table(table: torch.Tensor) -> list[Row]:
    """Rows from a table (n, 9) of `table_of`."""
    return [
        Row((values[0], values[1]), *values[2:6], int(values[6]), *values[7:])
        for values in torch.as_tensor(table).tolist()
    ]


def rows_of_cell(cell: Samples, passes: int, rounding: float) -> list[Row]:
    """The rows of a cell.

    Args:
        cell: one row, or some.
        passes: how many passes have begun.
        rounding: variance that rounding adds, however many samples a cell averages.
    """
    n = len(cell)
    white = [0.0] * n if cell.sensor_variance is None else cell.sensor_variance.tolist()
    count = [1.0] * n if cell.count is None else cell.count.tolist()
    position = [-1.0] * n if cell.position_variance is None else cell.position_variance.tolist()
    return [
        Row((x[0], x[1]), y[0], t, w / c + rounding, p, passes, 1.0, 0.0)
        for x, y, t, w, c, p in zip(
            cell.x.tolist(), cell.y.tolist(), cell.stamp.tolist(), white, count, position
        )
    ]


def way_between(before: Row | None, row: Row) -> float:
    """What was driven from one cell to the next, m; 0 to the first of a pass."""
    return math.dist(before.x, row.x) if before and before.passes == row.passes else 0.0


def averaged(rows: list[Row]) -> Row:
    """The mean of cells; its place about the first, whose coordinates may be 1e6 m."""
    n, first = sum(row.count for row in rows), rows[0]

    def mean(value: Callable[[Row], float]) -> float:
        about = value(first)
        return about + sum(row.count * (value(row) - about) for row in rows) / n

    return Row(
        (mean(lambda row: row.x[0]), mean(lambda row: row.x[1])),
        mean(lambda row: row.y),
        mean(lambda row: row.stamp),
        sum(row.count**2 * row.variance for row in rows) / n**2,
        mean(lambda row: row.position),
        first.passes,
        n,
        0.0,
    )


def settled(before: Row, block: Row, tau: float, blur: float, unsure: bool) -> Samples:
    """What two blocks of a pass say of the field between them.

    Args:
        before: the earlier one.
        block: the later one.
        tau: s.
        blur: as of Lag.
        unsure: whether τ is uncertain.
    """
    elapsed = block.stamp - before.stamp
    a, early, late = (
        float(part) for part in step_weights(torch.tensor(elapsed, dtype=torch.float64), tau)
    )
    late = late / (1.0 - a)

    def between(old: float, new: float) -> float:
        return old + late * (new - old)

    known = min(before.position, block.position) >= 0.0
    slope = a * elapsed / tau / (1.0 - a) ** 2 * (block.y - before.y)
    white = (block.variance + a**2 * before.variance) / (1.0 - a) ** 2
    # of the mean over the way that it is of, along that way; blocks as long as Δ
    spread = (tau / elapsed) ** 2 - a / (1.0 - a) ** 2 + 1.0 / 12
    white += blur * (spread * math.dist(before.x, block.x) ** 2) ** 2
    return Samples(
        x=[[between(*pair) for pair in zip(before.x, block.x)]],
        y=[[(block.y - a * before.y) / (1.0 - a)]],
        stamp=[between(before.stamp, block.stamp)],
        count=[1.0],
        sensor_variance=[white],
        velocity=[[(new - old) / elapsed for old, new in zip(before.x, block.x)]],
        position_variance=[max(before.position, block.position)] if known else None,
        response_slope=[slope] if unsure else None,
    )


def as_samples(before: Row, row: Row) -> Samples:
    """A cell as it came, but for its heading.

    Args:
        before: the cell before it.
        row: the cell.
    """
    elapsed = row.stamp - before.stamp if row.passes == before.passes else 0.0
    velocity = [(b - a) / elapsed if elapsed > 0 else 0.0 for a, b in zip(before.x, row.x)]
    return Samples(
        x=[list(row.x)],
        y=[[row.y]],
        stamp=[row.stamp],
        count=[1.0],
        sensor_variance=[row.variance],
        velocity=[velocity],
        position_variance=None if row.position < 0.0 else [row.position],
    )


def blocks_of(rows: list[Row], step: float, most: int) -> list[list[Row]]:
    """The cells of the newest blocks, each of one pass and one stretch of the path.

    Args:
        rows: the cells, in the order of the drive.
        step: m between the first cells of two blocks, at least.
        most: blocks.
    """
    out: list[list[Row]] = []
    for row in rows:
        first = out[-1][0] if out else row
        if (
            not out
            or row.passes != first.passes
            or math.dist(row.x, first.x) >= step * (1 - 1e-6)
            or row.stamp <= out[-1][-1].stamp
        ):
            out.append([])
        out[-1].append(row)
    return out[-most:]


def track_of(parts: list[list[Row]]) -> Track:
    """Blocks as columns."""
    blocks = [averaged(part) for part in parts]
    passes = torch.tensor([block.passes for block in blocks])
    # from the middle of the first cell to that of the last, and half a cell on either side
    span = [(part[-1].stamp - part[0].stamp) * len(part) / max(len(part) - 1, 1) for part in parts]
    return Track(
        torch.tensor([block.x for block in blocks], dtype=torch.float64),
        torch.tensor([block.y for block in blocks], dtype=torch.float64),
        torch.tensor([block.stamp for block in blocks], dtype=torch.float64),
        torch.cat([torch.ones(1, dtype=torch.bool), passes.diff() != 0]),
        torch.tensor(span, dtype=torch.float64),
    )

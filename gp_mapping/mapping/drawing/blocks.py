"""All of a map at full resolution, block by block: one in memory at a time, none undriven."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gp_mapping.core.field_map import FieldMap
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.settings.mapping import MapSettings

__all__ = ["block_indices", "drawn_block", "drawn_blocks"]


def block_indices(ground: np.ndarray, side: float, margin: float) -> list[tuple[int, int]]:
    """Column and row of the blocks that touch the ground.

    Args:
        ground: boxes (K, 4) m: low x, y, high x, y.
        side: of a block, m; block (i, j) begins at (i, j) times it.
        margin: how far around the ground is drawn, m.

    Returns:
        Indices, row by row from the lowest.
    """
    touched = set()
    for x0, y0, x1, y1 in ground.tolist():
        first = [int(np.floor((v - margin) / side)) for v in (x0, y0)]
        last = [int(np.floor((v + margin) / side)) for v in (x1, y1)]
        touched |= {
            (i, j) for i in range(first[0], last[0] + 1) for j in range(first[1], last[1] + 1)
        }

    return sorted(touched, key=lambda index: index[::-1])


def drawn_blocks(
    field: FieldMap,
    settings: MapSettings,
    ground: np.ndarray,
    cells: int,
    noise_stddev: float,
    revision: int,
    local: LocalScale | None,
    slow: ResponseVariance | None = None,
) -> Iterator[tuple[tuple[int, int], FieldGrid]]:
    """Draw block after block: index and grid of each; blocks where nothing is known are left out.

    Args:
        field: the map.
        settings: of its drawing.
        ground: boxes (K, 4) m in which there are samples.
        cells: along a side of a block, of `resolution` each.
        noise_stddev: SI, of one new measurement.
        revision: of the map.
        local: scales the variance that is shown; None: nothing does.
        slow: what the time constant of a slow sensor adds to it.
    """
    for index in block_indices(ground, cells * settings.resolution, settings.margin):
        grid = drawn_block(
            index, field, settings, ground, cells, noise_stddev, revision, local, slow
        )
        if bool(grid.known.any()):
            yield index, grid


def drawn_block(
    index: tuple[int, int],
    field: FieldMap,
    settings: MapSettings,
    ground: np.ndarray,
    cells: int,
    noise_stddev: float,
    revision: int,
    local: LocalScale | None,
    slow: ResponseVariance | None = None,
) -> FieldGrid:
    """Draw one block.

    Args:
        index: its column and row.
        field: as in drawn_blocks, and the others.
        settings: of its drawing.
        ground: boxes (K, 4) m in which there are samples.
        cells: along a side of the block.
        noise_stddev: SI.
        revision: of the map.
        local: scales the variance that is shown; None: nothing does.
        slow: what the time constant of a slow sensor adds to it.
    """
    pitch = settings.resolution
    block_settings = replace(
        settings, margin=0.0, window=0.0, max_grid_cells=max(cells * cells, 16)
    )
    # half a cell inside: a corner on a line between cells belongs to one block, however it rounds
    low, high = ([(k * cells + shift) * pitch for k in index] for shift in (0.5, cells - 0.5))
    return Renderer(block_settings).render(
        field, (low, high), noise_stddev, revision, None, local, ground=ground, slow=slow
    )

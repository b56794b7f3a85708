"""All of a map, where a drawing shows only a part: an overview, or full resolution by blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from gp_mapping.mapping.drawing.blocks import drawn_blocks
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.ground import overview_window
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["OVERVIEW_CELLS", "blocks", "ground", "overview"]

OVERVIEW_CELLS = 250_000
# m per cell: coarsest overview; poses that lie so far apart are no ground that a robot drove
_COARSEST = MapSettings.__dataclass_fields__["resolution"].metadata["high"]


@torch.no_grad()
def overview(session: MapSession, most: int = OVERVIEW_CELLS) -> FieldGrid | None:
    """Draw all of the ground coarsely, where `render` draws only a part of it.

    The resolution is `resolution`, doubled until the cells are few enough; each cell shows the map
    at its middle. Where nobody has driven the map is not evaluated: that ground is unknown.

    Args:
        session: the map's session.
        most: bound of the grid's cells.

    Returns:
        The grid; None where `render` draws all of the ground, or where the poses lie farther apart
        than a robot drives.
    """
    planned = overview_window(session.settings, session.path_trace, most)
    if planned is None:
        return None

    window, low, high = planned
    if window.resolution > _COARSEST:
        return None

    # the window fits `most` cells already: the bound is only not to cut it again
    settings = replace(
        session.settings, resolution=window.resolution, max_grid_cells=4 * most, window=0.0
    )
    return Renderer(settings).render(
        session.map,
        (low, high),
        math.sqrt(session.noise_variance),
        session.revision,
        None,
        session.local_scale,
        ground=ground(session),
        slow=session.slow,
    )


def ground(session: MapSession) -> np.ndarray:
    """Boxes in which there are samples: (K, 4) m, low x, y, high x, y."""
    return session.path_trace.extent.boxes()


def blocks(session: MapSession, cells: int) -> Iterator[tuple[tuple[int, int], FieldGrid]]:
    """Draw all that is known at `resolution`, in blocks of cells × cells.

    Args:
        session: the map's session.
        cells: along a side of a block.

    Yields:
        Column and row of each block, and its grid.
    """
    with torch.no_grad():
        yield from drawn_blocks(
            session.map,
            session.settings,
            ground(session),
            cells,
            math.sqrt(session.noise_variance),
            session.revision,
            session.local_scale,
            session.slow,
        )

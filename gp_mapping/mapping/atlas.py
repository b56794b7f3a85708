"""All of a map, where a drawing shows a part of it: an overview, or full resolution block by block."""

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
_COARSEST = MapSettings.__dataclass_fields__["resolution"].metadata[
    "high"
]  # m; beyond, poses are no ground


@torch.no_grad()
def overview(session: MapSession, most: int = OVERVIEW_CELLS) -> FieldGrid | None:
    """All of the ground, of which `render` draws a part, on at most that many cells.

    None where it draws all of it, or where the poses lie farther apart than a robot drives.
    Its resolution is `resolution`, doubled until that is enough; each cell says what the map says at its middle.
    Where nobody has driven, nothing is asked: that ground is unknown.
    """
    wanted = overview_window(session.settings, session.trace, most)
    if wanted is None:
        return None
    window, low, high = wanted
    if window.resolution > _COARSEST:
        return None
    own = replace(
        session.settings, resolution=window.resolution, max_grid_cells=4 * most, window=0.0
    )
    return Renderer(own).render(
        session.map,
        (low, high),
        math.sqrt(session.noise_variance),
        session.revision,
        None,
        session.local,
        ground=ground(session),
    )


def ground(session: MapSession) -> np.ndarray:
    """Boxes (K, 4) m in which there are samples: low x, y, high x, y."""
    return session.trace.extent.boxes()


def blocks(session: MapSession, cells: int) -> Iterator[tuple[tuple[int, int], FieldGrid]]:
    """All that is known at `resolution`, in blocks of cells × cells: column and row of each, and its grid."""
    with torch.no_grad():
        yield from drawn_blocks(
            session.map,
            session.settings,
            ground(session),
            cells,
            math.sqrt(session.noise_variance),
            session.revision,
            session.local,
        )

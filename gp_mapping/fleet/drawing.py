"""All of a fleet's map at full resolution, block by block on the workers, from nearby tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from gp_mapping.core.models.tiled.layout import Key
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.stored import StoredState
from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.mapping import FleetMap
from gp_mapping.fleet.sums import Tile
from gp_mapping.fleet.tiles import field_of
from gp_mapping.mapping.atlas import ground
from gp_mapping.mapping.drawing.blocks import block_indices, drawn_block
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.settings.mapping import MapSettings

__all__ = ["fleet_blocks"]


def fleet_blocks(
    engine: Engine, made: FleetMap, cells: int
) -> Iterator[tuple[tuple[int, int], FieldGrid]]:
    """Blocks as mapping.atlas.blocks of the session gives them, drawn where the tiles are.

    Only one block at a time is in this process.

    Args:
        engine: on which the map was made.
        made: the map.
        cells: along a side of a block.

    Yields:
        Index of a block, and its grid.
    """
    session, agreed = made.session, made.agreed
    settings, boxes = session.settings, ground(session)

    local = engine.step("local", _same, session.local_scale)
    common = settings, math.sqrt(session.noise_variance), session.revision
    side, handles = cells * settings.resolution, []
    indices = block_indices(boxes, side, settings.margin)

    for index in indices:
        low, high = ([(k + end) * side for k in index] for end in (0, 1))
        tiles = [tile for tile in made.sums if _near(tile, low, high, agreed.theta.lengthscale)]
        # a worker gets the ground and the tiles near its block alone
        near = boxes[
            ((boxes[:, 2:] >= np.array(low) - side) & (boxes[:, :2] <= np.array(high) + side)).all(
                1
            )
        ]

        handles.append(
            engine.step(
                "block",
                _drawn,
                index,
                near,
                cells,
                *common,
                local,
                agreed,
                made.shared,
                tiles,
                *(made.states[tile.key] for tile in tiles),
            )
        )

    for index, grid in zip(indices, engine.results(handles, "draw")):
        if grid is not None:
            yield index, grid


def _near(tile: Tile, low: list[float], high: list[float], length: float) -> bool:
    """Whether a tile is blended within a lengthscale of a block, or is next to one that is."""
    if tile.layout is None:
        return True

    first, last = (
        tile.layout.key_at([v - length for v in low]),
        tile.layout.key_at([v + length for v in high]),
    )

    return all(a - 1 <= k <= b + 1 for a, k, b in zip(first, tile.key, last))


@torch.no_grad()
def _drawn(
    index: tuple[int, int],
    boxes: np.ndarray,
    cells: int,
    settings: MapSettings,
    noise: float,
    revision: int,
    local: LocalScale | None,
    agreed: Agreed,
    shared: PassEvidence | None,
    tiles: list[Tile],
    *states: dict,
) -> FieldGrid | None:
    """One block, on a worker; None where nothing in it is known."""
    if not tiles:
        return None

    held: dict[Key, StoredState | dict] = {
        tile.key: state if tile.layout is None else StoredState(str(tile.key), state)
        for tile, state in zip(tiles, states)
    }

    # the map of these tiles, without the session around them
    field = field_of(agreed, held, tiles, shared)
    grid = drawn_block(index, field, settings, boxes, cells, noise, revision, local)
    return grid if bool(grid.known.any()) else None


def _same(value):
    """The value itself, as a step that sends it to the workers once."""
    return value

"""A map of tiles for other robots: small states of its tiles, a common θ, and another frame."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.smoothness import KernelSearch
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.rebuilding import search_among
from gp_mapping.core.models.tiled.tile_copies import TileLost, make_copy

__all__ = [
    "adopt_tiles_in_slices",
    "learned_by",
    "move_tiles",
    "search_in_tiles",
    "slim_state",
    "unreadable_tiles",
]


def slim_state(model, state: dict) -> dict:
    """The state of the map, or of one of its tiles, in fewer bytes.

    Args:
        model: the map of tiles.
        state: of the map or of a tile.
    """
    if "seeds" in state:
        return state | {
            "map": model.current_map.slimmed(state["map"]),
            "seeds": [model.current_map.slimmed(seed) for seed in state["seeds"]],
        }

    return model.current_map.slimmed(state) if "basis" in state else state


def learned_by(model) -> Learned | None:
    """What has been learned: by the one learner of all tiles, or by the only map."""
    if model.learner is None:
        return model.current_map.learned()
    return model.learner.summary()


def search_in_tiles(model) -> KernelSearch | None:
    """A search for the likeliest kernel, among the samples of all tiles in memory.

    None while a tile has forgotten one, or has yet to take some in.

    Args:
        model: the map of tiles.
    """
    tiles = [(key, tile) for key, tile in sorted(model.tiles.items()) if tile.map.started]
    complete = all(tile.map.remembers_all and not tile.seeds for _, tile in tiles)
    if model.learner is None or model.former is not None or not complete:
        return None
    parts = []
    for key, tile in tiles:
        # a sample is in the memory of up to four tiles: that of its core counts
        own = model.layout.holds(key, tile.map.remembered_places())
        parts.append(
            {name: c[own] for name, c in tile.map.learning_data().items() if _is_column(c)}
        )
    return search_among(parts, model.learner)


def _is_column(value) -> bool:
    """Whether it is one of the columns of samples."""
    return isinstance(value, Tensor)


def adopt_tiles_in_slices(model, theta: Theta) -> bool:
    """Adopt θ in every tile; afterwards the map learns no more.

    Args:
        model: the map of tiles.
        theta: hyper-parameters in inner units.

    Returns:
        False where one of the tiles does not factor at θ.
    """
    if model.layout is None:
        return model.current_map.agree_on(theta)

    model.absorb_waiting()
    model.learner = None

    moved = True
    # one tile at a time, so that no more than the usual number is in memory
    for key in sorted([*model.tiles, *model.shelf.keys()]):
        for there in model.load_tiles([key]):
            moved = model.tiles[there].map.agree_on(theta) and moved
            model.tiles[there].map.learner = None
        model.shelve_tiles()

    model.note_change()
    return moved


def move_tiles(model, turn: Tensor, shift: Tensor) -> None:
    """Move to the frame X' = turn X + shift.

    Args:
        model: the map of tiles.
        turn: (2, 2) rotation.
        shift: (2,) m.

    Raises:
        ValueError: several tiles would not stay squares along the axes.
    """
    if model.layout is None:
        model.current_map.move(turn, shift)
    elif not torch.equal(turn, torch.eye(2, dtype=torch.float64)):
        raise ValueError(
            "a map of several tiles can be shifted, not turned: its tiles lie along the axes of its frame"
        )
    else:
        model.absorb_waiting()
        for key in sorted([*model.tiles, *model.shelf.keys()]):
            for there in model.load_tiles([key]):
                model.tiles[there].map.move(turn, shift)
            model.shelve_tiles()

        low, high = (
            tuple((torch.tensor(v, dtype=torch.float64) + shift).tolist())
            for v in (model.layout.low, model.layout.high)
        )
        model.layout = replace(model.layout, low=low, high=high)

    # the box of all samples: that of its corners in the new frame
    if model.low[0] <= model.high[0]:
        corners = (
            torch.tensor(
                [
                    [x, y]
                    for x in (model.low[0], model.high[0])
                    for y in (model.low[1], model.high[1])
                ],
                dtype=torch.float64,
            )
            @ turn.mT
            + shift
        )
        model.low, model.high = corners.amin(0).tolist(), corners.amax(0).tolist()
    model.note_change()


def unreadable_tiles(model) -> list[str]:
    """Why tiles were lost, or cannot be read from the shelf: a line each."""
    reasons = list(model.lost.values())
    for key in model.shelf.keys():
        try:
            make_copy(key, model.shelf.peek(key), model.forgot, model.restored)
        except TileLost as lost:
            reasons.append(lost.why)
    return reasons

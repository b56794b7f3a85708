"""Merging one map of tiles into another, by remembered samples and their places."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.changes import Changes
from gp_mapping.core.models.tiled.layout import Key, Layout
from gp_mapping.core.models.tiled.shared_constants import exchange_all
from gp_mapping.core.models.tiled.shelf import Shelf
from gp_mapping.core.models.tiled.tile import Tile

__all__ = ["in_core", "merge_tiles", "use_budgets"]

_TOGETHER = 100  # samples that come in with one update


def merge_tiles(model, other) -> None:
    """Add `other` to `model`, by the samples that it remembers.

    What it no longer remembers cannot be told apart by place: that is counted in `merged_without`,
    and so is what it remembers of ground for which there may be no more tiles.

    Args:
        model: the map of tiles that grows.
        other: the other one, which stays as it is.
    """
    if model.layout is None:
        model.split_into_tiles()
    model.absorb_waiting()

    other = copy.deepcopy(other)
    other.absorb_waiting()
    renumber = (
        math.floor(model.newest_pass) + 1.0
    )  # so that its passes differ from those of the map here

    for key in sorted([*other.tiles, *other.shelf.keys()]):
        if not other.load_tiles([key]):
            continue
        source = other.tiles[key].map
        places = source.remembered_places()
        # of a sample that several tiles remember, that of its core counts
        own = in_core(other.layout, key, places)
        model.merged_without += max(0, source.samples - len(places))

        # all tiles first: a new one starts with what its neighbours remember, and would get samples
        # twice that are merged into these already
        cores = model.layout.group_by_tile(places[own]) if bool(own.any()) else []
        for core, which in cores:
            if not model.exists(core):
                if model.tile_count >= model.limit:
                    model.merged_without += len(which)
                    continue
                model.open_tile(core)

        for core, which in cores:
            if not model.exists(core):
                continue
            indices = own.nonzero()[:, 0][which]
            for near in model.load_tiles(model.layout.neighbourhood(core)):
                _merge_in_parts(
                    model,
                    near,
                    source,
                    indices[model.layout.covers(near, places[indices])],
                    renumber,
                )

        other.shelve_tiles()

    model.extend_bounds(torch.tensor([other.low, other.high], dtype=torch.float64))
    model.samples += other.samples
    model.newest_pass = max(model.newest_pass, other.newest_pass + renumber)
    model.note_change()
    model.shelve_tiles()


def in_core(layout: Layout | None, key: Key, places: Tensor) -> Tensor:
    """Whether places (N, 2) lie in a tile's core: (N,), on their device; all do where there is one.

    Args:
        layout: of the tiles; None of a single map.
        key: of the tile.
        places: (N, 2) m.
    """
    if layout is None:
        return torch.ones_like(places[:, 0], dtype=torch.bool)
    return layout.holds(key, places)


def _merge_in_parts(model, key: Key, source: DualSVGP, indices: Tensor, renumber: float) -> None:
    """Merge samples of a map into a tile, a part at a time."""
    tile = model.tiles[key]
    tile.absorb_all_seeds()
    for part in indices.split(_TOGETHER):
        if len(part):
            seed = source.excerpt(part, tile.map.theta)
            seed.renumber(renumber)
            tile.map.merge_same_robot(seed)


def _one_map(model) -> DualSVGP | None:
    """A map of all that the tiles remember; None where it would not fit, or some is forgotten.

    A tile knows its core and halo alone. That moves what it says beside the rim of the ground,
    where little was measured on one side, and of a quiet sensor most.

    Args:
        model: the map of tiles, in which nothing waits.
    """
    home = model.current_map
    if not home.sums_follow or model.merged_without or model.lost:
        return None
    if model.samples > home.usable_budget:
        return None

    new = model.adopt_map(model.make(model.centre))
    new.theta, new.learner, new.bias_spread = home.theta, None, home.bias_spread
    new.widen_budget(model.widened)
    for key in sorted([*model.tiles, *model.shelf.keys()]):
        for there in model.load_tiles([key]):
            source = model.tiles[there].map
            if source.started and not source.remembers_all:
                return None
            # of a sample that several tiles remember, that of its core counts
            own = in_core(model.layout, there, source.remembered_places()).nonzero()[:, 0]
            for part in own.split(_TOGETHER):
                new.merge_same_robot(source.excerpt(part, new.theta))
        model.shelve_tiles()

    return new if new.samples == model.samples else None


def _replace_tiles(model, one: DualSVGP) -> None:
    """Have one map in place of the tiles.

    Args:
        model: the map of tiles.
        one: of all that they know.
    """
    one.learner = model.learner
    model.own_epoch += 1  # that of the map itself adds to it from now on
    model.layout, model.former, model.learner = None, None, None
    model.tiles, model.shelf, model.current = {(0, 0): Tile(one)}, Shelf(model.shelf.room), (0, 0)
    model.shelved_evidence, model.shelf_prior = None, None
    model.adopt_map(one)
    model.changes = Changes(model.epoch)


def use_budgets(model) -> None:
    """Let each tile use its budget, one at a time: no more than the usual number is in memory.

    A sum whose cells all fit into one budget becomes one map, which has no borders.

    Args:
        model: the map of tiles, or the one map that it still is.
    """
    if model.layout is not None and model.widened > 1:
        model.absorb_waiting()
        if (one := _one_map(model)) is not None:
            _replace_tiles(model, one)

    if model.layout is None:
        model.current_map.use_budget()
    else:
        model.absorb_waiting()
        for key in sorted([*model.tiles, *model.shelf.keys()]):
            for there in model.load_tiles([key]):
                model.tiles[there].absorb_all_seeds()
                model.tiles[there].map.estimate_bias()
                model.tiles[there].map.use_budget()
            model.shelve_tiles()
        exchange_all(model)  # the other map's passes are new to all tiles
    model.note_change()

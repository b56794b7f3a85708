"""Sums of bags for one tile at agreed θ and z: sites, cells to remember, and the choice of z.

Every function here is pure: it changes none of its arguments, and gives the same for the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.models.dual_svgp.assembled import part_of
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.layout import Key, Layout
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.basis import greedy_inputs
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.sparse.worth import least_residual
from gp_mapping.core.types import Samples
from gp_mapping.fleet.agreed import Agreed, prepare_cells
from gp_mapping.fleet.cells import BagCells, cells_of
from gp_mapping.fleet.robot import Robot

__all__ = [
    "Tile",
    "TileSums",
    "candidates",
    "cells_in",
    "joined_ground",
    "joined_inputs",
    "joined_sums",
    "scaling_of",
    "subtract_sums",
    "sums_of",
    "touched",
]

_LOOKED_AT = 4000  # the most cells of a bag from which its candidates are chosen
_OPEN = 0.01  # fraction of a cell's noise variance that inducing inputs may leave open


@dataclass(frozen=True)
class Tile:
    """A tile of the fleet's map.

    Attributes:
        key: column and row.
        layout: of all tiles; None where this one is everything.
    """

    key: Key
    layout: Layout | None

    def covers(self, x: Tensor) -> Tensor:
        """Which samples at x (N, 2) it knows: (N,)."""
        return (
            torch.ones(len(x), dtype=torch.bool)
            if self.layout is None
            else self.layout.covers(self.key, x)
        )


@dataclass(frozen=True)
class TileSums:
    """Sums of some bags' cells for a tile, and some of the cells.

    Attributes:
        sites: in the basis of its z.
        count: cells in them.
        newest_pass: the largest number of a pass.
        kept: some of the cells: those with the largest keys of all.
        keys: (k,) drawn at random for each cell.
    """

    sites: Sites
    count: int
    newest_pass: float
    kept: Samples
    keys: Tensor


def scaling_of(agreed: Agreed) -> Scaling:
    """The scaling of every tile."""
    return Scaling(agreed.origin, agreed.centre, agreed.settings.field_scale)


def cells_in(tile: Tile, made: BagCells, number: int, robot: Robot, agreed: Agreed) -> Samples:
    """A bag's cells that a tile knows, as prepare_cells makes them.

    Args:
        tile: the tile.
        made: the bag.
        number: its place among the bags.
        robot: of the bag.
        agreed: by all bags.
    """
    cells = prepare_cells(cells_of(made), number, robot, agreed)
    return cells[tile.covers(cells.x)]


def touched(
    made: BagCells, number: int, robot: Robot, agreed: Agreed, layout: Layout | None, squares: float
) -> tuple[list[Key], list[Key], Tensor]:
    """The ground that a bag's cells lie on.

    Args:
        made: the bag.
        number: its place among the bags.
        robot: of the bag.
        agreed: by all bags.
        layout: of the tiles; None for one tile.
        squares: side of the squares, m.

    Returns:
        Tiles whose cores hold cells, tiles that know some, and squares with cells (K, 2).
    """
    x = prepare_cells(cells_of(made), number, robot, agreed).x
    ground = x.div(squares).floor().unique(dim=0)

    if layout is None:
        return [(0, 0)], [(0, 0)], ground

    cores = [key for key, _ in layout.group_by_tile(x)]
    around = sorted({near for key in cores for near in layout.neighbourhood(key)})
    return sorted(cores), [key for key in around if bool(layout.covers(key, x).any())], ground


def joined_ground(first: tuple, second: tuple) -> tuple:
    """The ground that two sets of bags touch together.

    Args:
        first: as `touched` gives it.
        second: likewise.

    Returns:
        Likewise, each tile and square once.
    """
    return (
        sorted({*first[0], *second[0]}),
        sorted({*first[1], *second[1]}),
        torch.cat([first[2], second[2]]).unique(dim=0),
    )


def _chosen(places: Tensor, agreed: Agreed) -> Tensor:
    """Inducing inputs (M, 2) among inner places (N, 2), by pivoted Cholesky, within the budget."""
    theta, settings = agreed.theta, agreed.settings
    least = least_residual(theta, settings.inducing_tolerance, getattr(torch, settings.dtype))
    tolerance = max(least, _OPEN * theta.noise_stddev**2)
    return places[greedy_inputs(theta.kernel(), places, tolerance, settings.max_inducing)]


@torch.no_grad()
def candidates(tile: Tile, made: BagCells, number: int, robot: Robot, agreed: Agreed) -> Tensor:
    """Inducing inputs that a tile would get from one bag alone.

    Args:
        tile: the tile.
        made: the bag.
        number: its place among the bags.
        robot: of the bag.
        agreed: by all bags.

    Returns:
        (M, 2), inner.
    """
    cells = cells_in(tile, made, number, robot, agreed)
    cells = cells[:: max(1, math.ceil(len(cells) / _LOOKED_AT))]

    places = agreed.theta.sensor_place(
        scaling_of(agreed).inner_x(cells.x), cells.velocity, cells.heading
    )
    return _chosen(places, agreed)


@torch.no_grad()
def joined_inputs(first: Tensor, second: Tensor, agreed: Agreed) -> Tensor:
    """Inducing inputs of two sets of bags, chosen from those of each.

    Args:
        first: (M₁, 2), inner.
        second: (M₂, 2), inner.
        agreed: by all bags.

    Returns:
        (M, 2), inner.
    """
    return _chosen(torch.cat([first, second]), agreed)


def sums_of(
    tile: Tile, z: Tensor, made: BagCells, number: int, robot: Robot, agreed: Agreed
) -> TileSums:
    """The sums of a bag's cells for a tile.

    Args:
        tile: the tile.
        z: (M, 2) its inducing inputs, inner.
        made: the bag.
        number: its place among the bags.
        robot: of the bag.
        agreed: by all bags.
    """
    cells = cells_in(tile, made, number, robot, agreed)
    part: DualSVGP = part_of(agreed.theta, z, scaling_of(agreed), cells)

    # random keys, so that the cells with the largest ones are a random sample
    generator = torch.Generator().manual_seed((agreed.settings.seed * 1_000_003 + number) % 2**31)
    keys = torch.rand(len(cells), dtype=torch.float64, generator=generator)
    best = keys.topk(min(len(keys), agreed.settings.memory_size)).indices.sort().values
    return TileSums(part.sites, len(cells), part.newest_pass, cells[best], keys[best])


def joined_sums(first: TileSums, second: TileSums, most: int) -> TileSums:
    """The sums of two sets of bags for a tile, in the basis of one z.

    Args:
        first: of one set; it is not changed.
        second: of the other; likewise.
        most: cells that are kept.
    """
    sites = first.sites.clone()
    sites.merge(second.sites)

    keys, kept = (
        torch.cat([first.keys, second.keys]),
        Samples.concatenate([first.kept, second.kept]),
    )
    best = keys.topk(min(len(keys), most)).indices.sort().values
    return TileSums(
        sites,
        first.count + second.count,
        max(first.newest_pass, second.newest_pass),
        kept[best],
        keys[best],
    )


def subtract_sums(total: TileSums, own: TileSums) -> TileSums:
    """The sums of all bags but one for a tile; none of their cells are kept.

    Args:
        total: of all bags.
        own: of the one bag.
    """
    sites, negative = total.sites.clone(), own.sites.clone()
    negative.scale(-1.0)
    sites.merge(negative)

    own_passes = set(own.sites.passes.numbers)
    sites.passes = sites.passes.select(set(sites.passes.numbers) - own_passes)

    return replace(
        total, sites=sites, count=total.count - own.count, kept=total.kept[:0], keys=total.keys[:0]
    )

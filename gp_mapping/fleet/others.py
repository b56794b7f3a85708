"""Each robot beside the map of all others: sites add up, so taking one bag's out leaves what the others say.

    y = c + a + g (m − c) + noise,    m: the others' mean at each of its cells, c: the fleet's centre

a: its bias, g: its gain, both by iteratively reweighted least squares (Huber), so that single wild cells decide
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.cells import BagCells
from gp_mapping.fleet.robot import Robot
from gp_mapping.fleet.sums import Tile, TileSums, cells_in, sums_of, without
from gp_mapping.fleet.tiles import map_of

__all__ = ["HeldOut", "Judged", "held_out", "joined_held_out", "judged"]

_KNOWN = 0.3  # of the signal's standard deviation: beyond, the others know too little of a place
_MOST = 20_000  # cells of a bag that are looked at
_FEWEST = 30
_NORMAL, _HUBER, _ROUNDS = 1.4826, 1.345, 20
_ALIKE = (
    10.0  # neighbouring cells that say the same of a robot's errors: of poses, of the field between
)


@dataclass(frozen=True)
class HeldOut:
    """Of cells where the others know the field: what they say there, its variance, what was measured, each (n,), SI.

    seen: cells that the bag has there in all.
    """

    mean: Tensor
    variance: Tensor
    measured: Tensor
    seen: int


@dataclass(frozen=True)
class Judged:
    """A robot beside the others, SI; count: cells of which that is. inside: share in the others' 95 % intervals."""

    count: int
    bias: float
    bias_stddev: float
    gain: float
    gain_stddev: float
    scatter: float
    rmse: float
    inside: float


@torch.no_grad()
def held_out(
    tile: Tile,
    z: Tensor,
    total: TileSums,
    made: BagCells,
    number: int,
    robot: Robot,
    agreed: Agreed,
) -> HeldOut:
    """A bag's cells in the core of a tile, and what all other bags say there. Of several axes, their first."""
    own = sums_of(tile, z, made, number, robot, agreed)
    rest, nothing = without(total, own), torch.zeros(0, dtype=torch.float64)
    cells = cells_in(tile, made, number, robot, agreed)
    if tile.layout is not None:
        cells = cells[tile.layout.outside(tile.key, cells.x) <= 0.0]
    if not rest.count or not len(cells):
        return HeldOut(nothing, nothing, nothing, len(cells))

    looked = cells[:: max(1, math.ceil(len(cells) / _MOST))]
    prediction = map_of(rest, z, agreed).predict(looked.x, looked.velocity, looked.heading)
    theta, scale = agreed.theta, agreed.settings.field_scale
    level = (
        theta.bias_stddev * scale
    ) ** 2  # of a few robots with a bias each, all that is not known of the field
    variance = prediction.variance[:, 0]
    known = (
        variance - variance.min().clamp_max(level) <= (_KNOWN * theta.signal_stddev * scale) ** 2
    )
    return HeldOut(prediction.mean[known, 0], variance[known], looked.y[known, 0], len(cells))


def joined_held_out(one: HeldOut, other: HeldOut) -> HeldOut:
    """Of two tiles together."""
    return HeldOut(
        torch.cat([one.mean, other.mean]),
        torch.cat([one.variance, other.variance]),
        torch.cat([one.measured, other.measured]),
        one.seen + other.seen,
    )


def judged(found: HeldOut, centre: float, noise: float) -> Judged | None:
    """A robot by its cells; None where the others know too few of their places.

    Args:
        found: of all tiles.
        centre: SI.
        noise: standard deviation of a measurement, SI.
    """
    if len(found.mean) < _FEWEST:
        return None
    m, v, y = found.mean - centre, found.variance, found.measured - centre
    apart = v - v.min()  # of what is not known, all places share the field's own level
    design, residual = torch.stack([torch.ones_like(m), m], 1), y - m
    scale = _spread(residual, noise)
    for _ in range(_ROUNDS):
        own = 1.0 / (apart + scale**2)
        weight = own * (_HUBER / (residual.abs() * own.sqrt()).clamp_min(1e-12)).clamp_max(1.0)
        precision = design.mT @ (weight[:, None] * design)
        found_now = torch.linalg.solve(precision, design.mT @ (weight * y))
        residual = y - design @ found_now
        scale = _spread(residual, noise)
    spread = torch.linalg.inv(precision).diagonal().clamp_min(0.0).sqrt() * math.sqrt(_ALIKE)
    plain = y - m
    inside = float((plain.abs() <= 1.96 * (v + noise**2).sqrt()).double().mean())
    return Judged(
        len(m),
        float(found_now[0]),
        float(spread[0]),
        float(found_now[1]),
        float(spread[1]),
        scale,
        float(plain.square().mean().sqrt()),
        inside,
    )


def _spread(residual: Tensor, noise: float) -> float:
    """Robust standard deviation, at least a hundredth of the noise."""
    return max(_NORMAL * float((residual - residual.median()).abs().median()), 0.01 * noise)

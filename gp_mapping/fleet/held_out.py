"""Each robot compared with the map of all others, which is left when its own sites are taken out.

    y = c + a + g (m − c) + noise

m: the others' mean at each of its cells, c: the fleet's centre. a: its bias, g: its gain, both by
iteratively reweighted least squares (Huber), so that single wild cells decide nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.cells import BagCells
from gp_mapping.fleet.robot import Robot
from gp_mapping.fleet.sums import Tile, TileSums, cells_in, subtract_sums, sums_of
from gp_mapping.fleet.tiles import map_of

__all__ = ["HeldOut", "RobotComparison", "compare_robot", "held_out", "joined_held_out"]

_KNOWN = 0.3  # of the signal's standard deviation: beyond, the others know too little of a place
_MOST = 20_000  # cells of a bag that are compared
_FEWEST = 30  # cells of which a comparison makes sense
_NORMAL, _HUBER, _ROUNDS = 1.4826, 1.345, 20
# neighbouring cells that share a robot's errors: of poses, of the field between
_ALIKE = 10.0


@dataclass(frozen=True)
class HeldOut:
    """Cells where the others know the field.

    Attributes:
        mean: (n,) what the others predict, SI.
        variance: (n,) of that.
        measured: (n,) what was measured, SI.
    """

    mean: Tensor
    variance: Tensor
    measured: Tensor


@dataclass(frozen=True)
class RobotComparison:
    """A robot compared with the others, SI.

    Attributes:
        count: cells that were compared.
        bias: a.
        bias_stddev: of the bias.
        gain: g.
        gain_stddev: of the gain.
        scatter: robust standard deviation about a + g (m − c).
        rmse: of the others' mean.
        inside: fraction of cells in the others' 95 % intervals.
    """

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
    """A bag's cells in the core of a tile, and what all other bags predict there.

    Of several axes, the first.

    Args:
        tile: the tile.
        z: (M, 2) its inducing inputs, inner.
        total: sums of all bags.
        made: the bag.
        number: its place among the bags.
        robot: of the bag.
        agreed: by all bags.
    """
    own = sums_of(tile, z, made, number, robot, agreed)
    others, nothing = subtract_sums(total, own), torch.zeros(0, dtype=torch.float64)

    cells = cells_in(tile, made, number, robot, agreed)
    if tile.layout is not None:
        cells = cells[tile.layout.holds(tile.key, cells.x)]
    if not others.count or not len(cells):
        return HeldOut(nothing, nothing, nothing)

    compared = cells[:: max(1, math.ceil(len(cells) / _MOST))]
    prediction = map_of(others, z, agreed).predict(compared.x, compared.velocity, compared.heading)
    theta, scale = agreed.theta, agreed.settings.field_scale

    # where a few robots have a bias each, the field's own level is not known: that is left out, as
    # far as these biases explain it
    level = (theta.bias_stddev * scale) ** 2
    variance = prediction.variance[:, 0]
    known = (
        variance - variance.min().clamp_max(level) <= (_KNOWN * theta.signal_stddev * scale) ** 2
    )
    return HeldOut(prediction.mean[known, 0], variance[known], compared.y[known, 0])


def joined_held_out(first: HeldOut, second: HeldOut) -> HeldOut:
    """Held-out cells of two tiles together.

    Args:
        first: of one tile.
        second: of the other.
    """
    return HeldOut(
        torch.cat([first.mean, second.mean]),
        torch.cat([first.variance, second.variance]),
        torch.cat([first.measured, second.measured]),
    )


def compare_robot(found: HeldOut, centre: float, noise: float) -> RobotComparison | None:
    """A robot by its cells; None where the others know too few of their places.

    Args:
        found: of all tiles.
        centre: c, SI.
        noise: standard deviation of a measurement, SI.
    """
    if len(found.mean) < _FEWEST:
        return None

    m, v, y = found.mean - centre, found.variance, found.measured - centre
    relative = v - v.min()  # all places share what is not known of the field's own level
    design, residual = torch.stack([torch.ones_like(m), m], 1), y - m

    scale = _spread(residual, noise)
    # Huber's weights, with the scale from the residuals of the last round
    for _ in range(_ROUNDS):
        cell_precision = 1.0 / (relative + scale**2)
        weight = cell_precision * (
            _HUBER / (residual.abs() * cell_precision.sqrt()).clamp_min(1e-12)
        ).clamp_max(1.0)
        precision = design.mT @ (weight[:, None] * design)
        bias_and_gain = torch.linalg.solve(precision, design.mT @ (weight * y))
        residual = y - design @ bias_and_gain
        scale = _spread(residual, noise)

    # neighbouring cells share errors: of ten, one counts
    stddev = torch.linalg.inv(precision).diagonal().clamp_min(0.0).sqrt() * math.sqrt(_ALIKE)
    difference = y - m
    inside = float((difference.abs() <= 1.96 * (v + noise**2).sqrt()).double().mean())

    return RobotComparison(
        len(m),
        float(bias_and_gain[0]),
        float(stddev[0]),
        float(bias_and_gain[1]),
        float(stddev[1]),
        scale,
        float(difference.square().mean().sqrt()),
        inside,
    )


def _spread(residual: Tensor, noise: float) -> float:
    """Robust standard deviation, at least a hundredth of the noise."""
    return max(_NORMAL * float((residual - residual.median()).abs().median()), 0.01 * noise)

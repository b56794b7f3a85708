"""Each robot compared with the map of all others, which is left when its own sites are taken out.

    y = c + a + g (m − c) + noise

m: the others' mean at each of its cells, c: the mean of these. a: its bias, g: its gain, both by
iteratively reweighted least squares (Huber), so that single wild cells decide nothing; about c
their errors are not correlated.
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
_HALVINGS = 12  # of an interval of σ: to a thousandth of its logarithm
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
        level: c, at which the bias is.
        field_stddev: of the others' mean over its cells.
        scatter: robust standard deviation about a + g (m − c), beyond what the others leave open.
        rmse: of the others' mean.
        inside: fraction of cells in the others' 95 % intervals.
    """

    count: int
    bias: float
    bias_stddev: float
    gain: float
    gain_stddev: float
    level: float
    field_stddev: float
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
    among: bool = True,
) -> HeldOut:
    """A bag's cells in the core of a tile, and what the other bags predict there.

    Of several axes, the first.

    Args:
        tile: the tile.
        z: (M, 2) its inducing inputs, inner.
        total: sums of the bags that it is compared with.
        made: the bag.
        number: its place among the bags.
        robot: of the bag.
        agreed: by all bags.
        among: whether it is one of these bags itself.
    """
    nothing = torch.zeros(0, dtype=torch.float64)
    others = total
    if among:
        others = subtract_sums(total, sums_of(tile, z, made, number, robot, agreed))

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


def compare_robot(found: HeldOut, noise: float) -> RobotComparison | None:
    """A robot by its cells; None where the others know too few of their places.

    Args:
        found: of all tiles.
        noise: standard deviation of a measurement, SI.
    """
    if len(found.mean) < _FEWEST:
        return None

    middle = float(found.mean.mean())
    m, v, y = found.mean - middle, found.variance, found.measured - middle
    relative = v - v.min()  # all places share what is not known of the field's own level
    design, residual = torch.stack([torch.ones_like(m), m], 1), y - m

    scale = _excess(residual, relative, noise)
    # Huber's weights, with the scale from the residuals of the last round
    for _ in range(_ROUNDS):
        cell_precision = 1.0 / (relative + scale**2)
        weight = cell_precision * (
            _HUBER / (residual.abs() * cell_precision.sqrt()).clamp_min(1e-12)
        ).clamp_max(1.0)
        precision = design.mT @ (weight[:, None] * design)
        bias_and_gain = torch.linalg.solve(precision, design.mT @ (weight * y))
        residual = y - design @ bias_and_gain
        scale = _excess(residual, relative, noise)

    # about the mean of the cells as they weigh, errors of bias and gain are not correlated
    mean = float(weight @ m / weight.sum())
    bias, gain = float(bias_and_gain[0] + (bias_and_gain[1] - 1.0) * mean), float(bias_and_gain[1])
    about = torch.stack([weight.sum(), weight @ (m - mean).square()]).clamp_min(1e-300)
    # neighbouring cells share errors: of ten, one counts
    stddev = (_ALIKE / about).sqrt()
    difference = y - m
    inside = float((difference.abs() <= 1.96 * (v + noise**2).sqrt()).double().mean())

    return RobotComparison(
        len(m),
        bias,
        float(stddev[0]),
        gain,
        float(stddev[1]),
        middle + mean,
        float(m.std()),
        scale,
        float(difference.square().mean().sqrt()),
        inside,
    )


def _excess(residual: Tensor, variance: Tensor, noise: float) -> float:
    """Robust standard deviation σ beyond that of the map, at least a hundredth of the noise.

        median |r − median r| / √(v + σ²) = 1 / 1.4826

    Args:
        residual: r (n,), SI.
        variance: v (n,), of the map.
        noise: standard deviation of a measurement, SI.
    """
    away = (residual - residual.median()).abs()
    low, high = 0.01 * noise, max(0.01 * noise, _NORMAL * float(away.median()))
    # the quotient falls with σ: halve the interval of its logarithm
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        over = _NORMAL * float((away / (variance + middle**2).sqrt()).median()) > 1.0
        low, high = (middle, high) if over else (low, middle)
    return math.sqrt(low * high)

"""Where the tiles of a fleet's map lie: one if one budget suffices for the ground, else a grid."""

from __future__ import annotations

from statistics import median

from gp_mapping.core.models.tiled.layout import FULL, Layout, side_for
from gp_mapping.core.models.tiled.opening import BLEND, HALO
from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.robot import Robot

__all__ = ["choose_layout"]


def choose_layout(
    agreed: Agreed, robots: list[Robot], low: list[float], high: list[float], squares: int
) -> Layout | None:
    """The grid, by the rule of a map that has outgrown one tile; None where one tile suffices.

    Args:
        agreed: by all bags.
        robots: with the inducing inputs that each took per square of a lengthscale.
        low: (2,) lower corner of all paths, m.
        high: (2,) upper corner of all paths, m.
        squares: number of squares of a lengthscale that were driven over.
    """
    settings, length = agreed.settings, agreed.theta.lengthscale
    density = median(max(robot.density, 1e-9) for robot in robots)
    extent = max(b - a for a, b in zip(low, high))

    if not settings.tiles or squares * density <= FULL * settings.max_inducing:
        return None

    side = side_for(density, settings.max_inducing, HALO, settings.map_tile_side) * length
    if extent <= side:
        return None

    # the first tile lies about the middle of the ground, and the grid goes on from it
    middle = [0.5 * (a + b) for a, b in zip(low, high)]
    return Layout(
        tuple(m - 0.5 * side for m in middle),
        tuple(m + 0.5 * side for m in middle),
        side,
        HALO * length,
        BLEND * length,
    )

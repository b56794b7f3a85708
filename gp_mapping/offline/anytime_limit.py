"""How soon the stochastic natural gradients of the anytime family reach their limit."""

from __future__ import annotations

from dataclasses import replace

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.anytime.model import MEMBERS
from gp_mapping.core.types import Samples
from gp_mapping.offline.anytime_fit import AnytimeFit
from gp_mapping.settings.mapping import MapSettings

__all__ = ["iterations_to_the_limit"]

_ROUND = 50  # iterations in which every block is drawn once: Hoang et al. print 50 to 60
_SHARE = 0.01  # fraction of the limit's RMSE that counts as its neighbourhood


def iterations_to_the_limit(
    settings: MapSettings, theta: Theta, cells: Samples, inputs
) -> dict | None:
    """Count the steps of a member until its RMSE at the cells stays within 1 % of its limit's.

    Args:
        settings: model, tiles and seed.
        theta: inner units.
        cells: SI.
        inputs: (M, 2) m, the map's inducing inputs.

    Returns:
        blocks, drawn (|S|), round (T), within (iterations), and half_round: the RMSE after half a
        round over the limit's. None for a model outside the family.

    Reference:
        Hoang, Hoang and Low 2015, sec. 5.
    """
    if settings.model not in MEMBERS or not len(inputs):
        return None

    theta = replace(theta, bias_stddev=0.0)
    side = (
        settings.tile_side * theta.lengthscale
        if MEMBERS[settings.model].residual == "block"
        else None
    )

    def new_fit(draw: int) -> AnytimeFit:
        """A fit that draws that many blocks in a step."""
        return AnytimeFit(
            settings.model,
            theta,
            cells,
            inputs,
            side=side,
            most=settings.tile_samples,
            draw=draw,
            shuffled=True,
            seed=settings.seed,
            scale=settings.field_scale,
        )

    def rmse(member: AnytimeFit) -> float:
        """RMSE at the cells."""
        prediction = member.predict(cells.x, cells.velocity, cells.heading)
        return float((prediction.mean - cells.y).square().mean().sqrt())

    limit = new_fit(1)
    limit.batch()
    limit_rmse, member = rmse(limit), new_fit(max(1, -(-len(limit.blocks) // _ROUND)))

    ratios = []
    for _ in range(member.steps_per_epoch):
        member.step()
        ratios.append(rmse(member) / limit_rmse)

    outside = [k for k, ratio in enumerate(ratios) if abs(ratio - 1.0) > _SHARE]
    return {
        "blocks": len(limit.blocks),
        "drawn": member.draw,
        "round": member.steps_per_epoch,
        "within": (outside[-1] + 2) if outside else 1,
        "half_round": ratios[(len(ratios) - 1) // 2],
    }

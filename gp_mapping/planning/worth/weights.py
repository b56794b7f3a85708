"""What is wanted to be known: a weight for each cell of the survey area, as used by PathValue."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["OBJECTIVES", "cell_weights", "why_all_alike"]

OBJECTIVES = ("area", "level_set", "hotspot", "local_scale")
# Least probability of a cell, so that no place is never looked at because the map is sure of it.
_FLOOR = 0.01


def _below(x: Tensor) -> Tensor:
    """Return the standard normal distribution function Φ(x)."""
    return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def cell_weights(
    objective: str,
    areas: Tensor,
    mean: Tensor,
    stddev: Tensor,
    *,
    level: float = 0.0,
    band: float | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Return the weights (G,) of cells by what the survey is for.

        area         w = a
        level_set    w = a · P(|f − level| < band)
        hotspot      w = a · P(f > level)
        local_scale  w = a · κ

    Probabilities are at least 0.01.

    Args:
        objective: one of OBJECTIVES.
        areas: (G,) m², a.
        mean: (G,) SI, the map's mean at the cells.
        stddev: (G,) SI, the map's standard deviation at the cells.
        level: SI.
        band: SI; None: the mean stddev of the cells.
        scale: (G,) κ, the local scale of the variance by one-step-ahead scores; None is 1.

    Raises:
        ValueError: an unknown objective, a level or band that is not finite.
    """
    if objective not in OBJECTIVES:
        raise ValueError(
            f"objective is {objective!r}, expected one of {', '.join(map(repr, OBJECTIVES))}"
        )
    if not math.isfinite(level) or (band is not None and not (math.isfinite(band) and band > 0)):
        raise ValueError(
            f"level={level}, band={band}: expected finite SI values and a band above 0"
        )

    if objective == "area":
        return areas
    if objective == "local_scale":
        return areas if scale is None else areas * scale

    stddev = stddev.clamp_min(1e-300)

    away = (mean - level) / stddev
    if objective == "hotspot":
        probability = _below(away)
    else:
        width = (float(stddev.mean()) if band is None else band) / stddev
        probability = _below(width - away) - _below(-width - away)
    return areas * probability.clamp_min(_FLOOR)


def why_all_alike(
    objective: str, level: float, areas: Tensor, weights: Tensor, mean: Tensor
) -> str:
    """Say why an objective with a level makes no difference; "" where it makes one.

    Args:
        objective: one of OBJECTIVES.
        level: SI.
        areas: (G,) m², as in `cell_weights`.
        weights: (G,), what it returned.
        mean: (G,) SI, the map's mean at the cells.
    """
    if objective not in ("level_set", "hotspot") or not len(areas):
        return ""
    probability = weights / areas
    if float(probability.max()) > _FLOOR and float(probability.min()) < 1.0 - _FLOOR:
        return ""
    return (
        f"{objective} about the level {level:g} makes no place count more than another: the map "
        f"expects {float(mean.min()):.3g} to {float(mean.max()):.3g} in the area (SI units)"
    )

"""Why a robot reads another level than the others: by a wrong scale, or by a constant.

    scale s:     b − b̃ = (s − 1) c,   g − g̃ = s − 1
    constant a:  b − b̃ = a,           g − g̃ = 0

b is its bias at the level c, g its gain, b̃ and g̃ the fleet's. Both have one free number, so the one
with the smaller χ² explains more:

    χ²_scale = (b − b̃ − c (g − g̃))² / (s_b² + c² s_g²),   χ²_constant = (g − g̃)² / s_g²

A constant in the body's frame turns with the robot where it is not along the axis of its turns.
What turns was taken off by the robot's own calibration; the rest of it is the constant a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Explanation", "explain", "explanation_text"]

_MORE = 6.0  # difference of χ²: twenty to one in likelihood
_WELL = 25.0  # χ² that an explanation may leave, of one degree of freedom and rough spreads


@dataclass(frozen=True)
class Explanation:
    """Why a robot reads another level.

    Attributes:
        kind: 'scale', 'bias' (a constant), 'either', or 'gain' (neither explains it).
        scale: s, of its values over the others'.
        stddev: of the scale.
        chi_scale: χ²_scale.
        chi_constant: χ²_constant.
    """

    kind: str
    scale: float
    stddev: float
    chi_scale: float
    chi_constant: float


def explain(row: dict, bias: float, gain: float, sizes: dict[str, float]) -> Explanation:
    """Compare the two explanations of a robot's bias and gain.

    Args:
        row: of the robot.
        bias: b̃ of the fleet.
        gain: g̃ of the fleet.
        sizes: s_b and s_g, by name of the figure.
    """
    level, away, ratio = row["level"], row["bias"] - bias, row["gain"] - gain
    of_bias, of_gain = sizes["bias"], sizes["gain"]

    known = level**2 / of_bias**2 + 1.0 / of_gain**2
    scale = (level * away / of_bias**2 + ratio / of_gain**2) / known
    chi_scale = (away - level * ratio) ** 2 / (of_bias**2 + level**2 * of_gain**2)
    chi_constant = (ratio / of_gain) ** 2

    if min(chi_scale, chi_constant) > _WELL:
        kind = "gain"
    elif abs(chi_constant - chi_scale) < _MORE:
        kind = "either"
    else:
        kind = "scale" if chi_scale < chi_constant else "bias"
    stddev = 1.0 / math.sqrt(known)
    return Explanation(kind, 1.0 + scale, stddev, chi_scale, chi_constant)


def explanation_text(why: Explanation, bias: dict[str, str]) -> str:
    """A sentence on a wrong scale, or on what may be one.

    Args:
        why: a scale, or either.
        bias: `value` of the robot and `usual` of the fleet, with unit.
    """
    digits = 2 if why.stddev > 0.005 else 3
    times = f"×{why.scale:.{digits}f} ± {max(why.stddev, 10.0**-digits):.{digits}f}"
    if why.kind == "scale":
        return (
            f"its values are {times} those of the others, where a constant would leave the field's differences "
            "as they are: set the scale of its sensor right (range, gain, unit), or look for a dead axis"
        )
    return (
        f"it reads {bias['value']} relative to the map of the others, the fleet {bias['usual']}; a constant "
        f"(hard iron) and a scale of {times} explain that alike: calibrate its sensor for both, or drive it where the "
        "field differs more"
    )

"""How far two maps of one field differ where both know it: sensors that do not read alike, frames.

d = median (m₂ − m₁) over places of the second map's path where both know the field
s = median |m₂ − m₁ − d| and r = median |m₂ − m₁ − d| / √(v₁ + v₂) there, as standard deviations
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from gp_mapping.mapping.session import MapSession

__all__ = ["LevelDifference", "level_difference"]

_KNOWN = 0.3  # of the signal's standard deviation: beyond, a map knows too little of a place
_MOST = 500  # places that are compared
_FEWEST = 10  # places of which a comparison makes sense
_APART = 3.0  # standard deviations
# MAD to standard deviation, and the standard deviation of a median by that of a mean
_NORMAL, _MEDIAN = 1.4826, 1.2533


@dataclass(frozen=True)
class LevelDifference:
    """What the second map reads relative to the first.

    Attributes:
        values: d of each channel, SI.
        stddevs: of d, SI.
        places: that were compared.
        scatters: s of each channel, SI.
        ratios: r of each channel; about 1 where the maps are of one field.
    """

    values: list[float]
    stddevs: list[float]
    places: int
    scatters: list[float]
    ratios: list[float]

    def is_seen(self, noise: float) -> bool:
        """Whether it is beyond chance, and beyond the noise (SI) of one measurement."""
        return any(
            abs(value) > max(_APART * stddev, noise)
            for value, stddev in zip(self.values, self.stddevs, strict=True)
        )

    def is_another_field(self, signal: float) -> bool:
        """Whether the maps contradict each other, so that they are not of one field in one frame.

        They differ by more than both know the places at which they were compared, and by more than
        three times what their standard deviations allow.

        Args:
            signal: standard deviation of the field, SI.
        """
        return any(
            scatter > _KNOWN * signal and ratio > _APART
            for scatter, ratio in zip(self.scatters, self.ratios, strict=True)
        )


@torch.no_grad()
def level_difference(first: MapSession, second: MapSession) -> LevelDifference | None:
    """Compare two maps in one frame; None where too few places are known to both.

    Args:
        first: a map.
        second: a map of the same quantity.
    """
    path = second.path
    x = path[:: max(1, math.ceil(len(path) / _MOST))]
    if not len(x):
        return None

    one, other = first.predict(x), second.predict(x)
    known = first.map.hyperparameters()
    limit = _KNOWN * known["signal_stddev"]
    both = torch.cat([one.stddev, other.stddev], 1).amax(1) <= limit

    if int(both.sum()) < _FEWEST:
        return None

    # neighbouring places share the errors of both maps: of a square of a lengthscale, one counts
    squares = len(x[both].div(known["lengthscale"]).floor().unique(dim=0))

    difference = (other.mean - one.mean)[both]
    middle = difference.median(0).values
    away = (difference - middle).abs()
    scatter = _NORMAL * away.median(0).values
    allowed = (one.variance + other.variance)[both].sqrt()
    return LevelDifference(
        middle.tolist(),
        (_MEDIAN * scatter / math.sqrt(squares)).tolist(),
        int(both.sum()),
        scatter.tolist(),
        (_NORMAL * (away / allowed).median(0).values).tolist(),
    )

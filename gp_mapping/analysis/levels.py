"""How far two maps of one field differ where both know it: sensors that do not read alike.

d = median (m₂ − m₁) over places of the second map's path where both know the field
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
# MAD to standard deviation, and the standard deviation of a median by that of a mean
_NORMAL, _MEDIAN = 1.4826, 1.2533


@dataclass(frozen=True)
class LevelDifference:
    """What the second map reads beside the first.

    Attributes:
        values: d of each channel, SI.
        stddevs: of d, SI.
        places: that were compared.
    """

    values: list[float]
    stddevs: list[float]
    places: int

    def is_seen(self, noise: float) -> bool:
        """Whether it is beyond chance, and beyond the noise (SI) of one measurement."""
        return any(
            abs(value) > max(3.0 * stddev, noise)
            for value, stddev in zip(self.values, self.stddevs, strict=True)
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
    spread = _NORMAL * (difference - middle).abs().median(0).values
    return LevelDifference(
        middle.tolist(), (_MEDIAN * spread / math.sqrt(squares)).tolist(), int(both.sum())
    )

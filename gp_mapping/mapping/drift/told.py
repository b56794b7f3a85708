"""Log evidence by stretches of the way, and whether what is better is so all along it.

The log evidence is the sum over blocks, in order of time, of how well each is foretold by those
before it. With d_m the difference of two models' sums over stretch m of M, the one is better than
the other by Σ d_m nats, which under a wrong model of the field may be those of one stretch alone:
of a magnet beside the way, of an edge. What is on the robot acts wherever it drives. So it is asked
how far Σ d_m lies from 0 in standard deviations, estimated from the stretches themselves:

    z = Σ d_m / √(M/(M − 1) Σ (d_m − d̄)²)

No model has to be right for that. Reference: Q. H. Vuong, Likelihood ratio tests for model
selection and non-nested hypotheses, Econometrica 57, 1989; sums over stretches since neighbours
depend on each other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["Told", "is_told_everywhere"]

_STRETCH = 10  # blocks in a stretch: two lengthscales
_CLEAR = 2.0  # standard deviations


class Told(float):
    """A log evidence, which knows what each stretch of the way adds to it.

    Attributes:
        parts: of each stretch (M,); None where that is not known.
    """

    parts: Tensor | None = None

    @staticmethod
    def of(rows: Tensor) -> Told:
        """The evidence of which each block adds so much, in order of time, (N,)."""
        stretches = max(2, len(rows) // _STRETCH)
        parts = torch.stack([each.sum() for each in rows.tensor_split(stretches)])
        out = Told(parts.sum())
        out.parts = parts
        return out


def is_told_everywhere(better: float, other: float) -> bool:
    """Whether that one log evidence is larger is told by all of the way, not by a part of it.

    Args:
        better: that of the one.
        other: that of the other, from the same blocks. Where either does not know its parts, there
            is nothing to ask.
    """
    one, two = getattr(better, "parts", None), getattr(other, "parts", None)
    if one is None or two is None:
        return better > other
    gains = one - two
    return float(gains.sum()) > _CLEAR * math.sqrt(len(gains) * float(gains.var()))

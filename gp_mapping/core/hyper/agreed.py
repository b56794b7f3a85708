"""One θ for the maps of several robots: the product of what each map has learned.

    p(v) ∝ Π_i N(v; v_i, Λ_i⁻¹),     v = (Σ Λ_i)⁻¹ Σ Λ_i v_i,     v = log θ

The map that has learned most counts most, and an entry that no map learns is the mean of all. The
order of the maps does not matter, and a single map keeps its θ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta

__all__ = ["Learned", "agreed"]

_LITTLE = 1e-3  # precision added to every entry: one that no map knows becomes the plain mean


@dataclass(frozen=True)
class Learned:
    """What a map has learned about θ.

    Attributes:
        theta: θ as the map has it.
        information: Λ (P, P), the precision to which the map knows the logarithms; zeros where it
            learns none. Λ counts a sample as often as steps have looked at it: it weighs what maps
            say of θ, and is no count of samples.
        covariance: of θ's logarithms (P, P), all samples counted once; 0 for an entry that is not
            learned. None: not known.
        offset_variance: of the time offset about that of θ, s².
    """

    theta: Theta
    information: Tensor
    covariance: Tensor | None = None
    offset_variance: float = 0.0


def agreed(parts: Sequence[Learned]) -> Theta:
    """The θ of a team.

    Standard deviations that are not learned by steps, those of the field's mean and of the passes'
    constants, are the geometric means.

    Args:
        parts: of each map, in any order; all have the first one's kernel.

    Returns:
        θ with the parts' product.

    Raises:
        ValueError: kernels differ.
    """
    first = parts[0].theta
    for part in parts[1:]:
        if part.theta.shape != first.shape:
            raise ValueError(
                f"maps that differ in kernel have no θ in common: {first.shape}, {part.theta.shape}"
            )

    if len(parts) == 1:
        return first

    vectors = torch.stack([part.theta.vector() for part in parts])
    little = _LITTLE * torch.eye(vectors.shape[1], dtype=torch.float64)
    # the mean of the logarithms, weighted by precision
    weights = torch.stack([part.information.cpu() + little for part in parts])
    mean = torch.linalg.solve(weights.sum(0), torch.einsum("kij,kj->i", weights, vectors))
    # the mode of a product of skewed normals may lie outside the range of their means
    low, high = vectors.min(0).values, vectors.max(0).values
    theta = first.with_vector(torch.minimum(torch.maximum(mean, low), high))

    constant, bias = (
        _geometric([getattr(part.theta, name) for part in parts])
        for name in ("constant_stddev", "bias_stddev")
    )
    equal = torch.equal(low, high)  # maps that agree keep θ to the last bit
    found = {"constant_stddev": constant, "bias_stddev": bias}
    # whatever their order, and 0 where one of them knows nothing of segments
    found["bias_correlation"] = min(part.theta.bias_correlation for part in parts)
    return replace(first if equal else theta, **found)


def _geometric(values: list[float]) -> float:
    """The geometric mean of the values, 0 where one of them is 0."""
    if len(set(values)) == 1:
        return values[0]
    return math.exp(sum(map(math.log, values)) / len(values)) if min(values) > 0 else 0.0

"""One θ for the maps of several robots: the product of what each has learned.

    p(v) ∝ Π_i N(v; v_i, Λ_i⁻¹),     v = (Σ Λ_i)⁻¹ Σ Λ_i v_i,     v = log θ

so that who has learned most counts most, and an entry that nobody learns stays in the middle. The order does not
matter, and one map alone keeps its θ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta

__all__ = ["Learned", "agreed"]

_LITTLE = 1e-3  # precision of an entry of which nobody knows anything: there the plain mean


@dataclass(frozen=True)
class Learned:
    """θ as a map has it, and Λ (P, P), the precision to which it knows the logarithms; zeros: it learns none.

    Λ counts samples as often as steps have looked at them: it weighs what maps say of θ, and is no count.

    covariance: (P, P) of θ's logarithms, all samples counted once; 0 where one is not learned. None: it is not told.
    """

    theta: Theta
    information: Tensor
    covariance: Tensor | None = None


def agreed(parts: Sequence[Learned]) -> Theta:
    """The θ of a team.

    Standard deviations that are not learned by steps, of the field's mean and of passes' constants, are the geometric
    means.

    Args:
        parts: of each map, in any order; the first one's kernel is all of theirs.

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
    weights = torch.stack([part.information.cpu() + little for part in parts])
    mean = torch.linalg.solve(weights.sum(0), torch.einsum("kij,kj->i", weights, vectors))
    low, high = (
        vectors.min(0).values,
        vectors.max(0).values,
    )  # a product of skewed ones may leave what any of them said
    theta = first.with_vector(torch.minimum(torch.maximum(mean, low), high))
    constant, bias = (
        _geometric([getattr(part.theta, name) for part in parts])
        for name in ("constant_stddev", "bias_stddev")
    )
    equal = torch.equal(low, high)  # as it was, to the last bit
    return replace(first if equal else theta, constant_stddev=constant, bias_stddev=bias)


def _geometric(values: list[float]) -> float:
    """0 where one of them is."""
    if len(set(values)) == 1:
        return values[0]
    return math.exp(sum(map(math.log, values)) / len(values)) if min(values) > 0 else 0.0

"""Linear combinations of members of the anytime family that have one test conditional."""

from __future__ import annotations

import torch

from gp_mapping.core.linalg import solve_lower
from gp_mapping.core.models.anytime.posterior import AnytimePosterior, posterior_fields

__all__ = ["combine"]


def combine(members: list[AnytimePosterior], shares: list[float]) -> AnytimePosterior:
    """The member with D = Σ α_m D_m and r = Σ α_m r_m.

    So its natural parameters are θ₁ = Σ α_m θ₁,m and θ₂ = Σ α_m θ₂,m. With Σ α_m = 1 the prior
    stays what it is.

    Args:
        members: with one test conditional.
        shares: α_m.

    Raises:
        ValueError: the members do not have the same inducing inputs, hyper-parameters, scaling and
            blocks, or D is not positive definite.

    Reference:
        Hoang et al. 2015, sec. 4, Remark 2.
    """
    if len(members) != len(shares) or not members:
        raise ValueError(
            f"{len(members)} members and {len(shares)} shares; expected one share for each"
        )

    first = members[0]
    for other in members[1:]:
        if (other.conditional, other.side, tuple(map(id, other.blocks))) != (
            first.conditional,
            first.side,
            tuple(map(id, first.blocks)),
        ):
            raise ValueError(
                f"members must have one test conditional: {other.conditional} is not "
                f"{first.conditional}, or their blocks differ"
            )
        pairs = (
            (other.z, first.z),
            (other.scaling.origin, first.scaling.origin),
            (other.scaling.centre, first.scaling.centre),
        )
        if other.theta != first.theta or not all(torch.equal(*pair) for pair in pairs):
            raise ValueError(
                "members must share inducing inputs, hyper-parameters, origin and centre; give both"
            )

    # D and r of each member from its factor and weights
    precision = sum(share * (m.R @ m.R.mT) for m, share in zip(members, shares))
    linear = sum(share * (m.R @ (m.R.mT @ m.weights)) for m, share in zip(members, shares))
    factor, info = torch.linalg.cholesky_ex(precision)
    if int(info):
        raise ValueError(
            f"shares {shares} leave no positive precision; take positive ones, or with a sum of 1"
        )

    noise = sum(share * m.noise_variance for m, share in zip(members, shares)) / sum(shares)
    weights = solve_lower(factor, solve_lower(factor, linear), transpose=True)
    return AnytimePosterior(
        **(posterior_fields(first) | {"R": factor, "weights": weights, "noise_variance": noise}),
        conditional=first.conditional,
        side=first.side,
        blocks=first.blocks,
    )

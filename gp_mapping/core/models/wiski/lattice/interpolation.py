"""Local cubic convolution on a regular lattice (Keys 1981, a = −1/2): the sparse w(x) of SKI.

    f(x) ≈ w(x)ᵀ f(nodes)

with four weights per axis, which sum to one, reproduce quadratics, and have a continuous slope.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta

__all__ = ["cubic_weights", "interpolation_error", "interpolation_matrix", "stencil_nodes"]


# rows: 1, t, t², t³ of the fraction t of a spacing; columns: the four nodes
_KEYS = [
    [0.0, 1.0, 0.0, 0.0],
    [-0.5, 0.0, 0.5, 0.0],
    [1.0, -2.5, 2.0, -0.5],
    [-0.5, 1.5, -1.5, 0.5],
]


@functools.cache
def _keys(dtype, device) -> Tensor:
    """Coefficients of the cubic weights, as a tensor."""
    return torch.tensor(_KEYS, dtype=dtype, device=device)


def cubic_weights(fraction: Tensor) -> Tensor:
    """Weights of the nodes at −1, 0, 1, 2 for a place between 0 and 1.

    Args:
        fraction: (…) of a spacing, in [0, 1).

    Returns:
        (…, 4) weights.

    Reference:
        Keys 1981, eq. 15.
    """
    square = fraction * fraction
    powers = torch.stack([torch.ones_like(fraction), fraction, square, square * fraction], -1)
    return powers @ _keys(fraction.dtype, fraction.device)


def stencil_nodes(units: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights that interpolate at places; the weights are differentiable in units.

    Args:
        units: (N, D) places in units of the spacing, node k at k.

    Returns:
        The lowest node of each place's 4^D block (N, D), whole numbers, and its weights (N, 4^D),
        last axis fastest.
    """
    # the product of the axes' weights; the slope of floor is 0, as detach has it
    base = units.detach().floor()
    per_axis = cubic_weights(units - base)  # (N, D, 4)

    weights = per_axis[:, 0]
    for d in range(1, units.shape[1]):
        weights = (weights[:, :, None] * per_axis[:, d, None, :]).flatten(1)
    return base.long() - 1, weights


def interpolation_matrix(units: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The dense interpolation matrix W (N, m), m = Π shape; differentiable in units.

    Args:
        units: (N, D) places in units of the spacing.
        shape: nodes along each axis, counted from 0.

    Raises:
        ValueError: a place has no four nodes about it on every axis.
    """
    low, weights = stencil_nodes(units)
    size = torch.tensor(shape, device=units.device)
    if len(low) and (bool((low < 0).any()) or bool((low + 4 > size).any())):
        raise ValueError(
            f"a place lies within one spacing of the grid's edge, or beyond it; the grid is {shape}"
        )

    steps = torch.cartesian_prod(*[torch.arange(4, device=units.device)] * units.shape[1]).reshape(
        -1, units.shape[1]
    )
    flat = torch.zeros((len(units), len(steps)), dtype=torch.long, device=units.device)
    for d, length in enumerate(shape):
        flat = flat * length + low[:, d, None] + steps[None, :, d]

    rows = torch.arange(len(units), device=units.device)[:, None].expand_as(flat)
    dense = torch.zeros((len(units), int(size.prod())), dtype=weights.dtype, device=units.device)
    return dense.index_put((rows, flat), weights)


@functools.lru_cache(64)
def interpolation_error(theta: Theta, spacing: float) -> float:
    """Largest root mean square error of interpolating the prior between nodes, as a fraction of s.

        max_x (k(x, x) − 2 wᵀk(u, x) + wᵀK_uu w)^½ / s    over a square between nodes of the plane's
        lattice

    Args:
        theta: hyper-parameters.
        spacing: of the lattice, m.
    """
    offsets = torch.linspace(
        0.0, 0.5, 5, dtype=torch.float64
    )  # by symmetry a quarter of the square
    at = torch.cartesian_prod(offsets, offsets)
    low, weights = stencil_nodes(at)
    steps = torch.arange(4)
    nodes = (low[0] + torch.cartesian_prod(steps, steps)).double() * spacing

    kernel = theta.kernel()
    cross, gram = kernel(at * spacing, nodes), kernel(nodes, nodes)

    square = (
        theta.signal_stddev**2
        - 2.0 * (weights * cross).sum(1)
        + ((weights @ gram) * weights).sum(1)
    )

    return float(square.max().clamp_min(0.0).sqrt()) / theta.signal_stddev

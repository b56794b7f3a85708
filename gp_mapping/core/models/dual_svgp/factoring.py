"""Posteriors of several maps in one batched computation, as batched.py has their predictions.

    D_t = R_t R_tᵀ,   w_t = R_t⁻ᵀ R_t⁻¹ r_t

D_t is padded with the identity, r_t with zeros, so padding adds nothing. How often a card is waited
for does not depend on T, nor how many operations there are but for what copies each map's part.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import tensor_on
from gp_mapping.core.kernels.stationary import Stationary
from gp_mapping.core.linalg import solve_lower
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.sparse.batched import Ragged, batches, padded_factors

__all__ = ["can_factor_together", "factor_together"]


def can_factor_together(source: object) -> bool:
    """Whether this is a map whose posterior has still to be made, of the kind made in batches."""
    if type(source) is not DualSVGP or source.is_factored or not source.started:
        return False
    return isinstance(source.theta.kernel(), Stationary)


def factor_together(maps: Iterable[DualSVGP]) -> None:
    """Make the posteriors of maps of one device that have none yet.

    One that does not factor so is left to be asked alone, which adds jitter or raises.

    Args:
        maps: of one kind, which have seen data.
    """
    waiting = [m for m in maps if not m.is_factored]
    sizes = [(m.basis.size, m.basis.size) for m in waiting]
    for batch in batches([(m.sites.channels,) for m in waiting], sizes):
        _factor_batch([waiting[i] for i in batch])


def _factor_batch(maps: list[DualSVGP]) -> None:
    """As `factor_together`, of maps of like size."""
    precisions, linears = zip(*(m.system() for m in maps))
    counts = [len(linear) for linear in linears]
    rows = Ragged(counts, linears[0].device)

    factors, info = torch.linalg.cholesky_ex(padded_factors(precisions, max(counts)))
    right = rows.padded(torch.cat(linears))
    weights = solve_lower(factors, solve_lower(factors, right), transpose=True)

    # read at once: which factor, and the mean precision of the noise of each (average_noise)
    factored = factors.diagonal(dim1=1, dim2=2).isfinite().all(1).logical_and_(info == 0)
    read = torch.stack([factored.double(), _mean_precisions(maps)]).tolist()
    for which, (m, size, is_factored, precision) in enumerate(zip(maps, counts, *read)):
        if is_factored:
            # in tensors of their own: a part would keep the whole batch in memory
            factor = factors[which, :size, :size].clone(memory_format=torch.contiguous_format)
            m.keep_posterior(factor, weights[which, :size].clone(), 1.0 / precision)


def _mean_precisions(maps: list[DualSVGP]) -> Tensor:
    """1/σ² of one measurement, of each map, as its remembered samples have it: (T,)."""
    extras = [m.memory.extra for m in maps]
    # a map that remembers none has s_p² alone
    extras = [extra if len(extra) else extra.new_zeros(1) for extra in extras]
    rows = Ragged([len(extra) for extra in extras], extras[0].device)

    own = tensor_on(extras[0].device, [m.theta.noise_stddev**2 for m in maps], torch.float64)
    precisions = rows.padded(1.0 / (own[rows.list] + torch.cat(extras)))
    return precisions.sum(1) / rows.there.sum(1)

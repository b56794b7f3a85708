"""A dual SVGP made of sums that were formed elsewhere: at given θ and z they are all the data said.

D = I + Σ_k (D_k − I),    r = Σ_k r_k        over parts k of the data, in any order (sites.py)
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.types import Samples

__all__ = ["assemble", "part_of"]

_TOGETHER = 2000  # samples per update: their features are held at the same time


@torch.no_grad()
def part_of(
    theta: Theta, z: Tensor, scaling: Scaling, cells: Samples, memory_size: int = 0
) -> DualSVGP:
    """A map of some of the data at given θ and z, which learns nothing and closes no pass.

    Its sites are that part's contribution to the sums of all data.

    Args:
        theta: in inner units.
        z: inducing inputs (M, 2), inner.
        scaling: common to all parts.
        cells: that part of the data, SI.
        memory_size: samples that it remembers.
    """
    new = DualSVGP(
        theta,
        inducing_inputs=z + scaling.origin,
        memory_size=memory_size,
        scale=scaling.scale,
        centre=scaling.centre,
        max_biases=max(1, len(cells)),
    )
    new.scaling = scaling
    new.allocate(z.shape[1], len(scaling.centre))
    new.basis = Basis.at(z, new.basis)  # z itself, not z + origin − origin

    for start in range(0, len(cells), _TOGETHER):
        new.update(cells[start : start + _TOGETHER])
    return new


@torch.no_grad()
def assemble(
    model: DualSVGP,
    theta: Theta,
    z: Tensor,
    scaling: Scaling,
    sites: Sites,
    samples: int,
    memory: Memory,
    newest_pass: float,
) -> None:
    """Fill an empty map with sums over all parts.

    Args:
        model: empty; its budgets count.
        theta: with which the sums were formed.
        z: inducing inputs (M, D), inner, with which the sums were formed.
        scaling: with which the sums were formed.
        sites: of all samples, in the basis of z.
        samples: how many samples these are.
        memory: some of the samples, as part_of remembers them, or all.
        newest_pass: the largest number of a pass.
    """
    model.theta, model.scaling = theta, scaling
    model.basis = Basis.at(z, model.new_basis(theta, z.shape[1]))

    capacity = model.basis.features + max(model.budget, len(z))
    model.sites = sites.clone(capacity)
    model.memory = memory.copy(capacity, capacity=max(model.memory_size, len(memory))).set_rule(
        model.memory_rule
    )

    model.samples, model.newest_pass = samples, newest_pass
    # where all are remembered, the sums hold nothing else
    model.unremembered_empty = len(memory) == samples
    if model.learner is not None:
        model.learner.theta = model.learner.theta.with_biases_of(theta)

    model.close_passes()
    model.mark_changed()

"""How much a map believes its samples where a full budget leaves part of the field out.

Given the inducing inputs, the field has a residual e = f − E[f | u] of covariance c = k − q, which
the sites know nothing of. Along a pass it is alike from sample to sample, so their sum, which tells
of the pass's constant, has the variance

    nσ² + Σ_ij c(x_i, x_j) = n (σ² + c̄),    c̄ = 1/n Σ_ij c(x_i, x_j)

as if each sample had the noise variance σ² + c̄. With σ² alone the residual would be taken for what
constants do: their spread s_b would be overstated, and with a large s_b a field that is too sure of
its samples is a wrong one. So all likelihoods count to the power σ²/(σ² + c̄).
"""

from __future__ import annotations

import math

import torch

__all__ = ["likelihood_power"]

_SOME = 200  # remembered samples at which the residual's sum over their pass is computed


def likelihood_power(model) -> float:
    """σ²/(σ² + c̄) of a map, from its remembered samples; 1 where no pass has a constant.

    Args:
        model: a DualSVGP with data; what it remembers of a pass stands for the whole pass.
    """
    memory, theta = model.memory, model.theta
    known = (memory.pass_number >= 0).nonzero()[:, 0]
    if theta.bias_stddev <= 0 or not len(known):
        return 1.0

    places, number = model.memory_places(theta)[known], memory.pass_number[known]
    inducing = model.remembered_features(model.basis.size)[model.basis.features :, known]
    some = torch.arange(0, len(known), math.ceil(len(known) / _SOME), device=known.device)

    residual = model.basis.kernel(places[some], places) - inducing[:, some].mT @ inducing
    own = residual.gather(1, some[:, None])[:, 0].clamp_min(0.0)
    others = (residual * (number[some, None] == number)).sum(1) - own

    # of the samples in the sums, how many each remembered one stands for
    share = (model.sites.passes.precision.sum() / memory.beta[known].sum()).clamp_min(1.0)
    # where it goes up and down within a few samples it is at least white noise
    along, white = float((own + share * others).mean()), float(own.mean())
    noise = model.noise_level
    return noise / (noise + max(along, white))

"""Sites of a likelihood that is not Gaussian, by natural-gradient steps.

A step takes new samples and remembered ones together, at the newest q:

    λ_i ← λ_i + (β_i' − β_i) f_i + ρ_i (w_i α_i + β_i f_i − λ_i)
    β_i ← β_i' = max(w_i E[−∂²], κ β_i)                            i in new ∪ chosen

With ρ = 1 this is the step of Chang et al. 2023, eqs. 19–23, in the λ form λ = α + βf of
docs/how_it_works.md. w_i is what forgetting left of a sample's weight, or how many counts it
averages, κ the share of its β that a sample keeps. ρ < 1 where channels share a β: the mean is
damped, the precision is not.

Only the difference to a sample's present site is added to the sums, so that a sample leaves with
exactly what was added for it. Samples that are in no memory keep their sites. While all samples are
remembered, repeated sweeps converge to the batch variational optimum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.transaction import transaction
from gp_mapping.errors import NumericalError

__all__ = ["add_and_refine", "refresh", "settle"]

_SWEEPS, _SETTLED = 60, 1e-4  # steps at most, and the change, relative to the largest λ, at the end


def add_and_refine(
    model, whitened: Tensor, residual: Tensor, y: Tensor, noise: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Add a batch's sites, and refine those of chosen remembered samples with them.

    Args:
        model: the map; its sites and memory are changed.
        whitened: a(x) of the batch (R, N).
        residual: k − q, the prior variance that the basis does not reach (N,).
        y: observations of the batch (N, C).
        noise: noise variance of the batch (N,).
        weight: of each sample's log likelihood (N,).

    Returns:
        λ (N, C) and β (N,) of the batch.

    Raises:
        NumericalError: the steps diverged, and left sums that do not factor.
    """
    # start values: the steps replace them by differences
    lam, beta = model.likelihood.start(y, noise)
    lam, beta = weight[:, None] * lam, weight * beta
    model.sites.add(whitened, beta, lam)

    # remembered samples take the same steps, since their sites depend on the field, too
    chosen = _choose(model, whitened)
    memory = model.memory
    joint = {
        "y": torch.cat([y, memory.y[chosen]]),
        "weight": torch.cat([weight, memory.weight[chosen]]),
        "noise": torch.cat([noise, _noise(model)[chosen]]),
        "residual": torch.cat([residual, _residual(model, chosen)]),
        "lam": torch.cat([lam, memory.lam[chosen]]),
        "beta": torch.cat([beta, memory.beta[chosen]]),
    }

    whitened = torch.cat([whitened, memory.whitened(model.basis.size)[:, chosen]], 1)
    for _ in range(model.steps):
        _step(model, whitened, joint)
    model.need_factor()

    # the memory keeps the refined sites, so that they can be taken out exactly
    n = len(y)
    memory.keep_columns()
    memory.lam[chosen], memory.beta[chosen] = joint["lam"][n:], joint["beta"][n:]
    return joint["lam"][:n], joint["beta"][:n]


@torch.no_grad()
def refresh(model, most: int | None = None) -> float:
    """Take one natural-gradient step on the memory; the largest change of λ.

    Args:
        model: the map; its sites and memory are changed.
        most: samples that take part, drawn at random; all if None.
    """
    memory = model.memory
    if model.likelihood.conjugate or not len(memory):
        return 0.0

    chosen = torch.arange(len(memory), device=model.device)
    if most is not None and len(chosen) > most:
        chosen = _draw(model, most)

    part = {name: getattr(memory, name)[chosen] for name in ("y", "weight", "lam", "beta")}
    part |= {"noise": _noise(model)[chosen], "residual": _residual(model, chosen)}
    before = part["lam"]
    _step(model, memory.whitened(model.basis.size)[:, chosen], part)

    memory.keep_columns()
    memory.lam[chosen], memory.beta[chosen] = part["lam"], part["beta"]
    return float((part["lam"] - before).abs().max())


def settle(model) -> None:
    """Step the memory until its sites hardly change: they are of one field then, in any order.

    Sites that two maps have brought together are each of its own map's field, and those of a map
    are of what it knew when they came.

    Args:
        model: the map; it stays as it was where the steps diverge.
    """
    if model.likelihood.conjugate or not len(model.memory):
        return
    try:
        with transaction(model):
            for _ in range(_SWEEPS):
                if refresh(model) <= _SETTLED * float(model.memory.lam.abs().max()):
                    break
            model.need_factor()
    except NumericalError:
        model.discard_posterior()


def _step(model, whitened: Tensor, part: dict[str, Tensor]) -> None:
    """Step all samples of `part`, whose λ and β are replaced, and add the differences to the sites.

    λ ← λ + (β' − β)m + ρ(wα + βm − λ),   β ← β' = max(w E[−∂²], κβ)   (ρ = 1: λ ← wα + β'm)
    """
    mean, variance = model.marginals(whitened)
    alpha, beta, rate = model.likelihood.step(
        part["y"], mean, variance + part["residual"], part["noise"]
    )

    weight, kept = part["weight"], model.likelihood.kept
    beta = weight * beta
    if kept:
        # a probit's β can vanish at once, where a step has gone far beyond: nothing would be left
        # of the sample, and the next step would do the same again
        beta = torch.maximum(beta, kept * part["beta"])
    gain = beta - part["beta"]
    pull = weight[:, None] * alpha + part["beta"][:, None] * mean - part["lam"]
    change = gain[:, None] * mean + rate[:, None] * pull

    # the sums change by the difference to the samples' present sites
    model.sites.add(whitened, gain, change)
    part["lam"], part["beta"] = part["lam"] + change, part["beta"] + gain
    model.discard_posterior()


def _noise(model) -> Tensor:
    """Noise variance of each remembered sample at the map's θ: (m,)."""
    return model.noise(model.memory.noise, model.memory.extra, model.theta, model.memory.x)


def _residual(model, chosen: Tensor) -> Tensor:
    """k − q of the chosen remembered samples: (k,)."""
    whitened = model.memory.whitened(model.basis.size)[:, chosen]
    return model.basis.residual(model.memory_places(model.theta)[chosen], whitened)


def _draw(model, count: int) -> Tensor:
    """Indices of `count` remembered samples, drawn at random."""
    return torch.randperm(len(model.memory), generator=model.generator)[:count].to(model.device)


def _choose(model, whitened: Tensor) -> Tensor:
    """Remembered samples to refine: half those most correlated with the batch, half at random."""
    memory = model.memory
    most = model.likelihood.refreshed
    if len(memory) <= most:
        return torch.arange(len(memory), device=model.device)

    features = model.basis.features  # the constant is common to all
    near = (
        (memory.whitened(model.basis.size)[features:].mT @ whitened[features:])
        .amax(1)
        .topk(most // 2)
        .indices
    )

    return torch.cat([near, _draw(model, most // 2)]).unique()

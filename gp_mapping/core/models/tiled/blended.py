"""Answers of several tiles as one: what a map of tiles and a snapshot of one have in common.

    mean = Σ_t w_t(x) mean_t(x),    variance = Σ_t w_t(x) variance_t(x),
    cov(a, b) = s(a) s(b) Σ_t √v_t(a) cov_t(a, b) √v_t(b),    s² = variance / Σ_t v_t variance_t

The weights w and v sum to one (layout.py). w goes over from one tile to the next along `blend`; v as far as a tile's
halo reaches, so that two places on either side of a border have in common what a tile knows that has seen both. cov is
positive semi-definite as a sum of such, and equals the variance where a = b. Of two places that no tile reaches
together nothing is said to be in common.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.field_map import Covariances, FieldMap, Snapshot
from gp_mapping.core.models.tiled.layout import Key, Layout
from gp_mapping.core.types import Prediction

__all__ = ["blend", "blended_covariances", "blended_prediction", "sayings"]

Saying = tuple[Key | None, Tensor, Tensor]  # a tile, indices of places and its weights there

_SILENT = 1e-4  # weight below which a tile is not asked


def sayings(layout: Layout, exists: Callable[[Key], bool], x: Tensor) -> list[Saying]:
    """Who answers at x (N, 2): tiles, each with indices (n,) and its weights there (n,); None: nobody is near.

    A tile that exists answers for its core and for the eight around it.
    """
    keys, owner = layout.owners(x)
    number: dict[Key, int] = {}  # of each tile that is asked at all
    near = [
        [number.setdefault(k, len(number)) for k in layout.near(key) if exists(k)] for key in keys
    ]
    most, tiles = max(map(len, near), default=0), list(number)
    if not most:
        return [(None, torch.arange(len(x), device=x.device), x.new_ones(len(x)))] if len(x) else []

    around = torch.tensor([some + [-1] * (most - len(some)) for some in near], device=x.device)[
        owner
    ]  # (N, K)
    low, high = (
        torch.tensor(corner, dtype=x.dtype, device=x.device)[around]
        for corner in zip(*map(layout.core, tiles))
    )
    say = layout.say(low, high, x[:, None]).masked_fill_(around < 0, 0.0)
    total = say.sum(1, keepdim=True)
    say = torch.where(say < _SILENT * total, 0.0, say)
    weight = say / say.sum(1, keepdim=True)

    if len(x) == 1:  # as a robot brings them: there is nothing to be put in order
        return [
            (tile, owner, weight[:, i])
            for i, (tile, w) in enumerate(zip(tiles, weight[0].tolist()))
            if w > 0
        ]
    asked = weight > 0  # nan, where nobody is near, is not
    tile, weight, place = around[asked], weight[asked], asked.nonzero()[:, 0]  # in order of places
    order = tile.argsort(stable=True)
    counts = tile.bincount(minlength=len(tiles)).tolist()
    said = list(zip(tiles, place[order].split(counts), weight[order].split(counts)))
    alone = (total[:, 0] == 0).nonzero()[:, 0]
    return [part for part in [*said, (None, alone, x.new_ones(len(alone)))] if len(part[1])]


def blend(said: list[tuple[Tensor, Tensor, Prediction]], count: int) -> Prediction:
    """One prediction of `count` places from parts: indices (n,), weights (n,) and what was predicted there."""
    first = said[0][2]
    mean = first.mean.new_zeros((count, first.mean.shape[1]))
    variance = torch.zeros_like(mean)
    for which, weight, told in said:
        mean.index_add_(0, which, weight[:, None] * told.mean)
        variance.index_add_(0, which, weight[:, None] * told.variance)
    return Prediction(mean, variance, first.noise_variance)


def blended_prediction(
    layout: Layout,
    exists: Callable[[Key], bool],
    asked: Callable[[Key], Snapshot | FieldMap],
    prior: Prediction,
    x: Tensor,
    velocity: Tensor | None,
    heading: Tensor | None,
    number: float | None = None,
) -> Prediction:
    """Prediction at x (N, 2) of all that answer there; the prior where nobody does.

    asked: who predicts for a tile.  prior: mean and variance (1, C).  number: of a pass, of whose measurements it is.
    """
    said = []
    for key, which, weight in sayings(layout, exists, x):
        if key is None:
            part = Prediction(
                prior.mean.expand(len(which), -1),
                prior.variance.expand(len(which), -1),
                prior.noise_variance,
            )
        else:
            passing = (
                None if velocity is None else velocity[which],
                None if heading is None else heading[which],
            )
            told = asked(key)
            part = (
                told.predict(x[which], *passing)
                if number is None
                else told.predict_in_pass(x[which], number, *passing)
            )
        said.append((which.to(part.mean.device), weight.to(part.mean), part))
    return blend(said, len(x))


def blended_covariances(
    layout: Layout,
    exists: Callable[[Key], bool],
    asked: Callable[[Key], Snapshot | FieldMap],
    prior: Prediction,
    b: Tensor,
) -> Covariances:
    """With places b (K, 2): each tile is told once of those that it knows. Arguments as of blended_prediction."""
    far = replace(layout, blend=2.0 * layout.halo)

    def weighed(x: Tensor) -> dict[Key | None, tuple[Tensor, Tensor, Tensor]]:
        """Of each tile that says anything the places, and their weights w and v."""
        found: dict[Key | None, Tensor] = {}
        for row, each in enumerate((layout, far)):
            for key, which, weight in sayings(each, exists, x):
                found.setdefault(key, x.new_zeros((2, len(x))))[row, which] = weight
        chosen = {key: weights.any(0).nonzero()[:, 0] for key, weights in found.items()}
        return {key: (which, *found[key][:, which]) for key, which in chosen.items()}

    def variance_of(key: Key | None, x: Tensor) -> Tensor:
        return (
            prior.variance[0, :1].expand(len(x))
            if key is None
            else asked(key).predict(x).variance[:, 0]
        )

    def stretch(told: Tensor, reached: Tensor) -> Tensor:
        return (told / reached.clamp_min(1e-300)).sqrt()

    its = weighed(b)
    others = {
        key: asked(key).covariance_with(b[which])
        for key, (which, _, _) in its.items()
        if key is not None
    }
    told, reached = (prior.mean.new_zeros(len(b), dtype=torch.float64) for _ in range(2))
    for key, (which, near, wide) in its.items():
        variance = variance_of(key, b[which])
        told[which] += near.to(variance) * variance
        reached[which] += wide.to(variance) * variance
    second = stretch(told, reached)

    @torch.no_grad()
    def at(a: Tensor) -> tuple[Tensor, Tensor]:
        total = prior.mean.new_zeros((len(a), len(b)), dtype=torch.float64)
        told, reached = (total.new_zeros(len(a)) for _ in range(2))
        for key, (which, near, wide) in weighed(a).items():
            if key in others:
                other, _, its_wide = its[key]
                between, variance = others[key](a[which])
                part = (
                    wide.to(between).sqrt()[:, None]
                    * between
                    * its_wide.to(between).sqrt()[None, :]
                )
                total[which[:, None].to(total.device), other[None, :].to(total.device)] += part
            else:
                variance = variance_of(key, a[which])
            told[which] += near.to(variance) * variance
            reached[which] += wide.to(variance) * variance
        return stretch(told, reached)[:, None] * total * second[None, :], told

    return at

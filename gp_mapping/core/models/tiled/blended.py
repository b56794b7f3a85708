"""Predictions of several tiles as one, for a map of tiles and for a snapshot of one.

    mean = Σ_t w_t(x) mean_t(x),    variance = Σ_t w_t(x) variance_t(x),
    cov(a, b) = s(a) s(b) Σ_t √v_t(a) cov_t(a, b) √v_t(b),    s² = variance / Σ_t v_t variance_t

The weights w and v sum to one (layout.py). w goes over from one tile to the next along `blend`; v
as far as a tile's halo reaches, so that two places on either side of a border have in common what a
tile knows that has seen both. cov is positive semi-definite as a sum of such, and equals the
variance where a = b. Two places that no tile reaches together have covariance 0.

On a card several tiles predict in one batched computation (core/sparse/batched.py). A processor
asks one after the other: what one of them needs stays in its cache.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import to_device
from gp_mapping.core.field_map import Covariances, FieldMap, Snapshot
from gp_mapping.core.linalg import chunk_size
from gp_mapping.core.models.dual_svgp.factoring import can_factor_together, factor_together
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.layout import Key, Layout
from gp_mapping.core.places import motion_of, places_of
from gp_mapping.core.sparse.batched import MOST_NUMBERS, batch_kind, batches, predict_together
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.core.types import Prediction

__all__ = ["KeptWeights", "blend", "blended_covariances", "blended_prediction", "tile_weights"]

TileWeights = tuple[Key | None, Tensor, Tensor]  # a tile, indices of places, and its weights there

_SILENT = 1e-4  # weight below which a tile does not count
_OWN = 4  # of a neighbourhood: the tile itself
_ROWS = 2048  # more than a tile has: by it a card is given places piece by piece (chunk_size)
_FEW = 36  # tiles, at most, whose weights are computed at all places at once


def tile_weights(layout: Layout, exists: Callable[[Key], bool], x: Tensor) -> list[TileWeights]:
    """The tiles that predict at places, with their weights there.

    A tile that exists predicts for its core and for the eight around it.

    Args:
        layout: of the tiles.
        exists: whether a tile is there.
        x: (N, 2) places, m.

    Returns:
        Tiles, each with indices (n,) and its weights there (n,); None as a tile where none is near.
    """
    if not len(x):
        return []
    least, most = x.amin(0).tolist(), x.amax(0).tolist()
    low, high = layout.key_at(least), layout.key_at(most)
    # what a robot brings, and what it changes, mostly lies in one tile, far from its borders
    if low == high and exists(low):
        from_low, to_high = layout.core(low)
        margins = [v - a for v, a in zip(least, from_low)] + [b - v for v, b in zip(most, to_high)]
        if min(margins) >= 0.5 * layout.blend:
            return [(low, torch.arange(len(x), device=x.device), x.new_ones(len(x)))]

    columns, rows = ([*range(a - 1, b + 2)] for a, b in zip(low, high))
    if len(columns) * len(rows) > _FEW:
        return _weights_of_many(layout, exists, x)
    return _weights_of_few(layout, [(i, j) for i in columns for j in rows if exists((i, j))], x)


class KeptWeights:
    """`tile_weights` at places that are asked for again, kept as long as their tensor lives."""

    def __init__(self) -> None:
        # by id of the tensor: itself, the layout, which tiles were there, and the weights
        self._kept: dict[int, tuple[weakref.ref, Layout, dict[Key, bool], list[TileWeights]]] = {}

    def at(self, layout: Layout, exists: Callable[[Key], bool], x: Tensor) -> list[TileWeights]:
        """As `tile_weights`.

        Args:
            layout: of the tiles.
            exists: whether a tile is there.
            x: (N, 2) places, m, a tensor that nobody writes to.
        """
        kept = self._kept.get(id(x))
        if (
            kept is not None
            and kept[0]() is x
            and kept[1] == layout
            and all(exists(key) == there for key, there in kept[2].items())
        ):
            return kept[3]

        asked: dict[Key, bool] = {}

        def ask(key: Key) -> bool:
            """Whether a tile is there; it is noted that this was asked."""
            asked[key] = exists(key)
            return asked[key]

        weights = tile_weights(layout, ask, x)
        # most tensors live for one question
        self._kept = {name: kept for name, kept in self._kept.items() if kept[0]() is not None}
        self._kept[id(x)] = weakref.ref(x), layout, asked, weights
        return weights


def _weights_of_few(layout: Layout, there: list[Key], x: Tensor) -> list[TileWeights]:
    """As `tile_weights`, of every tile at every place.

    Args:
        layout: of the tiles.
        there: tiles that are there, at least all that lie about a place.
        x: (N, 2) places, m.
    """
    columns, rows = (sorted({key[axis] for key in there}) for axis in (0, 1))
    if not there:
        return [(None, torch.arange(len(x), device=x.device), x.new_ones(len(x)))]

    across, beside = layout.inside(0, columns, x)
    along, above = layout.inside(1, rows, x)
    reached = beside[:, None] & above[None]

    keys, exist = [(i, j) for i in columns for j in rows], set(there)
    if len(there) < len(keys):
        exists = torch.tensor([key in exist for key in keys], device=x.device)
        reached &= exists.view(len(columns), len(rows), 1)
    weights = layout.raw_weights(across, along).mul_(reached).flatten(0, 1)  # (tiles, N)

    # weights that hardly count are set to 0, so that their tiles need not predict
    total = weights.sum(0)
    weights.masked_fill_(weights < _SILENT * total, 0.0)
    weights /= weights.sum(0).clamp_min_(1e-300)

    # pairs (tile, place), sorted by tile, then by place
    tiles, places = weights.nonzero(as_tuple=True)
    counts = tiles.bincount(minlength=len(keys)).tolist()
    assigned = zip(keys, places.split(counts), weights[tiles, places].split(counts))
    without = (total == 0.0).nonzero()[:, 0]
    return [part for part in [*assigned, (None, without, x.new_ones(len(without)))] if len(part[1])]


def _weights_of_many(layout: Layout, exists: Callable[[Key], bool], x: Tensor) -> list[TileWeights]:
    """As `tile_weights`, of the nine tiles about each place, where there are many in all."""
    keys, owner = layout.owners(x)
    number: dict[Key, int] = {}  # of each tile that is used at all
    near = [
        [number.setdefault(k, len(number)) if exists(k) else -1 for k in layout.neighbourhood(key)]
        for key in keys
    ]
    if not number:
        return [(None, torch.arange(len(x), device=x.device), x.new_ones(len(x)))]
    around = torch.tensor(near, device=x.device)  # (K, 9), −1 where there is none

    # beyond all strips along borders the tile of a core predicts alone
    below, above = layout.margins(keys, owner, x)
    own = around[:, _OWN][owner]
    alone = (torch.minimum(below, above).amin(0) >= 0.5 * layout.blend).logical_and_(own >= 0)
    inside, others = alone.nonzero()[:, 0], alone.logical_not().nonzero()[:, 0]

    shared = around[owner[others]]  # (n, 9)
    # how far inside each of three columns (rows), the own one in the middle: (2, 3, n)
    below, above = below[:, others], above[:, others]
    depth = torch.stack([-below, torch.minimum(below, above), -above], 1)
    raw = layout.raw_weights(*depth).flatten(0, 1).mT.masked_fill(shared < 0, 0.0)
    # weights that hardly count are set to 0, so that their tiles need not predict
    total = raw.sum(1, keepdim=True)
    raw = torch.where(raw < _SILENT * total, 0.0, raw)
    weight = raw / raw.sum(1, keepdim=True).clamp_min(1e-300)
    place, slot = weight.nonzero(as_tuple=True)

    # pairs (place, tile), sorted by tile, then by place
    tiles = torch.cat([own[inside], shared[place, slot]])
    places, weights = torch.cat([inside, others[place]]), x.new_ones(len(tiles))
    weights[len(inside) :] = weight[place, slot]
    order = (tiles * len(x) + places).argsort()
    counts = tiles.bincount(minlength=len(number)).tolist()
    assigned = zip(number, places[order].split(counts), weights[order].split(counts))

    without = others[total[:, 0] == 0]
    return [part for part in [*assigned, (None, without, x.new_ones(len(without)))] if len(part[1])]


def blend(predictions: list[tuple[Tensor, Tensor, Prediction]], count: int) -> Prediction:
    """One prediction of `count` places from those of tiles.

    Args:
        predictions: for each tile, or batch of tiles, indices (n,), weights (n,) and its prediction
            there.
        count: N.
    """
    first = predictions[0][2]
    mean = first.mean.new_zeros((count, first.mean.shape[1]))
    variance = torch.zeros_like(mean)

    for indices, weight, prediction in predictions:
        # index_add_ would, on a card, add what a batch has of one place in any order
        for total, part in ((mean, prediction.mean), (variance, prediction.variance)):
            total.index_put_((indices,), weight[:, None] * part, accumulate=True)

    return Prediction(mean, variance, first.noise_variance)


def blended_prediction(
    layout: Layout,
    exists: Callable[[Key], bool],
    source_for: Callable[[Key], Snapshot | FieldMap],
    prior: Prediction,
    x: Tensor,
    velocity: Tensor | None,
    heading: Tensor | None,
    number: float | None = None,
) -> Prediction:
    """Blended prediction at places; the prior where no tile is near.

    Args:
        layout: of the tiles.
        exists: whether a tile is there.
        source_for: the map or snapshot that predicts for a tile.
        prior: mean and variance (1, C).
        x: (N, 2) m.
        velocity: (N, 2) m/s, or None.
        heading: (N, 2) ĥ, or None.
        number: of a pass whose measurements are predicted; None for the field.
    """
    x = places_of(x, 2)
    velocity, heading = motion_of(x, velocity, heading)
    weights = tile_weights(layout, exists, x)
    batched = number is None and len(weights) > 1 and predicts_together(prior.mean.device)
    together, parts = _Together(x, velocity, heading, prior.mean.device), []

    for key, indices, weight in weights:
        if key is None:
            part = Prediction(
                prior.mean.expand(len(indices), -1),
                prior.variance.expand(len(indices), -1),
                prior.noise_variance,
            )
        else:
            source = source_for(key)
            if batched and together.takes(source, indices, weight):
                continue

            passing = (
                None if velocity is None else velocity[indices],
                None if heading is None else heading[indices],
            )
            part = (
                source.predict(x[indices], *passing)
                if number is None
                else source.predict_in_pass(x[indices], number, *passing)
            )

        there = part.mean.device
        parts.append((to_device(indices, there), to_device(weight, there), part))

    parts = [*together.predictions(), *parts]
    if not parts:
        none = prior.mean.new_zeros((0, prior.mean.shape[1]))
        return Prediction(none, none, prior.noise_variance)
    return blend(parts, len(x))


def predicts_together(device: torch.device) -> bool:
    """Whether tiles on a device predict in batches: not on a processor, which would be slower."""
    return device.type != "cpu"


class _Together:
    """Tiles that wait to be predicted in batches.

    Args:
        x: (N, 2) m.
        velocity: (N, 2) m/s, or None.
        heading: (N, 2) ĥ, or None.
        device: of the tiles.
    """

    def __init__(
        self, x: Tensor, velocity: Tensor | None, heading: Tensor | None, device: torch.device
    ):
        self._device = device
        self._asked = x, velocity, heading
        self._waiting: list[tuple[Posterior | DualSVGP, Tensor, Tensor]] = []
        self._numbers = 0  # of their factors
        self._done: list[tuple[Tensor, Tensor, Prediction]] = []

    def takes(self, source: Snapshot | FieldMap, indices: Tensor, weight: Tensor) -> bool:
        """Take a tile's part, unless it has to be asked alone.

        Args:
            source: the map or snapshot that predicts for the tile.
            indices: of its places, (n,).
            weight: its weights there, (n,).

        Returns:
            Whether it was taken.
        """
        # a map whose posterior has not been made yet waits, too: they are made together
        waits = can_factor_together(source)
        part = source.posterior if isinstance(source, DualSVGP) and not waits else source
        if not waits and batch_kind(part) is None:
            return False
        # a posterior from the shelf stays in memory while it waits: a bounded number do
        numbers = part.basis.size**2 if waits else len(part.R) ** 2
        if self._numbers + numbers > MOST_NUMBERS:
            self._predict()
        self._numbers += numbers
        chunk = chunk_size(self._device, _ROWS)
        pieces = zip(indices.split(chunk), weight.split(chunk))
        self._waiting += [(part, *piece) for piece in pieces]
        return True

    def predictions(self) -> list[tuple[Tensor, Tensor, Prediction]]:
        """For each batch its indices, weights and predictions, of all that was taken."""
        self._predict()
        return self._done

    def _predict(self) -> None:
        """Predict all that wait."""
        x, *motion = self._asked
        factor_together({id(s): s for s, _, _ in self._waiting if isinstance(s, DualSVGP)}.values())
        self._waiting = [
            (source.posterior if isinstance(source, DualSVGP) else source, *piece)
            for source, *piece in self._waiting
        ]
        for batch in batches(
            [batch_kind(posterior) for posterior, _, _ in self._waiting],
            [(len(posterior.R), len(indices)) for posterior, indices, _ in self._waiting],
        ):
            posteriors, parts, weights = zip(*(self._waiting[i] for i in batch))
            indices = torch.cat(parts)
            part = predict_together(
                posteriors,
                [len(some) for some in parts],
                x[indices],
                *(None if moved is None else moved[indices] for moved in motion),
            )
            device = part.mean.device
            weight = to_device(torch.cat(weights), device)
            self._done.append((to_device(indices, device), weight, part))
        self._waiting, self._numbers = [], 0


def blended_covariances(
    layout: Layout,
    exists: Callable[[Key], bool],
    source_for: Callable[[Key], Snapshot | FieldMap],
    prior: Prediction,
    b: Tensor,
) -> Covariances:
    """Blended covariances with places b (K, 2), for which each tile prepares once.

    Args:
        layout: of the tiles.
        exists: whether a tile is there.
        source_for: the map or snapshot that predicts for a tile.
        prior: mean and variance (1, C).
        b: (K, 2) m.

    Returns:
        A function of places a (N, 2): covariances (N, K), and variances at a (N,).
    """
    far, b = replace(layout, blend=2.0 * layout.halo), places_of(b, 2)

    def weighed(x: Tensor) -> dict[Key | None, tuple[Tensor, Tensor, Tensor]]:
        """The places of each tile that predicts any, and its weights w and v there."""
        weights: dict[Key | None, Tensor] = {}
        for row, grid in enumerate((layout, far)):
            for key, indices, weight in tile_weights(grid, exists, x):
                weights.setdefault(key, x.new_zeros((2, len(x))))[row, indices] = weight
        chosen = {key: rows.any(0).nonzero()[:, 0] for key, rows in weights.items()}
        return {key: (indices, *weights[key][:, indices]) for key, indices in chosen.items()}

    def variance_of(key: Key | None, x: Tensor) -> Tensor:
        """Variance of a tile at places, (n,); None: of the prior."""
        return (
            prior.variance[0, :1].expand(len(x))
            if key is None
            else source_for(key).predict(x).variance[:, 0]
        )

    def stretch(blended: Tensor, reached: Tensor) -> Tensor:
        """Factors s from the blended variances, and from those that covariances would have."""
        return (blended / reached.clamp_min(1e-300)).sqrt()

    # everything that depends on b alone is prepared once
    parts_b = weighed(b)
    covariances_b = {
        key: source_for(key).covariance_with(b[indices])
        for key, (indices, _, _) in parts_b.items()
        if key is not None
    }

    blended, reached = (prior.mean.new_zeros(len(b), dtype=torch.float64) for _ in range(2))
    for key, (indices, w, v) in parts_b.items():
        variance = variance_of(key, b[indices])
        blended[indices] += w.to(variance) * variance
        reached[indices] += v.to(variance) * variance

    second = stretch(blended, reached)

    @torch.no_grad()
    def at(a: Tensor) -> tuple[Tensor, Tensor]:
        """Covariances (N, K) of a (N, 2) with b, and variances at a (N,)."""
        a = places_of(a, 2)
        total = prior.mean.new_zeros((len(a), len(b)), dtype=torch.float64)
        blended, reached = (total.new_zeros(len(a)) for _ in range(2))

        for key, (indices, w, v) in weighed(a).items():
            if key in covariances_b:
                indices_b, _, v_b = parts_b[key]
                between, variance = covariances_b[key](a[indices])
                part = v.to(between).sqrt()[:, None] * between * v_b.to(between).sqrt()[None, :]
                total[indices[:, None].to(total.device), indices_b[None, :].to(total.device)] += (
                    part
                )
            else:
                variance = variance_of(key, a[indices])
            blended[indices] += w.to(variance) * variance
            reached[indices] += v.to(variance) * variance

        return stretch(blended, reached)[:, None] * total * second[None, :], blended

    return at

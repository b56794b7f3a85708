"""Where tiles begin: when the one map no longer suffices, what a new tile starts with, and how many there may be.

A map that has as many tiles as it may have stays as it is, and goes on where its tiles are: what was measured is worth
more than what comes, which a recording of the day still has.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.models.tiled.changes import Changes
from gp_mapping.core.models.tiled.layout import FULL, Key, Layout, side_for
from gp_mapping.core.models.tiled.tile import Tile
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.worth import SMOOTHED, ratio_of
from gp_mapping.errors import MapFullError

__all__ = ["BLEND", "HALO", "bound_note", "leaves", "new_tile", "require_room", "settle"]

HALO, BLEND = 1.5, 1.0  # lengthscales
_SHARE = 0.1  # of the samples, at which so much is left out; each thinning leaves it out at a few, for a while
_SEEDS = 50  # samples of a neighbour that a new tile takes in with one update
_LARGEST_FIRST = (
    1.25  # sides of a tile that the ground of one map may have while its budget suffices
)
_LEAST = 4.0 * HALO  # lengthscales; of less ground the smallest tile with its halo would know all
_ASKED = 16  # samples after which a full map is asked again what it leaves out
_COUNTED = 250  # samples in which the inputs are counted that the ground would take


def leaves(model, new: int) -> bool:
    """Whether one map no longer suffices, after `new` samples more.

    It is full, and the robot has left a square of 1.25 `side` lengthscales, or one that tiles could share, and the map
    smooths what was measured there.
    """
    first = model.home
    extent = max(b - a for a, b in zip(model.low, model.high)) / first.theta.lengthscale
    if extent <= _LEAST:
        return False
    if extent > _LARGEST_FIRST * model.side:
        return (
            len(first.inducing_inputs()) >= FULL * first.max_inducing
            or len(first.remembered_places()) >= FULL * first.memory_size
        )
    return (
        model.samples % _ASKED < new
        and first.unremembered_empty
        and first.moves > 0
        and _smooths(first)
    )


def _smooths(first) -> bool:
    """Whether the budget leaves out `SMOOTHED` variances of the noise, or the tolerance, at a tenth of the samples."""
    much = first.left_open() > SMOOTHED * max(first.noise_level, _tolerance(first))
    return float(much.double().mean()) > _SHARE


def _tolerance(first) -> float:
    """Residual variance that an inducing input has at least, inner units."""
    return first.tolerance * first.theta.signal_stddev**2


def _density(first, places: Tensor) -> float:
    """Inducing inputs that the ground of a full map takes for a square of a lengthscale.

    Those that it has, on the squares it was driven over; where it has too few for them, those that it would have of the
    samples about the middle, if there were no budget: a few more than of ground without a rim.

    Args:
        first: the one map.
        places: (m, 2), of the samples it remembers, m.
    """
    length = first.theta.lengthscale
    if not first.moves or not _smooths(first):
        squares = torch.cat([places, first.inducing_inputs()]).div(length).floor().unique(dim=0)
        return len(first.inducing_inputs()) / max(1, len(squares))
    inner = first.memory_places(first.theta)
    near = (inner - inner.median(0).values).abs().amax(1).argsort()[:_COUNTED]
    basis = Basis(first.theta, inner.shape[1], len(near), torch.float64, inner.device)
    worth = ratio_of(first.information)
    precision = first.remembered_precision(first.theta)[near] if worth else None
    basis.grow(
        inner[near],
        basis.whitened(inner[near]),
        slice(0, len(near)),
        _tolerance(first),
        None,
        precision,
        worth,
    )
    return len(basis) / len(places[near].div(length).floor().unique(dim=0))


def settle(model) -> None:
    """The plane is laid out in tiles, and the first map is split, or becomes the first of them."""
    first = model.home
    length = first.theta.lengthscale
    low, high = (
        [v + s * 0.5 * length for v in corner]
        for corner, s in ((model.low, -1.0), (model.high, 1.0))
    )
    # as many inputs as this ground took, the others take; a tile with its halo is to hold them within its budget
    places = first.remembered_places()
    side = side_for(_density(first, places), first.max_inducing, HALO, model.side) * length
    middle = [0.5 * (a + b) for a, b in zip(low, high)]
    split = Layout(
        tuple(m - 0.5 * side for m in middle),
        tuple(m + 0.5 * side for m in middle),
        side,
        HALO * length,
        BLEND * length,
    )

    model.learner, first.learner = first.learner, None
    if model.learner is not None:
        model.learner.stream()
    model.own_epoch += first.epoch
    model.changes = Changes(model.own_epoch)
    first.driven = True
    cores = [key for key, _ in split.keys(places)] if first.unremembered_empty else []
    if (
        not 0 < len(cores) <= model.limit
    ):  # what is not remembered knows no place: the whole ground is one core
        model.layout = Layout(tuple(low), tuple(high), side, HALO * length, BLEND * length)
        return
    model.layout, model.former, model.tiles = split, first, {}
    for key in cores:
        model.open_tile(key)


def new_tile(model, key: Key) -> Tile:
    """One at the newest θ, with what its neighbours remember of its core and halo waiting for it."""
    new = Tile(model.owned(model.make(model.centre)), touched=model.turn)
    new.map.theta, new.map.learner, new.map.bias_spread = (
        model.home.theta,
        None,
        model.home.bias_spread,
    )
    if model.former is not None:
        sources = [(model.former, model.former.remembered_places(), None)]
    else:
        keys = model.present(sorted(k for k in model.layout.near(key) if k != key))
        sources = [(model.tiles[k].map, model.tiles[k].map.remembered_places(), k) for k in keys]
    for source, places, other in sources:
        wanted = model.layout.takes(key, places)
        if (
            other is not None
        ):  # a sample is in the memory of up to four tiles: that of its core hands it on
            wanted &= model.layout.outside(other, places) < 0
        indices = wanted.nonzero()[:, 0]
        if len(indices):
            near = indices[model.layout.outside(key, places[indices]).argsort()]
            new.seeds += tuple(source.excerpt(part) for part in near.split(_SEEDS))
    new.forgot = model.forgot
    return new


def require_room(model, keys: list[Key]) -> None:
    """MapFullError where those of the tiles that are not there yet would be more than there may be."""
    new = sum(not model.exists(key) for key in keys)
    if new and model.count + new > model.limit:
        raise MapFullError(
            bound_note(model)
            or f"the samples' ground takes {new} more tiles, and the map has "
            f"{model.count} of the {model.limit} that max_tiles allows; give them in parts, or raise it"
        )


def bound_note(model) -> str:
    """What to know of a map that has as many tiles as it may have; '' while it may have more."""
    if model.layout is None or model.count < model.limit:
        return ""
    return (
        f"the map has {model.count} tiles, all that max_tiles ({model.limit}) allows: measurements on other ground "
        "are left out, what is known stays; raise max_tiles"
    )

"""When one map no longer suffices, what a new tile starts with, and how many tiles there may be.

A map that has as many tiles as it may have stays as it is, and goes on where its tiles are: what
was measured is worth more than what comes, which a recording of the day still has.
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

__all__ = [
    "BLEND",
    "HALO",
    "bound_note",
    "needs_tiles",
    "new_tile",
    "require_room",
    "split_into_tiles",
]

HALO, BLEND = 1.5, 1.0  # lengthscales
# fraction of the samples at which a map that smooths leaves so much out; each thinning leaves it
# out at a few, for a while
_SHARE = 0.1
_SEEDS = 50  # samples of a neighbour that a new tile takes in with one update
# extent that the ground of one map may have while its budget suffices, in sides of a tile
_LARGEST_FIRST = 1.25
_LEAST = 4.0 * HALO  # lengthscales; of less ground the smallest tile with its halo would hold all
_ASKED = 16  # samples after which a full map is checked again for what it leaves out
_COUNTED = 250  # samples in which the inputs are counted that the ground would take


def needs_tiles(model, new: int) -> bool:
    """Whether one map no longer suffices.

    That is so where it is full and the robot has left a square of 1.25 `side` lengthscales; or
    where the ground is large enough to be shared by tiles, and the map smooths what was measured
    there.

    Args:
        model: the map of tiles.
        new: number of samples that have just come.
    """
    first = model.current_map
    if first.scaling.origin.shape[0] != 2:
        return False  # tiles lie in the plane: a line, or a space, stays one map
    extent = max(b - a for a, b in zip(model.low, model.high)) / first.theta.lengthscale

    if extent <= _LEAST:
        return False

    if extent > _LARGEST_FIRST * model.side:
        return (
            len(first.inducing_inputs()) >= FULL * first.budget
            or len(first.remembered_places()) >= FULL * first.memory.capacity
        )

    return (
        model.samples % _ASKED < new
        and first.unremembered_empty
        and first.moves > 0
        and _smooths(first)
    )


def _smooths(first) -> bool:
    """Whether the map smooths what was measured.

    That is, whether the budget leaves out more than `SMOOTHED` variances of the noise, or of the
    tolerance, at a tenth of the samples.
    """
    smoothed = first.memory_residual() > SMOOTHED * max(
        first.noise_level, first.residual_at(first.theta)
    )
    return float(smoothed.double().mean()) > _SHARE


def _density(first, places: Tensor) -> float:
    """Inducing inputs that the ground of a full map takes per square of a lengthscale.

    Those that it has, on the squares it was driven over; where it has too few for them, those that
    it would have of the samples about the middle if there were no budget: a few more than for
    ground without a rim.

    Args:
        first: the one map.
        places: (m, 2), of the samples it remembers, m.
    """
    length = first.theta.lengthscale
    if not first.moves or not _smooths(first):
        squares = torch.cat([places, first.inducing_inputs()]).div(length).floor().unique(dim=0)
        return len(first.inducing_inputs()) / max(1, len(squares))

    # a basis without a budget, grown from the samples about the middle alone
    inner = first.memory_places(first.theta)
    near = (inner - inner.median(0).values).abs().amax(1).argsort()[:_COUNTED]
    basis = Basis(first.theta, inner.shape[1], len(near), torch.float64, inner.device)
    worth = ratio_of(first.information)
    precision = first.remembered_precision(first.theta)[near] if worth else None

    basis.grow(
        inner[near],
        basis.whitened(inner[near]),
        slice(0, len(near)),
        first.residual_at(first.theta),
        None,
        precision,
        worth,
    )

    return len(basis) / len(places[near].div(length).floor().unique(dim=0))


def split_into_tiles(model) -> None:
    """Lay the plane out in tiles: the first map is split, or becomes the first of them.

    Args:
        model: the map of tiles, which has one map so far.
    """
    first = model.current_map
    length = first.theta.lengthscale
    low, high = (
        [v + s * 0.5 * length for v in corner]
        for corner, s in ((model.low, -1.0), (model.high, 1.0))
    )

    # the other tiles take as many inputs as this ground; each with its halo fits into a budget
    places = first.remembered_places()
    side = side_for(_density(first, places), first.max_inducing, HALO, model.side) * length

    middle = [0.5 * (a + b) for a, b in zip(low, high)]
    layout = Layout(
        tuple(m - 0.5 * side for m in middle),
        tuple(m + 0.5 * side for m in middle),
        side,
        HALO * length,
        BLEND * length,
    )

    # one learner for all tiles from now on
    model.learner, first.learner = first.learner, None
    if model.learner is not None:
        model.learner.use_minibatches()
    model.own_epoch += first.epoch
    model.changes = Changes(model.own_epoch)

    first.driven = True
    # only a map that remembers all of its samples can be split
    cores = [key for key, _ in layout.group_by_tile(places)] if first.unremembered_empty else []

    # samples that are not remembered have no known place: then the whole ground is one core
    if not 0 < len(cores) <= model.limit:
        model.layout = Layout(tuple(low), tuple(high), side, HALO * length, BLEND * length)
        return

    model.layout, model.former, model.tiles = layout, first, {}
    for key in cores:
        model.open_tile(key)


def new_tile(model, key: Key) -> Tile:
    """A tile at the newest θ, to which its neighbours' samples of its core and halo are given.

    The samples wait in `seeds`.

    Args:
        model: the map of tiles.
        key: of the new tile.
    """
    new = Tile(model.adopt_map(model.make(model.centre)), touched=model.turn)
    new.map.theta, new.map.learner, new.map.bias_spread = (
        model.current_map.theta,
        None,
        model.current_map.bias_spread,
    )

    if model.former is not None:
        sources = [(model.former, model.former.remembered_places(), None)]
    else:
        keys = model.load_tiles(sorted(k for k in model.layout.neighbourhood(key) if k != key))
        sources = [(model.tiles[k].map, model.tiles[k].map.remembered_places(), k) for k in keys]

    # each source hands on what it remembers of the new tile's core and halo
    for source, places, owner in sources:
        taken = model.layout.covers(key, places)
        # a sample is in the memory of up to four tiles: that of its core hands it on
        if owner is not None:
            taken &= model.layout.holds(owner, places)

        indices = taken.nonzero()[:, 0]
        if len(indices):
            # the core's own samples first, then those farther away
            near = indices[model.layout.outside(key, places[indices]).argsort()]
            new.seeds += tuple(source.excerpt(part) for part in near.split(_SEEDS))

    new.forgot = model.forgot
    new.map.widen_budget(model.widened)
    return new


def require_room(model, keys: list[Key]) -> None:
    """Check that there may be as many tiles as some samples need.

    Args:
        model: the map of tiles.
        keys: tiles in whose cores the samples lie.

    Raises:
        MapFullError: there would be too many.
    """
    new = sum(not model.exists(key) for key in keys)
    if new and model.tile_count + new > model.limit:
        raise MapFullError(
            bound_note(model)
            or f"the samples' ground takes {new} more tiles, and the map has "
            f"{model.tile_count} of the {model.limit} that max_tiles allows; give them in parts, or raise it"
        )


def bound_note(model) -> str:
    """What to know of a map that has as many tiles as it may have; '' while it may have more."""
    if model.layout is None or model.tile_count < model.limit:
        return ""
    return (
        f"the map has {model.tile_count} tiles, all that max_tiles ({model.limit}) allows: "
        "measurements on other ground are left out, what is known stays; raise max_tiles"
    )

"""A map of tiles to a checkpoint and back: each tile by itself, as a state that need not be in memory."""

from __future__ import annotations

import copy

import torch

from gp_mapping.core.models.tiled.layout import Key, Layout, key_of, name_of
from gp_mapping.core.models.tiled.tile import Tile
from gp_mapping.core.models.tiled.visits import TileLost, read
from gp_mapping.core.stored import StoredState

__all__ = ["load", "save"]

_NUMBERS = ("samples", "turn", "forgot", "loads", "merged_without", "newest_pass")


def save(model) -> dict:
    """Everything needed for exact resume; while there is one map, its own state and where it was.

    Tiles are StoredStates, the same ones as long as a tile does not change.
    """
    if model.layout is None:
        corners = (
            {"low": model.low, "high": model.high} if model.started else {"low": None, "high": None}
        )
        return model.home.state_dict() | {
            "ground": corners | {"generator": model.generator.get_state()}
        }

    tiles = {
        name_of(k): {"state": t.stored(name_of(k)), "touched": t.touched}
        for k, t in model.tiles.items()
    }
    return {
        "model": model.name,
        "layout": model.layout.state_dict(),
        "tiles": tiles,
        "shelf": model.shelf.state_dict(),
        "current": list(model.current),
        "low": model.low,
        "high": model.high,
        "generator": model.generator.get_state(),
        "tiles_lost": model.lost_count,
        "side": model.side,
        "former": None if model.former is None else model.former.state_dict(),
        "learner": None if model.learner is None else model.learner.state_dict(),
        **{name: getattr(model, name) for name in _NUMBERS},
    }


def load(model, state: dict) -> dict:
    """Attributes of the map that `save` was called for. ValueError where the state does not fit.

    A tile that is damaged or gone is left out, and told of by the map.
    """
    if state.get("model") != model.name:  # of one map, as `tiles: false` makes it
        return _load_one(model, state)
    try:
        new = copy.copy(model)
        new.forget_mark()
        new.layout, new.lost, new.tiles = Layout.from_state_dict(state["layout"]), {}, {}
        new.current, new.low, new.high = (
            tuple(state["current"]),
            list(state["low"]),
            list(state["high"]),
        )
        for name in _NUMBERS:
            setattr(new, name, state[name])
        new.lost_count = int(
            state.get("tiles_lost", 0)
        )  # files before tiles had their own know none
        new.former = None if state["former"] is None else model.restored(state["former"])
        new.learner = None
        if state["learner"] is not None:
            new.learner = model.make(None).learner
            new.learner.load_state_dict(state["learner"])
        new.generator = torch.Generator()
        new.generator.set_state(state["generator"])
        new.shelf = model.shelf.restored(state["shelf"])
        lost = [
            TileLost(key, why) for key in new.shelf.keys() if (why := new.shelf.peek(key).trouble())
        ]
        for name, part in state["tiles"].items():
            try:
                new.tiles[key_of(name)] = _loaded_tile(new, key_of(name), part)
            except TileLost as one:
                lost.append(one)
    except (KeyError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"not a state of a map of tiles: {type(error).__name__}: {error}"
        ) from error
    if not new.tiles:
        raise ValueError(
            "none of the tiles near the robot can be read: " + "; ".join(one.why for one in lost)
        )
    if new.current not in new.tiles:  # damaged: the nearest of the others, until the next sample
        new.current = min(new.tiles, key=lambda k: max(abs(a - b) for a, b in zip(k, new.current)))
    for one in lost:  # now that there is a tile where the robot is
        new.lose(one)
    return new.__dict__


def _loaded_tile(new, key: Key, part: dict) -> Tile:
    """One of the tiles that were at hand. TileLost."""
    stored = (
        part["state"] if "state" in part else StoredState(name_of(key), part)
    )  # before tiles had files: inline
    told = read(key, stored)
    tile = Tile(
        new.visits.made(key, stored, told["forgot"]),
        tuple(map(new.restored, told["seeds"])),
        told["forgot"],
        part["touched"],
    )
    tile.is_as(stored)
    return tile


def _load_one(model, state: dict) -> dict:
    """The map of one tile whose state it is."""
    first = model.make(None)
    first.load_state_dict(state)
    first.in_slices(model.sliced)
    new = type(model)(
        model.make,
        side=model.side,
        most=model.most,
        limit=model.limit,
        shelf=model.shelf.restored({}),
    )
    new.sliced = model.sliced
    new.tiles[new.current].map, new.samples, new.newest_pass = (
        first,
        first.samples,
        first.newest_pass,
    )
    ground = state.get("ground")
    if ground is not None:
        if ground["low"] is not None:
            new.low, new.high = list(ground["low"]), list(ground["high"])
        new.generator.set_state(ground["generator"])
    elif first.started and len(first.remembered_places()):
        new.reach(torch.cat([first.remembered_places(), first.inducing_inputs()]).cpu())
    return new.__dict__

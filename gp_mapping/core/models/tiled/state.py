"""A map of tiles to a checkpoint and back: each tile is a state that need not be in memory."""

from __future__ import annotations

import copy

import torch

from gp_mapping.core.models.tiled.layout import Key, Layout, key_of, name_of
from gp_mapping.core.models.tiled.tile import Tile
from gp_mapping.core.models.tiled.tile_copies import TileLost, make_copy, read_tile
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.stored import StoredState

__all__ = ["load", "save"]

# attributes that are saved as they are
_NUMBERS = ("samples", "turn", "forgot", "loads", "merged_without", "newest_pass")
_LATER = {"evidence_version": 0, "widened": 1}  # not in files of earlier versions


def save(model) -> dict:
    """Everything needed for exact resume; of a single map its own state and its ground.

    Tiles are StoredStates, the same objects as long as a tile does not change.

    Args:
        model: the map of tiles.
    """
    if model.layout is None:
        corners = (
            {"low": model.low, "high": model.high} if model.started else {"low": None, "high": None}
        )
        return model.current_map.state_dict() | {
            "ground": corners | {"generator": model.generator.get_state()}
        }

    tiles = {
        name_of(k): {"state": t.stored(name_of(k)), "touched": t.touched, "heard": t.seen_version}
        for k, t in model.tiles.items()
    }
    return {
        "model": model.name,
        "layout": model.layout.state_dict(),
        "tiles": tiles,
        "shelf": model.shelf.state_dict(),
        "aside": model.shelf.aside_dict(),
        "current": list(model.current),
        "low": model.low,
        "high": model.high,
        "generator": model.generator.get_state(),
        "tiles_lost": model.lost_count,
        "side": model.side,
        "former": None if model.former is None else model.former.state_dict(),
        "learner": None if model.learner is None else model.learner.state_dict(),
        "pass_evidence": None
        if model.shelved_evidence is None
        else model.shelved_evidence.state_dict(),
        **{name: getattr(model, name) for name in (*_NUMBERS, *_LATER)},
    }


def load(model, state: dict) -> dict:
    """Attributes of the map that was saved.

    A tile that is damaged or out of reach is left out, and the map's notes name it.

    Args:
        model: a map with the same settings.
        state: by `save`, or of one map.

    Raises:
        ValueError: the state does not fit.
    """
    if not isinstance(state, dict):
        raise ValueError(f"not a state of a map of tiles: a {type(state).__name__}")
    if state.get("model") != model.name:  # a single map, as `tiles: false` makes it
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
        for name, value in _LATER.items():
            setattr(new, name, state.get(name, value))
        evidence = state.get("pass_evidence")
        new.shelf_prior = new.shelved_evidence = (
            None
            if evidence is None
            else PassEvidence.from_state_dict(evidence, model.current_map.device)
        )
        # 0 in files of a version whose tiles had no files of their own
        new.lost_count = int(state.get("tiles_lost", 0))

        new.former = None if state["former"] is None else model.restored(state["former"])
        new.learner = None
        if state["learner"] is not None:
            new.learner = model.make(None).learner
            new.learner.load_state_dict(state["learner"])
        new.generator = torch.Generator()
        new.generator.set_state(state["generator"])

        new.shelf = model.shelf.restored(state["shelf"], state.get("aside"))
        new.lost_count -= len(new.shelf.returned(lambda key: name_of(key) in state["tiles"]))
        lost = [
            TileLost(key, why, passing=True)
            for key in new.shelf.keys()
            if (why := new.shelf.peek(key).visible_fault())
        ]
        for name, part in state["tiles"].items():
            try:
                new.tiles[key_of(name)] = _loaded_tile(new, key_of(name), part)
            except TileLost as loss:
                lost.append(loss)
                if loss.passing:
                    new.shelf.put(loss.key, part["state"])
    except (KeyError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"not a state of a map of tiles: {type(error).__name__}: {error}"
        ) from error

    if not new.tiles:
        raise ValueError(
            "none of the tiles near the robot can be read: " + "; ".join(loss.why for loss in lost)
        )

    if new.current not in new.tiles:  # damaged: the nearest of the others, until the next sample
        new.current = min(new.tiles, key=lambda k: max(abs(a - b) for a, b in zip(k, new.current)))
    # now that there is a tile where the robot is, which notes of changes need
    for loss in lost:
        new.drop_lost(loss)
    return new.__dict__


def _loaded_tile(new, key: Key, part: dict) -> Tile:
    """A tile that was in memory.

    Args:
        new: the map that is loaded.
        key: of the tile.
        part: of the map's state.

    Raises:
        TileLost: it cannot be read.
    """
    # before tiles had files of their own, states were inline
    stored = part["state"] if "state" in part else StoredState(name_of(key), part)
    content = read_tile(key, stored)

    tile = Tile(
        make_copy(key, stored, content["forgot"], new.restored),
        tuple(map(new.restored, content["seeds"])),
        content["forgot"],
        part["touched"],
    )
    tile.restore_evidence(content, content["forgot"])
    tile.map.widen_budget(new.widened)
    tile.seen_version = part.get("heard", -1)
    tile.mark_stored(stored)
    # in files of earlier versions a tile may lag behind what was forgotten
    tile.forget(new.forgot)
    return tile


def _load_one(model, state: dict) -> dict:
    """Attributes of a map of one tile from the state of that tile's map."""
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
        new.extend_bounds(torch.cat([first.remembered_places(), first.inducing_inputs()]).cpu())
    return new.__dict__

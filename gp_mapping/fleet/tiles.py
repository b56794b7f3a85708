"""Sums of all bags to a map that goes on as any other: its tiles, then the session around them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.hyper.bias import BiasSpread
from gp_mapping.core.models.dual_svgp.assembled import assemble, part_of
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.layout import Key, name_of
from gp_mapping.core.registry import build_map
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.stored import Room, StoredState
from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.cells import BagReport, bounds_of
from gp_mapping.fleet.robot import Scores
from gp_mapping.fleet.sums import Tile, TileSums, scaling_of
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import AUTOMATIC, MapSettings

__all__ = ["field_of", "finished_state", "map_of", "session_of"]


def map_of(sums: TileSums, z: Tensor, agreed: Agreed, alone: bool = False) -> DualSVGP:
    """The map of a tile.

    Args:
        sums: of all bags.
        z: (M, 2) inducing inputs, inner.
        agreed: by all bags.
        alone: whether it is the only tile, and learns on by itself.
    """
    theta = agreed.theta
    model = build_map(replace(agreed.settings, tiles=False), centre=agreed.centre)
    model.learner = agreed.learner() if alone else None

    # the kept cells alone, for the memory; the sums have them already
    remembering = part_of(theta, z, scaling_of(agreed), sums.kept, len(sums.kept))
    assemble(
        model,
        theta,
        z,
        scaling_of(agreed),
        sums.sites,
        sums.count,
        remembering.memory,
        sums.newest_pass,
    )
    return model


def finished_state(
    tile: Tile,
    sums: TileSums,
    z: Tensor,
    agreed: Agreed,
    spread: BiasSpread | None,
    own: PassEvidence | None,
    shared: PassEvidence | None,
) -> dict:
    """State of a finished tile; where it is the only one, of its map.

    Args:
        tile: the tile.
        sums: of all bags.
        z: (M, 2) inducing inputs, inner.
        agreed: by all bags, with s_b.
        spread: from which s_b is; None where it is not learned.
        own: what the tile says of the constants.
        shared: what all tiles say of them.
    """
    model = map_of(sums, z, agreed, tile.layout is None)
    model.bias_spread = spread
    if tile.layout is None:
        return model.state_dict()

    others = _without(shared, own, model.theta.bias_stddev**2)
    if others is not None:
        model.adopt_pass_evidence(others)
    return {
        "map": model.state_dict(),
        "forgot": 0.0,
        "seeds": [],
        "evidence": None if own is None else own.state_dict(),
        "told": model.samples,
    }


def _without(
    shared: PassEvidence | None, own: PassEvidence | None, variance: float
) -> PassEvidence | None:
    """What others say of the constants, s_b² being the variance; None where that is nothing."""
    return shared if shared is None or own is None else shared.without(own, variance)


def session_of(
    settings: MapSettings,
    agreed: Agreed,
    states: dict[Key, StoredState | dict],
    tiles: list[Tile],
    reports: list[BagReport],
    path: dict,
    scores: Scores,
    about: dict,
    room: Room | None,
    shared: PassEvidence | None,
) -> MapSession:
    """The session of all bags, which maps on from there.

    Args:
        settings: as a person gave them.
        agreed: by all bags.
        states: of the tiles; of a single one, the map's.
        tiles: of these states.
        reports: of all bags.
        path: of all bags.
        scores: of all bags.
        about: of the recordings.
        room: where tiles are that are not in memory.
        shared: what all tiles say of the constants of passes.
    """
    session = MapSession(settings, room)
    low, high = bounds_of(reports)
    cells, passes = sum(t.cells for t in reports), sum(t.passes for t in reports)
    stamps = [t.newest_stamp for t in reports if t.newest_stamp is not None]

    start = {
        "resolved": {name: getattr(agreed.settings, name) for name in AUTOMATIC},
        "centre": agreed.centre.tolist(),
        "count": cells,
        "next": cells,
        "open": False,
        "cells": [],
    }

    # the state of a session that has seen nothing, with the parts that the bags fill
    state = session.state_dict()
    state |= {
        "map": _map_state(agreed, states, tiles, low, high, cells, shared),
        "start": start,
        "path": path,
        "about": about,
        "channels": len(agreed.centre),
        "cells": state["cells"] | {"gross": sum(t.gross for t in reports)},
        "first_values": state["first_values"] | {"seen": cells},
        # no cells of the bags are there to begin again with
        "response": state["response"] | {"kept": None},
        "drift": state["drift"] | {"kept": None},
        "frames": state["frames"] | {"kept": None},
        "raw_count": sum(t.samples for t in reports),
        "cell_count": cells,
        "passes": passes,
        "revision": cells,
        "refused": sum(t.refused for t in reports),
        "last_stamp": max(stamps, default=None),
    }

    new = MapSession.from_state_dict(state, room)
    fleet_scores = OneStepAhead(agreed.settings)
    (
        fleet_scores.noise,
        fleet_scores.local,
        fleet_scores.white_variance,
        fleet_scores.white_averaged,
    ) = (
        scores.noise,
        scores.local,
        scores.white_variance,
        scores.averaged,
    )
    new.scores.join(fleet_scores, new.map)

    number = max(new.map.newest_pass, -1.0)
    new.bias_numbers.load_state_dict({"number": number, "began": []})
    return new


def field_of(
    agreed: Agreed,
    states: dict[Key, StoredState | dict],
    tiles: list[Tile],
    shared: PassEvidence | None,
) -> FieldMap:
    """The map of some tiles alone.

    Args:
        agreed: by all bags.
        states: of the tiles; of a single one, the map's.
        tiles: of these states.
        shared: what all tiles say of the constants of passes; None where that is nothing.
    """
    new = build_map(agreed.settings)
    new.load_state_dict(_map_state(agreed, states, tiles, [0.0, 0.0], [0.0, 0.0], 1, shared))
    return new


def _map_state(
    agreed: Agreed,
    states: dict,
    tiles: list[Tile],
    low: list[float],
    high: list[float],
    cells: int,
    shared: PassEvidence | None,
) -> dict:
    """State of a map of these tiles; low, high: corners of the ground, m."""
    generator = torch.Generator().manual_seed(agreed.settings.seed).get_state()

    if tiles[0].layout is not None:
        return _tiled_state(agreed, states, tiles, low, high, cells, generator, shared)
    return states[tiles[0].key] | {"ground": {"low": low, "high": high, "generator": generator}}


def _tiled_state(
    agreed: Agreed,
    states: dict,
    tiles: list[Tile],
    low: list[float],
    high: list[float],
    cells: int,
    generator: Tensor,
    shared: PassEvidence | None,
) -> dict:
    """State of a map of several tiles: one of them in memory, the others on the shelf."""
    # one tile has to be in memory; any will do
    learner, current = agreed.learner(), tiles[0].key
    shelf = {name_of(key): state for key, state in states.items() if key != current}

    own = states[current].get()["evidence"]
    own = None if own is None else PassEvidence.from_state_dict(own, "cpu")
    # of all tiles, so also of those that are not among `tiles`
    elsewhere = _without(shared, own, agreed.theta.bias_stddev**2)

    return {
        "model": "tiled",
        "layout": tiles[0].layout.state_dict(),
        "shelf": shelf,
        "tiles": {name_of(current): {"state": states[current], "touched": 0}},
        "current": list(current),
        "low": low,
        "high": high,
        "generator": generator,
        "tiles_lost": 0,
        "side": agreed.settings.map_tile_side,
        "former": None,
        "learner": None if learner is None else learner.state_dict(),
        "samples": cells,
        "turn": 0,
        "forgot": 0.0,
        "pass_evidence": None if elsewhere is None else elsewhere.state_dict(),
        "loads": 0,
        "merged_without": 0,
        "newest_pass": max(float(state.get()["map"]["newest_pass"]) for state in states.values()),
    }

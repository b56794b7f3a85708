"""The steps of a fleet's map in their order, with one barrier between each.

bag        cells, robot                         one step each a bag
all        θ, origin, centre, tiles             here, from a few numbers of each bag
bag, tile  candidates for z; sites at θ and z   summed as a tree over the bags of a tile
tiles      what all say of the passes' constants, and s_b
tile       the map's state                      fetched one at a time, and put into a file
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gp_mapping.core.models.tiled.layout import Key, name_of
from gp_mapping.core.stored import StoredState
from gp_mapping.errors import UsageError
from gp_mapping.fleet import sums, tiles
from gp_mapping.fleet.agreed import Agreed, choose_layout
from gp_mapping.fleet.bags import Bags
from gp_mapping.fleet.cells import bounds_of
from gp_mapping.fleet.constants import evidence_to_keep, joined_evidence, spread_of, with_spread
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.kept import evidence_kept, from_files, kept_tree, sums_file, value_of
from gp_mapping.fleet.robot import joined_fixes, joined_paths, joined_scores, scores_of
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.parts import MODELS, SUMS
from gp_mapping.store.scratch.tile_room import TileRoom

__all__ = ["FleetMap", "check_fleet", "map_bags"]


@dataclass(frozen=True)
class FleetMap:
    """The map of all bags.

    Attributes:
        session: of all bags.
        agreed: by them.
        sums: of each tile a handle of its z, one of the sums of all bags, and the indices of bags.
        states: of each tile a handle of its state; of a single one, of its map's.
        shared: a handle of what all tiles say of the constants of passes.
    """

    session: MapSession
    agreed: Agreed
    sums: dict[sums.Tile, tuple]
    states: dict[Key, Any]
    shared: Any


def check_fleet(settings: MapSettings) -> None:
    """Check that maps with these settings can be summed.

    Raises:
        UsageError: they cannot.
    """
    if not MODELS.has(settings.model, SUMS) or settings.likelihood != "gaussian":
        raise UsageError(
            f"model {settings.model} with likelihood {settings.likelihood} is not mapped bag by bag; "
            "write --set model=dual_svgp --set likelihood=gaussian, or leave --workers and --scheduler "
            "out"
        )

    if settings.forgetting_time > 0:
        raise UsageError(
            "forgetting_time: bags that are mapped side by side have no order in time; write --set "
            "forgetting_time=0, or leave --workers and --scheduler out"
        )

    if not settings.cells:
        raise UsageError(
            "cells: bags are mapped side by side from cells; write --set cells=true, or leave --workers "
            "and --scheduler out"
        )


def map_bags(
    engine: Engine, bags: Bags, agreed: Agreed, settings: MapSettings, folder: Path | None = None
) -> FleetMap:
    """The map of all bags at the agreed θ.

    Args:
        engine: where that is done.
        bags: that were read.
        agreed: by them.
        settings: as a person gave them.
        folder: for tiles that are not in memory; the system's temporary one if None.

    Raises:
        UsageError: the bags' ground takes more tiles than max_tiles.
    """
    own = [
        (cells, job.number, robot, agreed)
        for cells, job, robot in zip(bags.cells, bags.jobs, bags.robots)
    ]
    layout, known = _ground(engine, bags, agreed, own)
    all_tiles = sorted({key for cores, _ in known for key in cores})
    if len(all_tiles) > settings.max_tiles:
        raise UsageError(
            f"the bags' ground takes {len(all_tiles)} tiles, more than max_tiles ({settings.max_tiles}); "
            f"write --set max_tiles={len(all_tiles)}, or map fewer bags together"
        )

    # of each tile, the bags that have cells in its halo
    which = {
        sums.Tile(key, layout): [i for i, (_, around) in enumerate(known) if key in around]
        for key in all_tiles
    }
    tile_sums, said = _summed(engine, bags, which, own, settings.memory_size)
    agreed, spread, shared = _constants(engine, list(said.values()), agreed)

    made = {
        tile: engine.step(
            "tile", tiles.finished_state, tile, total, z, agreed, spread, said[tile], shared
        )
        for tile, (z, total, _) in tile_sums.items()
    }
    room = TileRoom(folder)
    states = _states(engine, made, room)
    path, fixes, scores = _of_all_bags(engine, bags, settings)
    session = tiles.session_of(
        settings,
        agreed,
        states,
        list(tile_sums),
        bags.reports,
        path,
        scores,
        bags.about,
        room,
        engine.result(shared),
    )
    session.fixes.load_state_dict(fixes)

    return FleetMap(
        session, agreed, tile_sums, {tile.key: state for tile, state in made.items()}, shared
    )


def _summed(
    engine: Engine,
    bags: Bags,
    which: dict[sums.Tile, list[int]],
    own: list[tuple],
    memory_size: int,
) -> tuple[dict[sums.Tile, tuple], dict[sums.Tile, Any]]:
    """The sums of each tile over its bags, and what it says of the constants of passes.

    Args:
        engine: of the steps.
        bags: that were read.
        which: of each tile the indices of its bags.
        own: arguments of each bag's steps.
        memory_size: most cells that a tile remembers.

    Returns:
        Of each tile (z, sums, indices of its bags), as handles; and a handle of what it says.
    """
    keep = bags.jobs[0].keep
    tile_sums: dict[sums.Tile, tuple] = {}
    said: dict[sums.Tile, Any] = {}

    # steps are only given here; the first result is fetched after all tiles have theirs
    for tile, indices in which.items():
        closed = sums_file(keep, tile.key) if keep else None
        inputs = kept_tree(
            engine,
            "candidates",
            [(sums.candidates, tile, *own[i]) for i in indices],
            ("inputs", partial(sums.joined_inputs, agreed=own[0][-1])),
            closed and closed.with_suffix(".inputs"),
            closed,
        )
        z = engine.step("z", value_of, inputs)
        total = kept_tree(
            engine,
            "sites",
            [(sums.sums_of, tile, z, *own[i]) for i in indices],
            ("sum", partial(sums.joined_sums, most=memory_size)),
            closed and closed.with_suffix(".part"),
            closed,
        )
        tile_sums[tile] = z, total, indices
        said[tile] = engine.step("evidence", evidence_kept, total, inputs, own[0][-1], keep, tile)

    for _ in engine.results(engine.each("summed", _is_there, said.values()), "sum", small=True):
        pass
    return from_files(engine, keep, tile_sums), said


def _constants(engine: Engine, said: list, agreed: Agreed) -> tuple[Agreed, Any, Any]:
    """One s_b for all tiles, of what all say.

    Args:
        engine: of the steps.
        said: of each tile a handle of its evidence of the constants.
        agreed: by the bags.

    Returns:
        What is agreed on now, the spread of the constants, and a handle of what all tiles say.
    """
    join = partial(joined_evidence, variance=agreed.theta.bias_stddev**2)
    together = engine.tree("constants", join, said)
    spread = engine.result(engine.step("spread", spread_of, together, agreed))
    agreed = with_spread(agreed, spread)
    return agreed, spread, engine.step("shared", evidence_to_keep, together, agreed)


def _states(engine: Engine, made: dict[sums.Tile, Any], room: TileRoom) -> dict[Key, Any]:
    """The states of all tiles by their keys; in files where there are several.

    Args:
        engine: of the steps.
        made: of each tile a handle of its state.
        room: the files.
    """
    states: dict[Key, Any] = {}
    for tile, state in zip(made, engine.results(list(made.values()), "draw up")):
        if tile.layout is None:
            states[tile.key] = state
            continue
        # to a file at once, so that one state at a time is in this process
        states[tile.key] = StoredState(name_of(tile.key), state)
        room.put(states[tile.key])
    return states


def _of_all_bags(engine: Engine, bags: Bags, settings: MapSettings) -> tuple[Any, Any, Any]:
    """The path, the fixes and the scores of all bags."""
    steps = (
        ("path", "paths", partial(joined_paths, step=settings.cell_length), _path_of, bags.cells),
        ("fix", "fixes", partial(joined_fixes, most=settings.max_fixes), _fixes_of, bags.cells),
        ("score", "scores", joined_scores, scores_of, bags.calibrated),
    )
    handles = [
        engine.tree(together, join, engine.each(name, of, inputs))
        for name, together, join, of, inputs in steps
    ]
    path, fixes, scores = (engine.result(handle) for handle in handles)
    return path, fixes, scores


def _is_there(_) -> bool:
    """That a step is done, without what it has made."""
    return True


def _path_of(made) -> dict:
    """State of a bag's path."""
    return made.path


def _fixes_of(made) -> dict:
    """State of a bag's fixes."""
    return made.fixes


def _ground(engine: Engine, bags: Bags, agreed: Agreed, own: list[tuple]):
    """The layout, and of each bag the tiles that it touches.

    Args:
        engine: of the steps.
        bags: that were read.
        agreed: by them.
        own: arguments of each bag's steps: cells, number, robot, agreed.

    Returns:
        The layout, and of each bag (tiles whose cores it touches, tiles that know some of its
        cells).
    """
    length = agreed.theta.lengthscale
    squares = engine.tree(
        "ground",
        sums.joined_ground,
        [engine.step("squares", sums.touched, *step, None, length) for step in own],
    )

    low, high = bounds_of(bags.reports)
    layout = choose_layout(agreed, bags.robots, low, high, len(engine.result(squares)[2]))

    handles = [engine.step("touched", sums.touched, *step, layout, length) for step in own]
    return layout, [(cores, around) for cores, around, _ in engine.results(handles, small=True)]

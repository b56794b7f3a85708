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

import torch

from gp_mapping.core.models.tiled.layout import Key, name_of
from gp_mapping.core.stored import StoredState
from gp_mapping.errors import UsageError
from gp_mapping.fleet import sums, tiles
from gp_mapping.fleet.agreed import Agreed, choose_layout
from gp_mapping.fleet.bags import Bags
from gp_mapping.fleet.cells import bounds_of
from gp_mapping.fleet.constants import joined_evidence, shared_evidence, spread_of, with_spread
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.held_out import RobotComparison, compare_robot, held_out, joined_held_out
from gp_mapping.fleet.kept import evidence_kept, from_files, kept_tree, sums_file, value_of
from gp_mapping.fleet.robot import joined_fixes, joined_paths, joined_scores, scores_of
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.scratch.tile_room import TileRoom

__all__ = ["FleetMap", "check_fleet", "compare_robots", "map_bags"]


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
    if settings.model != "dual_svgp" or settings.likelihood != "gaussian":
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
    count = range(len(bags.jobs))
    own = [(bags.cells[i], bags.jobs[i].number, bags.robots[i], agreed) for i in count]
    layout, known = _ground(engine, bags, agreed, own)
    keep = bags.jobs[0].keep

    all_tiles = sorted({key for cores, _, _ in known for key in cores})
    if len(all_tiles) > settings.max_tiles:
        raise UsageError(
            f"the bags' ground takes {len(all_tiles)} tiles, more than max_tiles ({settings.max_tiles}); "
            f"write --set max_tiles={len(all_tiles)}, or map fewer bags together"
        )

    tile_sums: dict[sums.Tile, tuple] = {}
    # steps are only given here; the first result is fetched after all tiles have theirs
    said = {}
    for key in all_tiles:
        tile = sums.Tile(key, layout)
        which = [i for i in count if key in known[i][1]]
        closed = sums_file(keep, key) if keep else None
        inputs = kept_tree(
            engine,
            "candidates",
            [(sums.candidates, tile, *own[i]) for i in which],
            ("inputs", partial(sums.joined_inputs, agreed=agreed)),
            closed and closed.with_suffix(".inputs"),
            closed,
        )
        z = engine.step("z", value_of, inputs)
        total = kept_tree(
            engine,
            "sites",
            [(sums.sums_of, tile, z, *own[i]) for i in which],
            ("sum", partial(sums.joined_sums, most=settings.memory_size)),
            closed and closed.with_suffix(".part"),
            closed,
        )
        tile_sums[tile] = z, total, which
        said[tile] = engine.step("evidence", evidence_kept, total, inputs, agreed, keep, tile)

    for _ in engine.results(engine.each("summed", _is_there, said.values()), "sum", small=True):
        pass
    tile_sums = from_files(engine, keep, tile_sums)

    # one s_b for all tiles, of what all say
    join = partial(joined_evidence, variance=agreed.theta.bias_stddev**2)
    together = engine.tree("constants", join, list(said.values()))
    spread = engine.result(engine.step("spread", spread_of, together, agreed))
    agreed = with_spread(agreed, spread)
    shared = engine.step("shared", shared_evidence, together, agreed)

    room, states = TileRoom(folder), {}
    made = [
        engine.step(
            "tile", tiles.finished_state, tile, total, z, agreed, spread, said[tile], shared
        )
        for tile, (z, total, _) in tile_sums.items()
    ]
    for tile, state in zip(tile_sums, engine.results(made, "draw up")):
        if layout is None:
            states[tile.key] = state
            continue
        # to a file at once, so that one state at a time is in this process
        states[tile.key] = StoredState(name_of(tile.key), state)
        room.put(states[tile.key])

    path = engine.tree(
        "paths",
        partial(joined_paths, step=settings.cell_length),
        engine.each("path", _path_of, bags.cells),
    )
    fixes = engine.tree(
        "fixes",
        partial(joined_fixes, most=settings.max_fixes),
        engine.each("fix", _fixes_of, bags.cells),
    )
    scores = engine.tree("scores", joined_scores, engine.each("score", scores_of, bags.calibrated))

    session = tiles.session_of(
        settings,
        agreed,
        states,
        list(tile_sums),
        bags.reports,
        engine.result(path),
        engine.result(scores),
        bags.about,
        room,
        engine.result(shared),
    )

    session.fixes.load_state_dict(engine.result(fixes))
    keys = (tile.key for tile in tile_sums)
    return FleetMap(session, agreed, tile_sums, dict(zip(keys, made)), shared)


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
        cells, nothing).
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
    return layout, [
        (cores, around, torch.empty(0)) for cores, around, _ in engine.results(handles, small=True)
    ]


def compare_robots(
    engine: Engine, bags: Bags, made: FleetMap, noise: float
) -> list[RobotComparison | None]:
    """Each robot compared with the map of all others; None where these know too few of its places.

    Args:
        engine: on which the map was made.
        bags: of the map.
        made: the map.
        noise: standard deviation of a measurement, SI.
    """
    agreed, centre = made.agreed, float(made.agreed.centre[0])

    handles = []
    for i, (job, robot) in enumerate(zip(bags.jobs, bags.robots)):
        beside = kept_tree(
            engine,
            "others",
            [
                (held_out, tile, z, total, bags.cells[i], job.number, robot, agreed)
                for tile, (z, total, which) in made.sums.items()
                if i in which
            ],
            ("beside", joined_held_out),
            Path(job.keep) / f"{job.number}.beside" if job.keep else None,
        )
        handles.append(
            engine.step(
                "judged", compare_robot, engine.step("value", value_of, beside), centre, noise
            )
        )

    return list(engine.results(handles, "compare", small=True))

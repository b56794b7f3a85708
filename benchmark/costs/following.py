"""A room changes under a live map: how soon the map is as good there as one that never knew the room before."""

from __future__ import annotations

import sys

import numpy as np
import torch

from benchmark.calibration.honesty_changes import Change
from benchmark.robots import Robot, drive, world_of
from benchmark.tables import Goal, Table
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.sim.robot import lawnmower
from gp_mapping.sim.world import DipoleWorld

__all__ = ["following"]

_CHANGED = 1e-6  # T; a place where |B| is another one by more than that has changed
_STEP = 0.1  # m, of the places that are compared
_GAP = 3000.0  # s between two passes
# each pass has its lanes elsewhere, and some that cross them
_PASSES = [
    lawnmower(0.40, 0.40, 4.6, 3.6, 0.50, 0.80),
    lawnmower(0.45, 0.55, 4.6, 3.5, 0.55, 0.75),
    lawnmower(0.45, 0.50, 4.6, 3.6, 0.45, 0.75)[::-1],
    lawnmower(0.50, 0.45, 4.5, 3.6, 0.50, 0.90),
]
_BEFORE = 2  # of them
_MAPS = ("changes followed", "not followed", "of what came after alone")


def _told(session: MapSession, places: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """RMSE, µT, and how much of the truth lies in the field's 95 % interval."""
    p = session.predict(places)
    error = truth - p.mean[:, 0].numpy()
    return 1e6 * float(np.sqrt(np.mean(error**2))), float(
        np.mean(np.abs(error) <= 1.96 * p.stddev[:, 0].numpy())
    )


def _world(seed: int) -> dict[str, list[tuple[float, float]]]:
    """Of each map: what `_told` says after each pass that saw the change."""
    robot, change = Robot(correlated=0.4e-6), Change(seed)
    visits = [
        drive(robot, world_of(seed), way, seed + 100 * k, start=1.0 + _GAP * k)
        for k, way in enumerate(_PASSES)
    ]

    xs, ys = (np.arange(low, high, _STEP) for low, high in ((0.5, 4.55), (0.5, 3.55)))
    places = np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2)
    before = DipoleWorld.random(world_of(seed)).norm(places)
    after = change(Samples(places, before)).y.numpy()[:, 0]
    there = np.abs(after - before) > _CHANGED

    known = MapSession(MapSettings())
    for samples in visits[:_BEFORE]:
        known.ingest(samples)
        known.break_pass()
    state = known.state_dict()
    maps = dict(
        zip(
            _MAPS,
            (
                MapSession.from_state_dict(state),
                MapSession.from_state_dict(state, follow_changes=False),
                MapSession(MapSettings()),
            ),
        )
    )

    told: dict[str, list] = {name: [] for name in maps}
    for samples in map(change, visits[_BEFORE:]):
        for name, session in maps.items():
            session.ingest(samples)
            session.break_pass()
            told[name].append(_told(session, places[there], after[there]))
    return told


@torch.no_grad()
def following(seeds: range) -> tuple[Table, list[Goal]]:
    """Over the places that changed: after one pass and after two, beside a map of these passes alone."""
    later = len(_PASSES) - _BEFORE
    words = [f"{k + 1} pass{'es' * (k > 0)}" for k in range(later)]
    table = Table(
        "A room that changed under a live map: the changed places, after each pass that saw them",
        [
            ("map", ""),
            *((f"RMSE µT, {w}", ".2f") for w in words),
            *((f"/ after alone, {w}", ".2f") for w in words),
            *((f"in 95 %, {w}", ".3f") for w in words),
            ("worst ratio at the end", ".2f"),
        ],
    )
    worlds = []
    for seed in seeds:
        print(f"surveys: a room that changed, seed {seed}", file=sys.stderr, flush=True)
        worlds.append(_world(seed))

    ratios = {}
    for name in _MAPS:
        rmse, inside = (
            np.array([[told[k] for told in world[name]] for world in worlds]) for k in (0, 1)
        )
        alone = np.array([[told[0] for told in world[_MAPS[-1]]] for world in worlds])
        ratios[name] = rmse / alone
        table.add(
            name,
            *rmse.mean(0).tolist(),
            *ratios[name].mean(0).tolist(),
            *inside.mean(0).tolist(),
            float(ratios[name][:, -1].max()),
        )
    table.notes = [
        f"{len(seeds)} worlds, 5 × 4 m, {_BEFORE} passes before the change and {later} after it, each with "
        f"lanes of its own; something of 6 to 15 µT is brought in. Changed: where |B| is another one by "
        f"more than {_CHANGED * 1e6:g} µT. In 95 %: of the field itself."
    ]
    return table, [
        Goal(
            "A room that changed: RMSE followed / of two passes after it alone",
            float(ratios[_MAPS[0]][:, -1].mean()),
            high=1.1,
        )
    ]

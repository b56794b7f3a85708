"""The smoothness that is found from the first cells: rooms with magnets, mapped with it and without it.

The rooms are those of `gp-mapping demo`. A robot drives lanes at .3 m/s with a magnetometer of 50 Hz and .4 µT of white
noise; the map is compared with the field at all places of a grid, by their distance to the way.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import torch

from benchmark.tables import Goal, Part, Table
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.sim.robot import lawnmower
from gp_mapping.sim.world import DipoleWorld, WorldSettings

__all__ = ["TABLES", "run"]

TABLES = ("rooms",)

_SPEED, _RATE, _NOISE = 0.3, 50.0, 4e-7  # m/s, Hz, T
_BANDS = ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6))  # m from the way
_SPACING = 0.9  # m between lanes
_LOG = 0.5 * np.log(2.0 * np.pi)


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """GP_MAPPING_SEEDS is the number of rooms (default 8; quick: 1)."""
    seeds = range(1 if quick else int(os.environ.get("GP_MAPPING_SEEDS", "8")))
    where["seeds"] = len(seeds)
    table = Table(
        "Rooms with magnets, with the smoothness that is found and with matern52",
        [
            ("map", ""),
            ("m from the way", ""),
            ("RMSE µT", ".2f"),
            ("NLPD", ".2f"),
            ("in 95 %", ".3f"),
            ("ms a cell", ".1f"),
        ],
    )
    kinds = {"learn_smoothness": True, "matern52": False}
    rows: dict[str, list] = {name: [] for name in kinds}
    kernels = []
    for seed in seeds:
        for name, learns in kinds.items():
            print(f"smoothness: seed {seed}, {name}", file=sys.stderr, flush=True)
            found, kernel = _mapped(seed, learns)
            rows[name].append(found)
            kernels += [kernel] if learns else []
    means = {name: np.mean(found, 0) for name, found in rows.items()}
    for name, mean in means.items():
        for (low, high), row in zip(_BANDS, mean):
            table.add(name, f"{low:g} to {high:g}", *row)
    table.notes = [f"{len(seeds)} rooms, means. Found: {', '.join(kernels)}."]
    with_it, without = means.values()
    return Part(
        "smoothness",
        [
            Goal(
                "Rooms with magnets: largest RMSE with learn_smoothness / without",
                float((with_it[:, 0] / without[:, 0]).max()),
                high=1.0,
            ),
            Goal("Rooms with magnets: least in 95 %", float(with_it[:, 2].min()), low=0.92),
        ],
        [table],
        where,
    )


def _mapped(seed: int, learns: bool) -> tuple[list[list[float]], str]:
    """For each band RMSE µT, NLPD (log µT), coverage, ms a cell; and the kernel."""
    world, rng = DipoleWorld.random(WorldSettings(seed=seed)), np.random.default_rng(seed)
    corners = lawnmower(0.3, 0.3, 5.7, 4.7, _SPACING)
    along = np.r_[0.0, np.hypot(*np.diff(corners, axis=0).T).cumsum()]
    times = np.arange(0.0, along[-1] / _SPEED, 1.0 / _RATE)
    x = np.stack([np.interp(_SPEED * times, along, corners[:, k]) for k in (0, 1)], 1)
    y = world.norm(x) + rng.normal(0.0, _NOISE, len(x))
    samples = Samples(torch.from_numpy(x), torch.from_numpy(y)[:, None], stamp=1.0 + times)

    session, start = MapSession(MapSettings(learn_smoothness=learns)), time.process_time()
    for i in range(0, len(x), 100):
        session.ingest(samples[i : i + 100])
    session.finish()
    cost = 1e3 * (time.process_time() - start) / session.cell_count

    grid = np.stack(np.meshgrid(np.arange(0.05, 6.0, 0.1), np.arange(0.05, 5.0, 0.1)), -1)
    places = grid.reshape(-1, 2)
    away = np.min(np.hypot(*(places[:, None] - x[None, ::10]).transpose(2, 0, 1)), 1)
    told = session.predict(torch.from_numpy(places))
    spread = 1e6 * told.stddev.numpy()[:, 0]
    error = 1e6 * (world.norm(places) - told.mean.numpy()[:, 0])
    out = []
    for low, high in _BANDS:
        e, s = (part[(away >= low) & (away < high)] for part in (error, spread))
        nlpd = float(np.mean(0.5 * (e / s) ** 2 + np.log(s))) + _LOG
        inside = float(np.mean(np.abs(e) < 1.96 * s))
        out.append([float(np.sqrt(np.mean(e**2))), nlpd, inside, cost])
    return out, session.started_settings.kernel

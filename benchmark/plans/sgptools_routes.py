"""Routes by sgptools, for `python -m benchmark exploration --routes DIR`: reads DIR/worlds, writes DIR/*.csv.

    python -m venv aside && aside/bin/pip install sgptools
    aside/bin/python benchmark/plans/sgptools_routes.py DIR [--budget short] [--seed 0]

Run in an environment that has sgptools (TensorFlow, GPflow), not in this package's; imports nothing of it.
Waypoints are the inducing points of a sparse GP regression that is told the prior of the world's file: as many as the
budget pays for over the free space, in the order of OR-Tools' way from the start. What is measured on the way between
them is not counted, as it would be with IPPTransform, whose budget is a soft penalty.

Reference: Jakkala & Akella (2024), Multi-Robot Informative Path Planning from Regression with Sparse Gaussian
Processes; ContinuousSGP of sgptools.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from sgptools.methods import ContinuousSGP
from sgptools.utils.misc import cont2disc, get_inducing_pts
from sgptools.utils.tsp import run_tsp

OBJECTIVE_CELLS = 1000  # at most, whose variance is to fall
CLOSE = 0.97  # of the budget: no other number of waypoints is tried
MOVES = [(0, 1), (1, 0), (1, 1), (1, -1), (1, 2), (2, 1), (1, -2), (2, -1)]  # cells; and back


class World:
    """What is known before the drive: free cells (N, 2) m, ways over them, the prior."""

    def __init__(self, told: dict):
        self.told = told
        self.start, self.budget = np.array(told["start"]), told["budget"]
        free = np.array([[cell == "1" for cell in row] for row in told["free"]])
        row, column = np.nonzero(free)
        self.cells = np.array(told["origin"]) + told["resolution"] * (
            np.stack([column, row], 1) + 0.5
        )
        number = np.full(np.array(free.shape) + 4, -1)  # with a border of blocked cells
        number[row + 2, column + 2] = np.arange(len(row))
        ends = [self._moves(number, row + 2, column + 2, *move) for move in MOVES]
        i, j, metres = (np.concatenate(each) for each in zip(*ends))
        self.graph = coo_array((metres, (i, j)), shape=(len(row), len(row))).tocsr()

    def _moves(self, number: np.ndarray, row, column, down: int, right: int):
        """Moves by so many cells in which all cells that are crossed are free: from, to, metres."""
        corners = {(0, 0), (down, right)}
        if abs(down) == 1 and abs(right) == 1:
            corners |= {(down, 0), (0, right)}
        elif abs(right) == 2:
            corners |= {(0, right // 2), (down, right // 2)}
        elif abs(down) == 2:
            corners |= {(down // 2, 0), (down // 2, right)}
        passed = np.all([number[row + a, column + b] >= 0 for a, b in corners], axis=0)
        metres = np.full(passed.sum(), self.told["resolution"] * np.hypot(down, right))
        return (
            number[row, column][passed],
            number[row + down, column + right][passed],
            metres,
        )

    def length(self, route: np.ndarray) -> float:
        """Metres over the free cells from the start along waypoints (K, 2) that are free cells."""
        stops = np.vstack([self.start[None], route])
        at = np.hypot(*(stops[:, None] - self.cells[None]).transpose(2, 0, 1)).argmin(1)
        away = dijkstra(self.graph, directed=False, indices=at[:-1])
        return float(away[np.arange(len(route)), at[1:]].sum())


def route_of(world: World, count: int, seed: int) -> np.ndarray:
    """So many free cells that tell most when they are measured alone, in the order of the way: (count, 2) m."""
    told = world.told
    some = np.random.default_rng(seed).permutation(len(world.cells))[:OBJECTIVE_CELLS]
    planner = ContinuousSGP(
        count,
        world.cells[some],
        gpflow.kernels.Matern52(variance=1.0, lengthscales=told["lengthscale"]),
        (told["noise_stddev"] / told["signal_stddev"]) ** 2,  # GPflow's jitter is for values near 1
        X_init=get_inducing_pts(world.cells, count, seed=seed),
    )
    planner.optimize()
    places = cont2disc(planner.sgpr.inducing_variable.Z.numpy(), world.cells)
    ways, _ = run_tsp(places, start_nodes=world.start[None])
    return np.asarray(ways[0])[1:]


def longest_route(world: World, seed: int) -> np.ndarray:
    """The route with as many waypoints as the budget pays for, by bisection of their number."""
    made = lru_cache(None)(lambda count: route_of(world, count, seed))
    good, bad = 2, 16
    while world.length(made(bad)) <= world.budget:
        good, bad = bad, 2 * bad
    while bad - good > 1 and world.length(made(good)) < CLOSE * world.budget:
        half = (good + bad) // 2
        good, bad = (half, bad) if world.length(made(half)) <= world.budget else (good, half)
    return made(good)


def main() -> int:
    """Exit code: 0, or 2 where there is no world."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", choices=("short", "long"), help="only worlds of this budget")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    files = sorted((args.folder / "worlds").glob(f"*_{args.budget or '*'}.json"))
    if not files:
        print(
            f"{args.folder / 'worlds'}: no world is here yet; "
            f"`python -m benchmark exploration --routes {args.folder}` writes them",
            file=sys.stderr,
        )
        return 2
    for file in files:
        route = args.folder / f"{file.stem}.csv"
        if route.exists():
            continue
        start = time.process_time()
        world = World(json.loads(file.read_text(encoding="utf-8")))
        stops = longest_route(world, args.seed)
        with route.open("w", encoding="utf-8", newline="") as lines:
            csv.writer(lines).writerows([("x", "y"), *stops.round(3).tolist()])
        print(
            f"{route}: {len(stops)} waypoints, {world.length(stops):.1f} of {world.budget:.1f} m, "
            f"{time.process_time() - start:.0f} s of the processor",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Routes that another program made, as files: the worlds it is told, and the policy that drives its waypoints.

A route is FOLDER/<kind>_<seed>_<budget>.csv, as gp_open_0_short.csv, with the header x,y and a waypoint (m) a line.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np

from benchmark.plans.exploration_policies import NOISE, PRIOR, SIGNAL, Situation
from benchmark.plans.exploration_worlds import SPEED, TURN_RATE, World

__all__ = ["NAME", "file_of", "read_route", "route_of", "write_world"]

NAME = "route of a file"


def file_of(folder: Path, kind: str, seed: int, budget: str) -> Path:
    """Where the route for that world and budget is expected."""
    return folder / f"{kind.replace(' ', '_')}_{seed}_{budget}.csv"


def write_world(file: Path, world: World, metres: float) -> None:
    """What a planner may know before the drive, as JSON; not the field. Nothing where the file is there already.

    free: a string of 0 and 1 for each row of cells, from the origin on; 1: the robot's centre may be there, and can
    come there from the start. The prior is that which good lanes are given.
    """
    if file.exists():
        return
    free = world.area.free
    told = {
        "kind": world.name,
        "seed": world.seed,
        "start": [float(v) for v in world.start],
        "budget": metres,
        "speed": SPEED,
        "turn_rate": TURN_RATE,
        "kernel": "matern52",
        "lengthscale": PRIOR,
        "signal_stddev": SIGNAL,
        "noise_stddev": NOISE,
        "resolution": free.resolution,
        "origin": [float(v) for v in free.origin],
        "free": ["".join("01"[int(cell)] for cell in row) for row in free.open],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_route(file: Path) -> np.ndarray:
    """The waypoints of a file, (N, 2) m. ValueError where it is missing, or is no route."""
    if not file.is_file():
        raise ValueError(f"{file}: there is no such route")
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.reader(lines) if row]
    if not rows or [name.strip() for name in rows[0]] != ["x", "y"]:
        raise ValueError(f"{file}: the first line is to be x,y")
    for number, row in enumerate(rows[1:], 1):
        try:
            finite = len(row) == 2 and all(math.isfinite(float(value)) for value in row)
        except ValueError:
            finite = False
        if not finite:
            raise ValueError(f"{file}: waypoint {number} is {','.join(row)!r}, not two numbers (m)")
    if len(rows) == 1:
        raise ValueError(f"{file}: there is no waypoint")
    return np.array(rows[1:], dtype=np.float64)


def route_of(file: Path):
    """The policy that drives the waypoints of a file one after the other, whatever is measured on the way.

    A waypoint off the free space stands for the nearest place, at most 2 m away. ValueError as `read_route`.
    """
    points = read_route(file)

    def policy(s: Situation):
        at = s.memory["next"] = s.memory.get("next", -1) + 1
        if at >= len(points):
            return np.empty((0, 2)), math.inf
        if s.travel.locate(points[at], 2.0) is None:
            x, y = points[at]
            raise ValueError(
                f"{file}: waypoint {at + 1}, ({x:g}, {y:g}) m, is more than 2 m off the free space"
            )
        return s.to(points[at]), math.inf

    return policy

"""Where to measure next, closed loop: the project's MapSession, learning online, in simulated worlds.

Curves of RMSE and stddev over the whole reachable area, as shares of the field's own standard deviation there, by
metres and by seconds (turns on the spot count); paired differences to good lanes and to gain per metre.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from benchmark.exploration_policies import POLICIES, STUDIES, Situation
from benchmark.exploration_worlds import KINDS, SPEED, TURN_RATE, Robot, World, make_world
from benchmark.tables import Goal, Part, Table
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning import Travel
from gp_mapping.settings.mapping import MapSettings

__all__ = ["drives", "explore", "run", "scores", "tables"]

EVERY = 2.0  # m between two looks at the map
BUDGETS = {"short": 0.9, "long": 0.6}  # metres: the area / so many m


def explore(world: World, name: str, budget: float, seed: int = 0) -> dict:
    """One drive: marks (m), rmse, stddev (shares of the field's), seconds, milliseconds of each decision."""
    policy = (POLICIES | STUDIES)[name]
    session = MapSession(MapSettings(seed=seed))
    robot = Robot(world, seed)
    situation = Situation(world, session, robot, budget, Travel(world.area.free, 0.27), np.random.default_rng(seed))
    session.ingest(robot.stand(2.5))
    session.flush()
    out = {"marks": [0.0], "rmse": [1.0], "stddev": [1.0], "coverage": [], "seconds": [0.0], "decisions": []}
    line, most, look = np.empty((0, 2)), 0.0, EVERY
    while situation.left > 0.05:
        if len(line) < 2 or most <= 1e-6:
            start = time.process_time()
            line, most = policy(situation)
            out["decisions"].append(1e3 * (time.process_time() - start))
            if len(line) < 2:
                break
        go = min(most, situation.left, look - robot.metres)
        before = robot.metres
        session.ingest(robot.drive(line, go))
        most -= robot.metres - before
        line = _rest(line, robot.metres - before)
        if robot.metres - before < 1e-6:
            line = np.empty((0, 2))  # the end of it
        if robot.metres >= look - 1e-6 or situation.left <= 0.05:
            _look(world, session, robot, out)
            look += EVERY
    if out["marks"][-1] < robot.metres - 0.1:
        _look(world, session, robot, out)
    return out | {"turned": robot.turned, "metres": robot.metres, "time": robot.time, "budget": budget}


def _rest(line: np.ndarray, metres: float) -> np.ndarray:
    ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    if metres >= ends[-1] - 1e-9:
        return np.empty((0, 2))
    first = [np.interp(metres, ends, line[:, i]) for i in (0, 1)]
    return np.vstack([[first], line[ends > metres + 1e-9]])


def _look(world: World, session: MapSession, robot: Robot, out: dict) -> None:
    told = session.predict(world.area.cells)
    weights = world.area.areas.numpy() / world.area.size
    error = told.mean[:, 0].numpy() - world.truth
    out["marks"].append(robot.metres)
    out["seconds"].append(robot.time)
    out["rmse"].append(float(np.sqrt(weights @ error**2)) / world.spread)
    out["stddev"].append(float(np.sqrt(weights @ told.variance[:, 0].numpy())) / world.spread)
    out["coverage"].append(float(weights @ (np.abs(error) <= 1.96 * told.stddev[:, 0].numpy())))


def scores(found: dict) -> dict:
    """Numbers of one drive: at half, at the end, areas under the curves (over the whole budget), at equal time."""
    budget = found["budget"]
    marks, rmse, stddev = (np.array(found[k]) for k in ("marks", "rmse", "stddev"))
    fine = np.linspace(0.0, budget, 400)
    time_limit = budget * (1.0 / SPEED + 0.5 / TURN_RATE)
    return {"half": float(np.interp(0.5 * budget, marks, rmse)), "end": float(rmse[-1]),
            "auc": float(np.interp(fine, marks, rmse).mean()), "sd auc": float(np.interp(fine, marks, stddev).mean()),
            "sd end": float(stddev[-1]), "time": float(np.interp(time_limit, found["seconds"], rmse)),
            "coverage": found["coverage"][-1], "turns": found["turned"] / max(found["metres"], 1e-9),
            "ms": float(np.mean(found["decisions"])), "p90": float(np.percentile(found["decisions"], 90)),
            "budget used": found["metres"] / budget}


def drives(budgets, worlds, names) -> list[dict]:
    """Scores of every policy in every world with every budget; worlds: (kind, seed)."""
    rows = []
    for kind, seed in worlds:
        world = make_world(kind, seed)
        for budget in budgets:
            for name in names:
                found = explore(world, name, world.size / BUDGETS[budget], seed)
                rows.append({"kind": kind, "seed": seed, "budget": budget, "policy": name} | scores(found))
    return rows


def _mean(values) -> tuple[float, float]:
    """Mean, and its standard error."""
    values = np.asarray(values, dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _shown(values) -> str:
    return "{:.3f} ± {:.3f}".format(*_mean(values))


def tables(rows: list[dict]) -> tuple[list[Goal], list[Table]]:
    """Means with standard errors, differences in pairs, and what was to be reached."""
    names = list(dict.fromkeys(row["policy"] for row in rows))
    of = {name: [row for row in rows if row["policy"] == name] for name in names}

    def column(name: str, key: str) -> np.ndarray:
        return np.array([row[key] for row in of[name]])

    count = len(of[names[0]])
    measured = [("RMSE at half", "half"), ("RMSE at the end", "end"), ("area under RMSE", "auc"),
                ("stddev at the end", "sd end"), ("RMSE at equal time", "time"), ("in 95 %", "coverage")]
    means = Table(f"Exploration: {count} drives each, as shares of the field's standard deviation",
                  [("who decides", ""), *((title, "") for title, _ in measured), ("rad/m", ".2f"),
                   ("ms a decision", ".0f"), ("p90", ".0f")])
    for name in names:
        means.add(name, *(_shown(column(name, key)) for _, key in measured), float(column(name, "turns").mean()),
                  float(column(name, "ms").mean()), float(column(name, "p90").mean()))
    means.notes.append("Mean ± standard error over worlds and budgets; decisions in processor milliseconds, the "
                       "covariances of the map included. Area under the curve: the mean over the whole budget.")

    pairs = Table("In pairs, negative is better",
                  [("who decides", ""), ("area: to good lanes", ""), ("end: to good lanes", ""),
                   ("area: to gain per metre", ""), ("end: to gain per metre", "")])
    for name in names:
        pairs.add(name, *("–" if name == other else _shown(column(name, key) - column(other, key))
                          for other in ("good lanes", "gain_per_metre") for key in ("auc", "end")))
    mean = {name: {key: float(column(name, key).mean()) for key in ("end", "auc", "sd end")} for name in names}
    rule, lanes, route = (mean[name] for name in ("gain_per_metre", "good lanes", "route"))
    goals = [Goal("gain_per_metre: RMSE at the end", rule["end"], high=0.47),
             Goal("gain_per_metre: area under RMSE", rule["auc"], high=0.75),
             Goal("route: RMSE at the end, of that of good lanes", route["end"] / lanes["end"], high=1.05),
             Goal("route: area under RMSE, of that of gain_per_metre", route["auc"] / rule["auc"], high=1.05)]
    return goals, [means, pairs]


def run(quick: bool, where: dict) -> Part:
    """20 worlds and both budgets; quick: one small world's worth of each policy that decides fast."""
    seeds = (0,) if quick else (0, 1, 2, 3)
    worlds = [(kind, seed) for seed in seeds for kind in (KINDS[:1] if quick else KINDS)]
    rows = drives(("short",) if quick else tuple(BUDGETS), worlds, tuple(POLICIES))
    goals, made = tables(rows)
    return Part("exploration", goals, made, where)


if __name__ == "__main__":  # a study: python -m benchmark.exploration FILE SEEDS POLICIES [KINDS]
    import json
    import sys

    torch.set_num_threads(1)
    file, seeds, names = sys.argv[1], [int(s) for s in sys.argv[2].split(",")], sys.argv[3].split(",")
    kinds = [KINDS[int(i)] for i in sys.argv[4].split(",")] if len(sys.argv) > 4 else KINDS
    for seed in seeds:
        for kind in kinds:
            world = make_world(kind, seed)
            for name in names:
                start = time.process_time()
                found = explore(world, name, world.size / BUDGETS["short"], seed)
                row = {"kind": kind, "seed": seed, "policy": name, "cpu": time.process_time() - start} | scores(found)
                print(kind, seed, name, {k: round(v, 3) for k, v in row.items() if isinstance(v, float)}, flush=True)
                with open(file, "a") as f:
                    f.write(json.dumps(row | {"curve": found}) + "\n")

"""Where to measure next, closed loop: the project's MapSession, learning online, in simulated worlds.

Curves of RMSE and stddev over the whole reachable area, as shares of the field's own standard deviation there, by
metres and by seconds (turns on the spot count); paired differences to good lanes and to gain per metre. What the maps
say of their own variance is by what each has learned; so the ways are compared by what they leave at one lengthscale.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

from benchmark.kept import KeptRows, digest_of
from benchmark.plans.exploration_policies import PLACES, POLICIES, STUDIES, Situation, left_by
from benchmark.plans.exploration_routes import NAME, file_of, route_of, write_world
from benchmark.plans.exploration_worlds import KINDS, SPEED, TURN_RATE, Robot, World, make_world
from benchmark.tables import Goal, Part, Table
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning import Travel
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.marks import with_nulls

__all__ = ["drives", "explore", "run", "scores", "stored", "tables", "with_routes"]

_DRIVES = "exploration_drives.jsonl"  # of a measurement that has not ended
_ROUTE_DRIVES = "exploration_routes_drives.jsonl"  # stay: the next routes are held against the same
EVERY = 2.0  # m between two looks at the map
BESIDE_ROUTES = ("route", "gain_per_metre", "good lanes")
BUDGETS = {"short": 0.9, "long": 0.6}  # metres: the area / so many m


def explore(world: World, decide, budget: float, seed: int = 0) -> dict:
    """One drive: marks (m), rmse, stddev (shares of the field's), seconds, milliseconds of each decision.

    decide: the name of a policy, or a policy.
    """
    policy = (POLICIES | STUDIES)[decide] if isinstance(decide, str) else decide
    session = MapSession(MapSettings(seed=seed))
    robot = Robot(world, seed)
    travel = Travel(world.area.free, PLACES)
    situation = Situation(world, session, robot, budget, travel, np.random.default_rng(seed))
    session.ingest(robot.stand(2.5))
    session.flush()
    out = {
        "marks": [0.0],
        "rmse": [1.0],
        "stddev": [1.0],
        "coverage": [],
        "seconds": [0.0],
        "decisions": [],
    }
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
    out["left"] = left_by(world, travel, np.array(robot.way))
    return out | {
        "turned": robot.turned,
        "metres": robot.metres,
        "time": robot.time,
        "budget": budget,
    }


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
    return {
        "half": float(np.interp(0.5 * budget, marks, rmse)),
        "end": float(rmse[-1]),
        "auc": float(np.interp(fine, marks, rmse).mean()),
        "sd auc": float(np.interp(fine, marks, stddev).mean()),
        "sd end": float(stddev[-1]),
        "time": float(np.interp(time_limit, found["seconds"], rmse)),
        "left": found["left"],
        "coverage": found["coverage"][-1],
        "turns": found["turned"] / max(found["metres"], 1e-9),
        "ms": float(np.mean(found["decisions"])),
        "p90": float(np.percentile(found["decisions"], 90)),
        "budget used": found["metres"] / budget,
    }


def drives(budgets, worlds, names, kept: KeptRows | None = None) -> list[dict]:
    """Scores of every policy in every world with every budget; worlds: (kind, seed)."""
    kept = KeptRows(None, "") if kept is None else kept
    return [
        kept.row(f"{kind}, {seed}, {budget}, {name}", partial(_drive, kind, seed, budget, name))
        for kind, seed in worlds
        for budget in budgets
        for name in names
    ]


def _drive(kind: str, seed: int, budget: str, name: str, decide=None) -> dict:
    """Scores of one drive, and its curve; decide: a policy that is not one of those with a name."""
    world = make_world(kind, seed)
    found = explore(world, decide or name, world.size / BUDGETS[budget], seed)
    curve = {key: found[key] for key in ("marks", "rmse")}
    row = {"kind": kind, "seed": seed, "budget": budget, "policy": name, "curve": curve}
    return row | scores(found)


def with_routes(folder: Path, worlds, kept: KeptRows, names=BESIDE_ROUTES) -> list[dict]:
    """Scores of the routes in a folder, and of policies in the same worlds; worlds: (kind, seed).

    Writes into FOLDER/worlds what a planner may know of each world and budget. ValueError where there is no folder,
    no route in it, or a file that is none.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder for routes")
    there = []
    for (kind, seed), (budget, share) in product(worlds, BUDGETS.items()):
        file, world = file_of(folder, kind, seed, budget), make_world(kind, seed)
        told = (folder / "worlds" / file.name).with_suffix(".json")
        write_world(told, world, world.size / share)
        if file.exists():
            there.append((kind, seed, budget, file))
    expected = {file_of(folder, *world, budget) for world in worlds for budget in BUDGETS}
    others = sorted(set(folder.glob("*.csv")) - expected)
    if others:
        raise ValueError(f"{others[0]}: this is no route of a world in {folder / 'worlds'}")
    if not there:
        raise ValueError(f"{folder}: there is no route for a world in {folder / 'worlds'}")
    policies = [route_of(file) for *_, file in there]  # all are read before the first drive
    rows = []
    for (kind, seed, budget, file), policy in zip(there, policies):
        key = f"{kind}, {seed}, {budget}, {NAME}, {digest_of(file)}"
        rows.append(kept.row(key, partial(_drive, kind, seed, budget, NAME, policy)))
        rows += drives((budget,), [(kind, seed)], names, kept)
    return rows


def _mean(values) -> tuple[float, float]:
    """Mean, and its standard error."""
    values = np.asarray(values, dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(
        values
    ) > 1 else 0.0


def metres_to(row: dict, error: float) -> float:
    """Metres after which a drive's error is no more than that; a fifth more than it drove where it never was."""
    marks, rmse = np.array(row["curve"]["marks"]), np.minimum.accumulate(row["curve"]["rmse"])
    return float(np.interp(-error, -rmse, marks)) if rmse[-1] <= error else 1.2 * float(marks[-1])


def _shown(values) -> str:
    return "{:.3f} ± {:.3f}".format(*_mean(values))


def tables(rows: list[dict]) -> tuple[list[Goal], list[Table]]:
    """Of each budget means with standard errors and differences in pairs; and what was to be reached."""
    goals, made = [], []
    for budget in dict.fromkeys(row["budget"] for row in rows):
        found = _Found([row for row in rows if row["budget"] == budget])
        made += [_means(found, budget), _pairs(found, budget)]
        goals += _goals(found, budget)
    rule = [row for row in rows if row["policy"] == "gain_per_metre"]
    goals += [
        Goal(
            f"gain_per_metre, over all budgets: {name}",
            _mean([row[key] for row in rule])[0],
            high=high,
        )
        for name, key, high in _RULE
    ]
    return goals, made


# what is to be left of the field's standard deviation where gain_per_metre has driven
_RULE = (("RMSE at the end", "end", 0.47), ("area under RMSE", "auc", 0.75))


class _Found:
    """The drives of one budget: of each policy a column, in the same order of worlds."""

    def __init__(self, rows: list[dict]):
        self.names = list(dict.fromkeys(row["policy"] for row in rows))
        self.of = {name: [row for row in rows if row["policy"] == name] for name in self.names}
        self.count = len(self.of[self.names[0]])
        self.rooms = np.array(["rooms" in row["kind"] for row in self.of[self.names[0]]])

    def column(self, name: str, key: str) -> np.ndarray:
        return np.array([row[key] for row in self.of[name]])

    def mean(self, name: str, key: str) -> float:
        return float(self.column(name, key).mean())

    def metres_share(self, name: str, than: str) -> np.ndarray | None:
        """Metres to the error with which another one ends, as shares of its metres."""
        if name not in self.of or than not in self.of:
            return None
        return np.array(
            [
                metres_to(own, other["end"]) / other["curve"]["marks"][-1]
                for own, other in zip(self.of[name], self.of[than])
            ]
        )


def _means(found: _Found, budget: str) -> Table:
    measured = [
        ("RMSE at half", "half"),
        ("RMSE at the end", "end"),
        ("area under RMSE", "auc"),
        ("stddev at the end", "sd end"),
        ("RMSE at equal time", "time"),
        ("in 95 %", "coverage"),
    ]
    means = Table(
        f"Exploration, {budget} budget: {found.count} drives each, as shares of the field's stddev",
        [
            ("who decides", ""),
            *((title, "") for title, _ in measured),
            ("variance left, %", ""),
            ("metres to 0.1.0's error", ".2f"),
            ("rad/m", ".2f"),
            ("ms a decision", ".0f"),
            ("p90", ".0f"),
        ],
    )
    for name in found.names:
        share = found.metres_share(name, "suggester 0.1.0")
        means.add(
            name,
            *(_shown(found.column(name, key)) for _, key in measured),
            "{:.2f} ± {:.2f}".format(*_mean(100.0 * found.column(name, "left"))),
            None if share is None else float(share.mean()),
            *(found.mean(name, key) for key in ("turns", "ms", "p90")),
        )
    means.notes.append(
        "Mean ± standard error over worlds; decisions in processor milliseconds, the covariances of the "
        "map included. Area under the curve: the mean over the whole budget. Variance left: what the "
        "way that was driven leaves of the variance before it, all ways at one lengthscale; the "
        "stddev at the end is what each map says itself, by the one that it has learned."
    )
    return means


def _pairs(found: _Found, budget: str) -> Table:
    pairs = Table(
        f"In pairs, {budget} budget, negative is better",
        [
            ("who decides", ""),
            ("area: to good lanes", ""),
            ("end: to good lanes", ""),
            ("area: to gain per metre", ""),
            ("end: to gain per metre", ""),
        ],
    )
    for name in found.names:
        pairs.add(
            name,
            *(
                "–" if name == other else _shown(found.column(name, key) - found.column(other, key))
                for other in ("good lanes", "gain_per_metre")
                for key in ("auc", "end")
            ),
        )
    return pairs


def _route_tables(rows: list[dict], worlds: int) -> list[Table]:
    """Of each budget, as `tables`: the worlds of which a route was there."""
    made = []
    for budget in dict.fromkeys(row["budget"] for row in rows):
        found = _Found([row for row in rows if row["budget"] == budget])
        made += [_means(found, budget), _pairs(found, budget)]
        made[-1].notes.append(f"{found.count} of {worlds} worlds have a route in a file.")
    return made


def _goals(found: _Found, budget: str) -> list[Goal]:
    rule, lanes, route = (
        {key: found.mean(name, key) for key in ("end", "auc")}
        for name in ("gain_per_metre", "good lanes", "route")
    )
    left = found.column("route", "left") / found.column("good lanes", "left")
    goals = [
        Goal(
            f"route, {budget}: RMSE at the end, of that of good lanes",
            route["end"] / lanes["end"],
            high=1.05,
        ),
        Goal(
            f"route, {budget}: area under RMSE, of that of gain_per_metre",
            route["auc"] / rule["auc"],
            high=1.05,
        ),
        Goal(
            f"route, {budget}: variance left, of that of good lanes, in the worst world",
            left.max(),
            high=1.0,
        ),
        *(
            Goal(f"gain_per_metre, {budget}: {name}", rule[key], high=high)
            for name, key, high in _RULE
        ),
    ]
    if found.rooms.any():
        goals.append(
            Goal(
                f"route, {budget}: variance left, of that of good lanes, in rooms",
                float(left[found.rooms].mean()),
                high=0.85,
            )
        )
    share = found.metres_share("route", "suggester 0.1.0")
    if share is not None:
        goals.append(
            Goal(
                f"route, {budget}: metres to the error that 0.1.0's rule ends with, of its own",
                float(share.mean()),
                high=0.75,
            )
        )
    return goals


def run(quick: bool, where: dict, output: Path | None = None, routes: Path | None = None) -> Part:
    """20 worlds and both budgets; quick: one small world's worth of each policy that decides fast.

    Drives are kept in the folder `output` as they end, until all of them have: hours of the processor.
    routes: a folder with routes that another program made; those of them that are there, beside few policies.
    """
    seeds = (0,) if quick else (0, 1, 2, 3)
    worlds = [(kind, seed) for seed in seeds for kind in (KINDS[:1] if quick else KINDS)]
    here = Path(__file__).parent
    version = digest_of(here.parents[1] / "gp_mapping", *sorted(here.glob("exploration*.py")))
    drives_file = _DRIVES if routes is None else _ROUTE_DRIVES
    kept = KeptRows(None if output is None or quick else output / drives_file, version)
    if routes is not None:
        made = _route_tables(with_routes(routes, worlds, kept), len(worlds))
        return Part("exploration_routes", [], made, where)
    rows = drives(("short",) if quick else tuple(BUDGETS), worlds, tuple(POLICIES), kept)
    goals, made = tables(rows)
    return Part("exploration", goals, made, where)


def stored(output: Path) -> None:
    """The tables are stored: the next measurement is a new one."""
    (output / _DRIVES).unlink(missing_ok=True)


if (
    __name__ == "__main__"
):  # a study: python -m benchmark.plans.exploration FILE SEEDS POLICIES [KINDS]
    import json
    import sys

    torch.set_num_threads(1)
    file, seeds, names = (
        sys.argv[1],
        [int(s) for s in sys.argv[2].split(",")],
        sys.argv[3].split(","),
    )
    kinds = [KINDS[int(i)] for i in sys.argv[4].split(",")] if len(sys.argv) > 4 else KINDS
    for seed in seeds:
        for kind in kinds:
            world = make_world(kind, seed)
            for name in names:
                start = time.process_time()
                found = explore(world, name, world.size / BUDGETS["short"], seed)
                row = {
                    "kind": kind,
                    "seed": seed,
                    "policy": name,
                    "cpu": time.process_time() - start,
                } | scores(found)
                print(
                    kind,
                    seed,
                    name,
                    {k: round(v, 3) for k, v in row.items() if isinstance(v, float)},
                    flush=True,
                )
                with open(file, "a") as f:
                    f.write(json.dumps(with_nulls(row | {"curve": found}), allow_nan=False) + "\n")

"""Two robots that make one map: how near the sum is to the exact GP, what goes over the air, and what it costs.

python -m benchmark teams [--only accuracy]
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from benchmark.robots import Robot, survey
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.types import Prediction
from gp_mapping.intake import Intake
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.summing import Member, sum_maps
from gp_mapping.runtime.team.team import Team
from gp_mapping.runtime.team.totals import MAP_ID, totals_of
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings
from gp_mapping.settings.team import SUM_BUDGETS, TEAM_INDUCING_INFORMATION

__all__ = ["TABLES", "run"]

TABLES = ("accuracy", "cost")

_GIVEN = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "lengthscale": 0.6,
    "signal_stddev": 5e-6,
    "noise_stddev": 1e-6,
}
_DENSE = _GIVEN | {
    "inducing_information": 0.0,
    "inducing_tolerance": 1e-4,
    "max_inducing": 700,
    "follow_changes": False,
    "robust": False,
    "local_scale": False,
}
_TEAM = _GIVEN | {
    "inducing_information": TEAM_INDUCING_INFORMATION,
    "follow_changes": False,
    "robust": False,
    "local_scale": False,
}
# as a quiet sensor's map learns it: noise of a cell 0.07 µT in a field of 23 µT
_QUIET = _TEAM | {
    "lengthscale": 0.8,
    "signal_stddev": 2.3e-5,
    "noise_stddev": 1e-8,
    "learn_bias": False,
}
CASES = {
    "given θ, inputs wherever data give any information": _DENSE,
    "given θ, inputs of `team:=true`": _TEAM,
    "given θ, inputs of one map": _TEAM | {"inducing_information": 1.0},
    "given θ, inputs of one map, single cells weakened": _GIVEN,
    "given θ of a quiet sensor, inputs of `team:=true`": _QUIET,
    # maps that are summed have one kernel, as `publish_tiles` gives them
    "all learned, inputs of `team:=true`": {
        "inducing_information": TEAM_INDUCING_INFORMATION,
        "learn_smoothness": False,
    },
}
_STEP, _SPEED = 0.1, 20.0  # s of wall time between two looks; how much faster than the drive


class _Mapper:
    """A worker with or without a team."""

    def __init__(self, name: str, settings: MapSettings, others: list[str], **node):
        self.name, self.node = name, NodeSettings(**node)
        session = MapSession(settings)
        session.about = {"frame": "odom"}
        self.worker = MapWorker(session, Intake(IntakeSettings()), queue_size=1000)
        self.team = Team(
            self.worker, lambda: self.node, lambda: settings, name, others, lambda: "odom"
        )
        self.worker.start()
        self.spent: list[float] = []

    def ingest(self, samples) -> None:
        def put(session):
            start = time.perf_counter()
            session.ingest(samples)
            self.spent.append((time.perf_counter() - start) / max(1, len(samples)))

        self.worker.call(put).result()


def _drive(mappers: list[_Mapper], drives, loss: float, rng) -> tuple[float, list[int]]:
    """All drive at once, and talk; then they talk until nothing is left to say. (s, sizes of all messages)"""
    starts = [0] * len(mappers)
    chunk = round(25.0 * _STEP * _SPEED)
    sizes: list[int] = []
    begin = quiet = time.monotonic()
    while time.monotonic() < quiet + 6.0:
        for i, (mapper, drive) in enumerate(zip(mappers, drives)):
            if starts[i] < len(drive):
                mapper.ingest(drive[starts[i] : starts[i] + chunk])
                starts[i] += chunk
                quiet = time.monotonic()
                if starts[i] >= len(drive):
                    mapper.worker.end_pass()  # and its last cell
            message = mapper.team.tick(time.monotonic())
            if message is None:
                continue
            sizes.append(len(message))
            for other in mappers:
                if (
                    other is not mapper
                    and mapper.name in other.team.sources
                    and rng.random() >= loss
                ):
                    other.team.accept(mapper.name, message)
        time.sleep(_STEP)
    return time.monotonic() - begin, sizes


def _of_all(drives, settings: MapSettings) -> MapSession:
    """One map of all drives, one after the other."""
    session = MapSession(settings)
    for drive in drives:
        session.ingest(drive)
        session.break_pass()
    return session


def _away(one: Prediction, judge: Prediction) -> Tensor:
    """Distance of the means in the judge's standard deviations, each place."""
    return (one.mean - judge.mean).abs() / judge.variance.sqrt()


def run(quick: bool, where: dict, only=TABLES) -> Part:
    """How near the sum is to the exact GP, and what a team costs where a fifth of the messages is lost."""
    drives = [drive[:1000] if quick else drive for drive in survey(Robot(), 1)]
    cases = list(CASES.items())[: 1 if quick else None]
    tables, goals = [], []
    if "accuracy" in only:
        table, goals = _accuracy(drives, cases)
        tables.append(table)
    if "cost" in only:
        tables.append(_cost(drives, cases))
    return Part("teams", goals, tables, where)


def _accuracy(drives, cases) -> tuple[Table, list[Goal]]:
    """The sum and the map of all data, beside the exact GP of all data."""
    table = Table(
        "The sum of two robots in one room, the map of all data, and the exact GP",
        [
            ("case", ""),
            ("inputs of the sum", "d"),
            ("sum from the exact GP, 90 % within (sd)", ".3f"),
            ("largest (sd)", ".2f"),
            ("inputs of the map of all data", "d"),
            ("map from the exact GP, 90 %", ".3f"),
            ("largest", ".2f"),
            ("sum from the map, 90 %", ".3f"),
            ("largest", ".2f"),
            ("map from that of the other order, 90 %", ".3f"),
            ("largest", ".2f"),
            ("sum from the map with the sum's choice of inputs, 90 %", ".3f"),
            ("largest", ".2f"),
            ("that map from that of the other order, 90 %", ".3f"),
            ("sum, s of processor", ".2f"),
        ],
    )
    x = torch.from_numpy(np.random.default_rng(0).uniform((0.5, 0.5), (4.5, 3.5), (300, 2)))
    goals = []
    for name, given in cases:
        settings = MapSettings(**given)
        robots = [_of_all([drive], settings) for drive in drives]
        begin = time.process_time()
        told, added = _summed(robots, settings)
        took = time.process_time() - begin
        wide = replace(settings, max_inducing=SUM_BUDGETS * settings.max_inducing)
        both, exact = (_of_all(drives, s) for s in (settings, replace(settings, model="exact")))
        whole, wholly_turned = _of_all(drives, wide), _of_all(drives[::-1], wide)
        for each in (whole, wholly_turned):
            each.map.use_budget()
        turned = _of_all(drives[::-1], settings).predict(x)
        told, map_of_all, judge, alike = (m.predict(x) for m in (told, both, exact, whole))
        from_exact, map_away = _away(told, judge), _away(map_of_all, judge)
        from_map, by_order = _away(told, map_of_all), _away(turned, map_of_all)
        from_alike = _away(told, alike)
        same = float(from_alike.max())
        table.add(
            name,
            added,
            float(from_exact.quantile(0.9)),
            float(from_exact.max()),
            len(both.map.inducing_inputs()),
            float(map_away.quantile(0.9)),
            float(map_away.max()),
            float(from_map.quantile(0.9)),
            float(from_map.max()),
            float(by_order.quantile(0.9)),
            float(by_order.max()),
            float(from_alike.quantile(0.9)),
            same,
            float(_away(wholly_turned.predict(x), alike).quantile(0.9)),
            took,
        )
        # decisions about single cells depend on what a map had seen till then
        if given.get("robust") is False:
            goals += [
                Goal(f"teams: {name}: largest distance from {what}", value, high=0.1, unit="sd")
                for what, value in (
                    ("the exact GP", float(from_exact.max())),
                    ("the map of all data with the sum's choice of inputs", same),
                )
            ]
        elif "lengthscale" not in given:
            away = float(from_exact.quantile(0.9))
            what = "nine of ten places are within this of the exact GP"
            goals.append(Goal(f"teams: {name}: {what}", away, high=0.1, unit="sd"))
    table.notes = [
        "Distances of means in the standard deviations of the field, at 300 places. The exact GP has the same "
        "settings and all data, one after the other.",
        "Of the other order: the map of all data that drove the second drive first. It differs from the first by "
        "what any map decides on its way, so no sum can be asked to be nearer.",
        "The map with the sum's choice of inputs has the budget of the sum, and use_budget() at its end.",
    ]
    return table, goals


def _summed(robots: list[MapSession], settings: MapSettings) -> tuple[MapSession, int]:
    """The sum of robots' maps, as a mapper makes it, and the number of its inputs."""
    members = []
    for i, session in enumerate(robots):
        session.about = {"frame": "odom"}
        state = totals_of(session).state
        members.append(
            Member(f"robot{i}", session.about[MAP_ID], lambda state=state: state, (i,), not i)
        )
    total = sum_maps(members, settings, "odom", "", {})
    made = total.session
    if made is None:
        raise RuntimeError(f"no sum: {total.refused} {total.failed}")
    return made, len(made.map.inducing_inputs())


def _cost(drives, cases) -> Table:
    """Messages, and the time of sums and updates."""
    table = Table(
        "Two robots that make one map, a fifth of the messages lost",
        [
            ("case", ""),
            ("B/s", ".0f"),
            ("largest message, B", "d"),
            ("sum, s", ".2f"),
            ("update, ratio to a robot alone", ".2f"),
        ],
    )
    for name, given in cases:
        settings = MapSettings(**given)
        team = {"publish_tiles": True, "merge_period": 1.0, "tiles_period": 1.0, "tiles_round": 3.0}
        pair = [
            _Mapper("robot1", settings, ["robot2"], **team),
            _Mapper("robot2", settings, ["robot1"], **team),
        ]
        alone = [_Mapper("robot1", settings, []), _Mapper("robot2", settings, [])]
        _drive(alone, drives, 0.0, np.random.default_rng(0))
        seconds, sizes = _drive(pair, drives, 0.2, np.random.default_rng(0))
        cost = [
            np.mean([m for mapper in mappers for m in mapper.spent]) for mappers in (pair, alone)
        ]
        table.add(
            name,
            sum(sizes) / seconds / len(pair),
            max(sizes),
            pair[0].team.took,
            cost[0] / cost[1],
        )
        for mapper in (*pair, *alone):
            mapper.worker.stop(abandon=True)
    table.notes = [
        f"Each robot drives {_SPEED:g} times as fast as in reality and sends a tile at most once a second."
    ]
    return table

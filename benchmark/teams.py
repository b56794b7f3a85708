"""Two robots that make one map: is the sum the map of all data, what goes over the air, and what it costs a mapper.

python -m benchmark teams
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
from gp_mapping.runtime.team.team import Team
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings
from gp_mapping.settings.team import TEAM_INDUCING_INFORMATION

__all__ = ["TABLES", "run"]

TABLES = ("sum",)

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
# decisions about single cells (weakening, a changed field) depend on what a map had seen till then
_TEAM = _GIVEN | {
    "inducing_information": TEAM_INDUCING_INFORMATION,
    "follow_changes": False,
    "robust": False,
    "local_scale": False,
}
CASES = {
    "given θ, inputs wherever data give any information": _DENSE,
    "given θ, inputs of `team:=true`": _TEAM,
    "given θ, inputs of one map": _GIVEN,
    "all learned, inputs of `team:=true`": {"inducing_information": TEAM_INDUCING_INFORMATION},
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
    """One table: the sum beside the map of all data, with a fifth of the messages lost."""
    drives = [drive[:1000] if quick else drive for drive in survey(Robot(), 1)]
    x = torch.from_numpy(np.random.default_rng(0).uniform((0.5, 0.5), (4.5, 3.5), (300, 2)))
    table = Table(
        "Two robots that make one map, a fifth of the messages lost",
        [
            ("case", ""),
            ("from the map of all data, median (sd)", ".3f"),
            ("90 % within (sd)", ".3f"),
            ("largest (sd)", ".2f"),
            ("stddev, largest ratio", ".2f"),
            ("from the exact GP, median (sd)", ".3f"),
            ("map of all data from it", ".3f"),
            ("B/s", ".0f"),
            ("largest message, B", "d"),
            ("sum, s", ".2f"),
            ("update, ratio to a robot alone", ".2f"),
        ],
    )
    goals = []
    for name, given in list(CASES.items())[: 1 if quick else None]:
        settings = MapSettings(**given)
        team = {"publish_tiles": True, "merge_period": 1.0, "tiles_period": 1.0, "tiles_round": 3.0}
        pair = [
            _Mapper("robot1", settings, ["robot2"], **team),
            _Mapper("robot2", settings, ["robot1"], **team),
        ]
        alone = [_Mapper("robot1", settings, []), _Mapper("robot2", settings, [])]
        _drive(alone, drives, 0.0, np.random.default_rng(0))
        seconds, sizes = _drive(pair, drives, 0.2, np.random.default_rng(0))
        told = pair[0].worker.ask(lambda session: session.predict(x)).result()
        both, exact = (
            _of_all(drives, one).predict(x) for one in (settings, replace(settings, model="exact"))
        )
        away, most = _away(told, both), float(_away(told, both).max())
        ratio = float((told.variance.sqrt() / both.variance.sqrt()).log().abs().exp().max())
        cost = [
            np.mean([m for mapper in mappers for m in mapper.spent]) for mappers in (pair, alone)
        ]
        table.add(
            name,
            float(away.median()),
            float(away.quantile(0.9)),
            most,
            ratio,
            float(_away(told, exact).median()),
            float(_away(both, exact).median()),
            sum(sizes) / seconds / len(pair),
            max(sizes),
            pair[0].team.took,
            cost[0] / cost[1],
        )
        if given is _TEAM:
            goals.append(
                Goal(
                    "teams: distance from the map of all data, inputs of team:=true, 90 % of places",
                    float(away.quantile(0.9)),
                    high=0.1,
                    unit="sd",
                )
            )
        if given is _DENSE:
            goals.append(
                Goal(
                    "teams: largest distance from the map of all data, given θ",
                    most,
                    high=0.1,
                    unit="sd",
                )
            )
        for mapper in (*pair, *alone):
            mapper.worker.stop(abandon=True)
    table.notes = [
        "The exact GP has the same settings and all data, one after the other.",
        f"Each robot drives {_SPEED:g} times as fast as in reality and sends a tile at most once a second.",
    ]
    return Part("teams", goals, [table], where)

"""What the demo is held against: the best lanes for the same budget, driven in the same room and mapped the same way.

A process of its own, beside the demo: python -m gp_mapping.commands.demo.lanes FILE SEED BUDGET [NAME:=VALUE …]
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import torch

from gp_mapping import Samples
from gp_mapping.commands.demo import survey
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning import Budget, PathValue, Problem, SurveyArea, Travel, plan
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.sim.robot import RobotSettings
from gp_mapping.sim.simulation import FieldReading, Simulation, SimulationSettings
from gp_mapping.sim.world import WorldSettings

__all__ = ["driven", "main", "route"]

PRIOR = 0.8  # m, the lengthscale that the lanes are chosen with: nothing has been measured when they are
EVERY = 1.0  # m between two looks at the map


def route(area: SurveyArea, budget: float) -> np.ndarray:
    """Corners (K, 2) m of the lanes with the least predicted variance that the budget pays for, and of the way home.

    They know all of the walls beforehand.
    """
    travel = Travel(area.free, PRIOR / 3)
    value = PathValue.of(survey.blank(PRIOR, 1e-5, 5e-7), travel.xy, area.cells, area.areas)
    return plan(
        Problem(
            value,
            travel,
            np.array(survey.HOME),
            budget=Budget(budget, speed=survey.SPEED, turn_rate=survey.TURN_RATE, home=survey.HOME),
        ),
        "lanes",
    ).line


def driven(settings: MapSettings, seed: int, budget: float) -> survey.Curve:
    """The error of a map of those lanes, by metres."""
    world = WorldSettings(seed=seed)
    area = survey.room(world)
    simulation = Simulation(
        SimulationSettings(seed=seed),
        world,
        RobotSettings(max_speed=survey.SPEED, max_turn_rate=survey.TURN_RATE),
        waypoints=route(area, budget),
    )
    session, look, rows, waiting = MapSession(settings), EVERY, [], []
    for reading in simulation:
        if isinstance(reading, FieldReading):
            r = simulation.robot
            waiting.append(
                (r.x, r.y, float(np.linalg.norm(reading.field)), 1e-9 * reading.stamp_ns)
            )
        if len(waiting) < 50 and simulation.robot.travelled < look:
            continue
        _take(session, waiting)
        if simulation.robot.travelled >= look and session.cell_count:
            rows.append(_look(session, simulation.robot.travelled, area))
            look += EVERY
    _take(session, waiting)
    session.flush()
    rows.append(_look(session, simulation.robot.travelled, area))
    return survey.Curve.of(rows, area, survey.truth_of(simulation.world, area))


def _take(session: MapSession, waiting: list) -> None:
    if waiting:
        x, y, value, stamp = torch.tensor(waiting, dtype=torch.float64).mT
        session.ingest(Samples(torch.stack([x, y], 1), value[:, None], stamp=stamp))
        waiting.clear()


def _look(session: MapSession, metres: float, area: SurveyArea):
    told = session.predict(area.cells)
    return metres, told.mean[:, 0].numpy(), told.stddev[:, 0].numpy()


def main(words: list[str]) -> int:
    """Write the curve."""
    file, seed, budget = Path(words[0]), int(words[1]), float(words[2])
    os.nice(10)  # the live map comes first
    torch.set_num_threads(1)
    given = {name: json.loads(value) for name, value in (word.split(":=", 1) for word in words[3:])}
    curve = driven(Parameters.build({**given, "seed": seed}).map, seed, budget)
    partial = file.with_suffix(".partial")
    curve.write(partial)
    partial.replace(file)
    return 0 if math.isfinite(curve.rmse[-1]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

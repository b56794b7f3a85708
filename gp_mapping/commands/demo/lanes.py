"""The baseline of the demo: the best lanes for the same budget.

They are driven in the same room and mapped the same way, in a process of their own, next to the
demo: python -m gp_mapping.commands.demo.lanes FILE SEED BUDGET [NAME:=VALUE …]
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

PRIOR = 0.8  # m, lengthscale by which the lanes are chosen, before anything is measured
EVERY = 1.0  # m driven between two evaluations of the map


def route(area: SurveyArea, budget: float) -> np.ndarray:
    """Plan the lanes with the least predicted variance within the budget, and the way home.

    All walls are known beforehand.

    Args:
        area: to be surveyed.
        budget: m.

    Returns:
        Corners (K, 2) m.
    """
    travel = Travel(area.free, PRIOR / 3)
    # a prior as of such a room: signal 10 µT, noise 0.5 µT
    value = PathValue.from_map(
        survey.blank_map(PRIOR, 1e-5, 5e-7), travel.xy, area.cells, area.areas
    )

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
    """Drive and map the lanes in simulation.

    Args:
        settings: of the map.
        seed: of the world and of the sensors.
        budget: m.

    Returns:
        The error of the whole area by metres driven.
    """
    world = WorldSettings(seed=seed)
    area = survey.room(world)
    simulation = Simulation(
        SimulationSettings(seed=seed),
        world,
        RobotSettings(max_speed=survey.SPEED, max_turn_rate=survey.TURN_RATE),
        waypoints=route(area, budget),
    )

    session, next_look, rows, waiting = MapSession(settings), EVERY, [], []
    for reading in simulation:
        if isinstance(reading, FieldReading):
            r = simulation.robot
            waiting.append(
                (r.x, r.y, float(np.linalg.norm(reading.field)), 1e-9 * reading.stamp_ns)
            )
        # in batches, but not beyond the next evaluation
        if len(waiting) < 50 and simulation.robot.travelled < next_look:
            continue
        _take(session, waiting)
        if simulation.robot.travelled >= next_look and session.cell_count:
            rows.append(_look(session, simulation.robot.travelled, area))
            next_look += EVERY

    _take(session, waiting)
    session.flush()
    rows.append(_look(session, simulation.robot.travelled, area))
    return survey.Curve.from_evaluations(rows, area, survey.truth_of(simulation.world, area))


def _take(session: MapSession, waiting: list) -> None:
    """Ingest rows of x, y (m), value (T), stamp (s), and empty the list."""
    if waiting:
        x, y, value, stamp = torch.tensor(waiting, dtype=torch.float64).mT
        session.ingest(Samples(torch.stack([x, y], 1), value[:, None], stamp=stamp))
        waiting.clear()


def _look(session: MapSession, metres: float, area: SurveyArea):
    """Return the metres driven, and mean and stddev (G,) of the area's cells, T."""
    prediction = session.predict(area.cells)
    return metres, prediction.mean[:, 0].numpy(), prediction.stddev[:, 0].numpy()


def main(words: list[str]) -> int:
    """Drive, map, and write the curve; returns 1 where the map is not finite, else 0."""
    file, seed, budget = Path(words[0]), int(words[1]), float(words[2])
    os.nice(10)  # the live map of the demo goes first
    torch.set_num_threads(1)
    given = {name: json.loads(value) for name, value in (word.split(":=", 1) for word in words[3:])}
    curve = driven(Parameters.build({**given, "seed": seed}).map, seed, budget)

    # the demo reads the file when this process has ended: it is whole, or it is not there
    partial = file.with_suffix(".partial")
    curve.write(partial)
    partial.replace(file)
    return 0 if math.isfinite(curve.rmse[-1]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

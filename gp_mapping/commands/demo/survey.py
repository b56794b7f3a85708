"""The survey of the demo: its room and budget, and how the error falls with the metres."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from gp_mapping import Samples, create_map
from gp_mapping.planning import FreeSpace, PathValue, SurveyArea, Travel
from gp_mapping.sim.room import HOME, WALLS, WAYPOINTS
from gp_mapping.sim.walls import Walls, parse_walls
from gp_mapping.sim.world import WorldSettings
from gp_mapping.store.marks import with_nulls

__all__ = [
    "BUDGET",
    "FAST_BUDGET",
    "HOME",
    "RADIUS",
    "WALLS",
    "Curve",
    "blank_map",
    "room",
    "simulator",
    "survey_parameters",
    "truth_of",
    "worth",
]

RADIUS = 0.2  # m, distance that plans keep from walls
BUDGET, FAST_BUDGET = 40.0, 20.0  # m to drive; with --fast
SPEED, TURN_RATE = 0.5, 1.5  # m/s, rad/s
# m driven of a plan, after which the next one is made; and by how much more time stands still until
# it is there. The robot drives many times as fast as real time: while a busy machine plans it would
# drive metres of the old plan, for which the planner then keeps a fifth of the budget.
_INTERVAL, _WAIT = 2.0, 0.25
_RESOLUTION, _CELLS = 0.05, 800  # m; most grid cells over which the error is taken


def simulator() -> dict:
    """Return parameters of simulator_node: a robot that follows the mapper's plans among walls."""
    return {
        "walls": WALLS,
        "waypoints": WAYPOINTS,
        "follow_plan": "mapping/plan",
        "follow_hold": _INTERVAL + _WAIT,
        "robot__max_speed": SPEED,
        "robot__max_turn_rate": TURN_RATE,
    }


def survey_parameters(budget: float) -> dict:
    """Return parameters of mapping_node: the budget (m), and that the robot ends at its start."""
    return {
        "plan_budget": budget,
        "plan_interval": _INTERVAL,
        "plan_home": "start",
        "plan_speed": SPEED,
        "plan_turn_rate": TURN_RATE,
        "robot_radius": RADIUS,
    }


def room(world: WorldSettings) -> SurveyArea:
    """Return the area that a robot can reach from home, with the grid cells that stand for it."""
    walls = Walls(world.width, world.depth, parse_walls(WALLS))
    width, height = (round(v / _RESOLUTION) for v in (world.width, world.depth))
    x, y = ((np.arange(n) + 0.5) * _RESOLUTION for n in (width, height))
    occupied = [[walls.clearance(u, v) <= 0.0 for u in x] for v in y]

    # as the message that a node would receive, so that the area is built in the same way
    unturned = SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0)
    info = SimpleNamespace(
        resolution=_RESOLUTION,
        width=width,
        height=height,
        origin=SimpleNamespace(position=SimpleNamespace(x=0.0, y=0.0, z=0.0), orientation=unturned),
    )
    message = SimpleNamespace(
        info=info,
        header=SimpleNamespace(frame_id=""),
        data=array("b", np.where(occupied, 100, 0).astype(np.int8).tobytes()),
    )
    return SurveyArea.from_free_space(
        FreeSpace.from_occupancy_grid(message, RADIUS), HOME, max_cells=_CELLS
    )


@dataclass(frozen=True)
class Curve:
    """How well a map knows the whole area, by metres driven.

    At 0 m nothing is known: rmse and stddev are 1.

    Attributes:
        metres: (K,), increasing from 0.
        rmse: (K,), as a fraction of the field's own standard deviation in the area.
        stddev: (K,), as the map predicts it, as the same fraction.
    """

    metres: np.ndarray
    rmse: np.ndarray
    stddev: np.ndarray

    @staticmethod
    def from_evaluations(rows, area: SurveyArea, truth: np.ndarray) -> Curve:
        """Build a curve from evaluations of a map.

        Means over the area are weighted by the areas w of its cells:

            rmse = √(Σ_g w_g (mean_g − truth_g)²) / field_stddev        Σ_g w_g = 1

        Args:
            rows: (metres, mean (G,), stddev (G,)) of the area's cells, SI, in any order.
            area: of the survey.
            truth: (G,), SI.
        """
        weights = area.areas.numpy() / area.size
        field_stddev = float(np.sqrt(weights @ np.square(truth - weights @ truth)))

        points = [(0.0, 1.0, 1.0)]
        points += [
            (
                metres,
                float(np.sqrt(weights @ np.square(mean - truth))) / field_stddev,
                float(np.sqrt(weights @ np.square(stddev))) / field_stddev,
            )
            for metres, mean, stddev in rows
        ]
        return Curve(*np.array(sorted(points, key=lambda row: row[0])).T)

    def rmse_at(self, metres) -> np.ndarray:
        """Return the rmse at a distance, interpolated; after the last evaluation its value."""
        return np.interp(metres, self.metres, self.rmse)

    def mean_rmse(self, metres: float) -> float:
        """Return the mean rmse over the first `metres`."""
        return float(self.rmse_at(np.linspace(0.0, metres, 400)).mean())

    def write(self, file: Path) -> None:
        """Write the curve as JSON: null where a map is not finite."""
        curve = with_nulls({name: values.tolist() for name, values in vars(self).items()})
        file.write_text(json.dumps(curve, allow_nan=False), encoding="utf-8")

    @staticmethod
    def read(file: Path) -> Curve:
        """Read a curve that `write` wrote."""
        return Curve(
            **{
                name: np.array(v, dtype=np.float64)  # null is NaN
                for name, v in json.loads(file.read_text(encoding="utf-8")).items()
            }
        )


def blank_map(lengthscale: float, signal: float, noise: float, constant: float = 2e-5):
    """Return an exact map that has one measurement, 45 µT at home, and nothing else.

    Args:
        lengthscale: m.
        signal: standard deviation of the field about its mean, T.
        noise: standard deviation of a measurement, T.
        constant: standard deviation of the field's mean, T.
    """
    field = create_map(
        "exact",
        lengthscale=lengthscale,
        signal_stddev=signal,
        noise_stddev=noise,
        constant_stddev=constant,
        learn_hyperparameters=False,
    )
    field.update(Samples(torch.tensor([HOME]).double(), torch.tensor([[45e-6]]).double()))

    return field


def worth(
    path: np.ndarray, area: SurveyArea, learned: dict[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Rate a path part by part, at the hyper-parameters that the map has learned in the end.

    Args:
        path: (K, 2) m.
        area: of the survey.
        learned: lengthscale (m), signal_stddev, noise_stddev (SI).

    Returns:
        Metres (m,) from the start, and the fraction (m,) of the area's variance that the path has
        taken off up to there.
    """
    travel = Travel(area.free, learned["lengthscale"] / 3)
    # 1e-7 T: the mean is soon known, and would make the first metre outshine all others
    start = blank_map(
        learned["lengthscale"], learned["signal_stddev"], learned["noise_stddev"], 1e-7
    )
    value = PathValue.from_map(start, travel.xy, area.cells, area.areas)

    visits, _, marks = travel.visits([travel.leg_along(path)])
    gains = value.gains([visits])[0].numpy() / value.total
    return np.concatenate([[0.0], marks]), np.concatenate([[0.0], np.cumsum(gains)])


def truth_of(world, area: SurveyArea) -> np.ndarray:
    """Return the field's strength at the area's cells.

    Args:
        world: the simulated one.
        area: G cells.

    Returns:
        (G,) T.
    """
    return world.norm(torch.as_tensor(area.cells).numpy())

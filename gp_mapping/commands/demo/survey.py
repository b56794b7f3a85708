"""The demo's survey: the room's walls, what may be driven, and how the error falls with the metres."""

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

__all__ = [
    "BUDGET",
    "FAST_BUDGET",
    "HOME",
    "RADIUS",
    "WALLS",
    "Curve",
    "blank",
    "room",
    "simulator",
    "survey_parameters",
    "truth_of",
    "worth",
]

RADIUS = 0.2  # m that plans keep from walls
BUDGET, FAST_BUDGET = 40.0, 20.0  # m
SPEED, TURN_RATE = 0.5, 1.5  # m/s, rad/s
_RESOLUTION, _CELLS = 0.05, 800  # m; of the room's cells, those that the error is taken over


def simulator() -> dict:
    """Parameters of simulator_node: a robot that follows the mapper's plans among walls."""
    return {
        "walls": WALLS,
        "waypoints": WAYPOINTS,
        "follow_plan": "mapping/plan",
        "follow_hold": 3.0,
        "robot__max_speed": SPEED,
        "robot__max_turn_rate": TURN_RATE,
    }


def survey_parameters(budget: float) -> dict:
    """Parameters of mapping_node: what may be driven, and that the robot ends where it began."""
    return {
        "plan_budget": budget,
        "plan_home": "start",
        "plan_speed": SPEED,
        "plan_turn_rate": TURN_RATE,
        "robot_radius": RADIUS,
    }


def room(world: WorldSettings) -> SurveyArea:
    """What a robot that begins at home can reach of the room, and the cells that stand for it."""
    walls = Walls(world.width, world.depth, parse_walls(WALLS))
    width, height = (round(v / _RESOLUTION) for v in (world.width, world.depth))
    x, y = ((np.arange(n) + 0.5) * _RESOLUTION for n in (width, height))
    taken = [[walls.clearance(u, v) <= 0.0 for u in x] for v in y]
    still = SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0)
    info = SimpleNamespace(
        resolution=_RESOLUTION,
        width=width,
        height=height,
        origin=SimpleNamespace(position=SimpleNamespace(x=0.0, y=0.0, z=0.0), orientation=still),
    )
    message = SimpleNamespace(
        info=info,
        header=SimpleNamespace(frame_id=""),
        data=array("b", np.where(taken, 100, 0).astype(np.int8).tobytes()),
    )
    return SurveyArea.of(FreeSpace.from_occupancy_grid(message, RADIUS), HOME, max_cells=_CELLS)


@dataclass(frozen=True)
class Curve:
    """How a map of the whole area grows: metres (K,), rmse and stddev (K,) as shares of the field's own stddev there.

    At 0 m nothing is known: rmse and stddev are 1.
    """

    metres: np.ndarray
    rmse: np.ndarray
    stddev: np.ndarray

    @staticmethod
    def of(rows, area: SurveyArea, truth: np.ndarray) -> Curve:
        """From (metres, mean (G,), stddev (G,)) of the area's cells, at several times, SI."""
        weights = area.areas.numpy() / area.size
        spread = float(np.sqrt(weights @ np.square(truth - weights @ truth)))
        out = [(0.0, 1.0, 1.0)]
        out += [
            (
                metres,
                float(np.sqrt(weights @ np.square(mean - truth))) / spread,
                float(np.sqrt(weights @ np.square(stddev))) / spread,
            )
            for metres, mean, stddev in rows
        ]
        return Curve(*np.array(sorted(out, key=lambda row: row[0])).T)

    def at(self, metres) -> np.ndarray:
        """rmse there, between the looks and after the last one."""
        return np.interp(metres, self.metres, self.rmse)

    def area(self, metres: float) -> float:
        """Mean of rmse over the first metres."""
        return float(self.at(np.linspace(0.0, metres, 400)).mean())

    def write(self, file: Path) -> None:
        """As JSON."""
        file.write_text(
            json.dumps({name: values.tolist() for name, values in vars(self).items()}),
            encoding="utf-8",
        )

    @staticmethod
    def read(file: Path) -> Curve:
        """What write wrote."""
        return Curve(
            **{
                name: np.array(v)
                for name, v in json.loads(file.read_text(encoding="utf-8")).items()
            }
        )


def blank(lengthscale: float, signal: float, noise: float, constant: float = 2e-5):
    """A map that knows one place, of home, and nothing else. Metres and T; constant: stddev of the field's mean."""
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
    """What a way was worth, part by part, at the hyper-parameters that the map has learned in the end.

    path: (K, 2) m.  learned: lengthscale (m), signal_stddev, noise_stddev (SI).
    Returns metres (m,) from the start and the share (m,) of the area's variance that was taken off up to there.
    """
    travel = Travel(area.free, learned["lengthscale"] / 3)
    # the field's mean is soon known: with it in the sum the first metre would outshine all others
    start = blank(learned["lengthscale"], learned["signal_stddev"], learned["noise_stddev"], 1e-7)
    value = PathValue.of(start, travel.xy, area.cells, area.areas)
    visits, _, marks = travel.visits([travel.along(path)])
    gains = value.gains([visits])[0].numpy() / value.total
    return np.concatenate([[0.0], marks]), np.concatenate([[0.0], np.cumsum(gains)])


def truth_of(world, area: SurveyArea) -> np.ndarray:
    """The field's strength at the area's cells (G,), T."""
    return world.norm(torch.as_tensor(area.cells).numpy())

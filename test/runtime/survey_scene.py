"""A robot that follows the plans of a survey through a small room, without ROS."""

from array import array
from types import SimpleNamespace

import numpy as np
import torch

from gp_mapping import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.surveying.survey import Survey
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings

__all__ = ["Robot", "floor", "settings"]


def floor(frame: str = "map", wall: bool = True):
    """A room of 5 × 4 m with a wall and a door in it, as an OccupancyGrid."""
    data = np.zeros((40, 50), dtype=np.int8)
    data[[0, -1]] = 100
    data[:, [0, -1]] = 100
    if wall:
        data[:26, 25] = 100
    still = SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0)
    info = SimpleNamespace(
        resolution=0.1,
        width=50,
        height=40,
        origin=SimpleNamespace(position=SimpleNamespace(x=0.0, y=0.0, z=0.0), orientation=still),
    )
    return SimpleNamespace(
        info=info, header=SimpleNamespace(frame_id=frame), data=array("b", data.tobytes())
    )


class Robot:
    """Follows plans exactly, or in a zigzag of so many metres to either side, and measures a smooth field."""

    def __init__(self, settings: NodeSettings, message=None, start=(1.0, 1.0), zigzag: float = 0.0):
        self.zigzag = zigzag
        self.session = MapSession(
            MapSettings(
                lengthscale=0.8,
                signal_stddev=1e-5,
                noise_stddev=1e-6,
                constant_stddev=3e-5,
                max_inducing=120,
                learn_hyperparameters=False,
                learn_time_offset=False,
            )
        )
        self.plans = []
        self.survey = Survey(settings, on_plan=self.plans.append)
        self.message = floor() if message is None else message
        self.at, self.time, self.metres = np.array(start), 0.0, 0.0
        self.track = [self.at]
        self.measure(np.repeat(self.at[None], 5, 0))
        self.session.flush()

    def measure(self, x: np.ndarray) -> None:
        stamps = self.time + 0.1 * np.arange(1, len(x) + 1)
        self.time = float(stamps[-1])
        field = 45e-6 + 8e-6 * np.sin(1.5 * x[:, 0]) * np.cos(1.2 * x[:, 1])
        self.session.ingest(
            Samples(
                torch.from_numpy(x),
                torch.from_numpy(field)[:, None],
                stamp=torch.from_numpy(stamps),
            )
        )

    def think(self, message="same", frame: str = "map") -> int:
        """Until nothing is left to think about; how many slices it took."""
        message = self.message if message == "same" else message
        slices = 0
        while self.survey.step(self.session, tuple(self.at), message, frame, self.time):
            slices += 1
            assert slices < 5000
        return slices

    def rest(self) -> np.ndarray:
        """What is left of the plan (K, 2), m."""
        plan, along = self.survey.plan, self.survey._course.along
        # A loop ends where it begins: of the two the robot is where the survey has it.
        return plan.line_ahead(plan.progress(self.at, along - 0.1, expected=along))

    def drive(self, metres: float) -> None:
        """Along the plan, a few centimetres at a time."""
        rest = self.rest() if len(self.survey.plan.line) else self.at[None]
        ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(rest, axis=0).T))])
        marks = np.arange(0.03, min(metres, ends[-1]) + 0.03, 0.03).clip(max=ends[-1])
        x = np.stack([np.interp(marks, ends, rest[:, i]) for i in (0, 1)], 1)
        if self.zigzag and len(x) > 1:
            ahead = np.gradient(x, axis=0)
            aside = (
                np.stack([-ahead[:, 1], ahead[:, 0]], 1)
                / np.maximum(np.hypot(*ahead.T), 1e-9)[:, None]
            )
            x = x + self.zigzag * aside * (-1.0) ** np.arange(len(x))[:, None]
        if not len(x):  # it stands at the end of its plan, and goes on measuring
            x = np.repeat(self.at[None], 4, 0)
        for part in np.split(x, range(4, len(x), 4)):
            self.metres += np.hypot(*np.diff(np.vstack([self.at, part]), axis=0).T).sum()
            self.at = part[-1]
            self.track.append(self.at)
            self.measure(part)
            self.survey.record_drive(part)
            self.survey.step(self.session, tuple(self.at), self.message, "map", self.time)

    def go_on(self, most: int = 200) -> None:
        """Plan and drive until there is no plan any more."""
        for _ in range(most):
            self.think()
            if not self.survey.plan:
                return
            self.drive(0.4)
        raise AssertionError("the survey does not end")


def settings(**changes) -> NodeSettings:
    return NodeSettings(**{"plan_places": 90, "plan_effort": 20, "plan_speed": 0.3} | changes)

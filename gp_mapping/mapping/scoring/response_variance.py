"""Variance of the field where the time constant τ of a slow sensor is uncertain.

By the law of total variance, to first order,

    Var f(x) = v(x) + Var[log τ] D(x)²

with D the change of the map's mean for a unit of log τ (response_slopes.py). Maps that are added
have sensors of their own, whose errors are independent.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.types import Prediction
from gp_mapping.mapping.scoring.response_slopes import ResponseSlopes

__all__ = ["ResponseVariance"]

_JOINED = 8  # other maps' sensors that are kept


class ResponseVariance:
    """What uncertain time constants add to the variance of a map. Bounded memory.

    Args:
        own: of this map's own sensor.

    Attributes:
        joined: of the sensors of maps that were added to this one, the newest.
    """

    def __init__(self, own: ResponseSlopes):
        self.own = own
        self.joined: list[ResponseSlopes] = []

    @property
    def sensors(self) -> list[ResponseSlopes]:
        """Those whose time constant is uncertain."""
        return [each for each in (self.own, *self.joined) if each.count]

    @property
    def is_active(self) -> bool:
        """Whether it adds anything."""
        return bool(self.sensors)

    @property
    def forgotten(self) -> int:
        """Squares that were dropped, for there are more than are kept."""
        return sum(each.forgotten for each in (self.own, *self.joined))

    def join(self, other: ResponseVariance) -> None:
        """Count what another map's sensors add, too."""
        self.joined += other.sensors
        self.own.forgotten += sum(each.count for each in self.joined[:-_JOINED])
        self.joined = self.joined[-_JOINED:]

    def widened(self, prediction: Prediction, x: Tensor) -> Prediction:
        """A prediction with what is added to its variance.

        Args:
            prediction: at x.
            x: (N, 2) m.
        """
        places = x.cpu().numpy()
        added = np.zeros(len(places))
        for each in self.sensors:
            added += (each.deviation * each.at(places)) ** 2
        more = torch.from_numpy(added).to(prediction.variance)[:, None]

        joint = prediction.covariance
        return replace(
            prediction,
            variance=prediction.variance + more,
            covariance=None if joint is None else joint + more[:, :, None],
        )

    def stddev_of_cells(self, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
        """Standard deviation of a grid's cells by time constants: (H, W), SI.

        Args:
            xs: (W,) m.
            ys: (H,) m.
        """
        added = np.zeros((len(ys), len(xs)))
        for each in self.sensors:
            added += (each.deviation * each.of_cells(xs, ys)) ** 2
        return np.sqrt(added)

    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "own": self.own.state_dict(),
            "joined": [each.state_dict() for each in self.joined],
        }

    @staticmethod
    def restored(state: dict) -> ResponseVariance:
        """As it was when state_dict was taken."""
        new = ResponseVariance(ResponseSlopes.restored(state["own"]))
        new.joined = [ResponseSlopes.restored(each) for each in state["joined"]]
        return new

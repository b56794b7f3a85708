"""Where the robot has been: length of the path, its bounds, and a thinned, bounded trace."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["Path"]

_MOST = 20000  # points; beyond it every second one goes and the spacing doubles


class Path:
    """Points at least `step` metres apart. Length counts moves of a tenth of a step, so that pose noise adds none."""

    def __init__(self, step: float):
        self.step, self.length = step, 0.0
        self._points: list[list[float]] = []
        self._anchor: list[float] | None = None
        self._low, self._high = [math.inf, math.inf], [-math.inf, -math.inf]

    def lift(self) -> None:
        """A new pass: the way from the last point to the next one is not driven."""
        self._anchor = None

    def add(self, x: list[float]) -> float:
        """One position; the path's length so far, metres."""
        for d in range(2):
            self._low[d], self._high[d] = min(self._low[d], x[d]), max(self._high[d], x[d])
        if self._anchor is None:
            self._anchor = list(x)
        moved = math.dist(x, self._anchor)
        if moved >= 0.1 * self.step:
            self.length, self._anchor = self.length + moved, list(x)
        if not self._points or math.dist(x, self._points[-1]) >= self.step:
            self._points.append(list(x))
            if len(self._points) > _MOST:
                self._points, self.step = self._points[::2], 2 * self.step
        return self.length

    def bounds(self) -> tuple[list[float], list[float]]:
        """Lowest and highest coordinates, metres."""
        return self._low, self._high

    def points(self) -> Tensor:
        """(K, 2) metres."""
        return torch.tensor(self._points, dtype=torch.float64).reshape(-1, 2)

    def state_dict(self) -> dict:
        return {"points": self.points(), "step": self.step, "length": self.length, "anchor": self._anchor,
                "low": list(self._low), "high": list(self._high)}

    def load_state_dict(self, state: dict) -> None:
        self._points, self._anchor = state["points"].tolist(), state["anchor"]
        self.step, self.length = state["step"], state["length"]
        self._low, self._high = list(state["low"]), list(state["high"])

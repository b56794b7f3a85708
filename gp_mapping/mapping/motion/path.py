"""Where the robot has been: length of the path, its bounds, and a thinned, bounded trace."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["Path"]

_JUMP = 8.0  # times the usual move between two samples (and four steps): the pose has jumped, nobody drove there
_USUAL = 0.05  # weight of a new move in the usual one
_MOST = 20000  # points; beyond it every second one goes and the spacing doubles


class Path:
    """Points at least `step` metres apart. Length counts moves of a tenth of a step, so that pose noise adds none."""

    def __init__(self, step: float):
        self.step, self.length = step, 0.0
        self._points: list[list[float]] = []
        self._starts: list[bool] = []  # of each point: no line leads to it from the one before
        self._broken = True  # the next point begins a line
        self._last: list[float] | None = None
        self._usual: float | None = None  # move between two samples, m
        self._anchor: list[float] | None = None
        self._low, self._high = [math.inf, math.inf], [-math.inf, -math.inf]

    def lift(self) -> None:
        """A new pass: the way from the last point to the next one is not driven."""
        self._anchor = self._last = None
        self._broken = True

    def add(self, x: list[float]) -> float:
        """One position; the path's length so far, metres."""
        for d in range(2):
            self._low[d], self._high[d] = min(self._low[d], x[d]), max(self._high[d], x[d])
        self._watch_jump(x)
        if self._anchor is None:
            self._anchor = list(x)
        moved = math.dist(x, self._anchor)
        if moved >= 0.1 * self.step:
            self.length, self._anchor = self.length + moved, list(x)
        if not self._points or math.dist(x, self._points[-1]) >= self.step:
            self._points.append(list(x))
            self._starts.append(self._broken)
            self._broken = False
            if len(self._points) > _MOST:
                odd = [False, *self._starts[1::2]]  # a start that goes is handed on to the point after it
                self._starts = [a or b for a, b in zip(self._starts[::2], odd)]
                self._points, self.step = self._points[::2], 2 * self.step
        return self.length

    def _watch_jump(self, x: list[float]) -> None:
        """Begin a new line where the position leaps: a localiser that was lost, or a bag cut together."""
        if self._last is not None:
            moved = math.dist(x, self._last)
            if self._usual is not None and moved > max(4.0 * self.step, _JUMP * self._usual):
                self._broken = True
            elif moved > 0.0:
                self._usual = moved if self._usual is None else self._usual + _USUAL * (moved - self._usual)
        self._last = list(x)

    def bounds(self) -> tuple[list[float], list[float]]:
        """Lowest and highest coordinates, metres."""
        return self._low, self._high

    def points(self) -> Tensor:
        """(K, 2) metres."""
        return torch.tensor(self._points, dtype=torch.float64).reshape(-1, 2)

    def starts(self) -> Tensor:
        """(K,) bool: points to which no line leads, for a pass began there or the position jumped."""
        return torch.tensor(self._starts, dtype=torch.bool)

    def state_dict(self) -> dict:
        return {"starts": self.starts(), "broken": self._broken, "last": self._last, "usual": self._usual,
                "points": self.points(), "step": self.step, "length": self.length, "anchor": self._anchor,
                "low": list(self._low), "high": list(self._high)}

    def load_state_dict(self, state: dict) -> None:
        self._points, self._anchor = state["points"].tolist(), state["anchor"]
        self.step, self.length = state["step"], state["length"]
        self._low, self._high = list(state["low"]), list(state["high"])
        self._starts, self._broken = state["starts"].tolist(), bool(state["broken"])
        self._last, self._usual = state["last"], state["usual"]

"""A sensor that rounds and is published only on change: its numbers are edges of its steps.

Of a sensor that rounds to steps q, and of which only changes are published, a number y is told just
where the field crosses the edge between it and the number before, so the field is there

    y ∓ q/2     on the way up, and down

All errors of one way have one sign, and averages keep them. It shows in that nearly every number
differs by exactly one step from that before it: at a steady rate most would repeat it, or jump.

Numbers that are published once the field has moved by q since the last (a deadband) show the same
steps, but are right. What tells the two apart is the way between a step and one back: through one
edge it may be as short as it likes, while in a deadband the field must change by all of q.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import median_low

__all__ = ["OnChange"]

_WINDOW = 64  # newest steps
_KNOWN, _SUSPECTED = 16, 4  # steps from which on it is known, and suspected
_MOST = 0.9  # of the steps are of one size
_EXACT = 0.02  # of a step
_LEAST = 1e-9  # of a value; less is no step
_LEVELS = 3  # different numbers, at least: a switch has two
_IRREGULAR = 1.2  # times the shorter ways, by which longer ones exceed them (quartiles)
_BACK, _FEWEST = 0.25, 3  # of the usual way between two steps; ways back that are shorter


class OnChange:
    """Watches the numbers of one sensor of one channel, in order of time.

    Attributes:
        step: smallest step between two numbers, SI; infinite while there is none.
        moved: numbers that were taken back to the edge of their step.
    """

    def __init__(self) -> None:
        self.step, self.moved = math.inf, 0
        self._last: tuple[float, list[float]] | None = None  # newest number and its place
        self._steps: deque[list[float]] = deque(maxlen=_WINDOW)  # step, way, number
        self._begins = False  # a pass, with the next number
        self._ones = 0  # of the window's steps, that are exactly one step
        self._known: str | None = None  # "edges", "steps"; None: it is not on change

    def begin_pass(self) -> None:
        """Let a new pass begin: the step to its first number is one only if it is as all others.

        What tells changes alone is silent where the field is level, and a silence ends a pass.
        """
        self._begins = True

    def correct_all(self, y: list[list[float]], x: list[list[float]], part: slice) -> None:
        """Put the field's values in the place of numbers, as `correct` has them.

        Args:
            y: numbers (1,), SI, which are changed.
            x: their places (D), m.
            part: which of them are new.
        """
        for k in range(part.start, part.stop):
            told = y[k][0]
            value = self.correct(told, x[k])
            if value != told:
                y[k] = [value]

    def correct(self, y: float, x: list[float]) -> float:
        """The field's value where a number was told.

        Args:
            y: the number, SI.
            x: its place (D), m.

        Returns:
            The edge of its step where the numbers are known to be those of edges, else y, SI.
        """
        last, self._last = self._last, (y, x)
        begins, self._begins = self._begins, False
        if last is None:
            return y
        step = y - last[0]
        if begins and not self._is_one(step):
            return y
        if abs(step) <= _LEAST * abs(y):
            step = 0.0
        self._note(step, math.dist(x, last[1]), y)
        if self._known != "edges" or not step:
            return y
        self.moved += 1
        return y - math.copysign(0.5 * self.step, step)

    def _note(self, step: float, way: float, y: float) -> None:
        """Take the next step into the window, and judge what it says."""
        steps = self._steps
        self._ones -= len(steps) == _WINDOW and self._is_one(steps[0][0])
        steps.append([step, way, y])
        if 0.0 < abs(step) < (1.0 - _EXACT) * self.step:
            self.step = abs(step)
            self._ones = sum(self._is_one(each) for each, *_ in steps)
        else:
            self._ones += self._is_one(step)
        if self._ones < _MOST * len(steps) or len(steps) < _KNOWN:
            self._known = None  # nearly always
        else:
            self._judge()

    def _is_one(self, step: float) -> bool:
        """Whether it is exactly one step of the sensor."""
        return self.step < math.inf and abs(abs(step) - self.step) <= _EXACT * self.step

    def _judge(self) -> None:
        """Find out whether the sensor is published on change, and what its numbers are of."""
        self._known = None
        ways = sorted(way for _, way, _ in self._steps)
        irregular = ways[-len(ways) // 4] > _IRREGULAR * ways[len(ways) // 4]
        levels = {round(y / self.step, 1) for *_, y in self._steps}
        if len(levels) < _LEVELS or not irregular:
            return
        pairs = list(pairwise(self._steps))
        on = [b[1] for a, b in pairs if a[0] * b[0] > 0.0]
        back = [b[1] for a, b in pairs if a[0] * b[0] < 0.0]
        least = _BACK * median_low(on) if on else 0.0
        short = sum(way < least for way in back)
        self._known = "edges" if short >= _FEWEST else "steps"

    @property
    def variance(self) -> float:
        """Of the error that does not average out within a cell, SI²; 0 of any other sensor.

        What is at the edge of its step may be beyond it by a hysteresis. Where edges are only
        suspected, a number may be off by half a step.
        """
        steps = self._steps
        if len(steps) < _SUSPECTED or self._ones < _MOST * len(steps):
            return 0.0
        if self._known == "edges":
            return self.step**2 / 12.0
        if self._known is None and len(steps) >= _KNOWN:
            return 0.0
        return self.step**2 / 4.0

    def notes(self, scale: float, unit: str) -> list[str]:
        """What to say of the sensor: a sentence where it is published on change.

        Args:
            scale: one display unit in SI.
            unit: its name.
        """
        size = f"{self.step / scale:.3g}"
        if self.moved:
            return [
                f"nearly each number differs by exactly one step of {size} {unit} from that before it: the sensor is "
                f"published only when it changes; {self.moved} numbers were taken for the edge between two steps, "
                "half a step from what was told: let it publish at a steady rate, or unrounded"
            ]
        if self._known is not None:
            return [
                f"nearly each number differs by exactly one step of {size} {unit} from that before it: the sensor is "
                "published only when it changes, so its numbers may all be half a step too high where it rises, and "
                "too low where it falls, and the map's intervals may be too narrow: let it publish at a steady rate, "
                "or unrounded"
            ]
        return []

    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "step": self.step,
            "moved": self.moved,
            "begins": self._begins,
            "last": self._last and [self._last[0], list(self._last[1])],
            "steps": [list(each) for each in self._steps],
            "known": self._known,
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.step, self.moved = float(state["step"]), int(state["moved"])
        last, self._begins = state["last"], bool(state["begins"])
        self._last = None if last is None else (float(last[0]), list(map(float, last[1])))
        self._steps = deque((list(map(float, each)) for each in state["steps"]), maxlen=_WINDOW)
        self._ones = sum(self._is_one(each) for each, *_ in self._steps)
        self._known = state["known"]

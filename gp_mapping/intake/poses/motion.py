"""Whether the poses of measurements move as those of a robot do, in sentences where they do not."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.intake.poses.floors import FLAT, Floors

__all__ = ["Motion"]

_STANDS = 0.05  # m; a robot that stays within has not moved: poses tremble
_PATIENCE = 10.0  # s after which a robot that has never moved is spoken of
_STEP = 0.5  # s, over which a speed is taken: over less, poses that tremble are fast
_DEGREES = 1e-6  # that somebody has moved: a tenth of a metre
_FASTEST = 60.0  # m/s; what maps moves slower
# A step is a leap where a robot would start and stop with more than this, m/s², and those before
# and after it are a fifth as fast: what is fast for longer drives, and a glitch comes back.
_HARDEST, _ISOLATED = 20.0, 5.0
_OFTEN = 3  # speeds, or heights, beyond; a single glitch of a localiser is no unit
# a map is flat: heights that differ by more than FLAT, and by more of the extent, are no ground
_STEEP = 0.15


class Motion:
    """Watches the places and stamps of samples, in the order in which they are handed out.

    Attributes:
        fastest: largest speed, m/s.
    """

    def __init__(self) -> None:
        self._low, self._high = np.full(2, np.inf), np.full(2, -np.inf)
        self._first = self._newest = math.nan  # stamps, s
        self._then: tuple[float, np.ndarray] | None = None  # stamp and place of the last step
        self._fast = 0
        self.fastest = 0.0
        self._leaps = 0
        self._farthest = 0.0, 0.0, 0.0  # leap: m, s that it took, stamp (s)
        self._steps: deque[tuple[float, float, float]] = deque(maxlen=3)  # the newest, as a leap
        self._floors = Floors()
        # the _OFTEN lowest and highest heights, m
        self._lowest: list[float] = []
        self._highest: list[float] = []

    def watch(self, samples: Samples, heights: np.ndarray) -> None:
        """Take in where samples were taken, and when.

        Args:
            samples: N of them.
            heights: of their places, (N,) m.
        """
        if samples.stamp is None or not len(samples):
            return
        x, stamps = samples.x[:, :2].cpu().numpy(), samples.stamp.cpu().numpy()
        self._low, self._high = np.minimum(self._low, x.min(0)), np.maximum(self._high, x.max(0))
        # a recording that begins anew has come earlier than it began
        self._first = min(stamps[0], self._first) if self._first == self._first else stamps[0]
        self._newest = max(stamps[-1], self._newest) if self._newest == self._newest else stamps[-1]

        at = 0
        while at < len(stamps):
            stamp = float(stamps[at])
            if self._then is not None and stamp >= self._then[0] + _STEP:
                self._note(math.dist(x[at], self._then[1]), stamp - self._then[0], stamp)
                self._then = stamp, x[at]
                self._note_height(x[at], float(heights[at]))
            elif self._then is None or stamp < self._then[0]:
                self._then = stamp, x[at]
                self._note_height(x[at], float(heights[at]))
            # at least one: of a very large stamp the next half second is no number of its own
            at += max(1, int(np.searchsorted(stamps[at:], self._then[0] + _STEP)))

    def forget_leaps(self) -> None:
        """Forget that poses have leapt: another map begins."""
        self._leaps, self._farthest = 0, (0.0, 0.0, 0.0)

    def _note(self, metres: float, seconds: float, stamp: float) -> None:
        """Take in a step that ends at a stamp (s)."""
        self._fast += metres / seconds > _FASTEST
        self.fastest = max(self.fastest, metres / seconds)

        self._steps.append((metres, seconds, stamp))
        if len(self._steps) < 3:
            return
        before, step, after = self._steps
        speed = step[0] / step[1]
        if 4.0 * speed / step[1] > _HARDEST and all(
            _ISOLATED * one[0] / one[1] < speed for one in (before, after)
        ):
            self._leaps += 1
            self._farthest = max(self._farthest, step)

    def _note_height(self, place: np.ndarray, height: float) -> None:
        """Take in a height, m, and where it is."""
        self._floors.note((float(place[0]), float(place[1])), height)
        self._lowest = sorted([*self._lowest, height])[:_OFTEN]
        self._highest = sorted([*self._highest, height], reverse=True)[:_OFTEN]

    @property
    def climb(self) -> float:
        """By how much heights differ but for single ones, m."""
        return self._highest[-1] - self._lowest[-1] if len(self._lowest) == _OFTEN else 0.0

    def _degrees(self) -> str:
        """Ask whether coordinates are degrees on the earth, where they may be."""
        x, y = 0.5 * (self._low + self._high)
        about = abs(self._low).max() > 1.0 and float((self._high - self._low).max()) > _DEGREES
        if not about or abs(x) > 180.0 or abs(y) > 180.0 or min(abs(x), abs(y)) > 90.0:
            return ""
        return (
            f" Or are ({x:.4g}, {y:.4g}) degrees of longitude and latitude? Poses are in metres, as "
            "navsat_transform_node of robot_localization makes them"
        )

    def notes(self, max_speed: float) -> list[str]:
        """What a person should look at, in sentences.

        Args:
            max_speed: as in IntakeSettings.
        """
        seconds, extent = self._newest - self._first, float((self._high - self._low).max())
        if self.climb > max(FLAT, _STEEP * extent):
            return [
                f"the heights of the poses differ by {self.climb:.3g} m, and the map is flat: what was measured "
                "above one another is taken for one place; map each height by itself"
            ]
        if self._floors.above >= _OFTEN:
            return [
                f"the heights of the poses differ by up to {self._floors.most:.3g} m in one and the same place, in "
                f"{self._floors.above} places, and the map is flat: what was measured above one another (floors, a "
                "bridge) is taken for one place; map each height by itself, unless it is only the height of the poses "
                "that drifts"
            ]
        if seconds >= _PATIENCE and extent <= _STANDS:
            return [
                f"the robot has not moved since the first measurement, {seconds:.0f} s ago: its poses stay within "
                f"{_STANDS:g} m, and a map comes of driving; where it drives, does what makes the poses (wheel "
                f"encoders, a localiser) work?{self._degrees()}"
            ]
        if self._fast >= _OFTEN:
            hint = "" if max_speed > 0.0 else " max_speed drops leaps"
            return [
                f"poses move at {self.fastest:.3g} m/s: are they metres, and of one robot?{hint}"
            ]
        if self._leaps:
            metres, took, stamp = self._farthest
            times = "once" if self._leaps == 1 else f"{self._leaps} times"
            return [
                f"poses leap {times}, at stamp {stamp:.1f} by {metres:.3g} m in {took:.2g} s, and stay there: has an "
                "odometry begun again, or a localiser corrected itself? What was mapped before lies that far beside "
                "what comes: begin a new map, or take the poses of a localiser"
            ]
        return []

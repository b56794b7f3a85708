"""Whether the poses of measurements move as those of a robot do, in sentences where they do not."""

from __future__ import annotations

import math

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.intake.poses.floors import FLAT, Floors
from gp_mapping.intake.poses.leaps import PoseLeaps

__all__ = ["Motion"]

_STANDS = 0.05  # m; a robot that stays within has not moved: poses tremble
_PATIENCE = 10.0  # s after which a robot that has never moved is spoken of
_STEP = 0.5  # s, over which a speed is taken: over less, poses that tremble are fast
_DEGREES = 1e-6  # that somebody has moved: a tenth of a metre
_FASTEST = 60.0  # m/s; what maps moves slower
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
        self._then: float | None = None  # stamp at which this step began, s
        self._place = np.zeros(2)  # where it began
        self._fast = 0
        self.fastest = 0.0
        self._away = 0.0  # how far places of this step lie from its beginning, at most, m
        self._farthest: np.ndarray | None = None  # the one that does
        self._leaps = PoseLeaps()
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
            then = self._then
            if then is not None and stamp >= then + _STEP:
                self._note(x[at] - self._place, stamp - then, stamp)
            if then is None or not then <= stamp < then + _STEP:
                self._begin_step(stamp, x[at], float(heights[at]))
                then = stamp
            # at least one: of a very large stamp the next half second is no number of its own
            end = at + max(1, int(np.searchsorted(stamps[at:], then + _STEP)))
            self._look_aside(x[at:end])
            at = end

    def forget_leaps(self) -> None:
        """Forget that poses have leapt: another map begins."""
        self._leaps.forget()

    def _begin_step(self, stamp: float, place: np.ndarray, height: float) -> None:
        """Begin a step at a stamp (s)."""
        self._then, self._place = stamp, place
        self._away, self._farthest = 0.0, None
        self._note_height(place, height)

    def _look_aside(self, places: np.ndarray) -> None:
        """Take in places on the way of this step, (n, 2)."""
        away = np.hypot(*(places - self._place).T)
        i = int(np.argmax(away))
        if away[i] > self._away:
            self._away, self._farthest = float(away[i]), places[i]

    def _note(self, way: np.ndarray, seconds: float, stamp: float) -> None:
        """Take in a step that ends at a stamp (s)."""
        speed = float(np.hypot(*way)) / seconds
        self._fast += speed > _FASTEST
        self.fastest = max(self.fastest, speed)

        aside = 0.0
        if self._farthest is not None:
            along = float((self._farthest - self._place) @ way) / max(float(way @ way), 1e-12)
            aside = math.dist(self._farthest, self._place + min(max(along, 0.0), 1.0) * way)
        self._leaps.note(way, seconds, stamp, aside)

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
        return self._leaps.notes(max_speed)

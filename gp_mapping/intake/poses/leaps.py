"""Whether poses leap as no robot drives: away for good, or away and back again.

A step of s metres in t seconds is a leap where a robot would start and stop with more than
_HARDEST, 4 s / t² for one that stands before and after, and is _ISOLATED times as fast as it was
before, and is after it: what is fast for longer drives. Leaps in a row are one, of the sum of their
ways. One that ends near where it began has come back, and so has one whose way the next leap takes
back. A place on the way of a step that lies more than _HARDEST t² / 8 beside it has come back, too.
All of them are _ISOLATED times as long as places usually lie beside their steps: poses tremble.
"""

from __future__ import annotations

import numpy as np

__all__ = ["PoseLeaps"]

_HARDEST, _ISOLATED = 20.0, 5.0  # m/s², and times
_LONGEST = 4  # steps in a row; more of them are a robot that is fast
_NEAR = 0.3  # of a leap: what is left of it once it has come back
_FADES = 0.02  # weight of the newest step in what is usual
_KNOWN = 6  # steps, after which it is known


class PoseLeaps:
    """Watches the steps of a robot's places, in order of time.

    Attributes:
        stays: leaps after which the places go on from there.
        farthest: of these the longest: m, s that it took, stamp (s).
        returns: leaps that have come back.
        worst: of these the longest: m, stamp (s).
        driven: largest speed of a step that is no leap, m/s.
    """

    def __init__(self) -> None:
        self.forget()
        self._speed: float | None = None  # of the newest step that is no leap, m/s
        self._trembling = 0.0  # how far places usually lie aside, m
        self._steps = 0  # of which this is the mean
        self.driven = 0.0

    def forget(self) -> None:
        """Forget what was found: another map begins."""
        self.stays, self.farthest = 0, (0.0, 0.0, 0.0)
        self.returns, self.worst = 0, (0.0, 0.0)
        self._run: list[tuple[np.ndarray, float, float]] = []  # leaps in a row: way, s, stamp
        self._open: np.ndarray | None = None  # way of a leap that has not come back, m

    def note(self, way: np.ndarray, seconds: float, stamp: float, aside: float) -> None:
        """Take in a step.

        Args:
            way: (2,) m.
            seconds: that it took.
            stamp: of its end, s.
            aside: how far places on the way lie beside the straight one, at most; m.
        """
        metres = float(np.hypot(*way))
        speed, trembling = metres / seconds, _ISOLATED * self._trembling
        if (
            self._speed is not None
            and 4.0 * speed / seconds > _HARDEST
            and speed > _ISOLATED * self._speed
            and metres > trembling
            and len(self._run) < _LONGEST
        ):
            self._run.append((way, seconds, stamp))
            return

        if self._run:
            self._end(speed)
        elif self._steps >= _KNOWN and aside > max(0.125 * _HARDEST * seconds**2, trembling):
            self._came_back(aside, stamp)

        self._steps += 1
        self._trembling += max(1.0 / self._steps, _FADES) * (aside - self._trembling)
        self._speed, self.driven = speed, max(self.driven, speed)

    def _end(self, speed: float) -> None:
        """End leaps in a row by a step that is none (m/s)."""
        run, self._run = self._run, []
        ways = np.cumsum([way for way, _, _ in run], axis=0)
        lengths = np.hypot(*ways.T)
        longest = max(run, key=lambda leap: float(np.hypot(*leap[0])))
        metres, seconds, stamp = float(np.hypot(*longest[0])), longest[1], longest[2]
        if _ISOLATED * speed >= metres / seconds:
            return

        if lengths[-1] < _NEAR * lengths.max():
            self._came_back(float(lengths.max()), stamp)
        elif self._open is not None and np.hypot(*(self._open + ways[-1])) < _NEAR * lengths[-1]:
            self.stays -= 1
            self._open = None
            self._came_back(float(lengths[-1]), stamp)
        else:
            self.stays += 1
            self._open = ways[-1]
            self.farthest = max(self.farthest, (metres, seconds, stamp))

    def _came_back(self, metres: float, stamp: float) -> None:
        """Count a leap that has come back at a stamp (s)."""
        self.returns += 1
        self.worst = max(self.worst, (metres, stamp))

    def notes(self, max_speed: float) -> list[str]:
        """What a person should look at, in sentences.

        Args:
            max_speed: as in IntakeSettings.
        """
        said = []
        if self.stays:
            metres, took, stamp = self.farthest
            said.append(
                f"poses leap {_times(self.stays)}, at stamp {stamp:.1f} by {metres:.3g} m in {took:.2g} s, and stay "
                "there: has an odometry begun again, or a localiser corrected itself? What was mapped before lies "
                "that far beside what comes: begin a new map, or take the poses of a localiser"
            )
        if self.returns:
            metres, stamp = self.worst
            drops = (
                f"max_speed, above the {self.driven:.2g} m/s that the robot drives, drops such poses"
                if max_speed == 0.0
                else f"a lower max_speed (the robot drives {self.driven:.2g} m/s) drops such poses"
            )
            said.append(
                f"poses leap away and come back {_times(self.returns)}, at worst by {metres:.3g} m, until stamp "
                f"{stamp:.1f}: does a localiser lose the robot for a moment? What was measured meanwhile lies in the "
                f"wrong place: {drops}"
            )
        return said


def _times(count: int) -> str:
    """A count in words."""
    return "once" if count == 1 else f"{count} times"

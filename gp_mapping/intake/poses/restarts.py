"""Whether what makes the poses was started anew: after a silence they are (0, 0, heading 0) again.

An odometry counts from where the robot stands when its driver starts. Unless that is where it began
before, what is measured from then on lies in another frame than the map.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Restarts"]

_AT = 0.02  # m and rad within which a pose is the origin
_FAR = 0.5  # m from it, of the pose before the silence
# ns: a driver takes at least so long to start, and after more it is another drive
_SILENT, _LONGEST = 500_000_000, 300_000_000_000
_USUAL = 5.0  # times the shortest step: a slow source is not silent


class Restarts:
    """Watches the poses of one source, in order of time."""

    def __init__(self) -> None:
        self._newest: tuple[int, tuple[float, ...]] | None = None  # stamp (ns) and position (m)
        self._shortest = math.inf  # step, ns
        self._count = 0
        self._first = 0.0, 0.0, 0.0  # stamp (s), silence before it (s), way to it (m)

    def seldom_notes(self, max_pose_gap: float) -> list[str]:
        """Say by what poses can be interpolated of which no two are near enough, in a sentence.

        Args:
            max_pose_gap: as in IntakeSettings.
        """
        period = 1e-9 * self._shortest
        if not max_pose_gap < period < math.inf:
            return []
        enough = math.ceil(20.0 * period) / 10.0
        return [
            f"poses come {period:.3g} s apart and more, and no measurement is placed between poses further apart than "
            f"max_pose_gap ({max_pose_gap:g} s): write max_pose_gap: {enough:.1f} where the robot drives straight on "
            "for so long, or record a source of poses that come more often"
        ]

    def forget(self) -> None:
        """Forget what was found: the map is empty."""
        self._count = 0

    def add(
        self, stamp: int, position: tuple[float, ...], quaternion: tuple[float, ...] | None
    ) -> None:
        """Take in a pose.

        Args:
            stamp: ns; one before the last is of another round of a recording.
            position: (x, y, z) m.
            quaternion: x y z w; None: position only.
        """
        before, self._newest = self._newest, (stamp, position)
        if before is None or stamp <= before[0]:
            return
        step = stamp - before[0]
        if step > _SILENT and _is_silence(step, self._shortest):
            self._judge(before[1], step, stamp, position, quaternion)
        self._shortest = min(self._shortest, step)

    def add_all(self, stamps: np.ndarray, rows: np.ndarray) -> None:
        """Take in poses as `add` does each in turn.

        Args:
            stamps: (n,) ns, increasing.
            rows: (n, 7) position in m, and unit quaternion x y z w.
        """
        if not len(stamps):
            return
        self.add(int(stamps[0]), tuple(rows[0, :3]), tuple(rows[0, 3:]))
        steps = np.diff(stamps)
        shortest = np.minimum.accumulate(np.concatenate([[self._shortest], steps]))
        for i in np.flatnonzero((steps > _SILENT) & (steps <= _LONGEST)).tolist():
            if _is_silence(steps[i], shortest[i]):
                before, row = tuple(rows[i, :3]), rows[i + 1]
                self._judge(
                    before, int(steps[i]), int(stamps[i + 1]), tuple(row[:3]), tuple(row[3:])
                )
        self._newest, self._shortest = (int(stamps[-1]), tuple(rows[-1, :3])), float(shortest[-1])

    def _judge(
        self,
        before: tuple[float, ...],
        silence: int,
        stamp: int,
        position: tuple[float, ...],
        quaternion: tuple[float, ...] | None,
    ) -> None:
        """Count a pose after a silence, where poses begin anew with it.

        Args:
            before: position of the pose before, m.
            silence: ns.
            stamp: of the pose, ns.
            position: of the pose, m.
            quaternion: of the pose.
        """
        metres = math.hypot(*before[:2])
        if metres >= _FAR and _is_origin(position, quaternion):
            self._first = self._first if self._count else (1e-9 * stamp, 1e-9 * silence, metres)
            self._count += 1

    def notes(self) -> list[str]:
        """What to say of the source: a sentence where it has begun anew."""
        if not self._count:
            return []
        stamp, silence, metres = self._first
        times = "once" if self._count == 1 else f"{self._count} times"
        return [
            f"poses begin again at (0, 0) {times}, at stamp {stamp:.1f} after {silence:.3g} s without any and "
            f"{metres:.3g} m away from it: was an odometry started anew? What was mapped before lies elsewhere than "
            "what comes, unless it began there, too: begin a new map, or take the poses of a localiser"
        ]


def _is_silence(step: float, shortest: float) -> bool:
    """Whether poses have stopped for a step, of which the shortest so far is known; both in ns."""
    return step <= _LONGEST and shortest < math.inf and step > max(_SILENT, _USUAL * shortest)


def _is_origin(position: tuple[float, ...], quaternion: tuple[float, ...] | None) -> bool:
    """Whether a pose is the one that an odometry begins with."""
    if max(abs(position[0]), abs(position[1])) > _AT:
        return False
    if quaternion is None:
        return True
    x, y, z, w = quaternion
    return abs(math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))) <= _AT

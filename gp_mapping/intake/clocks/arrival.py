"""Which pose was the newest when a measurement arrived, whichever of them is handed on first."""

from __future__ import annotations

from collections import deque

__all__ = ["NewestPose"]

_MOST = 5000  # poses that arrived after the newest measurement that was handed on


class NewestPose:
    """Finds the newest pose that had arrived, by when the middleware received the messages.

    A node takes messages in groups, topic by topic, and after a stall seconds of one topic before
    the other: the order in which they are handed on says nothing of clocks.
    """

    def __init__(self) -> None:
        # when poses were received, and their stamps, ns; all but the first later than at() was
        # asked for
        self._poses: deque[tuple[int, int]] = deque(maxlen=_MOST)

    def add(self, received: int, stamp: int) -> None:
        """Note a pose.

        Args:
            received: when, ns of the middleware's clock; 0 where it is not known.
            stamp: its stamp, ns.
        """
        if self._poses and received < self._poses[-1][0]:
            self._poses.clear()  # the middleware's clock was set
        self._poses.append((received, stamp))

    def at(self, received: int) -> int | None:
        """Stamp of the newest pose that had arrived by then, ns; None: it is not known.

        Args:
            received: when a measurement was received, as in `add`; not before the one before it.
        """
        poses = self._poses
        while len(poses) > 1 and poses[1][0] <= received:
            poses.popleft()
        return poses[0][1] if poses and poses[0][0] <= received else None

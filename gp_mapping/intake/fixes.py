"""Fixes of a satellite receiver, each paired with the robot's position at its stamp."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.messages import stamp_ns
from gp_mapping.intake.poses.buffer import Bracket, PosePairs
from gp_mapping.intake.poses.tf_poses import TfPoses
from gp_mapping.intake.poses.track import PoseTrack
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["FIX", "ROLE", "FixQueue", "place_of"]

FIX, ROLE = "sensor_msgs/msg/NavSatFix", "fix"
_NO_FIX = -1  # sensor_msgs/NavSatStatus.STATUS_NO_FIX


class _Fix(NamedTuple):
    """A fix that waits for its pose.

    Attributes:
        epoch: of the poses when it came.
        stamp: ns.
        place: latitude and longitude, degrees.
    """

    epoch: int
    stamp: int
    place: tuple[float, float]


def place_of(msg) -> tuple[float, float] | None:
    """Latitude and longitude of a sensor_msgs/NavSatFix in degrees.

    Returns:
        None where the receiver knew no position, or a number is not finite or out of range.
    """
    place = float(msg.latitude), float(msg.longitude)
    known = msg.status.status > _NO_FIX and all(map(math.isfinite, place))
    return place if known and abs(place[0]) <= 90.0 and abs(place[1]) <= 180.0 else None


class FixQueue:
    """Fixes that wait for their pose, and fixes that have it; each is used or counted as dropped.

    Args:
        settings: `queue_size` bounds how many wait, `max_wait` bounds for how long, measured by the
            stamps of fixes.
        drops: counts the fixes that are not used.
        received: counts all fixes under "fix".
        poses: returns the current source of poses.
    """

    def __init__(
        self,
        settings: IntakeSettings,
        drops: DropCounter,
        received: dict[str, int],
        poses: Callable[[], PoseTrack | TfPoses],
    ):
        self._drops, self._received, self._poses = drops, received, poses
        self._most, self._max_wait = settings.queue_size, round(1e9 * settings.max_wait)  # ns

        self._waiting: deque[_Fix] = deque()
        self._ready: deque[tuple[float, float, float, float]] = deque()

        if settings.fix_topic:
            received[ROLE] = 0

    @property
    def waiting(self) -> int:
        """Fixes whose pose is not known yet."""
        return len(self._waiting)

    def add(self, msg) -> None:
        """Take in a sensor_msgs/NavSatFix."""
        self._received[ROLE] = self._received.get(ROLE, 0) + 1

        place = place_of(msg)
        if place is None:
            return self._drops.count(DropReason.FIX_INVALID)

        self._waiting.append(_Fix(self._poses().epoch, stamp_ns(msg), place))
        self._resolve()

        # abs: stamps may also have jumped back
        newest = self._waiting[-1].stamp if self._waiting else 0
        while self._waiting and (
            len(self._waiting) > self._most or abs(newest - self._waiting[0].stamp) > self._max_wait
        ):
            self._waiting.popleft()
            self._drops.count(DropReason.FIX_NO_POSE)
        return None

    def take(self, finish: bool = False) -> list[tuple[float, float, float, float]]:
        """Hand out all fixes that have their pose now.

        Args:
            finish: nothing more will come, so that fixes without a pose are dropped.

        Returns:
            x, y (m, in the map's frame), latitude, longitude (degrees) of each.
        """
        self._resolve(finish)
        taken = list(self._ready)
        self._ready.clear()
        return taken

    def _resolve(self, finish: bool = False) -> None:
        """Move fixes whose pose is known, or never will be, out of the queue, oldest first."""
        while self._waiting:
            epoch, stamp, place = self._waiting[0]
            found = self._poses().find(epoch, stamp, finish)
            if found is None:
                return

            self._waiting.popleft()
            # a reason: its pose will never be known
            if not isinstance(found, Bracket):
                self._drops.count(DropReason.FIX_NO_POSE)
            elif len(self._ready) >= self._most:
                self._drops.count(DropReason.FIX_QUEUE_FULL)
            else:
                x, y, _ = (
                    PosePairs.from_brackets([found], [stamp])
                    .interpolate(orientation=False)[0][0]
                    .tolist()
                )
                self._ready.append((x, y, *place))

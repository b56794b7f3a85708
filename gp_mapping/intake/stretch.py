"""A stretch of a recording in which nothing is out of the ordinary, paired all at once.

Message by message, a measurement waits until a pose at or after its stamp has come, or until it has
waited too long. Where both streams go on steadily, no measurement waits too long, and it does not
matter when each message came: the poses around a stamp are found by searching the stamps of all of
them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median_low
from typing import NamedTuple

import numpy as np

from gp_mapping.intake.columns import Stream
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.buffer import Pose, PosePairs, read_rows
from gp_mapping.intake.poses.messages import LARGE_VARIANCE, LOST_VARIANCE, read_pose_columns
from gp_mapping.settings.intake import IntakeSettings

__all__ = [
    "PERIODS",
    "RECENT_STEPS",
    "PoseRows",
    "Waits",
    "distance",
    "find_poses",
    "keeps_pass_gap",
    "longest_pause",
    "longest_waits",
    "read_poses",
]

PERIODS = 4  # a longer pause of a slow sensor, in units of its own period, ends a pass
RECENT_STEPS = 15  # whose median is the period


def distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Distance between two positions, m.

    By the operations that `PoseRows.too_fast` uses on columns, so that both round alike.

    Args:
        a: (x, y, z) m.
        b: (x, y, z) m.
    """
    x, y, z = (p_k - q_k for p_k, q_k in zip(a, b))
    return math.sqrt(x * x + y * y + z * z)


def longest_pause(steps: Sequence[int], pass_gap: int) -> tuple[int, bool]:
    """The longest pause within a pass: pass_gap, or PERIODS periods of a sensor that is slower.

    It depends on the sensor's stamps alone.

    Args:
        steps: between the newest measurements, ns, at most RECENT_STEPS.
        pass_gap: ns.

    Returns:
        That pause in ns, and whether the sensor is so slow that a person has to be told.
    """
    slow = sum(PERIODS * step > pass_gap for step in steps)
    if 2 * slow <= len(steps):
        return pass_gap, False

    period = median_low(steps)
    return PERIODS * period, period > pass_gap and len(steps) >= RECENT_STEPS


class PoseRows(NamedTuple):
    """n poses as rows.

    Attributes:
        stamps: (n,) int64 ns.
        rows: (n, 7) position in m, and unit quaternion x y z w.
        variance: (n,) of a coordinate, m².
    """

    stamps: np.ndarray
    rows: np.ndarray
    variance: np.ndarray

    def select(self, which: np.ndarray) -> PoseRows:
        """The rows of these numbers."""
        return PoseRows(self.stamps[which], self.rows[which], self.variance[which])

    def preceded_by(self, earlier: list[Pose]) -> PoseRows:
        """These rows, preceded by poses that came one by one."""
        if not earlier:
            return self
        first = (
            np.array([pose.stamp for pose in earlier]),
            np.array([(*pose.position, *(pose.quaternion or ())) for pose in earlier]),
            np.array([pose.variance for pose in earlier]),
        )
        return PoseRows(*(np.concatenate([a, b]) for a, b in zip(first, self)))

    def too_fast(self, first: int, fastest: float) -> bool:
        """Whether the robot could not have reached some pose from the pose before it.

        Args:
            first: number of the first pose that is looked at.
            fastest: largest speed, m/s; 0: any.
        """
        if fastest <= 0.0:
            return False

        x, y, z = np.diff(self.rows[first - 1 :, :3], axis=0).T
        return bool(
            (
                np.sqrt(x * x + y * y + z * z) > fastest * 1e-9 * np.diff(self.stamps[first - 1 :])
            ).any()
        )

    def poses(self) -> list[Pose]:
        """Each row as a Pose."""
        return list(
            map(
                Pose,
                self.stamps.tolist(),
                map(tuple, self.rows[:, :3].tolist()),
                map(tuple, self.rows[:, 3:].tolist()),
                self.variance.tolist(),
            )
        )

    def between(self, stamps: np.ndarray, before: np.ndarray, after: np.ndarray) -> PosePairs:
        """The poses around stamps.

        Args:
            stamps: (N,) ns.
            before: (N,) number of the pose before each stamp.
            after: (N,) number of the pose after each stamp.
        """
        start, end = self.stamps[before], self.stamps[after]
        # differences of integers first, which are exact
        weight = np.where(end > start, (stamps - start) / np.maximum(end - start, 1), 0.0)
        first, second = self.rows[before], self.rows[after]
        return PosePairs(
            weight,
            (first[:, :3], second[:, :3]),
            (first[:, 3:], second[:, 3:]),
            (self.variance[before], self.variance[after]),
        )


def read_poses(
    stream: Stream, settings: IntakeSettings
) -> tuple[PoseRows, Counter[DropReason]] | None:
    """Read all poses of a stream.

    Args:
        stream: pose messages.
        settings: those of the intake.

    Returns:
        A row for each pose, NaN where it is dropped for what it says; and how many are dropped for
        which reason. None where one of them needs a warning: then they are to be read one by one.
    """
    stamps = stream.columns.stamps()
    rows, variance = read_pose_columns(stream.columns, settings.pose_source)
    variance = variance if settings.use_pose_covariance else np.zeros(len(rows))
    lost, invalid = variance > LOST_VARIANCE, np.isnan(variance)
    # one by one, a pose of large variance is warned of
    if stamps is None or ((variance > LARGE_VARIANCE) & ~lost).any():
        return None

    rows, refused = read_rows(rows, settings.max_position)
    refused |= dict.fromkeys(np.flatnonzero(lost).tolist(), DropReason.POSE_LOST)
    rows[list(refused)] = np.nan
    drops = Counter(refused.values())
    drops[DropReason.POSE_BAD_COVARIANCE] = int(invalid.sum())
    return PoseRows(stamps, rows, np.where(invalid, 0.0, variance)), drops


def find_poses(
    stamps: np.ndarray, poses: np.ndarray, max_gap: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the poses before and after each stamp.

    Args:
        stamps: (N,) ns, none before the first pose or after the last.
        poses: (n,) stamps of the poses, ns, in order.
        max_gap: largest time between two poses to interpolate between, ns.

    Returns:
        Number of the pose before and of the pose after (the same where a stamp is hit exactly), and
        whether they are close enough to interpolate; (N,) each.
    """
    after = np.searchsorted(poses, stamps)
    # a stamp that is hit exactly has the same pose on both sides
    before = np.where(poses[after] == stamps, after, after - 1)
    return before, after, poses[after] - poses[before] <= max_gap


class Waits(NamedTuple):
    """The longest that any measurement of a stretch has waited.

    Attributes:
        longest: ns of stamps.
        queue: the most measurements that waited together.
    """

    longest: int
    queue: int


def longest_waits(stamps: np.ndarray, advance: np.ndarray, first: int, newest: np.ndarray) -> Waits:
    """How long measurements wait for their poses.

    Args:
        stamps: (N,) of all that wait or come, ns.
        advance: (N,) by how much stamps had advanced in all when each came, ns.
        first: the first `first` of them wait already.
        newest: (N − first,) stamp of the newest pose when each of the others came, ns.
    """
    index = np.arange(first, len(stamps))
    # number of the oldest that still waits when measurement `index` comes, if it is not after it
    oldest = np.searchsorted(stamps, newest, side="right")
    waiting = oldest <= index
    if not waiting.any():
        return Waits(0, 0)

    index, oldest = index[waiting], oldest[waiting]
    # while `index` comes, all from `oldest` on wait
    return Waits(int((advance[index] - advance[oldest]).max()), int((index - oldest).max()) + 1)


def keeps_pass_gap(steps: list[int], first: int, pass_gap: int) -> bool:
    """Whether `longest_pause` is pass_gap at each of the new steps.

    Args:
        steps: between measurements, ns.
        first: number of the first new step.
        pass_gap: ns.
    """
    slow = np.array(steps) > pass_gap // PERIODS
    if not slow.any():
        return True

    # number of slow steps in the last RECENT_STEPS before each end, by differences of a running sum
    slow_until = np.concatenate([[0], np.cumsum(slow)])
    ends = np.arange(first + 1, len(steps) + 1)
    starts = np.maximum(ends - RECENT_STEPS, 0)
    return bool((2 * (slow_until[ends] - slow_until[starts]) <= ends - starts).all())

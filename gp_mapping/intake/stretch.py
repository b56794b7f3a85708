"""A stretch of a recording in which nothing is out of the ordinary, paired at once.

Message by message, a measurement waits until a pose at or after its stamp has come, or until it has waited too long.
In a stretch in which both streams go on steadily nobody waits too long, and then it does not matter when each message
came: the poses around a stamp are found by searching in the stamps of all of them.
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
from gp_mapping.intake.poses.buffer import Between, Pose, read_rows
from gp_mapping.intake.poses.messages import LARGE_VARIANCE, LOST_VARIANCE, read_pose_columns
from gp_mapping.settings.intake import IntakeSettings

__all__ = [
    "PERIODS",
    "RECENT_STEPS",
    "PoseRows",
    "Waits",
    "distance",
    "find_poses",
    "longest_pause",
    "read_poses",
    "seldom_slow",
    "waits",
]

PERIODS = 4  # of a slow sensor, beyond which a pause is one
RECENT_STEPS = 15  # that its period is the median of


def distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Between two places, m; by the operations that `PoseRows.too_fast` takes columns of them through."""
    x, y, z = (p - q for p, q in zip(a, b))
    return math.sqrt(x * x + y * y + z * z)


def longest_pause(steps: Sequence[int], pass_gap: int) -> tuple[int, bool]:
    """A pause within a pass, ns: pass_gap, or some periods of a sensor that is slower; told by its stamps alone.

    Args:
        steps: between the newest measurements, ns, at most RECENT_STEPS.
        pass_gap: ns.

    Returns:
        It, and whether the sensor is so slow that this has to be said.
    """
    slow = sum(PERIODS * step > pass_gap for step in steps)
    if 2 * slow <= len(steps):
        return pass_gap, False
    period = median_low(steps)
    return PERIODS * period, period > pass_gap and len(steps) >= RECENT_STEPS


class PoseRows(NamedTuple):
    """n poses: stamps (n,) int64 ns, rows (n, 7) of position, m, and unit quaternion x y z w, variance (n,) m²."""

    stamps: np.ndarray
    rows: np.ndarray
    variance: np.ndarray

    def at(self, which: np.ndarray) -> PoseRows:
        """Some of them."""
        return PoseRows(self.stamps[which], self.rows[which], self.variance[which])

    def after(self, earlier: list[Pose]) -> PoseRows:
        """These, and before them some that came one by one."""
        if not earlier:
            return self
        first = (
            np.array([pose.stamp for pose in earlier]),
            np.array([(*pose.position, *(pose.quaternion or ())) for pose in earlier]),
            np.array([pose.variance for pose in earlier]),
        )
        return PoseRows(*(np.concatenate([a, b]) for a, b in zip(first, self)))

    def too_fast(self, first: int, fastest: float) -> bool:
        """Whether the robot could not have reached one of them, from number `first` on, from the one before.

        fastest: m/s; 0: any.
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
        """Each by itself."""
        return list(
            map(
                Pose,
                self.stamps.tolist(),
                map(tuple, self.rows[:, :3].tolist()),
                map(tuple, self.rows[:, 3:].tolist()),
                self.variance.tolist(),
            )
        )

    def between(self, stamps: np.ndarray, before: np.ndarray, after: np.ndarray) -> Between:
        """Stamps (N,) ns between the poses of these numbers (N,)."""
        start, end = self.stamps[before], self.stamps[after]
        # differences of integers first, which are exact
        weight = np.where(end > start, (stamps - start) / np.maximum(end - start, 1), 0.0)
        first, second = self.rows[before], self.rows[after]
        return Between(
            weight,
            (first[:, :3], second[:, :3]),
            (first[:, 3:], second[:, 3:]),
            (self.variance[before], self.variance[after]),
        )


def read_poses(
    stream: Stream, settings: IntakeSettings
) -> tuple[PoseRows, Counter[DropReason]] | None:
    """All poses of a stream, NaN rows for those that are dropped for what they say; how many for which reason.

    None where a person is to be told of one of them.
    """
    stamps = stream.columns.stamps()
    rows, variance = read_pose_columns(stream.columns, settings.pose_source)
    variance = variance if settings.use_pose_covariance else np.zeros(len(rows))
    lost, wrong = variance > LOST_VARIANCE, np.isnan(variance)
    if stamps is None or ((variance > LARGE_VARIANCE) & ~lost).any():
        return None

    rows, refused = read_rows(rows, settings.max_position)
    refused |= dict.fromkeys(np.flatnonzero(lost).tolist(), DropReason.POSE_LOST)
    rows[list(refused)] = np.nan
    drops = Counter(refused.values())
    drops[DropReason.POSE_BAD_COVARIANCE] = int(wrong.sum())
    return PoseRows(stamps, rows, np.where(wrong, 0.0, variance)), drops


def find_poses(
    stamps: np.ndarray, poses: np.ndarray, max_gap: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the poses before and after each stamp, and whether they are close enough to interpolate.

    stamps: (N,) ns, none before the first pose nor after the last.  poses: (n,) ns, in order.
    """
    after = np.searchsorted(poses, stamps)
    before = np.where(poses[after] == stamps, after, after - 1)
    return before, after, poses[after] - poses[before] <= max_gap


class Waits(NamedTuple):
    """The longest that any measurement of a stretch has waited: in ns of stamps, and among how many."""

    longest: int
    queue: int


def waits(stamps: np.ndarray, advance: np.ndarray, first: int, newest: np.ndarray) -> Waits:
    """How long measurements wait for their poses.

    stamps, advance: (N,) ns of all that wait or come, and by how much stamps had advanced by then; the first `first`
    of them wait already.  newest: (N − first,) stamp of the newest pose when each of the others came.
    """
    mine = np.arange(first, len(stamps))
    oldest = np.searchsorted(
        stamps, newest, side="right"
    )  # that still waits then, if it is not after this one
    left = oldest <= mine
    if not left.any():
        return Waits(0, 0)
    mine, oldest = mine[left], oldest[left]
    return Waits(int((advance[mine] - advance[oldest]).max()), int((mine - oldest).max()) + 1)


def seldom_slow(steps: list[int], first: int, pass_gap: int) -> bool:
    """Whether `longest_pause` is pass_gap (ns) at each step (ns) from number `first` on."""
    slow = np.array(steps) > pass_gap // PERIODS
    if not slow.any():
        return True
    total = np.concatenate([[0], np.cumsum(slow)])
    ends = np.arange(first + 1, len(steps) + 1)
    starts = np.maximum(ends - RECENT_STEPS, 0)
    return bool((2 * (total[ends] - total[starts]) <= ends - starts).all())

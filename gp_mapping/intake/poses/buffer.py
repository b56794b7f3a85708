"""Poses in time: a bounded buffer, and the pose at a measurement's own stamp."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.transforms import slerp

__all__ = ["MAX_POSITION", "Bracket", "Pose", "PoseBuffer", "interpolate", "read_numbers", "weights"]

MAX_POSITION = 1e7  # m; what no coordinate of a map on the earth exceeds
_SMALLEST_QUATERNION = 1e-3  # a norm below it has no direction worth keeping
_LARGEST_QUATERNION = 1e3  # a norm above it is no rounding of 1


class Pose(NamedTuple):
    """A stamped pose: ns, metres, unit quaternion x y z w (None: position only), variance (m², 0: unknown)."""

    stamp: int
    position: tuple[float, float, float]
    quaternion: tuple[float, float, float, float] | None
    variance: float = 0.0


class Bracket(NamedTuple):
    """Two poses to interpolate between; the same one twice where a stamp is hit exactly."""

    before: Pose
    after: Pose


def read_numbers(position, quaternion, max_position: float) -> tuple[tuple, tuple | None] | DropReason:
    """Position (3,) m and unit quaternion (4,) or None, as plain numbers; a reason where no robot can be there.

    quaternion: x y z w, any norm but zero; None: not known.  max_position: of each coordinate, m.
    """
    position = tuple(map(float, position))
    if not all(map(math.isfinite, position)):
        return DropReason.POSE_NOT_FINITE
    if max(map(abs, position)) > max_position:
        return DropReason.POSE_OUT_OF_RANGE
    if quaternion is None:
        return position, None

    quaternion = tuple(map(float, quaternion))
    norm = math.sqrt(sum(q * q for q in quaternion))
    if math.isnan(norm) or math.inf in map(abs, quaternion):
        return DropReason.POSE_NOT_FINITE
    if norm < _SMALLEST_QUATERNION:
        return DropReason.POSE_ZERO_QUATERNION
    if norm > _LARGEST_QUATERNION:
        return DropReason.POSE_BAD_QUATERNION
    return position, tuple(q / norm for q in quaternion)


class PoseBuffer:
    """The latest poses in the order of their stamps: at least `size` of them are kept, never twice as many.

    Stamps are integer nanoseconds, so that a weight is exact also at today's epoch.
    """

    def __init__(self, size: int = 5000, max_gap: int = 500_000_000, max_extrapolation: int = 0,
                 max_position: float = MAX_POSITION):
        if size < 2:
            raise ValueError(f"size is {size}; a pose buffer needs at least 2 to interpolate")
        self.size, self.max_gap, self.max_extrapolation = size, max_gap, max_extrapolation
        self.max_position = max_position
        self._poses: list[Pose] = []

    def __len__(self) -> int:
        return len(self._poses)

    @property
    def newest(self) -> int | None:
        """Stamp of the newest pose in ns."""
        return self._poses[-1].stamp if self._poses else None

    def add(self, stamp: int, position, quaternion=None, variance: float = 0.0) -> DropReason | None:
        """Append a pose; a reason when it is refused, and the buffer is then as it was.

        stamp: ns.  position: (3,) m.  quaternion: (4,) x y z w, any norm but zero.  variance: of a coordinate, m².
        """
        pose = read_numbers(position, quaternion, self.max_position)
        if isinstance(pose, DropReason):
            return pose
        position, quaternion = pose
        if self._poses and stamp <= self._poses[-1].stamp:
            same = stamp == self._poses[-1].stamp
            return DropReason.POSE_REPEATED_STAMP if same else DropReason.POSE_OUT_OF_ORDER
        self._poses.append(Pose(stamp, position, quaternion, variance))
        if len(self._poses) >= 2 * self.size:  # trimmed rarely, so that adding is constant time on average
            del self._poses[:-self.size]
        return None

    def trim(self, keep: int) -> None:
        """Forget all but the newest `keep`."""
        del self._poses[:-keep]

    def bracket(self, stamp: int, last_chance: bool = False) -> Bracket | DropReason | None:
        """The poses around a stamp (ns); None: not known yet; a reason: never.

        last_chance: no later pose will come, so that a stamp up to max_extrapolation past the newest is continued.
        """
        poses = self._poses
        if not poses:
            return DropReason.NO_POSE if last_chance else None
        if stamp > poses[-1].stamp:
            if not last_chance:
                return None
            return self._continue(poses[-2:], poses[-1], stamp)
        i = bisect_left(poses, stamp, key=lambda pose: pose.stamp)
        if poses[i].stamp == stamp:
            return Bracket(poses[i], poses[i])
        if i == 0:
            return self._continue(poses[:2], poses[0], stamp)
        if poses[i].stamp - poses[i - 1].stamp > self.max_gap:
            return DropReason.POSE_GAP
        return Bracket(poses[i - 1], poses[i])

    def _continue(self, pair: list[Pose], nearest: Pose, stamp: int) -> Bracket | DropReason:
        """Straight on from the outermost two poses, where that is allowed."""
        if abs(stamp - nearest.stamp) > self.max_extrapolation:
            return DropReason.NO_POSE
        if len(pair) < 2 or pair[1].stamp - pair[0].stamp > self.max_gap:
            return Bracket(nearest, nearest)  # no speed is known: it is taken to stand
        return Bracket(*pair)


def weights(brackets: list[Bracket], stamps) -> np.ndarray:
    """Where the stamps (N,) ns stand in their brackets: 0 at the first pose, 1 at the second, (N,)."""
    # integer differences first: a float64 of nanoseconds since 1970 is no better than a quarter of a microsecond
    return np.array([(t - b.before.stamp) / (b.after.stamp - b.before.stamp) if b.after is not b.before else 0.0
                     for b, t in zip(brackets, stamps, strict=True)])


def interpolate(brackets: list[Bracket], stamps, orientation: bool = True) -> tuple[np.ndarray, Rotation | None]:
    """Positions (N, 3) and rotations at stamps (N,) ns: p₀ + w (p₁ − p₀), and slerp with the same w.

    The rotation is None where a pose has none, or where none is asked for. Outside its bracket (w beyond [0, 1]) the
    orientation is held.
    """
    before = np.array([b.before.position for b in brackets])  # (N, 3)
    after = np.array([b.after.position for b in brackets])
    weight = weights(brackets, stamps)
    positions = before + weight[:, None] * (after - before)
    if not orientation or any(b.before.quaternion is None or b.after.quaternion is None for b in brackets):
        return positions, None
    held = np.clip(weight, 0.0, 1.0).tolist()
    return positions, Rotation.from_quat([_between(b, w) for b, w in zip(brackets, held)])


def _between(bracket: Bracket, weight: float) -> tuple[float, float, float, float]:
    """By itself, not all in one call: the same bracket gives the same bits whatever batch it comes in."""
    before, after = bracket
    return before.quaternion if after is before else slerp(before.quaternion, after.quaternion, weight)

"""Poses in time: a bounded buffer, and the pose at a measurement's own stamp."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.transforms import slerp_rows

__all__ = [
    "MAX_POSITION",
    "Bracket",
    "Pose",
    "PoseBuffer",
    "PosePairs",
    "PoseRows",
    "interpolate",
    "read_numbers",
    "read_rows",
]

MAX_POSITION = 1e7  # m; no coordinate of a map on the earth exceeds it
_SMALLEST_QUATERNION = 1e-3  # a norm below it has no direction worth keeping
_LARGEST_QUATERNION = 1e3  # a norm above it is no rounding of 1


class Pose(NamedTuple):
    """A stamped pose.

    Attributes:
        stamp: ns.
        position: m.
        quaternion: unit, x y z w; None: position only.
        variance: of a coordinate, m²; 0: unknown.
    """

    stamp: int
    position: tuple[float, float, float]
    quaternion: tuple[float, float, float, float] | None
    variance: float = 0.0


class Bracket(NamedTuple):
    """Two poses to interpolate between.

    Attributes:
        before: the pose at or before the stamp.
        after: the pose after it; the same one where the stamp is hit exactly.
    """

    before: Pose
    after: Pose


def read_numbers(
    position, quaternion, max_position: float
) -> tuple[tuple, tuple | None] | DropReason:
    """Read a pose as plain numbers, and check that a robot can be there.

    Args:
        position: (3,) m.
        quaternion: x y z w, any norm but zero; None: not known.
        max_position: largest absolute coordinate, m.

    Returns:
        Position (3,) in m and unit quaternion (4,) or None; or why the pose cannot be used.
    """
    position = tuple(map(float, position))
    if not all(map(math.isfinite, position)):
        return DropReason.POSE_NOT_FINITE
    if max(map(abs, position)) > max_position:
        return DropReason.POSE_OUT_OF_RANGE
    if quaternion is None:
        return position, None

    x, y, z, w = quaternion = tuple(map(float, quaternion))
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    # a norm may overflow to infinity though all four are finite
    if math.isnan(norm) or math.inf in map(abs, quaternion):
        return DropReason.POSE_NOT_FINITE
    if norm < _SMALLEST_QUATERNION:
        return DropReason.POSE_ZERO_QUATERNION
    if norm > _LARGEST_QUATERNION:
        return DropReason.POSE_BAD_QUATERNION
    return position, (x / norm, y / norm, z / norm, w / norm)


def read_rows(rows: np.ndarray, max_position: float) -> tuple[np.ndarray, dict[int, DropReason]]:
    """Read many poses as `read_numbers` does.

    Args:
        rows: (n, 7) position in m, and quaternion x y z w.
        max_position: largest absolute coordinate, m.

    Returns:
        The rows with unit quaternions; and number of a row -> why it cannot be used.
    """
    position, (x, y, z, w) = rows[:, :3], rows[:, 3:].T

    with np.errstate(all="ignore"):  # rows that are not finite are looked at one by one below
        norm = np.sqrt(x * x + y * y + z * z + w * w)
        out = np.concatenate([position, rows[:, 3:] / norm[:, None]], 1)
        good = (np.abs(position) <= max_position).all(1)
        good &= (norm >= _SMALLEST_QUATERNION) & (norm <= _LARGEST_QUATERNION)

    refused = {}
    for i in np.flatnonzero(~good).tolist():
        reason = read_numbers(rows[i, :3].tolist(), rows[i, 3:].tolist(), max_position)
        if isinstance(reason, DropReason):
            refused[i] = reason
    return out, refused


class PoseBuffer:
    """The latest poses, in the order of their stamps.

    At least `size` of them are kept, and always fewer than twice as many. Stamps are integer
    nanoseconds, so that an interpolation weight is exact also at today's epoch.

    Args:
        size: how many poses are kept, at least 2.
        max_gap: largest time between two poses to interpolate between, ns.
        max_extrapolation: how far past the outermost pose a position may be continued, ns.
        max_position: largest absolute coordinate, m.

    Attributes:
        missed: stamps that were asked for when the poses around them were forgotten already.
        behind: the most that one of them was older than the newest pose, ns.
    """

    def __init__(
        self,
        size: int = 5000,
        max_gap: int = 500_000_000,
        max_extrapolation: int = 0,
        max_position: float = MAX_POSITION,
    ):
        if size < 2:
            raise ValueError(f"size is {size}; a pose buffer needs at least 2 to interpolate")
        self.size, self.max_gap, self.max_extrapolation = size, max_gap, max_extrapolation
        self.max_position = max_position
        self._forgot, self.missed, self.behind = False, 0, 0
        self._listed: list[Pose] = []
        # poses that came together, after those; listed when one of them is asked for
        self._rows: list[PoseRows] = []

    @property
    def _poses(self) -> list[Pose]:
        """All poses, each by itself."""
        for rows in self._rows:
            self._listed += rows.poses()
        self._rows.clear()
        return self._listed

    def __len__(self) -> int:
        return len(self._listed) + sum(len(rows.stamps) for rows in self._rows)

    @property
    def newest(self) -> int | None:
        """Stamp of the newest pose, ns; None without any."""
        if self._rows:
            return int(self._rows[-1].stamps[-1])
        return self._listed[-1].stamp if self._listed else None

    @property
    def span(self) -> tuple[int, int]:
        """Stamps of the oldest and the newest pose that are kept, ns; of a buffer with poses."""
        return self._poses[0].stamp, self._poses[-1].stamp

    def add(
        self, stamp: int, position, quaternion=None, variance: float = 0.0
    ) -> DropReason | None:
        """Append a pose.

        Args:
            stamp: ns.
            position: (3,) m.
            quaternion: (4,) x y z w, any norm but zero; None: not known.
            variance: of a coordinate, m².

        Returns:
            Why it is refused (the buffer is then as it was), or None.
        """
        pose = read_numbers(position, quaternion, self.max_position)
        if isinstance(pose, DropReason):
            return pose
        return self.append(Pose(stamp, *pose, variance))

    def append(self, pose: Pose) -> DropReason | None:
        """As `add`, for a pose whose numbers have been checked."""
        if self._poses and pose.stamp <= self._poses[-1].stamp:
            same = pose.stamp == self._poses[-1].stamp
            return DropReason.POSE_REPEATED_STAMP if same else DropReason.POSE_OUT_OF_ORDER

        self._poses.append(pose)
        # trimmed rarely, so that adding takes constant time on average
        if len(self._poses) >= 2 * self.size:
            del self._poses[: -self.size]
            self._forgot = True
        return None

    def extend(self, poses: PoseRows) -> None:
        """Append poses as `append` does, each later than all before.

        Args:
            poses: at most `size` of them, with orientations.
        """
        if not len(poses.stamps):
            return
        self._rows.append(poses)
        # one by one, the first `size` would have gone when there were twice as many
        if len(self) >= 2 * self.size:
            self._forgot = True
            surplus = self.size - len(self._listed)
            del self._listed[: self.size]
            while surplus > 0:
                first = self._rows[0]
                self._rows[:1] = [first.select(slice(surplus, None))][: len(first.stamps) > surplus]
                surplus -= len(first.stamps)

    def since(self, stamp: int) -> list[Pose]:
        """The last pose before a stamp, and all poses from there on.

        Empty where the oldest pose is not before the stamp.
        """
        return (
            self._poses[bisect_left(self._poses, stamp, key=_stamp_of) - 1 :]
            if self._poses and self._poses[0].stamp < stamp
            else []
        )

    def rows_since(self, stamp: int) -> PoseRows | None:
        """As `since`, as rows; None where there are none."""
        if self._rows and self._rows[-1].stamps[0] < stamp:
            newest = self._rows[-1]
            return newest.select(slice(int(np.searchsorted(newest.stamps, stamp)) - 1, None))
        found = self.since(stamp)
        return PoseRows.of(found) if found else None

    def trim(self, keep: int) -> None:
        """Forget all but the newest `keep` poses."""
        del self._poses[:-keep]

    def bracket(self, stamp: int, last_chance: bool = False) -> Bracket | DropReason | None:
        """Find the poses around a stamp.

        Args:
            stamp: ns.
            last_chance: no later pose will come, so that positions up to max_extrapolation past the
                newest pose are extrapolated.

        Returns:
            None: not known yet. A reason: it will never be known.
        """
        poses = self._poses
        if not poses:
            return DropReason.NO_POSE if last_chance else None

        if stamp > poses[-1].stamp:
            if not last_chance:
                return None
            return self._continue(poses[-2:], poses[-1], stamp)

        i = bisect_left(poses, stamp, key=_stamp_of)
        if poses[i].stamp == stamp:
            return Bracket(poses[i], poses[i])
        # before the oldest pose: no earlier one will come
        if i == 0:
            if self._forgot:
                self.missed += 1
                self.behind = max(self.behind, poses[-1].stamp - stamp)
            return self._continue(poses[:2], poses[0], stamp)

        if poses[i].stamp - poses[i - 1].stamp > self.max_gap:
            return DropReason.POSE_GAP
        return Bracket(poses[i - 1], poses[i])

    def _continue(self, pair: list[Pose], nearest: Pose, stamp: int) -> Bracket | DropReason:
        """Extrapolate from the outermost two poses, where that is allowed."""
        if abs(stamp - nearest.stamp) > self.max_extrapolation:
            return DropReason.NO_POSE
        # no speed is known: the robot is taken to stand
        if len(pair) < 2 or pair[1].stamp - pair[0].stamp > self.max_gap:
            return Bracket(nearest, nearest)
        return Bracket(*pair)


class PosePairs(NamedTuple):
    """N stamps between two poses each.

    Attributes:
        weight: (N,) 0 at the first pose and 1 at the second.
        positions: of both, (N, 3) each, m.
        quaternions: of both, (N, 4) each, x y z w; None where some pose has none.
        variances: of both, (N,) each, of a coordinate, m².
    """

    weight: np.ndarray
    positions: tuple[np.ndarray, np.ndarray]
    quaternions: tuple[np.ndarray | None, np.ndarray | None]
    variances: tuple[np.ndarray, np.ndarray]

    @staticmethod
    def from_brackets(brackets: list[Bracket], stamps) -> PosePairs:
        """Collect brackets that were found one by one.

        Args:
            brackets: N of them.
            stamps: (N,) ns.
        """
        before, after = zip(*brackets)

        # integer differences first: float64 resolves nanoseconds since 1970 to 256 ns only
        weight = np.array(
            [
                (t - a.stamp) / (b.stamp - a.stamp) if b is not a else 0.0
                for a, b, t in zip(before, after, stamps, strict=True)
            ]
        )

        positions, variances = (
            tuple(np.array([getattr(pose, name) for pose in poses]) for poses in (before, after))
            for name in ("position", "variance")
        )

        return PosePairs(
            weight,
            (positions[0], positions[1]),
            (_quaternions(before), _quaternions(after)),
            (variances[0], variances[1]),
        )

    @property
    def variance(self) -> np.ndarray:
        """Variance of a coordinate, (N,) m², linear between the two poses.

        Their errors go together, so that the one does not average out the other.
        """
        before, after = self.variances
        return before + np.clip(self.weight, 0.0, 1.0) * (after - before)

    def interpolate(self, orientation: bool = True) -> tuple[np.ndarray, Rotation | None]:
        """Interpolate positions linearly and rotations by slerp.

            p = p₀ + w (p₁ − p₀)

        Outside its bracket (w beyond [0, 1]) a position is extrapolated and the orientation is
        held.

        Args:
            orientation: whether rotations are asked for.

        Returns:
            Positions (N, 3) in m, and rotations; None where a pose has none, or none are asked for.
        """
        before, after = self.positions
        positions = before + self.weight[:, None] * (after - before)

        first, second = self.quaternions
        if not orientation or first is None or second is None:
            return positions, None
        return positions, Rotation.from_quat(
            slerp_rows(first, second, np.clip(self.weight, 0.0, 1.0))
        )


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

    def select(self, which: np.ndarray | slice) -> PoseRows:
        """The rows of these numbers (n,)."""
        return PoseRows(self.stamps[which], self.rows[which], self.variance[which])

    def joined(self, later: PoseRows) -> PoseRows:
        """These rows, and later ones."""
        return PoseRows(*(np.concatenate([a, b]) for a, b in zip(self, later)))

    @staticmethod
    def of(poses: list[Pose]) -> PoseRows:
        """Rows of poses, with orientations, that came one by one."""
        return PoseRows(
            np.array([pose.stamp for pose in poses], np.int64),
            np.array([(*pose.position, *(pose.quaternion or ())) for pose in poses]),
            np.array([pose.variance for pose in poses]),
        )

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


def interpolate(
    brackets: list[Bracket], stamps, orientation: bool = True
) -> tuple[np.ndarray, Rotation | None]:
    """Positions (N, 3) and rotations at stamps, as `PosePairs.interpolate`.

    Args:
        brackets: N of them.
        stamps: (N,) ns.
        orientation: whether rotations are asked for.
    """
    return PosePairs.from_brackets(brackets, stamps).interpolate(orientation)


def _quaternions(poses: tuple[Pose, ...]) -> np.ndarray | None:
    """(N, 4); None where some pose has none."""
    values = [pose.quaternion for pose in poses]
    return None if None in values else np.array(values)


def _stamp_of(pose: Pose) -> int:
    return pose.stamp

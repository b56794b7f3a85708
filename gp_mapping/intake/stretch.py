"""A stretch of a recording in which nothing is out of the ordinary, paired all at once.

Message by message, a measurement waits until a pose at or after its stamp has come, or until it has
waited too long. Where both streams go on steadily, no measurement waits too long, and it does not
matter when each message came: the poses around a stamp are found by searching the stamps of all of
them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gp_mapping.intake.clocks.field_clock import PERIODS, RECENT_STEPS, FieldClock
from gp_mapping.intake.clocks.stamps import StampGate
from gp_mapping.intake.columns import Readings, Stream
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.buffer import PoseBuffer, PoseRows, read_rows
from gp_mapping.intake.poses.messages import LARGE_VARIANCE, LOST_VARIANCE, read_pose_columns
from gp_mapping.settings.intake import IntakeSettings

__all__ = [
    "Begun",
    "Limits",
    "StretchPlan",
    "Waits",
    "distance",
    "find_poses",
    "keeps_pass_gap",
    "longest_waits",
    "plan_stretch",
    "read_poses",
]


def distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Distance between two positions, m.

    By the operations that `PoseRows.too_fast` uses on columns, so that both round alike.

    Args:
        a: (x, y, z) m.
        b: (x, y, z) m.
    """
    x, y, z = (p_k - q_k for p_k, q_k in zip(a, b))
    return math.sqrt(x * x + y * y + z * z)


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


class Begun(NamedTuple):
    """The two streams where a stretch begins; nothing of it is changed here.

    Attributes:
        clock: of the measurements.
        gates: of the stamps of measurements and of poses.
        poses: that are known.
        waiting: stamp of each measurement that waits, ns, and by how much stamps had advanced in
            all when it came, ns.
    """

    clock: FieldClock
    gates: tuple[StampGate, StampGate]
    poses: PoseBuffer
    waiting: list[tuple[int, int]]


class Limits(NamedTuple):
    """What a stretch must keep to be taken in at once.

    Attributes:
        max_wait: of a measurement, ns of stamps.
        pass_gap: ns.
        max_speed: of poses, m/s; 0: any.
        queue: measurements that may wait together.
        ready: samples that may be ready together.
        offset: how much later the stamps of measurements are than those of poses, ns.
    """

    max_wait: int
    pass_gap: int
    max_speed: float
    queue: int
    ready: int
    offset: int


class StretchPlan(NamedTuple):
    """What taking in a stretch at once does.

    Attributes:
        drops: messages that are dropped, by reason.
        gates: newest stamp (ns) and usual step (ns) of measurements and of poses afterwards.
        usable: numbers of the measurements that are taken.
        stamps: (N,) of those that wait and those that are taken, ns.
        advance: (N,) by how much stamps have advanced in all when each comes, ns.
        poses: the new ones.
        rows: of those known already that are needed, and the new ones.
        met: (n,) stamp of the newest pose when each of those that are taken came, ns.
    """

    drops: Counter
    gates: list[tuple[int, float]]
    usable: np.ndarray
    stamps: np.ndarray
    advance: np.ndarray
    poses: PoseRows
    rows: PoseRows
    met: np.ndarray


def plan_stretch(
    begun: Begun, limits: Limits, field: Stream, read: Readings, pose: Stream, poses: PoseRows
) -> StretchPlan | None:
    """Plan how a stretch is taken in at once.

    Args:
        begun: the two streams as they are.
        limits: what is out of the ordinary beyond them.
        field: measurements.
        read: as the adaptor read them.
        pose: pose messages.
        poses: a row for each.

    Returns:
        The plan. None where something is out of the ordinary: the messages are to be taken in one
        by one.
    """
    # what is refused for itself never comes to the gates
    usable = _others(len(read), read.refused)
    stamps = field.columns.stamps()
    stamps = (field.recorded if stamps is None else stamps)[usable] - limits.offset
    known_rows = np.flatnonzero(~np.isnan(poses.rows[:, 0]))
    poses = poses.select(known_rows)

    admitted = _admissions(begun, stamps, poses.stamps)
    newest = begun.clock.newest
    if admitted is None or newest is None or not len(stamps) or not len(known_rows):
        return None

    drops = Counter(read.refused.values())
    again = DropReason.REPEATED_STAMP, DropReason.POSE_REPEATED_STAMP
    for (_, _, late), reason in zip(admitted, again):
        drops[reason] += len(late)
    fresh, on_time = (
        _others(n, late) for n, (_, _, late) in zip((len(stamps), len(known_rows)), admitted)
    )
    stamps, poses = stamps[fresh], poses.select(on_time)

    waiting = begun.waiting
    all_stamps = np.array([*(stamp for stamp, _ in waiting), *stamps.tolist()])
    advance = np.array(
        [*(then for _, then in waiting), *(begun.clock.advance + stamps - newest).tolist()]
    )
    known_poses = begun.poses.rows_since(int(all_stamps[0])) if len(stamps) else None
    if known_poses is None:
        return None

    rows, known = known_poses.joined(poses), len(known_poses.stamps)
    # by the order of all messages: the newest pose when each measurement came
    before = np.searchsorted(pose.where[known_rows[on_time]], field.where[usable[fresh]])
    met = rows.stamps[known - 1 + before]
    waits = longest_waits(all_stamps, advance, len(waiting), met)
    steps = [*begun.clock.steps, *np.diff(stamps, prepend=newest).tolist()]
    if (
        len(rows.stamps) > begun.poses.size
        or rows.too_fast(known, limits.max_speed)
        or waits.longest > limits.max_wait
        or waits.queue > limits.queue
        or len(all_stamps) > limits.ready
        or not keeps_pass_gap(steps, len(begun.clock.steps), limits.pass_gap)
    ):
        return None

    gates = [(last, step) for last, step, _ in admitted]
    return StretchPlan(drops, gates, usable[fresh], all_stamps, advance, poses, rows, met)


def _others(n: int, left_out: Iterable[int]) -> np.ndarray:
    """Numbers 0 … n − 1 without those that are left out."""
    kept = np.ones(n, bool)
    kept[list(left_out)] = False
    return np.flatnonzero(kept)


def _admissions(
    begun: Begun, field: np.ndarray, poses: np.ndarray
) -> list[tuple[int, float, dict[int, bool]]] | None:
    """Where admitting all would lead the two gates (StampGate.plan_admission).

    Args:
        begun: the two streams as they are.
        field: (N,) stamps of the measurements, ns.
        poses: (n,) stamps of the poses, ns.

    Returns:
        For measurements and poses. None where a stamp leaps, or one is out of order: from there on
        messages wait for older ones.
    """
    admitted = []
    for gate, stamps in zip(begun.gates, (field, poses)):
        planned = gate.plan_admission(stamps.tolist())
        if planned is None or not all(planned[2].values()):
            return None
        admitted.append(planned)
    return admitted

"""A stretch of messages paired at once: the same as one by one, and what of it is out of the ordinary."""

import math
from itertools import pairwise

import numpy as np
import pytest
from intake_messages import covariance_of, field_message, odometry_message

from gp_mapping.intake import DropReason, Intake, PoseBuffer
from gp_mapping.intake.clocks.field_clock import RECENT_STEPS, longest_pause
from gp_mapping.intake.columns import Columns, Stream
from gp_mapping.intake.poses.buffer import PosePairs, PoseRows
from gp_mapping.intake.stretch import (
    distance,
    find_poses,
    keeps_pass_gap,
    longest_waits,
)
from gp_mapping.settings.intake import IntakeSettings

NS = 10**9


def wandering(n: int = 40) -> PoseRows:
    """Poses about every .1 s, turned about all axes, each with a variance of its own."""
    rng = np.random.default_rng(0)
    quaternions = rng.normal(size=(n, 4))
    rows = np.hstack(
        [rng.normal(size=(n, 3)), quaternions / np.linalg.norm(quaternions, axis=1)[:, None]]
    )
    return PoseRows(
        NS * 10**9 + np.cumsum(rng.integers(8 * 10**7, 12 * 10**7, n)), rows, rng.random(n)
    )


def assert_same_poses_however_they_come(poses: PoseRows):
    """One by one, or some together: the same are kept, and found."""
    single, together = PoseBuffer(13), PoseBuffer(13)
    for start, end in ((0, 1), (1, 9), (9, 20), (20, 33), (33, 40)):
        together.extend(poses.select(slice(start, end)))
        for pose in poses.poses()[start:end]:
            single.append(pose)
        known = int(poses.stamps[end - 1])
        rows = together.rows_since(known)
        assert len(together) == len(single) and together.newest == single.newest == known
        assert (rows is None) == (end == 1) and (
            rows is None or rows.poses() == single.since(known)
        )
    assert together.span == single.span and together.since(known) == single.since(known)


def test_between_poses_of_a_stretch_is_as_between_those_of_the_buffer():
    poses, gap = wandering(), 10**8
    buffer = PoseBuffer(50, gap)
    assert [buffer.append(pose) for pose in poses.poses()] == [None] * 40
    assert_same_poses_however_they_come(poses)
    assert buffer.since(int(poses.stamps[30])) == poses.poses()[29:]
    assert buffer.since(int(poses.stamps[30]) + 1) == poses.poses()[30:] and not buffer.since(
        int(poses.stamps[0])
    )

    rng = np.random.default_rng(1)
    stamps = np.sort(
        np.append(rng.integers(poses.stamps[0], poses.stamps[-1], 100), poses.stamps[[0, 7, 39]])
    )
    brackets = [buffer.bracket(int(stamp)) for stamp in stamps]
    before, after, near = find_poses(stamps, poses.stamps, gap)
    assert (
        near.tolist() == [found is not DropReason.POSE_GAP for found in brackets]
        and 20 < near.sum() < 80
    )
    exactly = np.diff(poses.stamps)[3]
    assert (
        find_poses(poses.stamps[3:4] + 1, poses.stamps, exactly)[2]
        and not find_poses(poses.stamps[3:4] + 1, poses.stamps, exactly - 1)[2]
    )

    together = poses.between(stamps[near], before[near], after[near])
    alone = PosePairs.from_brackets(
        [found for found in brackets if found is not DropReason.POSE_GAP], stamps[near].tolist()
    )
    (x, turned), (want, want_turned) = together.interpolate(), alone.interpolate()
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(turned.as_quat(), want_turned.as_quat())
    np.testing.assert_array_equal(together.variance, alone.variance)
    assert np.ptp(together.variance) > 0.1


def test_poses_of_a_stretch_go_on_after_those_that_came_one_by_one():
    poses = wandering()
    both = PoseRows.of(poses.poses()[:3]).joined(poses.select(np.arange(3, 40)))
    for mine, all_ in zip(both, poses):
        np.testing.assert_array_equal(mine, all_)


@pytest.mark.parametrize("scale", [1.0, 0.001])
def test_a_pose_is_too_fast_from_the_one_before_it(scale):
    poses = wandering()
    poses.rows[:, :3] *= scale
    places = [pose.position for pose in poses.poses()]
    speeds = [
        distance(*pair) / (1e-9 * step)
        for pair, step in zip(pairwise(places), np.diff(poses.stamps))
    ]
    assert speeds[0] == pytest.approx(
        math.dist(*places[:2]) / (1e-9 * (poses.stamps[1] - poses.stamps[0]))
    )
    most = int(np.argmax(speeds))
    assert poses.too_fast(most + 1, 0.999 * speeds[most]) and not poses.too_fast(
        most + 1, 1.001 * speeds[most]
    )
    assert not poses.too_fast(most + 2, 0.999 * speeds[most]) and not poses.too_fast(1, 0.0)


@pytest.mark.parametrize("late", [0.2, 3.0])
def test_how_long_measurements_wait_for_their_poses(late):
    """Poses that come at once, or up to some steps late; the first measurements wait already."""
    rng, first = np.random.default_rng(3), 4
    stamps = np.cumsum(rng.integers(1, 20, 30))
    advance = stamps - stamps[0] + np.arange(30)
    newest = np.maximum.accumulate(stamps[first:] - rng.integers(0, int(10 * late), 26)) + (
        5 if late < 1.0 else 0
    )
    longest, queue = 0, 0
    for i, pose in zip(range(first, 30), newest):
        waiting = [j for j in range(i + 1) if stamps[j] > pose]
        if waiting:
            longest, queue = (
                max(longest, advance[i] - advance[waiting[0]]),
                max(queue, len(waiting)),
            )
    assert longest_waits(stamps, advance, first, newest) == (longest, queue)
    assert (queue > 2) == (late > 1.0)


def test_whether_a_pause_is_the_gap_at_each_step():
    rng, gap, seen = np.random.default_rng(4), 100, []
    assert not keeps_pass_gap([26, 25, 25], 0, gap) and keeps_pass_gap([26, 25, 25], 1, gap), (
        "half of two are seldom"
    )
    for share in np.linspace(0.0, 0.7, 60):
        steps, first = np.where(rng.random(40) < share, 26, 25).tolist(), int(rng.integers(0, 20))
        each = [
            longest_pause(steps[max(0, end - RECENT_STEPS) : end], gap)[0] == gap
            for end in range(first + 1, 41)
        ]
        seen.append(keeps_pass_gap(steps, first, gap))
        assert seen[-1] == all(each)
    assert 10 < sum(seen) < 50


def test_a_pause_is_four_periods_of_a_sensor_that_is_slower_than_the_gap():
    gap = NS // 2
    assert longest_pause([], gap) == (gap, False)
    assert longest_pause([gap // 5] * 8 + [NS] * 7, gap) == (gap, False)
    assert longest_pause([gap // 5] * 7 + [NS] * 8, gap) == (4 * NS, True)
    assert longest_pause([NS] * (RECENT_STEPS - 1), gap) == (4 * NS, False), (
        "a few steps may be pauses"
    )
    assert longest_pause([gap] * RECENT_STEPS, gap) == (4 * gap, False), (
        "a period of just the gap is no pause"
    )


def columns(messages, names: dict) -> Columns:
    """Of messages: name of a field -> what of a message it holds."""
    kind = [(name, float, np.shape(read(messages[0]))) for name, read in names.items()]
    rows = np.array([tuple(read(message) for read in names.values()) for message in messages], kind)
    return Columns(
        rows, {"header.frame_id": messages[0].header.frame_id, "child_frame_id": "base_link"}
    )


def stamp_of(name: str):
    return lambda message: getattr(message.header.stamp, name)


def rows_of(batches) -> np.ndarray:
    """(n, 5) stamp, place, value and variance of place."""
    return np.vstack(
        [
            np.empty((0, 5)),
            *(np.column_stack([s.stamp, s.x, s.y, s.position_variance]) for _, s in batches),
        ]
    )


@pytest.mark.parametrize("cut", [40, 100])
def test_a_stretch_at_once_gives_what_its_messages_give(cut):
    """The first messages one by one, for they decide on frames; among those at once a measurement that is none, and
    poses that are lost, nowhere, or say nothing of how good they are.
    """
    fields = [
        field_message(0.02 * i + 0.013, (3e-5, 1e-7 * i, np.nan if i == 150 else 4e-5))
        for i in range(200)
    ]
    odd = {20: 1e9, 25: math.nan, 26: math.nan}
    poses = [
        odometry_message(
            0.1 * i,
            (0.03 * i, math.inf if i == 33 else 0.1 * math.sin(i), 0.0),
            covariance=covariance_of(*[odd.get(i, 0.01 * (1 + i % 3))] * 2),
        )
        for i in range(42)
    ]
    order = sorted(
        [*fields, *poses], key=lambda m: m.header.stamp.sec + 1e-9 * m.header.stamp.nanosec
    )

    def fed(messages):
        intake = Intake(IntakeSettings())
        for message in messages:
            (intake.add_odometry if hasattr(message, "pose") else intake.add_measurement)(message)
        intake.make_final()
        return intake

    alone, intake = fed(order), fed(order[:cut])
    expected, first = rows_of(alone.batches(finish=True)), rows_of(intake.batches())
    stamps = {"header.stamp.sec": stamp_of("sec"), "header.stamp.nanosec": stamp_of("nanosec")}
    number = (
        {f"pose.pose.position.{a}": lambda m, a=a: getattr(m.pose.pose.position, a) for a in "xyz"}
        | {
            f"pose.pose.orientation.{a}": lambda m, a=a: getattr(m.pose.pose.orientation, a)
            for a in "xyzw"
        }
        | {"pose.covariance": lambda m: m.pose.covariance}
    )
    field = {f"magnetic_field.{a}": lambda m, a=a: getattr(m.magnetic_field, a) for a in "xyz"} | {
        "magnetic_field_covariance": lambda m: m.magnetic_field_covariance
    }
    streams = []
    for wanted, names in ((False, field), (True, number)):
        where = np.array(
            [i for i, m in enumerate(order) if i >= cut and hasattr(m, "pose") == wanted]
        )
        streams.append(Stream(where, where, columns([order[i] for i in where], stamps | names)))
    covariance = streams[1].columns.rows["pose.covariance"]
    covariance[7, [0, 7]] *= 1e6  # a person is to be told of that
    assert intake.add_recorded(*streams) is None and intake.received["odometry"] < 25
    covariance[7, [0, 7]] /= 1e6
    taken = intake.add_recorded(*streams)
    np.testing.assert_array_equal(
        np.vstack([first, rows_of(taken), rows_of(intake.batches(finish=True))]), expected
    )
    assert len(expected) == 199 and intake.drops.as_dict() == alone.drops.as_dict()
    assert intake.drops.as_dict() == {
        "not_finite": 1,
        "pose_lost": 1,
        "pose_bad_covariance": 2,
        "pose_not_finite": 1,
    }
    assert intake.received == alone.received

"""Poses as columns, their covariances, and what of a pose buffer is at its bounds."""

import math

import numpy as np
import pytest
from intake_messages import covariance_of, odometry_message, pose_message

from gp_mapping.intake import DropReason, PoseBuffer
from gp_mapping.intake.columns import Columns, Readings, reads_columns
from gp_mapping.intake.frames import LONGEST, FrameVote, without_long_names
from gp_mapping.intake.messages import Reading
from gp_mapping.intake.poses.buffer import Pose, PosePairs, PoseRows, read_numbers, read_rows
from gp_mapping.intake.poses.messages import planar_variance, read_pose, read_pose_columns
from gp_mapping.intake.poses.track import PoseTrack

PLACE, TURN = (1.0, 2.0, 3.0), (0.1, 0.2, 0.3, 0.9)
COVARIANCES = [
    covariance_of(*xx_yy)
    for xx_yy in (
        (1.0, 3.0),
        (0.0, 0.0),
        (-1.0, 5.0),
        (0.0, 2.0),
        (2.0, 0.0),
        (-0.5, 1.0),
        (1.0, -0.5),
        (math.nan, 1.0),
        (1.0, math.inf),
        (math.inf, 1.0),
        (1.0, math.nan),
    )
]
VARIANCES = [2.0, 0.0, 0.0, 1.0, 1.0, *[math.nan] * 6]


@pytest.mark.parametrize("source", ["odometry", "pose", "pose_with_covariance"])
def test_poses_as_columns_are_what_each_message_says(source):
    make = odometry_message if source == "odometry" else pose_message
    messages = [
        make(
            0.0,
            tuple(i + np.array(PLACE)),
            TURN,
            **({} if source == "pose" else {"covariance": covariance}),
        )
        for i, covariance in enumerate(COVARIANCES)
    ]
    kind = {f"position.{a}": i for i, a in enumerate("xyz")}
    kind |= {f"orientation.{a}": 3 + i for i, a in enumerate("xyzw")}
    path = "pose." if source == "pose" else "pose.pose."
    rows = np.zeros(11, [*((path + n, float) for n in kind), ("pose.covariance", float, 36)])
    for i in range(11):
        for name, k in kind.items():
            rows[path + name][i] = (*(i + np.array(PLACE)), *TURN)[k]
        rows["pose.covariance"][i] = COVARIANCES[i]
    numbers, variance = read_pose_columns(Columns(rows, {}), source)
    singles = [read_pose(message, source) for message in messages]
    np.testing.assert_array_equal(numbers, [(*s.position, *s.quaternion) for s in singles])
    np.testing.assert_array_equal(variance, [s.variance for s in singles])
    wanted = [0.0] * 11 if source == "pose" else VARIANCES
    np.testing.assert_array_equal(variance, wanted)
    np.testing.assert_array_equal(numbers[2], [3.0, 4.0, 5.0, *TURN])


def test_the_variance_of_a_pose_is_of_x_and_y_alone():
    full = np.arange(36.0) + 1.0
    assert planar_variance(full) == 0.5 * (1.0 + 8.0)


def test_rows_of_poses_are_judged_as_poses_are():
    odd = [
        (PLACE, TURN),
        ((1.0, -7.0, 0.0), TURN),
        ((-7.5, 0.0, 0.0), TURN),
        ((0.0, math.nan, 0.0), TURN),
        ((0.0, 0.0, -math.inf), TURN),
        (PLACE, (0.0, 0.0, 0.0, 1e-3)),
        (PLACE, (0.0, 0.0, 0.0, 0.9e-3)),
        (PLACE, (0.0, 1e3, 0.0, 0.0)),
        (PLACE, (0.0, 1.1e3, 0.0, 0.0)),
        (PLACE, (0.0, math.nan, 0.0, 1.0)),
        (PLACE, (0.0, math.inf, 0.0, 1.0)),
        (PLACE, (1e300, 1e300, 1e300, 1.0)),
    ]
    rows, refused = read_rows(np.array([(*p, *q) for p, q in odd]), 7.0)
    for i, (position, quaternion) in enumerate(odd):
        one = read_numbers(position, quaternion, 7.0)
        assert refused.get(i) is (one if isinstance(one, DropReason) else None)
        if i not in refused:
            np.testing.assert_array_equal(rows[i], [*one[0], *one[1]])
            assert np.linalg.norm(rows[i, 3:]) == pytest.approx(1.0)
    assert sorted(refused) == [2, 3, 4, 6, 8, 9, 10, 11]
    assert refused[6] is DropReason.POSE_ZERO_QUATERNION
    assert refused[8] is refused[11] is DropReason.POSE_BAD_QUATERNION
    assert refused[2] is DropReason.POSE_OUT_OF_RANGE
    assert {refused[i] for i in (3, 4, 9, 10)} == {DropReason.POSE_NOT_FINITE}


def turned(angle):
    return (0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2))


def test_beyond_two_poses_a_place_goes_on_and_a_heading_stays():
    poses = [Pose(0, (0.0, 0.0, 0.0), turned(0.0), 1.0), Pose(100, PLACE, turned(0.4), 3.0)]
    pairs = PosePairs.from_brackets([tuple(poses)] * 4, [-50, 25, 100, 150])
    x, heading = pairs.interpolate()
    np.testing.assert_allclose(x, np.outer([-0.5, 0.25, 1.0, 1.5], PLACE))
    np.testing.assert_allclose(heading.as_euler("zyx")[:, 0], [0.0, 0.1, 0.4, 0.4])
    np.testing.assert_allclose(pairs.variance, [1.0, 1.5, 3.0, 3.0])
    assert pairs.interpolate(orientation=False)[1] is None
    bare = [poses[0]._replace(quaternion=None), poses[1]]
    assert PosePairs.from_brackets([tuple(bare)], [50]).interpolate()[1] is None


def test_what_a_buffer_keeps_and_how_far_it_reaches():
    buffer = PoseBuffer(3, max_gap=10, max_extrapolation=4, max_position=7.0)
    assert buffer.newest is None and buffer.bracket(0) is None
    assert buffer.bracket(0, last_chance=True) is DropReason.NO_POSE
    for stamp in range(0, 50, 10):
        assert buffer.add(stamp, PLACE) is None
    assert len(buffer) == 5
    assert buffer.add(50, (0.0, 0.0, 7.1)) is DropReason.POSE_OUT_OF_RANGE
    assert buffer.add(40, PLACE) is DropReason.POSE_REPEATED_STAMP
    assert buffer.add(39, PLACE) is DropReason.POSE_OUT_OF_ORDER
    assert len(buffer) == 5 and buffer.newest == 40
    buffer.add(50, PLACE)
    assert len(buffer) == 3 and buffer.newest == 50, "never twice as many as are kept"
    assert [p.stamp for p in buffer.bracket(35)] == [30, 40]
    assert [p.stamp for p in buffer.bracket(40)] == [40, 40]
    # past its ends
    assert [p.stamp for p in buffer.bracket(26)] == [30, 40]
    assert buffer.bracket(25) is DropReason.NO_POSE
    assert buffer.bracket(54) is None
    assert [p.stamp for p in buffer.bracket(54, last_chance=True)] == [40, 50]
    assert buffer.bracket(55, last_chance=True) is DropReason.NO_POSE
    buffer.add(61, PLACE)
    assert buffer.bracket(55) is DropReason.POSE_GAP
    assert [p.stamp for p in buffer.bracket(64, last_chance=True)] == [61, 61], "no speed is known"
    buffer.extend(PoseRows.of([Pose(61 + i, PLACE, None) for i in (1, 2)]))
    assert [p.stamp for p in buffer.since(0)] == [] and len(buffer) == 3
    assert [p.stamp for p in buffer.since(63)] == [62, 63]
    buffer.trim(1)
    assert len(buffer) == 1 and buffer.newest == 63


def test_poses_that_come_together_are_kept_as_if_they_came_one_by_one():
    """However many at once, up to as many as are kept."""
    chance, stamp = np.random.default_rng(0), 0
    together, single = PoseBuffer(5), PoseBuffer(5)
    for count in [0, *chance.integers(0, 6, 200).tolist()]:
        poses = [Pose(stamp + i, PLACE, TURN) for i in range(1, count + 1)]
        stamp += count
        together.extend(PoseRows.of(poses))
        for pose in poses:
            single.append(pose)
        assert (len(together), together.newest) == (len(single), single.newest)
        if chance.random() < 0.1:
            assert together.span == single.span
    assert [p.stamp for p in together.since(stamp - 3)] == [stamp - i for i in (4, 3, 2, 1, 0)][0:]


def test_the_poses_before_a_jump_answer_for_what_still_waits():
    track = PoseTrack(lambda: PoseBuffer(9, max_gap=10), jump_back=5)
    for stamp in (100, 110, 105, 120):
        track.add(Pose(stamp, PLACE, None))
    assert track.epoch == 0 and track.newest == 120
    assert track.add(Pose(115, PLACE, None)) is DropReason.POSE_OUT_OF_ORDER, "by just so much"
    assert track.add(Pose(114, PLACE, None)) is None
    assert track.epoch == 1 and track.newest == 114
    assert track.find(0, 112, False).before.stamp == 110
    assert track.find(0, 121, False) is DropReason.TIME_JUMP
    assert track.find(0, 99, False) is DropReason.NO_POSE
    assert track.find(1, 115, False) is None and track.find(2, 115, False) is None
    assert track.find(2, 115, True) is DropReason.NO_POSE
    track.add(Pose(10, PLACE, None))
    assert track.epoch == 2 and track.find(0, 112, False) is DropReason.TIME_JUMP
    assert track.find(1, 114, False).before.stamp == 114
    track.move_to(7)
    assert track.epoch == 7 and track.newest == 10 and track.find(7, 10, False)
    track.restart(9)
    assert track.epoch == 9 and track.newest is None


def test_readings_of_columns_go_on_after_those_that_came_one_by_one():
    columns = Readings(
        np.array([[1.0], [2.0], [3.0]]),
        np.array([[0.1], [0.0], [0.3]]),
        np.array([True, False, True]),
        {1: DropReason.NOT_FINITE},
    )
    both = columns.preceded_by([Reading(5, (9.0,), None), Reading(6, (8.0,), (0.7,))])
    assert both.values.tolist() == [[9.0], [8.0], [1.0], [2.0], [3.0]]
    assert both.covariance.tolist() == [[0.0], [0.7], [0.1], [0.0], [0.3]]
    assert both.known.tolist() == [False, True, True, False, True] and len(both) == 5
    assert columns.preceded_by([]) is columns
    assert columns.row(0, 7) == Reading(7, (1.0,), (0.1,))
    assert columns.row(1, 7) == Reading(7, (2.0,), None)
    chosen = columns.select(np.array([2, 0]))
    assert chosen.values.tolist() == [[3.0], [1.0]] and not chosen.refused


def test_a_stamp_is_of_seconds_and_nanoseconds_where_there_is_a_header():
    rows = np.array(
        [(3, 7, 1.5)], [("header.stamp.sec", int), ("header.stamp.nanosec", int), ("a", float)]
    )
    columns = Columns(rows, {"header.frame_id": "/map"})
    assert columns.stamps().tolist() == [3_000_000_007] and columns.frame() == "map"
    assert "a" in columns and "b" not in columns and len(columns) == 1
    assert Columns(rows[["a"]], {}).stamps() is None and Columns(rows, {}).frame() == ""


def test_who_reads_otherwise_does_not_read_columns():
    class Whole:
        def read(self): ...
        def values(self): ...
        def read_columns(self): ...

    class Inherits(Whole): ...

    class Other(Whole):
        def values(self): ...

    class Neither: ...

    assert [reads_columns(kind()) for kind in (Whole, Inherits, Other, Neither)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_frame_leads_by_twice_as_many_and_five_more():
    vote = FrameVote()
    assert vote.count_and_check("a") and vote.known and not vote.held
    for _ in range(5):
        assert not vote.count_and_check("b") and vote.winner is None
    vote.count_and_check("b")
    assert vote.winner == "b", "six against one"
    vote.count(3)
    assert vote.winner is None
    for _ in range(3):
        vote.count_and_check("b")
    assert vote.winner == "b", "nine against four"
    vote.count(1)
    assert vote.winner is None, "nine against five"
    vote.count_and_check("b")
    assert vote.winner == "b", "ten against five"
    named = FrameVote("/a")
    for _ in range(20):
        assert not named.count_and_check("b")
    assert named.winner is None and named.frame == "a" and named.held
    expected = FrameVote(expected="a")
    assert expected.known and not expected.is_established("a") and not expected.held
    expected.count_and_check("a")
    assert expected.is_established("a") and not expected.is_established("b")
    assert FrameVote().winner is None


def test_a_name_that_is_too_long_is_no_frame():
    vote, name = FrameVote(), "x" * LONGEST
    assert not vote.count_and_check(name + "x") and not vote.known
    assert vote.count_and_check(name) and vote.frame == name
    message = odometry_message(5.0, (1.0, 2.0, 0.0), frame=name, child=name)
    assert without_long_names(message) is message
    for part, long in (("frame", message.header), ("child", message)):
        field = "frame_id" if part == "frame" else "child_frame_id"
        setattr(long, field, "x" * 1_000_000)
        small = without_long_names(message)
        assert (small.header.stamp, small.pose) == (message.header.stamp, message.pose)
        assert len(getattr(message if part == "child" else message.header, field)) == 1_000_000
    assert len(small.header.frame_id) == LONGEST + 1 and len(small.child_frame_id) == LONGEST

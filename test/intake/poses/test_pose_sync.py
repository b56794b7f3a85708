import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.buffer import PoseBuffer, interpolate

SECOND = 10**9
EPOCH = 1_700_000_000 * SECOND


def buffer(stamps, positions, quaternions=None, **options):
    out = PoseBuffer(**options)
    for i, (stamp, position) in enumerate(zip(stamps, positions, strict=True)):
        assert out.add(stamp, position, None if quaternions is None else quaternions[i]) is None
    return out


@given(st.integers(0, SECOND), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_position_is_linear_in_time(w, a, b):
    poses = buffer([EPOCH, EPOCH + SECOND], [(a, b, 0.0), (a + 1.0, b - 2.0, 0.5)], max_gap=SECOND)
    found = poses.bracket(EPOCH + w)
    position, rotation = interpolate([found], [EPOCH + w])
    expected = np.array([a, b, 0.0]) + w / SECOND * (
        np.array([a + 1.0, b - 2.0, 0.5]) - [a, b, 0.0]
    )
    np.testing.assert_allclose(position[0], expected, rtol=0, atol=1e-9)
    assert rotation is None


@given(st.floats(-3.0, 3.0), st.floats(-3.0, 3.0), st.floats(0.0, 1.0))
def test_orientation_is_slerped_the_short_way(yaw, turn, w):
    start, end = Rotation.from_euler("z", yaw), Rotation.from_euler("z", yaw + turn)
    poses = buffer([0, SECOND], [(0, 0, 0)] * 2, [start.as_quat(), -end.as_quat()], max_gap=SECOND)
    stamp = int(w * SECOND)
    _, rotation = interpolate([poses.bracket(stamp)], [stamp])
    expected = start * Rotation.from_euler("z", turn * stamp / SECOND)
    assert (rotation[0].inv() * expected).magnitude() < 1e-7


def test_a_quaternion_of_any_norm_is_normalised():
    poses = buffer([0], [(0, 0, 0)], [(0.0, 0.0, 3.0, 3.0)])
    _, rotation = interpolate([poses.bracket(0)], [0])
    np.testing.assert_allclose(rotation[0].as_euler("xyz"), [0, 0, np.pi / 2], atol=1e-12)


@pytest.mark.parametrize(
    "position, quaternion, reason",
    [
        ((np.nan, 0, 0), None, DropReason.POSE_NOT_FINITE),
        ((0, np.inf, 0), (0, 0, 0, 1), DropReason.POSE_NOT_FINITE),
        ((0, 0, 0), (0, 0, np.nan, 1), DropReason.POSE_NOT_FINITE),
        ((0, 0, 0), (0, 0, 0, 0), DropReason.POSE_ZERO_QUATERNION),
    ],
)
def test_bad_poses_are_refused_and_leave_the_buffer_as_it_was(position, quaternion, reason):
    poses = buffer([0], [(1, 2, 3)])
    assert poses.add(SECOND, position, quaternion) is reason
    assert len(poses) == 1 and poses.newest == 0


def test_repeated_and_backward_stamps_are_refused():
    poses = buffer([5 * SECOND], [(0, 0, 0)])
    assert poses.add(5 * SECOND, (1, 1, 1)) is DropReason.POSE_REPEATED_STAMP
    assert poses.add(4 * SECOND, (1, 1, 1)) is DropReason.POSE_OUT_OF_ORDER


def test_nothing_is_extrapolated_by_default():
    poses = buffer([SECOND, 2 * SECOND], [(0, 0, 0), (1, 0, 0)], max_gap=SECOND)
    assert poses.bracket(SECOND - 1) is DropReason.NO_POSE
    assert poses.bracket(2 * SECOND + 1) is None
    assert poses.bracket(2 * SECOND + 1, last_chance=True) is DropReason.NO_POSE


def test_extrapolation_goes_straight_on_as_far_as_allowed():
    poses = buffer(
        [SECOND, 2 * SECOND], [(0, 0, 0), (1, 0, 0)], max_gap=SECOND, max_extrapolation=SECOND // 2
    )
    before, after = SECOND // 2, 2 * SECOND + SECOND // 2
    position, _ = interpolate(
        [poses.bracket(before), poses.bracket(after, last_chance=True)], [before, after]
    )
    np.testing.assert_allclose(position[:, 0], [-0.5, 1.5])
    assert poses.bracket(after + 1, last_chance=True) is DropReason.NO_POSE


def test_extrapolation_from_a_single_pose_stands_still():
    poses = buffer([SECOND], [(3, 4, 5)], max_extrapolation=SECOND)
    position, _ = interpolate([poses.bracket(SECOND // 2)], [SECOND // 2])
    assert position.tolist() == [[3, 4, 5]]


def test_no_interpolation_across_a_long_gap():
    poses = buffer([0, SECOND], [(0, 0, 0), (1, 0, 0)], max_gap=SECOND // 2)
    assert poses.bracket(SECOND // 3) is DropReason.POSE_GAP
    assert poses.bracket(SECOND).before.position == (1, 0, 0)


def test_the_buffer_is_bounded_and_keeps_the_newest():
    poses = PoseBuffer(size=10, max_gap=SECOND)
    for i in range(1000):
        poses.add(i * SECOND // 10, (i, 0, 0))
        assert len(poses) < 20
    assert poses.bracket(0) is DropReason.NO_POSE
    assert poses.bracket(99_500_000_000).before.position == (995, 0, 0)


def test_a_buffer_of_one_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        PoseBuffer(size=1)

"""Pose messages: position, orientation and what they say of their own uncertainty."""

import math

import numpy as np
import pytest
from intake_messages import covariance_of, drain, field_message, odometry_message, pose_message

from gp_mapping.intake import DropReason, Intake
from gp_mapping.intake.poses.messages import planar_variance
from gp_mapping.settings.intake import IntakeSettings

YAW = 0.7
TURNED = (0.0, 0.0, math.sin(YAW / 2), math.cos(YAW / 2))
MESSAGES = {
    "odometry": lambda t, *a: odometry_message(t, *a, covariance=covariance_of(0.04, 0.02)),
    "pose": pose_message,
    "pose_with_covariance": lambda t, *a: pose_message(t, *a, covariance=covariance_of(0.04, 0.02)),
}


@pytest.mark.parametrize("source", MESSAGES)
def test_each_source_gives_position_heading_and_what_it_knows_of_its_error(source):
    intake = Intake(IntakeSettings(pose_source=source, sensor_offset_x=1.0))
    for t, x in ((0.0, 3.0), (0.1, 5.0)):
        intake.add_pose_message(MESSAGES[source](t, (x, 2.0, 0.0), TURNED))
    intake.add_measurement(field_message(0.025))
    samples = intake.take()
    forward = [math.cos(YAW), math.sin(YAW)]
    np.testing.assert_allclose(samples.x, [np.add([3.5, 2.0], forward)], atol=1e-9)
    np.testing.assert_allclose(samples.heading, [forward], atol=1e-9)
    if source == "pose":
        assert samples.position_variance is None
    else:
        np.testing.assert_allclose(samples.position_variance, [0.03])
    assert intake.received == {"magnetic_field": 1, source: 2} and intake.drops.total == 0


@pytest.mark.parametrize(
    "covariance, expected",
    [
        (covariance_of(0.04, 0.02, 0.01), 0.03),
        (np.zeros(36), 0.0),
        (covariance_of(-1.0, 0.0), 0.0),
        (covariance_of(0.02, 0.0), 0.01),
        (covariance_of(math.nan, 1.0), math.nan),
        (covariance_of(1.0, math.inf), math.nan),
        (covariance_of(0.1, -0.1), math.nan),
    ],
)
def test_variance_of_a_horizontal_coordinate(covariance, expected):
    np.testing.assert_equal(planar_variance(covariance), expected)


def test_it_does_not_depend_on_where_the_axes_lie():
    c, s = math.cos(0.4), math.sin(0.4)
    turned = np.array([[c, -s], [s, c]]) @ np.diag([0.09, 0.01]) @ np.array([[c, s], [-s, c]])
    assert planar_variance(
        covariance_of(turned[0, 0], turned[1, 1], turned[0, 1])
    ) == pytest.approx(0.05)


def moving(intake, covariances):
    for i, c in enumerate(covariances):
        intake.add_odometry(odometry_message(i / 10, (i / 10, 0, 0), covariance=c))
        intake.add_field(field_message(i / 10))
    return intake.take()


def test_the_column_is_there_in_every_batch_and_unknown_is_zero():
    """A batch with unknown covariances only, and one of known ones, must go together."""
    intake = Intake()
    assert moving(intake, [None, covariance_of(-1.0, 0.0)]).position_variance.tolist() == [0.0, 0.0]
    intake.add_odometry(odometry_message(0.2, covariance=covariance_of(0.01, 0.01)))
    intake.add_field(field_message(0.15))
    np.testing.assert_allclose(intake.take().position_variance, [0.005])


def test_a_covariance_that_is_none_is_counted_and_its_pose_used():
    intake = Intake()
    samples = moving(intake, [covariance_of(math.nan, 1.0), covariance_of(0.01, 0.01)])
    assert samples.position_variance.tolist() == [0.0, 0.01] and len(samples) == 2
    assert intake.drops.as_dict() == {"pose_bad_covariance": 1} and intake.drops.measurements == 0


def test_covariances_and_orientations_that_are_placeholders_can_be_left_out():
    samples = moving(
        Intake(IntakeSettings(use_pose_covariance=False, use_heading=False)),
        [covariance_of(math.nan, 1.0)],
    )
    assert samples.position_variance is None and samples.heading is None


def test_poses_that_are_very_unsure_are_reported_once():
    intake = Intake()
    moving(intake, [covariance_of(1e6, 1e6)] * 5)
    assert len(intake.warnings) == 1 and "use_pose_covariance" in intake.warnings[0]


def test_poses_without_orientation_say_nothing_of_the_heading():
    intake = Intake()
    intake.add_pose(0, (1.0, 2.0, 0.0))
    intake.add_pose(10**8, (1.0, 2.0, 0.0), TURNED)  # as the first: without
    intake.add_field(field_message(0.05))
    assert intake.take().heading is None
    intake = Intake()
    intake.add_pose(0, (1.0, 2.0, 0.0), TURNED)
    intake.add_pose(10**8, (1.0, 2.0, 0.0))
    assert intake.drops[DropReason.POSE_ZERO_QUATERNION] == 1


def test_a_robot_that_points_straight_up_has_no_heading():
    intake = Intake()
    intake.add_pose(0, (1.0, 2.0, 0.0), (0.0, math.sqrt(0.5), 0.0, math.sqrt(0.5)))
    intake.add_field(field_message(0.0))
    assert intake.take().heading.tolist() == [[0.0, 0.0]]


def test_a_pose_in_another_frame_is_dropped():
    intake = Intake(IntakeSettings(pose_source="pose", odometry_frame="map"))
    intake.add_pose_message(pose_message(0.0, frame="odom"))
    assert (
        intake.drops.as_dict() == {"pose_unexpected_frame": 1}
        and "'odom', expected 'map'" in intake.warnings[0]
    )
    assert len(drain(intake)[0]) == 0

"""What a robot really sends: each bad input costs itself, is counted under its reason, and nothing else."""

import re

import numpy as np
import pytest
from intake_messages import by_stamp, drain, drive, feed, field_message, odometry_message

from gp_mapping.intake import DropReason, Intake
from gp_mapping.intake.sensors.other_unit import OtherUnit
from gp_mapping.settings.intake import IntakeSettings


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_field_that_is_not_finite_is_dropped(bad):
    fields, poses = drive()
    fields[10].magnetic_field.y = bad
    intake = Intake()
    feed(intake, by_stamp(fields, poses))
    assert len(drain(intake)[0]) == 99
    assert intake.drops.as_dict() == {"not_finite": 1}


def test_an_axis_that_is_not_measured_matters_only_where_it_is_mapped():
    fields, poses = drive()
    for message in fields:
        message.magnetic_field.x = np.nan
    intake = Intake(IntakeSettings(field_component="z", rotate_field=False))
    feed(intake, by_stamp(fields, poses))
    assert len(drain(intake)[0]) == 100
    intake = Intake(IntakeSettings(field_component="x", rotate_field=False))
    feed(intake, by_stamp(fields, poses))
    assert len(drain(intake)[0]) == 0 and intake.drops.as_dict() == {"not_finite": 100}


def test_a_message_in_microtesla_is_out_of_range():
    fields, poses = drive()
    fields[3].magnetic_field.z = 45.0
    intake = Intake()
    feed(intake, by_stamp(fields, poses))
    assert len(drain(intake)[0]) == 99
    assert intake.drops.as_dict() == {"out_of_range": 1}
    assert "tesla" in intake.drops.explain()[0]
    assert not intake.warnings  # one spike is no unit


@pytest.mark.parametrize(
    ("power", "unit"),
    [(3, "millitesla"), (4, "gauss"), (6, "microtesla"), (7, "milligauss"), (9, "nanotesla")],
)
def test_a_recording_in_another_unit_is_named_with_the_settings_that_map_it(power, unit):
    """The settings that the sentence asks for give the map of the same drive in tesla."""

    def taken_in(**settings):
        intake = Intake(IntakeSettings(**settings))
        feed(intake, by_stamp(fields, poses))
        return intake, drain(intake)[0]

    fields, poses = drive()
    in_tesla = taken_in()[1]
    for message in fields:
        for axis in "xyz":
            setattr(
                message.magnetic_field, axis, getattr(message.magnetic_field, axis) * 10.0**power
            )

    intake, rows = taken_in()
    (text,) = intake.warnings
    assert len(rows) == 0 and f"and read like {unit}: mend the driver" in text
    limit, scale = re.search(r"max_field: (\S+) and soft_iron_.*: (\S+)$", text).groups()
    iron = {f"soft_iron_{axis}{axis}": float(scale) for axis in "xyz"}
    intake, rows = taken_in(max_field=float(limit), **iron)
    np.testing.assert_allclose(rows, in_tesla, rtol=1e-9)
    assert not intake.warnings and not intake.drops.total


@pytest.mark.parametrize(
    "norms",
    [
        [0.4] * 9,  # too few
        [0.02, 0.9] * 20,  # of no one size
        [0.0105] * 20 + [0.5],  # a strong magnet, and a spike
        [1e200] * 20,
        [1e-300] * 20,
    ],
)
def test_what_is_the_size_of_no_unit_is_not_taken_for_one(norms):
    watched = OtherUnit()
    for norm in norms:
        watched.add(norm)
    assert watched.notes(0.01) == []


def test_zero_covariance_means_unknown_and_known_covariance_is_passed_on():
    """Each measurement says it for itself: the first one, of a driver that has just begun, decides for no other."""
    covariance = np.diag([1e-14, 4e-14, 9e-14]).ravel()
    poses = [odometry_message(t) for t in (0.0, 0.1, 0.2, 0.3)]
    known, unknown = (
        field_message(0.1, (3e-5, 0.0, 4e-5), covariance=covariance),
        field_message(0.2),
    )
    intake = Intake()
    feed(intake, [*poses, known, unknown])
    np.testing.assert_allclose(
        intake.take().sensor_variance, [0.36e-14 + 0.64 * 9e-14, 0.0], rtol=1e-12
    )
    feed(intake, [field_message(0.3, covariance=[-1.0] + [0.0] * 8)])
    np.testing.assert_array_equal(intake.take().sensor_variance, [0.0])
    intake = Intake()
    feed(
        intake,
        [
            *poses,
            field_message(0.1, (3e-5, 0.0, 4e-5), covariance=np.diag([0.0, 4e-14, 9e-14]).ravel()),
        ],
    )
    np.testing.assert_allclose(intake.take().sensor_variance, [0.64 * 9e-14], rtol=1e-12)
    intake = Intake()
    feed(intake, [*poses, field_message(0.0)])
    np.testing.assert_array_equal(intake.take().sensor_variance, [0.0])
    feed(intake, [known])
    np.testing.assert_allclose(intake.take().sensor_variance, [0.36e-14 + 0.64 * 9e-14], rtol=1e-12)
    assert intake.drops.total == 0


def test_repeated_and_out_of_order_stamps_are_dropped_and_counted():
    fields, poses = drive()
    messages = by_stamp(fields, poses)
    late = field_message(0.5, (0, 0, 9e-6))
    at = messages.index(fields[30]) + 1
    messages[at:at] = [fields[30], late]
    intake = Intake()
    feed(intake, messages)
    rows, breaks = drain(intake)
    assert len(rows) == 100 and not breaks and not (rows[:, 3] == 9e-6).any()
    assert intake.drops.as_dict() == {"repeated_stamp": 1, "out_of_order": 1}


def test_bad_poses_are_counted_and_interpolated_over():
    fields, poses = drive()
    poses[5].pose.pose.position.x = np.nan
    q = poses[9].pose.pose.orientation
    q.x = q.y = q.z = q.w = 0.0
    poses[20:20] = [poses[19], poses[12]]
    intake = Intake()
    feed(
        intake, by_stamp(poses[:20], fields[:50]) + poses[20:22] + by_stamp(poses[22:], fields[50:])
    )
    rows, _ = drain(intake)
    np.testing.assert_allclose(rows[:, 1], 0.2 * np.arange(100) / 50, atol=1e-9)
    assert intake.drops.as_dict() == {
        "pose_not_finite": 1,
        "pose_zero_quaternion": 1,
        "pose_repeated_stamp": 1,
        "pose_out_of_order": 1,
    }
    assert intake.drops.measurements == 0 and intake.drops.total == 4


def test_without_odometry_measurements_are_dropped_after_max_wait():
    fields, _ = drive(seconds=3.0)
    intake = Intake(IntakeSettings(max_wait=0.5))
    feed(intake, fields)
    assert intake.take() is None
    assert intake.drops.as_dict() == {"no_pose": 150 - 26} and intake.waiting == 26
    assert intake.finish() is None
    assert intake.drops.as_dict() == {"no_pose": 150}


def test_odometry_that_starts_late_costs_only_what_came_before_it():
    fields, poses = drive(seconds=3.0)
    intake = Intake(IntakeSettings(max_wait=0.5))
    feed(intake, by_stamp(fields, poses[20:]))  # from 1 s on
    rows, _ = drain(intake)
    assert rows[0, 0] == 1.0 and len(rows) == 100
    assert intake.drops.as_dict() == {"no_pose": 50}


def test_odometry_that_comes_late_by_less_than_max_wait_costs_nothing():
    fields, poses = drive(seconds=3.0)
    late = sorted(
        [
            (
                m.header.stamp.sec * 10**9
                + m.header.stamp.nanosec
                + (400_000_000 if hasattr(m, "pose") else 0),
                i,
            )
            for i, m in enumerate(fields + poses)
        ]
    )
    intake = Intake(IntakeSettings(max_wait=0.5))
    feed(intake, [(fields + poses)[i] for _, i in late])
    assert len(drain(intake)[0]) == 150 and intake.drops.total == 0


def test_no_measurement_is_placed_in_a_gap_of_the_odometry():
    fields, poses = drive(seconds=3.0)
    intake = Intake()
    feed(intake, by_stamp(fields, poses[:21] + poses[40:]))  # none between 1 s and 2 s
    rows, _ = drain(intake)
    assert not ((rows[:, 0] > 1.0) & (rows[:, 0] < 2.0)).any()
    assert intake.drops.as_dict() == {"pose_gap": 49} and len(rows) == 101


@pytest.mark.parametrize("step, said", [(20, ["2.0"]), (15, ["1.5"]), (9, [])])
def test_poses_that_come_too_seldom_are_said_with_the_gap_that_takes_them(step, said):
    """A localiser of 1 Hz: all was dropped as pose_gap, and nothing said by which number it is mended."""
    fields, poses = drive(seconds=6.0)
    intake = Intake()
    feed(intake, by_stamp(fields, poses[::step]))
    drain(intake)
    written = [
        text.partition("write max_pose_gap: ")[2].split()[0]
        for text in intake.warnings
        if text.startswith(f"poses come {step / 20.0:g} s apart and more")
    ]
    assert written == said and bool(intake.drops.as_dict().get("pose_gap")) == bool(said)

    if said:
        intake = Intake(IntakeSettings(max_pose_gap=float(said[0])))
        feed(intake, by_stamp(fields, poses[::step]))
        assert len(drain(intake)[0]) > 200 and intake.warnings == []


def test_a_full_queue_pushes_out_the_oldest():
    fields, poses = drive()
    intake = Intake(IntakeSettings(queue_size=10, max_wait=100.0))
    feed(intake, fields + poses)
    rows, _ = drain(intake)
    assert intake.drops.as_dict() == {"queue_full": 90}
    np.testing.assert_allclose(rows[:, 0], np.arange(90, 100) / 50)


def test_samples_that_nobody_takes_are_bounded():
    fields, poses = drive(seconds=4.0, rate=100.0)
    intake = Intake(IntakeSettings(queue_size=2))
    feed(intake, by_stamp(fields, poses))
    assert intake.drops[DropReason.QUEUE_FULL] > 0
    assert len(drain(intake)[0]) + intake.drops.total == 400 and intake.take() is None


@pytest.mark.parametrize("stream", ["field", "pose"])
def test_one_stamp_from_the_far_future_does_not_stop_the_map(stream):
    fields, poses = drive(seconds=10.0)
    if stream == "field":
        fields[250] = field_message(1e9)
    else:
        poses[100] = odometry_message(1e9)
    intake = Intake()
    rows = []
    for f, p in zip(
        range(0, 500, 5), range(0, 200, 2), strict=True
    ):  # in the order of their true times
        feed(intake, fields[f : f + 5] + poses[p : p + 2])
        rows += drain(intake, finish=False)[0].tolist()
    rows = np.array(rows)
    assert len(rows) >= 450 and intake.drops.measurements <= 50
    assert len(rows) + intake.drops.measurements + intake.waiting == 500
    np.testing.assert_allclose(rows[:, 1], 0.2 * rows[:, 0], atol=1e-9)


def test_a_frame_that_nobody_expects_is_dropped_with_its_name():
    fields, poses = drive()
    fields[7].header.frame_id = "phone"
    for message in poses[10:15]:
        message.header.frame_id = "map"
    intake = Intake()
    feed(intake, by_stamp(fields, poses))
    drain(intake)
    assert intake.drops.as_dict() == {"unexpected_frame": 1, "pose_unexpected_frame": 5}
    assert len(intake.warnings) == 2 and any(
        "'phone'" in w and "'magnetometer'" in w for w in intake.warnings
    )
    assert any("'map'" in w and "'odom'" in w for w in intake.warnings)


def test_an_expected_frame_is_required_from_the_first_message_on():
    fields, poses = drive()
    intake = Intake(IntakeSettings(odometry_frame="map"))
    feed(intake, by_stamp(fields, poses))
    assert drain(intake)[0].size == 0 and intake.drops[DropReason.POSE_UNEXPECTED_FRAME] == 41
    intake = Intake(IntakeSettings(odometry_frame="/odom", sensor_frame="magnetometer"))
    feed(intake, by_stamp(fields, poses))
    assert len(drain(intake)[0]) == 100


def test_warnings_are_bounded():
    intake = Intake(IntakeSettings(sensor_frame="m"))
    feed(intake, [field_message(i, frame=f"frame_{i}") for i in range(1000)])
    assert len(intake.warnings) == 3 and intake.drops.as_dict() == {"unexpected_frame": 1000}
    for i in range(30):  # what else is to say has room, up to a bound
        intake.add_note(f"note {i}")
    assert "note 0" in intake.warnings and len(intake.warnings) == 20


def test_nothing_is_lost_without_a_reason():
    """Every measurement is a sample, a counted drop, or still waiting; whatever comes."""
    generator = np.random.default_rng(0)
    intake = Intake(IntakeSettings(queue_size=5))
    samples = 0
    for _ in range(3000):
        stamp = float(generator.choice([generator.uniform(0, 100), generator.uniform(0, 3)]))
        value = generator.choice([1e-5, np.nan, 1.0], p=[0.9, 0.05, 0.05])
        if generator.random() < 0.5:
            feed(
                intake,
                [
                    field_message(
                        stamp, (value, 0, 0), frame=str(generator.choice(["a", "b"], p=[0.9, 0.1]))
                    )
                ],
            )
        else:
            feed(intake, [odometry_message(stamp, (value, 0, 0))])
        if generator.random() < 0.1:
            samples += len(drain(intake, finish=False)[0])
        if generator.random() < 0.01:
            intake.time_jump()
    samples += len(drain(intake)[0])
    assert samples == intake.samples and intake.waiting == 0
    assert samples + intake.drops.measurements == intake.received["magnetic_field"]

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from intake_messages import drain, feed, field_message, odometry_message

from gp_mapping.intake import DropCounter, DropReason, Intake, IntakeSettings


def drive(start=0.0, seconds=2.0, rate=50.0, odometry_rate=20.0, speed=0.2, origin=(0.0, 0.0)):
    """Fields and poses of a straight drive along x, each stream in order."""
    fields = [field_message(start + i / rate, (0.0, 0.0, (40 + i % 7) * 1e-6)) for i in range(int(seconds * rate))]
    poses = [odometry_message(start + i / odometry_rate, (origin[0] + speed * i / odometry_rate, origin[1], 0.0))
             for i in range(int(seconds * odometry_rate) + 1)]
    return fields, poses


def by_stamp(*streams):
    return sorted((m for s in streams for m in s), key=lambda m: (m.header.stamp.sec, m.header.stamp.nanosec))


def test_every_measurement_gets_the_pose_at_its_own_stamp():
    fields, poses = drive(start=1e9)
    intake = Intake()
    feed(intake, by_stamp(fields, poses))
    rows, breaks = drain(intake)
    assert len(rows) == len(fields) == intake.samples and not breaks
    np.testing.assert_allclose(rows[:, 1], 0.2 * np.arange(100) / 50, atol=1e-9)
    np.testing.assert_allclose(rows[:, 0], 1e9 + np.arange(100) / 50, rtol=0, atol=3e-7)
    np.testing.assert_allclose(rows[:, 3], (40 + np.arange(100) % 7) * 1e-6, rtol=1e-15)
    assert intake.drops.total == 0
    assert intake.received == {"magnetic_field": 100, "odometry": 41}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_how_the_topics_interleave_does_not_matter(data):
    """Also through a jump back: the bag loops, and either topic may be the first to jump."""
    fields, poses = drive(start=100.0, seconds=1.0)
    again = drive(start=10.0, seconds=1.0)
    streams = [fields + again[0], poses + again[1]]
    ordered = Intake()
    feed(ordered, by_stamp(fields, poses) + by_stamp(*again))
    expected, expected_breaks = drain(ordered)
    assert len(expected) == 100 and expected_breaks == [50]

    shuffled, at = Intake(), [0, 0]
    for stream in data.draw(st.permutations([0] * len(streams[0]) + [1] * len(streams[1]))):
        feed(shuffled, [streams[stream][at[stream]]])
        at[stream] += 1
    rows, breaks = drain(shuffled)
    np.testing.assert_array_equal(rows, expected)
    assert breaks == expected_breaks and shuffled.drops.total == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_when_samples_are_taken_does_not_matter(splits):
    messages = by_stamp(*drive()) + by_stamp(*drive(start=10.0))
    whole = Intake()
    feed(whole, messages)
    expected, expected_breaks = drain(whole)
    intake, rows, breaks = Intake(), [], []
    while messages:
        for n in splits:
            feed(intake, messages[:n])
            messages = messages[n:]
            part, begins = drain(intake, finish=False)
            breaks += [len(rows) + b for b in begins]
            rows += part.tolist()
    part, begins = drain(intake)
    rows += part.tolist()
    np.testing.assert_array_equal(rows, expected)
    assert breaks == expected_breaks == [100]


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


def test_zero_covariance_means_unknown_and_known_covariance_is_passed_on():
    covariance = np.diag([1e-14, 4e-14, 9e-14]).ravel()
    poses = [odometry_message(t) for t in (0.0, 0.1, 0.2, 0.3)]
    intake = Intake()
    feed(intake, [*poses, field_message(0.0)])
    assert intake.take().sensor_variance is None
    feed(intake, [field_message(0.1, (3e-5, 0.0, 4e-5), covariance=covariance), field_message(0.2)])
    np.testing.assert_allclose(intake.take().sensor_variance, [0.36e-14 + 0.64 * 9e-14, 0.0], rtol=1e-12)
    feed(intake, [field_message(0.3, covariance=[-1.0] + [0.0] * 8)])
    assert intake.take().sensor_variance is None
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
    feed(intake, by_stamp(poses[:20], fields[:50]) + poses[20:22] + by_stamp(poses[22:], fields[50:]))
    rows, _ = drain(intake)
    np.testing.assert_allclose(rows[:, 1], 0.2 * np.arange(100) / 50, atol=1e-9)
    assert intake.drops.as_dict() == {"pose_not_finite": 1, "pose_zero_quaternion": 1, "pose_repeated_stamp": 1,
                                      "pose_out_of_order": 1}
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
    late = sorted([(m.header.stamp.sec * 10**9 + m.header.stamp.nanosec + (400_000_000 if hasattr(m, "pose") else 0), i)
                   for i, m in enumerate(fields + poses)])
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
    assert len(drain(intake)[0]) + intake.drops.total == 400 and len(intake._ready) == 0


def test_a_pause_begins_a_new_pass():
    messages = by_stamp(*drive()) + by_stamp(*drive(start=30.0))
    intake = Intake()
    feed(intake, messages)
    assert drain(intake)[1] == [100] and intake.drops.total == 0


def test_take_stops_at_a_break_until_it_is_asked_for():
    intake = Intake()
    feed(intake, by_stamp(*drive()) + by_stamp(*drive(start=30.0)))
    assert not intake.take_break()
    assert len(intake.take()) == 100
    assert not intake.take_break()  # the samples just taken belong to the old pass
    assert intake.take() is None and intake.take() is None
    assert intake.take_break() and not intake.take_break()
    assert len(intake.take()) == 100
    assert intake.take() is None and not intake.take_break()


def test_batches_announces_a_break_that_take_has_met():
    intake = Intake()
    feed(intake, by_stamp(*drive()) + by_stamp(*drive(start=30.0)))
    assert len(intake.take()) == 100 and intake.take() is None
    assert [(new, len(s)) for new, s in intake.batches()] == [(True, 100)]
    assert not intake.take_break()


def test_the_clock_says_that_time_jumped():
    fields, poses = drive()
    intake = Intake()
    feed(intake, [*by_stamp(fields, poses)[:-1], field_message(2.5)])
    intake.time_jump()
    dropped = intake.drops.total
    assert intake.drops.as_dict() == {"time_jump": 3}  # those after the newest pose, at 1.95 s
    feed(intake, by_stamp(fields, poses))
    rows, breaks = drain(intake)
    assert len(rows) + dropped == 201 and breaks == [201 - dropped - 100]


@pytest.mark.parametrize("stream", ["field", "pose"])
def test_one_stamp_from_the_far_future_does_not_stop_the_map(stream):
    fields, poses = drive(seconds=10.0)
    if stream == "field":
        fields[250] = field_message(1e9)
    else:
        poses[100] = odometry_message(1e9)
    intake = Intake()
    rows = []
    for f, p in zip(range(0, 500, 5), range(0, 200, 2), strict=True):  # in the order of their true times
        feed(intake, fields[f:f + 5] + poses[p:p + 2])
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
    assert len(intake.warnings) == 2 and any("'phone'" in w and "'magnetometer'" in w for w in intake.warnings)
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
    assert len(intake.warnings) == 20 and intake.drops.as_dict() == {"unexpected_frame": 1000}


def test_coordinates_in_the_millions_keep_their_precision():
    origin = (4_000_000.123, 5_600_000.456)
    fields, poses = drive(origin=origin)
    intake = Intake()
    feed(intake, by_stamp(fields, poses))
    rows, _ = drain(intake)
    np.testing.assert_allclose(rows[:, 1] - origin[0], 0.2 * np.arange(100) / 50, rtol=0, atol=2e-9)
    assert (rows[:, 2] == origin[1]).all()


def test_the_lever_arm_turns_with_the_robot():
    half = np.sqrt(0.5)
    intake = Intake(IntakeSettings(sensor_offset_x=0.5, sensor_offset_y=0.1))
    feed(intake, [odometry_message(0.0, (10.0, 20.0, 0.0), (0.0, 0.0, half, half)), field_message(0.0)])
    np.testing.assert_allclose(intake.take().x, [[10.0 - 0.1, 20.0 + 0.5]], atol=1e-12)


@pytest.mark.parametrize("component, expected", [("x", -2e-6), ("y", 1e-6), ("z", 3e-6), ("norm", np.sqrt(14) * 1e-6)])
def test_an_axis_is_mapped_in_the_frame_of_the_map(component, expected):
    half = np.sqrt(0.5)  # a quarter turn to the left: the sensor's x is the map's y
    pose = odometry_message(0.0, (0, 0, 0), (0.0, 0.0, half, half))
    covariance = np.diag([1e-16, 2e-16, 3e-16]).ravel()
    intake = Intake(IntakeSettings(field_component=component))
    feed(intake, [pose, field_message(0.0, (1e-6, 2e-6, 3e-6), covariance=covariance)])
    samples = intake.take()
    np.testing.assert_allclose(samples.y, [[expected]], rtol=1e-12)
    if component != "norm":
        np.testing.assert_allclose(samples.sensor_variance, {"x": 2e-16, "y": 1e-16, "z": 3e-16}[component], rtol=1e-9)


def test_the_mounting_of_the_sensor_turns_the_field():
    intake = Intake(IntakeSettings(field_component="y", sensor_yaw=np.pi / 2))
    feed(intake, [odometry_message(0.0), field_message(0.0, (1e-6, 2e-6, 3e-6))])
    np.testing.assert_allclose(intake.take().y, [[1e-6]], rtol=1e-12)


def test_nothing_is_lost_without_a_reason():
    """Every measurement is a sample, a counted drop, or still waiting; whatever comes."""
    generator = np.random.default_rng(0)
    intake = Intake(IntakeSettings(queue_size=5))
    samples = 0
    for _ in range(3000):
        stamp = float(generator.choice([generator.uniform(0, 100), generator.uniform(0, 3)]))
        value = generator.choice([1e-5, np.nan, 1.0], p=[0.9, 0.05, 0.05])
        if generator.random() < 0.5:
            feed(intake, [field_message(stamp, (value, 0, 0), frame=str(generator.choice(["a", "b"], p=[0.9, 0.1])))])
        else:
            feed(intake, [odometry_message(stamp, (value, 0, 0))])
        if generator.random() < 0.1:
            samples += len(drain(intake, finish=False)[0])
        if generator.random() < 0.01:
            intake.time_jump()
    samples += len(drain(intake)[0])
    assert samples == intake.samples and intake.waiting == 0
    assert samples + intake.drops.measurements == intake.received["magnetic_field"]


def test_every_reason_has_an_explanation():
    counter = DropCounter()
    for reason in DropReason:
        counter.count(reason, 2)
        assert len(reason.explanation) > 20
    assert counter.total == 2 * len(DropReason) and len(counter.explain()) == len(DropReason)
    with pytest.raises(ValueError, match="DropReason"):
        counter.count("lost")


@pytest.mark.parametrize("name, value", [("field_component", "w"), ("max_wait", -1.0), ("queue_size", 2.5),
                                         ("max_pose_gap", float("nan")), ("odometry_frame", 3)])
def test_settings_of_the_wrong_type_or_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        IntakeSettings(**{name: value})


def test_every_setting_says_what_it_is():
    assert all(f.metadata["doc"] for f in dataclasses.fields(IntakeSettings))

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from intake_messages import by_stamp, drain, drive, feed, field_message, odometry_message

from gp_mapping.intake import DropCounter, DropReason, Intake
from gp_mapping.intake.topics import inputs_of
from gp_mapping.settings.intake import IntakeSettings


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


@functools.cache
def _in_order(seconds: float, start: float):
    """Fields and poses of a drive and of one that begins at 10 s; both by stamp; their rows and breaks."""
    drives = drive(start=start, seconds=seconds), drive(start=10.0, seconds=seconds)
    messages = by_stamp(*drives[0]) + by_stamp(*drives[1])
    intake = Intake()
    feed(intake, messages)
    return drives, messages, drain(intake)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_how_the_topics_interleave_does_not_matter(data):
    """Also through a jump back: the bag loops, and either topic may be the first to jump."""
    (first, again), _, (expected, expected_breaks) = _in_order(seconds=1.0, start=100.0)
    streams = [first[0] + again[0], first[1] + again[1]]
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
    _, messages, (expected, expected_breaks) = _in_order(seconds=2.0, start=0.0)
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
    feed(
        intake,
        [odometry_message(0.0, (10.0, 20.0, 0.0), (0.0, 0.0, half, half)), field_message(0.0)],
    )
    np.testing.assert_allclose(intake.take().x, [[10.0 - 0.1, 20.0 + 0.5]], atol=1e-12)


@pytest.mark.parametrize(
    "component, expected", [("x", -2e-6), ("y", 1e-6), ("z", 3e-6), ("norm", np.sqrt(14) * 1e-6)]
)
def test_an_axis_is_mapped_in_the_frame_of_the_map(component, expected):
    half = np.sqrt(0.5)  # a quarter turn to the left: the sensor's x is the map's y
    pose = odometry_message(0.0, (0, 0, 0), (0.0, 0.0, half, half))
    covariance = np.diag([1e-16, 2e-16, 3e-16]).ravel()
    intake = Intake(IntakeSettings(field_component=component))
    feed(intake, [pose, field_message(0.0, (1e-6, 2e-6, 3e-6), covariance=covariance)])
    samples = intake.take()
    np.testing.assert_allclose(samples.y, [[expected]], rtol=1e-12)
    if component != "norm":
        np.testing.assert_allclose(
            samples.sensor_variance, {"x": 2e-16, "y": 1e-16, "z": 3e-16}[component], rtol=1e-9
        )


def test_the_mounting_of_the_sensor_turns_the_field():
    intake = Intake(IntakeSettings(field_component="y", sensor_yaw=np.pi / 2))
    feed(intake, [odometry_message(0.0), field_message(0.0, (1e-6, 2e-6, 3e-6))])
    np.testing.assert_allclose(intake.take().y, [[1e-6]], rtol=1e-12)


def test_every_reason_has_an_explanation():
    counter = DropCounter()
    for reason in DropReason:
        counter.count(reason, 2)
        assert len(reason.explanation) > 20
    assert counter.total == 2 * sum(not reason.is_used for reason in DropReason)
    assert len(counter.explain()) == len(DropReason)
    with pytest.raises(ValueError, match="DropReason"):
        counter.count("lost")


@pytest.mark.parametrize(
    "name, value",
    [
        ("field_component", "w"),
        ("max_wait", -1.0),
        ("queue_size", 2.5),
        ("max_pose_gap", float("nan")),
        ("odometry_frame", 3),
    ],
)
def test_settings_of_the_wrong_type_or_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        IntakeSettings(**{name: value})


def test_every_setting_says_what_it_is():
    assert all(f.metadata["doc"] for f in dataclasses.fields(IntakeSettings))


@pytest.mark.parametrize(
    ("wanted", "topics"),
    [
        ({}, ["magnetic_field", "odometry"]),
        ({"pose_source": "pose"}, ["magnetic_field", "pose"]),
        ({"pose_source": "tf"}, ["magnetic_field", "/tf", "/tf_static"]),
        ({"mounting": "tf"}, ["magnetic_field", "odometry", "/tf", "/tf_static"]),
        ({"sensor": "temperature", "fix_topic": "gps/fix"}, ["temperature", "odometry", "gps/fix"]),
    ],
)
def test_the_topics_are_those_that_the_settings_ask_for(wanted, topics):
    inputs = inputs_of(IntakeSettings(**wanted))
    assert [each.topic for each in inputs] == topics and inputs[0].role == "measurement"
    assert all(each.messages for each in inputs)


@pytest.mark.parametrize(
    "ahead, offset, mapped", [(0.0, 0.0, True), (0.01, 0.0, False), (0.0, 0.01, False)]
)
def test_a_robot_may_be_as_far_as_the_setting_says_and_so_may_its_sensor(ahead, offset, mapped):
    """To the bound, and no farther: neither its pose nor where the sensor sits on it."""
    intake = Intake(IntakeSettings(max_position=7.0, sensor_offset_x=offset))
    poses = [odometry_message(0.1 * k, (7.0 + ahead, 0.5, 0.0)) for k in range(11)]
    feed(intake, by_stamp([field_message(0.1 * k + 0.05) for k in range(10)], poses))
    rows, _ = drain(intake)
    assert len(rows) == (10 if mapped else 0)
    assert (intake.drops.total == 0) == mapped

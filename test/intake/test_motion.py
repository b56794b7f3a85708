"""Robots that stand for ever, and poses that are no metres, are spoken of."""

import pytest
from intake_messages import by_stamp, drain, drive, feed

from gp_mapping.intake import Intake
from gp_mapping.settings.intake import IntakeSettings


def notes(seconds: float = 12.0, speed: float = 0.2, **settings) -> list[str]:
    intake = Intake(IntakeSettings(**settings))
    feed(intake, by_stamp(*drive(start=100.0, seconds=seconds, speed=speed, rate=10.0)))
    drain(intake)
    return intake.warnings


def test_a_robot_that_has_never_moved_is_spoken_of_after_a_while():
    assert notes(8.0, 0.0) == []
    (text,) = notes(12.0, 0.0)
    assert "the robot has not moved since the first measurement, 12 s ago" in text


def test_poses_in_another_unit_are_asked_about_with_their_speed():
    (text,) = notes(3.0, 500.0)
    assert "poses move at 500 m/s: are they metres" in text and "max_speed" in text


@pytest.mark.parametrize("speed", [0.02, 0.2, 30.0])
def test_a_robot_that_drives_is_not_spoken_of(speed):
    assert notes(12.0, speed) == []


@pytest.mark.parametrize(
    ("climb", "glitch", "said"),
    [(0.0, 0.0, []), (0.1, 0.0, []), (0.5, 0.0, ["6.88"]), (0.0, 30.0, [])],
)
def test_a_flight_is_said_to_be_flattened(climb, glitch, said):
    """Up by a part of the way over the ground; a ramp is none, nor is a single leap of a localiser."""
    fields, poses = drive(start=100.0, seconds=30.0, speed=0.5, rate=10.0)
    for i, message in enumerate(poses):
        message.pose.pose.position.z = climb * 0.5 * i / 20.0 + glitch * (i == 20)
    intake = Intake(IntakeSettings())
    feed(intake, by_stamp(fields, poses))
    drain(intake)
    assert [text for text in intake.warnings if "the map is flat" in text] == [
        f"the heights of the poses differ by {height} m, and the map is flat: what was measured above one "
        "another is taken for one place; map each height by itself"
        for height in said
    ]


def said_of_heights(height_of, seconds: float = 60.0, side: float = 20.0) -> list[str]:
    """What is said of a robot that drives to and fro on a line, `height_of(lane, x)` m high."""
    fields, poses = drive(start=100.0, seconds=seconds, speed=0.0, rate=10.0)
    for i, message in enumerate(poses):
        lane, along = divmod(2.0 * i / 20.0, side)
        p = message.pose.pose.position
        p.x, p.y = along if lane % 2 == 0 else side - along, 0.0
        p.z = float(height_of(lane, p.x))
    intake = Intake(IntakeSettings())
    feed(intake, by_stamp(fields, poses))
    drain(intake)
    return [text for text in intake.warnings if "the map is flat" in text]


def test_floors_above_one_another_are_said_however_large_the_building_is():
    """Three metres are no more than a slope of a hall of 60 m: it is in one place that they differ."""
    (text,) = said_of_heights(lambda lane, x: 3.0 * (lane >= 2.0), side=60.0, seconds=100.0)
    assert "differ by up to 3 m in one and the same place" in text


@pytest.mark.parametrize(
    "height_of",
    [
        lambda lane, x: 0.12 * x,  # a ramp, up and down again
        lambda lane, x: 0.3 * lane,  # a height that drifts by less than a floor
        lambda lane, x: 5.0 * (lane == 1.0 and 7.0 < x < 8.0),  # one leap
    ],
)
def test_a_ramp_a_drift_and_a_leap_are_no_floors(height_of):
    assert said_of_heights(height_of) == []

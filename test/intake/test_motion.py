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

"""Poses that come after the measurements of their time were given up: said, with by how much."""

import pytest
from intake_messages import by_stamp, drain, drive, feed

from gp_mapping.intake import DropReason, Intake
from gp_mapping.settings.intake import IntakeSettings


def warnings_of(messages, **settings) -> tuple[list[str], Intake]:
    intake = Intake(IntakeSettings(**settings))
    feed(intake, messages)
    drain(intake)
    return [text for text in intake.warnings if "raise max_wait" in text], intake


def seconds_of(message) -> float:
    return message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec


def in_bursts(fields, poses, period: float):
    """All messages as they come where poses are sent at the end of each period only."""
    late = [(period * (seconds_of(m) // period + 1), i, m) for i, m in enumerate(poses)]
    now = [(seconds_of(m), -1, m) for m in fields]
    return [message for _, _, message in sorted([*late, *now], key=lambda e: e[:2])]


def test_poses_that_come_late_are_said_with_by_how_much():
    fields, poses = drive(start=100.0, seconds=40.0, speed=0.5, rate=10.0)
    (text,), intake = warnings_of(in_bursts(fields, poses, 10.0))
    assert intake.drops[DropReason.NO_POSE] > 100
    assert "poses came up to 10 s later" in text and "these wait for 2 s" in text

    # the remedy is one
    said, intake = warnings_of(in_bursts(fields, poses, 10.0), max_wait=11.0)
    assert said == [] and intake.drops[DropReason.NO_POSE] <= 1


@pytest.mark.parametrize("begin", [0.0, 20.0])
def test_poses_in_time_are_not_said_to_be_late(begin):
    """Nor those of a robot whose sensor was on before its localiser was."""
    fields, poses = drive(start=100.0, seconds=40.0, speed=0.5, rate=10.0)
    poses = [m for m in poses if seconds_of(m) >= 100.0 + begin]
    said, intake = warnings_of(by_stamp(fields, poses))
    assert said == [] and intake.drops[DropReason.NO_POSE] >= 10 * begin - 1


def test_a_bag_that_loops_is_not_said_to_have_late_poses():
    fields, poses = drive(start=100.0, seconds=20.0, speed=0.5, rate=10.0)
    without_end = [m for m in poses if seconds_of(m) < 110.0]
    said, _ = warnings_of(by_stamp(fields, without_end) + by_stamp(fields, poses))
    assert said == []

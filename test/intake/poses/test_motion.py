"""Robots that stand for ever, and poses that are no metres, are spoken of."""

import numpy as np
import pytest
import torch
from intake_messages import by_stamp, drain, drive, feed

from gp_mapping.core.types import Samples
from gp_mapping.intake import Intake
from gp_mapping.intake.poses.motion import Motion
from gp_mapping.intake.poses.restarts import Restarts
from gp_mapping.settings.intake import IntakeSettings


def notes(seconds: float = 12.0, speed: float = 0.2, **settings) -> list[str]:
    intake = Intake(IntakeSettings(**settings))
    feed(intake, by_stamp(*drive(start=100.0, seconds=seconds, speed=speed, rate=10.0)))
    drain(intake)
    return intake.warnings


@pytest.mark.parametrize(
    ("about", "step", "asked"),
    [
        ((24.83, 60.19), 1e-5, True),
        ((-122.4, 37.8), 1e-5, True),
        ((60.19, 24.83), 1e-5, True),
        ((24.83, 60.19), 0.0, False),
        ((0.5, 0.2), 1e-5, False),
        ((385000.0, 6672000.0), 1e-5, False),
    ],
)
def test_poses_in_degrees_are_asked_about(about, step, asked):
    """Longitude and latitude, in which a robot hardly moves."""
    motion, k = Motion(), torch.arange(60, dtype=torch.float64)
    x = torch.tensor(about, dtype=torch.float64) + step * torch.stack(
        [k / 60.0, (k / 9.0).sin()], 1
    )
    motion.watch(Samples(x, k[:, None], stamp=0.5 * k), np.zeros(60))
    (text,) = motion.notes(0.0)
    assert "has not moved" in text and ("degrees of longitude and latitude" in text) == asked


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


@pytest.mark.parametrize("places, said", [(2, 0), (3, 1)])
def test_two_places_with_two_floors_may_be_glitches_and_three_are_none(places, said):
    """Along 200 m, and over so many places again, 3 m higher."""
    x = np.r_[np.arange(0.0, 200.0, 10.0), np.arange(20.0, 20.0 + 10.0 * places, 10.0)]
    heights, stamps = np.r_[np.zeros(20), np.full(places, 3.0)], 20.0 * np.arange(len(x))
    motion = Motion()
    where = torch.from_numpy(np.stack([x, 0.0 * x], 1))
    motion.watch(Samples(where, torch.zeros(len(x), 1), stamp=stamps), heights)
    assert sum("in one and the same place" in text for text in motion.notes(10.0)) == said


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


def said_of_leaps(shift_of, speed=0.5, rate=20.0, seconds=20.0, **settings) -> list[str]:
    """What is said of a robot on a straight way whose poses are shifted by `shift_of(t)` m."""
    fields, poses = drive(start=100.0, seconds=seconds, speed=speed, rate=rate)
    for i, message in enumerate(poses):
        message.pose.pose.position.y = float(shift_of(i / 20.0))
    intake = Intake(IntakeSettings(**settings))
    feed(intake, by_stamp(fields, poses))
    drain(intake)
    return [text for text in intake.warnings if text.startswith("poses leap")]


def test_an_odometry_that_begins_again_is_said_with_stamp_and_size():
    """The map holds two frames from then on; nothing said so."""
    (text,) = said_of_leaps(lambda t: 4.0 * (t >= 12.0))
    assert text.startswith("poses leap once, at stamp 112.")
    assert abs(float(text.split(" by ")[1].split()[0]) - 4.0) < 0.1
    (text,) = said_of_leaps(lambda t: 4.0 * (t >= 8.0) - 9.0 * (t >= 12.0))
    assert text.startswith("poses leap 2 times, at stamp 112.") and " by 9" in text


@pytest.mark.parametrize(
    "shift_of",
    [
        lambda t: 0.5 * (t >= 12.0),  # a localiser that corrects itself a little
        lambda t: 0.4 * (12.0 <= t < 12.4),
        lambda t: min(max(0.0, t - 10.0), 3.0) ** 2 * 2.0,  # 4 m/s² up to 12 m/s
        lambda t: np.sin(40.0 * t),  # a localiser that trembles
    ],
)
def test_what_can_be_driven_or_only_trembles_is_no_leap(shift_of):
    assert said_of_leaps(shift_of) == []


@pytest.mark.parametrize("away", [0.2, 0.45, 0.6, 1.0, 3.0, 8.0])
def test_a_localiser_that_leaps_away_and_back_is_said_with_count_and_size(away):
    """Of short ones nothing was said, of longer ones that they stay."""
    at = (4.03, 14.11, 25.17)
    (text,) = said_of_leaps(lambda t: 3.0 * any(s <= t < s + away for s in at), seconds=40.0)
    assert text.startswith("poses leap away and come back 3 times, at worst by 3"), text
    assert "max_speed, above the 0.5 m/s that the robot drives, drops such poses" in text
    shift_of = lambda t: 3.0 * any(s <= t < s + away for s in at)  # noqa: E731
    assert away > 2.0 or said_of_leaps(shift_of, seconds=40.0, max_speed=1.0) == []


def test_a_leap_that_stays_is_told_apart_from_those_that_come_back():
    there, back = said_of_leaps(
        lambda t: 3.0 * (5.0 <= t < 5.7) + 4.0 * (t >= 12.0) - 2.5 * (15.1 <= t < 15.3)
    )
    assert there.startswith("poses leap once, at stamp 112.") and "stay there" in there
    assert back.startswith("poses leap away and come back 2 times, at worst by 3.0")


def test_a_slow_sensor_on_a_robot_that_stops_and_goes_sees_no_leaps():
    assert said_of_leaps(lambda t: 3.0 * (t // 5.0), rate=0.2, seconds=100.0) == []


def drive_that_begins_again(silence=4.0, at=(0.0, 0.0, 0.0), step=0.02):
    """Stamps (ns) and rows of poses: 5 s along x, a silence, and 5 s more from `at` on."""
    n = round(5.0 / step)
    stamps = step * np.arange(2 * n) + silence * (np.arange(2 * n) >= n)
    rows = np.zeros((2 * n, 7))
    rows[:, 0], rows[:, 6] = 0.5 * step * np.arange(2 * n), 1.0
    x, y, yaw = at
    rows[n:, 0] += x - rows[n, 0]
    rows[n:, 1], rows[n:, 5], rows[n:, 6] = y, np.sin(0.5 * yaw), np.cos(0.5 * yaw)
    return (1e18 + 1e9 * stamps).astype(np.int64), rows


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({}, True),
        ({"step": 0.5}, True),
        ({"silence": 0.3}, False),
        ({"silence": 400.0}, False),  # another drive
        ({"step": 1.0, "silence": 1.5}, False),  # a slow source, which drives home
        ({"at": (0.0, 0.1, 0.0)}, False),
        ({"at": (0.0, 0.0, 0.1)}, False),
        ({"at": (2.52, 0.0, 0.0)}, False),  # a network that stood for a while
    ],
)
def test_an_odometry_that_is_started_anew_is_said_after_a_silence_in_which_a_robot_drives_as_far(
    case, said
):
    stamps, rows = drive_that_begins_again(**case)
    one, all_at_once = Restarts(), Restarts()
    for stamp, row in zip(stamps.tolist(), rows.tolist()):
        one.add(stamp, tuple(row[:3]), tuple(row[3:]))
    for part in np.array_split(np.arange(len(stamps)), 7):
        all_at_once.add_all(stamps[part], rows[part])
    assert one.notes() == all_at_once.notes() and bool(one.notes()) == said
    if case == {}:
        (text,) = one.notes()
        assert "(0, 0) once, at stamp 1000000009.0 after 4.02 s" in text and "2.49 m away" in text


def test_what_is_said_of_leaps_and_restarts_ends_where_the_map_is_cleared():
    """Both stayed for ever, though what they spoke of was in no map any more."""
    stamps, rows = drive_that_begins_again()
    leap = rows.copy()
    leap[400:, 1] += 4.0
    for places, words in ((rows, "poses begin again"), (leap, "poses leap")):
        intake = Intake(IntakeSettings())
        feed(intake, by_stamp(*drive(start=1e9, seconds=14.0, rate=50.0)))
        for stamp, row in zip(stamps.tolist(), places.tolist()):
            intake.add_pose(stamp + 20_000_000_000, row[:3], row[3:])
        fields, _ = drive(start=1e9 + 20.0, seconds=14.0, rate=50.0)
        feed(intake, by_stamp(fields, []))
        drain(intake)
        assert [text for text in intake.warnings if text.startswith(words)], intake.warnings
        intake.forget_frames()
        assert not [text for text in intake.warnings if text.startswith(words)]

"""A frame that nobody named is that of the many: a stray message first decides nothing."""

import random

import numpy as np
import pytest
from intake_messages import (
    by_stamp,
    covariance_of,
    drain,
    drive,
    feed,
    field_message,
    odometry_message,
    tf_message,
)

from gp_mapping.intake import DropReason, Intake
from gp_mapping.intake.frames import FrameVote
from gp_mapping.settings.intake import IntakeSettings


def strays_among(messages, share: float, seed: int, first: int = 1):
    """Messages of both kinds in other frames: `first` of each in front, then a share of the stream."""
    chance, out = random.Random(seed), []
    for i in range(first):
        out += [
            odometry_message(0.001 * i, (50.0, 50.0, 0.0), frame="elsewhere"),
            field_message(0.001 * i, (0.0, 0.0, 90e-6), frame=""),
        ]
    for message in messages:
        out.append(message)
        if chance.random() < share:
            seconds = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec + 0.001
            out += [
                odometry_message(seconds, (50.0, 50.0, 0.0), frame="elsewhere"),
                field_message(seconds, (0.0, 0.0, 90e-6), frame=""),
            ]
    return out


@pytest.mark.parametrize("first, share", [(1, 0.0), (1, 0.1), (12, 0.1), (40, 0.0)])
def test_samples_are_those_of_the_many_alone(first, share):
    good = by_stamp(*drive(start=10.0, seconds=8.0))
    alone, mixed = Intake(), Intake()
    feed(alone, good)
    expected, breaks = drain(alone)
    messages = strays_among(good, share, seed=first, first=first)
    rows = []
    for i in range(0, len(messages), 7):  # as live, where samples are taken as they come
        feed(mixed, messages[i : i + 7])
        if mixed.take_restart():
            rows = []
        rows += drain(mixed, finish=False)[0].tolist()
    rows += drain(mixed)[0].tolist()
    assert not mixed.take_restart()
    np.testing.assert_array_equal(np.array(rows), expected)
    strays = sum(m.header.frame_id in ("elsewhere", "") for m in messages)
    assert sum(mixed.received.values()) == len(messages)
    assert (
        mixed.drops[DropReason.UNEXPECTED_FRAME] + mixed.drops[DropReason.POSE_UNEXPECTED_FRAME]
        == strays
    )
    assert mixed.frame == "odom" and mixed.samples == len(expected)
    assert any("most are in 'odom'" in text for text in mixed.warnings) and breaks == []


def test_a_time_jump_is_taken_in_again_with_the_messages_around_it():
    """The clock was set among the kept messages: their pass ends there, as in the frame of the many alone."""
    first, then = by_stamp(*drive(start=10.0, seconds=1.0)), by_stamp(*drive(start=10.2))
    alone, mixed = Intake(IntakeSettings(odometry_frame="odom")), Intake()
    strays = [odometry_message(9.0 + 0.01 * i, frame="elsewhere") for i in range(12)]
    for intake in (alone, mixed):
        feed(intake, strays + first)
        intake.time_jump()
        feed(intake, then)
    assert mixed.frame == "odom"
    found, expected = drain(mixed), drain(alone)
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1] == expected[1] == [50]


@pytest.mark.parametrize("names", [16, 300])
def test_a_name_for_each_stray_message_keeps_out_no_majority(names):
    """One stray message with a name of its own before each good one, and more than can be counted in front."""
    good = by_stamp(*drive(start=10.0, seconds=3.0))
    messages = [odometry_message(9.0 + 0.01 * i, frame=f"front {i}") for i in range(20)]
    for i, message in enumerate(good):
        messages += [odometry_message(9.3 + 0.001 * i, frame=f"stray {i % names}"), message]
    alone, mixed = Intake(), Intake()
    feed(alone, good)
    feed(mixed, messages)
    np.testing.assert_array_equal(drain(mixed)[0], drain(alone)[0])
    assert mixed.frame == "odom" and mixed.samples == 150
    assert any("most are in 'odom'" in text for text in mixed.warnings)


def test_no_frame_wins_by_what_others_lose():
    """The expected frame keeps all its votes, however many names come; a half as many messages is no majority."""
    vote = FrameVote()
    for i in range(200):
        vote.count_and_check("odom")
        for k in range(5):
            vote.count_and_check(f"stray {5 * i + k}")
        if i % 2:
            vote.count_and_check("other")
    assert vote.winner is None and vote.frame == "odom" and vote.is_established("odom")


def test_a_named_frame_holds_and_so_does_that_of_a_map():
    for intake in (Intake(IntakeSettings(odometry_frame="here")), Intake()):
        intake.expect("here")
        feed(intake, by_stamp(*drive()))
        assert intake.frame == "here" and len(drain(intake)[0]) == 0
        assert intake.drops[DropReason.POSE_UNEXPECTED_FRAME] == 41


def test_a_late_majority_wins_while_nothing_is_mapped_and_after_clear():
    """Poses of the one frame for a minute, then those of another with measurements."""
    intake = Intake()
    feed(intake, [odometry_message(0.1 * i, frame="elsewhere") for i in range(600)])
    feed(intake, [odometry_message(100.0 + 0.05 * i) for i in range(1300)])
    feed(intake, by_stamp(*drive(start=200.0)))
    assert intake.frame == "odom" and len(drain(intake)[0]) == 100
    assert any("most are in 'odom'" in text for text in intake.warnings)

    other = [odometry_message(300.0 + 0.05 * i, frame="elsewhere") for i in range(30)]
    feed(intake, other)
    assert intake.frame == "odom"  # the map has samples in it
    intake.forget_frames()
    feed(intake, [odometry_message(310.0 + 0.05 * i, frame="elsewhere") for i in range(30)])
    assert intake.frame == "elsewhere"


def test_names_from_outside_are_cut_and_a_thousand_frames_are_counted():
    intake = Intake()
    feed(intake, [odometry_message(0.01 * i, frame=f"frame {i}") for i in range(1000)])
    feed(intake, [odometry_message(20.0 + i, frame="x" * 10_000_000) for i in range(3)])
    assert all(len(text) < 500 for text in intake.warnings) and len(intake.warnings) == 3
    assert intake.received["odometry"] == 1003 == intake.drops[DropReason.POSE_UNEXPECTED_FRAME] + 1
    feed(intake, [odometry_message(30.0, frame="frame 0", covariance=covariance_of(1e4, 1e4))])
    assert any("poses are unsure" in text for text in intake.warnings), "they crowd out nothing"


@pytest.mark.parametrize("period, jitter", [(5.0, 0.0), (2.5, 0.3), (0.8, 0.1)])
def test_a_slow_sensor_drives_one_pass_however_its_topics_interleave(period, jitter):
    """Slower than pass_gap (2 s); a pause of an hour is one all the same."""
    chance = random.Random(5)
    stamps = [10.0 + period * (i + jitter * chance.random()) for i in range(30)]
    stamps += [stamps[-1] + 3600.0 + period * i for i in range(20)]
    fields = [field_message(t) for t in stamps]
    poses = [
        odometry_message(t - 0.02 + 0.04 * k, (0.1 * t, 0.0, 0.0)) for t in stamps for k in range(2)
    ]
    together, apart = (
        Intake(IntakeSettings(max_wait=3600.0)),
        Intake(IntakeSettings(max_wait=3600.0)),
    )
    feed(together, by_stamp(fields, poses))
    feed(apart, poses + fields)
    rows, breaks = drain(together)
    assert len(rows) == 50 and breaks == [30]
    assert drain(apart)[1] == [30]


def test_frames_of_tf_are_bounded_and_those_that_were_there_go_on():
    intake = Intake(IntakeSettings(pose_source="tf"))
    for i in range(3000):
        t = 10.0 + 0.01 * i
        intake.add_tf(
            tf_message(
                (t, "map", "base_link", (0.01 * i, 0.0, 0.0)), (t, "base_link", f"joint {i}")
            )
        )
        intake.add_measurement(field_message(t))
    intake.add_tf(tf_message((50.0, "base_link", "x" * 1_000_000)))
    assert intake.drops[DropReason.POSE_FRAMES_FULL] == 3000 - 1999 + 1
    assert len(drain(intake)[0]) == 3000 and all(len(text) < 3000 for text in intake.warnings)


def test_poses_of_two_bodies_are_said_once():
    """Two odometries on one topic have one frame, and their robots' points are not the same."""
    intake = Intake()
    feed(intake, [odometry_message(0.05 * i, child=f"body {i % 2}") for i in range(40)])
    feed(intake, [odometry_message(10.0 + 0.05 * i, child=f"body {i}") for i in range(40)])
    said = [text for text in intake.warnings if "child_frame_id" in text]
    assert said == [
        "poses are of 'body 0' and of 'body 1' (child_frame_id), which count as one: two sources on one topic, or "
        "two points of the robot? Remap one of them"
    ]

    intake = Intake()
    feed(
        intake, [odometry_message(0.05 * i, child=("", "/base", "base")[i % 3]) for i in range(40)]
    )
    assert intake.warnings == []


def test_a_map_that_goes_on_with_another_sensor_is_said():
    def warnings_after(*expected, clear=False):
        intake = Intake()
        intake.expect(*expected)
        if clear:
            intake.forget_frames()
        feed(intake, by_stamp(*drive()))
        return [text for text in intake.warnings if "sensor in frame" in text]

    (text,) = warnings_after("odom", "thermometer")
    assert "in frame 'thermometer', and what comes now is from 'magnetometer'" in text
    assert warnings_after("odom", "magnetometer") == [] == warnings_after("odom")
    assert warnings_after("odom", "thermometer", clear=True) == []


def test_names_that_come_once_take_no_memory_and_that_of_the_many_is_kept():
    """Sixteen names have room; one more costs each of them a vote."""
    vote = FrameVote()
    assert vote.count_and_check("stray")
    for _ in range(60):
        assert not vote.count_and_check("map")
    for i in range(500):
        assert not vote.count_and_check(f"other {i}")
        assert len(vote._votes) <= 17  # noqa: SLF001
    assert vote.winner == "map"

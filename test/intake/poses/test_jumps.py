"""Stamps that go back by just so much, transforms that come after what waits for them, and epochs of TF."""

import math
from types import SimpleNamespace as Namespace

import numpy as np
import pytest
from intake_messages import (
    by_stamp,
    drain,
    drive,
    feed,
    field_message,
    odometry_message,
    tf_message,
)

from gp_mapping.intake import DropReason, Intake, Missing, PoseBuffer, TfTree, Transform
from gp_mapping.intake.poses import tf_tree
from gp_mapping.intake.poses.tf_poses import TfPoses
from gp_mapping.settings.intake import IntakeSettings

NS = 10**9


@pytest.mark.parametrize(
    "back, reason", [(1.0, "out_of_order"), (0.02, "out_of_order"), (0.0, "repeated_stamp")]
)
def test_a_stamp_that_goes_back_by_just_jump_back_is_late_and_no_other_time(back, reason):
    fields, poses = drive(start=100.0, seconds=4.0)
    late = field_message(fields[150].header.stamp.sec, (0.0, 0.0, 9e-5))
    at = fields[150].header.stamp.sec * NS + fields[150].header.stamp.nanosec - round(back * NS)
    late.header.stamp = Namespace(sec=at // NS, nanosec=at % NS)
    intake = Intake(IntakeSettings(jump_back=1.0))
    feed(intake, [*by_stamp(fields[:151], poses[:62]), late])
    feed(intake, by_stamp(fields[151:], poses[62:]))
    rows, breaks = drain(intake)
    assert intake.drops.as_dict() == {reason: 1} and not breaks
    assert len(rows) == 200 and (np.diff(rows[:, 0]) > 0).all() and rows[:, 3].max() < 9e-5


@pytest.mark.parametrize(
    "strays",
    [
        [odometry_message(5e3, (7.0, 7.0, 0.0))],
        [field_message(5e3)],
        [field_message(101.95), field_message(102.0)],
        [odometry_message(101.9), odometry_message(102.0)],
    ],
)
def test_what_was_held_back_before_time_jumped_is_not_taken_after_it(strays):
    """A stamp that nothing has confirmed yet, after the jump there may be such ones; and what waits for older ones."""
    fields, poses = drive(start=5000.0, seconds=4.0)
    intake, alone = Intake(IntakeSettings()), Intake(IntakeSettings())
    feed(intake, [*by_stamp(*drive(start=100.0)), *strays])
    intake.time_jump()
    drain(intake, finish=False)
    dropped = sum(intake.drops.as_dict().values())
    for each in (intake, alone):
        feed(each, by_stamp(fields[1:], poses[2:]))
    np.testing.assert_array_equal(drain(intake)[0], drain(alone)[0])
    assert sum(intake.drops.as_dict().values()) == dropped + sum(alone.drops.as_dict().values())


def robot(seconds, x):
    return tf_message((seconds, "map", "odom"), (seconds, "odom", "base_link", (x, 0.0, 0.0)))


def test_what_waits_for_a_transform_has_its_pose_when_that_comes():
    intake = Intake(IntakeSettings(pose_source="tf"))
    intake.add_tf(robot(0.9, 1.0))
    intake.add_field(field_message(1.0))
    assert intake.take() is None and intake.waiting == 1
    intake.add_tf(robot(1.1, 3.0))
    assert intake.waiting == 0
    np.testing.assert_allclose(intake.take().x, [[2.0, 0.0]], atol=1e-9)


def test_a_stamp_that_leaps_is_taken_once_transforms_have_come_so_far():
    intake = Intake(IntakeSettings(pose_source="tf"))
    for k in range(10):
        intake.add_tf(robot(0.1 * k, 1.0))
        intake.add_field(field_message(0.1 * k))
    intake.add_field(field_message(50.05))
    assert intake.waiting == 1
    intake.add_tf(robot(50.0, 1.0))
    intake.add_tf(robot(50.1, 3.0))
    assert intake.waiting == 0
    rows, _ = drain(intake, finish=False)
    assert rows[-1, 0] == 50.05 and rows[-1, 1] == pytest.approx(2.0)


def tree(*messages) -> TfTree:
    out = TfTree(lambda: PoseBuffer(100, NS), NS)
    for message in messages:
        out.add(message)
    return out


def test_poses_of_a_tree_go_on_under_another_epoch_or_begin_anew():
    links = tree(robot(1.0, 1.0), robot(2.0, 2.0))
    poses = TfPoses("map", "base_link", links)
    assert poses.epoch == 0 and poses.newest == 2 * NS
    poses.move_to(3)
    assert poses.epoch == links.epoch == 3 and poses.newest == 2 * NS
    found = poses.find(3, round(1.5 * NS), False)
    assert found.before.position == pytest.approx((1.5, 0.0, 0.0)) and poses.problem is None
    assert poses.find(3, 3 * NS, False) is None
    assert poses.problem.text == (
        "TF 'map' to 'odom' has not come yet at stamp 3.000 s: its newest is of 2.000 s"
    )
    assert not poses.apart  # the links are there
    assert isinstance(poses.find(3, 3 * NS, True), DropReason)
    poses.restart(5)
    assert poses.epoch == links.epoch == 5 and poses.newest is None
    assert poses.find(5, round(1.5 * NS), False) is None


def test_poses_of_a_look_up_have_the_epoch_that_they_are_given():
    asked = []

    def look_up(target, source, stamp):
        asked.append((target, source, stamp))
        return (
            Missing("not yet") if stamp > 10 else Transform((1.0, 2.0, 3.0), (0.0, 0.0, 0.0, 1.0))
        )

    poses = TfPoses("map", "base", lookup=look_up)
    assert poses.newest is None and poses.find(0, 5, False).after.position == (1.0, 2.0, 3.0)
    assert poses.find(0, 11, False) is None and poses.problem.text == "not yet"
    assert poses.find(0, 11, True) is DropReason.NO_TRANSFORM
    poses.move_to(2)
    assert poses.epoch == 2 and poses.find(1, 11, False) is DropReason.NO_TRANSFORM
    assert poses.transform("a", "b", 11) is None and asked[-1] == ("a", "b", 11)
    poses.restart(4)
    assert poses.epoch == 4
    with pytest.raises(ValueError, match="need a tree, or a look-up"):
        TfPoses("map", "base").find(0, 5, False)


def test_so_many_frames_are_kept(monkeypatch):
    monkeypatch.setattr(tf_tree, "_FRAMES", 3)
    links = tree(tf_message(*((1.0, "map", f"f{i}") for i in range(4))))
    found = [links.lookup("map", f"f{i}", NS) for i in range(4)]
    assert [isinstance(each, Transform) for each in found] == [True, True, True, False]
    (text,) = links.warnings
    assert "more than 3 frames" in text
    links.add(tf_message((2.0, "map", "f2", (2.0, 0.0, 0.0))))
    assert links.lookup("map", "f2", 2 * NS).translation[0] == 2.0, "one that is known goes on"
    links.add(tf_message((0.0, "map", "s")), static=True)
    assert isinstance(links.lookup("map", "s", NS), Missing)


def test_links_that_jump_back_begin_another_time_and_those_that_have_not_go_on_in_the_old_one():
    links = tree(robot(100.0, 0.0), robot(101.0, 1.0))
    links.add(tf_message((100.0, "odom", "base_link", (7.0, 0.0, 0.0))))
    assert links.epoch == 0, "by just so much it is late"
    links.add(tf_message((10.0, "odom", "base_link", (9.0, 0.0, 0.0))))
    assert links.epoch == 1 and links.newest == 10 * NS
    links.add(tf_message((101.5, "map", "odom")))
    assert links.epoch == 1 and links.newest == 10 * NS, "that is still of the old time"
    assert isinstance(links.lookup("map", "base_link", 10 * NS, 1), Missing)
    links.add(tf_message((10.0, "map", "odom")))
    assert links.lookup("map", "base_link", 10 * NS, 1).translation[0] == 9.0
    old = links.lookup("map", "base_link", round(100.5 * NS), 0)
    assert old.translation[0] == pytest.approx(0.5)
    assert math.isclose(links.lookup("base_link", "map", 10 * NS).translation[0], -9.0)

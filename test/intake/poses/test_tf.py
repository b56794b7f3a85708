"""Poses and mountings from TF, with answers known by hand: never the inverse, never the latest."""

import math
from types import SimpleNamespace as Namespace

import numpy as np
import pytest
from intake_messages import drain, field_message, odometry_message, tf_message

from gp_mapping.intake import DropReason, Intake, Missing, PoseBuffer, TfTree, Transform
from gp_mapping.settings.intake import IntakeSettings

LEFT = (0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5))  # a quarter turn to the left
TF = {"pose_source": "tf"}


def tree(*messages, static=(), **options):
    out = TfTree(lambda: PoseBuffer(100, options.get("max_gap", 10**9)), 10**9)
    out.add(tf_message(*static), static=True)
    for message in messages:
        out.add(message)
    return out


def robot(seconds, odom=(0.0, 0.0, 0.0), base=(0.0, 0.0, 0.0), turn=(0.0, 0.0, 0.0, 1.0)):
    """map→odom and odom→base_link at a time."""
    return tf_message((seconds, "map", "odom", odom), (seconds, "odom", "base_link", base, turn))


IMU = (0.0, "base_link", "imu", (0.5, 0.0, 0.2), LEFT)


def test_the_pose_of_a_sensor_through_the_whole_chain():
    """odom lies at (10, 20) in the map, turned left; the robot is 3 m ahead in it, the sensor .5 m ahead of that."""
    out = tree(
        tf_message(
            (1.0, "map", "odom", (10.0, 20.0, 0.0), LEFT),
            (1.0, "odom", "base_link", (3.0, 0.0, 0.0)),
        ),
        static=[IMU],
    )
    found = out.lookup("map", "imu", 10**9)
    np.testing.assert_allclose(found.translation, (10.0, 23.5, 0.2), atol=1e-12)
    np.testing.assert_allclose(
        found.rotation, (0.0, 0.0, 1.0, 0.0), atol=1e-12
    )  # two quarter turns
    np.testing.assert_allclose(
        out.lookup("map", "base_link", 10**9).translation, (10.0, 23.0, 0.0), atol=1e-12
    )
    np.testing.assert_allclose(
        out.lookup("base_link", "map", 10**9).translation, (-23.0, 10.0, 0.0), atol=1e-12
    )
    np.testing.assert_allclose(
        out.lookup("imu", "base_link", 5 * 10**9).translation, (0.0, 0.5, -0.2), atol=1e-12
    )
    assert out.lookup("odom", "odom", 0).translation == (0.0, 0.0, 0.0)


def test_each_link_is_interpolated_at_the_stamp_by_itself():
    """The links have stamps of their own: 1, 1.2 s and 1.05, 1.15 s."""
    out = tree(
        tf_message((1.0, "map", "odom", (0.0, 0.0, 0.0))),
        tf_message((1.2, "map", "odom", (2.0, 0.0, 0.0))),
        tf_message((1.05, "odom", "base_link", (0.0, 1.0, 0.0))),
        tf_message((1.15, "odom", "base_link", (0.0, 3.0, 0.0), LEFT)),
    )
    found = out.lookup("map", "base_link", 1_100_000_000)
    np.testing.assert_allclose(found.translation, (1.0, 2.0, 0.0), atol=1e-9)
    np.testing.assert_allclose(
        2 * math.atan2(found.rotation[2], found.rotation[3]), math.pi / 4, atol=1e-9
    )
    assert out.lookup("map", "base_link", 1_160_000_000).reason is None  # not known yet
    assert (
        out.lookup("map", "base_link", 1_160_000_000, last_chance=True).reason is DropReason.NO_POSE
    )
    assert (
        out.lookup("map", "base_link", 1_040_000_000).reason is DropReason.NO_POSE
    )  # before it began


def test_no_interpolation_across_a_gap_of_one_link():
    out = tree(
        robot(1.0),
        tf_message((1.4, "map", "odom"), (3.0, "odom", "base_link")),
        tf_message((3.0, "map", "odom")),
        max_gap=500_000_000,
    )
    assert out.lookup("map", "base_link", 1_200_000_000).reason is DropReason.POSE_GAP


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (3.0, "is not known at stamp 3.000 s: it ends at 2.500 s"),
        (0.5, "is not known at stamp 0.500 s: it begins at 1.000 s"),
        (
            2.0,
            "is not known at stamp 2.000 s: the transforms around it are more than max_pose_gap apart",
        ),
    ],
)
def test_a_stamp_without_transform_is_said_with_what_there_is(asked, why):
    out = tree(tf_message((1.0, "odom", "base_link")), tf_message((2.5, "odom", "base_link")))
    found = out.lookup("odom", "base_link", round(asked * 10**9), last_chance=True)
    assert found.linked and found.text == f"TF 'odom' to 'base_link' {why}"


def test_transforms_of_another_clock_are_no_missing_link():
    """Frames are connected: what is wrong is the time, and the two clocks are said."""
    intake = Intake(IntakeSettings(**TF, odometry_frame="odom"))
    for i in range(100):
        intake.add_measurement(field_message(1000.0 + 0.1 * i))
        intake.add_tf(tf_message((5.0 + 0.1 * i, "odom", "base_link", (0.1 * i, 0.0, 0.0))))
    assert len(drain(intake)[0]) == 0
    assert intake.drops.as_dict() == {"no_pose": 100}
    assert intake.warnings[0].startswith(
        "measurements are stamped from 1000.0 to 1009.9 s and poses from 5.0 to 14.9 s, 985.1 s apart"
    )


def test_what_is_not_connected_is_said_with_the_frames_that_are():
    out = tree(tf_message((1.0, "odom", "base_link")), static=[IMU])
    found = out.lookup("map", "imu", 10**9)
    assert (
        found.reason is None
        and "'map' and 'imu'" in found.text
        and "'base_link', 'imu', 'odom'" in found.text
    )
    assert out.lookup("map", "imu", 10**9, last_chance=True).reason is DropReason.NO_TRANSFORM
    loop = tree(tf_message((1.0, "a", "b"), (1.0, "b", "a")))
    assert isinstance(loop.lookup("a", "map", 10**9), Missing)  # it ends


def test_slashes_of_older_drivers_do_not_matter():
    assert isinstance(
        tree(tf_message((1.0, "/map", "/base_link"))).lookup("/map", "base_link", 10**9), Transform
    )


def test_two_parents_of_one_frame_are_reported():
    out = tree(tf_message((1.0, "map", "base_link")), tf_message((1.1, "odom", "base_link")))
    assert "'base_link' was below 'map' and is now below 'odom'" in out.warnings[0]
    links = [
        (t, parent, f"link{i}") for t, parent in ((1.0, "map"), (1.1, "odom")) for i in range(12)
    ]
    many = tree(*map(tf_message, links))
    assert len(many.warnings) == 10


def test_a_transform_the_wrong_way_round_is_left_out_and_said():
    """It made a map of both: the chain went up the one and down the other."""
    intake = Intake(IntakeSettings(**TF, odometry_frame="odom"))
    wrong = {2: ("base_link", "odom"), 5: ("odom", "odom"), 7: ("imu", "odom")}
    intake.add_tf(tf_message(IMU), static=True)
    for i in range(20):
        stamp = 1.0 + 0.1 * i
        links = [(stamp, "odom", "base_link", (0.1 * i, 0.0, 0.0))]
        if i in wrong:
            links.append((stamp, *wrong[i], (-0.1 * i, 0.0, 0.0)))
        intake.add_tf(tf_message(*links))
        intake.add_measurement(field_message(stamp))
    np.testing.assert_allclose(drain(intake)[0][:, 1], 0.1 * np.arange(20), atol=1e-9)
    assert intake.drops.as_dict() == {"pose_frames_loop": 3}
    assert [text.partition(",")[0] for text in intake.warnings] == [
        "TF: 'odom' is above 'base_link'",
        "TF: 'odom' is above 'odom'",
        "TF: 'odom' is above 'imu'",
    ]


def test_links_that_nobody_asks_for_take_little_memory():
    out = TfTree(lambda: PoseBuffer(5000), 10**9)
    for i in range(6000):
        out.add(tf_message((i / 100, "map", "base_link"), (i / 100, "base_link", "wheel")))
        if i == 10:
            out.lookup("map", "base_link", 50_000_000)
    sizes = {child: len(link.transforms) for child, link in out._moving[0].items()}
    assert sizes["base_link"] == 6000 and sizes["wheel"] <= 1000


def settle(intake, messages, finish=True):
    for message in messages:
        if hasattr(message, "transforms"):
            intake.add_tf(message)
        elif hasattr(message, "pose"):
            intake.add_pose_message(message)
        else:
            intake.add_measurement(message)
    return drain(intake, finish)


def test_samples_lie_where_the_sensor_was_at_their_stamp():
    """1 m/s along odom's x, which is the map's y; the field's y axis in the map is the sensor's x turned twice."""
    intake = Intake(IntakeSettings(**TF, mounting="tf", field_component="x"))
    intake.add_tf(
        tf_message((0.0, "base_link", "magnetometer", (0.5, 0.0, 0.2), LEFT)), static=True
    )
    for i in range(5):
        intake.add_tf(tf_message((i / 10, "map", "odom", (10.0, 20.0, 0.0), LEFT)))
        intake.add_tf(tf_message((i / 10, "odom", "base_link", (i / 10, 0.0, 0.0))))
    intake.add_measurement(field_message(0.25, (3e-6, 1e-6, 2e-6)))
    samples = intake.take()
    np.testing.assert_allclose(samples.x, [[10.0, 20.75]], atol=1e-9)
    np.testing.assert_allclose(samples.heading, [[0.0, 1.0]], atol=1e-9)
    np.testing.assert_allclose(samples.y, [[-3e-6]], rtol=1e-9)
    assert samples.position_variance is None and intake.drops.total == 0 and intake.frame == "map"


def test_the_pose_at_the_stamp_counts_when_the_localiser_jumps():
    """map→odom moves by 5 m between 1.0 and 1.1 s: earlier samples stay, later ones are 5 m on."""
    messages = []
    for i in range(21):
        t = i / 10
        messages += [
            robot(t, (0.0 if t <= 1.0 else 5.0, 0.0, 0.0), (t, 0.0, 0.0)),
            field_message(t + 0.001),
        ]
    rows, breaks = settle(Intake(IntakeSettings(**TF)), messages)
    expected = rows[:, 0] + np.interp(rows[:, 0], [1.0, 1.1], [0.0, 5.0])
    np.testing.assert_allclose(rows[:, 1], expected, atol=1e-9)
    assert len(rows) == 20 and not breaks  # the last has no pose after it


def looped():
    first = [
        (robot(100 + i / 10, base=(i / 10, 0.0, 0.0)), field_message(100.05 + i / 10))
        for i in range(20)
    ]
    second = [
        (robot(10 + i / 10, base=(0.0, i / 10, 0.0)), field_message(10.05 + i / 10))
        for i in range(20)
    ]
    return first, second


@pytest.mark.parametrize("order", ["bag", "tf first", "measurements first"])
def test_a_bag_that_loops_whatever_topic_jumps_first(order):
    """Three publishers: measurements, map→odom, odom→base_link, one of which is late by half a second at the jump."""
    first, second = looped()
    messages = [m for pair in first for m in pair]
    tf, fields = zip(*second)
    messages += {
        "bag": [m for pair in second for m in pair],
        "tf first": [*tf[:5], *fields, *tf[5:]],
        "measurements first": [*fields, *tf],
    }[order]
    intake = Intake(IntakeSettings(**TF))
    rows, breaks = settle(intake, messages)
    np.testing.assert_allclose(rows[:19, 1], np.arange(19) / 10 + 0.05, atol=1e-9)
    np.testing.assert_allclose(rows[19:, 2], np.arange(19) / 10 + 0.05, atol=1e-9)
    assert breaks == [19] and intake.drops.as_dict() == {"time_jump": 1, "no_pose": 1}


def test_a_link_that_has_not_made_the_jump_yet_belongs_to_the_old_time():
    out = tree(
        robot(100.0),
        robot(100.1),
        tf_message((10.0, "odom", "base_link")),
        tf_message((100.2, "map", "odom", (7.0, 0.0, 0.0))),
        tf_message((10.0, "map", "odom")),
    )
    assert out.epoch == 1 and isinstance(out.lookup("map", "base_link", 10 * 10**9), Transform)
    assert isinstance(out.lookup("map", "base_link", 100_100_000_000, epoch=0), Transform)


@pytest.mark.parametrize("mend", [1e9, 0.05])
def test_one_wrong_stamp_in_tf_does_not_stop_the_map(mend):
    messages = [
        m
        for i in range(10, 50)
        for m in (robot(i / 10, base=(i / 10, 0, 0)), field_message(i / 10 + 0.05))
    ]
    messages[20] = robot(mend)
    intake = Intake(IntakeSettings(**TF))
    rows, _ = settle(intake, messages)
    assert len(rows) >= 35 and len(rows) + intake.drops.measurements == 40


def test_missing_tf_is_a_drop_with_a_reason_and_a_warning():
    intake = Intake(IntakeSettings(**TF, max_wait=0.5))
    rows, _ = settle(
        intake,
        [
            m
            for i in range(20)
            for m in (tf_message((i / 10, "odom", "base_link")), field_message(i / 10))
        ],
    )
    assert len(rows) == 0 and intake.drops.as_dict() == {"no_transform": 20}
    assert "does not connect 'map' and 'base_link'" in intake.warnings[-1]
    assert "/tf_static" in intake.drops.explain()[0]


def test_a_link_that_stops_is_named_once_a_measurement_has_waited_in_vain():
    """It was one of poses that are not published, while the other link went on."""
    intake = Intake(IntakeSettings(**TF, max_wait=0.5))
    settle(intake, [m for i in range(20) for m in (robot(i / 10), field_message(i / 10))], False)
    assert intake.samples and not intake.warnings

    def goes_on(first, last):
        for i in range(first, last):
            intake.add_tf(tf_message((i / 10, "odom", "base_link")))
            intake.add_measurement(field_message(i / 10))

    goes_on(20, 24)
    assert not intake.warnings and not intake.drops.measurements  # each waits for its turn
    goes_on(24, 30)
    assert intake.drops.as_dict() == {"no_pose": 4}
    assert "TF 'map' to 'odom' has not come yet at stamp" in intake.warnings[-1]
    assert "its newest is of 1.900 s" in intake.warnings[-1]
    settle(
        intake, [m for i in range(30, 32) for m in (robot(i / 10), field_message(i / 10))], False
    )
    intake.add_measurement(field_message(3.2))  # waits as any other
    assert not any("TF" in text for text in intake.warnings)


def test_bad_transforms_are_counted_where_they_matter():
    intake = Intake(IntakeSettings(**TF))
    settle(intake, [robot(0.0), robot(0.1), field_message(0.05)], finish=False)
    settle(
        intake,
        [
            robot(0.1),
            tf_message((0.2, "odom", "base_link", (np.nan, 0, 0))),
            tf_message((0.2, "base_link", "wheel"), (0.2, "base_link", "wheel")),
            tf_message((0.2, "odom", "base_link", (0, 0, 0), (0.0,) * 4)),
        ],
    )
    assert intake.drops.as_dict() == {
        "pose_not_finite": 1,
        "pose_zero_quaternion": 1,
        "pose_repeated_stamp": 2,
    }


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(
    "content, reason",
    [
        (((2e5, 0.0, 0.0),), "pose_out_of_range"),
        (((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1e6)), "pose_bad_quaternion"),
        (((math.inf, 0.0, 0.0),), "pose_not_finite"),
        (((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)), "pose_zero_quaternion"),
    ],
)
def test_a_link_of_which_no_transform_can_be_used_is_counted(static, content, reason):
    """No look-up ever uses it, for it is never there; the setting bounds links of both kinds."""
    intake = Intake(IntakeSettings(**TF, max_position=1e5))
    for i in range(20):
        intake.add_tf(tf_message((i / 10, "map", "odom")))
        intake.add_tf(tf_message((i / 10, "odom", "base_link", *content)), static=static)
        intake.add_measurement(field_message(i / 10))
    assert len(drain(intake)[0]) == 0
    assert intake.drops.as_dict() == {"no_transform": 20, reason: 20}


def test_mounting_from_tf_with_poses_from_odometry():
    """The base frame is the one that odometry names."""
    intake = Intake(IntakeSettings(mounting="tf"))
    settle(
        intake,
        [odometry_message(0.0, (1.0, 2.0, 0.0), LEFT, child="body"), field_message(0.0)],
        finish=False,
    )
    assert (
        intake.take() is None
        and intake.waiting == 1
        and "'body' and 'magnetometer'" in intake.warnings[0]
    )
    intake.add_tf(tf_message((0.0, "body", "magnetometer", (0.5, 0.1, 0.0))), static=True)
    np.testing.assert_allclose(intake.take().x, [[1.0 - 0.1, 2.5]], atol=1e-12)
    assert intake.warnings == [] and intake.received == {
        "magnetic_field": 1,
        "odometry": 1,
        "tf": 1,
    }


def test_an_injected_look_up_stands_in_for_the_tree():
    """What a node does with tf2: not yet, then known; a failure for good is counted."""
    known, calls = {}, []

    def lookup(target, source, stamp):
        calls.append((target, source))
        return known.get(stamp, Missing("waiting for TF"))

    intake = Intake(IntakeSettings(**TF, base_frame="body", odometry_frame="world"), lookup)
    intake.add_measurement(field_message(1.0))
    assert intake.take() is None and intake.warnings == ["waiting for TF"]
    known[10**9] = Transform((1.0, 2.0, 0.0), LEFT)
    intake.poll()
    samples = intake.take()
    np.testing.assert_allclose(samples.x, [[1.0, 2.0]])
    np.testing.assert_allclose(samples.heading, [[0.0, 1.0]], atol=1e-12)
    assert set(calls) == {("world", "body")} and intake.warnings == []
    known[2 * 10**9] = Missing("too old", DropReason.NO_POSE)
    intake.add_measurement(field_message(2.0))
    assert intake.drops.as_dict() == {"no_pose": 1} and intake.warnings == ["too old"]
    with pytest.raises(ValueError, match="look-up was given"):
        intake.add_tf(Namespace(transforms=[]))


@pytest.mark.parametrize(("frames", "more"), [(20, ""), (21, ", 1 more"), (22, ", 2 more")])
def test_twenty_frames_are_named_and_the_others_counted(frames, more):
    out = tree(tf_message(*((1.0, "f00", f"f{i:02d}") for i in range(1, frames))))
    text = out.lookup("map", "imu", 10**9).text
    assert text.endswith(f"'f19'{more}") and text.count("'f") == 20

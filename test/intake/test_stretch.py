"""A stretch of messages paired at once: the same as one by one, and what of it is out of the ordinary."""

import numpy as np
import pytest
from intake_messages import drain, field_message, odometry_message

from gp_mapping.intake import DropReason, Intake, PoseBuffer
from gp_mapping.intake.columns import Columns, Stream
from gp_mapping.intake.poses.buffer import Between
from gp_mapping.intake.stretch import RECENT_STEPS, PoseRows, longest_pause
from gp_mapping.settings.intake import IntakeSettings

NS = 10**9


def wandering(n: int = 40) -> PoseRows:
    """Poses about every .1 s, turned about all axes, each with a variance of its own."""
    rng = np.random.default_rng(0)
    quaternions = rng.normal(size=(n, 4))
    rows = np.hstack([rng.normal(size=(n, 3)), quaternions / np.linalg.norm(quaternions, axis=1)[:, None]])
    return PoseRows(NS * 10**9 + np.cumsum(rng.integers(8 * 10**7, 12 * 10**7, n)), rows, rng.random(n))


def test_between_poses_of_a_stretch_is_as_between_those_of_the_buffer():
    poses, buffer = wandering(), PoseBuffer(50)
    assert [buffer.append(pose) for pose in poses.poses()] == [None] * 40
    assert buffer.since(int(poses.stamps[30])) == poses.poses()[29:]
    assert buffer.since(int(poses.stamps[30]) + 1) == poses.poses()[30:] and not buffer.since(int(poses.stamps[0]))
    rng = np.random.default_rng(1)
    stamps = np.sort(np.append(rng.integers(poses.stamps[0], poses.stamps[-1], 100), poses.stamps[[0, 7, 39]]))
    after = np.searchsorted(poses.stamps, stamps)
    before = np.where(poses.stamps[after] == stamps, after, after - 1)
    together = poses.between(stamps, before, after)
    alone = Between.of([buffer.bracket(int(stamp)) for stamp in stamps], stamps.tolist())
    (x, turned), (want, want_turned) = together.interpolate(), alone.interpolate()
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(turned.as_quat(), want_turned.as_quat())
    np.testing.assert_array_equal(together.variance, alone.variance)
    assert np.ptp(together.variance) > 0.1


def test_poses_of_a_stretch_go_on_after_those_that_came_one_by_one():
    poses = wandering()
    both = poses.at(np.arange(3, 40)).after(poses.poses()[:3])
    for mine, all_ in zip(both, poses):
        np.testing.assert_array_equal(mine, all_)
    metres = np.linalg.norm(np.diff(poses.rows[:, :3], axis=0), axis=1)
    fastest = (metres / (1e-9 * np.diff(poses.stamps)))[20:].max()
    assert not poses.too_fast(21, 1.001 * fastest) and poses.too_fast(21, 0.999 * fastest)
    assert not poses.too_fast(1, 0.0)


def test_a_pause_is_four_periods_of_a_sensor_that_is_slower_than_the_gap():
    gap = NS // 2
    assert longest_pause([], gap) == (gap, False)
    assert longest_pause([gap // 5] * 8 + [NS] * 7, gap) == (gap, False)
    assert longest_pause([gap // 5] * 7 + [NS] * 8, gap) == (4 * NS, True)
    assert longest_pause([NS] * (RECENT_STEPS - 1), gap) == (4 * NS, False), "a few steps may be pauses"
    assert longest_pause([gap] * RECENT_STEPS, gap) == (4 * gap, False), "a period of just the gap is no pause"


def columns(messages, names: dict) -> Columns:
    """Of messages: name of a field -> what of a message it holds."""
    kind = [(name, float, np.shape(read(messages[0]))) for name, read in names.items()]
    rows = np.array([tuple(read(message) for read in names.values()) for message in messages], kind)
    return Columns(rows, {"header.frame_id": messages[0].header.frame_id, "child_frame_id": "base_link"})


def stamp_of(name: str):
    return lambda message: getattr(message.header.stamp, name)


@pytest.mark.parametrize("cut", [40, 100])
def test_a_stretch_at_once_gives_what_its_messages_give(cut):
    """The first messages one by one, for they decide on frames; a measurement without number among those at once."""
    fields = [field_message(0.02 * i + 0.013, (3e-5, 1e-7 * i, np.nan if i == 150 else 4e-5)) for i in range(200)]
    poses = [odometry_message(0.1 * i, (0.03 * i, 0.1 * np.sin(i), 0.0)) for i in range(42)]
    order = sorted([*fields, *poses], key=lambda m: m.header.stamp.sec + 1e-9 * m.header.stamp.nanosec)

    def fed(messages):
        intake = Intake(IntakeSettings())
        for message in messages:
            (intake.add_odometry if hasattr(message, "pose") else intake.add_measurement)(message)
        intake.settle()
        return intake

    alone, intake = fed(order), fed(order[:cut])
    expected, _ = drain(alone)
    first, _ = drain(intake, finish=False)
    stamps = {"header.stamp.sec": stamp_of("sec"), "header.stamp.nanosec": stamp_of("nanosec")}
    number = {f"pose.pose.position.{a}": lambda m, a=a: getattr(m.pose.pose.position, a) for a in "xyz"} \
        | {f"pose.pose.orientation.{a}": lambda m, a=a: getattr(m.pose.pose.orientation, a) for a in "xyzw"} \
        | {"pose.covariance": lambda m: m.pose.covariance}
    field = {f"magnetic_field.{a}": lambda m, a=a: getattr(m.magnetic_field, a) for a in "xyz"} \
        | {"magnetic_field_covariance": lambda m: m.magnetic_field_covariance}
    streams = []
    for wanted, names in ((False, field), (True, number)):
        where = np.array([i for i, m in enumerate(order) if i >= cut and hasattr(m, "pose") == wanted])
        streams.append(Stream(where, where, columns([order[i] for i in where], stamps | names)))
    taken = intake.take_together(*streams)
    rows = [np.column_stack([s.stamp, s.x, s.y]) for _, s in taken]
    np.testing.assert_array_equal(np.vstack([first, *rows, *drain(intake)[:1]]), expected)
    assert len(expected) == 199 and intake.drops.as_dict() == alone.drops.as_dict()
    assert intake.drops.as_dict() == {DropReason.NOT_FINITE.value: 1}

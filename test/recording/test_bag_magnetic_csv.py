import numpy as np
import pytest
import torch
from recordings import invensense

from gp_mapping.intake import Intake
from gp_mapping.recording.bag import MAGNETIC_FIELD, ODOMETRY, read_messages
from gp_mapping.recording.magnetic_csv import (
    BASE_EPOCH,
    RecordingError,
    available_trials,
    motion,
    read_trial,
    write_trials,
)
from gp_mapping.recording.replay import plan_bags, samples_of
from gp_mapping.settings.intake import IntakeSettings


def write_csv(folder, name="1", n=100, speed=0.2, **changes):
    """A drive to the north-east at a steady speed."""
    t = 5.0 + 0.02 * np.arange(n)
    tables = {
        "time": t[:, None],
        "loc": speed * np.sqrt(0.5) * (t - 5.0)[:, None] * [1.0, 1.0],
        "mag": np.tile([30.0, 0.0, 40.0], (n, 1)),
    }
    tables.update(changes)
    for part, table in tables.items():
        np.savetxt(folder / f"{name}-{part}.csv", table, delimiter=",", fmt="%.9g")
    return tables


def test_a_bag_carries_the_recording(tmp_path):
    write_csv(tmp_path)
    assert write_trials([read_trial(tmp_path, "1")], tmp_path / "bag", "sqlite3") == 200
    messages = [m for _, _, m in read_messages(tmp_path / "bag")]
    fields = [m for m in messages if m.__msgtype__ == MAGNETIC_FIELD]
    poses = [m for m in messages if m.__msgtype__ == ODOMETRY]
    assert len(fields) == len(poses) == 100
    assert fields[0].header.stamp.sec == BASE_EPOCH + 5
    assert [m.header.stamp.nanosec for m in fields[:4]] == [0, 20_000_000, 40_000_000, 60_000_000]
    v = fields[7].magnetic_field
    # 30 µT along the map's x are ahead and to the right of a robot that drives to the north-east
    ahead = 30e-6 * np.sqrt(0.5)
    np.testing.assert_allclose([v.x, v.y, v.z], [ahead, -ahead, 40e-6], rtol=1e-6)
    assert (fields[0].header.frame_id, poses[0].header.frame_id, poses[0].child_frame_id) == (
        "magnetometer",
        "odom",
        "base_link",
    )
    for pose in poses:
        q = pose.pose.pose.orientation
        np.testing.assert_allclose(
            [q.x, q.y, q.z, q.w], [0, 0, np.sin(np.pi / 8), np.cos(np.pi / 8)], atol=1e-6
        )
        np.testing.assert_allclose(
            [pose.twist.twist.linear.x, pose.twist.twist.angular.z], [0.2, 0.0], atol=1e-6
        )
        assert np.reshape(pose.pose.covariance, (6, 6)).diagonal().min() > 0


def components(bag):
    """(N, 3) T in the map's axes, as any command reads a bag with nothing else set."""
    intake = Intake(IntakeSettings(field_component="xyz"))
    plans = plan_bags([bag], intake.settings, {"measurement": None, "pose": None})
    return torch.cat([s.y for _, s in samples_of(plans, intake, "", shown=False)]).numpy()


def test_the_components_of_a_robot_that_turns_are_the_recordings_own(tmp_path):
    """A field along the map's x, round a circle: not one that turns with the robot."""
    angle = 0.1 * np.arange(100)
    write_csv(tmp_path, loc=np.stack([np.sin(angle), -np.cos(angle)], 1))
    trial = read_trial(tmp_path, "1")
    write_trials([trial], tmp_path / "bag")
    found = components(tmp_path / "bag")
    assert len(found) == 100
    np.testing.assert_allclose(found, trial.field, atol=1e-15)


def test_trials_follow_each_other_with_a_gap(tmp_path):
    write_csv(tmp_path, "1")
    write_csv(tmp_path, "2")
    write_trials([read_trial(tmp_path, "2"), read_trial(tmp_path, "1")], tmp_path / "bag", gap=60.0)
    stamps = np.array([s for t, s, _ in read_messages(tmp_path / "bag") if t == "/odometry"])
    steps = np.diff(stamps)
    assert steps[99] == 60 * 10**9 and (np.delete(steps, 99) == 20_000_000).all()


def test_the_same_recording_gives_the_same_messages(tmp_path):
    write_csv(tmp_path)
    for name in ("a", "b"):
        write_trials([read_trial(tmp_path, "1")], tmp_path / name, "mcap")
    assert repr(list(read_messages(tmp_path / "a"))) == repr(list(read_messages(tmp_path / "b")))


def test_rows_that_are_not_finite_are_left_out_and_counted(tmp_path):
    tables = write_csv(tmp_path)
    tables["loc"][3, 1] = np.nan
    tables["mag"][50, 2] = np.inf
    tables["mag"][3, 0] = np.nan
    write_csv(tmp_path, **tables)
    trial = read_trial(tmp_path, "1")
    assert trial.skipped == 2 and len(trial.time) == 98 and np.isfinite(trial.field).all()


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"mag": np.zeros((99, 3))}, "100 rows of time, 100 of loc and 99 of mag"),
        ({"mag": np.zeros((100, 2))}, "2 columns, expected 3"),
        ({"loc": np.zeros((100, 1))}, "1 columns, expected 2 or 3"),
        (
            {"time": np.r_[np.arange(50), np.arange(50)][:, None]},
            r"time does not grow at row 51 \(49.0 s, then 0.0 s\)",
        ),
        ({"time": np.zeros((100, 1))}, "time does not grow at row 2"),
        ({"mag": np.full((100, 3), np.nan)}, "no row without a NaN"),
    ],
)
def test_tables_that_do_not_fit(tmp_path, changes, text):
    write_csv(tmp_path, **changes)
    with pytest.raises(RecordingError, match=text):
        read_trial(tmp_path, "1")


def test_files_that_do_not_fit(tmp_path):
    with pytest.raises(RecordingError, match="no such folder"):
        read_trial(tmp_path / "absent", "1")
    write_csv(tmp_path, "1")
    with pytest.raises(RecordingError, match=r"7-time\.csv: no such file; trials in .*: 1"):
        read_trial(tmp_path, "7")
    (tmp_path / "1-mag.csv").write_text("x,y,z\n1,2,3\n")
    with pytest.raises(RecordingError, match="no header"):
        read_trial(tmp_path, "1")
    (tmp_path / "1-mag.csv").write_text("")
    with pytest.raises(RecordingError, match="empty"):
        read_trial(tmp_path, "1")


def test_standing_still_keeps_the_direction():
    t = 0.02 * np.arange(300)
    position = np.stack([np.zeros(300), np.minimum(0.2 * t, 0.5), np.zeros(300)], 1)
    speed, yaw, rate = motion(t, position)
    assert speed[-1] == 0.0 and speed[20] == pytest.approx(0.2)
    np.testing.assert_allclose(yaw, np.pi / 2)
    np.testing.assert_allclose(rate, 0.0, atol=1e-12)
    np.testing.assert_array_equal(motion(t, position * 0), np.zeros((3, 300)))
    np.testing.assert_array_equal(motion(t[:1], position[:1]), np.zeros((3, 1)))


def test_the_real_recordings(tmp_path):
    folder = invensense()
    assert {"1", "2", "3", "4", "5"} <= set(available_trials(folder))
    trial = read_trial(folder, "4")
    assert len(trial.time) == 7332 and trial.skipped == 0
    write_trials([trial], tmp_path / "bag")
    field = components(tmp_path / "bag")
    np.testing.assert_allclose(
        field * 1e6, np.loadtxt(folder / "4-mag.csv", delimiter=","), atol=1e-9
    )
    assert 30e-6 < np.linalg.norm(field, axis=1).mean() < 60e-6

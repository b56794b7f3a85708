"""Recordings in the layout of AaltoML/magnetic-data, and their conversion to rosbag2 bags.

Trial K has the files K-time.csv, K-loc.csv and K-mag.csv. The field in K-mag.csv is in the axes of
K-loc.csv, not in the robot's; a bag's is in the robot's, as a magnetometer's messages are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gp_mapping.errors import UserError
from gp_mapping.recording.bag_writer import BagWriter

__all__ = ["RecordingError", "Trial", "available_trials", "read_trial", "write_trials"]

# s; the recordings count from their own start, and ROS tools dislike stamps near zero
BASE_EPOCH = 1_500_000_000
# s to either side for speed and direction: a position is good to 1 mm, its difference is not
_SMOOTHING = 0.25
_STANDING = 0.02  # m/s; below it the direction of travel is that of the moment before
# motion capture: 1 mm; heading from travel: about 6 degrees
_POSE_VARIANCE = (1e-6, 1e-6, 1e-6, 1e-4, 1e-4, 1e-2)
_TWIST_VARIANCE = (1e-4, 1e-4, 1e-4, 1e-2, 1e-2, 1e-2)


class RecordingError(UserError):
    """A recording that is absent or does not fit its layout.

    The text is one line and says what to do.
    """


@dataclass(frozen=True)
class Trial:
    """One drive.

    Attributes:
        name: K.
        time: (N,) s.
        position: (N, 3) m.
        field: (N, 3) T, in the axes of `position`.
        skipped: rows that were left out as not finite.
    """

    name: str
    time: np.ndarray
    position: np.ndarray
    field: np.ndarray
    skipped: int = 0


def available_trials(folder) -> list[str]:
    """Names K for which the folder has all three files: numbers first, in their order."""
    folder = Path(folder)
    names = {p.name[: -len("-time.csv")] for p in folder.glob("*-time.csv")}
    return sorted(
        (k for k in names if all((folder / f"{k}-{part}.csv").exists() for part in ("loc", "mag"))),
        key=lambda k: (not k.isdigit(), int(k) if k.isdigit() else 0, k),
    )


def _table(path: Path, columns: tuple[int, ...]) -> np.ndarray:
    """A file of numbers, with one of these numbers of columns."""
    try:
        if not path.stat().st_size:
            raise RecordingError(f"{path}: the file is empty")
        table = np.loadtxt(path, delimiter=",", ndmin=2)
    except FileNotFoundError:
        there = ", ".join(available_trials(path.parent)) or "none"
        raise RecordingError(f"{path}: no such file; trials in {path.parent}: {there}") from None
    except RecordingError:
        raise
    except (ValueError, OSError) as error:
        raise RecordingError(
            f"{path}: {' '.join(str(error).split())}; expected numbers with commas, no header"
        ) from None

    if table.shape[1] not in columns:
        raise RecordingError(
            f"{path}: {table.shape[1]} columns, expected {' or '.join(map(str, columns))}"
        )
    return table


def read_trial(folder, name: str, to_tesla: float = 1e-6) -> Trial:
    """Read a trial from its three files.

    Rows with a number that is not finite are left out and counted.

    Args:
        folder: of the files.
        name: K.
        to_tesla: one unit of K-mag.csv in tesla.

    Raises:
        RecordingError: a file is absent or has other columns than 1, 2 (or 3) and 3; the rows do
            not agree; time does not grow; nothing is left.
    """
    folder, name = Path(folder), str(name)
    if not folder.is_dir():
        raise RecordingError(
            f"{folder}: no such folder; expected one with K-time.csv, K-loc.csv, K-mag.csv"
        )

    time, loc, mag = (
        _table(folder / f"{name}-{part}.csv", columns)
        for part, columns in (("time", (1,)), ("loc", (2, 3)), ("mag", (3,)))
    )

    if not len(time) == len(loc) == len(mag):
        raise RecordingError(
            f"trial {name} in {folder}: {len(time)} rows of time, {len(loc)} of loc and {len(mag)} of "
            "mag; expected as many of each"
        )

    good = np.isfinite(np.hstack([time, loc, mag])).all(1)
    time, loc, mag = time[good, 0], loc[good], mag[good]
    if not len(time):
        raise RecordingError(f"trial {name} in {folder}: no row without a NaN")

    # by nanoseconds, as stamps are written
    back = np.flatnonzero(np.diff(np.round(time * 1e9)) <= 0)
    if len(back):
        # counted in the file, from 1
        row = int(np.flatnonzero(good)[back[0] + 1]) + 1
        raise RecordingError(
            f"{folder / f'{name}-time.csv'}: time does not grow at row {row} "
            f"({time[back[0]]} s, then {time[back[0] + 1]} s)"
        )

    position = np.zeros((len(loc), 3))
    position[:, : loc.shape[1]] = loc
    return Trial(name, time, position, mag * to_tesla, int((~good).sum()))


def motion(time: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Speed and direction of travel.

        v(t) = (p(t + h) − p(t − h)) / 2h, h = 0.25 s

    While the robot stands still, the direction is that of the moment before.

    Args:
        time: (N,) s.
        position: (N, 3) m.

    Returns:
        Speed (m/s), direction (yaw, rad) and rate of the direction (rad/s), each (N,).
    """
    n = len(time)
    if n < 2:
        return np.zeros(n), np.zeros(n), np.zeros(n)

    early, late = (
        np.clip(time - _SMOOTHING, time[0], time[-1]),
        np.clip(time + _SMOOTHING, time[0], time[-1]),
    )
    step = [
        np.interp(late, time, position[:, k]) - np.interp(early, time, position[:, k])
        for k in (0, 1)
    ]

    velocity = np.stack(step, 1) / (late - early)[:, None]
    speed = np.linalg.norm(velocity, axis=1)

    moving = np.flatnonzero(speed > _STANDING)
    if not len(moving):
        return speed, np.zeros(n), np.zeros(n)

    # number of the last moving row at or before each row
    latest = moving[np.clip(np.searchsorted(moving, np.arange(n), side="right") - 1, 0, None)]
    # unwrapped, so that its rate has no jumps of 2π
    yaw = np.unwrap(np.arctan2(velocity[latest, 1], velocity[latest, 0]))
    return speed, yaw, np.gradient(yaw, time)


def _in_body(field: np.ndarray, yaw: np.ndarray) -> np.ndarray:
    """Turn vectors (N, 3) from the map's axes into those of a robot that faces yaw (N,), rad."""
    c, s, (x, y, z) = np.cos(yaw), np.sin(yaw), field.T
    return np.stack([c * x + s * y, c * y - s * x, z], 1)


def write_trials(trials: list[Trial], path, storage: str = "mcap", gap: float = 60.0) -> int:
    """Write trials one after the other in time into a new bag.

    The orientation of a pose is the direction of travel, and the field is what a sensor with the
    robot's axes would say there: turned by the pose it is the recording's again. The stamps of the
    first trial are its own plus BASE_EPOCH. The same trials always give the same
    messages.

    Args:
        trials: in their order.
        path: of the bag.
        storage: sqlite3 or mcap.
        gap: time between two trials, s.

    Returns:
        The number of messages.
    """
    start, count = None, 0
    with BagWriter(path, storage) as bag:
        for trial in trials:
            # from the trial's own time to stamps, ns
            offset = BASE_EPOCH * 10**9 if start is None else start - round(trial.time[0] * 1e9)
            speed, yaw, rate = motion(trial.time, trial.position)
            field = _in_body(trial.field, yaw)

            for i, seconds in enumerate(trial.time):
                stamp = round(seconds * 1e9) + offset
                bag.odometry(
                    stamp,
                    trial.position[i],
                    (0.0, 0.0, np.sin(yaw[i] / 2), np.cos(yaw[i] / 2)),
                    (speed[i], 0.0, 0.0),
                    (0.0, 0.0, rate[i]),
                    pose_covariance=_POSE_VARIANCE,
                    twist_covariance=_TWIST_VARIANCE,
                )
                bag.magnetic_field(stamp, field[i])

            start = stamp + round(gap * 1e9)  # of the next trial
            count += 2 * len(trial.time)
    return count

"""Measurements with their poses -> Samples: where the sensor was, how it was turned, what it said."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from gp_mapping.core.types import Samples
from gp_mapping.intake.columns import Readings, reads_columns
from gp_mapping.intake.messages import Adaptor, Reading, sensor_rotation
from gp_mapping.intake.poses.buffer import Between, Bracket
from gp_mapping.intake.poses.transforms import Transform
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["Placed", "Placer"]


class Placed(NamedTuple):
    """A measurement that can be placed. mounting: T_base_sensor at its stamp; None: as the parameters say."""

    reading: Reading
    bracket: Bracket
    mounting: Transform | None
    new_pass: bool


class Placer:
    """Turns batches into Samples whose optional columns are there always or never.

    The rule: position_variance and heading are there where the settings ask for them and the source has them (the first
    pose decides on the orientation); an unknown position variance is 0. sensor_variance is there where the first
    measurement stated one; a later one that states none counts as 0, and one that states one too late is not used.
    Else the map would depend on how the stream is cut into batches.
    """

    def __init__(self, settings: IntakeSettings, adaptor: Adaptor):
        s = settings
        self._adaptor = adaptor
        self._offset = np.array([s.sensor_offset_x, s.sensor_offset_y, s.sensor_offset_z])
        self._turn = sensor_rotation(s)
        self._variance = s.use_pose_covariance and s.pose_source in (
            "odometry",
            "pose_with_covariance",
        )
        self._heading = s.use_heading
        self._needs_rotation = (
            bool(self._offset.any()) or adaptor.needs_rotation or s.mounting == "tf"
        )
        self._farthest = s.max_position
        self._states_noise: bool | None = None

    def place(self, batch: list[Placed], oriented: bool) -> Samples:
        """Positions of the sensor in the map frame: pose + R · lever arm. oriented: the poses have orientations.

        What cannot be placed (its numbers overflow once they are turned, or a pose is continued too far) is left out:
        fewer samples come out than measurements went in.
        Raises ValueError where an orientation is needed and there is none.
        """
        readings = [p.reading for p in batch]
        stamps = [r.stamp for r in readings]
        between = Between.of([p.bracket for p in batch], stamps)
        mounting = self._offset, self._turn
        frames = [p.mounting for p in batch if p.mounting is not None]  # of all of them, or of none
        if frames:
            mounting = (
                np.array([frame.translation for frame in frames]),
                Rotation.from_quat(np.array([frame.rotation for frame in frames])),
            )
        states = readings[0].covariance is not None
        return self._place(
            stamps, between, partial(self._adaptor.values, readings), states, oriented, mounting
        )

    def place_rows(self, stamps: np.ndarray, between: Between, readings: Readings) -> Samples:
        """As `place`, of poses with orientations and a sensor that sits where the parameters say. stamps: (N,) ns."""
        if not reads_columns(self._adaptor):
            raise ValueError(f"a {type(self._adaptor).__name__} does not read columns")
        values = partial(self._adaptor.values_of_rows, readings)
        return self._place(
            stamps.tolist(),
            between,
            values,
            bool(readings.known[0]),
            True,
            (self._offset, self._turn),
        )

    def _place(
        self,
        stamps: list[int],
        between: Between,
        values: Callable,
        states_noise: bool,
        oriented: bool,
        mounting: tuple[np.ndarray, Rotation],
    ) -> Samples:
        if self._states_noise is None:
            self._states_noise = states_noise
        if self._needs_rotation and not oriented:
            raise ValueError(
                "a lever arm or an axis of the field needs poses with orientation, and these have none"
            )

        positions, rotation = between.interpolate(
            oriented and (self._needs_rotation or self._heading)
        )
        offset, turn = mounting
        if offset.any():
            positions = positions + rotate(rotation, offset)

        with np.errstate(all="ignore"):  # what overflows is left out below
            y, noise = values(rotation * turn if self._adaptor.needs_rotation else None)
        columns = {"x": positions[:, :2], "y": y, "stamp": np.array([t / 1e9 for t in stamps])}
        if self._states_noise:
            columns["sensor_variance"] = noise
        if self._variance:
            columns["position_variance"] = between.variance
        if self._heading and oriented:
            columns["heading"] = _forward(rotation)

        good = np.abs(positions).max(1) <= self._farthest  # also False for NaN
        for column in columns.values():
            good &= np.isfinite(column.reshape(len(good), -1)).all(1)
        return Samples(**{name: column[good] for name, column in columns.items()})


def rotate(rotation: Rotation, vectors: np.ndarray) -> np.ndarray:
    """R v, (N, 3), of vectors (3,) or (N, 3): sums over each row by itself, so that no row depends on the others."""
    matrix, v = rotation.as_matrix(), np.broadcast_to(vectors, (len(rotation), 3))
    return sum(matrix[:, :, k] * v[:, k, None] for k in range(3))


def _forward(rotation: Rotation) -> np.ndarray:
    """(N, 2) unit vectors of the robot's x axis in the map's plane; zeros where it points straight up or down."""
    axis = rotation.as_matrix()[:, :2, 0]
    length = np.sqrt(axis[:, :1] ** 2 + axis[:, 1:] ** 2)
    return np.where(length > 1e-6, axis / np.maximum(length, 1e-6), 0.0)

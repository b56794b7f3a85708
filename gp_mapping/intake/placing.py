"""Makes Samples of measurements with their poses.

That is position and heading of the sensor, the value, and the variances that are known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from gp_mapping.core.types import Samples
from gp_mapping.intake.columns import Readings, reads_columns
from gp_mapping.intake.messages import Adaptor, Reading, sensor_rotation
from gp_mapping.intake.poses.buffer import Bracket, PosePairs
from gp_mapping.intake.poses.transforms import Transform
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["Placed", "Placer"]


class Placed(NamedTuple):
    """A measurement that can be placed.

    Attributes:
        reading: its numbers.
        bracket: the poses around its stamp.
        mounting: T_base_sensor at its stamp; None: as the settings say.
        new_pass: whether a pass begins with it.
    """

    reading: Reading
    bracket: Bracket
    mounting: Transform | None
    new_pass: bool


class Placer:
    """Turns batches into Samples whose optional columns are always there, or never.

    Otherwise the map would depend on how the stream is cut into batches. So:

    - position_variance and heading are there where the settings ask for them and the source has
      them (the first pose decides whether poses have orientations). An unknown position variance is
      0.
    - sensor_variance is always there. A measurement that states none gets 0, which means unknown:
      each says it for itself, so that no single one decides for the others.

    Args:
        settings: how the sensor sits on the robot, and which columns are asked for.
        adaptor: makes values of readings.

    Attributes:
        heights: of the samples that were placed last, (N,) m: samples lie in the plane.
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
        self.heights = np.empty(0)

    def place(self, batch: list[Placed], oriented: bool) -> Samples:
        """Place a batch: position of the sensor = pose + R · lever arm, in the map frame.

        What cannot be placed is left out (its numbers overflow once they are turned, or a pose is
        extrapolated too far), so that fewer samples may come out than measurements go in.

        Args:
            batch: measurements with their poses.
            oriented: whether the poses have orientations.

        Raises:
            ValueError: an orientation is needed and there is none.
        """
        readings = [p.reading for p in batch]
        stamps = [r.stamp for r in readings]
        between = PosePairs.from_brackets([p.bracket for p in batch], stamps)

        # as the settings say, unless TF says it for each measurement
        mounting = self._offset, self._turn
        frames = [p.mounting for p in batch if p.mounting is not None]  # all of them, or none
        if frames:
            mounting = (
                np.array([frame.translation for frame in frames]),
                Rotation.from_quat(np.array([frame.rotation for frame in frames])),
            )

        values = partial(self._adaptor.values, readings)
        return self._place(stamps, between, values, oriented, mounting)

    def place_rows(self, stamps: np.ndarray, between: PosePairs, readings: Readings) -> Samples:
        """Place rows as `place` does.

        Args:
            stamps: (N,) ns.
            between: the poses around them, with orientations.
            readings: N of them, of a sensor that sits where the settings say.

        Raises:
            ValueError: the adaptor does not read columns.
        """
        if not reads_columns(self._adaptor):
            raise ValueError(f"a {type(self._adaptor).__name__} does not read columns")

        values = partial(self._adaptor.values_of_rows, readings)
        return self._place(stamps.tolist(), between, values, True, (self._offset, self._turn))

    def _place(
        self,
        stamps: list[int],
        between: PosePairs,
        values: Callable,
        oriented: bool,
        mounting: tuple[np.ndarray, Rotation],
    ) -> Samples:
        """Samples of N measurements; `values(turn)` returns y and its noise variance."""
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
            y, noise_variance = values(rotation * turn if self._adaptor.needs_rotation else None)
        columns = {
            "x": positions[:, :2],
            "y": y,
            "stamp": np.array([t / 1e9 for t in stamps]),
            "sensor_variance": noise_variance,
        }

        # each of these columns is there for all batches, or for none: see the class
        if self._variance:
            columns["position_variance"] = between.variance
        if self._heading and oriented:
            columns["heading"] = _forward(rotation)

        good = np.abs(positions).max(1) <= self._farthest  # also False for NaN
        for column in columns.values():
            good &= np.isfinite(column.reshape(len(good), -1)).all(1)
        self.heights = positions[good, 2]
        return Samples(**{name: column[good] for name, column in columns.items()})


def rotate(rotation: Rotation, vectors: np.ndarray) -> np.ndarray:
    """Rotate vectors: R v, (N, 3).

    Sums over each row by itself, so that no row depends on the others, as it might with BLAS.

    Args:
        rotation: N of them.
        vectors: (3,) or (N, 3).
    """
    matrix, v = rotation.as_matrix(), np.broadcast_to(vectors, (len(rotation), 3))
    return sum(matrix[:, :, k] * v[:, k, None] for k in range(3))


def _forward(rotation: Rotation) -> np.ndarray:
    """Unit vectors (N, 2) of the robot's x axis in the plane of the map.

    Zeros where the axis points straight up or down.
    """
    axis = rotation.as_matrix()[:, :2, 0]
    length = np.sqrt(axis[:, :1] ** 2 + axis[:, 1:] ** 2)
    return np.where(length > 1e-6, axis / np.maximum(length, 1e-6), 0.0)

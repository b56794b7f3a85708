"""Writes rosbag2 bags (sqlite3, mcap) of magnetic field and odometry without a ROS installation."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer

from gp_mapping.recording.bag import MAGNETIC_FIELD, ODOMETRY, STORE, BagError

__all__ = ["BagWriter"]

_STORAGE = {"sqlite3": StoragePlugin.SQLITE3, "mcap": StoragePlugin.MCAP}


class BagWriter:
    """Writes MagneticField and Odometry into a new bag.

    The bag appears under its name only when it is complete.

        with BagWriter(path, "mcap") as bag:
            bag.odometry(…)
            bag.magnetic_field(…)

    Args:
        path: a folder that does not exist yet.
        storage: sqlite3 or mcap.
        field_topic: of the magnetic field.
        odometry_topic: of the odometry.

    Raises:
        BagError: the folder exists, or there is no such storage.
    """

    def __init__(
        self,
        path,
        storage: str = "mcap",
        field_topic: str = "/magnetic_field",
        odometry_topic: str = "/odometry",
    ):
        self.path = Path(path)
        if storage not in _STORAGE:
            raise BagError(f"storage {storage!r} is not one of {', '.join(_STORAGE)}")
        if self.path.exists():
            raise BagError(f"{self.path} exists already; choose another name, or remove it first")

        # the file inside a bag is named after its folder: a folder of that name in a hidden one
        self._parent = self.path.parent / f".{self.path.name}.partial"
        self._topics = {MAGNETIC_FIELD: field_topic, ODOMETRY: odometry_topic}
        self._storage = _STORAGE[storage]
        self._writer: Writer | None = None

    def __enter__(self) -> BagWriter:
        # what a run that was killed has left
        shutil.rmtree(self._parent, ignore_errors=True)
        try:
            self._parent.mkdir(parents=True)
            self._writer = Writer(
                self._parent / self.path.name, version=9, storage_plugin=self._storage
            )
            self._writer.open()
        except OSError as error:
            raise BagError(f"{self.path}: cannot be written ({error.strerror or error})") from error

        self._connections = {
            kind: self._writer.add_connection(topic, kind, typestore=STORE)
            for kind, topic in self._topics.items()
        }
        return self

    def __exit__(self, kind, *_) -> bool:
        try:
            # complete: it takes its name
            if kind is None:
                self._writer.close()
                (self._parent / self.path.name).replace(self.path)
            else:
                self._writer.abort()
        finally:
            shutil.rmtree(self._parent, ignore_errors=True)
        return False

    def _header(self, stamp_ns: int, frame: str):
        """A Header of that stamp and frame."""
        time = STORE.types["builtin_interfaces/msg/Time"](
            sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9
        )
        return STORE.types["std_msgs/msg/Header"](stamp=time, frame_id=frame)

    def _write(self, kind: str, stamp_ns: int, message) -> None:
        """Write a message of a kind to the topic of that kind."""
        self._writer.write(self._connections[kind], stamp_ns, STORE.serialize_cdr(message, kind))

    def magnetic_field(
        self, stamp_ns: int, field, frame: str = "magnetometer", covariance=None
    ) -> None:
        """Write a MagneticField message.

        Args:
            stamp_ns: stamp and record time, ns.
            field: (3,) T.
            frame: of the sensor.
            covariance: (9,) T², row-major; None writes zeros, which mean unknown.
        """
        vector = STORE.types["geometry_msgs/msg/Vector3"](*map(float, field))
        covariance = (
            np.zeros(9) if covariance is None else np.asarray(covariance, np.float64).reshape(9)
        )

        self._write(
            MAGNETIC_FIELD,
            stamp_ns,
            STORE.types[MAGNETIC_FIELD](
                header=self._header(stamp_ns, frame),
                magnetic_field=vector,
                magnetic_field_covariance=covariance,
            ),
        )

    def odometry(
        self,
        stamp_ns: int,
        position,
        quaternion,
        linear=(0.0, 0.0, 0.0),
        angular=(0.0, 0.0, 0.0),
        frame: str = "odom",
        child_frame: str = "base_link",
        pose_covariance=None,
        twist_covariance=None,
    ) -> None:
        """Write an Odometry message.

        Args:
            stamp_ns: stamp and record time, ns.
            position: (3,) m.
            quaternion: (4,) x y z w.
            linear: (3,) velocity in the child frame, m/s.
            angular: (3,) velocity in the child frame, rad/s.
            frame: of the pose.
            child_frame: of the robot.
            pose_covariance: the diagonal (6,) of x y z and rotations about x y z, in m² and rad²;
                None writes zeros.
            twist_covariance: the same of the velocities, in (m/s)² and (rad/s)².
        """
        types = STORE.types
        vector = types["geometry_msgs/msg/Vector3"]

        pose = types["geometry_msgs/msg/Pose"](
            position=types["geometry_msgs/msg/Point"](*map(float, position)),
            orientation=types["geometry_msgs/msg/Quaternion"](*map(float, quaternion)),
        )

        twist = types["geometry_msgs/msg/Twist"](
            linear=vector(*map(float, linear)), angular=vector(*map(float, angular))
        )

        self._write(
            ODOMETRY,
            stamp_ns,
            types[ODOMETRY](
                header=self._header(stamp_ns, frame),
                child_frame_id=child_frame,
                pose=types["geometry_msgs/msg/PoseWithCovariance"](
                    pose=pose, covariance=_diagonal(pose_covariance)
                ),
                twist=types["geometry_msgs/msg/TwistWithCovariance"](
                    twist=twist, covariance=_diagonal(twist_covariance)
                ),
            ),
        )


def _diagonal(values) -> np.ndarray:
    """Row-major 6 × 6 matrix (36,) with this diagonal; zeros for None."""
    return np.diag(np.zeros(6) if values is None else np.asarray(values, np.float64)).ravel()

"""What a user's own node would do: listens to the mapper, and calls its services."""

from __future__ import annotations

import time

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from gp_mapping.ros.wire.qos import LATCHED

__all__ = ["MapWatcher", "cloud_columns"]


def cloud_columns(message: PointCloud2) -> dict[str, np.ndarray]:
    """The float32 fields of a PointCloud2 as float64 columns (N,) by name."""
    kind = np.dtype({"names": [f.name for f in message.fields], "formats": ["<f4"] * len(message.fields),
                     "offsets": [f.offset for f in message.fields], "itemsize": message.point_step})
    rows = np.frombuffer(message.data, dtype=kind, count=message.width * message.height)
    return {name: rows[name].astype(np.float64) for name in kind.names}


class MapWatcher:
    """Newest map, path, suggestions, inducing inputs and diagnostics, as they arrive over DDS in this process.

    `spin(seconds)` serves the callbacks; nothing happens between calls. domain: ROS_DOMAIN_ID of the session.
    """

    def __init__(self, domain: int):
        rclpy.init(args=[], domain_id=domain, signal_handler_options=SignalHandlerOptions.NO)
        self.node = Node("map_watcher")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self.clouds = 0  # maps received
        self.diagnostics: dict[str, dict[str, str]] = {}  # status name -> values
        self.pictures = 0  # sets of markers received
        self._cloud = self._markers = self._suggestions = None
        subscribe = self.node.create_subscription
        subscribe(PointCloud2, "mapping/field", self._on_cloud, LATCHED)
        subscribe(MarkerArray, "mapping/markers", self._on_markers, LATCHED)
        subscribe(PoseArray, "mapping/suggestions", self._on_suggestions, LATCHED)
        subscribe(DiagnosticArray, "/diagnostics", self._on_diagnostics, 100)
        self._save = self.node.create_client(Trigger, "mapping/save")

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown()

    def spin(self, seconds: float) -> None:
        """Serve callbacks for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=left)

    def save(self, timeout: float, check=lambda: None) -> str:
        """Call the mapper's save service; the text of its answer. RuntimeError where it fails or does not answer.

        check: called several times a second while waiting; it may raise.
        """
        deadline = time.monotonic() + timeout
        while not self._save.service_is_ready():
            self._wait(check, deadline, "did not appear")
        future = self._save.call_async(Trigger.Request())
        while not future.done():
            self._wait(check, deadline, "did not answer in time")
        if not future.result().success:
            raise RuntimeError(f"{self._save.srv_name}: {future.result().message}")
        return future.result().message

    def refresh(self, timeout: float, check=lambda: None) -> None:
        """Wait for a map that was drawn after this call. RuntimeError where none comes.

        A new subscriber is served with a fresh drawing, whether or not the map has changed, and all others with it.
        """
        before, deadline = (self.clouds, self.pictures), time.monotonic() + timeout
        # they stay: the mapper counts subscribers at its ticks, and would not see one go and another come between two
        for topic, kind in (("field", PointCloud2), ("markers", MarkerArray)):
            self.node.create_subscription(kind, f"mapping/{topic}", lambda _: None, LATCHED)
        while self.clouds == before[0] or self.pictures == before[1]:
            self._wait(check, deadline, "was called, but no newer map came")

    def _wait(self, check, deadline: float, failure: str) -> None:
        check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"the service {self._save.srv_name} {failure}")
        self._executor.spin_once(timeout_sec=0.1)

    # ---- what has arrived ----------------------------------------------------------------------------------------

    @property
    def cloud(self) -> dict[str, np.ndarray] | None:
        """Columns x, y (m), mean, stddev (SI) of the newest map; None before the first."""
        return None if self._cloud is None else cloud_columns(self._cloud)

    @property
    def path(self) -> np.ndarray:
        """(K, 2) m: where the measurements in the map were made, thinned by the mapper."""
        return self._points("path")

    @property
    def suggestions(self) -> np.ndarray:
        """(k, 2) m, in the order of choice."""
        poses = self._suggestions.poses if self._suggestions else []
        return np.array([(p.position.x, p.position.y) for p in poses]).reshape(-1, 2)

    @property
    def inducing(self) -> np.ndarray:
        """(M, 2) m."""
        return self._points("inducing")

    def _points(self, namespace: str) -> np.ndarray:
        markers = self._markers.markers if self._markers else []
        points = [p for m in markers if m.ns == namespace for p in m.points]
        return np.array([(p.x, p.y) for p in points]).reshape(-1, 2)

    def values(self, status: str) -> dict[str, str]:
        """Newest values of a diagnostic status; empty before the first."""
        return self.diagnostics.get(status, {})

    def _on_cloud(self, message: PointCloud2) -> None:
        self._cloud = message
        self.clouds += 1

    def _on_markers(self, message: MarkerArray) -> None:
        self._markers = message
        self.pictures += 1

    def _on_suggestions(self, message: PoseArray) -> None:
        self._suggestions = message

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics[status.name] = {v.key: v.value for v in status.values}

"""A listener, as a user's own node would be, to the mapper's map, path and suggestions."""

from __future__ import annotations

import time

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseArray
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from std_srvs.srv import SetBool
from visualization_msgs.msg import MarkerArray

from gp_mapping.ros.clients.survey_watcher import SurveyWatcher
from gp_mapping.ros.wire.outbound import cloud
from gp_mapping.ros.wire.qos import LATCHED

__all__ = ["ANSWER_TIMEOUT", "MapWatcher", "cloud_columns", "question_stamp"]

ANSWER_TIMEOUT = 5.0  # s for which an answer on ~/query_result is awaited


def cloud_columns(message: PointCloud2) -> dict[str, np.ndarray]:
    """The float32 fields of a PointCloud2 as float64 columns (N,) by name."""
    kind = np.dtype(
        {
            "names": [f.name for f in message.fields],
            "formats": ["<f4"] * len(message.fields),
            "offsets": [f.offset for f in message.fields],
            "itemsize": message.point_step,
        }
    )

    rows = np.frombuffer(message.data, dtype=kind, count=message.width * message.height)
    return {name: rows[name].astype(np.float64) for name in kind.names}


def question_stamp(number: int) -> Time:
    """The stamp that tells an answer's question on ~/query: no time, but its number."""
    return Time(sec=number // 1_000_000, nanosec=number % 1_000_000)


class MapWatcher(SurveyWatcher):
    """Newest map, path, suggestions, inducing inputs and diagnostics, as they arrive over DDS.

    `spin(seconds)` serves the callbacks; nothing happens between calls.

    Args:
        domain: ROS_DOMAIN_ID of the session.

    Attributes:
        clouds: Number of maps received.
        pictures: Number of sets of markers received.
        answers: Of each answered question, when it was asked (monotonic s) and its columns.
    """

    def __init__(self, domain: int):
        super().__init__(domain, "map_watcher")
        self.clouds = 0
        self.pictures = 0
        self._cloud = self._markers = self._suggestions = None
        subscribe = self.node.create_subscription
        subscribe(PointCloud2, "mapping/field", self._on_cloud, LATCHED)
        subscribe(MarkerArray, "mapping/markers", self._on_markers, LATCHED)
        subscribe(PoseArray, "mapping/suggestions", self._on_suggestions, LATCHED)

        self.answers: list[tuple[float, dict[str, np.ndarray]]] = []
        # number and time (monotonic s) of the question that waits for an answer
        self._number, self._open_question = 0, None
        self._pause = self.node.create_client(SetBool, "simulator/pause")
        self._query = self.node.create_publisher(PointCloud2, "mapping/query", 10)
        subscribe(PointCloud2, "mapping/query_result", self._on_answer, 10)

    def ask(self, xy, frame: str) -> bool:
        """Ask for the map at positions; the answer is appended to `answers`.

        Args:
            xy: (N, 2), m.
            frame: The map's frame.

        Returns:
            False, and nothing is asked, while the question before has no answer: one that has not
            come for ANSWER_TIMEOUT is not awaited any more.
        """
        now = time.monotonic()
        if self._open_question is not None and now - self._open_question[1] < ANSWER_TIMEOUT:
            return False
        points = np.column_stack([xy, np.zeros(len(xy))]).astype(np.float32)
        self._number += 1
        self._open_question = self._number, now
        header = Header(frame_id=frame, stamp=question_stamp(self._number))
        self._query.publish(cloud(points, ("x", "y", "z"), header))
        return True

    def hold(self, still: bool) -> None:
        """Have a simulator hold its time (True) or go on, without waiting for its answer."""
        if self._pause.service_is_ready():
            self._pause.call_async(SetBool.Request(data=still))

    def refresh(self, timeout: float, check=lambda: None) -> None:
        """Wait for a map that is drawn after this call.

        A new subscriber is served with a new drawing, whether or not the map has changed, and all
        other subscribers with it.

        Args:
            timeout: s.
            check: Called several times a second; it may raise.

        Raises:
            RuntimeError: No newer map came.
        """
        before, deadline = (self.clouds, self.pictures), time.monotonic() + timeout
        # These subscriptions stay: the mapper counts subscribers at its ticks, and would not notice
        # that one goes and another comes between two of them.

        for topic, kind in (("field", PointCloud2), ("markers", MarkerArray)):
            self.node.create_subscription(kind, f"mapping/{topic}", lambda _: None, LATCHED)

        while self.clouds == before[0] or self.pictures == before[1]:
            self.wait(check, deadline, "~/save was called, but no newer map came")

    # ---- what has arrived ------------------------------------------------------------------------

    @property
    def cloud(self) -> dict[str, np.ndarray] | None:
        """Columns x, y (m), mean, stddev (SI) of the newest map; None before the first."""
        return None if self._cloud is None else cloud_columns(self._cloud)

    @property
    def path(self) -> np.ndarray:
        """Where the measurements in the map were made (K, 2), m, thinned by the mapper."""
        return self._points("path")

    @property
    def suggestions(self) -> np.ndarray:
        """Suggested places (k, 2), m, in the order of choice."""
        poses = self._suggestions.poses if self._suggestions else []
        return np.array([(p.position.x, p.position.y) for p in poses]).reshape(-1, 2)

    @property
    def inducing(self) -> np.ndarray:
        """Inducing inputs (M, 2), m."""
        return self._points("inducing")

    def _points(self, namespace: str) -> np.ndarray:
        """Points (K, 2), m, of the newest markers in a namespace."""
        markers = self._markers.markers if self._markers else []
        points = [p for m in markers if m.ns == namespace for p in m.points]
        return np.array([(p.x, p.y) for p in points]).reshape(-1, 2)

    def _on_cloud(self, message: PointCloud2) -> None:
        self._cloud = message
        self.clouds += 1

    def _on_answer(self, message: PointCloud2) -> None:
        """Keep the columns of an answer; one to a question given up is ignored."""
        if self._open_question is None:
            return
        number, asked = self._open_question
        if message.header.stamp == question_stamp(number):  # else: of a question given up
            self._open_question = None
            self.answers.append((asked, cloud_columns(message)))

    def _on_markers(self, message: MarkerArray) -> None:
        self._markers = message
        self.pictures += 1

    def _on_suggestions(self, message: PoseArray) -> None:
        self._suggestions = message

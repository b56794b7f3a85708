"""What `gp-mapping view` shows of one mapper, as it arrives over DDS.

Map, path, suggestions, robot and diagnostics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseArray
from nav_msgs.msg import Odometry, Path
from rclpy.context import Context
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.expand_topic_name import expand_topic_name
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.validate_full_topic_name import validate_full_topic_name
from sensor_msgs.msg import PointCloud2
from visualization_msgs.msg import MarkerArray

from gp_mapping.ros.clients.map_watcher import cloud_columns
from gp_mapping.ros.clients.window_asker import WindowAsker
from gp_mapping.ros.wire.outbound import nice_limits
from gp_mapping.ros.wire.qos import LATCHED, sensor_data

__all__ = ["LiveFeed", "LiveMap", "is_topic"]

_NODE = "gp_mapping_view"  # name of the feed's own node

_IDLE = 15.0  # s without a reader, after which the mapper need not draw for us
_SILENT = 5.0  # s without diagnostics, after which the mapper counts as gone


# areas of the mapper's diagnostics that are kept; others under its name are not
_AREAS = ("input", "map", "timing", "survey")
# characters of a text, values of an area: both come from the network
_MAX_CHARACTERS, _MAX_VALUES = (2000, 300)
_MAX_POSES = 1000  # of a plan


def is_topic(name: str, mapper: str) -> bool:
    """Whether a name is one of a ROS topic in the namespace of a mapper's node."""
    try:
        return validate_full_topic_name(
            expand_topic_name(name, _NODE, mapper.rpartition("/")[0] or "/")
        )
    except (NameValidationException, ValueError):
        return False


def _problems(message: str, values: dict[str, str]) -> list[str]:
    """Take the warnings of an area out of its values, one by one.

    A mapper that does not list them has one text for all of them.
    """
    listed = [name for name in values if name.startswith("warning ")]
    texts = [values.pop(name) for name in sorted(listed, key=lambda name: (len(name), name))]
    return texts or ([message[:_MAX_CHARACTERS]] if message and message != "ok" else [])


def _finite(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (x, y) that are places: the page's JSON knows no NaN."""
    return [point for point in points if all(map(math.isfinite, point))]


@dataclass(frozen=True)
class LiveMap:
    """A field cloud.

    Attributes:
        number: Of the cloud, counted from 1.
        frame: Of the map.
        columns: x, y (m), mean, stddev (SI) of the known grid cells.
        limits: mean low and high, stddev low and high, as the mapper rounds them for RViz.
    """

    number: int
    frame: str
    columns: dict[str, np.ndarray]
    limits: tuple[float, float, float, float]


class LiveFeed:
    """The newest messages of a mapper; subscribes while a reader calls `touch`.

    `spin` belongs to one thread; all else may be called from any other.

    Args:
        node: Fully qualified name of the mapper.
        odometry: Topic of the robot's poses; '' for none.
        domain: ROS_DOMAIN_ID; None for the environment's.
    """

    def __init__(
        self, node: str = "/mapping", odometry: str = "odometry", domain: int | None = None
    ):
        self.name = node
        self._context = Context()
        rclpy.init(
            args=[],
            context=self._context,
            domain_id=domain,
            signal_handler_options=SignalHandlerOptions.NO,
        )

        self._node = Node(_NODE, namespace=node.rpartition("/")[0] or "/", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)

        self._windows = WindowAsker(self._node, node)
        self._odometry, self._subscriptions = odometry, []
        self._last_touch = self._last_heard = self._last_search = float("-inf")
        # number, monotonic s when it came, message, wall time (s) when it was sent
        self._cloud: tuple[int, float, PointCloud2, float] | None = None
        self._map: LiveMap | None = None
        self._robot: tuple[float, float, float, float] | None = None  # x, y, heading, monotonic s

        self._points: dict[str, list] = {}
        self._plan: list[tuple[float, float]] = []
        self._overlays, self._suggestions, self._statuses, self._other_mappers = 0, [], {}, []

        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    def close(self) -> None:
        """Leave the ROS graph."""
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def touch(self) -> None:
        """Subscribe, and stay subscribed for _IDLE seconds, because a reader wants to look."""
        self._last_touch = time.monotonic()

    def spin(self, seconds: float) -> None:
        """Serve what arrives for that many seconds."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            self._update_subscriptions()
            self._executor.spin_once(timeout_sec=min(remaining, 0.1))

    def _update_subscriptions(self) -> None:
        """Subscribe while in use; ask for windows; look for other mappers while this is silent."""
        now = time.monotonic()
        in_use = now - self._last_touch < _IDLE
        if in_use and not self._subscriptions:
            subscribe, name = self._node.create_subscription, self.name
            self._subscriptions = [
                subscribe(PointCloud2, f"{name}/field", self._on_cloud, LATCHED),
                subscribe(MarkerArray, f"{name}/markers", self._on_markers, LATCHED),
                subscribe(PoseArray, f"{name}/suggestions", self._on_suggestions, LATCHED),
                subscribe(Path, f"{name}/plan", self._on_plan, LATCHED),
            ]
            if self._odometry:
                self._subscriptions.append(
                    subscribe(Odometry, self._odometry, self._on_odometry, sensor_data(1))
                )
        elif not in_use and self._subscriptions:
            for subscription in self._subscriptions:
                self._node.destroy_subscription(subscription)
            self._subscriptions = []

        self._windows.attend()
        if now - self._last_search > 2.0:
            self._last_search = now
            self._other_mappers = [] if now - self._last_heard < _SILENT else self._mappers()

    def _mappers(self) -> list[str]:
        """Up to 20 other nodes that publish a field: one of them may have been meant."""
        topics = self._node.get_topic_names_and_types()
        return sorted(
            name.removesuffix("/field")
            for name, kinds in topics
            if name.endswith("/field")
            and "sensor_msgs/msg/PointCloud2" in kinds
            and name != f"{self.name}/field"
        )[:20]

    # ---- what arrives ----------------------------------------------------------------------------

    def _on_cloud(self, message: PointCloud2, info: dict) -> None:
        sent = 1e-9 * info["source_timestamp"]
        self._cloud = ((self._cloud[0] if self._cloud else 0) + 1, time.monotonic(), message, sent)

    def _on_markers(self, message: MarkerArray) -> None:
        """Keep the path and the inducing inputs, as points."""
        points = {
            m.ns: [(p.x, p.y) for p in m.points]
            for m in message.markers
            if m.ns in ("path", "inducing")
        }
        # two points for each piece of the path: where a piece begins at the end of the one before,
        # that point is there twice
        pieces = points.get("path", [])
        points["path"] = [p for i, p in enumerate(pieces) if i % 2 or not i or p != pieces[i - 1]]
        self._points = {name: _finite(places) for name, places in points.items()}
        self._overlays += 1

    def _on_suggestions(self, message: PoseArray) -> None:
        self._suggestions = _finite((p.position.x, p.position.y) for p in message.poses)

    def _on_plan(self, message: Path) -> None:
        """Keep the plan: of a very long one every n-th pose, and its end."""
        poses = message.poses[:: 1 + len(message.poses) // _MAX_POSES]
        self._plan = _finite(
            (p.pose.position.x, p.pose.position.y) for p in (*poses, *message.poses[-1:])
        )

    def _on_odometry(self, message: Odometry) -> None:
        p, q = message.pose.pose.position, message.pose.pose.orientation
        heading = math.atan2(2 * (q.w * q.z + q.x * q.y), 1 - 2 * (q.y * q.y + q.z * q.z))
        self._robot = (p.x, p.y, heading, time.monotonic())

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        """Keep the newest values and warnings of this mapper, at most so many and so long."""
        for status in message.status:
            node, _, area = status.name.rpartition(": ")
            # other nodes report diagnostics on the same topic
            if "/" + node.lstrip("/") == self.name and area in _AREAS:
                level = status.level[0] if isinstance(status.level, bytes) else int(status.level)
                values = {
                    v.key[:_MAX_CHARACTERS]: v.value[:_MAX_CHARACTERS]
                    for v in status.values[:_MAX_VALUES]
                }
                self._statuses[area] = {
                    "area": area,
                    "level": level,
                    "problems": _problems(status.message, values),
                    "values": values,
                }
                self._last_heard = time.monotonic()

    # ---- for the page ----------------------------------------------------------------------------

    def map(self) -> LiveMap | None:
        """The newest map; None before the first."""
        cloud, cached = self._cloud, self._map
        if cloud is None or (cached is not None and cached.number == cloud[0]):
            return cached

        columns = {
            name: column
            for name, column in cloud_columns(cloud[2]).items()
            if name in ("x", "y", "mean", "stddev")
        }
        finite = np.isfinite(np.array(list(columns.values()))).all(0)
        columns = {name: column[finite] for name, column in columns.items()}

        limits = (0.0, 1.0, 0.0, 1.0)
        if len(columns["x"]):
            mean, stddev = columns["mean"], columns["stddev"]

            limits = (*nice_limits(mean.min(), mean.max()), *nice_limits(0.0, stddev.max()))
        self._map = LiveMap(cloud[0], cloud[2].header.frame_id, columns, tuple(map(float, limits)))
        return self._map

    def window(self, low: tuple[float, float], high: tuple[float, float]) -> LiveMap | None:
        """What the mapper knows between two corners, also where it draws nothing now.

        Args:
            low: Lower corner (x, y), m.
            high: Upper corner (x, y), m.

        Returns:
            None while the mapper has not answered; ask again.
        """
        drawn, path = self.map(), self._points.get("path", [])
        if drawn is None or not path:
            return None
        answer = self._windows.window(low, high, np.array(path), self._reach(), drawn.frame)
        return (
            None
            if answer is None
            else LiveMap(answer.number, drawn.frame, answer.columns, drawn.limits)
        )

    def _reach(self) -> float:
        """Distance (m) from its path within which the mapper knows something.

        A lengthscale, from its diagnostics, between 0.1 and 10 m; 0.5 m while it is not known.
        """
        try:
            reach = float(
                self._statuses.get("map", {})
                .get("values", {})
                .get("hyperparameters.lengthscale", "nan")
            )
        except ValueError:
            return 0.5
        return min(max(reach, 0.1), 10.0) if math.isfinite(reach) else 0.5

    def overlay(self) -> dict:
        """Path and inducing inputs, (x, y) in m, with a number that grows with each new set."""
        number, points = self._overlays, self._points
        return {"number": number, **{name: points.get(name, []) for name in ("path", "inducing")}}

    def _facts(self) -> tuple[str, float, float]:
        """Unit, scale (SI) and start of the node (wall time, s), as its newest diagnostics say."""
        values = self._statuses.get("map", {}).get("values", {})
        try:
            scale, started = (
                float(values.get("field_scale", 1.0)),
                float(values.get("node started", 0.0)),
            )
        except ValueError:
            return "", 1.0, 0.0
        usable = math.isfinite(scale) and scale > 0.0 and math.isfinite(started)
        return (values.get("field_unit", ""), scale, started) if usable else ("", 1.0, 0.0)

    def status(self) -> dict:
        """Everything small, in plain numbers; ages in seconds, None for what has not come."""
        now, cloud, robot = time.monotonic(), self._cloud, self._robot

        unit, scale, started = self._facts()
        finite = robot is not None and all(map(math.isfinite, robot))
        newest = (
            {
                "number": cloud[0],
                "age": now - cloud[1],
                "frame": cloud[2].header.frame_id[:_MAX_CHARACTERS],
                "old": cloud[3] < started,
            }
            if cloud
            else None
        )

        return {
            "node": self.name,
            "unit": unit,
            "scale": scale,
            "heard": now - self._last_heard if self._statuses else None,
            "silent": now - self._last_heard > _SILENT,
            "elsewhere": self._other_mappers,
            "map": newest,
            "overlay": self._overlays,
            "suggestions": self._suggestions,
            "plan": self._plan,
            "robot": dict(zip(("x", "y", "heading", "age"), (*robot[:3], now - robot[3])))
            if finite
            else None,
            "diagnostics": list(self._statuses.values()),
        }

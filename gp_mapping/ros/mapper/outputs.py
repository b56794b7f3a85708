"""The node's output topics: who listens, what is due, and one set of Results turned into messages.

Nothing is drawn or published for a topic that nobody listens to. A late joiner is served within one tick: where the
count of subscribers of a topic grows, that topic is due at once, whether or not the map has changed since (so a
volatile subscriber gets a standing map, too, and a transient-local one gets the newest and not only the last latched).
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, replace

from geometry_msgs.msg import PoseArray, PoseStamped
from nav_msgs.msg import OccupancyGrid
from rclpy.duration import Duration
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray, Header
from visualization_msgs.msg import MarkerArray

from gp_mapping.ros.wire import markers, outbound
from gp_mapping.ros.wire.messages import message_class
from gp_mapping.ros.wire.qos import LATCHED

__all__ = ["MapPublishers"]

TOPICS = {"mean": OccupancyGrid, "stddev": OccupancyGrid, "field": PointCloud2, "limits": Float64MultiArray,
          "class": OccupancyGrid, "markers": MarkerArray, "suggestion": PoseStamped, "suggestions": PoseArray}
OPTIONAL = {"grid_map": "grid_map_msgs/msg/GridMap"}  # where its messages are installed
GRID_TOPICS = ("mean", "stddev", "field", "limits", "class", "grid_map")
PART = {**dict.fromkeys(GRID_TOPICS, "grid"), "markers": "markers", "suggestion": "suggestions",
        "suggestions": "suggestions"}


@dataclass
class _Output:
    publisher: object
    subscribers: int = 0
    revision: int | None = None  # of what was published last; None: this topic has news whatever the revision
    next: float = float("-inf")  # when it may be due again; a late tick does not delay the one after it


class MapPublishers:
    """Publishers of the private output topics of a node, with demand and pace per topic.

    find: ROS type name -> its class, or None where it is not installed.
    """

    def __init__(self, node, map_settings, find=message_class):
        self._node = node
        self._unit, self._scale = map_settings.field_unit, map_settings.field_scale
        self._grid_map = find(OPTIONAL["grid_map"])
        kinds = TOPICS | ({} if self._grid_map is None else {"grid_map": self._grid_map})
        self._outputs = {name: _Output(node.create_publisher(kind, f"~/{name}", LATCHED))
                         for name, kind in kinds.items()}
        self._due: set[str] = set()
        self._last_grid = None
        self._room = array("B")  # of the field cloud, again and again: publish has copied it when it returns
        self._suggested = ()
        self.limits: outbound.Limits | None = None
        self.published = 0  # sets of results

    def renew(self, map_settings) -> None:
        """Another map has taken the place of this one: every topic has news, whatever its revision."""
        self._unit, self._scale = map_settings.field_unit, map_settings.field_scale
        for output in self._outputs.values():
            output.revision = None

    def destroy(self) -> None:
        """Take the topics away (lifecycle clean-up)."""
        for output in self._outputs.values():
            self._node.destroy_publisher(output.publisher)
        self._outputs = {}

    def due(self, revision: int, now: float, periods: dict[str, float]) -> set[str]:
        """The parts of Results that are worth making now: 'grid', 'markers', 'suggestions'; empty where nobody waits.

        revision: of the map now.  now: monotonic seconds.  periods: part -> seconds between two; 0 turns it off.
        """
        self._due = set()
        for name, output in self._outputs.items():
            count = output.publisher.get_subscription_count()
            if count > output.subscribers:
                output.revision = None
            output.subscribers = count
            period = periods[PART[name]]
            joined = output.revision is None
            if count and period and revision and (joined or (output.revision != revision and
                                                             now >= output.next - 0.1 * period)):
                self._due.add(name)
                output.next = max(output.next + period, now + 0.5 * period)
        return {PART[name] for name in self._due}

    def publish(self, results, frame: str, driven: PoseStamped | None = None) -> None:
        """Publish Results on the topics that were due. frame: of the map.

        driven: the next pose of a plan that is being driven, which goes before suggestions.
        """
        header = Header(frame_id=frame, stamp=self._node.get_clock().now().to_msg())
        grid, self._last_grid = results.grid, results.grid
        self.limits = results.limits or self.limits
        made = self._messages(results, grid, header)
        if driven is not None and "suggestion" in made:
            made["suggestion"] = lambda: driven
        for name in self._due & set(made):
            output = self._outputs[name]
            if made[name] is not None:
                output.publisher.publish(made[name]())
            output.revision = results.revision
        self._due = set()
        self.published += 1

    def _messages(self, results, grid, header: Header) -> dict:
        """Topic -> function that makes the message; None where there is nothing to say."""
        limits = self.limits or outbound.Limits(0.0, 1.0, 0.0, 1.0)  # nothing is known: no value depends on them
        made = {
            "mean": lambda: outbound.occupancy_grid(grid, grid.mean, limits.mean_low, limits.mean_high, header),
            "stddev": lambda: outbound.occupancy_grid(grid, grid.stddev, limits.stddev_low, limits.stddev_high, header),
            "field": lambda: outbound.field_cloud(grid, header, self._room),
            "limits": (lambda: outbound.limits_message(limits)) if self.limits else None,
            "class": None if grid.classes is None else lambda: outbound.class_grid(grid, header),
        }
        if self._grid_map is not None:
            made["grid_map"] = lambda: outbound.grid_map(self._grid_map, grid, header)
        if results.inducing is not None:
            made["markers"] = lambda: markers.map_markers(
                inducing=results.inducing, memory=results.memory, path=results.path,
                path_starts=results.path_starts,
                suggestions=self._suggested, grid=grid, limits=self.limits,
                unit=self._unit, scale=self._scale, header=header)
        if results.suggestions is not None:
            places, start = [(s.x, s.y) for s in results.suggestions], results.position
            self._suggested = results.suggestions.positions
            made["suggestion"] = (lambda: outbound.pose_stamped(places, start, header)) if places else None
            made["suggestions"] = lambda: outbound.pose_array(places, start, header)
        return made

    def answer(self, layer: str, drawn, frame: str) -> OccupancyGrid:
        """For a service: 'mean' or 'stddev' of (FieldGrid, limits), with the limits on ~/limits; None is an empty map.
        """
        header = Header(frame_id=frame, stamp=self._node.get_clock().now().to_msg())
        if drawn is None:
            return OccupancyGrid(header=header)
        grid, limits = drawn
        self.limits = limits = limits or self.limits or outbound.Limits(0.0, 1.0, 0.0, 1.0)
        self._outputs["limits"].publisher.publish(outbound.limits_message(limits))
        low, high = limits[:2] if layer == "mean" else limits[2:]
        return outbound.occupancy_grid(grid, getattr(grid, layer), low, high, header)

    def wait_until_received(self, timeout: float) -> None:
        """Before the process ends: until reliable subscribers have what was published, timeout seconds at most."""
        end = time.monotonic() + timeout
        for output in self._outputs.values():
            if output.publisher.get_subscription_count():
                output.publisher.wait_for_all_acked(Duration(seconds=max(0.0, end - time.monotonic())))

    def publish_cleared(self, frame: str) -> None:
        """After the map was cleared: latched topics must not go on showing it. All unknown, no points, no markers."""
        header = Header(frame_id=frame, stamp=self._node.get_clock().now().to_msg())
        grid = self._last_grid
        if grid is None:
            return
        grid = replace(grid, known=grid.known & False)
        self._outputs["mean"].publisher.publish(outbound.occupancy_grid(grid, grid.mean, 0.0, 1.0, header))
        self._outputs["stddev"].publisher.publish(outbound.occupancy_grid(grid, grid.stddev, 0.0, 1.0, header))
        self._outputs["field"].publisher.publish(outbound.field_cloud(grid, header))
        if grid.classes is not None:
            self._outputs["class"].publisher.publish(outbound.class_grid(grid, header))
        if self._grid_map is not None:
            self._outputs["grid_map"].publisher.publish(outbound.grid_map(self._grid_map, grid, header))
        self._outputs["markers"].publisher.publish(markers.delete_all(header))
        self._outputs["suggestions"].publisher.publish(outbound.pose_array((), None, header))
        self._last_grid = self.limits = None
        self._suggested = ()
        for output in self._outputs.values():
            output.revision = None

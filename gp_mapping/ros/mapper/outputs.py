"""The node's output topics: who listens, what is due, and one set of Results turned into messages.

Nothing is drawn or published for a topic that nobody listens to. A late joiner is served within one tick: where the
count of subscribers of a topic grows, that topic is due at once, whether or not the map has changed since (so a
volatile subscriber gets a standing map, too, and a transient-local one gets the newest and not only the last latched).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from geometry_msgs.msg import PoseArray, PoseStamped
from nav_msgs.msg import OccupancyGrid
from rclpy.duration import Duration
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray, Header
from visualization_msgs.msg import MarkerArray

from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.ros.wire import markers, outbound
from gp_mapping.ros.wire.messages import message_class
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.runtime.worker_results import Results

__all__ = ["OUTPUTS", "MapPublishers", "Output"]

_OLD = -1  # a revision that no map has
_NOTHING_KNOWN = outbound.Limits(0.0, 1.0, 0.0, 1.0)  # no value depends on them
GRID_MAP = "grid_map_msgs/msg/GridMap"  # published where its messages are installed


@dataclass
class Shown:
    """What messages are made of. grid: nothing is known in it where the map has been emptied.

    grid_map: the class of GridMap, None where it is not installed.  room: bytes that the field cloud may use again.
    """

    header: Header
    grid: FieldGrid
    limits: outbound.Limits | None
    results: Results | None
    suggested: Sequence
    unit: str
    scale: float
    grid_map: type | None
    room: array

    def layer(self, name: str) -> OccupancyGrid:
        """'mean' or 'stddev' between its limits."""
        low, high = (
            (self.limits or _NOTHING_KNOWN)[:2]
            if name == "mean"
            else (self.limits or _NOTHING_KNOWN)[2:]
        )
        return outbound.occupancy_grid(self.grid, getattr(self.grid, name), low, high, self.header)

    def markers(self) -> MarkerArray:
        """The path, inducing inputs, memory, suggestions and the scale of colours."""
        results = self.results
        return markers.map_markers(
            inducing=results.inducing,
            memory=results.memory,
            path=results.path,
            path_starts=results.path_starts,
            suggestions=self.suggested,
            grid=self.grid,
            limits=self.limits,
            unit=self.unit,
            scale=self.scale,
            header=self.header,
        )

    def suggestion(self) -> PoseStamped | None:
        """The first of the places to measure at; None where there is none."""
        places = [(s.x, s.y) for s in self.results.suggestions]
        return outbound.pose_stamped(places, self.results.position, self.header) if places else None

    def suggestions(self) -> PoseArray:
        """All of them, best first."""
        return outbound.pose_array(
            [(s.x, s.y) for s in self.results.suggestions], self.results.position, self.header
        )


@dataclass(frozen=True)
class Output:
    """One output topic, ~/name.

    kind: of its messages, or the ROS name of a kind that may not be installed.  part: of Results that it shows.
    make: its message; None where there is nothing to say.  clear: what takes its place when the map was emptied.
    """

    name: str
    kind: type | str
    part: str
    make: Callable[[Shown], object]
    clear: Callable[[Shown], object] | None = None


def _of_classes(shown: Shown) -> OccupancyGrid | None:
    return None if shown.grid.classes is None else outbound.class_grid(shown.grid, shown.header)


def _layers(shown: Shown) -> object:
    return outbound.grid_map(shown.grid_map, shown.grid, shown.header)


OUTPUTS = (
    Output("mean", OccupancyGrid, "grid", lambda s: s.layer("mean"), lambda s: s.layer("mean")),
    Output(
        "stddev", OccupancyGrid, "grid", lambda s: s.layer("stddev"), lambda s: s.layer("stddev")
    ),
    Output(
        "field",
        PointCloud2,
        "grid",
        lambda s: outbound.field_cloud(s.grid, s.header, s.room),
        lambda s: outbound.field_cloud(s.grid, s.header),
    ),
    Output(
        "limits",
        Float64MultiArray,
        "grid",
        lambda s: s.limits and outbound.limits_message(s.limits),
    ),
    Output("class", OccupancyGrid, "grid", _of_classes, _of_classes),
    Output("grid_map", GRID_MAP, "grid", _layers, _layers),
    Output(
        "markers", MarkerArray, "markers", Shown.markers, lambda s: markers.delete_all(s.header)
    ),
    Output("suggestion", PoseStamped, "suggestions", Shown.suggestion),
    Output(
        "suggestions",
        PoseArray,
        "suggestions",
        Shown.suggestions,
        lambda s: outbound.pose_array((), None, s.header),
    ),
)


@dataclass
class _Topic:
    """An output with its publisher, and its pace."""

    output: Output
    publisher: object
    subscribers: int = 0
    revision: int | None = (
        None  # of what was published last; None: this topic has news whatever the revision
    )
    next: float = float(
        "-inf"
    )  # when it may be due again; a late tick does not delay the one after it


class MapPublishers:
    """Publishers of the private output topics of a node, with demand and pace per topic.

    find: ROS type name -> its class, or None where it is not installed.
    """

    def __init__(self, node, map_settings, find=message_class):
        self._node = node
        self._unit, self._scale = map_settings.field_unit, map_settings.field_scale
        kinds = {
            one.name: find(one.kind) if isinstance(one.kind, str) else one.kind for one in OUTPUTS
        }
        self._grid_map = kinds["grid_map"]
        self._outputs = {
            one.name: _Topic(one, node.create_publisher(kinds[one.name], f"~/{one.name}", LATCHED))
            for one in OUTPUTS
            if kinds[one.name] is not None
        }
        self._due: set[str] = set()
        self._last_grid = None
        self._room = array(
            "B"
        )  # of the field cloud, again and again: publish has copied it when it returns
        self._suggested = ()
        self.limits: outbound.Limits | None = None
        self.published = 0  # sets of results

    def renew(self, map_settings) -> None:
        """Another map has taken the place of this one: every topic has news, whatever its revision."""
        self._unit, self._scale = map_settings.field_unit, map_settings.field_scale
        for topic in self._outputs.values():
            topic.revision = None

    def renew_part(self, part: str, at_once: bool = True) -> None:
        """What a part of Results shows has changed, though the map has not: made at once, or when its period is over."""
        for topic in self._outputs.values():
            if topic.output.part == part and (at_once or topic.revision is not None):
                topic.revision = None if at_once else _OLD

    def destroy(self) -> None:
        """Take the topics away (lifecycle clean-up)."""
        for topic in self._outputs.values():
            self._node.destroy_publisher(topic.publisher)
        self._outputs = {}

    def due(self, revision: int, now: float, periods: dict[str, float]) -> set[str]:
        """The parts of Results that are worth making now: 'grid', 'markers', 'suggestions'; empty where nobody waits.

        revision: of the map now.  now: monotonic seconds.  periods: part -> seconds between two; 0 turns it off.
        """
        self._due = set()
        for name, topic in self._outputs.items():
            count = topic.publisher.get_subscription_count()
            if count > topic.subscribers:
                topic.revision = None
            topic.subscribers = count
            period = periods[topic.output.part]
            joined = topic.revision is None
            if (
                count
                and period
                and revision
                and (joined or (topic.revision != revision and now >= topic.next - 0.1 * period))
            ):
                self._due.add(name)
                topic.next = max(topic.next + period, now + 0.5 * period)
        return {self._outputs[name].output.part for name in self._due}

    def publish(self, results, frame: str, driven: PoseStamped | None = None) -> None:
        """Publish Results on the topics that were due. frame: of the map.

        driven: the next pose of a plan that is being driven, which goes before suggestions.
        """
        self._last_grid, self.limits = results.grid, results.limits or self.limits
        made = {"grid"} | ({"markers"} if results.inducing is not None else set())
        if results.suggestions is not None:
            made.add("suggestions")
            self._suggested = results.suggestions.positions
        shown = self._shown(frame, results.grid, self.limits, results)
        for name in self._due:
            topic = self._outputs[name]
            if topic.output.part not in made:
                continue
            message = (
                driven if name == "suggestion" and driven is not None else topic.output.make(shown)
            )
            if message is not None:
                topic.publisher.publish(message)
            topic.revision = results.revision
        self._due = set()
        self.published += 1

    def _shown(
        self, frame: str, grid: FieldGrid, limits: outbound.Limits | None, results: Results | None
    ) -> Shown:
        header = Header(frame_id=frame, stamp=self._node.get_clock().now().to_msg())
        return Shown(
            header,
            grid,
            limits,
            results,
            self._suggested,
            self._unit,
            self._scale,
            self._grid_map,
            self._room,
        )

    def answer(self, layer: str, drawn, frame: str) -> OccupancyGrid:
        """For a service: 'mean' or 'stddev' of (FieldGrid, limits), with the limits on ~/limits; None is an empty map."""
        if drawn is None:
            return OccupancyGrid(
                header=Header(frame_id=frame, stamp=self._node.get_clock().now().to_msg())
            )
        grid, limits = drawn
        self.limits = limits or self.limits or _NOTHING_KNOWN
        self._outputs["limits"].publisher.publish(outbound.limits_message(self.limits))
        return self._shown(frame, grid, self.limits, None).layer(layer)

    def received(self) -> bool:
        """Whether reliable subscribers have what was published."""
        now = Duration(seconds=0.0)
        return all(
            topic.publisher.wait_for_all_acked(now)
            for topic in self._outputs.values()
            if topic.publisher.get_subscription_count()
        )

    def publish_cleared(self, frame: str) -> None:
        """After the map was cleared: latched topics must not go on showing it. All unknown, no points, no markers."""
        grid = self._last_grid
        if grid is None:
            return
        shown = self._shown(frame, replace(grid, known=grid.known & False), None, None)
        for topic in self._outputs.values():
            message = None if topic.output.clear is None else topic.output.clear(shown)
            if message is not None:
                topic.publisher.publish(message)
            topic.revision = None
        self._last_grid = self.limits = None
        self._suggested = ()

"""The node's output topics: which are due, and how Results become their messages.

Nothing is drawn or published for a topic without subscribers. A late joiner is served within one
tick: where the number of subscribers of a topic grows, that topic is due at once, whether or not
the map has changed since. So a volatile subscriber receives an unchanged map, too, and a
transient-local one the newest map and not only the last one latched.
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

_STALE_REVISION = -1  # a revision that no map has
_DEFAULT_LIMITS = outbound.Limits(0.0, 1.0, 0.0, 1.0)  # no cell is known, none depends on them
GRID_MAP = "grid_map_msgs/msg/GridMap"  # published where its messages are installed


@dataclass
class MessageInputs:
    """What the messages of one set of results are made of.

    Attributes:
        header: Of all messages.
        grid: The drawn map; without known cells where the map has been emptied.
        limits: Of the colours; None while nothing is known.
        results: Of the worker; None for a message that shows the grid alone.
        suggested: (x, y) of the newest suggestions, m.
        unit: Display unit of the field.
        scale: One display unit in SI.
        grid_map: The class of GridMap, None where it is not installed.
        room: Bytes that the field cloud may overwrite.
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
        """The layer 'mean' or 'stddev' as an OccupancyGrid between its limits."""
        low, high = (
            (self.limits or _DEFAULT_LIMITS)[:2]
            if name == "mean"
            else (self.limits or _DEFAULT_LIMITS)[2:]
        )

        return outbound.occupancy_grid(self.grid, getattr(self.grid, name), low, high, self.header)

    def markers(self) -> MarkerArray:
        """Path, inducing inputs, memory, suggestions and the legend with the limits of colours."""
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
        """The best place to measure at; None where there is none."""
        places = [(s.x, s.y) for s in self.results.suggestions]
        return outbound.pose_stamped(places, self.results.position, self.header) if places else None

    def suggestions(self) -> PoseArray:
        """All places to measure at, best first."""
        return outbound.pose_array(
            [(s.x, s.y) for s in self.results.suggestions], self.results.position, self.header
        )


@dataclass(frozen=True)
class Output:
    """One output topic, ~/name.

    Attributes:
        name: Of the topic, without ~/.
        kind: Message class, or its ROS name where it may not be installed.
        part: The part of Results that it shows: 'grid', 'markers' or 'suggestions'.
        make: Makes the message; None where there is nothing to publish.
        clear: Makes the message that replaces it when the map is emptied; None: nothing is sent.
    """

    name: str
    kind: type | str
    part: str
    make: Callable[[MessageInputs], object]
    clear: Callable[[MessageInputs], object] | None = None


def _of_classes(shown: MessageInputs) -> OccupancyGrid | None:
    return None if shown.grid.classes is None else outbound.class_grid(shown.grid, shown.header)


def _layers(shown: MessageInputs) -> object:
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
        lambda s: outbound.limits_message(_DEFAULT_LIMITS),
    ),
    Output("class", OccupancyGrid, "grid", _of_classes, _of_classes),
    Output("grid_map", GRID_MAP, "grid", _layers, _layers),
    Output(
        "markers",
        MarkerArray,
        "markers",
        MessageInputs.markers,
        lambda s: markers.delete_all(s.header),
    ),
    Output("suggestion", PoseStamped, "suggestions", MessageInputs.suggestion),
    Output(
        "suggestions",
        PoseArray,
        "suggestions",
        MessageInputs.suggestions,
        lambda s: outbound.pose_array((), None, s.header),
    ),
)


@dataclass
class _Topic:
    """An output with its publisher and its pace.

    Attributes:
        output: What is published.
        publisher: The ROS publisher.
        subscribers: Their number at the last tick.
        revision: Of the map published last; None makes the topic due whatever the revision.
        begun: Monotonic s at which its period began; a late tick does not delay the one after.
    """

    output: Output
    publisher: object
    subscribers: int = 0
    revision: int | None = None
    begun: float = float("-inf")


class MapPublishers:
    """Publishers of the node's output topics, each with its own demand and pace.

    Args:
        node: The node that publishes.
        map_settings: Unit and scale of the field.
        find: ROS type name -> its class, or None where it is not installed.

    Attributes:
        limits: Limits of the colours published last; None before the first.
        published: Number of sets of results published.
    """

    def __init__(self, node, map_settings, find=message_class):
        self._node = node
        self._unit, self._scale = map_settings.field_unit, map_settings.field_scale

        types = {
            output.name: find(output.kind) if isinstance(output.kind, str) else output.kind
            for output in OUTPUTS
        }
        self._grid_map = types["grid_map"]
        self._outputs = {
            output.name: _Topic(
                output, node.create_publisher(types[output.name], f"~/{output.name}", LATCHED)
            )
            for output in OUTPUTS
            if types[output.name] is not None
        }

        self._due: set[str] = set()
        self._last_grid = None
        # data of the field cloud, reused: publish() has copied it when it returns
        self._room = array("B")
        self._suggested = ()
        self.limits: outbound.Limits | None = None
        self.published = 0

    def renew(self, map_settings) -> None:
        """Make all topics due, since another map has taken the place of this one."""
        self._unit, self._scale = map_settings.field_unit, map_settings.field_scale
        self._suggested, self.limits = (), None  # of the map before
        for topic in self._outputs.values():
            topic.revision = None

    def renew_part(self, part: str, at_once: bool = True) -> None:
        """Make the topics of a part of Results due although the map has not changed.

        Args:
            part: 'grid', 'markers' or 'suggestions'.
            at_once: Due at the next tick; False: when their period is over.
        """
        for topic in self._outputs.values():
            if topic.output.part == part and (at_once or topic.revision is not None):
                topic.revision = None if at_once else _STALE_REVISION

    def destroy(self) -> None:
        """Remove the publishers (lifecycle clean-up)."""
        for topic in self._outputs.values():
            self._node.destroy_publisher(topic.publisher)
        self._outputs = {}

    def due(self, revision: int, now: float, periods: dict[str, float]) -> set[str]:
        """Choose the topics to publish next, and return the parts of Results that they need.

        Args:
            revision: Of the map now; 0 while nothing has been measured.
            now: Monotonic time, s.
            periods: Part -> seconds between two messages; 0 turns the part off.

        Returns:
            Of 'grid', 'markers', 'suggestions' those worth making now; empty where none is.
        """
        self._due = set()
        for name, topic in self._outputs.items():
            count = topic.publisher.get_subscription_count()
            if count > topic.subscribers:  # a late joiner waits for a message
                topic.revision = None
            topic.subscribers = count

            period = periods[topic.output.part]
            has_news = topic.revision is None
            # a tenth of the period is allowed for ticks that come a little early
            if (
                count
                and period
                and revision
                and (has_news or (topic.revision != revision and now >= topic.begun + 0.9 * period))
            ):
                self._due.add(name)
                # after a pause the schedule begins anew: nothing is caught up
                topic.begun = max(topic.begun + period, now - 0.5 * period)
        return {self._outputs[name].output.part for name in self._due}

    def publish(self, results, frame: str, next_pose: PoseStamped | None = None) -> None:
        """Publish results on the topics that were due.

        Args:
            results: Results of the worker.
            frame: Frame of the map.
            next_pose: Next pose of a plan that is being driven, which ~/suggestion shows in place
                of the best suggestion; None while no plan is driven.
        """
        self._last_grid, self.limits = results.grid, results.limits or self.limits

        parts_made = {"grid"} | ({"markers"} if results.inducing is not None else set())
        if results.suggestions is not None:
            parts_made.add("suggestions")
            self._suggested = results.suggestions.positions

        shown = self._shown(frame, results.grid, self.limits, results)

        for name in self._due:
            topic = self._outputs[name]
            if topic.output.part not in parts_made:
                continue  # its revision stays old, so it is due again
            message = (
                next_pose
                if name == "suggestion" and next_pose is not None
                else topic.output.make(shown)
            )
            if message is not None:
                topic.publisher.publish(message)
            topic.revision = results.revision

        self._due = set()
        self.published += 1

    def _shown(
        self, frame: str, grid: FieldGrid, limits: outbound.Limits | None, results: Results | None
    ) -> MessageInputs:
        """What messages of a drawing are made of, stamped now."""
        header = Header(frame_id=frame, stamp=self._node.get_clock().now().to_msg())
        return MessageInputs(
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

    def wants(self, part: str) -> bool:
        """Whether somebody listens to a topic whose messages need a part of Results."""
        return any(t.subscribers for t in self._outputs.values() if t.output.part == part)

    def answer(self, layer: str, drawn, frame: str) -> OccupancyGrid:
        """One layer of a whole map as the answer of a service; its limits go out on ~/limits.

        Args:
            layer: 'mean' or 'stddev'.
            drawn: (FieldGrid, limits), or None for an empty map, whose answer has no cells.
            frame: Frame of the map.
        """
        if drawn is None:
            return OccupancyGrid(
                header=Header(frame_id=frame, stamp=self._node.get_clock().now().to_msg())
            )

        grid, limits = drawn
        self.limits = limits or self.limits or _DEFAULT_LIMITS
        self._outputs["limits"].publisher.publish(outbound.limits_message(self.limits))
        return self._shown(frame, grid, self.limits, None).layer(layer)

    def received(self) -> bool:
        """Whether all reliable subscribers have acknowledged what was published."""
        now = Duration(seconds=0.0)
        return all(
            topic.publisher.wait_for_all_acked(now)
            for topic in self._outputs.values()
            if topic.publisher.get_subscription_count()
        )

    def publish_cleared(self, frame: str) -> None:
        """Replace the latched messages after the map was cleared.

        Grids become unknown everywhere; clouds and markers become empty.
        """
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

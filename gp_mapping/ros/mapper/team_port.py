"""Topics by which robots exchange the totals of their maps (~/tiles) and what they will measure.

~/tiles is a std_msgs/UInt8MultiArray, which every ROS installation has, with the bytes of
store/message.py, and ~/claims a cloud of places. The topics are reliable; what is lost all the same
is sent again in the next round. Wiring only.
"""

from __future__ import annotations

import time
from array import array
from functools import partial

import numpy as np
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header, UInt8MultiArray

from gp_mapping.errors import named, one_line
from gp_mapping.planning.area.places import FARTHEST, are_valid_places
from gp_mapping.planning.others import Transform, moved
from gp_mapping.planning.suggest import Suggestions
from gp_mapping.ros.mapper.queries import read_positions
from gp_mapping.ros.wire import outbound
from gp_mapping.runtime.team.team import Team
from gp_mapping.settings.team import robots_of, transforms_of

__all__ = ["QOS", "ClaimsPort", "TeamPort", "others_of", "tiles_topic"]

_REPEAT = 5.0  # s after which what was announced is sent again
_MOST = 1000  # points of one announcement

QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=20,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.VOLATILE,
)


def tiles_topic(robot: str) -> str:
    """Topic on which the mapper in a robot's namespace sends its totals."""
    return f"/{robot}/mapping/tiles"


def others_of(node) -> list[str]:
    """Names of the robots that a node merges: merge_from without the node's own robot."""
    own = node.resolve_topic_name("~/tiles")
    return [robot for robot in robots_of(node.settings.merge_from) if tiles_topic(robot) != own]


class TeamPort:
    """Publishers and subscriptions of ~/tiles and ~/claims, of a MappingNode that is active.

    Args:
        node: The MappingNode.
        team: Makes the messages that are sent and takes in those that arrive.
    """

    def __init__(self, node, team: Team):
        self._node, self._team = node, team
        self._publisher = (
            node.create_publisher(UInt8MultiArray, "~/tiles", QOS) if team.sending else None
        )

        self._subscriptions = [
            node.create_subscription(
                UInt8MultiArray, tiles_topic(robot), partial(self._on_message, robot), QOS
            )
            for robot in team.sources
        ]
        self._claims = ClaimsPort(node)

    def destroy(self) -> None:
        """Remove publishers and subscriptions."""
        self._claims.destroy()
        if self._publisher is not None:
            self._node.destroy_publisher(self._publisher)
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._publisher, self._subscriptions = None, []

    def _on_message(self, robot: str, message: UInt8MultiArray) -> None:
        source = self._team.sources[robot]
        if not self._team.accept(robot, bytes(message.data)):
            self._node.get_logger().warning(source.fault, throttle_duration_sec=10.0)

    def tick(self) -> None:
        """Publish the messages that are due; a timer calls this several times a second."""
        data = self._team.tick(time.monotonic())
        if data is not None and self._publisher is not None:
            self._publisher.publish(UInt8MultiArray(data=array("B", data)))
        self._claims.tick()


class ClaimsPort:
    """~/claims of this robot and of those that it merges, while its MappingNode is active.

    A cloud of points x, y (m) and choice (0, 1, …): where the robot measures on its way to each
    place that it suggests, that place last. It is sent with the suggestions, so only where somebody
    listens to these; while a plan is driven it is empty, since the plan says what is measured.

    Args:
        node: The MappingNode.
    """

    def __init__(self, node):
        self._node, self._claims = node, node.suggester.claims
        self._publisher = (
            node.create_publisher(PointCloud2, "~/claims", QOS) if node.listens else None
        )
        self._announced: Suggestions | None = None  # the newest that were
        self._claimed, self._sent_at = False, float("-inf")  # by the last message; monotonic s

        transforms = transforms_of(node.settings.merge_transforms)
        self._subscriptions = [
            node.create_subscription(
                PointCloud2,
                f"/{robot}/mapping/claims",
                partial(self._on_message, robot, transforms.get(robot)),
                QOS,
            )
            for robot in others_of(node)
        ]

    def destroy(self) -> None:
        """Claim nothing any more; remove publisher and subscriptions."""
        if self._publisher is not None:
            self._send((), time.monotonic())
            self._node.destroy_publisher(self._publisher)
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._publisher, self._subscriptions = None, []

    def _send(self, parts: tuple[np.ndarray, ...], now: float) -> None:
        """Publish what is measured by each choice; nothing where nothing is or was claimed."""
        if self._publisher is None or not (parts or self._claimed):
            return
        points = [np.column_stack([x, np.full(len(x), i)]) for i, x in enumerate(parts)]
        cloud = np.concatenate([np.empty((0, 3)), *points])[:_MOST]
        stamp = self._node.get_clock().now().to_msg()
        header = Header(frame_id=self._node.frame, stamp=stamp)
        self._publisher.publish(outbound.cloud(cloud, ("x", "y", "choice"), header))
        self._claimed, self._sent_at = bool(parts), now

    def tick(self) -> None:
        """Announce what is suggested, repeat it, or take it back; drop what has expired."""
        now = time.monotonic()
        for robot in self._claims.expire(now):
            self._node.get_logger().info(
                f"{robot} does not repeat what it will measure: those places are free"
            )

        node, newest = self._node, self._node.suggester.newest
        if (
            node.survey.plan
            or not node.worker.revision
            or not node.publishers_.wants("suggestions")
        ):
            self._send((), now)
        elif newest is not self._announced or now - self._sent_at > _REPEAT:
            self._announced = newest
            self._send(() if newest is None else newest.parts, now)

    def _on_message(self, robot: str, transform: Transform | None, message: PointCloud2) -> None:
        """Take in what another robot announces.

        Args:
            robot: Its name in merge_from.
            transform: Where its frame lies in the map's; None: it is the map's.
            message: The points.
        """
        frame, own_frame = message.header.frame_id.lstrip("/"), self._node.frame.lstrip("/")
        if transform is None and frame and not own_frame:
            return  # it comes again, and the map's frame may be known then

        try:
            points = self._read(message, frame, own_frame, transform)
        except ValueError as error:
            self._node.worker.count("place_refused")
            self._node.get_logger().warning(
                f"what {robot} announces on ~/claims is not used: {one_line(error, 300)}",
                throttle_duration_sec=10.0,
            )
            return

        choices = np.split(points[:, :2], np.flatnonzero(np.diff(points[:, 2])) + 1)
        choices = tuple(x for x in choices if len(x))
        self._claims.take(f"/{robot}/mapping", choices, time.monotonic())

    @staticmethod
    def _read(
        message: PointCloud2, frame: str, own_frame: str, transform: Transform | None
    ) -> np.ndarray:
        """Points (N, 3) of an announcement, in the map's frame; ValueError where it is unusable."""
        if message.width * message.height > _MOST:
            raise ValueError(f"it has more than {_MOST} points")
        points = read_positions(message, "choice").astype(np.float64)
        if not are_valid_places(points[:, :2]).all() or not np.isfinite(points[:, 2]).all():
            raise ValueError(f"it has places that are not finite, or farther than {FARTHEST:g} m")
        if transform is not None:
            points[:, :2] = moved(points[:, :2], transform)
        elif frame not in ("", own_frame):
            raise ValueError(f"it is in frame {named(frame)} and the map in {named(own_frame)}")
        return points

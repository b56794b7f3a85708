"""Topics by which robots exchange the totals of their maps (~/tiles). Wiring only.

Messages are std_msgs/UInt8MultiArray, which every ROS installation has, with the bytes of
store/message.py. The topics are reliable; what is lost all the same is sent again in the next
round.
"""

from __future__ import annotations

import time
from array import array
from functools import partial

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import UInt8MultiArray

from gp_mapping.runtime.team.team import Team
from gp_mapping.settings.team import robots_of

__all__ = ["QOS", "TeamPort", "others_of", "tiles_topic"]

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
    """Publisher and subscriptions of ~/tiles, of a MappingNode that is active.

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

    def destroy(self) -> None:
        """Remove publisher and subscriptions."""
        if self._publisher is not None:
            self._node.destroy_publisher(self._publisher)
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._publisher, self._subscriptions = None, []

    def _on_message(self, robot: str, message: UInt8MultiArray) -> None:
        source = self._team.sources[robot]
        if not self._team.accept(robot, bytes(message.data)):
            self._node.get_logger().warning(source.noise, throttle_duration_sec=10.0)

    def tick(self) -> None:
        """Publish the message that is due, if any; a timer calls this several times a second."""
        data = self._team.tick(time.monotonic())
        if data is not None and self._publisher is not None:
            self._publisher.publish(UInt8MultiArray(data=array("B", data)))

"""Listens to the free-space map, whatever quality of service its publisher offers."""

from __future__ import annotations

from collections.abc import Callable

from nav_msgs.msg import OccupancyGrid
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy

from gp_mapping.ros.wire.qos import LATCHED

__all__ = ["FreeMapListener"]


class FreeMapListener:
    """Subscriptions to the topic `map`: latched, as map servers publish it, and what else is there.

    A publisher that latches nothing (volatile), or is best effort, would not be heard, and a robot
    would be sent into walls that somebody publishes. DDS names such a publisher; a subscription
    that asks for no more than it offers is then made in addition to the first, and stays.

    Args:
        node: the node that listens.
        on_map: called with each OccupancyGrid; one that both subscriptions hear comes twice.
    """

    def __init__(self, node, on_map: Callable[[OccupancyGrid], None]):
        self._node, self._on_map, self._subscriptions = node, on_map, []
        self._listen(LATCHED)

    def _listen(self, qos: QoSProfile) -> None:
        """Subscribe with this quality of service."""
        less = SubscriptionEventCallbacks(
            incompatible_qos=lambda event: self._on_incompatible(qos, event)
        )
        self._subscriptions.append(
            self._node.create_subscription(
                OccupancyGrid, "map", self._on_map, qos, event_callbacks=less
            )
        )

    def _on_incompatible(self, asked: QoSProfile, event) -> None:
        """Ask for less, once for each quality that a publisher does not offer."""
        reliable = event.last_policy_kind != QoSPolicyKind.RELIABILITY
        less = QoSProfile(
            depth=1,
            reliability=asked.reliability if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.VOLATILE if reliable else asked.durability,
        )
        if any(less == each.qos_profile for each in self._subscriptions):
            return

        self._node.get_logger().info(
            f"a publisher of {self._node.resolve_topic_name('map')} latches nothing, or is best effort: its maps are "
            "used from the next one on"
        )
        self._listen(less)

    def destroy(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []

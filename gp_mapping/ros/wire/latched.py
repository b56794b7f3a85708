"""Listens to a topic whose publishers may latch what they say, or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

__all__ = ["LatchedListener"]

_REMEMBERED = 100  # messages by which one that is heard twice is known


class LatchedListener:
    """Two subscriptions: what hears every publisher is told nothing of what was latched before.

    And what is told that does not hear a publisher that latches nothing. The second one is made
    once somebody latches, so that no other publisher warns of it; a message counts once.

    Args:
        node: The node that listens.
        kind: Class of the messages.
        name: Of the topic.
        on_message: Called with each message.
        depth: Messages that wait for the executor.
    """

    def __init__(self, node, kind: type, name: str, on_message: Callable, depth: int):
        self._node, self._kind, self._name, self._depth = node, kind, name, depth
        self._on_message = on_message
        self._heard: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._topic = node.resolve_topic_name(name)
        self._subscriptions = [node.create_subscription(kind, name, self._hear, depth)]

    def look(self) -> None:
        """Ask for what was latched, once somebody latches; cheap."""
        if len(self._subscriptions) > 1:
            return
        latches = DurabilityPolicy.TRANSIENT_LOCAL
        publishers = self._node.get_publishers_info_by_topic(self._topic)
        if any(each.qos_profile.durability == latches for each in publishers):
            qos = QoSProfile(
                depth=self._depth, reliability=ReliabilityPolicy.RELIABLE, durability=latches
            )
            # others on the topic that latch nothing are no fault: the first one hears them
            silent = SubscriptionEventCallbacks(incompatible_qos=lambda _: None)
            self._subscriptions.append(
                self._node.create_subscription(
                    self._kind, self._name, self._hear, qos, event_callbacks=silent
                )
            )

    def _hear(self, message, info: dict) -> None:
        """Hand a message on, unless the other subscription has heard it before."""
        key = info.get("source_timestamp", 0), info.get("publication_sequence_number") or 0
        if key[0] and key in self._heard:
            return
        self._heard.append(key)
        self._on_message(message)

    def destroy(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []

"""Quality of service by name, so that all topics of a kind have the same."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

__all__ = ["LATCHED", "sensor_data"]

LATCHED = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""Maps and suggestions: a late joiner that asks for transient local and reliable gets the last \
one at once."""


def sensor_data(depth: int, reliable: bool = False) -> QoSProfile:
    """Measurements and odometry: volatile, and best effort, which hears every publisher.

    The stock sensor profile keeps 5 messages: fewer than come at 100 Hz while a large map is drawn.

    Args:
        depth: Messages that wait for the executor.
        reliable: Reliable instead of best effort.
    """
    reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=reliability,
        durability=DurabilityPolicy.VOLATILE,
    )

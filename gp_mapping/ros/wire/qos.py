"""Quality of service by name, so that every topic says what it promises."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

__all__ = ["LATCHED", "sensor_data"]

LATCHED = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""Maps and suggestions: a late joiner that asks for transient local and reliable gets the last one at once."""


def sensor_data(depth: int, reliable: bool = False) -> QoSProfile:
    """Measurements and odometry: best effort hears every publisher; volatile; depth messages wait for the executor.

    The stock sensor profile keeps 5: less than one drawing of a large map takes at 100 Hz.
    """
    reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=reliability,
        durability=DurabilityPolicy.VOLATILE,
    )

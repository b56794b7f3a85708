"""Message types by their ROS names."""

from __future__ import annotations

import importlib

__all__ = ["message_class"]


def message_class(kind: str) -> type | None:
    """'sensor_msgs/msg/MagneticField' -> its Python class; None where that package is not installed."""
    package, _, name = kind.rpartition("/")
    try:
        return getattr(importlib.import_module(package.replace("/", ".")), name)
    except (ImportError, AttributeError):
        return None

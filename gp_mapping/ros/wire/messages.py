"""Message types by their ROS names."""

from __future__ import annotations

import importlib

__all__ = ["message_class"]


def message_class(kind: str) -> type | None:
    """The Python class of a ROS type, as 'sensor_msgs/msg/MagneticField'.

    None where its package is not installed.
    """
    package, _, name = kind.rpartition("/")
    try:
        return getattr(importlib.import_module(package.replace("/", ".")), name)
    except (ImportError, AttributeError):
        return None

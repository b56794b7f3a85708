"""Message types by their ROS names."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

from gp_mapping.intake.sensors.value_field import Choice, steps_of

__all__ = ["field_type", "message_class"]


def message_class(kind: str) -> type | None:
    """The Python class of a ROS type, as 'sensor_msgs/msg/MagneticField'.

    None where its package is not installed.
    """
    package, _, name = kind.rpartition("/")
    try:
        return getattr(importlib.import_module(package.replace("/", ".")), name)
    except (ImportError, AttributeError):
        return None


# as rclpy writes the types of arrays, "sequence<float, 4>" and "float[4]"
_SEQUENCE = re.compile(r"sequence<(?P<of>[^,>]+)(?:, *\d+)?>|(?P<each>.+)\[\d+\]")


def field_type(of: type, path: str, find: Callable[[str], type | None] = message_class) -> str:
    """The type of a field, as rclpy names it; "" where there is no such field.

    Args:
        of: the class of the message.
        path: as of `value_field`.
        find: ROS type name -> its class, or None where it is not installed.
    """
    message: type | None = of
    found = ""
    for step in steps_of(path):
        array = _SEQUENCE.fullmatch(found)
        if isinstance(step, Choice) and array is None:
            continue  # of the message that holds the number
        if isinstance(step, (int, Choice)):
            found = (array["of"] or array["each"]) if array else ""
        else:
            fields = {} if message is None else message.get_fields_and_field_types()
            found = fields.get(step, "")
        message = find(found.replace("/", "/msg/")) if "/" in found and "<" not in found else None
    return found

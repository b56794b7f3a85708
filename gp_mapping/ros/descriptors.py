"""One field of a settings class as a ROS parameter. Light: simulator and player start without torch."""

from __future__ import annotations

import sys

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

from gp_mapping.ros.node_settings import LIVE_PARAMETERS

__all__ = ["ParameterError", "describe"]


class ParameterError(ValueError):
    """One or more parameters are wrong; the text has a line for each."""


def describe(f) -> ParameterDescriptor:
    """The descriptor of one dataclass field: meaning, unit, range, choices, and whether it can be set live."""
    meta = f.metadata
    unit = f" [{meta['unit']}]" if meta.get("unit") else ""
    out = ParameterDescriptor(name=f.name, description=f"{meta.get('doc', '')}{unit}",
                              read_only=f.name not in LIVE_PARAMETERS)
    if meta.get("choices"):
        out.additional_constraints = "one of: " + ", ".join(map(str, meta["choices"]))
    low, high = meta.get("low"), meta.get("high")
    if type(f.default) is float and (low is not None or high is not None):
        out.floating_point_range = [FloatingPointRange(
            from_value=float(-sys.float_info.max if low is None else low),
            to_value=float(sys.float_info.max if high is None else high), step=0.0)]
    elif type(f.default) is int and (low is not None or high is not None):
        out.integer_range = [IntegerRange(from_value=int(-2**63 if low is None else low),
                                          to_value=int(2**63 - 1 if high is None else high), step=1)]
    return out

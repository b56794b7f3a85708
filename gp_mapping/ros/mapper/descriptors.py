"""ROS parameter descriptors from fields of settings classes.

Light on purpose: simulator and player import it and start without torch.
"""

from __future__ import annotations

import sys

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

from gp_mapping.errors import UserError
from gp_mapping.settings.node import LIVE_PARAMETERS

__all__ = ["ParameterError", "describe", "describe_openly"]


class ParameterError(UserError):
    """One or more parameters are wrong; the text has one line for each."""


def _meaning(f) -> str:
    """Description of a field with its unit: 'text [unit]'."""
    unit = f" [{f.metadata['unit']}]" if f.metadata.get("unit") else ""
    return f"{f.metadata.get('doc', '')}{unit}"


def describe_openly(f) -> ParameterDescriptor:
    """Descriptor of a parameter that takes any value, to be checked at configure."""
    return ParameterDescriptor(
        name=f.name,
        description=_meaning(f),
        dynamic_typing=True,
        additional_constraints="checked when the node is configured",
    )


def describe(f, managed: bool = False) -> ParameterDescriptor:
    """Descriptor of one settings field: meaning, unit, range, choices, and whether it is read-only.

    Args:
        f: A dataclass field made by `setting`.
        managed: Of a lifecycle node. What is not live may be set there after clean-up, so it is
            not declared read-only.
    """
    meta, live = f.metadata, f.name in LIVE_PARAMETERS
    out = ParameterDescriptor(
        name=f.name, description=_meaning(f), read_only=not live and not managed
    )

    constraints = ["one of: " + ", ".join(map(str, meta["choices"]))] if meta.get("choices") else []
    constraints += (
        ["read when the node is configured: clean up before setting it"]
        if managed and not live
        else []
    )
    out.additional_constraints = "; ".join(constraints)

    # a bool is no int here: type() is asked, not isinstance
    low, high = meta.get("low"), meta.get("high")
    if type(f.default) is float and (low is not None or high is not None):
        out.floating_point_range = [
            FloatingPointRange(
                from_value=float(-sys.float_info.max if low is None else low),
                to_value=float(sys.float_info.max if high is None else high),
                step=0.0,
            )
        ]
    elif type(f.default) is int and (low is not None or high is not None):
        out.integer_range = [
            IntegerRange(
                from_value=int(-(2**63) if low is None else low),
                to_value=int(2**63 - 1 if high is None else high),
                step=1,
            )
        ]

    return out

"""Areas of health as a diagnostic_msgs/DiagnosticArray."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

__all__ = ["to_array"]


def _text(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def to_array(areas, node_name: str, stamp) -> DiagnosticArray:
    """One status for each Area, named 'node: area'. stamp: builtin_interfaces/Time."""
    out = DiagnosticArray()
    out.header.stamp = stamp
    out.status = [DiagnosticStatus(level=bytes([area.level]), name=f"{node_name.lstrip('/')}: {area.name}",
                                   message=area.message, hardware_id=node_name,
                                   values=[KeyValue(key=key, value=_text(value)) for key, value in area.values.items()])
                  for area in areas]
    return out

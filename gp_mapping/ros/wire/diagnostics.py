"""Areas of health as a diagnostic_msgs/DiagnosticArray."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

__all__ = ["to_array"]


def _text(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _values(area) -> list[tuple[str, object]]:
    """The values of an area, and its warnings one by one.

    In the message warnings are joined, and they may contain semicolons themselves.
    """
    return [
        *area.values.items(),
        *((f"warning {i}", text) for i, text in enumerate(area.warnings, 1)),
    ]


def to_array(areas, node_name: str, stamp) -> DiagnosticArray:
    """One diagnostic status for each area, named 'node: area'.

    Args:
        areas: Health areas with level, name, message, values and warnings.
        node_name: Fully qualified.
        stamp: builtin_interfaces/Time.
    """
    out = DiagnosticArray()
    out.header.stamp = stamp

    out.status = [
        DiagnosticStatus(
            level=bytes([area.level]),
            name=f"{node_name.lstrip('/')}: {area.name}",
            message=area.message,
            hardware_id=node_name,
            values=[KeyValue(key=key, value=_text(value)) for key, value in _values(area)],
        )
        for area in areas
    ]

    return out

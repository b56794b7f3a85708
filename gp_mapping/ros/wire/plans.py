"""Plans as messages: nav_msgs/Path with headings of travel, and markers of what each part gains."""

from __future__ import annotations

import math

import numpy as np
from geometry_msgs.msg import Point, PoseStamped
from nav_msgs.msg import Path
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

__all__ = ["path", "plan_markers", "pose"]


def pose(x: float, y: float, heading: float, header: Header) -> PoseStamped:
    """A pose in the plane.

    Args:
        x: m.
        y: m.
        heading: rad.
        header: Of the message.
    """
    out = PoseStamped(header=header)
    out.pose.position.x, out.pose.position.y = float(x), float(y)
    out.pose.orientation.z, out.pose.orientation.w = (
        math.sin(0.5 * heading),
        math.cos(0.5 * heading),
    )
    return out


def path(plan, spacing: float, header: Header) -> Path:
    """A plan as poses with the heading of travel.

    An empty plan has none, which means: stand still.

    Args:
        plan: The plan.
        spacing: Of two poses, m, at most.
        header: Of the message.
    """
    x, headings = plan.poses(spacing)
    return Path(
        header=header,
        poses=[pose(*at, heading, header) for at, heading in zip(x.tolist(), headings.tolist())],
    )


def plan_markers(plan, header: Header, unit: str, scale: float) -> MarkerArray:
    """Markers of a plan.

    plan: the line; plan_gain: each measurement, coloured by its fraction of the largest gain;
    plan_stops: the goals; plan_score: its length, and the stddev of the area now and after it.

    Args:
        plan: Plan.
        header: Of all markers.
        unit: Name of the display unit.
        scale: One display unit in SI.
    """
    line = _marker(header, "plan", Marker.LINE_STRIP, 0.04, (0.2, 0.6, 1.0, 1.0), plan.line)
    stops = _marker(
        header, "plan_stops", Marker.SPHERE_LIST, 0.12, (0.2, 0.6, 1.0, 0.9), plan.stops
    )
    gains = _marker(
        header, "plan_gain", Marker.SPHERE_LIST, 0.09, (1.0, 1.0, 1.0, 1.0), plan.visits
    )

    best_gain = max(float(plan.gains.max()), 1e-300) if len(plan.gains) else 1.0
    gains.colors = [
        ColorRGBA(r=float(fraction), g=0.25 + 0.5 * float(fraction), b=1.0 - float(fraction), a=1.0)
        for fraction in np.sqrt(np.maximum(plan.gains, 0.0) / best_gain)
    ]

    score = _marker(header, "plan_score", Marker.TEXT_VIEW_FACING, 0.25, (1.0, 1.0, 1.0, 1.0), [])
    if plan:
        score.action = Marker.ADD
        score.pose.position.x, score.pose.position.y = plan.line[-1].tolist()
        score.pose.position.z = 0.3  # above the goals
        score.text = (
            f"{plan.metres:.1f} m, {plan.seconds:.0f} s\nstddev {plan.stddev_now / scale:.3g} to "
            f"{plan.stddev_then / scale:.3g} {unit}"
        )
    return MarkerArray(markers=[line, gains, stops, score])


def _marker(header: Header, namespace: str, kind: int, size: float, colour: tuple, xy) -> Marker:
    """A marker with points xy (K, 2), m; it deletes the one before where there are none."""
    out = Marker(
        header=header,
        ns=namespace,
        id=0,
        type=kind,
        action=Marker.ADD if len(xy) else Marker.DELETE,
    )
    out.pose.orientation.w = 1.0
    out.scale.x = out.scale.y = out.scale.z = size
    out.color = ColorRGBA(r=colour[0], g=colour[1], b=colour[2], a=colour[3])
    out.points = [Point(x=x, y=y, z=0.0) for x, y in np.asarray(xy).tolist()]
    return out

"""What the map is made of, for RViz: inducing inputs, memory, path, suggestions, and a legend with the limits."""

from __future__ import annotations

from geometry_msgs.msg import Point
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

__all__ = ["NAMESPACES", "delete_all", "legend_text", "map_markers"]

NAMESPACES = ("inducing", "memory", "path", "suggestions", "legend")
MOST_POINTS = (
    4000  # a Point is a Python object: more would cost the executor more than the map itself
)


def _points(xy) -> list[Point]:
    """(K, 2) tensor to Points, every ⌈K / MOST_POINTS⌉-th where there are too many."""
    if not len(xy):
        return []
    step = max(1, -(-len(xy) // MOST_POINTS))
    return [Point(x=x, y=y, z=0.0) for x, y in xy[::step].tolist()]


def _segments(path, starts) -> list[Point]:
    """Two Points for each piece of the path (K, 2); starts (K,) bool: no piece leads to these, for nobody drove it."""
    step = max(1, -(-2 * len(path) // MOST_POINTS))
    kept = _points(path[::step])
    begins = [any(starts[max(0, i - step + 1) : i + 1]) for i in range(0, len(path), step)]
    return [
        end
        for before, after, begin in zip(kept, kept[1:], begins[1:])
        if not begin
        for end in (before, after)
    ]


def _marker(header: Header, namespace: str, kind: int, size: float, colour: tuple) -> Marker:
    out = Marker(header=header, ns=namespace, id=0, type=kind, action=Marker.ADD)
    out.pose.orientation.w = 1.0
    out.scale.x = out.scale.y = out.scale.z = size
    out.color = ColorRGBA(r=colour[0], g=colour[1], b=colour[2], a=colour[3])
    return out


def legend_text(limits, unit: str, scale: float) -> str:
    """The limits of the colours in display units. limits: outbound.Limits (SI); scale: one display unit in SI."""
    if limits is None:
        return "nothing known yet"
    mean_low, mean_high, stddev_low, stddev_high = (f"{value / scale:.4g}" for value in limits)
    return f"mean {mean_low} to {mean_high} {unit}\nstddev {stddev_low} to {stddev_high} {unit}"


def map_markers(
    *,
    inducing,
    memory,
    path,
    path_starts,
    suggestions,
    grid,
    limits,
    unit: str,
    scale: float,
    header: Header,
) -> MarkerArray:
    """Markers with stable namespaces and ids, so that each array replaces the one before.

    inducing (M, 2), memory (m, 2), path (K, 2), suggestions (k, 2): tensors, map frame.
    path_starts (K,) bool: where a pass begins or the position jumped.
    grid: FieldGrid or None; it places the legend.
    """
    cell = float(grid.resolution) if grid is not None else 0.05
    out = []
    for namespace, xy, kind, size, colour in (
        ("inducing", inducing, Marker.POINTS, cell, (1.0, 1.0, 1.0, 1.0)),
        ("memory", memory, Marker.POINTS, 0.6 * cell, (0.1, 0.1, 0.1, 0.7)),
        ("path", path, Marker.LINE_LIST, 0.3 * cell, (0.2, 0.9, 0.3, 1.0)),
        ("suggestions", suggestions, Marker.SPHERE_LIST, 2.5 * cell, (1.0, 0.5, 0.1, 0.9)),
    ):
        marker = _marker(header, namespace, kind, size, colour)
        marker.points = (
            _segments(xy, path_starts.tolist()) if kind == Marker.LINE_LIST else _points(xy)
        )
        if not marker.points:
            marker.action, marker.points = Marker.DELETE, []  # RViz complains about empty ones
        out.append(marker)
    legend = _marker(header, "legend", Marker.TEXT_VIEW_FACING, 0.3, (1.0, 1.0, 1.0, 1.0))
    legend.text = legend_text(limits, unit, scale)
    if grid is not None:
        height, width = grid.mean.shape
        legend.scale.z = max(0.05, 0.05 * cell * max(height, width))
        legend.pose.position.x = grid.origin[0] + 0.5 * cell * width
        legend.pose.position.y = grid.origin[1] + cell * height + 1.5 * legend.scale.z
    out.append(legend)
    return MarkerArray(markers=out)


def delete_all(header: Header) -> MarkerArray:
    """Takes every marker of the topic away: sent when the map is cleared."""
    return MarkerArray(markers=[Marker(header=header, action=Marker.DELETEALL)])

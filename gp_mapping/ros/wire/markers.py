"""What the map is made of, for RViz: inducing inputs, memory, path, suggestions and a legend."""

from __future__ import annotations

from geometry_msgs.msg import Point
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

__all__ = ["NAMESPACES", "delete_all", "legend_text", "map_markers"]

NAMESPACES = ("inducing", "memory", "path", "suggestions", "legend")
# a Point is a Python object: more of them would cost the executor more than the map itself
MOST_POINTS = 4000


def _points(xy) -> list[Point]:
    """Points of a tensor (K, 2), every ⌈K / MOST_POINTS⌉-th where there are too many."""
    if not len(xy):
        return []
    step = max(1, -(-len(xy) // MOST_POINTS))  # rounded up
    return [Point(x=x, y=y, z=0.0) for x, y in xy[::step].tolist()]


def _segments(path, starts) -> list[Point]:
    """Two Points for each piece of a path.

    Args:
        path: (K, 2), m.
        starts: (K,) bool: True where no piece leads to the point, since that was not driven.
    """
    step = max(1, -(-2 * len(path) // MOST_POINTS))  # rounded up; two Points for each piece
    kept = _points(path[::step])
    # a piece between points that are kept is left out where a start lies anywhere along it
    begins = [any(starts[max(0, i - step + 1) : i + 1]) for i in range(0, len(path), step)]
    return [
        end
        for before, after, begin in zip(kept, kept[1:], begins[1:])
        if not begin
        for end in (before, after)
    ]


def _marker(header: Header, namespace: str, kind: int, size: float, colour: tuple) -> Marker:
    """An empty marker at the map's origin.

    Args:
        header: Of the marker.
        namespace: By which RViz lists it.
        kind: Of the marker, as Marker.LINE_LIST.
        size: m.
        colour: Red, green, blue, alpha, 0 … 1.
    """
    out = Marker(header=header, ns=namespace, id=0, type=kind, action=Marker.ADD)
    out.pose.orientation.w = 1.0
    out.scale.x = out.scale.y = out.scale.z = size
    out.color = ColorRGBA(r=colour[0], g=colour[1], b=colour[2], a=colour[3])
    return out


def legend_text(limits, unit: str, scale: float) -> str:
    """The limits of the colours in display units.

    Args:
        limits: outbound.Limits, SI; None while nothing is known.
        unit: Name of the display unit.
        scale: One display unit in SI.
    """
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

    Args:
        inducing: (M, 2) tensor, in the map's frame, as all positions.
        memory: (m, 2).
        path: (K, 2).
        path_starts: (K,) bool: where a pass begins or the position jumped.
        suggestions: (k, 2).
        grid: FieldGrid or None; it places the legend.
        limits: outbound.Limits, SI; None while nothing is known.
        unit: Name of the display unit.
        scale: One display unit in SI.
        header: Of all markers.
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
    """A message that removes all markers of the topic: sent when the map is cleared."""
    return MarkerArray(markers=[Marker(header=header, action=Marker.DELETEALL)])

"""The file that holds a planned route: a table, GeoJSON or a picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

import numpy as np

from gp_mapping.commands.plan.obstacles import Obstacles
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.planning import Plan, Polygon

__all__ = ["route_file"]


def route_file(
    session,
    grid: FieldGrid | None,
    route: Plan,
    kind: str,
    area: float,
    obstacles: Obstacles | None = None,
    keep_out: Sequence[Polygon] = (),
) -> bytes:
    """Return the content of the file that holds the route.

    Args:
        session: the map, for a picture.
        grid: the map as drawn, for a picture; None for another kind.
        route: what is written.
        kind: ending of the file name. A table holds poses with headings, and for each what the
            drive up to there has taken off the mean variance of the area, in the map's unit
            squared (of classes and counts that of the latent field, which has none); GeoJSON the
            line and its stops.
        area: m², each weighted as in the objective.
        obstacles: for a picture; None: there are none.
        keep_out: polygons, for a picture.
    """
    x, headings = route.poses(0.25)
    distances = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(x, axis=0).T))])
    gained = np.interp(
        distances, np.append(0.0, route.marks), np.append(0.0, np.cumsum(route.gains))
    )
    settings = session.settings
    gained = gained / (area * settings.field_scale**2)

    if kind == ".csv":
        table = io.StringIO()
        rows = csv.writer(table)
        unit = settings.field_unit
        unit = unit if unit.isalnum() else f"({unit})"
        taken = f"variance_taken_{unit}^2" if settings.metric else "variance_taken_latent"
        rows.writerow(["x_m", "y_m", "heading_rad", "driven_m", taken])
        rows.writerows(
            [*map(repr, map(float, row))]
            for row in np.column_stack([x, headings, distances, gained])
        )
        return table.getvalue().encode()

    # metres in the map's frame, not degrees as GeoJSON expects: the properties name the unit
    if kind == ".geojson":
        return json.dumps(
            {
                "type": "FeatureCollection",
                "features": [
                    {
                        "type": "Feature",
                        "properties": {
                            "kind": route.kind,
                            "metres": route.metres,
                            "seconds": route.seconds,
                            "unit": "m, map frame",
                        },
                        "geometry": {"type": "LineString", "coordinates": route.line.tolist()},
                    },
                    {
                        "type": "Feature",
                        "properties": {"role": "stops"},
                        "geometry": {"type": "MultiPoint", "coordinates": route.stops.tolist()},
                    },
                ],
            },
            indent=1,
            allow_nan=False,
        ).encode()
    return _picture(session, grid, route, kind, obstacles, keep_out)


def _picture(session, grid, route: Plan, kind: str, obstacles, keep_out) -> bytes:
    """Return the picture of a route on the map; arguments as in `route_file`."""
    from gp_mapping.store.exports.picture import draw_map

    def draw_over(axes: list) -> list:
        """Draw the route and what is in its way; return entries for the legend."""
        for axis in axes[:2]:
            entries = _draw(axis, route.line, obstacles, keep_out)
        return entries

    figure, picture = draw_map(session, grid, (), draw_over=draw_over), io.BytesIO()
    figure.savefig(picture, format=kind.lstrip("."))
    return picture.getvalue()


def _draw(axis, line: np.ndarray, obstacles: Obstacles | None, keep_out) -> list:
    """Draw a route's line (N, 2) m and what is in its way; return entries for the legend."""
    axis.plot(*line.T, color="white", linewidth=2.5)
    (way,) = axis.plot(*line.T, color="tab:red", linewidth=1.2, label="planned route")
    (begin,) = axis.plot(
        *line[:1].T, "o", color="tab:red", markeredgecolor="white", label="its beginning"
    )
    _show_all(axis, line)
    shut = [] if obstacles is None else obstacles.draw(axis)
    for polygon in keep_out:
        limits = axis.get_xlim(), axis.get_ylim()
        (area,) = axis.fill(
            *polygon.corners.T, fill=False, hatch="//", edgecolor="tab:red", label="kept out of"
        )
        axis.set_xlim(limits[0])
        axis.set_ylim(limits[1])
        shut += [area] if polygon is keep_out[0] else []
    return [way, begin, *shut]


def _show_all(axis, line: np.ndarray) -> None:
    """Widen an axis of a picture to a line (N, 2), m: a route may leave what is drawn."""
    room = 0.02 * float(np.ptp(line, axis=0).max())
    for get, put, values in (
        (axis.get_xlim, axis.set_xlim, line[:, 0]),
        (axis.get_ylim, axis.set_ylim, line[:, 1]),
    ):
        low, high = get()
        put(min(low, values.min() - room), max(high, values.max() + room))

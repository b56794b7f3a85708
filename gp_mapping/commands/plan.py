"""`gp-mapping plan MAP`: plan the next drive on a saved map.

The route is written as CSV, GeoJSON or a picture.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math

import numpy as np

from gp_mapping.commands.arguments.saved import ROUTES
from gp_mapping.commands.output import file_to_write
from gp_mapping.commands.saved import checkpoint_in, open_session
from gp_mapping.errors import UsageError
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.planning import (
    Budget,
    PathValue,
    Plan,
    Polygon,
    Problem,
    SurveyArea,
    Travel,
    plan,
    planner_names,
)
from gp_mapping.planning.area.places import FARTHEST, are_valid_places
from gp_mapping.planning.problem import default_mix
from gp_mapping.planning.worth.levels import Levels
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.trial import errors_about
from gp_mapping.store.wording import unit_text

__all__ = ["places", "run"]

_TEXTS = (".csv", ".geojson")  # of ROUTES; the others are pictures
_LONGEST = 1e6  # m of a budget, as the node's plan_budget
_EFFORT = 1000  # routes compared: more than a node compares, since the plan is made only once


def places(text: str, option: str) -> list[tuple[float, float]]:
    """Parse places such as '0 0, 1 0.5'.

    Args:
        text: places separated by commas, each x and y in metres.
        option: name of the option, for the error.

    Returns:
        Pairs (x, y), m; empty for an empty text.

    Raises:
        UsageError: names the place that is wrong.
    """
    parsed = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            x, y = map(float, part.split())
        except ValueError:
            raise UsageError(f"{option}: {part!r} is not 'x y' in metres") from None
        if not (math.isfinite(x) and math.isfinite(y)):
            raise UsageError(f"{option}: {part!r} is not finite")
        if not are_valid_places([(x, y)]).all():
            raise UsageError(f"{option}: {part!r} is farther than {FARTHEST:g} m from the origin")
        parsed.append((x, y))
    return parsed


def run(args: argparse.Namespace) -> int:
    """Plan, write the route, print its length and its gain; returns the exit code.

    Raises:
        UsageError: an option cannot be used, the map is empty, there is no plan, or the file cannot
            be written.
    """
    output = file_to_write(args.output)
    kind = output.suffix.lower()
    if kind not in ROUTES:
        raise UsageError(f"--output {output}: expected a name that ends in {', '.join(ROUTES)}")
    if args.kind not in planner_names():
        raise UsageError(f"--kind {args.kind}: expected one of {', '.join(planner_names())}")
    for name, most in (("budget", _LONGEST), ("margin", FARTHEST)):
        if not 0 <= (getattr(args, name) or 0.0) <= most:
            raise UsageError(f"--{name} {getattr(args, name)}: expected 0 to {most:g} metres")

    for name in ("region", "start", "home"):
        if getattr(args, name) is not None and not getattr(args, name).strip():
            raise UsageError(f"--{name} is empty; write places in metres, or leave it out")
    corners, home = places(args.region or "", "--region"), places(args.home or "", "--home")
    start = places(args.start or "", "--start")
    for name, given in (("start", start), ("home", home)):
        if len(given) > 1:
            raise UsageError(f"--{name}: {len(given)} places, expected one")

    checkpoint = checkpoint_in(args.map)
    session = open_session(checkpoint)
    if not session.cell_count:
        raise UsageError(f"{args.map}: the map is empty, no measurement has reached it")
    try:
        region = [Polygon.from_corners(corners, name="--region")] if corners else []
    except ValueError as error:
        raise UsageError(str(error)) from error

    # only here is the map asked: what planning raises is a fault of the program, not of the file
    with errors_about(checkpoint):
        # where nothing else is said, the robot stands at the end of the path
        position = np.array(start[0] if start else session.driven[-1].tolist())
        problem, note = _problem(session, position, region, args, home[0] if home else None)
        grid = session.render() if kind not in _TEXTS else None

    route = plan(problem, args.kind)
    if not route:
        raise UsageError(f"{args.map}: no plan: {route.reason}")
    if not np.isfinite(route.line).all():
        raise UsageError(f"{args.map}: no plan: the way has corners that are not finite")
    content = _content(session, grid, route, kind, problem.value.mass)

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, content)
    except OSError as error:
        raise UsageError(
            f"--output {output}: cannot be written ({error.strerror or error})"
        ) from error

    settings = session.settings
    # what is planned with is the latent field: of classes and counts it has no unit
    what, unit = (
        ("stddev", f" {unit_text(settings.field_unit)}")
        if settings.metric
        else ("stddev of the latent field", "")
    )
    now, then = (
        f"{stddev / settings.field_scale:.3g}{unit}"
        for stddev in (route.stddev_now, route.stddev_then)
    )
    print(
        f"{route.metres:.1f} m, {len(route.stops)} stops; {what} over the area {now} now, {then} after it"
        + (f"\n{note}" if note else "")
    )
    print(output)
    return 0


def _problem(session, position, region, args, home) -> tuple[Problem, str]:
    """Return what is to be planned, with a note on what was assumed about the area."""
    lengthscale = session.map.hyperparameters()["lengthscale"]
    budget = Budget(args.budget or math.inf, home=home)
    metres = args.budget or Problem.horizon
    area, part = _area(session, position, region, args.margin, metres, lengthscale / 3)
    if not area:
        if region and not any(polygon.contains(position[None]).all() for polygon in region):
            where = f"({position[0]:.2f}, {position[1]:.2f}) m"
            raise UsageError(
                f"--region does not hold the beginning of the route, {where}; write --start 'X Y' with a "
                "place inside it"
            )
        if not region and args.start:
            raise UsageError(
                f"--start {args.start} is not on the ground that the map is of, the hull of its path grown by --margin "
                f"{args.margin:g} m; write a place on it, a larger --margin, or --region"
            )
        raise UsageError(f"{args.map}: no plan: {area.reason}")

    # places a third of a lengthscale apart: between them the field is known from both
    travel = Travel(area.free, lengthscale / 3)
    field = session.map.for_planning()
    value = PathValue.from_map(field, travel.xy, area.cells, area.areas, session.noise_variance)
    levels = Levels.of(field, travel.xy)

    problem = Problem(
        value,
        travel,
        position,
        budget=budget,
        mix=default_mix(budget),
        mean=levels.mean,
        stddev=levels.stddev,
        effort=_EFFORT,
    )

    notes = [note for note in (area.reason, part) if note]
    if args.budget == 0.0:
        notes.append(f"--budget 0 is no budget: the route is {problem.horizon:g} m at most")
    return problem, "\n".join(notes)


def _area(
    session, position, region, margin: float, metres: float, spacing: float
) -> tuple[SurveyArea, str]:
    """Return where a route of so many metres may lead, with a note where that is not all of it.

    Args:
        session: the map.
        position: (2,) m, where the route begins.
        region: polygons.
        margin: m by which the hull of the path is grown.
        metres: longest route.
        spacing: m that places are apart.
    """

    def within(reach: float) -> SurveyArea:
        """The survey area within reach (m) of the position."""
        return SurveyArea.from_free_space(
            None, position, path=session.driven.numpy(), region=region, grow=margin, reach=reach
        )

    # On ground so large that its cells are coarser than the places should be, only what a route can
    # reach counts: it does not change what lies beyond.
    area = within(math.inf)
    if area and area.free.resolution <= spacing:
        return area, ""
    near = within(metres)
    if not near or near.free.resolution == area.free.resolution:
        return area, ""
    return (
        near,
        f"only what lies within {metres:g} m of the beginning counts, as far as the route can lead",
    )


def _content(session, grid: FieldGrid | None, route: Plan, kind: str, area: float) -> bytes:
    """Return the content of the file that holds the route.

    Args:
        session: the map, for a picture.
        grid: the map as drawn, for a picture; None for another kind.
        route: what is written.
        kind: ending of the file name. A table holds poses with headings, and for each what the
            drive up to there has taken off the mean variance of the area, in the map's unit
            squared (of classes and counts that of the latent field, which has none); GeoJSON the
            line and its stops.
        area: m².
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
    from gp_mapping.store.picture import draw_map

    figure, picture = draw_map(session, grid, ()), io.BytesIO()
    for axis in figure.axes[:2]:
        axis.plot(*route.line.T, color="white", linewidth=2.5)
        (line,) = axis.plot(*route.line.T, color="tab:red", linewidth=1.2, label="planned route")
        (begin,) = axis.plot(
            *route.line[:1].T, "o", color="tab:red", markeredgecolor="white", label="its beginning"
        )
        _show_all(axis, route.line)
    figure.axes[0].legend(handles=[line, begin], loc="best", fontsize="small")
    figure.savefig(picture, format=kind.lstrip("."))
    return picture.getvalue()


def _show_all(axis, line: np.ndarray) -> None:
    """Widen an axis of a picture to a line (N, 2), m: a route may leave what is drawn."""
    room = 0.02 * float(np.ptp(line, axis=0).max())
    for get, put, values in (
        (axis.get_xlim, axis.set_xlim, line[:, 0]),
        (axis.get_ylim, axis.set_ylim, line[:, 1]),
    ):
        low, high = get()
        put(min(low, values.min() - room), max(high, values.max() + room))

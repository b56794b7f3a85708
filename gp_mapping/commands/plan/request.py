"""What is asked of `gp-mapping plan`: places and polygons, and the node's parameters for plans."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import NamedTuple

from gp_mapping.errors import ParameterFileError, UsageError
from gp_mapping.planning import Polygon, planner_names
from gp_mapping.planning.area.places import FARTHEST, are_valid_places
from gp_mapping.settings.build import KNOWN, Parameters, parse_assignment, read_parameter_file
from gp_mapping.settings.node import NodeSettings

__all__ = ["PlanRequest", "parse_request", "places"]

# option -> the node's parameter that it is short for
_OPTIONS = {
    "budget": "plan_budget",
    "budget_time": "plan_budget_time",
    "speed": "plan_speed",
    "home": "plan_home",
    "kind": "plan_kind",
    "margin": "plan_margin",
    "robot_radius": "robot_radius",
    "objective": "plan_objective",
    "level": "plan_level",
}
# further parameters that a plan depends on
_OTHERS = ("plan_turn_rate", "plan_reach", "plan_horizon", "plan_mix", "plan_places", "plan_effort")
_EFFORT = 1000  # routes compared: more than a node compares, since the plan is made only once


class PlanRequest(NamedTuple):
    """What is asked.

    Attributes:
        settings: of the node; those that a plan depends on count.
        stated: names of the parameters that were stated.
        region: at most one polygon, in which the robot stays.
        keep_out: polygons that it stays out of.
        start: (x, y) m where the route begins; None: at the end of the path.
    """

    settings: NodeSettings
    stated: frozenset[str]
    region: tuple[Polygon, ...]
    keep_out: tuple[Polygon, ...]
    start: tuple[float, float] | None


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


def parse_request(args: argparse.Namespace) -> PlanRequest:
    """Parse what the options ask for.

    Raises:
        UsageError: an option that cannot be used, or that changes nothing.
        ParameterFileError: a parameter file, or a parameter of --set, that cannot be used.
    """
    for option, text in (("region", args.region), ("start", args.start), ("home", args.home)):
        _check_written(option, text)
    for text in args.keep_out:
        _check_written("keep-out", text)

    region = (_polygon(args.region, "--region"),) if args.region else ()
    keep_out = tuple(_polygon(text, "--keep-out") for text in args.keep_out)
    start = _place(args.start, "--start") if args.start else None

    values = _values(args)
    try:
        settings = Parameters.build(values).node
    except ParameterFileError as error:
        raise UsageError(_in_options(str(error), args)) from error

    if settings.plan_kind not in planner_names():
        raise UsageError(
            f"--kind {settings.plan_kind}: expected one of {', '.join(planner_names())}"
        )
    if args.robot_radius is not None and not args.free_space:
        raise UsageError(
            "--robot-radius counts where obstacles are known; give --free-space, too, or leave it out"
        )
    if "plan_effort" not in values:
        settings = replace(settings, plan_effort=_EFFORT)
    return PlanRequest(settings, frozenset(values), region, keep_out, start)


def _values(args: argparse.Namespace) -> dict:
    """Return the parameters: those of --params, then --set, then the options; the later win."""
    values = read_parameter_file(args.params) if args.params else {}
    assigned = dict(map(parse_assignment, args.set))
    for name in assigned:  # one that there is not is found when all are built
        if name in KNOWN and name not in (*_OPTIONS.values(), *_OTHERS):
            raise UsageError(
                f"--set {name}: a plan on a saved map does not depend on it; expected one of "
                f"{', '.join(sorted((*_OPTIONS.values(), *_OTHERS)))}"
            )

    options = {
        name: getattr(args, option)
        for option, name in _OPTIONS.items()
        if getattr(args, option) is not None
    }
    if twice := [name for name in options if name in assigned]:
        raise UsageError(f"{twice[0]} is given by --set and by its own option; write one of them")
    if (home := options.get("plan_home")) not in (None, "none", "start"):
        x, y = _place(home, "--home")
        options["plan_home"] = f"{x!r} {y!r}"
    return values | assigned | options


def _in_options(text: str, args: argparse.Namespace) -> str:
    """Return a text about parameters, with the names of the options that gave them."""
    for option, name in _OPTIONS.items():
        if getattr(args, option) is not None:
            text = text.replace(f"{name}:", f"--{option.replace('_', '-')}:")
    return text


def _check_written(option: str, text: str | None) -> None:
    """Raise UsageError for an option that is given, and empty."""
    if text is not None and not text.strip():
        raise UsageError(f"--{option} is empty; write places in metres, or leave it out")


def _place(text: str, option: str) -> tuple[float, float]:
    """Return the one place of an option."""
    given = places(text, option)
    if len(given) != 1:
        raise UsageError(f"{option}: {len(given)} places, expected one")
    return given[0]


def _polygon(text: str, option: str) -> Polygon:
    """Return the polygon of an option."""
    try:
        return Polygon.from_corners(places(text, option), name=option)
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error

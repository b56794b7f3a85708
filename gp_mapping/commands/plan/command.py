"""`gp-mapping plan MAP`: plan the next drive on a saved map.

The route is written as CSV, GeoJSON or a picture.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

import numpy as np

from gp_mapping.commands.arguments.saved import ROUTES
from gp_mapping.commands.output import file_to_write
from gp_mapping.commands.plan.obstacles import Obstacles
from gp_mapping.commands.plan.request import PlanRequest, parse_request
from gp_mapping.commands.plan.route_file import route_file
from gp_mapping.commands.saved import checkpoint_in, open_session
from gp_mapping.errors import UsageError
from gp_mapping.planning import Budget, FreeSpace, Plan, Problem, plan
from gp_mapping.runtime.surveying.question import Questions
from gp_mapping.runtime.surveying.spending import whole_budget
from gp_mapping.settings.node import NodeSettings
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.trial import errors_about
from gp_mapping.store.wording import unit_text

__all__ = ["run"]

_TEXTS = (".csv", ".geojson")  # of ROUTES; the others are pictures
_NEAREST, _FARTHEST = (0.1, 1e5)  # m, the range of plan_reach
_AS_FAR = "as far as the route can lead"


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
    wanted = parse_request(args)
    settings = wanted.settings
    obstacles = Obstacles.read(args.free_space, settings.robot_radius) if args.free_space else None

    checkpoint = checkpoint_in(args.map)
    session = open_session(checkpoint)
    if not session.cell_count:
        raise UsageError(f"{args.map}: the map is empty, no measurement has reached it")

    # only here is the map asked: what planning raises is a fault of the program, not of the file
    with errors_about(checkpoint):
        # where nothing else is said, the robot stands at the end of the path
        position = np.array(wanted.start or session.driven[-1].tolist())
        if obstacles is not None:
            obstacles.check_covers(position, session.driven.numpy())
        problem, notes = _problem(session, position, wanted, obstacles, args)
        grid = session.render() if kind not in _TEXTS else None

    route = plan(problem, settings.plan_kind)
    if not route:
        raise UsageError(f"{args.map}: no plan: {route.reason}")
    if not np.isfinite(route.line).all():
        raise UsageError(f"{args.map}: no plan: the way has corners that are not finite")
    content = route_file(session, grid, route, kind, problem.value.mass, obstacles, wanted.keep_out)

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, content)
    except OSError as error:
        raise UsageError(
            f"--output {output}: cannot be written ({error.strerror or error})"
        ) from error

    print("\n".join([_summary(session, route, settings), *notes]))
    print(output)
    return 0


def _summary(session, route: Plan, settings: NodeSettings) -> str:
    """Return the length of a route and what it brings, in words."""
    s = session.settings
    # what is planned with is the latent field: of classes and counts it has no unit
    what, unit = (
        ("stddev", f" {unit_text(s.field_unit)}")
        if s.metric
        else ("stddev of the latent field", "")
    )
    now, then = (
        f"{stddev / s.field_scale:.3g}{unit}" for stddev in (route.stddev_now, route.stddev_then)
    )
    objective = settings.plan_objective
    where = "the area" if objective == "area" else f"the area, by its weight as {objective},"
    return (
        f"{route.metres:.1f} m, {route.seconds:.0f} s, {len(route.stops)} stops; {what} over {where} "
        f"{now} now, {then} after it"
    )


def _problem(
    session, position: np.ndarray, wanted: PlanRequest, obstacles: Obstacles | None, args
) -> tuple[Problem, list[str]]:
    """Return what is to be planned, as a node puts it, with notes on what was assumed."""
    budget = whole_budget(wanted.settings, position)
    questions = Questions()
    free = None if obstacles is None else obstacles.free
    for name, polygons in (("region", wanted.region), ("keep_out", wanted.keep_out)):
        for polygon in polygons:
            if wrong := questions.rules.restrict(name, polygon.corners, "", ""):
                raise UsageError(wrong)

    settings, reach = _prepare(questions, session, position, wanted, free, budget)
    if not questions.ready:
        raise UsageError(_nowhere(questions, position, wanted, free, args))
    for _ in questions.steps(settings, session):
        pass
    question = questions.newest
    problem = question.problem(settings, position, budget, 0.0, session.settings.seed)

    notes = []
    if question.area.reason:
        notes.append(f"{question.area.reason} (--free-space names a map of them)")
    if _extends_beyond(settings.plan_reach, position, wanted, free, session.driven.numpy()):
        notes.append(
            f"only what lies within {settings.plan_reach:g} m of the beginning counts, {reach}"
        )
    lengthscale = session.map.hyperparameters()["lengthscale"]
    if question.travel.spacing > lengthscale:
        notes.append(
            f"the plan's places lie {question.travel.spacing:.2g} m apart and the lengthscale is "
            f"{lengthscale:.2g} m: what lies between them hardly counts; write --region, a smaller "
            "--set plan_reach or a larger --set plan_places"
        )
    if not budget.limited and args.budget is not None:
        notes.append(f"--budget 0 is no budget: the route is {problem.horizon:g} m at most")
    if settings.plan_objective in ("level_set", "hotspot") and "plan_level" not in wanted.stated:
        notes.append(f"no --level: {settings.plan_objective} is about the level 0")
    if questions.aimless:
        notes.append(questions.aimless)
    return problem, notes


def _prepare(
    questions: Questions,
    session,
    position: np.ndarray,
    wanted: PlanRequest,
    free: FreeSpace | None,
    budget: Budget,
) -> tuple[NodeSettings, str]:
    """Prepare the ground; return the settings with its reach, and where that comes from.

    A node plans anew where the robot gets; a plan that is made once may lead farther than the
    node's reach. Where the ground is so large that its places are farther apart than a third of
    the lengthscale, only what the route can reach counts: it does not change what lies beyond.
    """
    settings = wanted.settings
    metres = min(budget.metres, budget.seconds * budget.speed)
    metres = min(metres if math.isfinite(metres) else settings.plan_horizon, _FARTHEST)
    stated = "plan_reach" in wanted.stated
    if not stated:
        settings = replace(settings, plan_reach=max(settings.plan_reach, metres))
    questions.prepare_ground(settings, session, position, free)
    if stated or metres >= settings.plan_reach:
        return settings, "plan_reach" if stated else _AS_FAR

    spacing, area = session.map.hyperparameters()["lengthscale"] / 3.0, questions.area
    if questions.ready and area is not None:
        if area.free.resolution <= spacing and area.size <= settings.plan_places * spacing**2:
            return settings, "plan_reach"
    near = replace(settings, plan_reach=max(metres, _NEAREST))
    questions.prepare_ground(near, session, position, free)
    if questions.ready:
        return near, _AS_FAR
    questions.prepare_ground(settings, session, position, free)
    return settings, "plan_reach"


def _extends_beyond(
    reach: float,
    position: np.ndarray,
    wanted: PlanRequest,
    free: FreeSpace | None,
    path: np.ndarray,
) -> bool:
    """Return whether there is ground beyond the reach (m) of the position."""
    if free is not None:
        x = free.reachable_from(position).centres()
        for polygon in wanted.region:
            x = x[polygon.contains(x)]
    elif wanted.region:
        x = np.vstack([polygon.corners for polygon in wanted.region])
    else:
        x, reach = path, reach - wanted.settings.plan_margin
    return bool((np.hypot(*(x - position).T) > reach).any())


def _nowhere(
    questions: Questions, position: np.ndarray, wanted: PlanRequest, free: FreeSpace | None, args
) -> str:
    """Return why there is no ground for a plan, with what to write."""
    inside = all(polygon.contains(position[None]).all() for polygon in wanted.region)
    if not inside:
        return (
            f"--region does not hold the beginning of the route, ({position[0]:.2f}, "
            f"{position[1]:.2f}) m; write --start 'X Y' with a place inside it"
        )
    if free is None and not wanted.region and wanted.start and not wanted.keep_out:
        return (
            f"--start {args.start} is not on the ground that the map is of, the hull of its path "
            f"grown by --margin {wanted.settings.plan_margin:g} m; write a place on it, a larger "
            "--margin, or --region"
        )
    return f"{args.map}: no plan: {questions.nowhere}"

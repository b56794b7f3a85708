"""Suggested places to measure next, by one policy for a live node and for a saved map."""

from __future__ import annotations

import math

import numpy as np

from gp_mapping.planning.area.ground import GroundSettings, HasGround
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.hull import within_hull
from gp_mapping.planning.others import NOBODY, Others
from gp_mapping.planning.plan import after_driving, after_measuring_at, plan
from gp_mapping.planning.planners.point import NEAR
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.suggest import Suggestion, Suggestions, suggest
from gp_mapping.planning.worth.path_value import PathValue
from gp_mapping.settings.node import NodeSettings

__all__ = [
    "UNKNOWN_IN_REGION",
    "UNKNOWN_OBSTACLES",
    "driven_area",
    "offer",
    "offer_as_set",
    "offer_by_way",
    "why_no_ways",
]

_PLACES = 200  # that are compared, at most
UNKNOWN_OBSTACLES = (
    "not known, there is no free-space map: suggestions stay inside the hull of the path, and nobody "
    "has compared them with obstacles"
)
UNKNOWN_IN_REGION = (
    "not known, there is no free-space map: suggestions stay inside the region, all of which is taken "
    "to be free of obstacles"
)


def offer_as_set(
    session,
    grid,
    settings: NodeSettings,
    ground: HasGround,
    free: FreeSpace | None = None,
    position=None,
    region: tuple[Polygon, ...] = (),
    keep_out: tuple[Polygon, ...] = (),
    others: Others = NOBODY,
) -> Suggestions:
    """Return the suggestions that the settings ask for.

    The same for a live node, its saves, and the command line.

    Args:
        session: MapSession.
        grid: the FieldGrid that was drawn of it.
        settings: suggestion_kind, suggestion_count, suggestion_distance, suggestion_margin,
            plan_reach, robot_radius.
        ground: cached area, kept from call to call.
        free: where the robot may be; None: not known.
        position: (x, y) of the robot, metres; None: where the newest sample of the map was taken.
        region: as in SurveyArea.from_free_space.
        keep_out: as in SurveyArea.from_free_space.
        others: what other robots will measure.
    """
    s = settings
    if s.suggestion_kind != "gain_per_metre":
        at = session.position if position is None else position
        if (region or keep_out) and at is not None:
            area, _ = ground.ground_at(
                np.asarray(at, dtype=np.float64),
                free,
                session.driven.numpy(),
                session.map.hyperparameters()["lengthscale"],
                GroundSettings(
                    region=region,
                    keep_out=keep_out,
                    margin=max(s.suggestion_margin, 1e-3),
                    robot_radius=s.robot_radius,
                    places=_PLACES,
                ),
            )
            if not area:
                return Suggestions(s.suggestion_kind, reason=area.reason)
            free, position = area.free, None  # what the robot reaches already
        return offer(
            session,
            grid,
            s.suggestion_count,
            s.suggestion_kind,
            free,
            position,
            min_distance=s.suggestion_distance,
            beyond=s.suggestion_margin,
            others=others,
        )

    return offer_by_way(
        session,
        ground,
        s.suggestion_count,
        free,
        position,
        min_distance=s.suggestion_distance,
        beyond=s.suggestion_margin,
        reach=s.plan_reach,
        region=region,
        keep_out=keep_out,
        robot_radius=s.robot_radius,
        others=others,
    )


def driven_area(path, grid, beyond: float) -> FreeSpace:
    """Return the cells of a drawn map inside the grown hull of the path, as a FreeSpace.

    Args:
        path: (K, 2) metres.
        grid: FieldGrid.
        beyond: metres by which the hull is grown, ≥ 0.
    """
    height, width = grid.shape
    (left, bottom), side = grid.origin, grid.resolution
    x, y = left + side * (np.arange(width) + 0.5), bottom + side * (np.arange(height) + 0.5)

    inside = within_hull(path, x, y, beyond)

    return FreeSpace(
        origin=(float(left), float(bottom)),
        yaw=0.0,
        resolution=side,
        radius=0.0,
        clearance=np.where(inside, side, 0.0),
        open=inside,
    )


def offer_by_way(
    session,
    ground: HasGround,
    k: int,
    free: FreeSpace | None,
    position,
    *,
    min_distance: float = 0.0,
    beyond: float = 0.0,
    reach: float = math.inf,
    region: tuple[Polygon, ...] = (),
    keep_out: tuple[Polygon, ...] = (),
    robot_radius: float = 0.0,
    places: int = _PLACES,
    others: Others = NOBODY,
) -> Suggestions:
    """Return the k places of the survey area with the most gain for each metre of the way.

    Each is chosen after the one before it, from there, given what the way there has measured.

    Args:
        session: MapSession.
        ground: cached area, kept from call to call.
        k: how many.
        free: where the robot may be; None: inside the hull of its path, grown by `beyond` metres.
        position: (x, y) of the robot, metres; None: where the newest sample of the map was taken.
        min_distance: between two places, metres.
        beyond: metres.
        reach: metres from the robot to the farthest place.
        region: as in SurveyArea.from_free_space.
        keep_out: as in SurveyArea.from_free_space.
        robot_radius: m, as in SurveyArea.from_free_space.
        places: bound of the places that are compared.
        others: what other robots will measure; min_distance is kept from their places, too.
    """
    kind, path = "gain_per_metre", session.driven.numpy()
    position = session.position if position is None else position
    if position is None:
        return Suggestions(kind, reason="nothing has been measured yet")

    position = np.asarray(position, dtype=np.float64)
    area, travel = ground.ground_at(
        position,
        free,
        path,
        session.map.hyperparameters()["lengthscale"],
        GroundSettings(
            region=region,
            keep_out=keep_out,
            reach=reach,
            margin=max(beyond, 1e-3),
            robot_radius=robot_radius,
            places=places,
        ),
    )

    if travel is None or len(travel) < 2:
        return Suggestions(kind, reason=why_no_ways(area, travel))

    # From here on the map itself is not asked any more.
    value = PathValue.from_map(
        session.map.for_planning(), travel.xy, area.cells, area.areas, session.noise_variance
    )

    value = after_driving(value, travel, others.lines)

    items, measured, closed = [], [], np.zeros(len(travel.nodes), dtype=bool)
    reason = ""
    while len(items) < k:
        for x in others.before(len(items)):
            value = after_measuring_at(value, travel, x)
            closed |= np.hypot(*(travel.nodes - x[-1]).T) < min_distance
        problem = Problem(value, travel, position, closed=closed.copy())
        chosen = plan(problem, kind)
        if not chosen:
            reason = (
                chosen.reason
                if not items
                else (
                    f"{len(items)} of {k}: every other place that the robot may enter, of those that are "
                    f"compared {travel.spacing:.2g} m apart, is nearer than {min_distance} m to one already chosen"
                )
            )
            break

        stop = chosen.stops[0]
        gain = float(chosen.gains.sum())
        items.append(Suggestion(float(stop[0]), float(stop[1]), gain / (chosen.metres + NEAR)))
        # The next place is chosen as if the robot had driven here and measured on the way.
        value = value.after_measuring(problem.drive(chosen.nodes).visits)
        measured.append(np.vstack([chosen.visits, stop]))
        # A floor, so that with min_distance 0 the place itself is not chosen again.
        closed |= np.hypot(*(travel.nodes - stop).T) < max(min_distance, 1e-6)
        position = stop

    return Suggestions(kind, tuple(items), reason, tuple(measured))


def why_no_ways(area: SurveyArea, travel: Travel | None) -> str:
    """Return why there is no way to plan in an area, whose ways lead to fewer than two places."""
    if travel is not None and len(travel):
        return (
            f"the survey area of {area.size:.2g} m² is so small that it has one place to measure at: "
            "there is no way to plan"
        )
    return area.reason or "no place in the survey area can be reached"


def offer(
    session,
    grid,
    k: int,
    kind: str = "variance",
    free: FreeSpace | None = None,
    position=None,
    min_distance: float = 0.0,
    beyond: float = 0.0,
    others: Others = NOBODY,
) -> Suggestions:
    """Return the k places that are worth most where the robot may go.

    With a map of free space that is what it leaves to the robot; without one it is the hull of the
    path, grown by `beyond`.

    Args:
        session: MapSession.
        grid: the FieldGrid that was drawn of it.
        k: how many.
        kind: 'variance' or 'integrated_variance'.
        free: where the robot may be; None: not known.
        position: (x, y) of the robot, metres; with free, only what is connected to it counts.
        min_distance: between two places, metres.
        beyond: how far outside the hull of the path a place may lie where free is None, metres.
        others: what other robots will measure.
    """
    if free is None:
        free, position = driven_area(session.driven.numpy(), grid, beyond), None
        if not free.open.any():
            return Suggestions(
                kind, reason="nothing that is drawn lies inside the hull of the path"
            )
    return suggest(
        session.map,
        grid,
        k,
        kind,
        free,
        position=position,
        min_distance=min_distance,
        others=others,
    )

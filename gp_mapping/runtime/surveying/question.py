"""What the next plan of a survey is asked: where it may go, and what measuring there is worth.

A question is prepared in the map's thread: first the ground (area and ways), then, in slices, the
worth of its places. No rclpy.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from torch import Tensor

from gp_mapping.errors import one_line
from gp_mapping.planning.area.ground import GroundSettings
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.offer import why_no_ways
from gp_mapping.planning.plan import Plan, after_driving
from gp_mapping.planning.problem import Problem, default_mix, mix_of_rest
from gp_mapping.planning.worth.cached_value import CachedPathValue
from gp_mapping.planning.worth.levels import Levels
from gp_mapping.planning.worth.path_value import PathValue
from gp_mapping.planning.worth.weights import cell_weights, why_all_alike
from gp_mapping.runtime.surveying.free_maps import GroundAside
from gp_mapping.runtime.surveying.rules import Basis, Rules, RulesNow
from gp_mapping.runtime.surveying.way.ahead import loses_room
from gp_mapping.runtime.surveying.way.track import Track
from gp_mapping.settings.node import NodeSettings
from gp_mapping.settings.plan import PlanSettings

__all__ = ["Question", "Questions", "ask_alike"]

_FIRST_PLACES, _FIRST_CELLS = 450, 1024  # of a first answer, at most
# Settings that the question and its answer depend on.
_ASKED = ("robot_radius", *(setting.name for setting in fields(PlanSettings)))


def ask_alike(a: NodeSettings, b: NodeSettings) -> bool:
    """Return whether plans are the same under both settings."""
    return all(getattr(a, name) == getattr(b, name) for name in _ASKED)


class Question(NamedTuple):
    """Area, ways and worth at one time.

    Attributes:
        area: the survey area.
        travel: the ways in it.
        value: worth of its places, without what other robots will measure.
        cell_stddev: (G,) SI, the map's standard deviation at the cells of the area.
        mean: (P,) SI, the map's mean at the places.
        stddev: (P,) SI, the map's standard deviation at the places.
        closed: (n,) bool, nodes that are left out for now as goals; None: no node is.
        rules: those that it keeps to.
        free: the free-space map that it keeps to; None: there was none.
        others: lines (K, 2) m that other robots will drive.
    """

    area: SurveyArea
    travel: Travel
    value: PathValue
    cell_stddev: Tensor
    mean: Tensor
    stddev: Tensor
    closed: np.ndarray | None
    rules: Rules
    free: FreeSpace | None
    others: tuple[np.ndarray, ...] = ()

    def known_fraction(self, stddev: float) -> float:
        """Return the fraction of the area that is known to a standard deviation, SI."""
        known = (self.cell_stddev <= stddev).double()
        return float(self.area.areas @ known) / self.area.size

    def end(self, settings: NodeSettings) -> tuple[float, str]:
        """Return the fraction of the area that is known to target_stddev, NaN without a target.

        And why the survey is at its end by that; empty while it is not.
        """
        s = settings
        share = self.known_fraction(s.target_stddev) if s.target_stddev else math.nan
        if share >= s.target_share:  # not so where it is NaN
            return share, f"{share:.0%} of the area are known to {s.target_stddev:g}"
        return share, ""

    def outdated(
        self, plan: Plan, rules: Rules, free: FreeSpace | None, settings: NodeSettings
    ) -> bool:
        """Return whether a plan of this question breaks what has come since it was asked.

        Whether it leads where it may not or has no room, or to a goal that was not reached.

        Args:
            plan: the plan, not empty.
            rules: those in force.
            free: the newest free-space map; None: there is none that can be used.
            settings: robot_radius and plan_avoid.
        """
        if free is not None and loses_room(plan.line, free, self.free):
            return True
        news = rules.since(self.rules)
        goals = plan.stops[: len(plan.nodes)]  # home is none of them
        return bool(
            news.broken_on(plan, settings.robot_radius)
            or news.closes(goals, settings.plan_avoid).any()
        )

    def problem(
        self,
        settings: NodeSettings,
        position,
        budget: Budget,
        spent: float,
        seed: int,
        lead: np.ndarray | None = None,
        **more,
    ) -> Problem:
        """Return the problem of planning from a position within a budget.

        Args:
            settings: plan_mix, plan_horizon and plan_effort.
            position: (2,) m.
            budget: what the plan may cost.
            spent: fraction of the survey's budget that is spent.
            seed: of the planner's random choices.
            lead: (K, 2) m, the line that the robot drives to that position: what it measures there
                is measured when the plan begins; None: it is there.
            more: further fields of Problem.
        """
        s = settings
        mix = mix_of_rest(s.plan_mix if s.plan_mix >= 0 else default_mix(budget), min(spent, 1.0))
        return Problem(
            self.value if lead is None else after_driving(self.value, self.travel, [lead]),
            self.travel,
            np.asarray(position, dtype=np.float64),
            budget=budget,
            horizon=s.plan_horizon,
            mix=mix,
            closed=self.closed,
            mean=self.mean,
            stddev=self.stddev,
            seed=seed,
            effort=s.plan_effort,
            **more,
        )


class Questions:
    """Prepares questions in the map's thread; restrictions may come from any thread.

    Args:
        aside: whether a large ground is made in another thread.

    Attributes:
        gain: (area, gain of one measurement at each place, travel) of the newest question.
        nowhere: why there is no ground for the next question, in words.
        aimless: why the objective of the newest question makes no difference, in words.
        rules: the rules that questions keep to, and plans with them.
    """

    def __init__(self, aside: bool = False):
        self._newest: Question | None = None
        self.gain: tuple | None = None
        self.nowhere = self.aimless = ""
        self.rules = RulesNow()
        self._lock = threading.Lock()
        self._others: dict[str, np.ndarray] = {}

        self._ground, self._held = GroundAside(aside=aside), CachedPathValue()
        self._here: tuple = ()  # area, travel, rules and free space for the next question
        self._track = Track()
        self._forgotten = False  # whether the map is another one than that of value and track

    # ---- from any thread -------------------------------------------------------------------------

    def set_others(self, robot: str, line: np.ndarray) -> None:
        """Set the plan of another robot.

        Args:
            robot: its name.
            line: (K, 2) m; an empty one frees what the robot had claimed.
        """
        with self._lock:
            self._others[robot] = line

    @property
    def others(self) -> list[np.ndarray]:
        """Plans of other robots, lines (K, 2) m."""
        with self._lock:
            return list(self._others.values())

    def forget(self) -> None:
        """Drop what is known of the worth and of the way driven: the map is another one.

        The map's thread does so when it prepares the next question.
        """
        self._forgotten = True

    # ---- in the map's thread ---------------------------------------------------------------------

    @property
    def area(self) -> SurveyArea | None:
        """The survey area of the newest ground."""
        return self._ground.area

    @property
    def ground_count(self) -> int:
        """How often there was a new ground; plans of an earlier one refer to other nodes."""
        return self._ground.made_count

    @property
    def making(self) -> bool:
        """Whether the first ground for the next question is being made."""
        return self._ground.waiting and self._ground.making

    @property
    def newest(self) -> Question:
        """The question prepared last.

        Raises:
            RuntimeError: there has been none yet.
        """
        if self._newest is None:
            raise RuntimeError("no question has been prepared yet")
        return self._newest

    @property
    def basis(self) -> Basis:
        """What a plan of the newest question is made on."""
        return Basis(self.ground_count, self.newest.rules, self.newest.free)

    @property
    def ready(self) -> bool:
        """Whether there is a ground for the next question; if not, `nowhere` says why."""
        return bool(self._here)

    def record_drive(self, position: np.ndarray, leapt: bool) -> None:
        """Record where the robot is.

        Args:
            position: (2,) m.
            leapt: whether it was moved there rather than driven.
        """
        self._track.add(position, leapt)

    def refuse(self, reason: str) -> None:
        """Have no ground for the next question, for that reason."""
        self._here, self.nowhere = (), reason

    def prepare_ground(
        self, settings: NodeSettings, session, position, free: FreeSpace | None
    ) -> bool:
        """Prepare the area around a position, and the ways through it, for the next question.

        Args:
            settings: plan_reach, plan_margin, robot_radius and plan_places.
            session: MapSession.
            position: (x, y) m.
            free: free space; None: there is no map of it.

        Returns:
            False while they are being made.
        """
        s, self._here, rules = settings, (), self.rules.now()
        lengthscale = session.map.hyperparameters()["lengthscale"]
        try:
            area, travel = self._ground.ground_at(
                position,
                free,
                session.driven.numpy(),
                lengthscale,
                GroundSettings(
                    region=rules.region,
                    keep_out=rules.keep_out,
                    reach=s.plan_reach,
                    margin=s.plan_margin,
                    robot_radius=s.robot_radius,
                    places=s.plan_places,
                ),
            )
        except ValueError as error:  # what the planner cannot answer becomes the reason
            self.refuse(one_line(error, 300))
            return True

        if self._ground.waiting:
            return False
        if travel is not None and len(travel) >= 2:
            self._here = area, travel, rules, free
        self.nowhere = why_no_ways(area, travel)
        return True

    def steps(self, settings: NodeSettings, session, first: bool = False) -> Iterator[None]:
        """Prepare the newest question on the ground that is ready, in slices.

        Args:
            settings: plan_objective, plan_level and plan_avoid.
            session: MapSession.
            first: whether it is for a first answer: of a large ground fewer places and cells count,
                whose worth is not kept.

        Raises:
            RuntimeError: the worth of the ways was not found, which no map should bring about.
        """
        s = settings
        area, whole, rules, free = self._here
        travel = whole.with_fewer_places(_FIRST_PLACES) if first else whole
        if self._forgotten:
            self._forgotten = False
            self._held.forget()
            self._track = Track()
        yield None

        # A map that is up to date is still being written: planning needs one that does not change.
        field = session.map.for_planning()
        field = field.snapshot() if field is session.map else field

        at_cells = Levels.of(field, area.cells)
        scale = session.local_scale_at(area.cells) if s.plan_objective == "local_scale" else None
        weights = cell_weights(
            s.plan_objective,
            area.areas,
            at_cells.mean,
            at_cells.stddev,
            level=s.plan_level,
            scale=scale,
        )

        self.aimless = why_all_alike(
            s.plan_objective, s.plan_level, area.areas, weights, at_cells.mean
        )

        at_places = Levels.of(field, travel.xy)

        value: PathValue | None = None
        for value in (
            self._worth(field, session, travel, area, weights, at_places.variance)
            if travel is whole
            else _worth_of_few(field, session, travel, area, weights)
        ):
            if value is None:
                yield None
        if value is None:
            raise RuntimeError(
                "no worth was found of the ways, though all steps of finding it have been made"
            )

        yield None
        others = self.others
        value = after_driving(value, travel, others)

        rules = rules._replace(closed=self.rules.now().closed)
        closed = rules.closes(travel.nodes, s.plan_avoid) if rules.closed else None

        self._newest = Question(
            area,
            travel,
            value,
            at_cells.stddev,
            at_places.mean,
            at_places.stddev,
            closed,
            rules,
            free,
            tuple(others),
        )
        self.gain = (area, value.gains_at(range(len(value))).numpy(), travel)

    def _worth(
        self, field, session, travel: Travel, area: SurveyArea, weights: Tensor, variance: Tensor
    ) -> Iterator[PathValue | None]:
        """Yield None between slices and the worth of the places at the end, which is kept.

        Args:
            field: the map, which does not change meanwhile.
            session: MapSession.
            travel: of the places.
            area: of the cells.
            weights: (G,) of the cells.
            variance: (P,) SI², the map's variance of the places now.
        """
        track = self._track
        yield from self._held.steps(
            field, travel, area.cells, weights, session.noise_variance, track.begin(), variance
        )
        # Only now: the track that an abandoned question was given belongs to the next one, too.
        track.hold()


def _worth_of_few(
    field, session, travel: Travel, area: SurveyArea, weights: Tensor
) -> Iterator[PathValue | None]:
    """Yield None between slices and the worth of the places at the end, by few cells."""
    every = math.ceil(len(area.cells) / _FIRST_CELLS)
    few = weights[::every]
    few = few * (float(weights.sum()) / max(float(few.sum()), 1e-300))
    yield from PathValue.steps(field, travel.xy, area.cells[::every], few, session.noise_variance)

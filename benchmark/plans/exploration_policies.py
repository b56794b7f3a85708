"""Who decides where the robot goes: this package's planners, and what they are held against.

A policy is called with what a robot knows and answers with a line (K, 2) m, and how much of it to drive before it is
asked again.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch

from benchmark.plans.exploration_worlds import SPEED, TURN_RATE, Robot, Sight, World
from gp_mapping import Samples, create_map
from gp_mapping.planning import Budget, PathValue, Problem, SurveyArea, Travel, plan, suggest
from gp_mapping.planning.plan import Plan
from gp_mapping.planning.problem import default_mix, mix_of_rest
from gp_mapping.planning.worth.cached_value import CachedPathValue
from gp_mapping.planning.worth.path_value import Visits
from gp_mapping.settings.plan import PlanSettings

__all__ = ["POLICIES", "Situation", "left_by"]

PRIOR = 0.8  # m, the lengthscale that baselines are told beforehand
SIGNAL, NOISE = 10e-6, 0.5e-6  # T, standard deviations that go with it
REPLAN = PlanSettings().plan_interval  # m driven between two decisions
EFFORT = PlanSettings().plan_effort
PLACES = 0.27  # m, from one place to the next
_LOOK = 0.5  # m driven between two looks at the walls
FRESH = 8  # plans: every so many is held against new seeds, as in the node


@dataclass
class Situation:
    """What a robot knows: the session's map, where it is, what is left, the ways between places."""

    world: World
    session: object
    robot: Robot
    budget: float
    travel: Travel
    rng: np.random.Generator
    memory: dict = field(default_factory=dict)

    @property
    def left(self) -> float:
        return self.budget - self.robot.metres

    def problem(self, **settings) -> Problem:
        """The question as the node would put it: what is known of the places is kept from decision to decision."""
        held: CachedPathValue = self.memory.setdefault("held", CachedPathValue())
        if "cells" not in self.memory:
            self.memory["cells"] = self.world.area.cells[::2], self.world.area.areas[::2]
        variance = self.session.map.predict(torch.from_numpy(self.travel.xy)).variance.mean(1)
        value = deque(
            held.steps(
                self.session.map,
                self.travel,
                *self.memory["cells"],
                self.session.noise_variance,
                self.robot.track(),
                variance,
            ),
            maxlen=1,
        )[0]
        return Problem(
            value,
            self.travel,
            self.robot.position,
            self.robot.heading,
            **{"budget": Budget(self.left, speed=SPEED, turn_rate=TURN_RATE)} | settings,
        )

    def to(self, place) -> np.ndarray:
        """The way to anywhere (2,) m."""
        start, goal = self.travel.locate(self.robot.position), self.travel.locate(place, 2.0)
        leg = self.travel.leg_from(self.robot.position, start, goal)
        return leg.line if leg is not None else np.vstack([self.robot.position] * 2)


def prior_value(world: World, travel: Travel) -> PathValue:
    """What is known before the drive: a lengthscale, nothing measured."""
    blank = create_map(
        "exact",
        lengthscale=PRIOR,
        signal_stddev=SIGNAL,
        noise_stddev=NOISE,
        constant_stddev=20e-6,
        learn_hyperparameters=False,
    )
    blank.update(Samples(torch.from_numpy(world.start[None]), torch.tensor([[45e-6]]).double()))
    return PathValue.from_map(blank, travel.xy, world.area.cells[::2], world.area.areas[::2])


def left_by(world: World, travel: Travel, way: np.ndarray) -> float:
    """Share of the variance before the drive that measuring every decimetre of a way (K, 2) m leaves; at PRIOR."""
    if len(way) < 2:
        return 1.0
    value, leg = prior_value(world, travel), travel.leg_along(way)
    share = np.arange(0.05, leg.metres, 0.1) / leg.metres
    take = np.unique(np.rint(share * (len(leg.points) - 1)).astype(int))
    visits = Visits(*map(torch.from_numpy, travel.interpolation_at(leg.points[take])))
    return 1.0 - float(value.gains([visits])[0].sum()) / value.total


def _once(situation: Situation, make) -> tuple[np.ndarray, float]:
    if "line" not in situation.memory:
        situation.memory["line"] = make()
    line, situation.memory["line"] = situation.memory["line"], np.empty((0, 2))
    return line, math.inf


def good_lanes(s: Situation):
    """Inset lanes: number, direction and inset chosen for the budget by predicted variance at the prior lengthscale."""
    return _once(
        s,
        lambda: (
            plan(
                Problem(
                    prior_value(s.world, s.travel),
                    s.travel,
                    s.robot.position,
                    budget=Budget(s.left, speed=SPEED, turn_rate=TURN_RATE),
                ),
                "lanes",
            ).line
        ),
    )


def whole_prior(s: Situation):
    """One route for the whole budget, planned beforehand at the prior lengthscale."""
    return _once(
        s,
        lambda: (
            plan(
                Problem(
                    prior_value(s.world, s.travel),
                    s.travel,
                    s.robot.position,
                    budget=Budget(s.left, speed=SPEED, turn_rate=TURN_RATE),
                ),
                "route",
            ).line
        ),
    )


def border_lanes(s: Situation):
    """Lanes on both borders, as many as the budget pays for."""

    def make():
        low, high = s.travel.nodes.min(0), s.travel.nodes.max(0)
        across, along = high[1] - low[1], high[0] - low[0]
        count = max(2, int((s.left - across) / along))
        corners = []
        for i, y in enumerate(np.linspace(low[1], high[1], count)):
            ends = [(low[0], y), (high[0], y)]
            corners += ends if i % 2 == 0 else ends[::-1]
        if np.hypot(*(np.array(corners[0]) - s.robot.position)) > np.hypot(
            *(np.array(corners[-1]) - s.robot.position)
        ):
            corners = corners[::-1]
        line, at = [s.robot.position], s.travel.locate(s.robot.position)
        for corner in corners:
            node = s.travel.locate(corner, 3.0)
            leg = None if node is None else s.travel.leg(at, node)
            if leg is not None:
                line.extend(leg.line)
                at = node
        return np.array(line)

    return _once(s, make)


def random(s: Situation):
    """Uniform places, one after the other."""
    return s.to(s.travel.nodes[s.rng.integers(len(s.travel.nodes))]), math.inf


def pypolo(s: Situation):
    """Of 1,000 uniform places the one with the highest normalised entropy less normalised distance (pypolo's rule)."""
    nodes = s.rng.integers(len(s.travel.nodes), size=1000)
    x = s.travel.nodes[nodes]
    entropy = 0.5 * torch.log(s.session.map.predict(torch.from_numpy(x)).variance.mean(1)).numpy()
    away = s.travel.distances(s.travel.locate(s.robot.position))[nodes]

    def normal(v):
        return (v - v.min()) / max(np.ptp(v), 1e-12)

    return s.to(x[np.argmax(normal(entropy) - normal(away))]), math.inf


def suggester_010(s: Situation):
    """`suggest` on the drawn window by variance, as the node of 0.1.0 did."""
    found = suggest(
        s.session.map, s.session.render(), 1, "variance", s.world.free, s.robot.position
    )
    return s.to([found[0].x, found[0].y] if len(found) else s.robot.position), math.inf


def _by(kind: str, most: float = math.inf):
    def policy(s: Situation):
        return plan(s.problem(), kind).line, most

    policy.__doc__ = f"planner {kind}"
    return policy


def _route(mix: float | None = None, **settings):
    def policy(s: Situation):
        old: Plan | None = s.memory.get("plan")
        stops = (
            ()
            if old is None
            else old.stops_ahead(old.progress(s.robot.position, s.memory["driven"] - 0.3, 0.6))
        )
        count = s.memory["count"] = s.memory.get("count", -1) + 1
        rest = mix_of_rest(
            default_mix(Budget(s.left)) if mix is None else mix, 1.0 - s.left / s.budget
        )
        found = plan(
            s.problem(
                mix=rest, old=stops, seed=count, fresh=count % FRESH == 0, effort=EFFORT, **settings
            ),
            "route",
        )
        s.memory["plan"], s.memory["driven"] = found, REPLAN
        return found.line, REPLAN

    policy.__doc__ = f"planner route, the whole budget, mix {'as usual' if mix is None else mix}"
    return policy


def route_as_seen(s: Situation):
    """planner route among walls that the robot knows as far as it has seen them on its way"""
    if "sight" not in s.memory:
        s.memory |= {"sight": Sight(s.world.occupied), "looked": 0, "free": None}
    sight, way = s.memory["sight"], s.robot.way
    for a, b in pairwise([way[s.memory["looked"]], *way[s.memory["looked"] :]]):
        for share in np.linspace(0.0, 1.0, 1 + math.ceil(math.dist(a, b) / _LOOK)):
            sight.look(a + share * (b - a))
    s.memory["looked"] = len(way) - 1
    free, before = sight.free(), s.memory["free"]
    if before is None or not before.same_as(free):
        area = SurveyArea.from_free_space(free, s.robot.position, max_cells=1000)
        s.travel = Travel(area.free, PLACES)
        # stops of the plan before are nodes of another ground
        s.memory |= {"free": free, "cells": (area.cells, area.areas), "plan": None}
    return _route()(s)


POLICIES = {
    "route": _route(),
    "route, walls as seen": route_as_seen,
    "gain_per_metre": _by("gain_per_metre"),
    "good lanes": good_lanes,
    "border lanes": border_lanes,
    "greedy variance": _by("variance"),
    "suggester 0.1.0": suggester_010,
    "pypolo's rule": pypolo,
    "random": random,
}
STUDIES = {
    "gain_per_metre, each time": _by("gain_per_metre", REPLAN),
    "whole prior": whole_prior,
    "route mix 0": _route(0.0),
    "route mix .3": _route(0.3),
    "route mix .6": _route(0.6),
}

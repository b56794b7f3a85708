"""The question that every planner answers, and how answers are driven, costed and rated."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gp_mapping.planning.area.leg import Leg, angle_between
from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.worth.path_value import PathValue, Visits

__all__ = ["Drive", "Problem", "Spent", "default_mix", "mix_of_rest"]

_NOT_IN_AREA = (
    ", which lies outside the survey area: outside the region, in a keep-out area, too near to an "
    "obstacle, or beyond the reach of plans"
)
_SOON = 0.1  # mix of a survey with a limit
_ROUNDING = 1e-9  # of lengths that are summed in another order


def default_mix(budget: Budget) -> float:
    """Return the mix that rates a route by default: mostly its end where the budget is limited.

    A little weight on early gains decides between routes that gain the same in the end: a survey
    that knows all of the area roughly at half its budget is worth more if it is cut short.
    """
    return _SOON if budget.limited else 1.0


def mix_of_rest(mix: float, spent: float) -> float:
    """Return the mix that rates the rest of a survey as `mix` rates all of it.

        1 − mix · (spent + (1 − spent) s) ∝ 1 − rest · s,   rest = mix (1 − spent) / (1 − mix ·
        spent)

    With the same mix at each new plan, more and more of the final gain would be traded for a little
    of it sooner.

    Args:
        mix: of the whole survey, 0 … 1.
        spent: fraction of the budget that is spent.
    """
    return mix * (1.0 - spent) / (1.0 - mix * spent) if spent < 1.0 else 0.0


class Spent(NamedTuple):
    """What is spent on a way: m, s; and the heading (rad) at its end, NaN where not known."""

    metres: float
    seconds: float
    heading: float


@dataclass(frozen=True)
class Drive:
    """A way through stops, the way home included.

    Attributes:
        legs: the parts, one for each stop.
        metres: length of all of it.
        seconds: duration of all of it.
        visits: m measurements, in order.
        x: (m, 2) m, where they are taken.
        marks: (m,) metres from the start to each.
        times: (m,) seconds from the start to each.
    """

    legs: tuple[Leg, ...]
    metres: float
    seconds: float
    visits: Visits
    x: np.ndarray
    marks: np.ndarray
    times: np.ndarray

    @property
    def line(self) -> np.ndarray:
        """(K, 2) m, corners in order, none of them twice in a row."""
        if not self.legs:
            return np.empty((0, 2))
        line = np.vstack([self.legs[0].line, *(leg.line[1:] for leg in self.legs[1:])])
        moved = (np.diff(line, axis=0) != 0.0).any(1)
        return line[np.concatenate([[True], moved])]


@dataclass(frozen=True)
class Problem:
    """Where to go from here.

    Attributes:
        value: what measuring is worth.
        travel: ways between the places of value, in the same order.
        position: (2,) m, where the robot will be when it gets the plan.
        heading: radians; NaN: not known.
        budget: what the survey may still cost.
        horizon: metres that a plan looks ahead where the budget does not end it first.
        mix: 0 rates what a whole route gains, 1 how soon it gains it (the area under the curve);
            between, both.
        old: stops (nodes) of the plan that is being driven, those that were passed left out.
        closed: (n,) bool, nodes that are left out for now as goals; None: no node is.
        mean: (P,) SI, the map's mean at the places, for rules that seek high values.
        stddev: (P,) SI, the map's standard deviation at the places, for the same.
        seed: of random choices; the same seed and question give the same answer.
        effort: routes rated at most.
        fresh: whether the old route competes with new lanes and a new greedy route, too, or is only
            improved.
        gain: fraction of the variance left by the old route by which a new one must leave less to
            replace it.
    """

    value: PathValue
    travel: Travel
    position: np.ndarray
    heading: float = math.nan
    budget: Budget = field(default_factory=Budget)
    horizon: float = 16.0
    mix: float = 0.0
    old: tuple[int, ...] = ()
    closed: np.ndarray | None = None
    mean: Tensor | None = None
    stddev: Tensor | None = None
    seed: int = 0
    effort: int = 200
    fresh: bool = True
    gain: float = 0.02
    _known: dict = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self):
        if len(self.value) != len(self.travel):
            raise ValueError(
                f"value has {len(self.value)} places and travel {len(self.travel)}: expected the "
                "same ones"
            )
        if not (0.0 <= self.mix <= 1.0 and self.horizon > 0 and self.effort >= 1):
            raise ValueError(
                f"mix={self.mix}, horizon={self.horizon} m, effort={self.effort}: expected 0 to 1, above "
                "0 m and 1 or more"
            )

    # ---- where it starts and ends ----------------------------------------------------------------

    @property
    def start(self) -> int | None:
        """The node at which ways begin; None where none is in reach of the robot."""
        return self._once("start", lambda: self.travel.locate(self.position))

    @property
    def home(self) -> int | None:
        """The node nearest to the budget's home; None without one, or where no way leads there."""

        def find():
            """Return the node at the budget's home, if the robot can reach it."""
            home = None if self.budget.home is None else self.travel.locate(self.budget.home)
            if home is None or self.start is None or not self.travel.reachable(self.start)[home]:
                return None
            return home

        return self._once("home", find)

    @property
    def limit(self) -> Budget:
        """The budget, ended by the horizon where it has no end of its own."""
        b = self.budget
        return b if b.limited else Budget(self.horizon, math.inf, b.speed, b.turn_rate, b.home)

    @property
    def goals(self) -> np.ndarray:
        """(P,) bool: places that may be a stop, reachable and not closed."""

        def find():
            """Return which places the robot can reach and may go to, (P,) bool."""
            reached = self.travel.reachable(self.start)[self.travel.places]
            return reached if self.closed is None else reached & ~self.closed[self.travel.places]

        return self._once("goals", find)

    def obstacle(self) -> str:
        """Return why there cannot be a plan, in words; empty where there can."""
        x, y = self.position
        if not len(self.travel):
            return "no place in the survey area can be reached"

        if self.start is None:
            here = f"the robot at ({x:.2f}, {y:.2f}) m"
            if not self.travel.free.allows(torch.tensor([[x, y]])).item():
                return f"{here} stands where the free space leaves it no room"
            return (
                f"{here} sees none of the {len(self.travel.nodes)} points that ways lead over, one for each "
                f"{self.travel.block * self.travel.free.resolution:.2g} m: make the region or the reach of "
                "plans smaller"
            )

        if self.budget.home is not None:
            hx, hy = self.budget.home
            if self.home is None:
                outside = self.travel.locate(self.budget.home) is None
                return (
                    f"no way leads from the robot at ({x:.2f}, {y:.2f}) m to home at ({hx:.2f}, {hy:.2f}) m"
                    f"{_NOT_IN_AREA if outside else ''}"
                )

            back = self.drive(())
            if not self.budget.allows(back.metres, back.seconds):
                kinds = (self.budget.metres, ".1f", "m"), (self.budget.seconds, ".0f", "s")
                left = " and ".join(f"{v:{form}} {unit}" for v, form, unit in kinds if v < math.inf)
                return (
                    f"the way home takes {back.metres:.1f} m and {back.seconds:.0f} s, and {left} "
                    "are left"
                )
        return ""

    def _once(self, name: str, find):
        """Return find(), computed once for this problem."""
        if name not in self._known:
            self._known[name] = find()
        return self._known[name]

    # ---- what a route costs ----------------------------------------------------------------------

    def prepare(self, routes: Sequence[Sequence[int]]) -> None:
        """Compute at once the ways between the stops of these routes, and from the robot."""
        deque(self.prepare_steps(routes), maxlen=0)

    def prepare_steps(self, routes: Sequence[Sequence[int]]) -> Iterator[None]:
        """As `prepare`, in steps of milliseconds."""
        home = () if self.home is None else (self.home,)
        # Every route ends at home, where there is one.
        ends = [(*stops, *home) for stops in routes]
        yield from self.travel.prepare_steps([pair for stops in ends for pair in pairwise(stops)])

        # Ways from the robot itself, which stands between nodes.
        first = [
            to
            for to in dict.fromkeys(stops[0] for stops in ends if stops)
            if ("first", to) not in self._known
        ]
        self._known.update(
            zip(
                (("first", to) for to in first),
                self.travel.legs_from(self.position, self.start, first),
            )
        )

    def drive(self, stops: Sequence[int]) -> Drive | None:
        """Return the way from the robot through stops, and home where there is one.

        Args:
            stops: nodes.

        Returns:
            The drive; None where no way leads.
        """
        legs = self._legs(stops)
        return None if legs is None else self.drive_along(legs)

    def drive_along(self, legs: Sequence[Leg]) -> Drive:
        """Return the drive along legs, of which the first begins where the robot is."""
        spent = list(accumulate(legs, self.after, initial=self.begin()))
        visits, x, marks = self.travel.visits(legs)
        times = np.interp(marks, [now.metres for now in spent], [now.seconds for now in spent])
        return Drive(tuple(legs), spent[-1].metres, spent[-1].seconds, visits, x, marks, times)

    def fitting(self, stops: Sequence[int]) -> int:
        """Return how many of the first stops the limit allows, the way home after them included.

        By bisection: more stops never cost less.

        Args:
            stops: nodes, in order.
        """
        spent = [self.begin()]
        for leg in map(self._leg_to, (None, *stops), stops):
            if leg is None:
                break
            spent.append(self.after(spent[-1], leg))

        low, high = 0, len(spent) - 1
        while low < high:
            middle = (low + high + 1) // 2
            allowed = self.may_end(spent[middle], stops[middle - 1])
            low, high = (middle, high) if allowed else (low, middle - 1)
        return low

    def begin(self) -> Spent:
        """Return what is spent where the robot is."""
        return Spent(0.0, 0.0, self.heading)

    def after(self, spent: Spent, leg: Leg) -> Spent:
        """Return what is spent when one more leg has been driven.

        Args:
            spent: before it.
            leg: from there.
        """
        turned = angle_between(spent.heading, leg.first) + leg.turned
        return Spent(
            spent.metres + leg.metres,
            # Turns at inner corners are spread over the leg: where they lie hardly changes the
            # worth.
            spent.seconds + (turned / self.budget.turn_rate + leg.metres / self.budget.speed),
            # A leg without length turns nothing.
            spent.heading if math.isnan(leg.last) else leg.last,
        )

    def may_end(self, spent: Spent, at: int) -> bool:
        """Return whether the limit allows a route that ends at a node, or at home after it.

        Args:
            spent: on the way to that node.
            at: the node.
        """
        if self.home is None:
            return self.limit.allows(spent.metres, spent.seconds)
        if (known := self._returns_by_bounds(spent, at)) is not None:
            return known
        back = self.travel.leg(at, self.home)
        if back is None:
            return False
        spent = self.after(spent, back)
        return self.limit.allows(spent.metres, spent.seconds)

    def _returns_by_bounds(self, spent: Spent, at: int) -> bool | None:
        """Return whether the limit allows the way home, where its bounds decide; else None.

        It is no shorter than the straight line, and no longer than the way over the grid, which it
        straightens: both are known without looking for it.
        """
        limit, travel = self.limit, self.travel
        straight = (1.0 - _ROUNDING) * math.dist(travel.nodes[at], travel.nodes[self.home])
        if not limit.allows(spent.metres + straight, spent.seconds + straight / limit.speed):
            return False
        if math.isfinite(limit.seconds):  # the turns of the way are not known
            return None
        over_grid = (1.0 + _ROUNDING) * travel.distances(self.home)[at]
        return True if spent.metres + over_grid <= limit.metres else None

    def _legs(self, stops: Sequence[int]) -> list[Leg] | None:
        """Return the legs from the robot through stops, and home; None where one is missing."""
        ends = [*stops] + ([self.home] if self.home is not None else [])
        legs = [self._leg_to(a, b) for a, b in zip((None, *ends), ends)]
        known = [leg for leg in legs if leg is not None]
        return known if len(known) == len(legs) else None

    def _leg_to(self, at: int | None, stop: int) -> Leg | None:
        """Return the leg to a stop from the node before, or from the robot; None without a way."""
        return self.first_leg(stop) if at is None else self.travel.leg(at, stop)

    def first_leg(self, to: int) -> Leg | None:
        """Return the leg from the robot to a node; None where no way leads there."""
        return self._once(
            ("first", to), lambda: self.travel.leg_from(self.position, self.start, to)
        )

    # ---- what a route is worth -------------------------------------------------------------------

    def feasible(self, drive: Drive | None) -> bool:
        """Return whether a drive is within the limit.

        Home is then in reach all the way, since the route leads there.
        """
        return drive is not None and self.limit.allows(drive.metres, drive.seconds)

    def rate(self, routes: Sequence[Sequence[int]]) -> list[float]:
        """Return the rating of each route: the fraction of the area's variance that it removes.

        Early gains weigh more, by mix:

            Σ_i g_i (1 − mix · s_i) / total,   s_i the fraction of the limit spent when i is
            measured

        Args:
            routes: stops (nodes) of each.

        Returns:
            Of each route its rating, −∞ for one that does not fit the limit.
        """
        return [soon for _, soon in self.rate_both(routes)]

    def rate_both(self, routes: Sequence[Sequence[int]]) -> list[tuple[float, float]]:
        """Return the final gain Σ_i g_i / total and the rating of each route; −∞ where too long."""
        self.prepare(routes)
        drives = [self.drive(stops) for stops in routes]

        good = [i for i, drive in enumerate(drives) if self.feasible(drive)]
        out = [(-math.inf, -math.inf)] * len(routes)

        limit, total = self.limit, max(self.value.total, 1e-300)
        for i, gains in zip(good, self.value.gains([drives[i].visits for i in good])):
            # Fraction of the limit spent at each measurement, by which its gain is discounted.
            spent = limit.fraction_spent(drives[i].marks, drives[i].times)
            end, early = float(gains.sum()), float(gains @ torch.from_numpy(spent))
            out[i] = end / total, (end - self.mix * early) / total
        return out

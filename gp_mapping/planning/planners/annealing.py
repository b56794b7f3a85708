"""A route improved by simulated annealing: thousands of neighbours, rated by the legs that differ.

A neighbour that is worth less is taken with probability exp(−loss / T), T falling to 0: a search
that takes none stays in the first route that no single move improves, and among walls that one
leaves a tenth to a third more variance. Metres have a cost, which falls to 0, too: at first the
decrease of the logarithm of the variance for each metre of the route, so that a neighbour that is
shorter, and hardly worse, is taken and makes room for another stop. A search that looks at gains
alone fills the limit with the first route's detours. The search uses approximate ways
(ApproximateLegs); the routes found are rated along exact ones.

Reference:
    Kirkpatrick, Gelatt & Vecchi, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from gp_mapping.planning.area.approximate_legs import ApproximateLeg, ApproximateLegs
from gp_mapping.planning.area.leg import angle_between
from gp_mapping.planning.planners.moves import Moves
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.worth.leg_exchange import LegExchange

__all__ = ["annealed", "cost_per_metre"]

_BATCH = 8  # routes proposed together
_LOOKED_UP = 3  # of them, whose ways are looked up together
_HEAT = 0.01  # fraction of what the first route leaves that is readily lost at first
_KEPT = 4  # best routes that are returned
_WANTED = 10  # routes taken after which the places with most left to gain are looked up anew


def annealed(
    problem: Problem, stops: tuple[int, ...], effort: int, heat: float = _HEAT
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the best routes found so far, best first, after every few proposals.

    They are rated by their final gain (mix 0). The start is not among them.

    Args:
        problem: the question.
        stops: nodes of the route that the search starts from, at least one.
        effort: proposals at most.
        heat: first temperature, as a fraction of the variance that the start leaves.
    """
    search = _Search(problem, stops)
    # Of a long route the first matrices take as long as several neighbours.
    yield []
    search.learn()
    yield []
    found: list[tuple[float, tuple[int, ...]]] = []
    start_gain = search.gain
    first = heat * max(problem.value.total - start_gain, 0.0)

    tried = 0
    while tried < effort:
        proposed = [search.moves.propose(search.stops) for _ in range(min(_BATCH, effort - tried))]
        remaining = 1.0 - tried / effort
        tried += len(proposed)

        # The temperature falls with the square of the remaining effort, the cost of metres
        # linearly.
        taken = search.step(
            proposed, first * remaining**2, remaining * cost_per_metre(problem, search.gain)
        )
        if taken and search.gain > max((gain for gain, _ in found[:1]), default=start_gain):
            found.insert(0, (search.gain, search.stops))
            del found[_KEPT:]

        yield [route for _, route in found]
        if taken:
            search.learn()
            yield [route for _, route in found]


def cost_per_metre(problem: Problem, gain: float) -> float:
    """Return the cost of a metre, in the unit of gain.

        L log(V / L) / R

    where routes of at most R metres leave L of the variance V.

    Args:
        problem: has V, and R as its limit.
        gain: V − L of the route now.

    Returns:
        0 where the way is not limited.
    """
    total, limit = problem.value.total, problem.limit
    left_variance = total - gain
    metres = min(limit.metres, limit.seconds * limit.speed)

    return (
        left_variance * math.log(total / left_variance) / metres
        if 0.0 < left_variance < total and 0.0 < metres < math.inf
        else 0.0
    )


class _Search:
    """The current route of the search, whose neighbours are proposed."""

    def __init__(self, problem: Problem, stops: tuple[int, ...]):
        self.problem, self.stops = problem, stops
        self.moves, self._ways = Moves(problem), ApproximateLegs.for_travel(problem.travel)
        self._exchange = LegExchange(problem.value)
        self._off = math.dist(problem.position, problem.travel.nodes[problem.start])
        self._taken = 0
        keys = self._keys(stops)
        legs = self._ways.for_pairs(keys)
        self._exchange.begin(keys, legs)
        self._metres = sum(leg.metres for leg in legs)

    @property
    def gain(self) -> float:
        """What the current route takes off the variance, by approximate legs."""
        return self._exchange.gain

    def _keys(self, stops: Sequence[int]) -> list[tuple[int, int]]:
        """Return the legs through stops, and home, as pairs of nodes in ascending order."""
        ends = [self.problem.start, *stops] + (
            [] if self.problem.home is None else [self.problem.home]
        )
        return [(a, b) if a < b else (b, a) for a, b in pairwise(ends)]

    def learn(self) -> None:
        """Learn from the current route where neighbours are looked for."""
        if self._taken % _WANTED == 0:
            self.moves.prefer_gain(self._exchange.remaining_gains)
        self._taken += 1
        self.moves.learn_winding(self.stops, self._off + self._metres)

    def step(self, proposed: list[tuple[int, ...]], heat: float, metre_cost: float) -> bool:
        """Take the first of the proposed routes that is better, or worse by chance.

        From one that was taken there is more to `learn` before the next ones are proposed.

        Args:
            proposed: stops of each.
            heat: temperature, in the unit of gain.
            metre_cost: subtracted for each metre.

        Returns:
            Whether one was taken.
        """
        keyed = [(stops, self._keys(stops)) for stops in proposed if stops]
        legs: dict[tuple[int, int], ApproximateLeg] = {}
        for i, (stops, keys) in enumerate(keyed):
            # Ways of a few proposals are looked up together: most often the first few decide.
            if i % _LOOKED_UP == 0:
                flat = [key for _, keys in keyed[i : i + _LOOKED_UP] for key in keys]
                legs.update(zip(flat, self._ways.for_pairs(flat)))

            metres = [legs[key].metres for key in keys]
            if keys == self._exchange.keys or not self._fits(stops, metres):
                continue

            improvement = self._exchange.change(keys, legs) - metre_cost * (
                sum(metres) - self._metres
            )
            if improvement > 0.0 or (
                heat > 0.0 and self.moves.rng.random() < math.exp(improvement / heat)
            ):
                self.stops = stops
                self._exchange.move_to(keys, legs)
                self._metres = sum(metres)
                return True
        return False

    def _fits(self, stops: tuple[int, ...], metres: list[float]) -> bool:
        """Return whether a route of these legs is within the limit, turns at stops included."""
        limit, length = self.problem.limit, self._off + sum(metres)
        # Turns cost time only.
        if not math.isfinite(limit.seconds):
            return length <= limit.metres

        nodes = self.problem.travel.nodes
        ends = [self.problem.start, *stops] + (
            [] if self.problem.home is None else [self.problem.home]
        )

        ahead = np.diff(nodes[ends], axis=0)
        headings = [self.problem.heading, *np.arctan2(ahead[:, 1], ahead[:, 0])]
        return limit.allows(
            length, limit.time(length, sum(angle_between(a, b) for a, b in pairwise(headings)))
        )

"""A route improved by simulated annealing: thousands of neighbours, each rated by the legs in which it differs.

A neighbour that is worth less is taken with probability exp(−loss / T), T falling to nothing: a search that takes none
stays in the first route that no single move betters, and among walls that one leaves a tenth to a third more variance
(Kirkpatrick, Gelatt & Vecchi 1983). Metres have a price, which falls to nothing, too: at first what the route takes of
the logarithm of the variance for each of its metres, so that a neighbour that is shorter, and hardly worse, is taken
and makes room for another stop. A search that looks at gains alone fills the limit with the first route's detours. Ways
are looked at at a glance here; what is found is rated along real ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from gp_mapping.planning.area.glances import Glances
from gp_mapping.planning.area.travel import turn
from gp_mapping.planning.planners.moves import Moves
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.worth.exchange import Exchange

__all__ = ["annealed", "cost_per_metre"]

_BATCH = 8  # routes whose ways are looked at together
_HEAT = 0.01  # share of what the first route leaves that is readily lost at first
_KEPT = 4  # best routes that are handed back
_WANTED = 10  # routes taken after which it is looked anew where most is left


def annealed(
    problem: Problem, stops: tuple[int, ...], effort: int, heat: float = _HEAT
) -> Iterator[list[tuple[int, ...]]]:
    """The best routes so far, best first, after each few looks; those of the start are not among them.

    Rated by what they bring in the end (mix 0).
    """
    search = _Search(problem, stops)
    found: list[tuple[float, tuple[int, ...]]] = []
    begun = search.gain
    first = heat * max(problem.value.total - begun, 0.0)
    tried = 0
    while tried < effort:
        proposed = [search.moves.propose(search.stops) for _ in range(min(_BATCH, effort - tried))]
        ahead = 1.0 - tried / effort
        tried += len(proposed)
        taken = search.step(
            proposed, first * ahead**2, ahead * cost_per_metre(problem, search.gain)
        )
        if taken and search.gain > max((gain for gain, _ in found[:1]), default=begun):
            found.insert(0, (search.gain, search.stops))
            del found[_KEPT:]
        yield [route for _, route in found]


def cost_per_metre(problem: Problem, gain: float) -> float:
    """L log(V / L) / R of one metre, where routes of R metres at most gain so much of the variance V and leave L."""
    total, limit = problem.value.total, problem.limit
    left = total - gain
    metres = min(limit.metres, limit.seconds * limit.speed)
    return (
        left * math.log(total / left) / metres
        if 0.0 < left < total and 0.0 < metres < math.inf
        else 0.0
    )


class _Search:
    """The route that neighbours are made of."""

    def __init__(self, problem: Problem, stops: tuple[int, ...]):
        self.problem, self.stops = problem, stops
        self.moves, self._glances = Moves(problem), Glances.of(problem.travel)
        self._exchange = Exchange(problem.value)
        self._off = math.dist(problem.position, problem.travel.nodes[problem.start])
        self._taken = 0
        keys = self._keys(stops)
        self._begin(keys, self._glances.of_pairs(keys))

    @property
    def gain(self) -> float:
        return self._exchange.gain

    def _keys(self, stops: Sequence[int]) -> list[tuple[int, int]]:
        ends = [self.problem.start, *stops] + (
            [] if self.problem.home is None else [self.problem.home]
        )
        return [(a, b) if a < b else (b, a) for a, b in pairwise(ends)]

    def _begin(self, keys, legs) -> None:
        self._exchange.begin(keys, legs)
        if self._taken % _WANTED == 0:
            self.moves.want(self._exchange.left)
        self._taken += 1
        self._metres = sum(leg.metres for leg in legs)
        self.moves.winding(self.stops, self._off + self._metres)

    def step(self, proposed: list[tuple[int, ...]], heat: float, metre_cost: float) -> bool:
        """Take the first of the proposed routes that is better, or by chance, at a price of metres; whether one was."""
        keyed = [(stops, self._keys(stops)) for stops in proposed if stops]
        flat = [key for _, keys in keyed for key in keys]
        legs = dict(zip(flat, self._glances.of_pairs(flat)))
        for stops, keys in keyed:
            metres = [legs[key].metres for key in keys]
            if keys == self._exchange.keys or not self._fits(stops, metres):
                continue
            more = self._exchange.change(keys, legs) - metre_cost * (sum(metres) - self._metres)
            if more > 0.0 or (heat > 0.0 and self.moves.rng.random() < math.exp(more / heat)):
                self.stops = stops
                self._begin(keys, [legs[key] for key in keys])
                return True
        return False

    def _fits(self, stops: tuple[int, ...], metres: list[float]) -> bool:
        limit, length = self.problem.limit, self._off + sum(metres)
        if not math.isfinite(limit.seconds):
            return length <= limit.metres
        nodes = self.problem.travel.nodes
        ends = [self.problem.start, *stops] + (
            [] if self.problem.home is None else [self.problem.home]
        )
        ahead = np.diff(nodes[ends], axis=0)
        headings = [self.problem.heading, *np.arctan2(ahead[:, 1], ahead[:, 0])]
        return limit.allows(
            length, limit.time(length, sum(turn(a, b) for a, b in pairwise(headings)))
        )

"""Ways at a glance: about how long they are and what they measure, for a search that looks at thousands of them.

A way between nodes that seem to see each other is straight, any other one the shortest way over the grid, with all its
corners: never shorter than what is driven in the end. What comes of the search is driven along real ways (Travel).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gp_mapping.planning.area.travel import Travel, measurements

__all__ = ["Glance", "Glances"]

_KEPT = 20_000  # ways


@dataclass(frozen=True)
class Glance:
    """One way, either direction.

    metres: its length, infinite where there is none.  places, weights: (m, k), of what it measures, as Visits.
    scale: what the noise variance of each measurement is multiplied by.
    """

    metres: float
    places: np.ndarray
    weights: np.ndarray
    scale: float


class Glances:
    """The ways of one Travel, kept from question to question."""

    def __init__(self, travel: Travel):
        self._travel = travel
        self._known: OrderedDict[tuple[int, int], Glance] = OrderedDict()
        none = np.empty((0, travel.about)), np.empty((0, travel.about))
        self._nowhere, self._still = (Glance(metres, none[0].astype(int), none[1], 1.0) for metres in (np.inf, 0.0))

    @staticmethod
    def of(travel: Travel) -> Glances:
        """Those that are kept with that travel."""
        return travel.keep(("glances",), partial(Glances, travel))

    def of_pairs(self, pairs: Sequence[tuple[int, int]]) -> list[Glance]:
        """Those between nodes (a, b), a ≤ b."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if new:
            self._look(new)
        out = [self._known[pair] for pair in pairs]
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return out

    def _look(self, pairs: list[tuple[int, int]]) -> None:
        travel = self._travel
        a, b = travel.nodes[[p for p, _ in pairs]], travel.nodes[[q for _, q in pairs]]
        seen = travel.free.seems_open(a, b)
        ways, marks, step = [], [], travel.step
        for i, pair in enumerate(pairs):
            line = np.stack([a[i], b[i]]) if seen[i] else travel.over_the_grid(*pair)
            self._known[pair] = self._nowhere if line is None else self._still
            if line is None:
                continue
            ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
            metres = float(ends[-1])
            if metres > 0.0:
                count = measurements(metres, step)
                at = (np.arange(count) + 0.5) * (metres / count)
                marks.append(np.stack([np.interp(at, ends, line[:, k]) for k in (0, 1)], 1))
                ways.append((pair, metres, step * count / metres))
        if not ways:
            return
        ends = np.cumsum([len(x) for x in marks])[:-1]
        about = (np.split(part, ends) for part in travel.between(np.concatenate(marks)))
        for (pair, metres, scale), places, weights in zip(ways, *about):
            self._known[pair] = Glance(metres, places, weights, scale)

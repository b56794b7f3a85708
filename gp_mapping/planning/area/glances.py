"""Ways at a glance: about how long they are and what they measure, for a search that looks at thousands of them.

A way between nodes that seem to see each other is straight, any other one the shortest way over the grid, with all its
corners: never shorter than what is driven in the end. What comes of the search is driven along real ways (Travel).
"""

from __future__ import annotations

import math
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
        self._nowhere, self._still = (
            Glance(metres, none[0].astype(int), none[1], 1.0) for metres in (np.inf, 0.0)
        )

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
        straight = np.hypot(*(b - a).T).tolist()
        ways, marks, step = [], [], travel.step
        for i, pair in enumerate(pairs):
            metres, ends, line = straight[i], None, None
            if not seen[i] and (line := travel.over_the_grid(*pair)) is not None:
                ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
                metres = float(ends[-1])
            elif not seen[i]:
                metres = math.inf
            self._known[pair] = self._still if metres < math.inf else self._nowhere
            if not 0.0 < metres < math.inf:
                continue
            count = measurements(metres, step)
            at = (np.arange(count) + 0.5) * (metres / count)
            marks.append(
                a[i] + at[:, None] * ((b[i] - a[i]) / metres)
                if line is None
                else np.stack([np.interp(at, ends, line[:, k]) for k in (0, 1)], 1)
            )
            ways.append((pair, metres, step * count / metres))
        if not ways:
            return

        places, weights = travel.between(np.concatenate(marks))
        end = 0
        for (pair, metres, scale), x in zip(ways, marks):
            part = slice(end, end := end + len(x))
            self._known[pair] = Glance(metres, places[part], weights[part], scale)

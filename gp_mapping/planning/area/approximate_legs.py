"""Approximate ways for searches that look at thousands: about how long they are, what they measure.

A way between nodes that seem to see each other is straight. Any other one is the shortest way over
the grid, with all its corners: never shorter than what is driven in the end. The result of the
search is driven along exact ways (Travel).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gp_mapping.planning.area.leg import measurements
from gp_mapping.planning.area.travel import Travel

__all__ = ["ApproximateLeg", "ApproximateLegs"]

_KEPT = 20_000  # ways in the cache


@dataclass(frozen=True)
class ApproximateLeg:
    """An approximate way between two nodes, valid in either direction.

    Attributes:
        metres: its length, infinite where there is none.
        places: (m, k) the places next to each of its m measurements, as in Visits.
        weights: (m, k) the interpolation weights of those places.
        scale: factor on the noise variance of each measurement.
    """

    metres: float
    places: np.ndarray
    weights: np.ndarray
    scale: float


class ApproximateLegs:
    """Approximate ways of one Travel, cached from question to question."""

    def __init__(self, travel: Travel):
        self._travel = travel
        self._known: OrderedDict[tuple[int, int], ApproximateLeg] = OrderedDict()

        empty = np.empty((0, travel.neighbours)), np.empty((0, travel.neighbours))
        self._nowhere, self._still = (
            ApproximateLeg(metres, empty[0].astype(int), empty[1], 1.0) for metres in (np.inf, 0.0)
        )

    @staticmethod
    def for_travel(travel: Travel) -> ApproximateLegs:
        """Return the instance that is cached with the given travel."""
        return travel.cached(("glances",), partial(ApproximateLegs, travel))

    def for_pairs(self, pairs: Sequence[tuple[int, int]]) -> list[ApproximateLeg]:
        """Return the approximate ways between pairs of nodes (a, b), a ≤ b."""
        unknown = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if unknown:
            self._look(unknown)

        # The answer is collected before the cache shrinks: it may be larger than the cache.
        out = [self._known[pair] for pair in pairs]
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return out

    def _look(self, pairs: list[tuple[int, int]]) -> None:
        """Compute the ways between pairs of nodes and cache them."""
        travel = self._travel
        a, b = travel.nodes[[p for p, _ in pairs]], travel.nodes[[q for _, q in pairs]]
        visible = travel.free.seems_open(a, b)
        straight = np.hypot(*(b - a).T).tolist()

        ways, marks, step = [], [], travel.step

        for i, pair in enumerate(pairs):
            metres, ends, line = straight[i], None, None
            if not visible[i] and (line := travel.over_the_grid(*pair)) is not None:
                ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
                metres = float(ends[-1])
            elif not visible[i]:
                metres = math.inf

            # For now a way without measurements; one with a length is replaced below.
            self._known[pair] = self._still if metres < math.inf else self._nowhere
            if not 0.0 < metres < math.inf:
                continue

            # Measurements lie in the middle of equal parts of the way.
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

        # The measurements of all ways are interpolated together.
        places, weights = travel.interpolation_at(np.concatenate(marks))
        end = 0
        for (pair, metres, scale), points in zip(ways, marks):
            rows = slice(end, end := end + len(points))
            self._known[pair] = ApproximateLeg(metres, places[rows], weights[rows], scale)

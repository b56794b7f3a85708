"""A route bent as a whole: all its waypoints are moved along the gradient of what it gains.

Annealing moves one stop at a time. For lanes to bend towards what their neighbours leave open many
stops have to move, none of which is worth much alone. So the line is divided into pieces, and all
ends of pieces are moved in the plane to increase

    G − ½ c (v / ω) Σ_i |θ_i|,     no longer than the limit,

where θ_i are the turns (rad), c the cost of a metre, v the speed and ω the turn rate: a turn costs
half of what the metres are worth that could be driven meanwhile, and all of it where seconds are
limited. Without a price a zigzag that leaves less after as many metres leaves more after as many
seconds.

Waypoints stay where the robot may be, and no piece leads through what is not free. In the end the
route leads through the nodes next to the waypoints, and is rated along exact ways like any other.

Reference:
    Kingma & Ba, 2015: steps by the means of gradients and of their squares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from gp_mapping.planning.area.leg import signed_angles_between
from gp_mapping.planning.planners.annealing import cost_per_metre
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.worth.waypoint_gain import WaypointGain

__all__ = ["Bend", "bent"]

_PIECE = 3.0  # spacings (one lengthscale) from one waypoint to the next, at most
# Measurements of a lane lie at its middle, so to speak: only denser ones see what a bend of half a
# lengthscale tells.
_FINER = 0.5  # of the stretch of a planned measurement
_MOST = 320  # measurements: a step takes the cube of it
_TURNS = 0.5  # of the price of turns where seconds are not limited
_FIRST = 0.3  # spacings that a waypoint is moved by in the first step, about; the last one by none
# A straight line between two others that are alike has no gradient across it.
_SHAKEN = 0.1  # spacings, standard deviation of what waypoints are moved by before the first step
_SMALL = 0.1  # rad, turns below which their cost is quadratic
_MEAN, _SQUARE = 0.8, 0.95  # decay of the means of gradients and of their squares
_SHORTER = 3  # times that a step is corrected until its line is short enough
_FULL = 0.99  # of the limit: from there on waypoints move along lines of equal length
_FITS = 6  # times that a line is shortened until it fits the limit through nodes


class Bend(NamedTuple):
    """A bent route.

    Attributes:
        stops: its nodes; none where there is none.
        more: what it gains more than the route that it was bent from, SI² times the weights' unit,
            both with measurements as dense as those by which it was bent.
        more_of_old: the same of the old route.
    """

    stops: tuple[int, ...] = ()
    more: float = 0.0
    more_of_old: float = 0.0


def bent(
    problem: Problem, stops: Sequence[int], steps: int, old: Sequence[int] = ()
) -> Iterator[Bend]:
    """Yield an empty bend after each step of the search, and the bent route last.

    It is empty, too, where the route is too long for it: more than _MOST measurements are planned.

    Args:
        problem: the question.
        stops: nodes of the route, at least one.
        steps: gradients at most.
        old: nodes of a route that the bent one is to be held against; none where there is none.
    """
    travel, drive = problem.travel, problem.drive(stops)
    step = math.inf if drive is None else max(_FINER * travel.step, drive.metres / _MOST)
    if drive is None or step > travel.step or drive.metres <= 0.0:
        yield Bend()
        return

    line = _Line(problem, drive.line, drive.metres)
    gain_of = WaypointGain(problem.value, travel, step)
    speed, turn_rate = problem.budget.speed, problem.budget.turn_rate
    share = 1.0 if math.isfinite(problem.limit.seconds) else _TURNS
    gained = gain_of(line.x).gain
    line.move(
        _SHAKEN * travel.spacing * np.random.default_rng(problem.seed).normal(size=line.x.shape)
    )

    mean, square = np.zeros_like(line.x), np.zeros((len(line.x), 1))
    for i in range(steps):
        gain, gradient = gain_of(line.x)
        price = share * cost_per_metre(problem, gain) * speed / turn_rate
        gradient -= price * line.turn_slopes()
        gradient = line.along_equal_length(gradient)

        mean += (1.0 - _MEAN) * (gradient - mean)
        square += (1.0 - _SQUARE) * (np.square(gradient).sum(1, keepdims=True) - square)
        size = np.sqrt(square / (1.0 - _SQUARE ** (i + 1))) + 1e-300
        towards = mean / (1.0 - _MEAN ** (i + 1)) / size
        line.move((1.0 - i / steps) * _FIRST * travel.spacing * towards)
        yield Bend()

    def more(stops: Sequence[int]) -> float:
        """Return what a route gains more than the one that was bent."""
        if not stops:
            return 0.0
        return gain_of(_divided(problem.drive(stops).line, _PIECE * travel.spacing)).gain - gained

    found = line.stops()
    yield Bend(found, more(found), more(old))


class _Line:
    """A line whose waypoints are moved, never through what is not free.

    Args:
        problem: the question.
        line: (K, 2) m, a way that is free.
        metres: its length.

    Attributes:
        x: (K, 2) m, waypoints; the first stays where the robot is, the last one at home.
    """

    def __init__(self, problem: Problem, line: np.ndarray, metres: float):
        self.problem, self.travel = problem, problem.travel
        self.x = _divided(line, _PIECE * self.travel.spacing)
        self._moves = np.ones((len(self.x), 1))
        self._moves[0] = 0.0
        if problem.home is not None:
            self._moves[-1] = 0.0
        # Where seconds alone are limited it does not get longer.
        self._most = problem.limit.metres if math.isfinite(problem.limit.metres) else metres

    def move(self, by: np.ndarray) -> None:
        """Move waypoints by so much (K, 2) m and less where the line would be too long or not free.

        Beside a wall a waypoint moves along it; the ends of a piece that would not be free stay.
        """
        free, travel = self.travel.free, self.travel
        x = self._shortened(self.x + self._moves * by)
        blocked = (x != self.x).any(1)
        blocked[blocked] = ~free.allows(torch.from_numpy(x[blocked])).numpy()
        x[blocked] = travel.nodes[travel.nearest_nodes(x[blocked])]

        # Each time one more waypoint stays, so it ends.
        while True:
            hidden = ~free.sees(x[:-1], x[1:])
            stays = np.zeros(len(x), dtype=bool)
            stays[:-1] |= hidden
            stays[1:] |= hidden
            stays &= (x != self.x).any(1)
            if not stays.any():
                break
            x[stays] = self.x[stays]
        self.x = x

    def along_equal_length(self, gradient: np.ndarray) -> np.ndarray:
        """Return a gradient (K, 2) without what would make a line longer that is long enough."""
        gradient = self._moves * gradient
        if _length(self.x) < _FULL * self._most:
            return gradient
        longer = self._moves * _length_slopes(self.x)
        return gradient - longer * max(
            0.0, float(np.vdot(longer, gradient)) / max(float(np.vdot(longer, longer)), 1e-12)
        )

    def _shortened(self, x: np.ndarray) -> np.ndarray:
        """Return waypoints (K, 2) m moved a little, so that the line is hardly too long."""
        for _ in range(_SHORTER):
            over = _length(x) - self._most
            if over <= 0.0:
                break
            slopes = self._moves * _length_slopes(x)
            norm = float(np.vdot(slopes, slopes))
            if norm < 1e-9:
                break
            x = x - slopes * min(over / norm, 0.5 * self.travel.spacing)
        return x

    def turn_slopes(self) -> np.ndarray:
        """Return the gradient (K, 2) rad/m of the sum of all turns, smoothed at 0."""
        ahead = np.diff(self.x, axis=0)
        heading = np.append(self.problem.heading, np.arctan2(ahead[:, 1], ahead[:, 0]))
        turns = signed_angles_between(heading[:-1], heading[1:])
        turns /= np.hypot(turns, _SMALL)
        by_heading = turns - np.append(turns[1:], 0.0)

        square = np.square(ahead).sum(1)
        # A short piece turns by any small move: its ends are not thrown far.
        square = np.maximum(square, 1e-2 * square.max())
        across = np.stack([-ahead[:, 1], ahead[:, 0]], 1) * (by_heading / square)[:, None]
        return _by_ends(across)

    def stops(self) -> tuple[int, ...]:
        """Return the nodes next to the line, short enough for the limit; none where none are."""
        problem, travel = self.problem, self.travel
        limit, longest = problem.limit, self._most
        grain = travel.block * travel.free.resolution  # m between nodes
        for _ in range(_FITS):
            corners = _plain(self.x, 0.5 * grain)
            nodes = travel.locate_all(corners[1:] if problem.home is None else corners[1:-1])
            nodes = nodes[nodes >= 0]
            if problem.closed is not None:
                nodes = nodes[~problem.closed[nodes]]
            stops = tuple(int(n) for i, n in enumerate(nodes) if i == 0 or n != nodes[i - 1])

            problem.prepare([stops])
            drive = problem.drive(stops)
            if drive is None or not stops:
                return ()
            if problem.feasible(drive):
                return stops
            over = max(drive.metres - limit.metres, (drive.seconds - limit.seconds) * limit.speed)
            # Through nodes it is longer by a chance amount: less than their distance tells nothing.
            longest = min(longest, _length(self.x)) - max(1.1 * over, grain)
            if longest <= 0.0:
                break
            self._most = longest
            self.move(np.zeros_like(self.x))
        return stops[: problem.fitting(stops)]


def _divided(line: np.ndarray, most: float) -> np.ndarray:
    """Return the corners of a line (K, 2) m, and points between them, at most so far apart (m)."""
    parts = [line[:1]]
    for a, b in pairwise(line):
        count = max(1, math.ceil(math.dist(a, b) / most - 1e-6))
        parts.append(a + (b - a) * (np.arange(1, count + 1) / count)[:, None])
    return np.concatenate(parts)


def _length(x: np.ndarray) -> float:
    """Return the length (m) of a line (K, 2) m."""
    return float(np.hypot(*np.diff(x, axis=0).T).sum())


def _length_slopes(x: np.ndarray) -> np.ndarray:
    """Return the gradient (K, 2) of the length of a line (K, 2) m."""
    ahead = np.diff(x, axis=0)
    return _by_ends(ahead / np.maximum(np.hypot(*ahead.T), 1e-9)[:, None])


def _by_ends(by_pieces: np.ndarray) -> np.ndarray:
    """Return the gradient (K, 2) by waypoints of what has one (K − 1, 2) by the pieces."""
    out = np.zeros((len(by_pieces) + 1, 2))
    out[1:] += by_pieces
    out[:-1] -= by_pieces
    return out


def _plain(x: np.ndarray, tolerance: float) -> np.ndarray:
    """Return a line (K, 2) m without the corners that lie within a tolerance (m) of it."""
    keep, last = [0], len(x) - 1
    while keep[-1] < last:
        first, end = keep[-1], keep[-1] + 1
        while end < last:
            chord = x[end + 1] - x[first]
            off = x[first + 1 : end + 1] - x[first]
            square = max(float(chord @ chord), 1e-12)
            share = np.clip(off @ chord / square, 0.0, 1.0)
            if np.hypot(*(off - share[:, None] * chord).T).max() > tolerance:
                break
            end += 1
        keep.append(end)
    return x[keep]

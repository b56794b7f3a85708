"""Where the robot has been: length of the path, its bounds, and a thinned, bounded trace."""

from __future__ import annotations

import math
from collections import deque
from statistics import median_low

import numpy as np
import torch
from torch import Tensor

from gp_mapping.mapping.motion.extent import Area, Extent

__all__ = ["Path"]

# Times the usual move between two samples (and four steps): beyond, the pose has jumped.
_JUMP = 8.0
# Newest moves, of which the median is the usual one: wild ones do not decide what is wild.
_MOVES = 301
# Points whose median is the place of the robot: a glitch of its pose does not move it.
_RECENT = 9
_MOST = 20000  # points; beyond it every second one is dropped and the spacing doubles


class Path:
    """Points at least `step` metres apart, and the length of the path.

    The length counts moves of a tenth of a step, so that pose noise adds none.

    Args:
        step: m.

    Attributes:
        length: m.
        extent: counts of all positions by squares of the ground.
    """

    def __init__(self, step: float):
        self.step, self.length = step, 0.0
        self._count = 0
        # the first _count rows are points; the array grows by doubling
        self._points = np.empty((64, 2))
        # whether a line begins at each point: none leads to it from the one before
        self._starts = np.zeros(64, bool)
        self._newest = [math.inf, math.inf]  # the last of the points
        self._broken = True  # the next point begins a line
        # the last position, and the place up to which the length is counted
        self._last: list[float] | None = None
        self._moves: deque[float] = deque(maxlen=_MOVES)  # between two samples, m
        self._anchor: list[float] | None = None

        self.extent = Extent()
        self._low, self._high = [math.inf, math.inf], [-math.inf, -math.inf]

    def begin_pass(self) -> None:
        """Begin a new pass: the way from the last point to the next one is not driven."""
        self._anchor = self._last = None
        self._broken = True

    def add(self, x: list[float]) -> float:
        """Add one position (2,) m; return the path's length so far, m."""
        return self.extend([x])[0]

    def extend(self, positions: list[list[float]]) -> list[float]:
        """Add positions in order.

        Args:
            positions: (2,) m each.

        Returns:
            The path's length at each of them, m.
        """
        east, north = zip(*positions)
        low, high = [min(east), min(north)], [max(east), max(north)]
        self._low, self._high = list(map(min, self._low, low)), list(map(max, self._high, high))

        before = positions[:1] if self._last is None else [self._last]
        moves = list(map(math.dist, positions, [*before, *positions[:-1]]))
        if max(moves) > 4.0 * self.step:
            # one by one: a step may be a jump
            lengths, points = [], []
            for x, moved in zip(positions, moves):
                if self._jumps(moved):
                    self._broken, self._anchor = True, None
                one, point = self._walk([x], [moved])
                lengths += one
                points += point
        else:
            lengths, points = self._walk(positions, moves)

        self._last = list(positions[-1])
        self.extent.extend(positions, points, low, high)
        return lengths

    def _jumps(self, moved: float) -> bool:
        """Whether a move (m) is of a localiser that was lost, or of a bag cut together.

        No line leads there, and it has no length.
        """
        known = len(self._moves) > 0
        return known and moved > 4.0 * self.step and moved > _JUMP * median_low(self._moves)

    def _walk(
        self, positions: list[list[float]], moves: list[float]
    ) -> tuple[list[float], list[bool]]:
        """Follow positions that the robot has driven to.

        Args:
            positions: (2,) m each.
            moves: to each from the one before, m.

        Returns:
            The path's length at each of them, m, and which of them are points of the trace.
        """
        self._moves.extend([moved for moved in moves if moved > 0.0])
        # locals: this loop sees every raw sample
        dist, length, newest, step = math.dist, self.length, self._newest, self.step
        anchor, least = self._anchor or positions[0], 0.1 * self.step
        lengths, points = [], []
        for x in positions:
            moved = dist(x, anchor)
            if moved >= least:
                length, anchor = length + moved, x

            # compared with the last point, so that noise of a standing robot adds none
            point = not self._count or dist(x, newest) >= step
            if point:
                self._append(x)
                newest, step, least = self._newest, self.step, 0.1 * self.step
            points.append(point)
            lengths.append(length)
        self._anchor, self.length = list(anchor), length
        return lengths, points

    def join(self, other: "Path") -> None:
        """Add another robot's path: its points, from its starts on, and its length.

        The robot stays where this path has it: the other's points come before its own.
        """
        points = other.points().numpy()
        if not len(points):
            return

        # no line leads from the other's path into this robot's: both begin with a start
        self._points = np.concatenate([points, self._points])
        self._starts = np.concatenate([other.starts().numpy(), self._starts])
        self._count += len(points)
        if self._newest[0] == math.inf:
            self._newest = points[-1].tolist()
        while self._count > _MOST:
            self._halve()

        low, high = other.bounds()
        self._low, self._high = list(map(min, self._low, low)), list(map(max, self._high, high))
        self.extent.join(other.extent)
        self.length += other.length
        # what is driven next goes on from neither
        self._anchor, self._broken = None, True

    def _append(self, x: list[float]) -> None:
        """Add a point to the trace; halve it beyond _MOST."""
        if self._count == len(self._points):
            self._points = np.concatenate([self._points, np.empty_like(self._points)])
            self._starts = np.concatenate([self._starts, np.zeros_like(self._starts)])
        self._points[self._count] = x
        self._starts[self._count] = self._broken
        self._count, self._newest, self._broken = self._count + 1, list(x), False

        if self._count > _MOST:
            self._halve()

    def _halve(self) -> None:
        """Drop every second point; a start among them is handed on to the point after it."""
        starts = self._starts[: self._count]
        kept = starts[::2].copy()
        kept[1:] |= starts[1::2][: len(kept) - 1]
        self._points[: len(kept)] = self._points[: self._count : 2].copy()
        self._starts[: len(kept)] = kept
        self._count, self.step = len(kept), 2 * self.step
        self._newest = self._points[self._count - 1].tolist()

    @property
    def usual_move(self) -> float:
        """Usual move between two samples, m; 0 while none is known."""
        return median_low(self._moves) if self._moves else 0.0

    @property
    def newest(self) -> list[float] | None:
        """The last position, also between two points of the trace; None before the first."""
        return self._last or (self._newest if self._count else None)

    def around(self, side: float) -> Area:
        """The driven ground in a square about where the robot is, the median of its last places.

        The square moves in steps of an eighth of its side, so that it is not another one at every
        call.

        Args:
            side: of the square, m.
        """
        recent = self._points[max(0, self._count - _RECENT) : self._count]
        place = np.sort(recent, axis=0)[(len(recent) - 1) // 2].tolist()
        step = side / 8
        middle = [step * round(v / step) for v in place]

        # no more than the driven ground, and never without the middle
        low = [min(max(a, m - side / 2), m) for a, m in zip(self._low, middle)]
        high = [max(min(b, m + side / 2), m) for b, m in zip(self._high, middle)]
        return Area(tuple(low), tuple(high), self._count, 0, (), tuple(place))

    def bounds(self) -> tuple[list[float], list[float]]:
        """Lowest and highest coordinates of all positions, m."""
        return self._low, self._high

    def points(self) -> Tensor:
        """Points of the trace: (K, 2) m."""
        return torch.from_numpy(self._points[: self._count].copy())

    def driven(self) -> Tensor:
        """Points where the robot drove, not where a glitch has thrown its pose: (K, 2) m.

        Those on ground that was driven; without single points that have no line to or from them,
        where most points have one.
        """
        points, line = self.points(), self.starts().cumsum(0)
        kept = torch.from_numpy(
            self.extent.holds(points.numpy(), self.extent.ground(self.usual_move))
        )
        # points of a line of at least two
        along = line.bincount()[line] > 1 if len(line) else kept
        return points[kept & along] if along.double().mean() > 0.5 else points[kept]

    def starts(self) -> Tensor:
        """Points to which no line leads, since a pass began or the pose jumped there: (K,) bool."""
        return torch.from_numpy(self._starts[: self._count].copy())

    def state_dict(self) -> dict:
        """Return points, length and bounds of the path, and where its lines begin."""
        return {
            "starts": self.starts(),
            "broken": self._broken,
            "last": self._last,
            "moves": list(self._moves),
            "points": self.points(),
            "step": self.step,
            "length": self.length,
            "anchor": self._anchor,
            "low": list(self._low),
            "high": list(self._high),
            "extent": self.extent.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken, also of older versions.

        Raises:
            ValueError: there are not as many marks of beginnings as points.
        """
        points, starts = (
            state["points"].to(torch.float64).reshape(-1, 2),
            state["starts"].to(torch.bool),
        )
        if len(points) != len(starts):
            raise ValueError(
                f"a path of {len(points)} points and {len(starts)} marks of where a line begins"
            )

        self._count, self._anchor = len(points), state["anchor"]
        # room to grow, as a new path has
        self._points = np.concatenate([points.numpy(), np.empty((64, 2))])
        self._starts = np.concatenate([starts.numpy(), np.zeros(64, bool)])
        self._newest = points[-1].tolist() if self._count else [math.inf, math.inf]

        self.step, self.length = state["step"], state["length"]
        self._low, self._high = list(state["low"]), list(state["high"])
        self._broken = bool(state["broken"])
        self._last = state["last"]
        usual = state.get("usual")  # of older maps only the usual move is known
        self._moves = deque(state.get("moves", [] if usual is None else [usual]), maxlen=_MOVES)

        self.extent = Extent()
        if "extent" in state:
            self.extent.load_state_dict(state["extent"])
        else:  # of older maps only the points are known
            for point in self.points().tolist():
                self.extent.add(point, True)

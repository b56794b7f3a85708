"""Which of all places a map is drawn at: where many samples lie, not where a pose's glitch was.

Positions are counted on squares of 10 m. Squares that are neighbours, or no farther apart than the
robot usually moves between samples, are one area. An area is ground that was driven once it has
twenty points along its path (2 m at the usual cell length) or a tenth of all samples: a glitch has
neither, a robot that was carried there soon has the first. The largest area is drawn in any case;
where not all fit into the largest grid, that where the robot is comes first, once it is a quarter
of the largest, and then the larger ones that still fit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from gp_mapping.mapping.tables import Squares

__all__ = ["Area", "Extent"]

_SIDE = 10.0  # m of a square
_LINK = 2.5  # squares; those whose middles lie no farther apart are one area
_STEPS = 8.0  # usual moves, likewise
_DRIVEN = 20  # points along the path that make ground of an area
_SHARE = 0.1  # fraction of all samples, likewise
_HERE = 0.25  # of the largest area's points with which the area of the robot comes first
_MOST = 20000  # squares; beyond, those with the fewest samples are dropped


class Area(NamedTuple):
    """Ground of squares that lie together.

    Attributes:
        low: lower corner, m.
        high: upper corner, m.
        points: of the path on it.
        samples: all on it.
        squares: which.
        place: its newest sample, m.
    """

    low: tuple[float, float]
    high: tuple[float, float]
    points: int
    samples: int
    squares: tuple[tuple[int, int], ...]
    place: tuple[float, float]


class Extent:
    """Counts positions by squares, and chooses which areas to draw."""

    def __init__(self):
        # square -> lowest x, y, highest x, y, points, samples, newest x, y; the one that was
        # visited last comes last
        self._squares = Squares(8)
        self._here: tuple[int, int] | None = None  # square of the newest position
        # its numbers, newer than those in _squares; None: they are there
        self._newest: list[float] | None = None
        self._total = 0
        # areas of the last call, with the number of squares and the link that they were made for
        self._areas: tuple[list[Area], int, float] | None = None

    def add(self, x: list[float], point: bool) -> None:
        """Count one position.

        Args:
            x: (2,) m.
            point: whether it is a point of the path.
        """
        self._settle()
        key = math.floor(x[0] / _SIDE), math.floor(x[1] / _SIDE)

        held = self._squares.get(key)
        if held is None:
            # thinning drops many at once, since it sorts all of them
            if len(self._squares) >= _MOST:
                self._thin()
            self._squares.put(key, (x[0], x[1], x[0], x[1], float(point), 1.0, x[0], x[1]))
        else:
            x_low, y_low, x_high, y_high, points, samples, _, _ = held
            if key != self._here:
                self._squares.pop(key)
            self._squares.put(
                key,
                (
                    min(x_low, x[0]),
                    min(y_low, x[1]),
                    max(x_high, x[0]),
                    max(y_high, x[1]),
                    points + point,
                    samples + 1.0,
                    x[0],
                    x[1],
                ),
            )

        self._here = key
        self._total += 1

    def extend(
        self, positions: list[list[float]], points: list[bool], low: list[float], high: list[float]
    ) -> None:
        """Count positions in order; those on one square at once.

        Args:
            positions: (2,) m each.
            points: which of them are points of the path.
            low: their least coordinates.
            high: their largest coordinates.
        """
        (west, south), (east, north) = low, high
        here = math.floor(west / _SIDE), math.floor(south / _SIDE)
        if here != (math.floor(east / _SIDE), math.floor(north / _SIDE)):
            for x, point in zip(positions, points):
                self.add(x, point)
            return

        done = 0
        if here != self._here or self._newest is None:
            self.add(positions[0], points[0])
            self._newest, done = self._squares.get(here), 1
        row, more = self._newest, len(positions) - done
        row[:4] = (
            min(row[0], west),
            min(row[1], south),
            max(row[2], east),
            max(row[3], north),
        )
        row[4] += sum(points[done:])
        row[5] += more
        row[6:] = positions[-1]
        self._total += more

    def _settle(self) -> None:
        """Put the numbers of the newest square to the others."""
        if self._newest is not None:
            self._squares.put(self._here, self._newest)
            self._newest = None

    def join(self, other: "Extent") -> None:
        """Count the positions of another; the robot stays where this one has it."""
        self._settle()
        for key, row in other.squares().items():
            held = self._squares.get(key)
            if held is None:
                self._squares.put(key, row)
            else:
                self._squares.put(
                    key,
                    (
                        *map(min, held[:2], row[:2]),
                        *map(max, held[2:4], row[2:4]),
                        # counts add up; the newest sample stays this robot's
                        held[4] + row[4],
                        held[5] + row[5],
                        *held[6:],
                    ),
                )
            self._total += int(row[5])

        while len(self._squares) > _MOST:
            self._thin()
        self._areas = None

    def squares(self) -> dict[tuple[int, int], list[float]]:
        """Rows by square: lowest x, y, highest x, y, points, samples, newest x, y."""
        self._settle()
        return dict(zip(self._squares, self._squares.numbers().tolist()))

    def _thin(self) -> None:
        """Drop the tenth of all squares that have the fewest samples."""
        self._settle()
        samples = dict(zip(self._squares, self._squares.numbers()[:, 5].tolist()))
        for key in sorted(samples, key=samples.__getitem__)[: _MOST // 10]:
            self._squares.pop(key)
        self._areas = None

    def areas(self, usual_move: float) -> list[Area]:
        """All areas, the one with most points first.

        Args:
            usual_move: between two samples, m.
        """
        self._settle()
        link = max(_LINK, _STEPS * usual_move / _SIDE)
        cached = self._areas
        # linking is the costly part: while the squares are the same, only the counts are new
        if cached is None or cached[1] != len(self._squares) or cached[2] != link:
            groups = _linked(list(self._squares), link)
        else:
            groups = [area.squares for area in cached[0]]

        visited = {square: number for number, square in enumerate(self._squares)}
        areas = sorted(
            (self._area(group, visited) for group in groups),
            key=lambda area: (-area.points, -area.samples),
        )
        self._areas = areas, len(self._squares), link
        return areas

    def _area(self, squares, visited: dict[tuple[int, int], int]) -> Area:
        """Sum up the squares of one area.

        Args:
            squares: which.
            visited: number of each square, in the order of their last visits.
        """
        rows = np.array([self._squares.get(key) for key in squares])
        # on the robot's own square lies the newest sample of all, also where another's were added
        last = self._here if self._here in squares else max(squares, key=visited.__getitem__)
        newest = self._squares.get(last)

        return Area(
            tuple(rows[:, :2].min(0).tolist()),
            tuple(rows[:, 2:4].max(0).tolist()),
            int(rows[:, 4].sum()),
            int(rows[:, 5].sum()),
            tuple(squares),
            (float(newest[6]), float(newest[7])),
        )

    def boxes(self) -> np.ndarray:
        """Boxes of the positions in each square: (K, 4) m, lowest x and y, highest x and y."""
        self._settle()
        return self._squares.numbers()[:, :4]

    def bounds(self, usual_move: float) -> tuple[list[float], list[float]]:
        """Corners of all ground, m, without places that a pose's glitch makes."""
        return _around(self.ground(usual_move))

    def ground(self, usual_move: float) -> list[Area]:
        """Areas that were driven, the one with most points first; a pose's glitch makes none."""
        areas = self.areas(usual_move)
        return [
            a
            for a in areas
            if a is areas[0] or a.points >= _DRIVEN or a.samples >= _SHARE * self._total
        ]

    def holds(self, positions: np.ndarray, areas: list[Area]) -> np.ndarray:
        """Which positions lie on squares of some areas.

        Args:
            positions: (K, 2) m.
            areas: of `ground` or `choose_drawn`.

        Returns:
            (K,) bool.
        """
        squares = np.array(
            [key for area in areas for key in area.squares], dtype=np.float64
        ).reshape(-1, 2)
        keys = np.floor(np.asarray(positions, dtype=np.float64).reshape(-1, 2) / _SIDE)
        # a pair as one complex number, for isin
        square_codes = squares[:, 0] + 1j * squares[:, 1]
        return np.isin(keys[:, 0] + 1j * keys[:, 1], square_codes)

    def choose_drawn(self, fits, usual_move: float) -> tuple[list[Area], list[Area]]:
        """Choose which areas to draw.

        Args:
            fits: fits(low, high) tells whether a grid holds the box between these corners, m.
            usual_move: between two samples, m.

        Returns:
            Areas to draw, the most important first, and those to leave out.
        """
        areas = self.areas(usual_move)
        if not areas:
            return [], []

        ground = self.ground(usual_move)
        here = next((a for a in ground if self._here in a.squares), areas[0])
        # the robot's own area first, unless it has hardly begun there
        if here.points >= _HERE * areas[0].points:
            ground.remove(here)
            ground.insert(0, here)

        chosen = ground[:1]
        for area in ground[1:]:
            # the larger areas first, each only if a grid holds it with those before
            low, high = _around([*chosen, area])
            if fits(low, high):
                chosen.append(area)
        return chosen, [area for area in areas if area not in chosen]

    def state_dict(self) -> dict:
        """Return the squares as a table, and which one the robot is in."""
        self._settle()
        return {
            "squares": self._squares.table(),
            "total": self._total,
            "here": None if self._here is None else list(self._here),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self._squares.load(state["squares"])
        self._newest = None
        self._total, self._areas = int(state["total"]), None
        self._here = None if state["here"] is None else tuple(int(k) for k in state["here"])


def _around(areas: list[Area]) -> tuple[list[float], list[float]]:
    """Corners of the box around areas, m."""
    return [min(a.low[d] for a in areas) for d in range(2)], [
        max(a.high[d] for a in areas) for d in range(2)
    ]


def _linked(squares: list[tuple[int, int]], link: float) -> list[tuple]:
    """Group squares: each lies within `link` squares of another of its group.

    Union-find over the pairs that are close.
    """
    if not squares:
        return []
    parent = list(range(len(squares)))

    def root(i: int) -> int:
        """Number of the square that stands for all that are linked to square i."""
        # halve the way to the root
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in cKDTree(np.array(squares, dtype=float)).query_pairs(link):
        parent[root(i)] = root(j)

    groups: dict[int, list] = {}
    for i, square in enumerate(squares):
        groups.setdefault(root(i), []).append(square)
    return [tuple(group) for group in groups.values()]

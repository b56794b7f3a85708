"""Polygons drawn by a person: validated once, with readable errors, and tested for many places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gp_mapping.planning.area.places import FARTHEST, are_valid_places
from gp_mapping.planning.area.sides import crossings, near

__all__ = ["Polygon"]

_POINTS = 2000  # corners at most: the check for crossings may compare every pair of sides
_ROWS = 100  # sides whose boxes are compared with all others at once: time and memory alone


@dataclass(frozen=True)
class Polygon:
    """A simple polygon; its last corner is joined to its first.

    Attributes:
        corners: (K, 2) metres.
        frame: the frame of the corners; empty is the map's.
    """

    corners: np.ndarray
    frame: str = ""

    @staticmethod
    def from_corners(corners, frame: str = "", name: str = "polygon") -> Polygon:
        """Return a validated polygon.

        Args:
            corners: (K, 2) metres, either way round; one that equals the one before, or as the last
                one the first, is left out.
            frame: frame of the corners.
            name: what the polygon is, for the error.

        Raises:
            ValueError: too few or too many corners, one that is not finite or too far, no area,
                sides that cross.
        """
        try:
            x = np.array(corners, dtype=np.float64).reshape(-1, 2)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name}: {corners!r} are not corners, expected x y pairs in metres"
            ) from None

        # Clicked twice, or closed.
        given = len(x)
        if given > 1 and (x == x[0]).all():
            raise ValueError(f"{name}: its {given} corners are one place, and enclose no area")
        if given > 1:
            x = x[(x != np.roll(x, -1, axis=0)).any(1)]

        if not 3 <= len(x) <= _POINTS:
            counted = f"{len(x)} corners"
            if len(x) < given:
                counted = f"{given} corners, {len(x)} without repeated ones"
            raise ValueError(f"{name}: it has {counted}; expected 3 to {_POINTS}")

        if not np.isfinite(x).all():
            bad = int((~np.isfinite(x)).any(1).argmax())
            raise ValueError(f"{name}: corner {bad} is {x[bad].tolist()}, expected finite metres")
        if not are_valid_places(x).all():
            bad = int((~are_valid_places(x)).argmax())
            raise ValueError(
                f"{name}: corner {bad} is {x[bad].tolist()}, expected metres, at most {FARTHEST:g} from "
                "the origin"
            )

        # Relative to the extent, so that small polygons are not refused.
        size = np.ptp(x, axis=0).max()
        crossing = _crossing(x)
        if crossing is not None:
            i, j = crossing
            raise ValueError(
                f"{name}: the side from corner {i} crosses or touches the side from corner {j}; give "
                "the corners in order around the area, each once"
            )

        if abs(_area(x)) <= 1e-9 * size * size:
            raise ValueError(f"{name}: its {len(x)} corners enclose no area")
        return Polygon(x, frame)

    @property
    def area(self) -> float:
        """Enclosed area, square metres."""
        return abs(_area(self.corners))

    def contains(self, x) -> np.ndarray:
        """Return which places (N, 2) m lie inside, by the parity of sides to the right: (N,)."""
        x = np.asarray(x, dtype=np.float64).reshape(-1, 2)
        return crossings(self.corners, np.roll(self.corners, -1, axis=0), x)

    def is_near(self, x, within: float) -> np.ndarray:
        """Return which places have a side that is nearer than so many metres: (N,).

        Args:
            x: (N, 2) m.
            within: m.
        """
        x = np.asarray(x, dtype=np.float64).reshape(-1, 2)
        return near(self.corners, np.roll(self.corners, -1, axis=0), x, within)

    def distance(self, x) -> np.ndarray:
        """Return the distance of places (N, 2) m to the nearest side: (N,) metres."""
        x = np.asarray(x, dtype=np.float64).reshape(-1, 2)
        nearest = np.full(len(x), np.inf)

        for a, b in zip(self.corners, np.roll(self.corners, -1, axis=0)):
            side = b - a
            # The nearest point of a side, between its ends.
            fraction = np.clip((x - a) @ side / max(float(side @ side), 1e-300), 0.0, 1.0)
            nearest = np.minimum(nearest, np.hypot(*(x - a - fraction[:, None] * side).T))
        return nearest


def _area(x: np.ndarray) -> float:
    """Return the signed area, m²; positive for counter-clockwise corners.

    Shoelace formula, relative to the first corner: far from the origin products would lose digits.
    """
    after = np.roll(x, -1, axis=0)
    origin = x[0]
    (ax, ay), (bx, by) = (x - origin).T, (after - origin).T
    return 0.5 * float((ax * by - ay * bx).sum())


def _crossing(x: np.ndarray) -> tuple[int, int] | None:
    """Return the first two sides that meet elsewhere than at a shared corner; None where no two do.

    Side i goes from corner i to corner i + 1, which is another place.
    """
    a, b, n = x, np.roll(x, -1, axis=0), len(x)
    # Bound of twice a triangle's area below which three places count as collinear.
    tiny = 1e-12 * float(np.ptp(x, axis=0).max()) ** 2

    def turn(p, q, r):
        """Return twice the signed area of the triangle p q r; 0 where they lie on a line.

        Args:
            p: (…, 2) m.
            q: (…, 2) m.
            r: (…, 2) m.

        Returns:
            (…) m², positive where p q r turn counter-clockwise.
        """
        return (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (
            r[..., 0] - p[..., 0]
        )

    def between(p, q, r):
        """Return whether r lies in the box that p and q span.

        Args:
            p: (…, 2) m.
            q: (…, 2) m.
            r: (…, 2) m.
        """
        low, high = np.minimum(p, q), np.maximum(p, q)
        return ((r >= low) & (r <= high)).all(-1)

    low, high = np.minimum(a, b), np.maximum(a, b)
    for start in range(0, n, _ROWS):
        # Sides meet where the boxes that they span do.
        rows = slice(start, start + _ROWS)
        meet = ((low[rows, None] <= high) & (low <= high[rows, None])).all(-1)
        i, j = np.nonzero(meet)
        i += start
        i, j = i[j > i], j[j > i]
        not_neighbours = (j != i + 1) & ~((i == 0) & (j == n - 1))
        p, q, c, d = a[i], b[i], a[j], b[j]
        first, second, third, fourth = turn(p, q, c), turn(p, q, d), turn(c, d, p), turn(c, d, q)

        # Either both sides separate the other one's ends, or an end of one lies upon the other.
        proper = (first * second < 0) & (third * fourth < 0)
        touch = np.zeros(len(j), dtype=bool)
        for value, inside in (
            (first, between(p, q, c)),
            (second, between(p, q, d)),
            (third, between(c, d, p)),
            (fourth, between(c, d, q)),
        ):
            touch |= (np.abs(value) <= tiny) & inside

        # Neighbours share a corner; only a side that turns straight back lies upon the one before.
        back = ~not_neighbours & (np.abs(np.where(j == i + 1, second, first)) <= tiny)
        back &= np.where(j == i + 1, ((q - p) * (d - q)).sum(-1), ((q - p) * (p - c)).sum(-1)) < 0

        bad = (not_neighbours & (proper | touch)) | back
        if bad.any():
            return int(i[bad.argmax()]), int(j[bad.argmax()])
    return None

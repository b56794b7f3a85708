"""The way home over ground that a robot has driven, which is known to be free. No rclpy.

Where something is in the way that no free-space map shows, the straight way home may be blocked by
more of it. What was driven is free.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

__all__ = ["DrivenPath", "length_of"]

_APART = 0.15  # m between two positions that are kept
_SAME = 0.2  # m; positions that are as near as that are on one piece of ground
_MOST = 8000  # positions that are kept, those of 1.2 km
_PART = 8  # of which so small a part, the oldest ones, is forgotten at a time


def length_of(line: np.ndarray) -> float:
    """Return the length of a line (K, 2) m."""
    return float(np.hypot(*np.diff(line, axis=0).T).sum())


class DrivenPath:
    """Where the robot of a survey has been, as a graph of positions.

    Attributes:
        needed: whether something has been in the way that no map shows.
        forgotten: m that were driven, and are not remembered since there was more of it.
    """

    def __init__(self) -> None:
        self.needed, self.forgotten = False, 0.0
        self._x: list[np.ndarray] = []
        self._follows: list[bool] = []  # whether each was driven to from the one before

    def add(self, position: np.ndarray, leapt: bool) -> None:
        """Record where the robot is.

        Args:
            position: (2,) m.
            leapt: whether it was moved there rather than driven.
        """
        if self._x and not leapt and math.dist(position, self._x[-1]) < _APART:
            return
        self._x.append(np.asarray(position, dtype=np.float64))
        self._follows.append(bool(self._follows) and not leapt)
        if len(self._x) > _MOST:
            self._forget(len(self._x) - _MOST + _MOST // _PART)

    def _forget(self, count: int) -> None:
        """Forget the oldest positions, and the way from the last of them to the next one."""
        x, driven = np.array(self._x[: count + 1]), np.array(self._follows[1 : count + 1])
        self.forgotten += float(np.hypot(*np.diff(x, axis=0).T) @ driven)
        del self._x[:count], self._follows[:count]
        self._follows[0] = False

    def block(self, place: np.ndarray, position: np.ndarray) -> None:
        """Forget what lies around a place where the robot does not get on, as far as to the robot.

        Args:
            place: (2,) m.
            position: (2,) m, of the robot.
        """
        self.needed = True
        near = max(math.dist(place, position) - 1e-6, _SAME)  # so that none lead through it
        kept = [math.dist(x, place) >= near for x in self._x]
        before = [True, *kept][: len(kept)]
        self._follows = [
            follows and whole for follows, whole, keep in zip(self._follows, before, kept) if keep
        ]
        self._x = [x for x, keep in zip(self._x, kept) if keep]

    @property
    def missing(self) -> str:
        """Why the way home may not be known where it is needed, in words; "" where all of it is."""
        if not (self.needed and self.forgotten):
            return ""
        return (
            f", and the first {self.forgotten:.0f} m that were driven are not remembered any more"
        )

    def path_home(self, position, home) -> np.ndarray | None:
        """Return the shortest way home over what was driven: (K, 2) m.

        None where it is not needed, or none is known: the robot was moved, or never was at home.

        Args:
            position: (2,) m, of the robot.
            home: (2,) m; None: there is none.
        """
        if not self.needed or home is None:
            return None
        x = np.array([*self._x, position], dtype=np.float64)
        ends = np.arange(1, len(x))
        at_the_last = len(x) > 1 and math.dist(x[-1], x[-2]) < 2.0 * (_SAME + _APART)
        ends = ends[np.array([*self._follows[1:], at_the_last], dtype=bool)[: len(ends)]]
        tree = cKDTree(x)
        pairs = np.vstack(
            [np.stack([ends - 1, ends], 1), tree.query_pairs(_SAME, output_type="ndarray")]
        )
        pairs = np.unique(pairs, axis=0)  # a matrix adds up what it is given twice
        length = np.maximum(np.hypot(*(x[pairs[:, 0]] - x[pairs[:, 1]]).T), 1e-9)
        graph = coo_matrix((length, pairs.T), (len(x), len(x))).tocsr()

        away, end = tree.query(home)
        if away > _SAME + _APART:
            return None
        metres, predecessor = dijkstra(
            graph, directed=False, indices=len(x) - 1, return_predecessors=True
        )
        if not math.isfinite(metres[end]):
            return None
        chain = [int(end)]
        while chain[-1] != len(x) - 1:
            chain.append(int(predecessor[chain[-1]]))
        return np.vstack([x[chain[::-1]], home])

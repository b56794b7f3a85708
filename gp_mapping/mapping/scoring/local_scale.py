"""Where the map errs more, or less, than it says: one-step-ahead scores smoothed over places.

One lengthscale and one signal variance for a whole map are a compromise: beside a cabinet the field is rougher than
they say, in an empty corner smoother. Of a score z² = r²/(v + σ²) the mean is 1 where the map means what it says, so

    κ(x) = (n₀ + Σ_b K_b(x) Z_b) / (n₀ + Σ_b K_b(x) W_b),   K_b(x) = exp(−|x − x_b|²/2h²)

over bins b of side h with summed weights W_b and scores Z_b scales the variance at x: the conjugate (scaled inverse
χ²) estimate with n₀ scores of 1 as its prior. Far from every score, κ is 1.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from gp_mapping.mapping.tables import Squares

__all__ = ["LocalScale"]

_PRIOR = 5.0  # n₀
_WEIGHT = 0.2  # of a score: at ten a second their errors are correlated over about half a second
_HEAVIEST = 20.0  # of a bin: beyond it the oldest scores fade, so that κ follows the field
_BINS = 20000  # kept; the longest unvisited leaves first
_NEIGHBOURS = 16  # bins that count at a place; they reach beyond 2 h


class LocalScale:
    """κ(x), with h = `width` metres. Bounded memory; the same scores give the same κ.

    everywhere: by what the field's variance is multiplied at all places beside κ, for what is not known of
    hyper-parameters (core/hyper/freedom.py).
    """

    def __init__(self, width: float):
        self.width, self.everywhere = width, 1.0
        self._bins = Squares(4)  # W, Z, Σ W x, Σ W y
        self._tree: tuple[cKDTree, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self._bins)

    @property
    def tells(self) -> bool:
        """Whether any variance is another one with it."""
        return len(self._bins) > 0 or self.everywhere != 1.0

    def add(self, x, score) -> None:
        """Scores z² (N,) at x (N, 2) metres."""
        for (px, py), square in zip(np.asarray(x).tolist(), np.asarray(score).tolist()):
            key = (int(np.floor(px / self.width)), int(np.floor(py / self.width)))
            held = self._bins.pop(key) or [0.0] * 4
            keep = min(1.0, _HEAVIEST / (held[0] + _WEIGHT))
            fresh = (_WEIGHT, _WEIGHT * square, _WEIGHT * px, _WEIGHT * py)
            self._bins.put(key, [keep * (a + b) for a, b in zip(held, fresh)])
            if len(self._bins) > _BINS:
                self._bins.pop_oldest()
        self._tree = None

    def join(self, other: "LocalScale") -> None:
        """Count another's scores, too, each where it lies."""
        for weight, score, sum_x, sum_y in other.sums():
            key = (int(np.floor(sum_x / weight / self.width)), int(np.floor(sum_y / weight / self.width)))
            held = self._bins.pop(key) or [0.0] * 4
            keep = min(1.0, _HEAVIEST / (held[0] + weight))
            self._bins.put(key, [keep * (a + b) for a, b in zip(held, (weight, score, sum_x, sum_y))])
            if len(self._bins) > _BINS:
                self._bins.pop_oldest()
        self._tree = None

    def sums(self) -> list[list[float]]:
        """Of each bin: W, Z, Σ W x, Σ W y."""
        return self._bins.numbers().tolist()

    def forget_near(self, x, radius: float) -> None:
        """Drop the bins whose middle lies within radius (m) of x (2,): the field there is another one now."""
        near = [(sx / w - x[0]) ** 2 + (sy / w - x[1]) ** 2 <= radius**2 for w, _, sx, sy in self.sums()]
        for key in [key for key, gone in zip(self._bins, near) if gone]:
            self._bins.pop(key)
        self._tree = None

    def at(self, x) -> np.ndarray:
        """κ at x (N, 2) metres: (N,)."""
        x = np.asarray(x, dtype=float).reshape(-1, 2)
        if not len(self._bins) or not len(x):
            return np.ones(len(x))
        if self._tree is None:
            table = self._bins.numbers()
            self._tree = (cKDTree(table[:, 2:] / table[:, :1]), table[:, :2])
        tree, sums = self._tree
        count = min(_NEIGHBOURS, len(sums))
        away, index = tree.query(x, k=np.arange(1, count + 1), distance_upper_bound=3.0 * self.width)
        kernel = np.exp(-0.5 * np.square(away / self.width))  # 0 where there is no bin: its distance is infinite
        weight, score = (np.append(sums[:, i], 0.0)[index] for i in (0, 1))
        return (_PRIOR + (kernel * score).sum(1)) / (_PRIOR + (kernel * weight).sum(1))

    def on_axes(self, xs, ys) -> np.ndarray:
        """What scales the field's variance at the cells of a grid, xs (W,), ys (H,): (H, W).

        κ from every few cells, bilinear between them, and `everywhere`.
        """
        nodes = []
        for axis in (np.asarray(xs), np.asarray(ys)):
            step = max(1, int(self.width / 6 / max(axis[1] - axis[0], 1e-9))) if len(axis) > 1 else 1
            nodes.append(np.unique(np.append(np.arange(0, len(axis), step), len(axis) - 1)))
        (columns, rows), shape = nodes, (len(ys), len(xs))
        places = np.stack(np.meshgrid(np.asarray(xs)[columns], np.asarray(ys)[rows]), -1)
        coarse = self.everywhere * self.at(places.reshape(-1, 2)).reshape(len(rows), len(columns))
        if coarse.shape == shape:
            return coarse
        across, down = _between(columns, shape[1]), _between(rows, shape[0])
        return _blend(_blend(coarse, down, 0), across, 1)

    def state_dict(self) -> dict:
        return {"width": self.width, "bins": self._bins.table()}

    def load_state_dict(self, state: dict) -> None:
        self.width, self._tree = float(state["width"]), None
        self._bins.load(state["bins"])


def _between(nodes: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each of n cells: index of the node at or before it, and how far it is towards the next one."""
    if len(nodes) == 1:
        return np.zeros(n, dtype=int), np.zeros(n)
    low = np.clip(np.searchsorted(nodes, np.arange(n), side="right") - 1, 0, len(nodes) - 2)
    return low, (np.arange(n) - nodes[low]) / (nodes[low + 1] - nodes[low])


def _blend(values: np.ndarray, where: tuple[np.ndarray, np.ndarray], axis: int) -> np.ndarray:
    low, share = where
    high = np.minimum(low + 1, values.shape[axis] - 1)
    share = share[:, None] if axis == 0 else share
    return (1.0 - share) * values.take(low, axis) + share * values.take(high, axis)

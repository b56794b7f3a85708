"""Where the map errs more, or less, than its variance: one-step-ahead scores smoothed over places.

One lengthscale and one signal variance for a whole map are a compromise: next to a cabinet the
field is rougher than they describe, in an empty corner smoother. A score z² = r²/(v + σ²) has the
mean 1 where the predicted variance is right, so

    κ(x) = (n₀ + Σ_b K_b(x) Z_b) / (n₀ + Σ_b K_b(x) W_b),
    K_b(x) = max(0, exp(−|x − x_b|²/2h²) − exp(−R²/2h²)),   R = 3 h

over bins b of side h with mean places x_b, summed weights W_b and scores Z_b scales the variance at
x: the conjugate (scaled inverse χ²) estimate with n₀ scores of 1 as its prior. The kernel is 0 from
R on, so κ is continuous, and only the 7 × 7 bins around x are looked at. Farther from every score,
κ is 1.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from gp_mapping.mapping.tables import Squares

__all__ = ["LocalScale", "ScaleOfGrid"]

_PRIOR = 5.0  # n₀
_WEIGHT = 0.2  # of a score: at ten a second their errors are correlated over about half a second
_HEAVIEST = 20.0  # of a bin: beyond it the oldest scores fade, so that κ follows the field
_BINS = 20000  # kept; the longest unvisited is dropped first
_REACH = 3  # R/h: a bin does not count from there on
_TOGETHER = 1024  # places that are looked at at once: half a megabyte an array
_NOTED = 256  # newest changes whose places are kept; a longer look back says everywhere
# squares that a place's bins may lie in, from its own: i + j √−1
_AROUND = np.add.outer(np.arange(-_REACH, _REACH + 1), 1j * np.arange(-_REACH, _REACH + 1)).ravel()


class LocalScale:
    """κ(x) with h = `width`. Bounded memory; the same scores give the same κ.

    Args:
        width: h, m.

    Attributes:
        everywhere: factor of the field's variance at all places in addition to κ, for uncertain
            hyper-parameters (core/hyper/freedom.py).
        version: of κ, which is another one after each change.
    """

    def __init__(self, width: float):
        self.width, self.everywhere = width, 1.0
        self._bins = Squares(4)  # W, Z, Σ W x, Σ W y
        self.version = 0
        # the last version at which all of it may have changed
        self._whole = 0
        # version and place (m) of the newest changes
        self._changes: deque[tuple[int, float, float]] = deque()

    def __len__(self) -> int:
        return len(self._bins)

    @property
    def is_active(self) -> bool:
        """Whether it changes any variance."""
        return len(self._bins) > 0 or self.everywhere != 1.0

    def add(self, x, score) -> None:
        """Add scores to the bins in which they lie.

        Args:
            x: (N, 2) m.
            score: squared standardised residuals z² (N,).
        """
        for (px, py), square in zip(np.asarray(x).tolist(), np.asarray(score).tolist()):
            key = math.floor(px / self.width), math.floor(py / self.width)
            held = self._bins.pop(key) or [0.0] * 4
            # a full bin fades, so that it stays at _HEAVIEST and follows the field
            keep = min(1.0, _HEAVIEST / (held[0] + _WEIGHT))
            fresh = (_WEIGHT, _WEIGHT * square, _WEIGHT * px, _WEIGHT * py)
            new = [keep * (a + b) for a, b in zip(held, fresh)]
            # put again at the end, since the oldest is dropped first
            self._bins.put(key, new)
            dropped = self._bins.pop_oldest() if len(self._bins) > _BINS else [0.0] * 4
            self._changed(held, new, dropped)

    def _changed(self, *bins: list[float]) -> None:
        """Note bins that have changed, as they were and as they are; none given: any may have."""
        self.version += 1
        if not bins:
            self._changes.clear()
            self._whole = self.version
        # an empty bin has no place
        self._changes.extend(
            (self.version, x / weight, y / weight) for weight, _, x, y in bins if weight > 0
        )

        while len(self._changes) > _NOTED:
            self._whole = self._changes.popleft()[0]

    def changed_since(self, version: int) -> np.ndarray | None:
        """Places (K, 2) m of the bins that have changed after a version; None: any may have.

        Each bin is there twice, as it was before and as it is after.
        """
        if version < self._whole:
            return None
        return np.array([(x, y) for at, x, y in self._changes if at > version]).reshape(-1, 2)

    def join(self, other: "LocalScale") -> None:
        """Count another's scores, too, each bin where its mean place lies."""
        for weight, score, sum_x, sum_y in other.sums():
            key = (
                int(np.floor(sum_x / weight / self.width)),
                int(np.floor(sum_y / weight / self.width)),
            )
            # bins of this width may hold several of the other's
            held = self._bins.pop(key) or [0.0] * 4
            keep = min(1.0, _HEAVIEST / (held[0] + weight))
            self._bins.put(
                key, [keep * (a + b) for a, b in zip(held, (weight, score, sum_x, sum_y))]
            )
            if len(self._bins) > _BINS:
                self._bins.pop_oldest()
        self._changed()

    def sums(self) -> list[list[float]]:
        """Rows of the bins: W, Z, Σ W x, Σ W y."""
        return self._bins.numbers().tolist()

    def forget_near(self, x, radius: float) -> None:
        """Drop the bins near a place where the field has changed.

        Args:
            x: the place (2,), m.
            radius: farthest distance of a bin's mean place, m.
        """
        near = [
            (sx / w - x[0]) ** 2 + (sy / w - x[1]) ** 2 <= radius**2 for w, _, sx, sy in self.sums()
        ]
        for key in [key for key, is_near in zip(self._bins, near) if is_near]:
            self._bins.pop(key)
        self._changed()

    def scale_at(self, x) -> np.ndarray:
        """κ at x (N, 2) metres: (N,)."""
        return self.scale_and_count_at(x)[0]

    def scale_and_count_at(self, x) -> tuple[np.ndarray, np.ndarray]:
        """κ at x (N, 2) metres, and how many scores it is of: (N,) each."""
        weight, score = self._sums_at(np.asarray(x, dtype=float).reshape(-1, 2))
        return (_PRIOR + score) / (_PRIOR + weight), weight / _WEIGHT

    def _sums_at(self, x: np.ndarray) -> np.ndarray:
        """Σ K W and Σ K Z at x (N, 2) m: (2, N)."""
        if not len(self._bins) or not len(x):
            return np.zeros((2, len(x)))

        # places in one square have the same bins around them
        i, j = np.floor(x / self.width).T
        squares, square = np.unique(i + 1.0j * j, return_inverse=True)

        sums, order = np.empty((2, len(x))), np.argsort(square, kind="stable")
        for start in range(0, len(x), _TOGETHER):
            some = order[start : start + _TOGETHER]
            first, last = square[some[[0, -1]]]
            sums[:, some] = self._sums_in(squares[first : last + 1], square[some] - first, x[some])
        return sums

    def _sums_in(self, squares: np.ndarray, square: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Σ K W and Σ K Z: (2, N).

        Args:
            squares: i + j √−1 of squares (U,).
            square: which of them each place lies in (N,).
            x: the places (N, 2), m.
        """
        around = (squares[:, None] + _AROUND).ravel()
        bins = self._bins.numbers_of(zip(around.real.tolist(), around.imag.tolist()))
        weight, score, sum_x, sum_y = bins.T.reshape(4, len(squares), len(_AROUND))
        # an empty bin has no place, and no weight
        held = np.where(weight > 0, weight, 1.0)

        away2 = np.square((sum_x / held)[square] - x[:, :1])
        away2 += np.square((sum_y / held)[square] - x[:, 1:])
        kernel = np.exp(away2 / (-2.0 * self.width**2)) - np.exp(-0.5 * _REACH**2)
        np.maximum(kernel, 0.0, out=kernel)
        return np.stack([(kernel * values[square]).sum(1) for values in (weight, score)])

    def state_dict(self) -> dict:
        """Return the bins as a table, with their width (m)."""
        return {"width": self.width, "bins": self._bins.table()}

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.width = float(state["width"])
        self._bins.load(state["bins"])
        self._changed()


class ScaleOfGrid:
    """Factor of the field's variance at a grid's cells: κ at every few cells, bilinear between.

    It is kept from one call to the next, and computed anew only where scores have come.
    """

    def __init__(self) -> None:
        # the scale, the axes and the width that it was made for
        self._of: tuple[LocalScale, np.ndarray, np.ndarray, float] | None = None
        self._version = 0

    def scale_of_cells(self, local: LocalScale, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
        """κ · `everywhere` at the cells of a grid.

        Args:
            local: the scale.
            xs: (W,) m; the same array as before where the grid is the same.
            ys: (H,) m, likewise.

        Returns:
            (H, W), its own array.
        """
        # by identity: a moved window has other axes
        same = (
            self._of is not None
            and all(a is b for a, b in zip(self._of, (local, xs, ys)))
            and (self._of[3] == local.width)
        )

        changed = local.changed_since(self._version) if same else None
        if not same:
            self._begin(local, xs, ys)
        if changed is None:
            self._renew(local, slice(0, len(self._rows)), slice(0, len(self._columns)))
        elif len(changed):
            # nodes within reach of a changed bin
            reach = _REACH * local.width
            box = [
                slice(*np.searchsorted(axis[nodes], (places.min() - reach, places.max() + reach)))
                for axis, nodes, places in (
                    (ys, self._rows, changed[:, 1]),
                    (xs, self._columns, changed[:, 0]),
                )
            ]
            self._renew(local, *box)

        self._version = local.version
        return np.float32(local.everywhere) * self._cells

    def _begin(self, local: LocalScale, xs: np.ndarray, ys: np.ndarray) -> None:
        """Start for another grid: choose the nodes, about six to a width."""
        self._of = local, xs, ys, local.width
        nodes = []
        for axis in (xs, ys):
            step = (
                max(1, int(local.width / 6 / max(axis[1] - axis[0], 1e-9))) if len(axis) > 1 else 1
            )
            # the last cell is a node, too, so that every cell lies between two
            nodes.append(np.unique(np.append(np.arange(0, len(axis), step), len(axis) - 1)))
        self._columns, self._rows = nodes

        self._coarse = np.ones((len(self._rows), len(self._columns)))
        self._cells = np.ones((len(ys), len(xs)), dtype=np.float32)

    def _renew(self, local: LocalScale, rows: slice, columns: slice) -> None:
        """Compute κ anew at some nodes, and at the cells that lie between them and others."""
        _, xs, ys, _ = self._of
        x, y = xs[self._columns[columns]], ys[self._rows[rows]]
        if not len(x) or not len(y):
            return

        places = np.stack(np.meshgrid(x, y), -1)
        self._coarse[rows, columns] = local.scale_at(places.reshape(-1, 2)).reshape(len(y), len(x))

        across, cells_across = _between(self._columns, columns, len(xs))
        down, cells_down = _between(self._rows, rows, len(ys))
        self._cells[cells_down, cells_across] = _blend(_blend(self._coarse, down, 0), across, 1)


def _between(nodes: np.ndarray, some: slice, n: int) -> tuple[tuple[np.ndarray, np.ndarray], slice]:
    """Find the cells of which some nodes are neighbours, and where these cells lie between nodes.

    Args:
        nodes: cell numbers of all nodes along an axis.
        some: which of them.
        n: cells along the axis.

    Returns:
        Of each such cell the node at or before it, and how far it lies beyond that (0…1); and which
        cells these are.
    """
    first = nodes[max(some.start - 1, 0)]
    last = n if some.stop >= len(nodes) else nodes[some.stop]

    cells = np.arange(first, last)
    if len(nodes) == 1:
        return (np.zeros(len(cells), dtype=int), np.zeros(len(cells))), slice(first, last)
    low = np.clip(np.searchsorted(nodes, cells, side="right") - 1, 0, len(nodes) - 2)
    return (low, (cells - nodes[low]) / (nodes[low + 1] - nodes[low])), slice(first, last)


def _blend(values: np.ndarray, where: tuple[np.ndarray, np.ndarray], axis: int) -> np.ndarray:
    """Interpolate values linearly along an axis, between the nodes of `_between`."""
    low, fraction = where
    high = np.minimum(low + 1, values.shape[axis] - 1)
    fraction = fraction[:, None] if axis == 0 else fraction
    return (1.0 - fraction) * values.take(low, axis) + fraction * values.take(high, axis)

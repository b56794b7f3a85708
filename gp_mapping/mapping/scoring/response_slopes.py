"""By how much a map's mean changes with the time constant τ of a slow sensor.

What the map takes of such a sensor (response/response.py) changes with log τ,

    dŷ_i = ∂ŷ_i/∂log τ = (a Δ/τ)/(1 − a)² (y_i − y_{i−1}),   a = exp(−Δ/τ)

which has the sign of the direction of travel. The map's mean is linear in what it takes, so it
changes by

    D(x) = k(x)ᵀ (K + Σ)⁻¹ dŷ

dŷ is kept by squares of a sixth of a lengthscale, as means weighted by the inverse variances of ŷ.
D is taken of the squares next to x: at the nodes of a lattice, with lines in between.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import cKDTree

from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.types import Samples
from gp_mapping.mapping.tables import Squares

__all__ = ["SQUARES_IN_A_LENGTHSCALE", "ResponseSlopes"]

SQUARES_IN_A_LENGTHSCALE = 6.0  # and nodes
_SQUARES = 4000  # kept; the longest unvisited is dropped first
_NEIGHBOURS = 16  # squares that count at a node
_REACH = 1.5  # lengthscales beyond which a square does not count
_NODES = 50000  # values at nodes that are kept
_TOGETHER = 2000  # nodes that are found at once: 16² numbers each
_LEAST = 1e-6  # of the field's variance: noise of a square at least
_TABLE = np.linspace(0.0, 2 * _REACH, 1000)  # distances in lengthscales


class ResponseSlopes:
    """Change D of a map's mean for a unit of log τ of one sensor. Bounded memory.

    Args:
        deviation: standard deviation of log τ; 0: nothing is added.
        lengthscale: of the field, m.
        signal: variance of the field, squared SI.
        kernel: name of its covariance function.

    Attributes:
        forgotten: squares that were dropped, for there are more than are kept.
    """

    def __init__(self, deviation: float, lengthscale: float, signal: float, kernel: str):
        self.deviation, self.lengthscale, self.signal = deviation, lengthscale, signal
        self.kernel, self.forgotten = kernel, 0
        self._squares = Squares(4)  # W, Σ W dŷ, Σ W x, Σ W y
        self._tree: cKDTree | None = None  # of the squares' mean places
        self._known: dict[tuple[int, int], float] = {}  # D at nodes

    @property
    def side(self) -> float:
        """Of a square, and from one node to the next, m."""
        return self.lengthscale / SQUARES_IN_A_LENGTHSCALE

    @property
    def count(self) -> int:
        """Of squares; 0 where τ is certain."""
        return len(self._squares) if self.deviation > 0.0 else 0

    def add(self, samples: Samples) -> None:
        """Take what the map has taken."""
        slope, variance = samples.response_slope, samples.sensor_variance
        if slope is None or variance is None or not self.deviation > 0.0:
            return
        for (x, y), d, white in zip(samples.x.tolist(), slope.tolist(), variance.tolist()):
            weight = 1.0 / max(white, _LEAST * self.signal)
            square = int(np.floor(x / self.side)), int(np.floor(y / self.side))
            held = self._squares.pop(square) or [0.0] * 4
            fresh = (weight, weight * d, weight * x, weight * y)
            # put again at the end, since the oldest is dropped first
            self._squares.put(square, [a + b for a, b in zip(held, fresh)])
            self._forget_nodes(square)
        while len(self._squares) > _SQUARES:
            weight, _, x, y = self._squares.pop_oldest()
            self._forget_nodes(tuple(int(np.floor(s / weight / self.side)) for s in (x, y)))
            self.forgotten += 1

    def _forget_nodes(self, square: tuple[int, ...]) -> None:
        """Forget D at the nodes that a square counts at."""
        self._tree = None
        if not self._known:
            return
        reach = int(_REACH * SQUARES_IN_A_LENGTHSCALE) + 1
        for i in range(square[0] - reach, square[0] + reach + 2):
            for j in range(square[1] - reach, square[1] + reach + 2):
                self._known.pop((i, j), None)

    # --- D ----------------------------------------------------------------------------------------
    def at(self, x: np.ndarray) -> np.ndarray:
        """D at x (N, 2) m: (N,), linear between the nodes."""
        corner = np.floor(x / self.side)
        part = x / self.side - corner
        shifts = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        around = (corner[:, None] + shifts).reshape(-1, 2).astype(np.int64)
        nodes, which = np.unique(around, axis=0, return_inverse=True)
        values = self._at_nodes(nodes)[which.reshape(-1)].reshape(-1, 4)
        return (np.where(shifts, part[:, None], 1.0 - part[:, None]).prod(2) * values).sum(1)

    def of_cells(self, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
        """D of a grid's cells: (H, W).

        Args:
            xs: of the columns (W,), m, ascending.
            ys: of the rows (H,), m, ascending.
        """
        columns, rows = (
            np.arange(np.floor(axis[0] / self.side), np.floor(axis[-1] / self.side) + 2)
            for axis in (xs, ys)
        )
        # nodes near squares: all others are 0
        near = np.zeros((len(rows), len(columns)), bool)
        reach = int(_REACH * SQUARES_IN_A_LENGTHSCALE) + 1
        first = np.array([columns[0], rows[0]])
        for i, j in (self._squares.table()[:, :2].numpy() - first).astype(np.int64):
            if -reach <= i < len(columns) + reach and -reach <= j < len(rows) + reach:
                near[max(j - reach, 0) : j + reach + 2, max(i - reach, 0) : i + reach + 2] = True

        values = np.zeros(near.shape)
        down, across = np.nonzero(near)
        nodes = np.stack([columns[across], rows[down]], 1).astype(np.int64)
        values[down, across] = self._at_nodes(nodes)
        along = np.stack([np.interp(ys / self.side, rows, column) for column in values.T], 1)
        return np.stack([np.interp(xs / self.side, columns, row) for row in along])

    def _at_nodes(self, nodes: np.ndarray) -> np.ndarray:
        """D at nodes (K, 2), each of which is asked for once: (K,)."""
        keys = list(map(tuple, nodes.tolist()))
        missing = [key for key in keys if key not in self._known]
        if len(self._known) + len(missing) > _NODES:
            self._known.clear()
            missing = keys
        for k in range(0, len(missing), _TOGETHER):
            part = missing[k : k + _TOGETHER]
            self._known.update(zip(part, self._found(self.side * np.array(part)).tolist()))
        return np.array([self._known[key] for key in keys])

    def _found(self, x: np.ndarray) -> np.ndarray:
        """D at x (K, 2) m of the squares next to each: (K,)."""
        weight, slope, *sums = self._squares.numbers().T
        places = np.stack(sums, 1) / weight[:, None]
        if self._tree is None:
            self._tree = cKDTree(places)
        count = np.arange(1, min(_NEIGHBOURS, len(places)) + 1)
        away, index = self._tree.query(x, k=count, distance_upper_bound=_REACH * self.lengthscale)

        # where there is no square: one far from all others that says 0
        there = np.isfinite(away)
        index = np.where(there, index, 0)
        near = places[index]
        apart = np.linalg.norm(near[:, :, None] - near[:, None], axis=-1)
        both = there[:, :, None] & there[:, None]
        covariance = np.where(both, self._covariance(apart), 0.0)
        noise = np.maximum(1.0 / weight, _LEAST * self.signal)[index]
        covariance += np.eye(len(count)) * np.where(there, noise, self.signal)[:, None]

        slopes = np.where(there, (slope / weight)[index], 0.0)
        solved = np.linalg.solve(covariance, slopes[..., None])[..., 0]
        return (np.where(there, self._covariance(np.where(there, away, 0.0)), 0.0) * solved).sum(1)

    def _covariance(self, apart: np.ndarray) -> np.ndarray:
        """Of the field at places so far apart, m."""
        ends = torch.from_numpy(np.stack([_TABLE, np.zeros_like(_TABLE)], 1) * self.lengthscale)
        table = make_kernel(self.kernel, 1.0, self.lengthscale)(ends[:1], ends)[0].numpy()
        return self.signal * np.interp(apart / self.lengthscale, _TABLE, table)

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "deviation": self.deviation,
            "lengthscale": self.lengthscale,
            "signal": self.signal,
            "kernel": self.kernel,
            "forgotten": self.forgotten,
            "squares": self._squares.table(),
        }

    def load_squares(self, table) -> None:
        """Replace all squares by those of a table."""
        self._squares.load(table)
        self._tree = None
        self._known.clear()

    @staticmethod
    def restored(state: dict) -> ResponseSlopes:
        """As it was when state_dict was taken."""
        new = ResponseSlopes(
            *(float(state[name]) for name in ("deviation", "lengthscale", "signal")),
            str(state["kernel"]),
        )
        new.forgotten = int(state["forgotten"])
        new.load_squares(state["squares"])
        return new

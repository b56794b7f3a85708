"""FieldMap → FieldGrid: evaluated on a lattice of a fraction of the lengthscale, splined to the cells, and only where
something changed.

A field with lengthscale ℓ has nothing between points ℓ/12 apart that a cubic spline does not follow: the mean within
0.01 stddev, and, splined as a variance (not as a stddev or a logarithm, whose valleys along the path are sharp), the
stddev within 2 %. New samples change the map within a few lengthscales: the rest is kept.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.interpolate import BSpline, make_interp_spline
from torch import Tensor

from gp_mapping.core.config import MapSettings
from gp_mapping.core.field_map import FieldMap
from gp_mapping.mapping.grid import FieldGrid, GridWindow

__all__ = ["Renderer", "spline_operator"]

_FRACTION = 12.0  # lattice points in a lengthscale
_REACH = 4.0  # lengthscales within which a sample changes the map
_HALO = 6  # lattice points beyond the window, so that the spline's ends are out of sight
_KEEP = 8  # lattice points beyond a changed region that its spline coefficients reach


def spline_operator(nodes: np.ndarray, points: np.ndarray):
    """Cubic spline interpolation from values at `nodes` (n,) to `points` (p,), as prefilter and sparse evaluation."""
    knots = make_interp_spline(nodes, np.zeros_like(nodes), k=3).t
    design = BSpline.design_matrix(points, knots, 3)

    def apply(values: np.ndarray) -> np.ndarray:  # (n, m) -> (p, m)
        return design @ make_interp_spline(nodes, values, k=3, axis=0).c

    return apply


class Renderer:
    """Keeps the lattice and the drawn grid between calls. `touch` marks where samples came in."""

    def __init__(self, settings: MapSettings):
        self.settings = settings
        self.window: GridWindow | None = None
        self._epoch: object = None
        self._touched: list[Tensor] = []
        self.cells_drawn = 0  # lattice points evaluated by the last call

    def touch(self, x: Tensor) -> None:
        """Samples at x (N, 2) metres entered the map. Bounded: many become their bounding box's corners and centre."""
        self._touched.append(x)
        if len(self._touched) > 500:
            self._touched = [torch.cat(self._touched)[::2]]
            if len(self._touched[0]) > 20000:  # nobody draws this map: forget the details, draw it all next time
                self._touched, self._epoch = [], None

    def render(self, field: FieldMap, bounds, noise_stddev: float, revision: int) -> FieldGrid:
        """The grid over `bounds` (low, high; metres) and a margin."""
        s = self.settings
        low, high = bounds
        if self.window is None or not self.window.contains(low, high, s.margin):
            # half as much again ahead: a robot that explores does not move the window at every call
            grow = 0.0 if self.window is None else 1.0
            self.window = GridWindow.around(low, high, s.resolution, s.margin + grow, s.max_grid_cells)
            self._epoch = None
        hyper = field.hyperparameters()
        length = hyper["lengthscale"]
        pitch = length / _FRACTION
        epoch = (field.epoch, self.window)
        if self._epoch != epoch:
            self._start(pitch)
            box = (0, len(self._rows), 0, len(self._columns))
            dirty = torch.ones(self._mean.shape, dtype=torch.bool)
        else:
            dirty = self._dirty(_REACH * length)
            box = self._box(dirty)
        self._epoch, self._touched = epoch, []
        if box is not None:
            self._evaluate(field, dirty)
            self._spline(box)
        known = self._stddev <= s.unknown_ratio * hyper["signal_stddev"]
        return FieldGrid(self.window.origin, self.window.resolution, torch.from_numpy(self._drawn_mean.copy()),
                         torch.from_numpy(self._stddev.copy()), torch.from_numpy(known), noise_stddev, revision)

    # --- lattice --------------------------------------------------------------------------------------------------
    def _start(self, pitch: float) -> None:
        """A fresh lattice over the window: the cells themselves where the lattice would not be coarser."""
        w = self.window
        self._xs, self._ys = (axis.numpy() for axis in w.axes())
        self._direct = pitch <= w.resolution * 1.2
        if self._direct:
            self._columns, self._rows = self._xs, self._ys
        else:
            self._columns, self._rows = (np.arange(math.floor(axis[0] / pitch) - _HALO,
                                                   math.ceil(axis[-1] / pitch) + _HALO + 1) * pitch
                                         for axis in (self._xs, self._ys))
        shape = (len(self._rows), len(self._columns))
        self._mean, self._variance = np.zeros(shape), np.zeros(shape)
        self._drawn_mean, self._stddev = np.zeros((w.height, w.width)), np.zeros((w.height, w.width))

    def _dirty(self, reach: float) -> Tensor:
        """Lattice points within reach of a touched sample: (rows, columns)."""
        near = torch.zeros(self._mean.shape, dtype=torch.bool)
        if not self._touched:
            return near
        columns, rows = torch.from_numpy(self._columns), torch.from_numpy(self._rows)
        points = torch.cat(self._touched)
        if len(points) > 64:  # one of each reach/4 square stands for the others
            points = points[torch.from_numpy(np.unique((points / (reach / 4)).round().numpy(), axis=0,
                                                       return_index=True)[1])]
        for x, y in points.tolist():
            i0, i1 = (int(torch.searchsorted(rows, y + d)) for d in (-reach, reach))
            j0, j1 = (int(torch.searchsorted(columns, x + d)) for d in (-reach, reach))
            square = (rows[i0:i1, None] - y) ** 2 + (columns[None, j0:j1] - x) ** 2
            near[i0:i1, j0:j1] |= square <= (1.1 * reach) ** 2
        return near

    @staticmethod
    def _box(dirty: Tensor):
        rows, columns = dirty.any(1).nonzero()[:, 0], dirty.any(0).nonzero()[:, 0]
        return (int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1) if len(rows) else None

    def _evaluate(self, field: FieldMap, dirty: Tensor) -> None:
        index = dirty.nonzero()
        columns, rows = torch.from_numpy(self._columns), torch.from_numpy(self._rows)
        places = torch.stack([columns[index[:, 1]], rows[index[:, 0]]], 1)
        prediction = field.predict(places)
        mask = dirty.numpy()
        self._mean[mask] = prediction.mean[:, 0].cpu().numpy()
        self._variance[mask] = prediction.variance[:, 0].cpu().numpy()
        self.cells_drawn = len(index)

    def _spline(self, box) -> None:
        """Draw the cells that the lattice box reaches."""
        if self._direct:
            self._drawn_mean[:], self._stddev[:] = self._mean, np.sqrt(self._variance)
            return
        r0, r1, c0, c1 = box
        rows = slice(max(0, r0 - 2 * _KEEP), min(len(self._rows), r1 + 2 * _KEEP))
        columns = slice(max(0, c0 - 2 * _KEEP), min(len(self._columns), c1 + 2 * _KEEP))
        i0, i1 = self._inner(self._ys, self._rows, rows)
        j0, j1 = self._inner(self._xs, self._columns, columns)
        if i0 >= i1 or j0 >= j1:
            return
        down = spline_operator(self._rows[rows], self._ys[i0:i1])
        across = spline_operator(self._columns[columns], self._xs[j0:j1])
        for source, target, root in ((self._mean, self._drawn_mean, False), (self._variance, self._stddev, True)):
            values = across(down(source[rows, columns]).T).T
            target[i0:i1, j0:j1] = np.sqrt(np.maximum(values, 0.0)) if root else values

    @staticmethod
    def _inner(cells: np.ndarray, nodes: np.ndarray, part: slice) -> tuple[int, int]:
        """Cells that lie _KEEP nodes inside a part of the lattice; at the lattice's own ends, up to the end."""
        low = nodes[part.start] if part.start == 0 else nodes[part.start + _KEEP]
        high = nodes[part.stop - 1] if part.stop == len(nodes) else nodes[part.stop - 1 - _KEEP]
        return int(np.searchsorted(cells, low)), int(np.searchsorted(cells, high, side="right"))

"""FieldMap → FieldGrid: evaluated on a lattice of a fraction of the lengthscale, splined to the cells, and only where
something changed.

A field with lengthscale ℓ has nothing between points ℓ/12 apart that a cubic spline does not follow: the mean within
0.01 stddev, and, splined as a variance (not as a stddev or a logarithm, whose valleys along the path are sharp), the
stddev within 2 % at 999 cells of 1000. New samples change the map within a few lengthscales: the rest is kept.
Of a map of several channels each is splined by itself, and the norm is made of them cell by cell; what covariances
between them add to its variance is splined, too. A probability or a rate, where that is published, is a channel of its
own beside f: what is known is decided by f.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.interpolate import BSpline, make_interp_spline
from torch import Tensor

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.drawing.channels import show
from gp_mapping.mapping.drawing.grid import FieldGrid, GridWindow
from gp_mapping.mapping.drawing.vector import excess
from gp_mapping.mapping.scoring.local_scale import LocalScale, ScaleOfGrid
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Renderer", "spline_operator"]

_FRACTION = 12.0  # lattice points in a lengthscale
_REACH = 3.0  # lengthscales within which a sample changes the map for certain
_SPOTS = 64  # points looked at in every call, to see whether the map has changed farther away
_ROUNDS = 8  # and as many again, while some of them had, this often at most
_DRIFT = 0.01  # predictive standard deviations of mean, or share of stddev, beyond which a point has changed
_HALO = 6  # lattice points beyond the window, so that the spline's ends are out of sight
_KEEP = 8  # lattice points beyond a changed region that its spline coefficients reach
_SOLVING = 0.1  # s that a drawing with a budget may go on with what a map solves ahead (FieldMap.drawable)
_WAITING = 1000  # batches of samples, at most, that have not been drawn


def spline_operator(nodes: np.ndarray, points: np.ndarray):
    """Cubic spline interpolation from values at `nodes` (n,) to `points` (p,), as prefilter and sparse evaluation."""
    knots = make_interp_spline(nodes, np.zeros_like(nodes), k=3).t
    design = BSpline.design_matrix(points, knots, 3)

    def apply(values: np.ndarray) -> np.ndarray:  # (n, m) -> (p, m)
        return design @ make_interp_spline(nodes, values, k=3, axis=0).c

    return apply


class Renderer:
    """Keeps lattice and drawn grid between calls. `touch` marks where samples came in.

    A point becomes stale with a sample within _REACH lengthscales, and when the whole map changes.
    _SPOTS points are looked at in every call: where they have drifted, their surroundings become stale too, and others
    are looked at.
    With a budget a call evaluates that many stale points, half of them nearest to the newest sample, half the ones
    that have waited longest; what was never evaluated shows the prior. A map that solves ahead is drawn as of its
    newest solution, and what came later is marked when a solution has it.
    """

    def __init__(self, settings: MapSettings):
        self.settings = settings
        self.window: GridWindow | None = None
        self._lattice: _Lattice | None = None
        self._epoch: object = None
        self._touched: list[tuple[int, Tensor]] = []
        self.points_drawn, self.points_stale = 0, 0  # by the last call; after it
        self._undrawn: tuple[int, int, int, int] | None = None  # the lattice box that was evaluated and not yet drawn
        self._scale = ScaleOfGrid()
        self._random = np.random.default_rng(settings.seed)

    def touch(self, x: Tensor, count: int = 0) -> None:
        """Samples at x (N, 2) metres entered the map, which has `count` with them."""
        self._touched.append((count, x))
        if len(self._touched) <= _WAITING:
            return
        if self._lattice is None:  # nothing is drawn yet: all of it is stale
            self._touched = self._touched[_WAITING // 2:]
            return
        # nobody has drawn for a while: mark now, keep no list
        self._lattice.mark(torch.cat([x for _, x in self._touched]), 1.5 * _REACH * self._lattice.length, 0)
        self._lattice.newest = x[-1].tolist()
        self._touched = []

    def _place(self, low, high, about) -> bool:
        """Put the window where it is wanted; whether it has moved."""
        s, old, margin = self.settings, self.window, self.settings.margin
        if old is not None and old.contains(low, high, margin) and old.width * old.height <= s.max_grid_cells:
            return False
        grow = 0.0 if old is None else 1.0  # a robot that explores shall not move the window at every call
        whole = GridWindow.within(low, high, about, s.resolution, margin + grow, s.max_grid_cells)
        if not whole.contains(low, high, margin):  # more than may be drawn: it follows the robot, in large steps
            reach = 0.25 * s.resolution * min(whole.width, whole.height)
            inside = [min(max(v, a - margin), b + margin) for v, a, b in zip(about, low, high)]
            near = [[max(v - reach, a - margin) for v, a in zip(inside, low)],
                    [min(v + reach, b + margin) for v, b in zip(inside, high)]]
            if old is not None and (old.width, old.height) == (whole.width, whole.height) and old.contains(*near, 0.0):
                return False
        moved, self.window = whole != old, whole
        return moved

    def stale_share(self, points: Tensor) -> float:
        """Of points (K, 2) m inside the window, the share whose surroundings wait to be drawn again."""
        lattice = self._lattice
        if lattice is None or not len(points):
            return 0.0
        x, y = points.numpy().T
        rows, columns = (np.searchsorted(nodes, v) for nodes, v in ((lattice.rows, y), (lattice.columns, x)))
        inside = (rows > 0) & (rows < len(lattice.rows)) & (columns > 0) & (columns < len(lattice.columns))
        return float(lattice.stale[rows[inside], columns[inside]].mean()) if inside.any() else 0.0

    @property
    def newest(self) -> int:
        """Number of samples in the map with the newest of those that no drawing has seen yet; 0 without any."""
        return max((count for count, _ in self._touched), default=0)

    def stale_since(self, revision: int, count: int) -> int:
        """What waits since that revision of the map, or longer: points, and batches of its first `count` samples."""
        unseen = sum(its <= count for its, _ in self._touched)
        lattice = self._lattice
        return unseen + (0 if lattice is None else int((lattice.stale & (lattice.since <= revision)).sum()))

    def render(self, field: FieldMap, bounds, noise_stddev: float, revision: int, budget: int | None = None,
               local: LocalScale | None = None, about=None, ground: np.ndarray | None = None) -> FieldGrid:
        """The grid over `bounds` (low, high; metres) and a margin, cut where that has more than max_grid_cells.

        budget: most lattice points to evaluate now, whatever has changed.  about: (2,) m, a place that a window shall
        hold that cannot hold all; the middle of the bounds if None.

        local: scales the variance that is shown.  ground: boxes (K, 4) m, beyond a few lengthscales of which nothing is
        asked: low x, y, high x, y.
        """
        hyper = self.advance(field, bounds, noise_stddev, revision, budget, about, ground)
        if self._undrawn is not None:
            self._lattice.draw(self._undrawn)
            self._undrawn = None
        return self._grid(noise_stddev, self.settings.unknown_ratio * hyper["signal_stddev"], revision, local)

    def advance(self, field: FieldMap, bounds, noise_stddev: float, revision: int, budget: int | None = None,
                about=None, ground: np.ndarray | None = None, oldest: bool = False) -> dict[str, float]:
        """Evaluate points as `render` does, which is still to be called to see them. The map's hyper-parameters.

        oldest: those that have waited longest, wherever they are.
        """
        hyper = field.hyperparameters()
        source, included, epoch = field, math.inf, field.epoch
        if budget is not None:
            source, included, epoch = field.drawable(_SOLVING)
        about = [0.5 * (a + b) for a, b in zip(*bounds)] if about is None else about
        length, moved, old = hyper["lengthscale"], self._place(*bounds, about), self._lattice
        if old is None or not 0.8 < length / old.length < 1.5:
            first = self._channels(field, field.prior())
            self._lattice = _Lattice(self.window, length, *(part[0].cpu().numpy() for part in (
                first.mean, first.variance)))
            moved = True
            if old is not None:
                self._lattice.take_over(old)
        elif moved:
            self._lattice = old.moved_to(self.window)
        lattice = self._lattice
        # what a map has drawn ahead is of its own epoch; of the map as it is, it says where it has changed
        changed = None if self._epoch is None or epoch != field.epoch else field.changed_since(self._epoch)
        if self._epoch != epoch:
            if changed is None:
                lattice.mark_all(revision)
            for low, high in changed or ():
                lattice.mark_box(low, high, revision)
        seen = [x for count, x in self._touched if count <= included]
        if seen:
            lattice.mark(torch.cat(seen), _REACH * length, revision)
            lattice.newest = seen[-1][-1].tolist()
            for _ in range(_ROUNDS):
                if not self._spot_check(source, noise_stddev, revision):
                    break
        self._epoch, self._touched = epoch, [(count, x) for count, x in self._touched if count > included]
        if ground is not None:
            lattice.leave_out(ground, _REACH * length)
        rows, columns = lattice.choose(budget, oldest)
        self.points_drawn = len(rows)
        if len(rows):
            places = torch.from_numpy(np.stack([lattice.columns[columns], lattice.rows[rows]], 1))
            lattice.fill(rows, columns, self._channels(field, source.predict(places)))
        if moved:
            self._undrawn = (0, len(lattice.rows), 0, len(lattice.columns))
        elif len(rows):
            box, old = (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1), self._undrawn
            self._undrawn = box if old is None else tuple(f(a, b) for f, a, b in zip((min, max, min, max), box, old))
        self.points_stale = int(lattice.stale.sum()) + len(self._touched)
        return hyper

    def _grid(self, noise_stddev: float, unknown_above: float, revision: int, local: LocalScale | None) -> FieldGrid:
        """What is drawn, copied."""
        drawn, stddev, more = self._lattice.drawn, self._lattice.stddev, self._lattice.drawn_excess  # (C, H, W), (H, W)
        if local is not None and local.tells:
            scale = self._scale.at(local, self._lattice.xs, self._lattice.ys)
            stddev, more = stddev * np.sqrt(scale), more if more is None else more * scale
        known, s = None, self.settings
        if s.observes:  # f first, then what it stands for
            latent = len(drawn) // 2
            known, drawn, stddev = stddev[0] <= unknown_above, drawn[latent:], stddev[latent:]
            drawn = np.clip(drawn, 0.0, None if s.likelihood == "poisson" else 1.0)  # a spline may swing beyond
        shown = show(drawn, np.square(stddev), s.likelihood == "softmax", 0.0 if more is None else more)
        known = shown.stddev <= unknown_above if known is None else known
        return FieldGrid(self.window.origin, self.window.resolution, torch.from_numpy(shown.mean.copy()),
                         torch.from_numpy(shown.stddev.copy()), torch.from_numpy(known), noise_stddev, revision,
                         *(None if part is None else torch.from_numpy(part.copy()) for part in shown[2:]))

    def _channels(self, field: FieldMap, p: Prediction) -> Prediction:
        """f, (K, C), and behind it in more channels what f stands for, where that is published."""
        if not self.settings.observes:
            return p
        told = field.observed(p)
        mean, variance = (torch.cat(parts, 1) for parts in ((p.mean, told.mean), (p.variance, told.variance)))
        return Prediction(mean, variance, p.noise_variance)

    def _spot_check(self, field: FieldMap, noise_stddev: float, revision: int) -> bool:
        """A few fresh points, at random: around those that have drifted, or everywhere if many have, all is stale.

        Whether some had drifted: then others may have, too.
        """
        lattice = self._lattice
        index = self._random.integers(0, lattice.stale.size, _SPOTS)
        index = index[~lattice.stale.ravel()[index]]
        if not len(index):
            return False
        rows, columns = np.unravel_index(index, lattice.stale.shape)
        places = torch.from_numpy(np.stack([lattice.columns[columns], lattice.rows[rows]], 1))
        p = field.predict(places)
        mean, variance = p.mean.mT.cpu().numpy(), p.variance.mT.cpu().numpy()  # (C, K)
        held, spread = (part[: len(mean), rows, columns] for part in (lattice.mean, lattice.variance))
        drift = np.abs(mean - held) > _DRIFT * np.sqrt(variance + noise_stddev**2)
        drift |= np.abs(np.sqrt(spread / variance) - 1.0) > _DRIFT
        drift = drift.any(0)
        if drift.mean() > 0.2:
            lattice.mark_all(revision)
        elif drift.any():
            lattice.mark(places[torch.from_numpy(drift)], lattice.length, revision)
        return bool(drift.any())


class _Lattice:
    """Points where the map is evaluated, and the cells splined from them, over one window.

    Lattice indices are whole multiples of the pitch from the map's origin, so a window that grows keeps its points.
    """

    def __init__(self, window: GridWindow, length: float, centre: np.ndarray, prior: np.ndarray):
        self.window, self.length, self.centre, self.prior = window, length, centre, prior
        self.xs, self.ys = (axis.numpy() for axis in window.axes())
        pitch = length / _FRACTION
        self.direct = pitch <= window.resolution * 1.2  # the cells themselves, where the lattice would not be coarser
        if self.direct:
            self.first = (window.bottom, window.left)
            self.rows, self.columns = self.ys, self.xs
        else:
            spans = [(math.floor(axis[0] / pitch) - _HALO, math.ceil(axis[-1] / pitch) + _HALO + 1)
                     for axis in (self.ys, self.xs)]
            self.first = (spans[0][0], spans[1][0])
            self.rows, self.columns = (np.arange(*span) * pitch for span in spans)
        shape, cells = (len(self.rows), len(self.columns)), (len(centre), window.height, window.width)
        first, spread = centre[:, None, None], prior[:, None, None]  # of each channel (C,)
        self.mean = np.broadcast_to(first, (len(centre), *shape)).copy()  # (C, rows, columns), as variance
        self.variance = np.broadcast_to(spread, self.mean.shape).copy()
        self.excess: np.ndarray | None = None  # of the norm's variance, where a map knows covariances of components
        self.drawn_excess: np.ndarray | None = None  # (H, W)
        self.stale, self.since = np.ones(shape, dtype=bool), np.zeros(shape, dtype=np.int64)
        self.drawn, self.stddev = (np.broadcast_to(v, cells).copy() for v in (first, np.sqrt(spread)))  # (C, H, W)
        self.newest = [float(self.columns.mean()), float(self.rows.mean())]

    def moved_to(self, window: GridWindow) -> "_Lattice":
        """The lattice over another window of the same resolution; points in both keep what they know."""
        new = _Lattice(window, self.length, self.centre, self.prior)
        new.newest = self.newest
        to, source = [], []
        for axis in range(2):
            low = max(self.first[axis], new.first[axis])
            high = min(self.first[axis] + self.stale.shape[axis], new.first[axis] + new.stale.shape[axis])
            to.append(slice(low - new.first[axis], max(high, low) - new.first[axis]))
            source.append(slice(low - self.first[axis], max(high, low) - self.first[axis]))
        if self.excess is not None:
            new.joined()
        for name in ("mean", "variance", "stale", "since", *(["excess"] if self.excess is not None else [])):
            getattr(new, name)[(..., *to)] = getattr(self, name)[(..., *source)]
        return new

    def take_over(self, old: "_Lattice") -> None:
        """Show what another lattice knows, nearest point by nearest point, until it is drawn anew: all stays stale."""
        if len(old.mean) != len(self.mean):
            return
        self.newest = old.newest
        near = [np.clip(np.searchsorted(its, mine - 0.5 * (its[1] - its[0])), 0, len(its) - 1) if len(its) > 1 else
                np.zeros(len(mine), dtype=int) for its, mine in ((old.rows, self.rows), (old.columns, self.columns))]
        inside = [(mine >= its[0]) & (mine <= its[-1]) for its, mine in ((old.rows, self.rows),
                                                                         (old.columns, self.columns))]
        box, source = np.ix_(*(part.nonzero()[0] for part in inside)), np.ix_(*(n[i] for n, i in zip(near, inside)))
        if old.excess is not None:
            self.joined()
            self.excess[box] = old.excess[source]
        for name in ("mean", "variance"):
            getattr(self, name)[(slice(None), *box)] = getattr(old, name)[(slice(None), *source)]

    def mark_all(self, revision: int) -> None:
        """Everything is stale."""
        self.since[~self.stale] = revision
        self.stale[:] = True

    def leave_out(self, ground: np.ndarray, reach: float) -> None:
        """Beyond reach (m) of these boxes (K, 4) nothing is stale: it stays what nobody knows."""
        near = np.zeros(self.stale.shape, dtype=bool)
        for x0, y0, x1, y1 in ground.tolist():
            rows = slice(*np.searchsorted(self.rows, (y0 - reach, y1 + reach)))
            near[rows, slice(*np.searchsorted(self.columns, (x0 - reach, x1 + reach)))] = True
        self.stale &= near

    def mark_box(self, low, high, revision: int) -> None:
        """Stale between two corners (2,) m."""
        box = tuple(slice(*np.searchsorted(nodes, (low[axis], high[axis]))) for nodes, axis in (
            (self.rows, 1), (self.columns, 0)))
        stale = self.stale[box]
        self.since[box][~stale] = revision
        stale[:] = True

    def mark(self, points: Tensor, reach: float, revision: int) -> None:
        """Stale within reach (m) of points (K, 2)."""
        if len(points) > 64:  # one of each reach/4 square stands for the others
            squares = (points / (reach / 4)).round().numpy()
            points = points[torch.from_numpy(np.unique(squares, axis=0, return_index=True)[1])]
        near = np.zeros(self.stale.shape, dtype=bool)
        for x, y in points.tolist():
            i0, i1 = np.searchsorted(self.rows, [y - 1.1 * reach, y + 1.1 * reach])
            j0, j1 = np.searchsorted(self.columns, [x - 1.1 * reach, x + 1.1 * reach])
            square = (self.rows[i0:i1, None] - y) ** 2 + (self.columns[None, j0:j1] - x) ** 2
            near[i0:i1, j0:j1] |= square <= (1.1 * reach) ** 2
        self.since[near & ~self.stale] = revision
        self.stale |= near

    def choose(self, budget: int | None, oldest: bool) -> tuple[np.ndarray, np.ndarray]:
        """Row and column indices of the stale points to evaluate now."""
        rows, columns = self.stale.nonzero()
        if budget is None or len(rows) <= budget:
            return rows, columns
        picked, near = np.zeros(len(rows), dtype=bool), 0 if oldest else budget // 2
        if near:
            away = (self.columns[columns] - self.newest[0]) ** 2 + (self.rows[rows] - self.newest[1]) ** 2
            picked[np.argpartition(away, near)[:near]] = True

        left = np.flatnonzero(~picked)
        # no two alike: among many of one value a partition takes ten times as long
        waiting = self.since[rows[left], columns[left]] * len(left) + np.arange(len(left))
        picked[left[np.argpartition(waiting, budget - near)[: budget - near]]] = True
        return rows[picked], columns[picked]

    def joined(self) -> None:
        """From now on components have covariances."""
        if self.excess is None:
            self.excess, self.drawn_excess = np.zeros(self.stale.shape), np.zeros(self.drawn.shape[1:])

    def fill(self, rows: np.ndarray, columns: np.ndarray, told: Prediction) -> None:
        """What was evaluated at points (K,); they are stale no more."""
        for target, value in ((self.mean, told.mean), (self.variance, told.variance)):
            target[:, rows, columns] = value.mT.cpu().numpy()
        if told.covariance is not None:
            self.joined()
            self.excess[rows, columns] = excess(told)
        self.stale[rows, columns] = False

    def draw(self, box) -> None:
        """Draw the cells that the lattice box (first and last row, first and last column) reaches."""
        if self.direct:
            self.drawn[:], self.stddev[:] = self.mean, np.sqrt(self.variance)
            if self.excess is not None:
                self.drawn_excess[:] = self.excess
            return
        r0, r1, c0, c1 = box
        rows = slice(max(0, r0 - 2 * _KEEP), min(len(self.rows), r1 + 2 * _KEEP))
        columns = slice(max(0, c0 - 2 * _KEEP), min(len(self.columns), c1 + 2 * _KEEP))
        i0, i1 = self._inner(self.ys, self.rows, rows)
        j0, j1 = self._inner(self.xs, self.columns, columns)
        if i0 >= i1 or j0 >= j1:
            return
        down = spline_operator(self.rows[rows], self.ys[i0:i1])
        across = spline_operator(self.columns[columns], self.xs[j0:j1])
        for channel in range(len(self.mean)):
            for source, target, root in ((self.mean, self.drawn, False), (self.variance, self.stddev, True)):
                values = across(down(source[channel, rows, columns]).T).T
                target[channel, i0:i1, j0:j1] = np.sqrt(np.maximum(values, 0.0)) if root else values
        if self.excess is not None:
            self.drawn_excess[i0:i1, j0:j1] = across(down(self.excess[rows, columns]).T).T

    @staticmethod
    def _inner(cells: np.ndarray, nodes: np.ndarray, part: slice) -> tuple[int, int]:
        """Cells that lie _KEEP nodes inside a part of the lattice; at the lattice's own ends, up to the end."""
        low = nodes[part.start] if part.start == 0 else nodes[part.start + _KEEP]
        high = nodes[part.stop - 1] if part.stop == len(nodes) else nodes[part.stop - 1 - _KEEP]
        return int(np.searchsorted(cells, low)), int(np.searchsorted(cells, high, side="right"))

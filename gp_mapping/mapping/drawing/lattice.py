"""The points where a map is evaluated to be drawn, and the cells splined from them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.device.transfers import is_synchronous
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.drawing.grid import GridWindow
from gp_mapping.mapping.drawing.splines import CardSplines, spline_operator, variance_bound
from gp_mapping.mapping.drawing.vector import excess

__all__ = ["Lattice", "flat", "points_needed"]

_FRACTION = 12.0  # lattice points in a lengthscale
# Of a kernel, signal over noise from which on more are needed, and the power of it with which they
# grow: 2/(2ν + 1) of a Matérn.
_QUIET = {
    "rbf": (22.0, 0.0),
    "matern32": (3.0, 0.5),
    "matern72": (22.0, 0.25),
    "matern92": (22.0, 0.2),
}
_QUIET_OTHERS = (22.0, 1.0 / 3.0)
_HALO = 6  # lattice points beyond the window, so that the spline's ends are out of sight
_KEEP = 12  # lattice points beyond a changed region that its spline coefficients reach
_PROCESSOR = torch.device("cpu")


def flat(values: np.ndarray) -> np.ndarray:
    """A view (…, R·K) of values (…, R, K): one number for a point is found in half the time."""
    return values.reshape(*values.shape[:-2], -1)


def points_needed(signal_stddev: float, noise_stddev: float, kernel: str) -> float:
    """Points in a lengthscale that resolve the valley of the variance along a path.

    Details of the field across a path are known as far as its spectrum on a line, k^-(2ν + 1) of a
    Matérn, exceeds the noise's. So the valley is (noise / signal)^(2 / (2ν + 1)) lengthscales wide.

    Args:
        signal_stddev: SI.
        noise_stddev: of one measurement, SI.
        kernel: as the setting.
    """
    quiet, power = _QUIET.get(kernel, _QUIET_OTHERS)
    ratio = max(signal_stddev / max(quiet * noise_stddev, 1e-300), 1.0)
    return _FRACTION * ratio**power


def _near_boxes(ys: np.ndarray, xs: np.ndarray, boxes: np.ndarray, reach: float) -> np.ndarray:
    """Which places of a grid lie within reach of any box.

    Args:
        ys: (R,) m, of its rows.
        xs: (K,) m, of its columns.
        boxes: (N, 4): lowest x and y, highest x and y, m.
        reach: m.

    Returns:
        (R, K) bool.
    """
    near = np.zeros((len(ys), len(xs)), dtype=bool)
    for x0, y0, x1, y1 in boxes.tolist():
        rows = slice(*np.searchsorted(ys, (y0 - reach, y1 + reach)))
        near[rows, slice(*np.searchsorted(xs, (x0 - reach, x1 + reach)))] = True
    return near


def _before(nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """The number of the last node at or before each cell."""
    return np.searchsorted(nodes, cells, side="right") - 1


class Lattice:
    """Points where the map is evaluated, and the cells splined from them, over one window.

    Lattice indices are whole multiples of the pitch from the map's origin, so a window that grows
    keeps its points.

    Args:
        window: cells to draw.
        length: lengthscale, m; the pitch is a fraction of it.
        centre: (C,) the prior's mean, which points show until they are evaluated.
        prior: (C,) the prior's variance, likewise.
        device: where the cells are splined, and stay: the map's.
        fraction: points in a lengthscale along an axis.

    Attributes:
        rows: (R,) y of the points, m.
        columns: (K,) x of the points, m.
        direct: whether the points are the cells themselves.
        first: numbers of the first row and column.
        mean: (C, R, K).
        variance: (C, R, K).
        excess: (R, K), what covariances of components add to the norm's variance; None without any.
        stale: (R, K) bool, points that wait to be evaluated.
        since: (R, K) revision of the map since which a point waits.
        exact: (R, K) number of the moment as of which a point is known; 0: of none.
        doubt: (R, K) estimate of a point's error as of that moment, as of DRIFT (following.py): 0
            where it was evaluated there, more where changes since were interpolated, inf where it
            was never evaluated.
        drawn: (C, H, W) mean of the cells, on the device.
        stddev: (C, H, W) of the cells, on the device.
        drawn_excess: (H, W) of the cells, as excess; on the device.
        newest: (2,) m, the newest sample.
    """

    def __init__(
        self,
        window: GridWindow,
        length: float,
        centre: np.ndarray,
        prior: np.ndarray,
        device: torch.device = _PROCESSOR,
        fraction: float = _FRACTION,
    ):
        self.window, self.length, self.centre, self.prior = window, length, centre, prior
        self.device, self.fraction = device, fraction
        self.xs, self.ys = (axis.numpy() for axis in window.axes())
        pitch = length / fraction
        # the cells themselves, where the lattice would not be coarser
        self.direct = pitch <= window.resolution * 1.2
        if self.direct:
            self.first = (window.bottom, window.left)
            self.rows, self.columns = self.ys, self.xs
        else:
            spans = [
                (math.floor(axis[0] / pitch) - _HALO, math.ceil(axis[-1] / pitch) + _HALO + 1)
                for axis in (self.ys, self.xs)
            ]
            self.first = (spans[0][0], spans[1][0])
            self.rows, self.columns = (np.arange(*span) * pitch for span in spans)

        shape, cells = (
            (len(self.rows), len(self.columns)),
            (len(centre), window.height, window.width),
        )
        first, spread = centre[:, None, None], prior[:, None, None]

        self.mean = np.broadcast_to(first, (len(centre), *shape)).copy()
        self.variance = np.broadcast_to(spread, self.mean.shape).copy()
        self.excess: np.ndarray | None = None
        self.drawn_excess: Tensor | None = None

        self.stale, self.since = np.ones(shape, dtype=bool), np.zeros(shape, dtype=np.int64)
        self.exact, self.doubt = np.zeros(shape, dtype=np.int64), np.full(shape, np.inf)

        self.drawn, self.stddev = (
            torch.from_numpy(v).to(device).expand(cells).clone() for v in (first, np.sqrt(spread))
        )
        self.newest = [float(self.columns.mean()), float(self.rows.mean())]
        # row and column indices that were asked for, and the places there (`places`)
        self._kept_places: tuple[np.ndarray, np.ndarray, Tensor] | None = None
        # the last spline along each axis, and between which nodes and cells it is
        self._splines: dict[str, tuple[tuple[int, ...], Callable]] = {}
        self._card_splines: CardSplines | None = None

    def __getstate__(self) -> dict:
        """Without the splines, whose factors cannot be pickled."""
        return self.__dict__ | {"_splines": {}, "_card_splines": None}

    @property
    def points_per_length(self) -> float:
        """Points in a lengthscale along an axis: `fraction`, or fewer where cells are coarser."""
        of_cells = self.length / self.window.resolution
        return min(self.fraction, of_cells) if self.direct else self.fraction

    def over_window(self, window: GridWindow) -> "Lattice":
        """The lattice over another window of its resolution; common points keep what they know."""
        new = Lattice(window, self.length, self.centre, self.prior, self.device, self.fraction)
        new.newest = self.newest
        to, from_ = [], []
        for axis in range(2):
            # rows, or columns, that both have; none where they lie apart
            low = max(self.first[axis], new.first[axis])
            high = min(
                self.first[axis] + self.stale.shape[axis], new.first[axis] + new.stale.shape[axis]
            )
            to.append(slice(low - new.first[axis], max(high, low) - new.first[axis]))
            from_.append(slice(low - self.first[axis], max(high, low) - self.first[axis]))

        if self.excess is not None:
            new.allocate_covariances()
        for name in (
            "mean",
            "variance",
            "stale",
            "since",
            "exact",
            "doubt",
            *(["excess"] if self.excess is not None else []),
        ):
            getattr(new, name)[(..., *to)] = getattr(self, name)[(..., *from_)]
        return new

    def copy_nearest(self, old: "Lattice") -> None:
        """Show another lattice's values, nearest point by nearest point; all stays stale."""
        if len(old.mean) != len(self.mean):
            return
        self.newest = old.newest
        # half a pitch less: searchsorted then finds the nearest node
        near = [
            np.clip(
                np.searchsorted(old_nodes, new_nodes - 0.5 * (old_nodes[1] - old_nodes[0])),
                0,
                len(old_nodes) - 1,
            )
            if len(old_nodes) > 1
            else np.zeros(len(new_nodes), dtype=int)
            for old_nodes, new_nodes in ((old.rows, self.rows), (old.columns, self.columns))
        ]
        inside = [
            (new_nodes >= old_nodes[0]) & (new_nodes <= old_nodes[-1])
            for old_nodes, new_nodes in ((old.rows, self.rows), (old.columns, self.columns))
        ]

        box, source = (
            np.ix_(*(part.nonzero()[0] for part in inside)),
            np.ix_(*(n[i] for n, i in zip(near, inside))),
        )
        if old.excess is not None:
            self.allocate_covariances()
            self.excess[box] = old.excess[source]
        for name in ("mean", "variance"):
            getattr(self, name)[(slice(None), *box)] = getattr(old, name)[(slice(None), *source)]

    def mark_all(self, revision: int) -> None:
        """Mark everything as stale since a revision."""
        self.since[~self.stale] = revision
        self.stale[:] = True

    def mark_where(self, here: np.ndarray, revision: int) -> None:
        """Mark points as stale, and as exact of no moment.

        Args:
            here: (R, K) bool, which.
            revision: of the map; points wait since then, unless they waited before.
        """
        self.since[here & ~self.stale] = revision
        self.stale |= here
        self.exact[here] = 0

    def mark_exact_stale(self, revision: int) -> None:
        """Mark all points that are exact as of a moment as stale, and of no moment."""
        followed = self.exact > 0
        self.since[followed & ~self.stale] = revision
        self.stale |= followed
        # so that each is evaluated, not followed
        self.exact[:] = 0

    def ignore_beyond(self, ground: np.ndarray, reach: float) -> None:
        """Make nothing stale that lies beyond reach of all boxes: it stays the prior.

        Args:
            ground: boxes (K, 4): lowest x and y, highest x and y, m.
            reach: how far a sample changes the map, m.
        """
        self.stale &= _near_boxes(self.rows, self.columns, ground, reach)

    def cells_within(self, ground: np.ndarray, reach: float) -> Tensor:
        """Which cells lie within reach of boxes, and see nothing of what `ignore_beyond` left out.

        Args:
            ground: as of `ignore_beyond`.
            reach: the same.

        Returns:
            (H, W) bool.
        """
        # where the prior begins the spline swings, for some points
        swing = 0.0 if self.direct else _HALO * self.length / self.fraction
        return torch.from_numpy(_near_boxes(self.ys, self.xs, ground, reach - swing))

    def mark_box(self, low, high, revision: int) -> None:
        """Mark what lies between two corners as stale, and as exact of no moment.

        Args:
            low: lower corner (2,), m.
            high: upper corner (2,), m.
            revision: of the map; points wait since then, unless they waited before.
        """
        box = tuple(
            slice(*np.searchsorted(nodes, (low[axis], high[axis])))
            for nodes, axis in ((self.rows, 1), (self.columns, 0))
        )
        stale = self.stale[box]
        self.since[box][~stale] = revision
        stale[:] = True
        self.exact[box] = 0

    def mark(self, points: Tensor, reach: float, revision: int) -> None:
        """Mark what lies within reach of points as stale.

        Args:
            points: (N, 2) m.
            reach: how far a sample changes the map, m.
            revision: of the map; points wait since then, unless they waited before.
        """
        near = self.near(points, reach)
        self.since[near & ~self.stale] = revision
        self.stale |= near

    def near(self, points: Tensor, reach: float) -> np.ndarray:
        """Which lattice points lie within reach of any of some points, or up to a tenth farther.

        Args:
            points: (N, 2) m.
            reach: m.

        Returns:
            (R, K) bool.
        """
        # the middle of a square of reach/8 stands for its points, which are 0.09 reach away
        if len(points) > 64:
            points = torch.unique((points / (reach / 8)).round(), dim=0) * (reach / 8)

        near = np.zeros(self.stale.shape, dtype=bool)
        for x, y in points.tolist():
            i0, i1 = np.searchsorted(self.rows, [y - 1.1 * reach, y + 1.1 * reach])
            j0, j1 = np.searchsorted(self.columns, [x - 1.1 * reach, x + 1.1 * reach])
            square = (self.rows[i0:i1, None] - y) ** 2 + (self.columns[None, j0:j1] - x) ** 2
            near[i0:i1, j0:j1] |= square <= (1.1 * reach) ** 2
        return near

    def places(self, rows: np.ndarray, columns: np.ndarray) -> Tensor:
        """Positions of lattice points.

        Args:
            rows: indices (K,) of their rows.
            columns: indices (K,) of their columns.

        Returns:
            (K, 2) m; the same tensor as before for the same arrays, if nobody can write to them.
        """
        kept = self._kept_places
        if kept is not None and kept[0] is rows and kept[1] is columns:
            return kept[2]
        places = torch.from_numpy(np.stack([self.columns[columns], self.rows[rows]], 1))
        if not (rows.flags.writeable or columns.flags.writeable):
            self._kept_places = rows, columns, places
        return places

    def choose(self, budget: int | None, oldest: bool) -> tuple[np.ndarray, np.ndarray]:
        """Choose the stale points to evaluate now.

        Args:
            budget: most points; None: all.
            oldest: whether all are those that have waited longest, else half of them are nearest to
                the newest sample, and of the others those come first that are the most in doubt.

        Returns:
            Row and column indices.
        """
        rows, columns = self.stale.nonzero()
        if budget is None or len(rows) <= budget:
            return rows, columns

        picked, near = np.zeros(len(rows), dtype=bool), 0 if oldest else budget // 2
        # half of the budget near the newest sample
        if near:
            square_distance = (self.columns[columns] - self.newest[0]) ** 2 + (
                self.rows[rows] - self.newest[1]
            ) ** 2
            picked[np.argpartition(square_distance, near)[:near]] = True

        others = np.flatnonzero(~picked)
        # no two alike: among many of one value a partition takes ten times as long
        waiting = self.since[rows[others], columns[others]] * len(others) + np.arange(len(others))
        doubt = self.doubt[rows[others], columns[others]]
        if not oldest and doubt.any():
            order = np.lexsort((waiting, -doubt))
            waiting = np.empty(len(others), dtype=np.int64)
            waiting[order] = np.arange(len(others))
        picked[others[np.argpartition(waiting, budget - near)[: budget - near]]] = True
        return rows[picked], columns[picked]

    def allocate_covariances(self) -> None:
        """Make room for the covariances that components have from now on."""
        if self.excess is None:
            self.excess = np.zeros(self.stale.shape)
            self.drawn_excess = torch.zeros_like(self.drawn[0])

    def fill(self, rows: np.ndarray, columns: np.ndarray, prediction: Prediction) -> None:
        """Set what was evaluated at points; they are stale no more.

        Args:
            rows: indices (K,) of their rows.
            columns: indices (K,) of their columns.
            prediction: of the channels there, (K, C).
        """
        self.fill_at(rows * self.stale.shape[1] + columns, prediction)

    def fill_at(self, at: np.ndarray, prediction: Prediction) -> None:
        """As `fill`.

        Args:
            at: numbers (K,) of the points, counted row by row (`flat`).
            prediction: of the channels there, (K, C).
        """
        for target, value in ((self.mean, prediction.mean), (self.variance, prediction.variance)):
            flat(target)[:, at] = value.mT.cpu().numpy()
        if prediction.covariance is not None:
            self.allocate_covariances()
            flat(self.excess)[at] = excess(prediction)
        flat(self.stale)[at], flat(self.doubt)[at] = False, 0.0

    def draw(self, box) -> None:
        """Draw the cells that part of the lattice reaches; on a card, which is quick at it, all.

        Args:
            box: first row, end of rows, first column, end of columns.
        """
        if self.direct or not is_synchronous(self.device):
            self._draw_all()
            return
        r0, r1, c0, c1 = box
        # a changed value reaches _KEEP points far, and the spline there as many more
        rows = slice(max(0, r0 - 2 * _KEEP), min(len(self.rows), r1 + 2 * _KEEP))
        columns = slice(max(0, c0 - 2 * _KEEP), min(len(self.columns), c1 + 2 * _KEEP))

        i0, i1 = self._inner(self.ys, self.rows, rows)
        j0, j1 = self._inner(self.xs, self.columns, columns)
        if i0 >= i1 or j0 >= j1:
            return

        # along y first, then along x: a tensor-product spline
        down = self._spline("down", self.rows, rows, self.ys, slice(i0, i1))
        across = self._spline("across", self.columns, columns, self.xs, slice(j0, j1))
        corners = np.ix_(
            _before(self.rows[rows], self.ys[i0:i1]), _before(self.columns[columns], self.xs[j0:j1])
        )
        drawn, stddev = self.drawn.numpy(), self.stddev.numpy()
        for channel in range(len(self.mean)):
            inner, part = (channel, slice(i0, i1), slice(j0, j1)), (channel, rows, columns)
            drawn[inner] = across(down(self.mean[part]).T).T
            known = self.variance[part]
            least = variance_bound(torch.from_numpy(known)).numpy()[corners]
            stddev[inner] = np.sqrt(np.maximum(across(down(known).T).T, least))
        if self.excess is not None:
            self.drawn_excess.numpy()[i0:i1, j0:j1] = across(down(self.excess[rows, columns]).T).T

    def _draw_all(self) -> None:
        """Draw all cells, on the device: from the points, or the points themselves."""
        points = [self.mean, self.variance, *([] if self.excess is None else [self.excess])]
        mean, variance, *excess_there = (
            torch.from_numpy(part).to(self.device, copy=True) for part in points
        )
        if not self.direct:
            if self._card_splines is None:
                self._card_splines = CardSplines(
                    (self.rows, self.columns), (self.ys, self.xs), self.device
                )
            spline = self._card_splines
            mean, variance = spline(mean), torch.maximum(spline(variance), spline.bound(variance))
            excess_there = [spline(part) for part in excess_there]

        self.drawn, self.stddev = mean, variance.sqrt_()
        for part in excess_there:
            self.drawn_excess = part

    def _spline(
        self, name: str, nodes: np.ndarray, some: slice, cells: np.ndarray, which: slice
    ) -> Callable:
        """The spline between some of the nodes and of the cells along an axis; the last is kept.

        Args:
            name: of the axis.
            nodes: (n,) m.
            some: which of them.
            cells: (p,) m.
            which: of them.
        """
        between = some.start, some.stop, which.start, which.stop
        kept = self._splines.get(name)
        if kept is None or kept[0] != between:
            kept = between, spline_operator(nodes[some], cells[which])
            self._splines[name] = kept
        return kept[1]

    @staticmethod
    def _inner(cells: np.ndarray, nodes: np.ndarray, part: slice) -> tuple[int, int]:
        """Cells _KEEP nodes inside a part of the lattice; up to the end at the lattice's ends."""
        low = nodes[part.start] if part.start == 0 else nodes[part.start + _KEEP]
        high = nodes[part.stop - 1] if part.stop == len(nodes) else nodes[part.stop - 1 - _KEEP]
        return int(np.searchsorted(cells, low)), int(np.searchsorted(cells, high, side="right"))

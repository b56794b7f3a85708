"""Variance of the field where the time offset δ is uncertain.

A sample that is δ late lies on the map at x − δ v. Where δ is wrong by ε, the map is shifted by
ε v̄(x), v̄ the mean velocity of the samples around x. So to first order

    m(x; δ + ε) = m(x; δ) + ε v̄(x)·∇m(x),     Var f(x) = v(x) + Var[δ] ((v̄(x) − u)·∇m(x))²

by the law of total variance. u is the velocity at which a robot passes x whose measurement is
predicted, and that is late by as much; it is 0 for the field itself. Where lanes in two directions
meet, v̄ is 0, and so is what a shift does to their mean.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from gp_mapping.core.device.transfers import to_device
from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Prediction

__all__ = ["KeptVelocity", "OffsetVariance"]

_WIDTH = 1 / 3  # lengthscales: h of the kernel exp(−d²/2h²) of samples that count for v̄
_REACH = 3.0  # h beyond which a sample does not count
_NEIGHBOURS = 16  # samples that count at a place
_FADES = float(np.exp(-2.0))  # weight of no velocity: that of a sample 2h away
_STEP = 1 / 20  # lengthscales, of a difference that stands for the slope
# of a measurement's noise variance: what is less everywhere changes no stddev by a hundredth
_LITTLE = 0.01


@dataclass(frozen=True)
class OffsetVariance:
    """What an uncertain time offset adds to the variance of a map.

    Attributes:
        field: the map.
        variance: of δ about the map's own, s².
        offset: δ of the map, s.
        length: ℓ, m.
        tree: of the places (m, 2) where remembered samples were measured.
        velocity: of these samples (m, 2), m/s.
    """

    field: FieldMap
    variance: float
    offset: float
    length: float
    tree: cKDTree
    velocity: np.ndarray

    @staticmethod
    def of(field: FieldMap, noise: float) -> OffsetVariance | None:
        """That of a map; None where δ is not learned, or known so well that it does not matter.

        Args:
            field: the map.
            noise: variance of one new measurement, SI².
        """
        learned = field.learned() if field.started else None
        if learned is None or learned.offset_variance <= 0.0:
            return None

        hyper = field.hyperparameters()
        variance = learned.offset_variance + (learned.theta.time_offset - hyper["time_offset"]) ** 2
        places, velocity = (part.cpu().numpy()[:, :2] for part in field.remembered_motion())
        if not len(places) or places.shape[1] < 2:
            return None

        # the field's slope along the path, times the speed, is what a second changes
        slope = hyper["signal_stddev"] / hyper["lengthscale"] * np.linalg.norm(velocity, axis=1)
        if variance * float(slope.max()) ** 2 < _LITTLE * noise:
            return None
        measured = places - hyper["time_offset"] * velocity
        return OffsetVariance(
            field,
            variance,
            hyper["time_offset"],
            hyper["lengthscale"],
            cKDTree(measured),
            velocity,
        )

    def velocity_at(self, x: np.ndarray) -> np.ndarray:
        """v̄ at x (N, 2) m: (N, 2) m/s, linear between the nodes of a square lattice h/2 apart.

            Σ_i K_i v_i / (K(2h) + Σ_i K_i),   K(d) = exp(−d²/2h²)

        It fades out farther than 2h from every sample.
        """
        apart = self._apart
        corner = np.floor(x / apart)
        part = x / apart - corner

        # the four nodes around each place, each node once
        shifts = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        around = (corner[:, None] + shifts).reshape(-1, 2)
        nodes, which = np.unique(around, axis=0, return_inverse=True)
        values = self.velocity_at_nodes(apart * nodes)[which.reshape(-1)].reshape(-1, 4, 2)

        weights = np.where(shifts, part[:, None], 1.0 - part[:, None]).prod(2)
        return (weights[:, :, None] * values).sum(1)

    @property
    def _apart(self) -> float:
        """Distance of the nodes of v̄, m."""
        return 0.5 * _WIDTH * self.length

    @property
    def samples(self) -> np.ndarray:
        """Place (m) and velocity (m/s) of each sample, (m, 4)."""
        return np.concatenate([self.tree.data, self.velocity], 1)

    def velocity_at_nodes(self, nodes: np.ndarray) -> np.ndarray:
        """v̄ at nodes (K, 2) m: (K, 2) m/s."""
        width = _WIDTH * self.length
        count = np.arange(1, min(_NEIGHBOURS, len(self.velocity)) + 1)
        away, index = self.tree.query(nodes, k=count, distance_upper_bound=_REACH * width)

        # 0 where there is no sample: its distance is infinite
        kernel = np.exp(-0.5 * np.square(away / width))
        along = np.append(self.velocity, np.zeros((1, 2)), 0).T
        sums = [np.einsum("kn,kn->k", kernel, part.take(index)) for part in along]
        return np.stack(sums, 1) / (_FADES + kernel.sum(1))[:, None]

    def widened(self, prediction: Prediction, x: Tensor, velocity: Tensor | None) -> Prediction:
        """A prediction with what δ adds to its variance.

        Args:
            prediction: of the map at x.
            x: (N, 2) m.
            velocity: u (N, 2) m/s, or None.
        """
        places, relative = x.cpu().numpy(), self.velocity_at(x.cpu().numpy())
        if velocity is not None:
            passing = velocity.cpu().numpy()
            places = places - self.offset * passing
            relative = np.where(np.any(relative, 1, keepdims=True), relative - passing, 0.0)

        speed = np.linalg.norm(relative, axis=1)
        moved = np.flatnonzero(speed > 0.0)
        if not len(moved):
            return prediction

        # the change of the mean for a second of δ, by a difference along the relative velocity
        step = _STEP * self.length * relative[moved] / speed[moved, None]
        ends = torch.from_numpy(np.concatenate([places[moved] + step, places[moved] - step]))
        ahead, behind = self.field.predict(ends).mean.chunk(2)
        size = torch.from_numpy(speed[moved] / (2 * _STEP * self.length)).to(ahead)
        change = torch.zeros_like(prediction.mean)
        change[torch.from_numpy(moved).to(change.device)] = (ahead - behind) * size[:, None]

        joint = prediction.covariance
        if joint is not None:
            joint = joint + self.variance * change[:, :, None] * change[:, None]
        return replace(
            prediction,
            variance=prediction.variance + self.variance * change.square(),
            covariance=joint,
        )

    def of_cells(
        self, mean: Tensor, xs: np.ndarray, ys: np.ndarray, kept: KeptVelocity | None = None
    ) -> Tensor:
        """Standard deviation of a grid's cells by δ, with the sign of the mean's change: (C, H, W).

        Args:
            mean: of the cells (C, H, W), in any unit.
            xs: (W,) m.
            ys: (H,) m.
            kept: what a drawing before has computed; None: nothing is kept.
        """
        if min(mean.shape[1:]) < 2:
            return torch.zeros_like(mean)

        kept = kept or KeptVelocity()
        (columns, across), (rows, down) = kept.around(xs, ys, self._apart)
        nodes = kept.at(self, columns, rows)
        across, down, x, y = (
            to_device(torch.from_numpy(part), mean.device)
            for part in (across, down, nodes[..., 0], nodes[..., 1])
        )
        along = _slope(mean, xs, 2).mul_(down @ x @ across.mT)
        along += _slope(mean, ys, 1).mul_(down @ y @ across.mT)
        return along.mul_(self.variance**0.5)


class KeptVelocity:
    """v̄ at the nodes of a grid, from one drawing to the next.

    It is computed anew where a sample within reach has come or gone: that of others is the same.
    """

    def __init__(self) -> None:
        # nodes along either axis, ℓ, δ; then the samples, and v̄ at the nodes (rows, columns, 2)
        self._grid: tuple[bytes, bytes, float, float] | None = None
        self._samples = np.zeros((0, 4))
        self._values = np.zeros((0, 0, 2))
        # what `around` gave last, and for which axes and distance
        self._around: tuple | None = None

    def around(self, xs: np.ndarray, ys: np.ndarray, apart: float):
        """Nodes around the two axes of a grid, and the matrices that interpolate (_between_nodes).

        Args:
            xs: (W,) m; the same array as before where the grid is the same.
            ys: (H,) m, likewise.
            apart: distance of the nodes, m.
        """
        last = self._around
        if last is None or last[0] is not xs or last[1] is not ys or last[2] != apart:
            nodes = tuple(_between_nodes(axis, apart) for axis in (xs, ys))
            self._around = last = xs, ys, apart, nodes
        return last[3]

    def at(self, of: OffsetVariance, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """v̄ at the nodes: (rows, columns, 2) m/s.

        Args:
            of: the samples, and how they count.
            columns: x of the nodes, m, ascending.
            rows: y of the nodes, m, ascending.
        """
        grid, samples = (columns.tobytes(), rows.tobytes(), of.length, of.offset), of.samples
        if grid == self._grid:
            changed = _changed(self._samples, samples)
            stale = np.zeros(self._values.shape[:2], dtype=bool)
            reach = _REACH * _WIDTH * of.length
            for x, y, *_ in changed:
                box = (
                    slice(
                        np.searchsorted(axis, v - reach), np.searchsorted(axis, v + reach, "right")
                    )
                    for axis, v in ((rows, y), (columns, x))
                )
                stale[tuple(box)] = True
        else:
            self._values = np.zeros((len(rows), len(columns), 2))
            stale = np.ones(self._values.shape[:2], dtype=bool)

        row, column = stale.nonzero()
        if len(row):
            nodes = np.stack([columns[column], rows[row]], 1)
            self._values[row, column] = of.velocity_at_nodes(nodes)
        self._grid, self._samples = grid, samples
        return self._values


def _between_nodes(axis: np.ndarray, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of a lattice around an axis (W,), K of them, and the matrix (W, K) that interpolates.

    There are no more nodes than cells: those of a coarse drawing of large ground are the nodes.

    Args:
        axis: m, ascending.
        apart: distance of the lattice's nodes, of which one is at 0, m.
    """
    if axis[-1] - axis[0] > apart * (len(axis) - 2):
        return axis, np.eye(len(axis))

    nodes = apart * np.arange(np.floor(axis[0] / apart), np.floor(axis[-1] / apart) + 2)
    return nodes, np.stack([np.interp(axis, nodes, one) for one in np.eye(len(nodes))], 1)


def _changed(before: np.ndarray, after: np.ndarray) -> list[tuple[float, ...]]:
    """Rows of which there are more, or fewer, in one table than in another; each one once.

    Args:
        before: (m, n).
        after: (m', n); mostly the same rows in the same order.
    """
    # what both begin with, and what both end with, has not changed
    least = min(len(before), len(after))
    first = _equal_rows(before[:least], after[:least])
    last = _equal_rows(before[::-1][: least - first], after[::-1][: least - first])
    counts = [
        Counter(map(tuple, rows[first : len(rows) - last].tolist())) for rows in (before, after)
    ]
    return list((counts[0] - counts[1]) + (counts[1] - counts[0]))


def _equal_rows(one: np.ndarray, other: np.ndarray) -> int:
    """Number of rows (m, n) that two tables have in common before the first that differs."""
    differ = np.flatnonzero((one != other).any(1))
    return int(differ[0]) if len(differ) else len(one)


def _slope(values: Tensor, places: np.ndarray, axis: int) -> Tensor:
    """Slope of values along an axis by differences of fourth order, of second near its ends.

    Args:
        values: (C, H, W).
        places: of the cells along the axis, equally far apart, m.
        axis: of `values`.
    """
    apart = float(places[-1] - places[0]) / (len(places) - 1)
    if len(places) < 5:
        return torch.gradient(values, spacing=apart, dim=axis)[0]

    slope = torch.empty_like(values)
    moved, inner = values.movedim(axis, 0), slope.movedim(axis, 0)

    # to one side at the ends, to both sides next to them
    inner[0], inner[-1] = (moved[1] - moved[0]) / apart, (moved[-1] - moved[-2]) / apart
    inner[1] = (moved[2] - moved[0]) / (2.0 * apart)
    inner[-2] = (moved[-1] - moved[-3]) / (2.0 * apart)

    middle = inner[2:-2]
    torch.sub(moved[3:-1], moved[1:-3], out=middle)
    middle *= 8.0
    middle -= moved[4:]
    middle += moved[:-4]
    middle *= 1.0 / (12.0 * apart)
    return slope

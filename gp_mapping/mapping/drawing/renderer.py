"""FieldMap → FieldGrid: evaluated on a lattice, splined to the cells, and kept up to date.

The lattice has a fraction of the lengthscale as its pitch. After a first drawing its points are
brought up to date by what samples have changed, or evaluated again only where something did.

A field with lengthscale ℓ has little between points ℓ/12 apart that a quintic spline does not
follow: the mean within 0.01 predictive sd, and, splined as a variance (not as a stddev or a
logarithm, whose valleys along the path are sharp), the stddev within 2 % at 999 cells of 1000, and
within 6 % at all. The valley of the variance along the path of a quiet sensor is narrower: there
are more points (lattice.points_needed), at most the cells themselves.

Of a map of several channels each is splined by itself, and the norm is made of them cell by cell;
what covariances between them add to its variance is splined, too. A probability or a rate, where
that is published, is a channel of its own next to f: f decides what is known.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.device.transfers import to_device, to_processor
from gp_mapping.core.field_map import FieldMap, Snapshot
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.drawing.channels import show
from gp_mapping.mapping.drawing.following import DRIFT, Follower
from gp_mapping.mapping.drawing.grid import FieldGrid, GridWindow
from gp_mapping.mapping.drawing.lattice import Lattice, points_needed
from gp_mapping.mapping.drawing.vector import excess_of
from gp_mapping.mapping.scoring.local_scale import LocalScale, ScaleOfGrid
from gp_mapping.mapping.scoring.offset_variance import KeptVelocity, OffsetVariance
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Renderer"]

_REACH = 3.0  # lengthscales within which a sample changes the map for certain
_SPOTS = 64  # points looked at in every call, to see whether the map has changed farther away
_ROUNDS = 8  # and as many again, while some of them had, this often at most
_SOLVING = 0.1  # s that a drawing with a budget may spend on a map's solving ahead (drawable)
_WAITING = 1000  # batches of samples, at most, that have not been drawn
_PLACES = 20000  # places of those of them that are kept as one; beyond, they are everywhere


class Renderer:
    """Keeps lattice and drawn grid between calls. `touch` marks where samples came in.

    A point becomes stale with a sample within _REACH lengthscales, and when the whole map changes.
    _SPOTS points are looked at in every call: where they have drifted, their surroundings become
    stale too, and others are looked at.

    The value of a point now, exactly, is its value at the last call and what samples have changed
    since, which a map may compute for a fraction of the work (FieldMap.since, following.py); else
    it is evaluated anew.

    With a budget a call evaluates that many stale points, half of them nearest to the newest
    sample, half those that have waited longest; what was never evaluated shows the prior. A map
    that solves ahead is drawn as of its newest solution, and what came later is marked when a
    solution has it.

    Attributes:
        window: cells of the drawing; None before the first.
        points_drawn: points that the map was evaluated at in the last call.
        points_stale: points, and batches of samples, that wait after it.
    """

    def __init__(self, settings: MapSettings):
        self.settings = settings
        self.window: GridWindow | None = None
        self._lattice: Lattice | None = None
        self._epoch: object = None  # of the map, when it was drawn last
        # batches that no drawing has seen: number of samples in the map with them, positions; no
        # position stands for everywhere
        self._touched: list[tuple[int, Tensor]] = []
        self.points_drawn, self.points_stale = 0, 0
        # the lattice box that was evaluated and not yet drawn
        self._undrawn: tuple[int, int, int, int] | None = None
        self._channels = partial(_channels, settings.observes)
        self._follower = Follower(self._channels)  # a method would hold the renderer in a circle
        self._scale, self._velocity = ScaleOfGrid(), KeptVelocity()
        self._random = np.random.default_rng(settings.seed)

    def touch(self, x: Tensor, count: int = 0) -> None:
        """Note that samples entered the map.

        Args:
            x: (N, 2) metres.
            count: number of samples in the map with them.
        """
        if not x.shape[0]:
            return
        self._touched.append((count, x))

        # no drawing for a while: the older half becomes one batch, of a place in each cell of the
        # grid. None is forgotten: the solution that is drawn next may not have them yet
        if len(self._touched) > _WAITING:
            counts, parts = zip(*self._touched[: _WAITING // 2])
            places = torch.cat(parts)
            if all(map(len, parts)):
                cells = np.floor(places.numpy() / self.settings.resolution)
                first = np.sort(np.unique(cells, axis=0, return_index=True)[1])
                places = places[torch.from_numpy(first)]
            else:
                places = places[:0]
            places = places if len(places) <= _PLACES else places[:0]
            self._touched[: _WAITING // 2] = [(max(counts), places)]

    def _place(self, low, high, about) -> bool:
        """Choose the window; return whether it has moved."""
        s, old, margin = self.settings, self.window, self.settings.margin
        if (
            old is not None
            and old.contains(low, high, margin)
            and old.width * old.height <= s.max_grid_cells
        ):
            return False

        # room to grow: a robot that explores shall not move the window at every call
        grow = 0.0 if old is None else 1.0
        whole = GridWindow.within(low, high, about, s.resolution, margin + grow, s.max_grid_cells)

        # more than may be drawn: it follows the robot, in large steps
        if not whole.contains(low, high, margin):
            # a quarter of the shorter side, within which the robot moves before the window does
            reach = 0.25 * s.resolution * min(whole.width, whole.height)
            inside = [min(max(v, a - margin), b + margin) for v, a, b in zip(about, low, high)]
            surroundings = [
                [max(v - reach, a - margin) for v, a in zip(inside, low)],
                [min(v + reach, b + margin) for v, b in zip(inside, high)],
            ]
            if (
                old is not None
                and (old.width, old.height) == (whole.width, whole.height)
                and old.contains(*surroundings, 0.0)
            ):
                return False

        moved, self.window = whole != old, whole
        return moved

    def stale_share(self, points: Tensor) -> float:
        """Of points inside the window, the fraction whose surroundings wait to be drawn again.

        Args:
            points: (K, 2) m.
        """
        lattice = self._lattice
        if lattice is None or not len(points):
            return 0.0
        x, y = points.numpy().T
        rows, columns = (
            np.searchsorted(nodes, v) for nodes, v in ((lattice.rows, y), (lattice.columns, x))
        )

        # points with lattice points on both sides
        inside = (
            (rows > 0)
            & (rows < len(lattice.rows))
            & (columns > 0)
            & (columns < len(lattice.columns))
        )
        return float(lattice.stale[rows[inside], columns[inside]].mean()) if inside.any() else 0.0

    @property
    def newest(self) -> int:
        """Samples in the map with the newest batch that no drawing has seen; 0 without any."""
        return max((count for count, _ in self._touched), default=0)

    def stale_since(self, revision: int, count: int) -> int:
        """Number of points that wait since a revision of the map, or longer, and of unseen batches.

        Args:
            revision: of the map.
            count: batches count that are among the first `count` samples of the map.
        """
        unseen = sum(batch_count <= count for batch_count, _ in self._touched)
        lattice = self._lattice
        return unseen + (
            0 if lattice is None else int((lattice.stale & (lattice.since <= revision)).sum())
        )

    def render(
        self,
        field: FieldMap,
        bounds,
        noise_stddev: float,
        revision: int,
        budget: int | None = None,
        local: LocalScale | None = None,
        about=None,
        ground: np.ndarray | None = None,
        slow: ResponseVariance | None = None,
    ) -> FieldGrid:
        """Draw the grid over the bounds and a margin, cut where it has more than max_grid_cells.

        Args:
            field: the map.
            bounds: corners (low, high), m.
            noise_stddev: of one new measurement, SI.
            revision: of the map.
            budget: most lattice points to evaluate now, whatever has changed; None: all.
            local: scales the variance that is shown.
            about: (2,) m, a place that a window shall hold that cannot hold all; the middle of the
                bounds if None.
            ground: boxes (K, 4) m, low x, y, high x, y; more than _REACH lengthscales outside of
                them nothing is evaluated, and all is unknown.
            slow: what the time constant of a slow sensor adds to the variance.
        """
        hyper = self.advance(field, bounds, noise_stddev, revision, budget, about, ground)

        if self._undrawn is not None:
            self._lattice.draw(self._undrawn)
            self._undrawn = None
        grid = self._grid(
            noise_stddev,
            self.settings.unknown_ratio * hyper["signal_stddev"],
            revision,
            local,
            OffsetVariance.of(field, noise_stddev**2) if self.settings.metric else None,
            slow,
        )
        if ground is None:
            return grid
        within = self._lattice.cells_within(ground, _REACH * hyper["lengthscale"])
        return replace(grid, known=grid.known & within)

    def advance(
        self,
        field: FieldMap,
        bounds,
        noise_stddev: float,
        revision: int,
        budget: int | None = None,
        about=None,
        ground: np.ndarray | None = None,
        oldest: bool = False,
    ) -> dict[str, float]:
        """Evaluate points as `render` does, which is still to be called to draw them.

        Args:
            field: the map.
            bounds: as of `render`, and the others.
            noise_stddev: SI.
            revision: of the map.
            budget: most lattice points to evaluate now.
            about: (2,) m.
            ground: boxes (K, 4) m.
            oldest: evaluate those that have waited longest, wherever they are.

        Returns:
            The map's hyper-parameters.
        """
        hyper = field.hyperparameters()
        source, included, epoch = field, math.inf, field.epoch
        if budget is not None:
            source, included, epoch = field.drawable(_SOLVING)

        about = [0.5 * (a + b) for a, b in zip(*bounds)] if about is None else about
        moved = self._prepare_lattice(
            field,
            self._place(*bounds, about),
            hyper["lengthscale"],
            points_needed(hyper["signal_stddev"], noise_stddev, self.settings.kernel),
        )
        lattice, changed = self._lattice, self._epoch not in (None, epoch)
        reach = _REACH * hyper["lengthscale"]
        seen = self._mark_changes(field, epoch, included, reach, revision)

        # cheap first: what samples have changed; then spots, then the points that are still stale
        work = 0.0
        if ground is not None:
            lattice.ignore_beyond(ground, reach)
        if source is field:
            x = torch.cat(seen) if seen else torch.zeros((0, 2))
            work = self._follower.follow(lattice, field, revision, noise_stddev, budget, x)
            if changed:  # all of the map: what was not followed is evaluated
                lattice.mark_where(~self._follower.knows_now(lattice, field), revision)
        # with a budget all is followed, or has an estimate of its error
        followed = self._follower.knows_now(lattice, field) if source is field else None
        for _ in range(_ROUNDS if seen and (not work or budget is None) else 0):
            if not self._spot_check(source, followed, noise_stddev, revision):
                break

        self._epoch, self._touched = (
            epoch,
            [(count, x) for count, x in self._touched if count > included],
        )
        if ground is not None:
            lattice.ignore_beyond(ground, reach)

        chosen = lattice.choose(None if budget is None else max(0, budget - int(work)), oldest)
        self.points_drawn = len(chosen[0])
        if len(chosen[0]):
            lattice.fill(*chosen, self._channels(field, source.predict(lattice.places(*chosen))))
            number = self._follower.number(lattice, field) if source is field else 0
            lattice.exact[chosen] = number

        self._note_undrawn(*chosen, everywhere=bool(moved or work))
        self.points_stale = int(lattice.stale.sum()) + len(self._touched)
        return hyper

    def _prepare_lattice(
        self, field: FieldMap, moved: bool, length: float, fraction: float
    ) -> bool:
        """Have a lattice over the window, with a pitch that suits the lengthscale and the noise.

        Args:
            field: the map.
            moved: whether the window is another one.
            length: lengthscale, m.
            fraction: lattice points in it.

        Returns:
            Whether all of the window is to be drawn anew.
        """
        old = self._lattice
        # no finer than the cells; else another θ needs another pitch: a coarse lattice loses the
        # field, a fine one time
        fraction = min(fraction, length / self.window.resolution)
        wanted = length / fraction
        if old is None or not 0.9 < wanted / (old.length / old.fraction) < 1.5:
            prior = self._channels(field, field.prior())
            self._lattice = Lattice(
                self.window,
                length,
                *(part[0].cpu().numpy() for part in (prior.mean, prior.variance)),
                device=prior.mean.device,
                fraction=fraction,
            )
            if old is not None:
                self._lattice.copy_nearest(old)
            return True

        if old.direct:  # its points stay where they are, whatever the lengthscale
            old.fraction *= length / old.length
            old.length = length
        if moved:
            self._lattice = old.over_window(self.window)
        return moved

    def _mark_changes(
        self, field: FieldMap, epoch: int, included: float, reach: float, revision: int
    ) -> list[Tensor]:
        """Mark the points where the map has changed, by itself or by samples.

        Args:
            field: the map.
            epoch: of the solution that is drawn.
            included: samples in it, counted as in `_touched`.
            reach: of a sample, m.
            revision: of the map.

        Returns:
            Places of the samples that are new in it.
        """
        lattice = self._lattice
        if self._epoch != epoch:
            # a solution made ahead has its own epoch; only the map itself knows where it changed
            known = self._epoch is not None and epoch == field.epoch
            changed = field.changed_since(self._epoch) if known else None
            if changed is None:
                lattice.mark_all(revision)
                lattice.exact[:] = 0  # no change is known since any moment
            for low, high in changed or ():
                lattice.mark_box(low, high, revision)

        seen = [x for count, x in self._touched if count <= included]
        if seen:
            lattice.mark(torch.cat(seen), reach, revision)
            if not all(map(len, seen)):
                lattice.mark_all(revision)
            if len(seen[-1]):
                lattice.newest = seen[-1][-1].tolist()
        return seen

    def _note_undrawn(self, rows: np.ndarray, columns: np.ndarray, everywhere: bool) -> None:
        """Note what is to be drawn: the box of all points evaluated since the last drawing.

        Args:
            rows: of points that were evaluated now.
            columns: of the same points.
            everywhere: all is: of a new window, and where points were followed.
        """
        if everywhere:
            self._undrawn = (0, len(self._lattice.rows), 0, len(self._lattice.columns))
        elif len(rows):
            box, old = (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1), self._undrawn
            self._undrawn = (
                box
                if old is None
                else tuple(f(a, b) for f, a, b in zip((min, max, min, max), box, old))
            )

    def _grid(
        self,
        noise_stddev: float,
        unknown_above: float,
        revision: int,
        local: LocalScale | None,
        shift: OffsetVariance | None,
        slow: ResponseVariance | None,
    ) -> FieldGrid:
        """Copy what is drawn into a grid.

        Args:
            noise_stddev: SI.
            unknown_above: stddev beyond which a cell is unknown, SI.
            revision: of the map.
            local: scales the variance.
            shift: what an uncertain time offset adds to it.
            slow: what an uncertain time constant adds to it.
        """
        xs, ys = self._lattice.xs, self._lattice.ys
        # the lattice's own cells change in place when they are drawn again
        drawn, norm_excess = self._lattice.drawn.clone(), self._lattice.drawn_excess
        variance = self._lattice.stddev.square()

        def there(cells: np.ndarray) -> Tensor:
            """On the device where the cells are."""
            return to_device(torch.from_numpy(cells), drawn.device)

        if local is not None and local.is_active:
            scale = there(self._scale.scale_of_cells(local, xs, ys))
            variance *= scale
            norm_excess = norm_excess if norm_excess is None else norm_excess * scale

        if shift is not None:
            by_offset = shift.of_cells(drawn, xs, ys, self._velocity)
            if len(drawn) > 1:
                before = 0.0 if norm_excess is None else norm_excess
                norm_excess = before + excess_of(drawn, by_offset)
            variance += by_offset.square_()

        if slow is not None and slow.is_active:
            variance += there(slow.stddev_of_cells(xs, ys)).square_()

        known, s = None, self.settings
        if not s.metric:  # f is known where all of its channels are
            latent = len(drawn) // 2 if s.observes else len(drawn)
            known = variance[:latent].amax(0).sqrt() <= unknown_above
        if s.observes:  # channels: f first, then what it stands for
            drawn, variance = drawn[latent:], variance[latent:]
            # a spline may swing beyond the range of probabilities and rates
            drawn = drawn.clamp(0.0, None if s.likelihood == "poisson" else 1.0)

        shown = show(
            drawn,
            variance,
            s.of_classes,
            0.0 if norm_excess is None else norm_excess,
        )
        known = shown.stddev <= unknown_above if known is None else known

        mean, stddev, *rest = to_processor((*shown[:2], known, *shown[2:]))
        return FieldGrid(
            self.window.origin,
            self.window.resolution,
            mean,
            stddev,
            rest[0],
            noise_stddev,
            revision,
            *rest[1:],
        )

    def _spot_check(
        self,
        field: Snapshot | FieldMap,
        followed: np.ndarray | None,
        noise_stddev: float,
        revision: int,
    ) -> bool:
        """Look at a few fresh points, at random, for drift since they were evaluated.

        Around those that have drifted all becomes stale, or everywhere if many have.

        Args:
            field: the map, or its solution.
            followed: (R, K) bool, points that need no look, or None.
            noise_stddev: SI.
            revision: of the map.

        Returns:
            Whether some had drifted: then others may have, too.
        """
        lattice = self._lattice
        index = self._random.integers(0, lattice.stale.size, _SPOTS)
        # points that wait show no drift; those that are followed are looked at there
        seen = lattice.stale if followed is None else lattice.stale | followed
        index = index[~seen.ravel()[index]]

        if not len(index):
            return False
        rows, columns = np.unravel_index(index, lattice.stale.shape)
        places = lattice.places(rows, columns)

        prediction = field.predict(places)
        mean, variance = prediction.mean.mT.cpu().numpy(), prediction.variance.mT.cpu().numpy()
        held, spread = (
            part[: len(mean), rows, columns] for part in (lattice.mean, lattice.variance)
        )

        drift = np.abs(mean - held) > DRIFT * np.sqrt(variance + noise_stddev**2)
        # the stddev, too, within a percent of itself
        drift |= np.abs(np.sqrt(spread / variance) - 1.0) > DRIFT
        drift = drift.any(0)

        # many at once: the whole map has changed, and not around these alone
        if drift.mean() > 0.2:
            lattice.mark_all(revision)
        elif drift.any():
            lattice.mark(places[torch.from_numpy(drift)], lattice.length, revision)
        return bool(drift.any())


def _channels(observes: bool, field: FieldMap, p: Prediction) -> Prediction:
    """f (K, C), and after it, in more channels, what f stands for where that is published.

    Args:
        observes: whether it is.
        field: the map.
        p: of f; where the map is or in the processor's memory.
    """
    if not observes:
        return p
    there = field.noise_variance().device
    mean, variance = (to_device(part, there) for part in (p.mean, p.variance))
    p = Prediction(mean, variance, p.noise_variance)
    observed = field.observed(p)
    mean, variance = (
        torch.cat(parts, 1) for parts in ((p.mean, observed.mean), (p.variance, observed.variance))
    )
    return Prediction(mean, variance, p.noise_variance)

"""FieldMap → FieldGrid: evaluated on a lattice of a fraction of the lengthscale, splined to the cells, and from then on
brought up to date by what samples have changed, or evaluated again only where something did.

A field with lengthscale ℓ has nothing between points ℓ/12 apart that a cubic spline does not follow: the mean within
0.01 stddev, and, splined as a variance (not as a stddev or a logarithm, whose valleys along the path are sharp), the
stddev within 2 % at 999 cells of 1000.
Of a map of several channels each is splined by itself, and the norm is made of them cell by cell; what covariances
between them add to its variance is splined, too. A probability or a rate, where that is published, is a channel of its
own beside f: what is known is decided by f.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap, Snapshot
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.drawing.channels import show
from gp_mapping.mapping.drawing.grid import FieldGrid, GridWindow
from gp_mapping.mapping.drawing.lattice import Lattice
from gp_mapping.mapping.scoring.local_scale import LocalScale, ScaleOfGrid
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Renderer"]

_REACH = 3.0  # lengthscales within which a sample changes the map for certain
_SPOTS = 64  # points looked at in every call, to see whether the map has changed farther away
_ROUNDS = 8  # and as many again, while some of them had, this often at most
_DRIFT = 0.01  # predictive standard deviations of mean, or share of stddev, beyond which a point has changed
_CHEAP = 6  # points that get what has changed for the price of one that is evaluated
_MOMENTS = 4  # of the map, that are kept for points that waited
_RENEWED = 1000  # moments for which points are followed; then they are evaluated again
_WORTH = 256  # points from which on it pays to find what has changed
_SOLVING = (
    0.1  # s that a drawing with a budget may go on with what a map solves ahead (FieldMap.drawable)
)
_WAITING = 1000  # batches of samples, at most, that have not been drawn


class Renderer:
    """Keeps lattice and drawn grid between calls. `touch` marks where samples came in.

    A point becomes stale with a sample within _REACH lengthscales, and when the whole map changes.
    _SPOTS points are looked at in every call: where they have drifted, their surroundings become stale too, and others
    are looked at.
    What a point is worth now, exactly, is what it was worth at the last call and what samples have changed since, which
    a map may tell for a fraction of the work (FieldMap.since); else it is asked anew.
    With a budget a call evaluates that many stale points, half of them nearest to the newest sample, half the ones
    that have waited longest; what was never evaluated shows the prior. A map that solves ahead is drawn as of its
    newest solution, and what came later is marked when a solution has it.
    """

    def __init__(self, settings: MapSettings):
        self.settings = settings
        self.window: GridWindow | None = None
        self._lattice: Lattice | None = None
        self._epoch: object = None
        self._touched: list[tuple[int, Tensor]] = []
        self.points_drawn, self.points_stale = (
            0,
            0,
        )  # that the map was asked for in the last call; after it
        self._undrawn: tuple[int, int, int, int] | None = (
            None  # the lattice box that was evaluated and not yet drawn
        )
        self._moments: dict[
            int, object
        ] = {}  # of the map, the newest, as of which points are exact
        self._newest_moment = self._renewed = 0
        self._scale = ScaleOfGrid()
        self._random = np.random.default_rng(settings.seed)

    def touch(self, x: Tensor, count: int = 0) -> None:
        """Samples at x (N, 2) metres entered the map, which has `count` with them."""
        self._touched.append((count, x))
        if len(self._touched) <= _WAITING:
            return
        if self._lattice is None:  # nothing is drawn yet: all of it is stale
            self._touched = self._touched[_WAITING // 2 :]
            return
        # nobody has drawn for a while: mark now, keep no list
        self._lattice.mark(
            torch.cat([x for _, x in self._touched]), 1.5 * _REACH * self._lattice.length, 0
        )
        self._lattice.newest = x[-1].tolist()
        self._touched = []

    def _place(self, low, high, about) -> bool:
        """Put the window where it is wanted; whether it has moved."""
        s, old, margin = self.settings, self.window, self.settings.margin
        if (
            old is not None
            and old.contains(low, high, margin)
            and old.width * old.height <= s.max_grid_cells
        ):
            return False
        grow = (
            0.0 if old is None else 1.0
        )  # a robot that explores shall not move the window at every call
        whole = GridWindow.within(low, high, about, s.resolution, margin + grow, s.max_grid_cells)
        if not whole.contains(
            low, high, margin
        ):  # more than may be drawn: it follows the robot, in large steps
            reach = 0.25 * s.resolution * min(whole.width, whole.height)
            inside = [min(max(v, a - margin), b + margin) for v, a, b in zip(about, low, high)]
            near = [
                [max(v - reach, a - margin) for v, a in zip(inside, low)],
                [min(v + reach, b + margin) for v, b in zip(inside, high)],
            ]
            if (
                old is not None
                and (old.width, old.height) == (whole.width, whole.height)
                and old.contains(*near, 0.0)
            ):
                return False
        moved, self.window = whole != old, whole
        return moved

    def stale_share(self, points: Tensor) -> float:
        """Of points (K, 2) m inside the window, the share whose surroundings wait to be drawn again."""
        lattice = self._lattice
        if lattice is None or not len(points):
            return 0.0
        x, y = points.numpy().T
        rows, columns = (
            np.searchsorted(nodes, v) for nodes, v in ((lattice.rows, y), (lattice.columns, x))
        )
        inside = (
            (rows > 0)
            & (rows < len(lattice.rows))
            & (columns > 0)
            & (columns < len(lattice.columns))
        )
        return float(lattice.stale[rows[inside], columns[inside]].mean()) if inside.any() else 0.0

    @property
    def newest(self) -> int:
        """Number of samples in the map with the newest of those that no drawing has seen yet; 0 without any."""
        return max((count for count, _ in self._touched), default=0)

    def stale_since(self, revision: int, count: int) -> int:
        """What waits since that revision of the map, or longer: points, and batches of its first `count` samples."""
        unseen = sum(its <= count for its, _ in self._touched)
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
    ) -> FieldGrid:
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
        return self._grid(
            noise_stddev, self.settings.unknown_ratio * hyper["signal_stddev"], revision, local
        )

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
            self._lattice = Lattice(
                self.window,
                length,
                *(part[0].cpu().numpy() for part in (first.mean, first.variance)),
            )
            moved = True
            if old is not None:
                self._lattice.take_over(old)
        elif moved:
            self._lattice = old.moved_to(self.window)
        lattice = self._lattice
        # what a map has drawn ahead is of its own epoch; of the map as it is, it says where it has changed
        changed = (
            None
            if self._epoch is None or epoch != field.epoch
            else field.changed_since(self._epoch)
        )
        if self._epoch != epoch:
            if changed is None:
                lattice.mark_all(revision)
            for low, high in changed or ():
                lattice.mark_box(low, high, revision)
        seen = [x for count, x in self._touched if count <= included]
        if seen:
            lattice.mark(torch.cat(seen), _REACH * length, revision)
            lattice.newest = seen[-1][-1].tolist()
        done = self._follow(field, revision, budget, oldest) if source is field else []
        now = self._moment_now(field) if done else 0
        for _ in range(_ROUNDS if seen else 0):
            if not self._spot_check(source, now, noise_stddev, revision):
                break
        self._epoch, self._touched = (
            epoch,
            [(count, x) for count, x in self._touched if count > included],
        )
        if ground is not None:
            lattice.leave_out(ground, _REACH * length)
        left = None if budget is None else budget - sum(len(rows) for rows, _ in done) // _CHEAP
        rest = lattice.choose(left, oldest)
        self.points_drawn = len(rest[0])
        if len(rest[0]):
            lattice.fill(*rest, self._channels(field, source.predict(lattice.places(*rest))))
            lattice.exact[rest] = self._number_of(field) if source is field else 0
        rows, columns = (np.concatenate(parts) for parts in zip(rest, *done))
        if moved:
            self._undrawn = (0, len(lattice.rows), 0, len(lattice.columns))
        elif len(rows):
            box, old = (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1), self._undrawn
            self._undrawn = (
                box
                if old is None
                else tuple(f(a, b) for f, a, b in zip((min, max, min, max), box, old))
            )
        self.points_stale = int(lattice.stale.sum()) + len(self._touched)
        return hyper

    def _follow(
        self, field: FieldMap, revision: int, budget: int | None, oldest: bool
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Bring points that are exact as of a moment that is kept up to now; which (rows and columns), part by part.

        All of them where the budget allows it, for a sample changes a little of everything; else such that are stale,
        and all as of a moment that the next one would take the place of.
        """
        lattice, done = self._lattice, []
        if not self._moments or lattice.excess is not None:
            return done
        if (
            self._newest_moment - self._renewed >= _RENEWED
        ):  # what increments round off shall not add up for ever
            lattice.mark_followed(revision)
            self._moments, self._renewed = {}, self._newest_moment
            return done
        most = None if budget is None else budget * (_CHEAP - 1)
        oldest_kept = min(self._moments)
        behind = (lattice.exact >= oldest_kept) & (lattice.exact != self._moment_now(field))
        if most is not None and np.count_nonzero(behind) > most:
            behind &= lattice.stale | (
                (lattice.exact == oldest_kept) & (len(self._moments) == _MOMENTS)
            )
        rows, columns = lattice.choose(most, oldest, behind)
        numbers = lattice.exact[rows, columns]
        for number, count in zip(*np.unique(numbers, return_counts=True)):
            if count >= _WORTH:
                done.append(
                    self._follow_since(
                        field,
                        self._moments[number],
                        rows[numbers == number],
                        columns[numbers == number],
                    )
                )
        if any(len(some[0]) for some in done):
            lattice.stale[rows, columns] = (
                True  # here and there a map must be asked: where many samples have come
            )
            number = self._number_of(field)
            for some in done:
                lattice.exact[some], lattice.stale[some] = number, False
        return done

    def _moment_now(self, field: FieldMap) -> int:
        """Number of the newest moment that is kept, where nothing has changed since; else 0."""
        moment = field.moment()
        return (
            self._newest_moment
            if moment is not None and self._moments.get(self._newest_moment) == moment
            else 0
        )

    def _number_of(self, field: FieldMap) -> int:
        """Of this moment, which is kept with a few before it; 0 where the map has none."""
        if self._lattice.excess is not None or field.moment() is None:
            return 0
        if not self._moment_now(field):
            self._newest_moment += 1
            self._moments[self._newest_moment] = field.moment()
            self._moments.pop(self._newest_moment - _MOMENTS, None)
        return self._newest_moment

    def _follow_since(
        self, field: FieldMap, moment: object, rows: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of points (K,) that are exact as of a moment, those of which what has changed since is known: they get it."""
        lattice, increments = self._lattice, field.since(moment)
        if increments is None:
            return rows[:0], columns[:0]
        mean, variance, known = increments(lattice.places(rows, columns))
        which = known.cpu().numpy()
        rows, columns = rows[which], columns[which]
        if len(rows):
            held = (
                torch.from_numpy(part[: field.channels, rows, columns]).mT.to(mean)
                for part in (lattice.mean, lattice.variance)
            )
            mean, variance = (a + b[known] for a, b in zip(held, (mean, variance)))
            lattice.fill(
                rows,
                columns,
                self._channels(
                    field, Prediction(mean, variance.clamp_min(0.0), field.noise_variance())
                ),
            )
        return rows, columns

    def _grid(
        self, noise_stddev: float, unknown_above: float, revision: int, local: LocalScale | None
    ) -> FieldGrid:
        """What is drawn, copied."""
        drawn, stddev, more = (
            self._lattice.drawn,
            self._lattice.stddev,
            self._lattice.drawn_excess,
        )  # (C, H, W), (H, W)
        if local is not None and local.tells:
            scale = self._scale.at(local, self._lattice.xs, self._lattice.ys)
            stddev, more = stddev * np.sqrt(scale), more if more is None else more * scale
        known, s = None, self.settings
        if s.observes:  # f first, then what it stands for
            latent = len(drawn) // 2
            known, drawn, stddev = stddev[0] <= unknown_above, drawn[latent:], stddev[latent:]
            drawn = np.clip(
                drawn, 0.0, None if s.likelihood == "poisson" else 1.0
            )  # a spline may swing beyond
        shown = show(
            drawn, np.square(stddev), s.likelihood == "softmax", 0.0 if more is None else more
        )
        known = shown.stddev <= unknown_above if known is None else known
        return FieldGrid(
            self.window.origin,
            self.window.resolution,
            torch.from_numpy(shown.mean.copy()),
            torch.from_numpy(shown.stddev.copy()),
            torch.from_numpy(known),
            noise_stddev,
            revision,
            *(None if part is None else torch.from_numpy(part.copy()) for part in shown[2:]),
        )

    def _channels(self, field: FieldMap, p: Prediction) -> Prediction:
        """f, (K, C), and behind it in more channels what f stands for, where that is published."""
        if not self.settings.observes:
            return p
        told = field.observed(p)
        mean, variance = (
            torch.cat(parts, 1) for parts in ((p.mean, told.mean), (p.variance, told.variance))
        )
        return Prediction(mean, variance, p.noise_variance)

    def _spot_check(
        self, field: Snapshot | FieldMap, now: int, noise_stddev: float, revision: int
    ) -> bool:
        """A few fresh points, at random: around those that have drifted, or everywhere if many have, all is stale.

        now: number of the moment; what is exact as of it needs no look.  Whether some had drifted: then others may
        have, too.
        """
        lattice = self._lattice
        index = self._random.integers(0, lattice.stale.size, _SPOTS)
        index = index[
            ~(lattice.stale.ravel()[index] | ((lattice.exact.ravel()[index] == now) & (now > 0)))
        ]
        if not len(index):
            return False
        rows, columns = np.unravel_index(index, lattice.stale.shape)
        places = lattice.places(rows, columns)
        p = field.predict(places)
        mean, variance = p.mean.mT.cpu().numpy(), p.variance.mT.cpu().numpy()  # (C, K)
        held, spread = (
            part[: len(mean), rows, columns] for part in (lattice.mean, lattice.variance)
        )
        drift = np.abs(mean - held) > _DRIFT * np.sqrt(variance + noise_stddev**2)
        drift |= np.abs(np.sqrt(spread / variance) - 1.0) > _DRIFT
        drift = drift.any(0)
        if drift.mean() > 0.2:
            lattice.mark_all(revision)
        elif drift.any():
            lattice.mark(places[torch.from_numpy(drift)], lattice.length, revision)
        return bool(drift.any())

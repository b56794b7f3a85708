"""Whether a sensor drifts or warms up while the robot drives, from places that it passed twice.

Measurements y at places x and times t of pass p, of a field f that stays:

    y_i = f(x_i) + c_p + d_p(t_i) + ε_i

c_p is the pass's unknown constant. Of a sensor that drifts d is an Ornstein-Uhlenbeck process, of
one that warms up it decays from the beginning of the pass, by another amount each time:

    cov(d_i, d_j) = s² exp(−|t_i − t_j|/T)   or   s² exp(−(t_i − t_p)/T) exp(−(t_j − t_p)/T)

With a Gaussian process for f the evidence of y is exact for each s and T. Along one line that never
comes back a drift is a field that varies as much; what tells them apart are neighbouring places at
different times. Other faults look alike, each with a covariance of its own:

    a field rougher than the kernel    exp(−|x_i − x_j|/(v T)), v being the usual speed
    a field that changes with time     k(x_i, x_j) exp(−|t_i − t_j|/T), also about one place alone
    poses that wander                  −∇²k(x_i, x_j) exp(−|t_i − t_j|/T)
    stamps that are late               k of places earlier on the way
    a sensor that follows slowly       H k Hᵀ
    a field longer along one axis      k of places that are stretched

The last shows without a drift, too: `DriftSearch.anisotropy` says so. A drift counts as found where
it is better by SURE nats than none, and than all that may be so along one line; by less than that
where places passed twice differ anyhow, and it is only asked what makes them differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.beginning.stepwise import Stepwise
from gp_mapping.mapping.drift.alternatives import DriftTrack, change_window, response, roughness

__all__ = ["Drift", "DriftSearch", "DriftTrack"]

SURE = 8.0  # nats; worlds without a drift reach 2
_LIKELIER = 4.0  # nats beside a field that changes and poses that wander; where these are, −1
_FREE = 1e4  # variance of what is unknown, in that of the values: level, constants of passes
_LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0)  # in the lengthscale that is expected
_RATIOS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # noise, in standard deviations of the field
_SPREADS = (0.03, 0.1, 0.3, 1.0, 3.0)  # of what is added, in standard deviations of the field
_SHORTEST, _TIMES = 16.0, 8  # of T, in usual times between two blocks; and how many doublings of it
_HARDLY = 2.0  # nats that are no difference between two T
_DELAYS = (-4.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 4.0)  # in usual times between two blocks
_WIDTHS = 1.0, 2.0  # of places that change, in lengthscales
_LAGS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_LONGER = (2.0, 8.0, 32.0)  # times that a field's lengthscale may be longer along one axis

# log evidence and numbers of the best parameters, after some steps
_Evidence = Generator[None, None, tuple[float, tuple[int, ...]]]


class Drift(NamedTuple):
    """What a sensor's values say of how it drifts.

    Attributes:
        seconds: T, s.
        shortest: the shortest T that is hardly worse, s; for s²/T is known better than either.
        stddev: s, in the unit of the values.
        warms_up: whether it decays from the beginning of each pass; else it wanders.
        gain: nats by which this is better than the best that has none.
    """

    seconds: float
    shortest: float
    stddev: float
    warms_up: bool
    gain: float


class DriftSearch(Stepwise[Drift]):
    """Looks for the drift that suits best, each with the lengthscale and the noise that suit it.

    The work comes in steps of one evidence each: O(N³), some milliseconds.

    Args:
        track: measurements of the sensor; at least ten rows.
        lengthscale: that is expected, m, to a factor of two.
        kernel: name of the field's covariance function.

    Attributes:
        anisotropy: how many times longer the lengthscale along y is than along x, a power of two,
            where values that do not drift say so by SURE nats; else 1.
    """

    anisotropy = 1.0

    def __init__(self, track: DriftTrack, lengthscale: float, kernel: str):
        super().__init__(track, lengthscale, kernel)
        self.track, self.kernel = track, kernel
        self.lengths = [factor * lengthscale for factor in _LENGTHS]
        y = track.y - track.y.mean()
        self.scale = float(y.square().mean().sqrt().clamp_min(1e-300))
        self.y = (y / self.scale)[:, None]

        same = track.passes[:, None] == track.passes
        self.same = same.double()
        self.free = _FREE * (1.0 + self.same)
        if track.heading is not None:
            self.free = self.free + _FREE * track.heading @ track.heading.mT
        self.eye = torch.eye(len(y), dtype=torch.float64)
        self._fields: dict[int, Tensor] = {}

        elapsed, apart = track.stamp.diff(), (track.x[1:] - track.x[:-1]).norm(dim=1)
        inside = (track.passes.diff() == 0) & (elapsed > 0)
        self.usual = float(elapsed[inside].median()) if bool(inside.any()) else 0.0
        self.speed = (
            float(apart[inside].sum() / elapsed[inside].sum()) if bool(inside.any()) else 0.0
        )
        # where the next climb begins: numbers of lengthscale, ratio and spread
        self.start: tuple[int, ...] = (2, 3, 2)

    # Each of these yields after a step, and returns what it has found.
    def _search(self) -> Generator[None, None, Drift | None]:
        """The best drift, where it is better than all that is none."""
        if not (self.usual > 0.0 and self.speed > 0.0 and bool(torch.isfinite(self.y).all())):
            return None

        none, at = yield from self._best(self._field)
        self._alone = at
        stretched, self.anisotropy = yield from self._stretch(none)
        self.start = (*at, *self.start[len(at) :])
        evidence = yield from self._drifts()
        best = max(evidence, key=lambda which: evidence[which][0])
        value, at = evidence[best]
        if value < max(none, stretched) + SURE:
            return None
        self.start = at

        others = max(none, stretched)
        for margin, alternative in self._alternatives():
            other = yield from alternative
            if value < other + margin:
                return None
            others = max(others, other)

        self.start, (warms_up, k), least = at, best, best[1]
        while least > 0:
            shorter = yield from self._more(self._drift(warms_up, least - 1))
            if shorter[0] < value - _HARDLY:
                break
            least -= 1

        self.anisotropy = 1.0
        i, j, q = at
        covariance = self._field(i) + _SPREADS[q] ** 2 * self._drift(warms_up, k)
        stddev = _SPREADS[q] * self.scale * self._scale(covariance + _RATIOS[j] ** 2 * self.eye)
        return Drift(self._time(k), self._time(least), stddev, warms_up, value - others)

    def _drifts(
        self,
    ) -> Generator[None, None, dict[tuple[bool, int], tuple[float, tuple[int, ...]]]]:
        """Log evidence and best parameters of drifts: of the best one, and of its neighbours.

        By whether they warm up, and the number of T.
        """
        # the usual case costs no more than this: the parameters of none, with some drift more
        tried: dict[tuple[bool, int], float] = {}
        for warms_up in (False, True):
            for k in range(self._time_count):
                tried[warms_up, k] = yield from self._quick(self._drift(warms_up, k))
        best = max(tried, key=lambda which: tried[which])

        # at its own best, and at that of its neighbours
        evidence: dict[tuple[bool, int], tuple[float, tuple[int, ...]]] = {}
        while True:
            warms_up, k = best
            for near in (k, k - 1, k + 1):
                if 0 <= near < self._time_count and (warms_up, near) not in evidence:
                    evidence[warms_up, near] = yield from self._more(self._drift(warms_up, near))
            higher = max(evidence, key=lambda which: evidence[which][0])
            if higher == best:
                return evidence
            best = higher

    # --- covariances ------------------------------------------------------------------------------
    @property
    def _time_count(self) -> int:
        """How many time scales there are: up to double the longest pass."""
        stamp, passes = self.track.stamp, self.track.passes
        longest = max(
            float(stamp[passes == p].max() - stamp[passes == p].min())
            for p in passes.unique().tolist()
        )
        steps = math.log2(max(2.0 * longest / (_SHORTEST * self.usual), 1.0))
        return min(_TIMES, 1 + math.floor(steps))

    def _time(self, k: int) -> float:
        """T number k, s."""
        return _SHORTEST * self.usual * 2.0**k

    def _kernel_of(self, length: float, x: Tensor) -> Tensor:
        """Of the field at places (N, 2), with all that is unknown: (N, N)."""
        return make_kernel(self.kernel, 1.0, length)(x, x)

    def _field(self, i: int) -> Tensor:
        """Of the field with lengthscale number i, and of all that is unknown: (N, N)."""
        if i not in self._fields:
            self._fields[i] = self._kernel_of(self.lengths[i], self.track.x) + self.free
        return self._fields[i]

    def _memory(self, k: int, within: bool = True) -> Tensor:
        """exp(−|t_i − t_j|/T) with T number k, of one pass or of all: (N, N)."""
        stamp = self.track.stamp
        out = (-(stamp[:, None] - stamp).abs() / self._time(k)).exp()
        return out * self.same if within else out

    def _drift(self, warms_up: bool, k: int) -> Tensor:
        """Of d, s being 1: (N, N)."""
        if not warms_up:
            return self._memory(k)
        stamp, passes = self.track.stamp, self.track.passes
        age = stamp.clone()
        for p in passes.unique().tolist():
            of = passes == p
            age[of] = stamp[of] - stamp[of].min()
        decay = (-age / self._time(k)).exp()
        return decay[:, None] * decay * self.same

    # --- alternatives -----------------------------------------------------------------------------
    def _alternatives(self) -> Iterator[tuple[float, Generator[None, None, float]]]:
        """By how much to be better than each other fault, and its largest log evidence."""
        x, times = self.track.x, range(0, self._time_count, 2)
        apart = (x[:, None] - x).norm(dim=2)
        for memory in (self.same, self._memory(times[-1], within=False)):
            for width in _WIDTHS:
                yield _LIKELIER, self._changed(memory, apart, width)
        for memory in (self.same, *(self._memory(k, within=False) for k in times)):
            yield _LIKELIER, self._other(lambda i, m=memory: (self._field(i) - self.free) * m)
            yield _LIKELIER, self._other(lambda i, m=memory: roughness(apart, self.lengths[i]) * m)
        for k in times:
            rough = (-apart / (self.speed * self._time(k))).exp()
            yield SURE, self._other(lambda i, rough=rough: rough)
        for delay in _DELAYS:
            yield SURE, self._late(delay * self.usual)
        for lag in _LAGS:
            yield SURE, self._slow(lag * self.usual)

    def _changed(self, memory: Tensor, apart: Tensor, width: float) -> Generator[None, None, float]:
        """With a change about one place, `width` lengthscales wide."""
        i, j = self._alone
        window = change_window(
            self._field(i) + _RATIOS[j] ** 2 * self.eye,
            self.y,
            (self._field(i) - self.free) * memory,
            apart,
            width * self.lengths[i],
        )
        yield
        inside = window[:, None] * window * memory
        return (yield from self._other(lambda i: (self._field(i) - self.free) * inside))

    def _other(self, added: Callable[[int], Tensor]) -> Generator[None, None, float]:
        """With something else in place of the drift, a function of the lengthscale's number."""
        return (yield from self._more(added))[0]

    def _late(self, seconds: float) -> Generator[None, None, float]:
        """With stamps that are late by so many seconds."""
        places = self.track.x - seconds * self.track.velocity()
        found = yield from self._best(
            lambda i: self._kernel_of(self.lengths[i], places) + self.free
        )
        return found[0]

    def _slow(self, tau: float) -> Generator[None, None, float]:
        """With a sensor of the time constant `tau`, s."""
        follows = response(self.track, tau)
        found = yield from self._best(
            lambda i: (
                follows @ self._kernel_of(self.lengths[i], self.track.x) @ follows.mT + self.free
            )
        )
        return found[0]

    def _stretch(self, none: float) -> Generator[None, None, tuple[float, float]]:
        """Largest log evidence of a field that is longer along one axis, and how much longer.

        The geometric mean of both lengthscales stays within those that are tried.

        Args:
            none: of one that is not.

        Returns:
            The evidence, at least `none`, and ℓ_y/ℓ_x; 1 where it is not SURE nats better.
        """
        evidence = {1.0: none}

        def evaluate(longer: float) -> Generator[None, None, None]:
            places = self.track.x * self.track.x.new_tensor([longer**0.5, longer**-0.5])
            evidence[longer] = (
                yield from self._best(
                    lambda i: self._kernel_of(self.lengths[i], places) + self.free
                )
            )[0]

        for longer in _LONGER:
            yield from evaluate(longer)
            yield from evaluate(1.0 / longer)
        ratio = max(evidence, key=lambda which: evidence[which])
        if ratio != 1.0:
            yield from evaluate(0.5 * ratio)
            yield from evaluate(2.0 * ratio)
        ratio = max(evidence, key=lambda which: evidence[which])
        return evidence[ratio], ratio if evidence[ratio] >= none + SURE else 1.0

    # --- evidence ---------------------------------------------------------------------------------
    def _quick(self, added: Tensor) -> Generator[None, None, float]:
        """Largest log evidence over spreads of what is added, all else as without it."""
        i, j, _ = self.start
        base, best = self._field(i) + _RATIOS[j] ** 2 * self.eye, -math.inf
        for spread in _SPREADS[1:4]:
            best = max(best, self._evidence(base + spread**2 * added))
            yield
        return best

    def _more(self, added: Tensor | Callable[[int], Tensor]) -> _Evidence:
        """Largest log evidence with something added, over its spread, too."""
        more = (lambda i: added) if isinstance(added, Tensor) else added
        return (yield from self._best(self._field, more))

    def _best(
        self, covariance: Callable[[int], Tensor], added: Callable[[int], Tensor] | None = None
    ) -> _Evidence:
        """Largest log evidence over lengthscales, ratios and spreads, and their numbers.

        From where the last one ended it climbs to a maximum from which no neighbour is higher.

        Args:
            covariance: of the field, of the lengthscale's number.
            added: what is added, its spread being 1; None: nothing.
        """
        made: dict[int, tuple[Tensor, Tensor | None]] = {}
        evidence: dict[tuple[int, ...], float] = {}
        sizes = (len(self.lengths), len(_RATIOS), *((len(_SPREADS),) if added else ()))

        def evaluate(*places: tuple[int, ...]) -> Iterator[None]:
            for at in places:
                if at in evidence:
                    continue
                if at[0] not in made:
                    made[at[0]] = covariance(at[0]), added(at[0]) if added else None
                base, more = made[at[0]]
                total = base.clone()
                total.diagonal().add_(_RATIOS[at[1]] ** 2)
                if more is not None:
                    total += _SPREADS[at[2]] ** 2 * more
                evidence[at] = self._evidence(total)
                yield

        best = self.start[: len(sizes)]
        while True:
            near = [
                (*best[:d], best[d] + step, *best[d + 1 :])
                for d in range(len(sizes))
                for step in (-1, 1)
                if 0 <= best[d] + step < sizes[d]
            ]
            yield from evaluate(*near, best)
            higher = max(near, key=lambda at: evidence[at])
            if evidence[higher] <= evidence[best]:
                self.start = (*best, *self.start[len(best) :])
                return evidence[best], best
            best = higher

    def _evidence(self, covariance: Tensor) -> float:
        """log N(y; 0, s² C) at the best s², up to a constant."""
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if int(failed):
            return -math.inf
        square = torch.linalg.solve_triangular(factor, self.y, upper=False).square().sum()
        n = len(self.y)
        return -0.5 * n * math.log(float(square) / n) - float(factor.diagonal().log().sum())

    def _scale(self, covariance: Tensor) -> float:
        """The best s for C."""
        factor = torch.linalg.cholesky(covariance)
        square = torch.linalg.solve_triangular(factor, self.y, upper=False).square().mean()
        return float(square.sqrt())

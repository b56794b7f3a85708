"""How well a field that stays, and what may add to it, explain what a sensor told along its way.

The log evidence of N(y; 0, s² C) at the best s², lengthscale and noise, C being the covariance of
the field with all that is unknown: its level, a constant of each pass, a part that turns with the
robot. What else may be in the values has a covariance of its own (alternatives.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from itertools import product
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.linalg import factor_upper
from gp_mapping.mapping.beginning.stepwise import Stepwise
from gp_mapping.mapping.drift.alternatives import DriftTrack, change_window, follow, roughness
from gp_mapping.mapping.drift.told import Told, is_told_everywhere
from gp_mapping.mapping.response.track import Track

__all__ = [
    "CHANGES",
    "LATE",
    "LIKELIER",
    "MOVED",
    "RATIOS",
    "SPREADS",
    "SURE",
    "WANDERS",
    "Alternative",
    "Evidence",
    "TrackEvidence",
]

SURE = 8.0  # nats; worlds without a drift reach 2
LIKELIER = 4.0  # nats beside a field that changes and poses that wander; where these are, −1
_WILD, _ROUNDS = 3.0, 6  # standard deviations of a block that is wild; times that it is looked for
_FREE = 1e4  # variance of what is unknown, in that of the values: level, constants of passes
_LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0)  # in the lengthscale that is expected
RATIOS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # noise, in standard deviations of the field
SPREADS = (0.03, 0.1, 0.3, 1.0, 3.0)  # of what is added, in standard deviations of the field
_SHORTEST, _TIMES = 16.0, 8  # of T, in usual times between two blocks; and how many doublings of it
_DELAYS = (-4.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 4.0)  # in usual times between two blocks
_WIDTHS = 1.0, 2.0  # of places that change, in lengthscales
_LAGS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_BEFORE = (1.0, 2.0, 4.0, 8.0, 16.0)  # delays before a lag, in usual times, too
_NONE = 0.25  # of a usual time: a shorter lag, or delay before one, is none
_LONGER = (2.0, 8.0, 32.0)  # times that a field's lengthscale may be longer along one axis

# log evidence and numbers of the best parameters, after some steps
Evidence = Generator[None, None, tuple[float, tuple[int, ...]]]

_Found = TypeVar("_Found")


# what an alternative is: poses that wander, a field that changes everywhere, in one place, stamps
# that are late, another
WANDERS, CHANGES, MOVED, LATE, ANOTHER = range(5)


class Alternative(NamedTuple):
    """Another fault that may be in the values.

    Attributes:
        margin: nats by which to be better than it.
        evidence: its largest log evidence, after some steps.
        kind: what it is.
    """

    margin: float
    evidence: Generator[None, None, float]
    kind: int = ANOTHER


class TrackEvidence(Stepwise[_Found]):
    """The evidence of what a sensor told, for a search of one cause among others.

    The work comes in steps of one evidence each: O(N³), some milliseconds.

    Args:
        track: measurements of the sensor; at least ten rows.
        lengthscale: that is expected, m, to a factor of two.
        kernel: name of the field's covariance function.
        more: arguments of the subclass.
    """

    anisotropy = 1.0

    def __init__(self, track: DriftTrack, lengthscale: float, kernel: str, *more: Any):
        super().__init__(track, lengthscale, kernel, *more)
        self.track, self.kernel = track, kernel
        self.lengths = [factor * lengthscale for factor in _LENGTHS]
        y = track.y - track.y.mean()
        self.scale = float(y.square().mean().sqrt().clamp_min(1e-300))
        self.y = (y / self.scale)[:, None]

        same = track.passes[:, None] == track.passes
        self.same = same.double()
        self.free = self._unknown(track.heading)
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
        self._alone: tuple[int, ...] = self.start[
            :2
        ]  # numbers of the first two where nothing is added

    # --- covariances ------------------------------------------------------------------------------
    @property
    def _longest(self) -> float:
        """What the longest pass takes, s."""
        stamp, passes = self.track.stamp, self.track.passes
        return max(
            float(stamp[passes == p].max() - stamp[passes == p].min())
            for p in passes.unique().tolist()
        )

    @property
    def _time_count(self) -> int:
        """How many time scales there are: up to double the longest pass."""
        steps = math.log2(max(2.0 * self._longest / (_SHORTEST * self.usual), 1.0))
        return min(_TIMES, 1 + math.floor(steps))

    def _time(self, k: int) -> float:
        """T number k, s."""
        return _SHORTEST * self.usual * 2.0**k

    def _unknown(self, heading: Tensor | None) -> Tensor:
        """Of a level, of constants of passes, and of what turns with the robot: (N, N)."""
        free = _FREE * (1.0 + self.same)
        return free if heading is None else free + _FREE * heading @ heading.mT

    def _kernel_of(self, length: float, x: Tensor) -> Tensor:
        """Of the field at places (N, 2): (N, N)."""
        return make_kernel(self.kernel, 1.0, length)(x, x)

    def _field(self, i: int) -> Tensor:
        """Of the field with lengthscale number i, and of all that is unknown: (N, N)."""
        if i not in self._fields:
            self._fields[i] = self._kernel_of(self.lengths[i], self.track.x) + self.free
        return self._fields[i]

    def _field_at(self, i: int, places: Tensor) -> Tensor:
        """As `_field`, measured at other places (N, 2): (N, N)."""
        return self._kernel_of(self.lengths[i], places) + self.free

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
    def _alternatives(self) -> Iterator[Alternative]:
        """All other faults; those that wander, or change, everywhere come first."""
        x, times = self.track.x, range(0, self._time_count, 2)
        apart = (x[:, None] - x).norm(dim=2)
        walk = self._walk()
        yield Alternative(
            LIKELIER, self._other(lambda i: roughness(apart, self.lengths[i]) * walk), WANDERS
        )
        for memory in (self.same, *(self._memory(k, within=False) for k in times)):
            field = self._other(lambda i, m=memory: (self._field(i) - self.free) * m)
            yield Alternative(LIKELIER, field, CHANGES)
            poses = self._other(lambda i, m=memory: roughness(apart, self.lengths[i]) * m)
            yield Alternative(LIKELIER, poses, WANDERS)
        for memory in (self.same, self._memory(times[-1], within=False)):
            for width in _WIDTHS:
                yield Alternative(LIKELIER, self._changed(memory, apart, width), MOVED)
        for k in times:
            rough = (-apart / (self.speed * self._time(k))).exp()
            yield Alternative(SURE, self._other(lambda i, rough=rough: rough))
        yield from self._late_or_slow()
        yield Alternative(SURE, self._slow_and_late())

    def _late_or_slow(self) -> Iterator[Alternative]:
        """Stamps that are late, and a sensor that follows slowly."""
        for delay in _DELAYS:
            yield Alternative(SURE, self._late(delay * self.usual), LATE)
        for lag in _LAGS:
            yield Alternative(SURE, self._slow(lag * self.usual))

    def _walk(self) -> Tensor:
        """Of a random walk along each pass, 1 at the end of the longest: (N, N)."""
        t = self.track
        steps = (t.x[1:] - t.x[:-1]).norm(dim=1) * (t.passes.diff() == 0)
        way = torch.cat([steps.new_zeros(1), steps.cumsum(0)])
        for p in t.passes.unique().tolist():
            way[t.passes == p] -= way[t.passes == p].min()
        return torch.minimum(way[:, None], way) / way.max() * self.same

    def _changed(self, memory: Tensor, apart: Tensor, width: float) -> Generator[None, None, float]:
        """With a change about one place, `width` lengthscales wide."""
        i, j = self._alone
        window = change_window(
            self._field(i) + RATIOS[j] ** 2 * self.eye,
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
        return (yield from self._at(self.track.x - seconds * self.track.velocity()))

    def _at(self, places: Tensor) -> Generator[None, None, float]:
        """Of measurements at other places (N, 2)."""
        return (yield from self._best(lambda i: self._field_at(i, places)))[0]

    def _slow(self, tau: float, delay: float = 0.0) -> Generator[None, None, float]:
        """With a sensor of the time constant `tau`, s, after a delay, s."""
        return (yield from self._best(self._followed(tau, delay)))[0]

    def _followed(self, tau: float, delay: float) -> Callable[[int], Tensor]:
        """Covariance of what such a sensor tells, of the lengthscale's number."""
        t, places = self.track, self.track.x
        if delay:
            places = Track(t.x, t.y, t.stamp, t.begins).places_before(delay)

        def covariance(i: int) -> Tensor:
            field = self._kernel_of(self.lengths[i], places)
            return (follow(t, tau, follow(t, tau, field).mT) if tau else field) + self.free

        return covariance

    def _slow_and_late(self) -> Generator[None, None, float]:
        """With a sensor that follows slowly what comes late, as through a hose.

        With the parameters of a field alone first, then from the best uphill. Either may turn out
        to be none, and is 0 then: the evidence goes on rising, by ever less, towards that. Neither
        is longer than double the longest pass.
        """
        i, j = self._alone
        told: dict[tuple[float, float], float] = {}
        for lag, delay in product(_LAGS, _BEFORE):
            at = lag * self.usual, delay * self.usual
            told[at] = self._evidence(self._followed(*at)(i) + RATIOS[j] ** 2 * self.eye)
            yield

        first, longest = max(told, key=lambda at: told[at]), 2.0 * self._longest

        def seconds(begin: float, steps: int) -> float:
            value = min(begin * 2.0 ** (steps / 2), longest)
            return value if value >= _NONE * self.usual else 0.0

        best = higher = 0, 0
        uphill: dict[tuple[int, int], float] = {}
        tried: dict[tuple[float, float], float] = {}
        while not uphill or higher != best:
            best = higher
            for step in product((-1, 0, 1), (-1, 0, 1)):
                number = best[0] + step[0], best[1] + step[1]
                at = seconds(first[0], number[0]), seconds(first[1], number[1])
                if at not in tried:
                    tried[at] = yield from self._slow(*at)
                uphill[number] = tried[at]
            # of those that are the same, the one that was tried first
            higher = max(uphill, key=lambda at: uphill[at])
        return uphill[best]

    def _stretched(self, longer: float) -> Tensor:
        """Places (N, 2) as a field sees them that is so many times longer along y than along x."""
        return self.track.x * self.track.x.new_tensor([longer**0.5, longer**-0.5])

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
            places = self._stretched(longer)
            evidence[longer] = yield from self._at(places)

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
        base, best = self._field(i) + RATIOS[j] ** 2 * self.eye, -math.inf
        for spread in SPREADS[1:4]:
            best = max(best, self._evidence(base + spread**2 * added))
            yield
        return best

    def _more(self, added: Tensor | Callable[[int], Tensor]) -> Evidence:
        """Largest log evidence with something added, over its spread, too."""
        more = (lambda i: added) if isinstance(added, Tensor) else added
        return (yield from self._best(self._field, more))

    def _best(
        self, covariance: Callable[[int], Tensor], added: Callable[[int], Tensor] | None = None
    ) -> Evidence:
        """Largest log evidence over lengthscales, ratios and spreads, and their numbers.

        From where the last one ended it climbs to a maximum from which no neighbour is higher.

        Args:
            covariance: of the field, of the lengthscale's number.
            added: what is added, its spread being 1; None: nothing.
        """
        made: dict[int, tuple[Tensor, Tensor | None]] = {}
        evidence: dict[tuple[int, ...], float] = {}
        sizes = (len(self.lengths), len(RATIOS), *((len(SPREADS),) if added else ()))

        def evaluate(*places: tuple[int, ...]) -> Iterator[None]:
            for at in places:
                if at in evidence:
                    continue
                if at[0] not in made:
                    made[at[0]] = covariance(at[0]), added(at[0]) if added else None
                base, more = made[at[0]]
                total = base.clone()
                total.diagonal().add_(RATIOS[at[1]] ** 2)
                if more is not None:
                    total += SPREADS[at[2]] ** 2 * more
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

    def _holds(self, named: Callable[[int], Tensor]) -> Generator[None, None, bool]:
        """Whether what is named is SURE nats better than none, too, where blocks may be wild.

        And all along the way (told.py).

        Args:
            named: covariance of the values with it, of the lengthscale's number.
        """
        nothing = torch.zeros_like(self.y[:, 0])
        none, own = yield from self._forgiving(self._field, nothing)
        value, other = yield from self._forgiving(named, nothing)
        # what the one has found wild, the other may begin with
        none = max(none, (yield from self._forgiving(self._field, other))[0])
        value = max(value, (yield from self._forgiving(named, own))[0])
        return value >= none + SURE and is_told_everywhere(value, none)

    def _forgiving(
        self, covariance: Callable[[int], Tensor], own: Tensor
    ) -> Generator[None, None, tuple[float, Tensor]]:
        """Largest log evidence where a block may have noise of its own, and its variances (N,).

        A sharp magnet or an edge in a field of one lengthscale and noise is worth many nats to
        whatever happens to move it. So a block that lies more than `_WILD` standard deviations from
        what all others say gets the noise that is likeliest, which makes it one. A block z standard
        deviations off costs ½ + log z nats then, not z²/2, under each model by itself.

        Args:
            covariance: of the values without noise, of the lengthscale's number.
            own: to begin with (N,).
        """
        self.start = (*self._alone, *self.start[len(self._alone) :])
        best, most = -math.inf, own
        for _ in range(_ROUNDS):
            value, at = yield from self._best(lambda i, own=own: covariance(i) + own.diag())
            if value <= best:
                break
            best, most = value, own
            own = self._own_noise(covariance(at[0]) + torch.diag(own + RATIOS[at[1]] ** 2), own)
            yield
        return best, most

    def _own_noise(self, covariance: Tensor, own: Tensor) -> Tensor:
        """Variances (N,) of the noise that makes each wild block lie one standard deviation off.

        Args:
            covariance: of the values, with the noise of their own that they have.
            own: that.
        """
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        weights, precision = (inverse @ self.y)[:, 0], inverse.diagonal()
        # leave-one-out errors are weights/precision, of the variance s²/precision
        square = (weights / precision).square() * (len(self.y) / (self.y[:, 0] @ weights))
        expected = (1.0 / precision - own).clamp_min(1e-300)
        return torch.where(square > _WILD**2 * expected, square - expected, 0.0)

    def _evidence(self, covariance: Tensor) -> float:
        """log N(y; 0, s² C) at the best s², up to a constant; C is overwritten."""
        factor = factor_upper(covariance)
        if factor is None:
            return -math.inf
        square = torch.linalg.solve_triangular(factor, self.y, upper=False)[:, 0].square()
        s2 = square.mean()
        # each block given those before it; together log N(y; 0, s² C) up to a constant
        return Told.of(0.5 * (1.0 - square / s2 - s2.log()) - factor.diagonal().log())

    def _spread_of(self, added: Tensor, at: tuple[int, ...]) -> float:
        """Standard deviation of what is added at the numbers of its parameters, in y's unit."""
        i, j, q = at
        covariance = self._field(i) + SPREADS[q] ** 2 * added + RATIOS[j] ** 2 * self.eye
        return SPREADS[q] * self.scale * self._scale(covariance)

    def _scale(self, covariance: Tensor) -> float:
        """The best s for C."""
        factor = torch.linalg.cholesky(covariance)
        square = torch.linalg.solve_triangular(factor, self.y, upper=False).square().mean()
        return float(square.sqrt())

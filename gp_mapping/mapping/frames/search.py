"""Whether passes contradict each other, as where poses are in two frames, and what moves them.

An odometry begins at its own (0, 0) wherever it is switched on. Of two drives of one field, each
with an unknown constant of every pass, a Gaussian process tells the evidence of

    one frame       y ~ N(0, K + …), all passes sharing the field f
    apart           f of what came before a boundary and f of what came after share nothing
    moved           the places after it are X = R(yaw) x + t, of the best t and yaw, less what so
                    many t and yaw would suit by chance: the log of their prior volume over that of
                    the posterior (Laplace)
    another clock   the places after it are those where the robot was some seconds earlier

The factors L of the values in their order and in the reverse order tell the evidence apart of all
boundaries at once, for log p(y) = Σ log p(y_i | y_1 … y_i−1). What is apart is moved where that is
better by SURE nats, and either counts as found where it is better by SURE nats than one frame, also
with each of the faults that make places differ which were passed twice (drift/alternatives.py).

Passes that hardly meet contradict nothing. Where they go together elsewhere, by SURE nats more than
that may be chance, they may be of one place in two frames, or of two places that are alike.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.mapping.drift.alternatives import DriftTrack, roughness
from gp_mapping.mapping.drift.track_evidence import RATIOS, SURE, Evidence, TrackEvidence
from gp_mapping.mapping.frames.alignment import NOWHERE, Aligned, Alignment
from gp_mapping.mapping.frames.matching import Moved

__all__ = ["ALIKE", "APART", "CLOCK", "MOVED", "Break", "FrameSearch"]

MOVED, CLOCK, APART, ALIKE = "moved", "clock", "apart", "alike"

_FEWEST = 24  # blocks on either side of a boundary
_DEEPEST = 3  # boundaries are looked for in halves of halves of halves
_EXPECTED = 2  # number of the lengthscale that is expected
_NEAR, _MEET = 0.5, 0.3  # lengthscales between blocks that meet, and the fraction that hardly do
_WIDTHS = (0.25, 0.5, 1.0, 2.0)  # of a place that has changed, in lengthscales
_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of a clock, in usual times between two blocks


class Break(NamedTuple):
    """Where another frame begins.

    Attributes:
        kind: MOVED, CLOCK, or APART where the values do not tell; ALIKE where passes hardly meet.
        pass_number: of the first pass in it.
        stamp: of its first block, s.
        moved: from its frame to that of the first pass, where kind is MOVED or ALIKE.
        stddev: of its place, at the middle of what was driven, m.
        turn_stddev: of its yaw, rad.
        seconds: how much later stamps are, where kind is CLOCK.
        gain: nats by which this is better than one frame with anything else.
    """

    kind: str
    pass_number: int
    stamp: float
    moved: Moved
    stddev: float
    turn_stddev: float
    seconds: float
    gain: float


class FrameSearch(TrackEvidence[list[Break]]):
    """Looks for passes from which on places are in another frame.

    Args:
        track: what the sensor told, of two passes or more.
        lengthscale: that is expected, m, to a factor of two.
        kernel: name of the field's covariance function.
        thorough: whether passes that hardly meet are compared, too: about a second.
    """

    def __init__(self, track: DriftTrack, lengthscale: float, kernel: str, thorough: bool = False):
        super().__init__(track, lengthscale, kernel)
        self._arguments = track, lengthscale, kernel, thorough
        self._thorough = thorough

    # Each of these yields after a step, and returns what it has found.
    def _search(self) -> Generator[None, None, list[Break] | None]:
        """All breaks, in order; None: there is none."""
        if not (self.usual > 0.0 and self.speed > 0.0 and bool(torch.isfinite(self.y).all())):
            return None
        bounds = yield from self._bounds(0, len(self.y), _DEEPEST)
        if not bounds:
            return (yield from self._elsewhere()) if self._thorough else None

        ends = [0, *sorted(bounds), len(self.y)]
        parts = [torch.arange(a, b) for a, b in pairwise(ends)]
        same, at = yield from self._best(self._field)
        self._alone = at
        together, clock = yield from self._clocks(bounds[0])
        self.start = (*at, *self.start[len(at) :])
        found = yield from self._align(parts)
        value = (yield from self._as_found(found, parts))[0]
        value -= sum(each.volume for each in found if each is not None)

        others = same
        for rival in self._others():
            others = max(others, (yield from rival))
            if max(value, together) < others + SURE:
                return None
        if together >= value:
            number, stamp = self._first_of(bounds[0])
            gain = together - others
            return [Break(CLOCK, number, stamp, Moved(0, 0, 0), 0.0, 0.0, clock, gain)]

        out = []
        for part, aligned in zip(parts[1:], found[1:]):
            number, stamp = self._first_of(int(part[0]))
            kind, each = (APART, NOWHERE) if aligned is None else (MOVED, aligned)
            known = each.stddev, each.turn_stddev
            out.append(Break(kind, number, stamp, each.moved, *known, 0.0, value - others))
        return out

    def _first_of(self, row: int) -> tuple[int, float]:
        """Number of the pass, and stamp, of a row."""
        return int(self.track.passes[row]), float(self.track.stamp[row])

    def _elsewhere(self) -> Generator[None, None, list[Break] | None]:
        """The passes that hardly meet those before them, where they go together elsewhere."""
        n = len(self.y)
        begins = self._begins(0, n).tolist()
        length = self.lengths[_EXPECTED]
        meet = {
            b: float(
                (torch.cdist(self.track.x[b:], self.track.x[:b]).amin(1) < _NEAR * length)
                .double()
                .mean()
            )
            for b in begins
        }
        bound = min(begins, key=lambda b: meet[b], default=0)
        if not bound or meet[bound] > _MEET:
            return None
        same = (yield from self._best(self._field))[0]
        parts = [torch.arange(bound), torch.arange(bound, n)]
        found = yield from self._align(parts)
        if (aligned := found[1]) is None:
            return None
        gain = (yield from self._as_found(found, parts))[0] - aligned.volume - same
        if gain < SURE + math.log(len(begins)):
            return None
        known = aligned.moved, aligned.stddev, aligned.turn_stddev
        return [Break(ALIKE, *self._first_of(bound), *known, 0.0, gain)]

    # --- boundaries -------------------------------------------------------------------------------
    def _bounds(self, low: int, high: int, deep: int) -> Generator[None, None, list[int]]:
        """Rows at which passes begin that share nothing with those before; the surest first."""
        begins = self._begins(low, high)
        if not deep or not len(begins):
            return []
        gain, bound = yield from self._split(low, high, begins)
        if gain < SURE + math.log(len(begins)):
            return []
        before = yield from self._bounds(low, bound, deep - 1)
        after = yield from self._bounds(bound, high, deep - 1)
        return [bound, *before, *after]

    def _begins(self, low: int, high: int) -> Tensor:
        """Rows at which passes begin, enough of them on either side."""
        begins = (self.track.passes[low:high].diff() != 0).nonzero()[:, 0] + low + 1
        return begins[(begins - low >= _FEWEST) & (high - begins >= _FEWEST)]

    def _split(
        self, low: int, high: int, begins: Tensor
    ) -> Generator[None, None, tuple[float, int]]:
        """By how many nats rows are better apart at the best boundary, and which that is."""
        told: dict[tuple[int, int], tuple[float, float, int]] = {}
        sizes = len(self.lengths), len(RATIOS)

        def tell(*places: tuple[int, int]) -> Iterator[None]:
            for at in places:
                if at not in told:
                    told[at] = self._told_apart(at, low, high, begins)
                    yield

        for which in (0, 1):  # of one field, and of two: each with what suits it
            best = self.start[0], self.start[1]
            while True:
                i, j = best
                near = [
                    (a, b)
                    for a, b in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1))
                    if 0 <= a < sizes[0] and 0 <= b < sizes[1]
                ]
                yield from tell(best, *near)
                higher = max(near, key=lambda at: told[at][which])
                if told[higher][which] <= told[best][which]:
                    break
                best = higher
        apart = max(told.values(), key=lambda each: each[1])
        return apart[1] - max(each[0] for each in told.values()), apart[2]

    def _told_apart(
        self, at: tuple[int, int], low: int, high: int, begins: Tensor
    ) -> tuple[float, float, int]:
        """Log evidence of one field and of two, and the row at which the second begins."""
        rows, n = slice(low, high), high - low
        covariance = self._field(at[0])[rows, rows].clone()
        covariance.diagonal().add_(RATIOS[at[1]] ** 2)
        squares, logs = _sums(covariance, self.y[rows])
        back_squares, back_logs = _sums(covariance.flip(0, 1), self.y[rows].flip(0))

        def evidence(square: Tensor, log: Tensor) -> Tensor:
            """log N(y; 0, s² C) at the best s², up to a constant."""
            return -0.5 * n * (square / n).log() - log

        one = float(evidence(squares[-1], logs[-1]))
        before, after = begins - low - 1, n - (begins - low) - 1
        two = evidence(squares[before] + back_squares[after], logs[before] + back_logs[after])
        if not bool(torch.isfinite(two).all()):
            return -math.inf, -math.inf, int(begins[0])
        return one, float(two.max()), int(begins[int(two.argmax())])

    # --- other causes -----------------------------------------------------------------------------
    def _clocks(self, bound: int) -> Generator[None, None, tuple[float, float]]:
        """Largest log evidence of stamps that are late from a boundary on, and by how much, s."""
        late = torch.arange(len(self.y)) >= bound
        moves, told = self.track.velocity() * late[:, None], {}
        for sign in (-1.0, 1.0):
            for delay in _DELAYS:
                seconds = sign * delay * self.usual
                places = self.track.x - seconds * moves
                found = yield from self._best(lambda i, x=places: self._over(i, x))
                told[seconds] = found[0]
        best = max(told, key=lambda seconds: told[seconds])
        return told[best], best

    def _over(self, i: int, places: Tensor) -> Tensor:
        """Of the field with lengthscale number i at other places, and of all that is unknown."""
        return self._kernel_of(self.lengths[i], places) + self.free

    def _others(self) -> Iterator[Generator[None, None, float]]:
        """Largest log evidence of each fault that one frame may have."""
        x, times = self.track.x, range(0, self._time_count, 2)
        apart = (x[:, None] - x).norm(dim=2)
        for width in _WIDTHS:
            yield self._changed(self.same, apart, width)
        for k in times:
            memory = self._memory(k, within=False)
            yield self._other(lambda i, m=memory: roughness(apart, self.lengths[i]) * m)
            rough = (-apart / (self.speed * self._time(k))).exp()
            yield self._other(lambda i, rough=rough: rough)
            for warms_up in (False, True):
                drift = self._drift(warms_up, k)
                yield self._other(lambda i, drift=drift: drift)
        yield from (each.evidence for each in self._late_or_slow())
        if self.track.heading is not None:
            yield self._irons()

    def _irons(self) -> Generator[None, None, float]:
        """With a part that turns with the robot, and is another one in each pass."""
        turns = self.track.heading @ self.track.heading.mT * self.same
        return (yield from self._other(lambda i: turns))

    # --- transforms -------------------------------------------------------------------------------
    def _align(self, parts: list[Tensor]) -> Generator[None, None, list[Aligned | None]]:
        """Of each part the transform into the first one's frame; None: it is not known."""
        found: list[Aligned | None] = [NOWHERE]
        known = parts[0]
        for part in parts[1:]:
            moved = self._moved(found, parts)
            rows = torch.cat([known, part])
            track = DriftTrack(*(each if each is None else each[rows] for each in moved))
            alignment = Alignment(track, self.lengths[_EXPECTED], self.kernel, len(known))
            while not alignment.advance():
                yield
            found.append(alignment.found)
            known = known if alignment.found is None else rows
        return found

    def _moved(self, found: list[Aligned | None], parts: list[Tensor]) -> DriftTrack:
        """The track with the parts that are known so far in the first one's frame."""
        x, heading = self.track.x.clone(), self.track.heading
        heading = heading if heading is None else heading.clone()
        for aligned, part in zip(found, parts):
            if aligned is not None:
                x[part] = aligned.moved.places(x[part])
                if heading is not None:
                    heading[part] = heading[part] @ aligned.moved.turn.mT
        return self.track._replace(x=x, heading=heading)

    def _as_found(self, found: list[Aligned | None], parts: list[Tensor]) -> Evidence:
        """Log evidence of parts that are moved, or apart from all others."""
        group = torch.zeros(len(self.y), dtype=torch.int64)
        for number, (aligned, part) in enumerate(zip(found, parts)):
            group[part] = 0 if aligned is not None else number
        alike, track = (group[:, None] == group).double(), self._moved(found, parts)
        free = self._unknown(track.heading)
        return (
            yield from self._best(
                lambda i: (self._kernel_of(self.lengths[i], track.x) + free) * alike
            )
        )


def _sums(covariance: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Sums Σ z² and Σ log L_ii up to each row, where L Lᵀ is the covariance and z = L⁻¹ y.

    Infinite where it has no factor.
    """
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if int(failed):
        return torch.full((2, len(y)), math.inf, dtype=y.dtype).unbind()
    whitened = torch.linalg.solve_triangular(factor, y, upper=False)[:, 0]
    return whitened.square().cumsum(0), factor.diagonal().log().cumsum(0)

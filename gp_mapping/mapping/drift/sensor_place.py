"""Where on the robot a sensor sits, and how late its stamps are, from the evidence of its values.

Measurements were made at other places than the poses say,

    x_i + a ĥ_i + b ĥ⊥_i − δ ẋ_i

for a sensor that sits a m ahead of the place that poses and settings say and b m to its left (ĥ:
the robot's forward axis), and whose stamps are late by δ. The log evidence L of these three is
climbed by Fisher scoring: with K, α = K⁻¹y, s² = yᵀα/N, and B_k = K⁻¹ ∂K/∂v_k,

    ∂L/∂v_k = ½ (αᵀ ∂K/∂v_k α/s² − tr B_k),   F_kl = ½ tr B_k B_l − tr B_k tr B_l / 2N

F⁻¹ is the covariance of what is found. Where the robot turns within a block, the sensor sweeps over
more of the field than the block's own way: K's diagonal has the variance of that, too. At a steady
speed on straight lanes a and δ are one; turns tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.drift.track_evidence import RATIOS, SURE, TrackEvidence

__all__ = ["PlaceEvidence", "SensorPlace"]

TOLD = 4.0  # nats by which what is better is told from what is not
_STEP = 0.125  # lengthscales from where it is said to be, for a first look
_FAR = (0.25, 0.5, 0.75, 1.0, 1.5)  # lengthscales to begin at, where that look says nothing
_WAYS = 8  # in which these are tried
_BLUR = 4  # number of the least ratio with which they are tried
_STARTS = 2  # the best of these, from which it is climbed
_ROUNDS = 10  # of Fisher scoring
_STRIDE = 0.25  # lengthscales of one of its steps at most
_HALVINGS = 3  # of one of its steps
_LITTLE = 0.1  # nats that are no gain
_TOLD_APART = 2.0  # standard deviations from 0 of a delay that is said

_Found = TypeVar("_Found")

# what may be other than said: (a, b, δ)
_ALONE, _BESIDE, _LATE, _ALL = (
    (False, False, True),
    (True, True, False),
    (False, True, True),
    (True, True, True),
)


class SensorPlace(NamedTuple):
    """Where on the robot a sensor sits, and how late its stamps are, beside what is said of both.

    Attributes:
        along: m, ahead of it.
        across: m, to its left.
        delay: by which stamps are late, s.
        stddevs: of these three, m, m, s.
        late: the delay that explains as much as `along` does, s; None: the drive tells which it is,
            or that is not known to half of itself.
    """

    along: float
    across: float
    delay: float
    stddevs: tuple[float, float, float]
    late: float | None = None


class _Placed(NamedTuple):
    """A maximum of the evidence: its log, (a, b, δ) and their covariance (3, 3)."""

    value: float
    at: Tensor
    covariance: Tensor


class PlaceEvidence(TrackEvidence[_Found]):
    """The evidence of a sensor that sits elsewhere on the robot, or has late stamps.

    Args:
        track: as of TrackEvidence.
        lengthscale: that is expected, m.
        kernel: name of the field's covariance function.
        finds_delay: whether the map learns how late stamps are by itself.
        axes: by which places were divided, (2,), and the robot's axes are to be; None: 1.
    """

    def __init__(
        self,
        track,
        lengthscale: float,
        kernel: str,
        finds_delay: bool = True,
        axes: Tensor | None = None,
    ):
        super().__init__(track, lengthscale, kernel, finds_delay, axes)
        self.finds_delay, self._axes = finds_delay, axes
        ahead = self._ahead
        # 1 − |h̄|² of each block, lengths along both axes taken for one
        self._turns = self.y.new_zeros(len(self.y))
        if ahead is not None:
            self._turns = (1.0 - ahead.square().sum(1)).clamp(0.0, 1.0)
            self._turns = self._turns / (1.0 if axes is None else axes.prod())
        self._best_placed: _Placed | None = None  # once it was looked for
        self._delayed: _Placed | None = None  # the best with late stamps alone, where looked for

    @property
    def _ahead(self) -> Tensor | None:
        """The robot's forward axis, as it is in the mean of each block, (N, 2)."""
        return self.track.forward if self.track.heading is None else self.track.heading

    def _shifts(self) -> Tensor | None:
        """∂x/∂v of a, b and δ, (3, N, 2); None where the robot's axes are not known."""
        ahead = self._ahead
        if ahead is None:
            return None
        both = torch.stack([ahead, ahead.flip(1) * ahead.new_tensor([-1.0, 1.0])])
        both = both if self._axes is None else both / self._axes
        return torch.cat([both, -self.track.velocity()[None]])

    def _hint(self, none: float) -> Generator[None, None, bool]:
        """Whether another place may be better, by parabolas along both axes of the robot.

        Args:
            none: log evidence where it is said to be, with the parameters that are its best.
        """
        shifts = self._shifts()
        if shifts is None:
            return False
        i, j = self._alone
        step, most = _STEP * self.lengths[i], -math.inf
        for one in torch.eye(3, dtype=shifts.dtype)[:2]:
            ahead, behind = [], []
            for sign, out in ((1.0, ahead), (-1.0, behind)):
                at = sign * step * one
                out.append(self._told_at(at, shifts, i, j))
                yield
            slope, bend = 0.5 * (ahead[0] - behind[0]), ahead[0] + behind[0] - 2.0 * none
            top = 0.5 * slope**2 / -bend if bend < 0.0 else math.inf
            most = max(most, min(top, abs(slope)), ahead[0] - none, behind[0] - none)
        return most >= 0.5 * SURE

    def _told_at(self, at: Tensor, shifts: Tensor, i: int, j: int) -> float:
        """Log evidence at (a, b, δ), with those numbers of lengthscale and ratio."""
        covariance = self._placed(at, shifts, i)
        covariance.diagonal().add_(RATIOS[j] ** 2)
        return self._evidence(covariance)

    def _placed(self, at: Tensor, shifts: Tensor, i: int) -> Tensor:
        """Of the field at (a, b, δ) with lengthscale number i, and all that is unknown: (N, N)."""
        return self._changing(at, shifts, i) + self.free

    def _changing(self, at: Tensor, shifts: Tensor, i: int) -> Tensor:
        """Of the field alone at (a, b, δ), with lengthscale number i: (N, N)."""
        covariance = self._kernel_of(self.lengths[i], self.track.x + self._moved(at, shifts))
        covariance.diagonal().add_(self._swept(at, i))
        return covariance

    def _swept(self, at: Tensor, i: int) -> Tensor:
        """Variance of a block's mean about the field at its mean place, the robot turning, (N,).

        In a block whose unit vectors ĥ have the mean h̄ the sensor's place varies by
        s² = (a² + b²)(1 − |h̄|²). The mean of both ends of ±s differs from the middle by

            k(0) + (k(0) + k(2s))/2 − 2k(s)
        """
        apart = (at[:2].square().sum() * self._turns).sqrt()
        along = torch.stack([apart, torch.zeros_like(apart)], 1)
        k = make_kernel(self.kernel, 1.0, self.lengths[i])
        none = along.new_zeros((1, 2))
        return (1.5 + 0.5 * k(2.0 * along, none) - 2.0 * k(along, none))[:, 0].clamp_min(0.0)

    def _misplaced(self) -> Generator[None, None, float]:
        """Largest log evidence of a sensor that sits elsewhere, or has late stamps."""
        if self._best_placed is None:
            shifts = self._shifts()
            if shifts is None:
                return -math.inf
            self._best_placed = yield from self._late_alone(shifts)
            if self._best_placed is None:
                self._best_placed = yield from self._anywhere(shifts)
        return self._best_placed.value

    def _late_alone(self, shifts: Tensor) -> Generator[None, None, _Placed | None]:
        """Late stamps, where the map finds these and nothing near them is better; else None."""
        if not self.finds_delay:
            return None
        alone = self._delayed = yield from self._climbed(shifts.new_zeros(3), _ALONE, shifts)
        slope, fisher = yield from self._slope(alone.at, shifts, self.start[:2])
        gain = 0.5 * slope @ torch.linalg.solve(fisher + self._loose().diag(), slope)
        # a field that seems longer along one axis may be lanes that belong a lane away
        return alone if float(gain) < 0.5 * SURE and self.anisotropy == 1.0 else None

    def _anywhere(self, shifts: Tensor) -> Generator[None, None, _Placed]:
        """The best of the maxima near some places all around.

        There are many where lanes are regular: each lane lies on another one's place. With more
        noise they are fewer, and wider.
        """
        tried, i, j = [], self.start[0], self._blurred
        for far in _FAR:
            for turn in range(_WAYS):
                angle, length = 2.0 * math.pi * turn / _WAYS, far * self.lengths[2]
                at = shifts.new_tensor([length * math.cos(angle), length * math.sin(angle), 0.0])
                tried.append((self._told_at(at, shifts, i, j), at))
                yield
        tried = sorted(tried, key=lambda each: -each[0])[:_STARTS]
        best, start = None, self.start
        for first in (shifts.new_zeros(3), *(at for _, at in tried)):
            self.start = start
            found = yield from self._climbed(first, _BESIDE, shifts)
            best = found if best is None or found.value > best.value else best
        return (yield from self._climbed(best.at, _ALL, shifts))

    @property
    def _blurred(self) -> int:
        """Number of a ratio with which maxima are wide enough to be found."""
        return max(self.start[1], _BLUR)

    def _loose(self) -> Tensor:
        """Information that keeps what is hardly told within a lengthscale, (3,)."""
        one = self.lengths[2]
        return torch.tensor([one, one, one / self.speed], dtype=torch.float64).pow(-2)

    @staticmethod
    def _moved(at: Tensor, shifts: Tensor) -> Tensor:
        """By what the places are others, (N, 2)."""
        return torch.tensordot(at, shifts, 1)

    def _climbed(
        self, first: Tensor, free: tuple[bool, bool, bool], shifts: Tensor
    ) -> Generator[None, None, _Placed]:
        """The maximum of the evidence over some of (a, b, δ), the others being 0.

        Args:
            first: to begin with.
            free: which of them.
            shifts: ∂x/∂v.
        """
        chosen = torch.tensor(free)
        at = torch.where(chosen, first, 0.0)
        numbers: tuple[int, ...] = self.start[0], self._blurred
        value = self._told_at(at, shifts, *numbers)
        covariance = torch.zeros((3, 3), dtype=torch.float64)
        for _ in range(_ROUNDS):
            slope, fisher = yield from self._slope(at, shifts, numbers)
            covariance = self._covariance(fisher, chosen)
            step = covariance @ slope
            step = step / max(1.0, float((step * self._loose().sqrt()).abs().max()) / _STRIDE)
            before = value
            for _ in range(_HALVINGS):
                told = self._told_at(at + step, shifts, *numbers)
                yield
                if told > value:
                    at, value = at + step, told
                    break
                step = 0.5 * step
            if value < before + _LITTLE:
                again = numbers
                value, numbers = yield from self._best_at(at, shifts)
                if again == numbers:
                    break
        return _Placed(value, at, covariance)

    def _covariance(self, fisher: Tensor, chosen: Tensor) -> Tensor:
        """Of those of (a, b, δ) that are chosen, (3, 3); 0 of the others."""
        whole, out = fisher + self._loose().diag(), torch.zeros_like(fisher)
        rows = chosen.nonzero()[:, 0]
        out[rows[:, None], rows] = torch.linalg.inv(whole[rows[:, None], rows])
        return out

    def _best_at(
        self, at: Tensor, shifts: Tensor
    ) -> Generator[None, None, tuple[float, tuple[int, ...]]]:
        return (yield from self._best(lambda i: self._placed(at, shifts, i)))

    def _slope(
        self, at: Tensor, shifts: Tensor, numbers: tuple[int, ...]
    ) -> Generator[None, None, tuple[Tensor, Tensor]]:
        """Gradient (3,) and Fisher information (3, 3) of the log evidence at (a, b, δ)."""
        (i, j), n = numbers, len(self.y)
        factor = torch.linalg.cholesky(self._placed(at, shifts, i) + RATIOS[j] ** 2 * self.eye)
        weights = torch.cholesky_solve(self.y, factor)
        square = (self.y * weights).sum() / n
        yield
        slope, parts = torch.zeros(3, dtype=torch.float64), []
        for k, shift in enumerate(shifts):
            small = 1e-4 * self.lengths[i] / float(shift.norm(dim=1).max().clamp_min(1e-9))
            step = small * torch.eye(3, dtype=torch.float64)[k]
            # constants of passes are 1e4: what stays is not differenced
            rise = self._changing(at + step, shifts, i)
            rise = (rise - self._changing(at - step, shifts, i)) / (2.0 * small)
            parts.append(torch.cholesky_solve(rise, factor))
            slope[k] = 0.5 * ((weights.mT @ rise @ weights)[0, 0] / square - parts[k].trace())
            yield
        traces = torch.stack([part.trace() for part in parts])
        products = torch.stack(
            [torch.stack([(one * other.mT).sum() for other in parts]) for one in parts]
        )
        return slope, 0.5 * products - 0.5 * traces[:, None] * traces / n

    def _chosen(self, none: float) -> Generator[None, None, tuple[float, SensorPlace] | None]:
        """What of place and delay is other than said, and its log evidence; None: nothing is.

        Args:
            none: log evidence where all is as said.
        """
        shifts = self._shifts()
        if shifts is None:
            return None
        value = yield from self._misplaced()
        every = self._best_placed
        if every is None or value < none + SURE:
            return None
        if self._delayed is not None and value < self._delayed.value + SURE:
            return None  # the map finds that by itself
        first = shifts.new_tensor([0.0, float(every.at[1]), 0.0])
        first[0] = every.at[0] - every.at[2] * self.speed
        beside = yield from self._climbed(first, _BESIDE, shifts)
        first = shifts.new_tensor([0.0, float(every.at[1]), -float(first[0]) / self.speed])
        late = yield from self._climbed(first, _LATE, shifts)
        best, other = (beside, late) if beside.value >= late.value else (late, beside)
        if value >= best.value + TOLD:
            return value, self._place(every)
        value = max(value, best.value)
        if best.value >= other.value + TOLD:
            return value, self._place(best)
        seconds, stddev = float(late.at[2]), float(late.covariance[2, 2].sqrt())
        told = late.value > none + SURE and abs(seconds) > _TOLD_APART * stddev
        return value, self._place(beside)._replace(late=seconds if told else None)

    @staticmethod
    def _place(found: _Placed) -> SensorPlace:
        a, b, late = found.at.tolist()
        return SensorPlace(a, b, late, tuple(found.covariance.diagonal().sqrt().tolist()))

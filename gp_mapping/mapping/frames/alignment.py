"""The rigid transform that puts a drive onto the map of another one, by their exact evidence."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.drift.alternatives import DriftTrack
from gp_mapping.mapping.drift.track_evidence import RATIOS, SURE, TrackEvidence
from gp_mapping.mapping.frames.matching import Moved, candidates, surface

__all__ = ["NOWHERE", "Aligned", "Alignment"]

_AT_ONCE = 20  # candidates that are ranked in a step
_TRIED = 6  # candidates of which the exact evidence is told
_HOPELESS = 30.0  # nats behind the best one after the first steps of a climb
_STEPS = (0.3, 0.1, 0.03, 0.01)  # of a climb to the best transform, in lengthscales
_MOVES = 40  # of a climb at one step, at most
_CURVE = 0.05  # lengthscales, of second differences
_APART = 1.0  # lengthscales between two candidates


class Aligned(NamedTuple):
    """A transform and how well it is known.

    Attributes:
        moved: from the second drive's frame to the first one's.
        volume: log of the prior volume over that of the posterior, nats.
        stddev: of the middle of the second drive, m.
        turn_stddev: rad.
    """

    moved: Moved
    volume: float
    stddev: float
    turn_stddev: float


NOWHERE = Aligned(Moved(0.0, 0.0, 0.0), 0.0, 0.0, 0.0)


class Alignment(TrackEvidence[Aligned]):
    """Looks for the transform of the second drive.

    Args:
        track: what the sensor told on both, the first drive's rows first.
        lengthscale: that is expected, m, to a factor of two.
        kernel: name of the field's covariance function.
        count: rows of the first drive.
    """

    def __init__(self, track: DriftTrack, lengthscale: float, kernel: str, count: int):
        super().__init__(track, lengthscale, kernel)
        self._arguments = track, lengthscale, kernel, count
        self._first, self._second = slice(0, count), slice(count, len(track.y))
        group = (torch.arange(len(track.y)) >= count).double()
        self._alike = (group[:, None] == group).double()
        self._middle = track.x[self._second].mean(0)
        self._radius = float(
            (track.x[self._second] - self._middle).norm(dim=1).square().mean().sqrt()
        )

    def _search(self) -> Generator[None, None, Aligned | None]:
        """The transform; None where both drives are as likely to have nothing in common."""
        separate, at = yield from self._best(lambda i: self._field(i) * self._alike)
        length, noise = self.lengths[at[0]], RATIOS[at[1]] ** 2
        base = self._field(at[0]) * self._alike + noise * self.eye
        y = self.y / self._scale(base)

        factor = torch.linalg.cholesky(base[self._first, self._first])
        kernel = make_kernel(self.kernel, 1.0, length)
        apart = self.track.x[self._second] - self._middle
        radius = float(apart.norm(dim=1).max())
        field = yield from surface(
            self.track.x[self._first], factor, y[self._first], kernel, length, radius
        )
        ranked: list[tuple[float, Moved]] = []
        for each in candidates(field, self.track.x[self._second], y[self._second], noise, length):
            ranked.append(each)
            if len(ranked) % _AT_ONCE == 0:
                yield

        climbs = [(-math.inf, NOWHERE.moved)]
        for moved in self._different(ranked, length):
            # where drives meet, they tell more of the noise than each by itself
            at = (yield from self._best(lambda i, moved=moved: self._together(i, moved)))[1]
            climbs.append((yield from self._climb(moved, at, max(climbs)[0])))
        _, moved = max(climbs)
        moved = moved._replace(yaw=math.remainder(moved.yaw, math.tau))
        value = (yield from self._best(lambda i: self._together(i, moved)))[0]
        aligned = yield from self._known(moved)
        return aligned if value - aligned.volume >= separate + SURE else None

    def _different(self, ranked: list[tuple[float, Moved]], length: float) -> list[Moved]:
        """The best candidates, each farther than a lengthscale from those before it."""
        out: list[Moved] = []
        for _, moved in sorted(ranked, reverse=True):
            if len(out) < _TRIED and all(
                self._distance(moved, other) > _APART * length for other in out
            ):
                out.append(moved)
        return out

    def _distance(self, one: Moved, other: Moved) -> float:
        """How far the second drive's places are from one another, about, m."""
        middle = self._middle[None]
        turned = math.remainder(one.yaw - other.yaw, math.tau)
        apart = float((one.places(middle) - other.places(middle)).norm())
        return math.hypot(apart, turned * self._radius)

    def _together(self, i: int, moved: Moved) -> Tensor:
        """Covariance of the field with lengthscale number i, and of what is unknown, one moved."""
        x, free = self.track.x.clone(), self.free
        x[self._second] = moved.places(x[self._second])
        if self.track.heading is not None:
            heading = self.track.heading.clone()
            heading[self._second] = heading[self._second] @ moved.turn.mT
            free = self._unknown(heading)
        return self._kernel_of(self.lengths[i], x) + free

    def _told(self, moved: Moved, at: tuple[int, ...]) -> float:
        """Log evidence with numbers of lengthscale and ratio."""
        return self._evidence(self._together(at[0], moved) + RATIOS[at[1]] ** 2 * self.eye)

    def _about(self, moved: Moved, move: tuple[float, float, float]) -> Moved:
        """A transform that is a little off.

        Args:
            moved: it.
            move: of the drive's middle along x and y, m; and of its outer places by turning, m.
        """
        yaw = moved.yaw + move[2] / max(self._radius, 1e-9)
        middle = moved.places(self._middle[None])[0] + self._middle.new_tensor(move[:2])
        turned = Moved(0.0, 0.0, yaw).places(self._middle[None])[0]
        return Moved(*(middle - turned).tolist(), yaw)

    def _climb(
        self, moved: Moved, at: tuple[int, ...], ahead: float
    ) -> Generator[None, None, tuple[float, Moved]]:
        """The best transform about one, and its evidence.

        Args:
            moved: where it begins.
            at: numbers of lengthscale and ratio.
            ahead: log evidence of the best one so far.
        """
        value = self._told(moved, at)
        for number, step in enumerate(_STEPS):
            if number and value < ahead - _HOPELESS:
                break
            for _ in range(_MOVES):
                near = []
                for axis in range(3):
                    for sign in (-1.0, 1.0):
                        move = [0.0, 0.0, 0.0]
                        move[axis] = sign * step * self.lengths[at[0]]
                        other = self._about(moved, (move[0], move[1], move[2]))
                        near.append((self._told(other, at), other))
                        yield
                if max(near)[0] <= value:
                    break
                value, moved = max(near)
        return value, moved

    def _known(self, moved: Moved) -> Generator[None, None, Aligned]:
        """How well the best transform is known: by the curvature of its evidence."""
        at, step = self.start, _CURVE * self.lengths[self.start[0]]
        told: dict[tuple[int, ...], float] = {}

        def tell(*signs: int) -> Generator[None, None, float]:
            if signs not in told:
                move = (step * signs[0], step * signs[1], step * signs[2])
                told[signs] = self._told(self._about(moved, move), at)
                yield
            return told[signs]

        curve = torch.zeros((3, 3), dtype=torch.float64)
        axes = torch.eye(3, dtype=torch.int64)
        for a in range(3):
            for b in range(a + 1):
                corners = []
                for sign, other in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                    corners.append((yield from tell(*(sign * axes[a] + other * axes[b]).tolist())))
                curve[a, b] = curve[b, a] = -(corners[0] - corners[1] - corners[2] + corners[3]) / (
                    4.0 * step**2
                )

        # a prior as wide as both drives, and all directions
        extent = (self.track.x.max(0).values - self.track.x.min(0).values).sum().clamp_min(step)
        sides = curve.new_tensor([float(extent), float(extent), math.tau * self._radius])
        values, vectors = torch.linalg.eigh(curve)
        least = 12.0 / sides.square().max()  # as a uniform prior
        covariance = (vectors / values.clamp_min(float(least))) @ vectors.mT
        posterior = 0.5 * float(torch.logdet(math.tau * covariance))
        volume = max(0.0, float(sides.log().sum()) - posterior)
        stddev = math.sqrt(float(covariance[:2, :2].trace()) / 2.0)
        turn = math.sqrt(float(covariance[2, 2])) / max(self._radius, 1e-9)
        return Aligned(moved, volume, stddev, turn)

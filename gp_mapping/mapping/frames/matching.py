"""Where a drive lies on the map of another one: rigid transforms that suit what both measured.

Of a drive at places x_i (m) with values y_i, moved by X = R(yaw)(x − c) + c + t about its middle c,
all shifts t of a lattice are compared at once, by the fast Fourier transform. With the mean m and
the variance v of the other drive's field, that of the noise σ², and an unknown constant of the
drive, the log likelihood of independent errors is

    −½ (S₂ − S₁²/S₀ + Σ log(v + σ²)),   S_k = Σ (y_i − m(X_i))ᵏ / (v(X_i) + σ²)

It ranks the candidates; the exact evidence of the best ones decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Moved", "Surface", "candidates", "surface"]

_STEP = 0.35  # lengthscales between two points of the lattice
_MOST = 192  # points of the lattice on a side of either drive
_TURNS = 24, 180  # directions that are tried, at least and at most
_TURN = 0.5  # lengthscales that the outermost place moves from one direction to the next
_EACH = 2  # candidates of a direction
# of a place that is rounded to the lattice, in variances of the field for a step of a lengthscale:
# 2/12 of the mean square slope along an axis, as of Matérn-5/2
_SLOPE = 5.0 / 18.0
_TOGETHER = 2000  # points of a lattice that are predicted at once


class Moved(NamedTuple):
    """A rigid transform X = R(yaw) x + (x, y).

    Attributes:
        x: m.
        y: m.
        yaw: rad.
    """

    x: float
    y: float
    yaw: float

    @property
    def turn(self) -> Tensor:
        """R(yaw): (2, 2)."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)

    def places(self, x: Tensor) -> Tensor:
        """X of places (N, 2), m."""
        return x @ self.turn.mT + x.new_tensor([self.x, self.y])


class Surface(NamedTuple):
    """A drive's field on a lattice, in standard deviations of the field.

    Attributes:
        low: its first point (2,), m.
        step: m.
        mean: m, (W, H).
        variance: v, (W, H).
    """

    low: np.ndarray
    step: float
    mean: np.ndarray
    variance: np.ndarray


def surface(
    x: Tensor,
    factor: Tensor,
    y: Tensor,
    kernel: Callable[[Tensor, Tensor], Tensor],
    length: float,
    radius: float,
) -> Generator[None, None, Surface]:
    """Make a drive's field, a part at each step.

    Args:
        x: places (N, 2), m.
        factor: Cholesky factor of the covariance of its values (N, N).
        y: values (N, 1).
        kernel: covariance of the field at places (N, 2) and (M, 2), its variance being 1.
        length: lengthscale, m.
        radius: of the drive that is to be put on it, m.
    """
    low, high = (x.min(0).values - length).numpy(), (x.max(0).values + length).numpy()
    step = max(_STEP * length, max(float((high - low).max()), 2.0 * radius) / _MOST)
    axes = [np.arange(low[k], high[k] + step, step) for k in range(2)]
    points = torch.from_numpy(np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2))

    weights = torch.cholesky_solve(y, factor)
    mean, variance = np.zeros(len(points)), np.ones(len(points))
    for at in range(0, len(points), _TOGETHER):
        part = slice(at, at + _TOGETHER)
        shared = kernel(points[part], x)
        mean[part] = (shared @ weights)[:, 0].numpy()
        known = torch.linalg.solve_triangular(factor, shared.mT, upper=False).square().sum(0)
        variance[part] = (1.0 - known).clamp_min(0.0).numpy()
        yield
    shape = len(axes[0]), len(axes[1])
    return Surface(low, step, mean.reshape(shape), variance.reshape(shape))


def candidates(
    field: Surface, x: Tensor, y: Tensor, noise: float, length: float
) -> Iterator[tuple[float, Moved]]:
    """The best shifts of each direction, with their log likelihoods.

    Args:
        field: of the other drive.
        x: places of this one (N, 2), m.
        y: its values (N, 1), in standard deviations of the field.
        noise: σ², in variances of the field; that of places on the lattice comes to it.
        length: lengthscale, m.
    """
    noise = noise + _SLOPE * (field.step / length) ** 2
    about = x.mean(0)
    places, values = (x - about).numpy(), (y[:, 0] - y[:, 0].mean()).numpy()
    radius = float(np.linalg.norm(places, axis=1).max())
    # a long drive on a coarse lattice
    reach = max(1, math.ceil(radius / field.step))
    shape = tuple(n + 2 * reach + 1 for n in field.mean.shape)

    usual = 1.0 / (1.0 + noise)
    weight = 1.0 / (field.variance + noise)
    weights, means, mean_squares, logs = (
        np.fft.rfft2(each, shape)
        for each in (
            weight - usual,
            weight * field.mean,
            weight * field.mean**2,
            np.log(field.variance + noise) - math.log(1.0 + noise),
        )
    )

    turns = int(np.clip(math.tau * radius / (_TURN * length), *_TURNS))
    for number in range(turns):
        yaw = math.tau * number / turns
        c, s = math.cos(yaw), math.sin(yaw)
        cells = np.rint(places @ np.array([[c, s], [-s, c]]) / field.step).astype(int) + reach
        drive = []
        for each in (np.ones(len(values)), values, values**2):
            counted = np.zeros((2 * reach + 1, 2 * reach + 1))
            np.add.at(counted, (cells[:, 0], cells[:, 1]), each)
            drive.append(np.conj(np.fft.rfft2(counted, shape)))
        counts, sums, squares = drive

        # sums over the drive's rows of what the lattice has there, for each shift
        summed = [
            np.fft.irfft2(product, shape)
            for product in (
                weights * counts,
                weights * sums - means * counts,
                weights * squares - 2.0 * means * sums + mean_squares * counts,
                logs * counts,
            )
        ]
        total = summed[0] + usual * len(values)
        first = summed[1] + usual * values.sum()
        second = summed[2] + usual * (values**2).sum()
        told = -0.5 * (second - first**2 / total + summed[3])

        for _ in range(_EACH):
            i, j = np.unravel_index(int(told.argmax()), told.shape)
            value = float(told[i, j])
            # a shift that wraps around is negative
            shift = np.array([i, j], float)
            shift -= np.where(shift >= field.mean.shape, shape, 0)
            middle = field.low + (shift + reach) * field.step
            turned = np.array([[c, -s], [s, c]]) @ about.numpy()
            yield value, Moved(*(middle - turned).tolist(), yaw)
            # its neighbours are the same one
            rows, columns = ((k + np.arange(-3, 4)) % n for k, n in zip((i, j), told.shape))
            told[np.ix_(rows, columns)] = -math.inf

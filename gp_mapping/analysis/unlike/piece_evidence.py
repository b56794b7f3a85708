"""What explains the errors of a piece of a test: poses that lie off the map, or a changed field.

Of the errors e of a piece the evidence of four explanations is told, with poses, the change, both
and neither:

    e ~ N(0, s² (C + K_c + D P Dᵀ)),     s² ≥ 1

C is the map's own covariance of these errors. D are columns of what is in each of the four (a
constant, what turns with the robot), with a wide prior P, and of poses d of which the map's
gradient makes an error −∇mᵀ d: the same all along, of three values along the way, or affine in
place, as turned or stretched poses are. Where poses explain anything, the affine ones are followed
to the places from which the map explains most (Gauss-Newton), since d need not be small beside the
field: from where the poses are, and from the best of some places all around. K_c is of a field that
has changed,

    K_c = a² g(x) g(x′) k(x, x′ | w)

k being Matérn-5/2 of lengthscale w, and g 1, or a window as wide about the place of the steepest
evidence. a, w and g are those of the largest evidence.

The field has changed where the best with a change is better than the best without by SURE nats.
Poses lie off the map where they are better by as much than nothing, and a change is not better
than them; surely, where they are better than a change by as much. Both are, where poses are better
by as much beside a change, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import solve_triangular

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.drift.alternatives import change_window

__all__ = ["Errors", "Explained", "explain"]

_SURE = 9.0  # nats: of some ten pieces, each with many changes tried
_WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)  # of a change, in lengthscales
_SIZES = (0.5, 1.0, 2.0)  # of it, in root mean squares of the errors
_WIDE = 10.0  # prior standard deviation of the columns that are always there, likewise
_ROUNDS = 5  # of Gauss-Newton
_FAR = (0.25, 0.5, 0.75)  # lengthscales off to begin at
_WAYS = 8  # in which


class Errors(NamedTuple):
    """What the map makes of a piece, if it was measured at some places.

    Attributes:
        error: e, (N, C).
        covariance: C of each channel, (N, N).
        gradient: of the map's mean, (N, C, 2), 1/m.
    """

    error: np.ndarray
    covariance: np.ndarray
    gradient: np.ndarray


class Explained(NamedTuple):
    """Which explanations a piece has.

    Attributes:
        displaced: poses lie off the map.
        surely: they do, and a change is no explanation.
        changed: the field has changed.
        change: K_c of the likeliest explanation, (N, N); None: it has no change.
        evidence: largest log evidence, by (displaced, changed).
    """

    displaced: bool
    surely: bool
    changed: bool
    change: np.ndarray | None
    evidence: dict[tuple[bool, bool], float]


def explain(
    at: Callable[[np.ndarray], Errors],
    error_at: Callable[[np.ndarray], np.ndarray],
    always: np.ndarray,
    x: np.ndarray,
    lengthscale: float,
) -> Explained:
    """Return what explains the errors of a piece.

    Args:
        at: what the map makes of it at places (N, 2).
        error_at: e of these alone, which is cheap.
        always: columns of each explanation, (N, C, K).
        x: where it was measured, (N, 2) m, in order of time.
        lengthscale: of the map, m.
    """
    here = at(x)
    size = float(np.sqrt(np.square(here.error).mean()))
    none = _evidence(here, None, [None], always, size)
    # what poses may be: the errors at some places, and the columns there
    poses = [(here, list(_pose_columns(here.gradient, x)))]
    linear = _evidence(here, None, poses[0][1], always, size)
    if linear > none + _SURE:
        far = _far(error_at, x, lengthscale)
        for off in (np.zeros(2), *([] if far is None else [far])):
            there, columns = _followed(at, off, always, x, size)
            poses.append((there, [columns]))

    best: dict[tuple[bool, bool], tuple[float, np.ndarray | None]] = {}
    for change in (None, *_changes(here, x, lengthscale, size)):
        told = {False: _evidence(here, change, [None], always, size)}
        told[True] = max(
            _evidence(errors, change, designs, always, size) for errors, designs in poses
        )
        for displaced, value in told.items():
            key = displaced, change is not None
            if key not in best or value > best[key][0]:
                best[key] = value, change

    told = {key: value for key, (value, _) in best.items()}
    moved, both = told[True, False], told[True, True]
    changed = max(told[False, True], both) >= max(none, moved) + _SURE
    rival = told[False, True] if changed else none
    displaced = (both if changed else moved) >= rival + _SURE
    likeliest = best[max(told, key=lambda key: told[key])][1]
    surely = max(moved, both) >= told[False, True] + _SURE
    return Explained(displaced, displaced and surely, changed, likeliest, told)


def _evidence(
    errors: Errors,
    change: np.ndarray | None,
    designs: list[np.ndarray | None],
    always: np.ndarray,
    size: float,
) -> float:
    """Return the largest log evidence of some columns of poses, up to a constant.

    Args:
        errors: of the piece.
        change: K_c; None: nothing has changed.
        designs: each (N, C, K), or None for no such columns.
        always: columns of each explanation.
        size: root mean square of the errors.
    """
    covariance = errors.covariance if change is None else errors.covariance + change
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:  # by rounding
        return -math.inf

    def whitened(part: np.ndarray) -> np.ndarray:
        """Return (N, C, K) with errors of unit variance, as (N C, K)."""
        flat = part.reshape(len(part), -1)
        return solve_triangular(factor, flat, lower=True).reshape(-1, part.shape[2])

    error, common = (
        whitened(errors.error[:, :, None])[:, 0],
        whitened(_scaled(always, _WIDE * size)),
    )
    n, most = len(error), -math.inf
    for design in designs:
        columns = common
        if design is not None:
            columns = np.concatenate([common, whitened(_scaled(design, size))], 1)
        inner = np.linalg.cholesky(np.eye(columns.shape[1]) + columns.T @ columns)
        part = solve_triangular(inner, columns.T @ error, lower=True)
        square = max(0.0, float(error @ error - part @ part))
        scale = max(1.0, square / n)
        most = max(
            most,
            -0.5 * (n * math.log(scale) + square / scale) - np.log(np.diagonal(inner)).sum(),
        )
    return float(most - errors.error.shape[1] * np.log(np.diagonal(factor)).sum())


def _scaled(columns: np.ndarray, size: float) -> np.ndarray:
    """Return columns (N, C, K) of that root mean square, for coefficients of N(0, I)."""
    return columns * (size / np.maximum(np.sqrt(np.square(columns).mean((0, 1))), 1e-300))


def _pose_columns(gradient: np.ndarray, x: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the columns of poses that lie off the map, (N, C, K)."""
    along = np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(x, axis=0), axis=1))]
    along /= max(along[-1], 1e-300)
    hats = np.stack([np.interp(along, (0.0, 0.5, 1.0), row) for row in np.eye(3)], 1)
    for weights in (np.ones((len(x), 1)), hats, _affine(x)):
        yield _columns(gradient, weights)


def _affine(x: np.ndarray) -> np.ndarray:
    """Return 1 and places about their middle, of order 1: (N, 3)."""
    off = x - x.mean(0)
    return np.concatenate([np.ones((len(x), 1)), off / max(float(np.abs(off).max()), 1e-300)], 1)


def _columns(gradient: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the columns −∇m w of displacements by weights (N, K), (N, C, 2 K)."""
    product = -gradient[:, :, :, None] * weights[:, None, None, :]
    return product.reshape(*gradient.shape[:2], -1)


def _followed(
    at: Callable[[np.ndarray], Errors],
    start: np.ndarray,
    always: np.ndarray,
    x: np.ndarray,
    size: float,
) -> tuple[Errors, np.ndarray]:
    """Return the errors where affine displacements explain most, and the columns there.

    Args:
        at: as of `explain`.
        start: displacement to begin with, (2,) m.
        always: columns of each explanation.
        x: where it was measured.
        size: root mean square of the errors.
    """
    weights, least = _affine(x), math.inf
    off = np.concatenate([start[:, None], np.zeros((2, weights.shape[1] - 1))], 1)
    errors = known = at(x - start)
    for _ in range(_ROUNDS):
        try:
            factor = np.linalg.cholesky(errors.covariance)
        except np.linalg.LinAlgError:  # by rounding: no step from there
            break
        columns = np.concatenate([always, _columns(errors.gradient, weights)], 2)
        scale = np.maximum(np.sqrt(np.square(columns).mean((0, 1))), 1e-300) / (_WIDE * size)
        flat = (columns / scale).reshape(len(x), -1)
        design = solve_triangular(factor, flat, lower=True).reshape(-1, columns.shape[2])
        target = solve_triangular(factor, errors.error, lower=True).reshape(-1)
        inner = np.eye(design.shape[1]) + design.T @ design
        found = np.linalg.solve(inner, design.T @ target)
        common = always.shape[2]  # columns, which come first
        left = float(np.square(target - design[:, :common] @ found[:common]).sum())
        if left >= least:
            break
        least, known = left, errors
        off = off + (found / scale)[common:].reshape(off.shape)
        errors = at(x - weights @ off.T)
    return known, _columns(known.gradient, weights)


def _far(
    error_at: Callable[[np.ndarray], np.ndarray], x: np.ndarray, lengthscale: float
) -> np.ndarray | None:
    """Return the displacement all around with the least errors; None where none has less.

    Errors are taken about their mean.
    """
    angles = 2.0 * np.pi * np.arange(_WAYS) / _WAYS
    around = np.stack([np.cos(angles), np.sin(angles)], 1)
    tried = np.concatenate([np.zeros((1, 2)), *(far * lengthscale * around for far in _FAR)])
    best = int(np.argmin([float(error_at(x - off).var(0).sum()) for off in tried]))
    return tried[best] if best else None


def _changes(
    errors: Errors, x: np.ndarray, lengthscale: float, size: float
) -> Iterator[np.ndarray]:
    """Yield K_c of changes: of all widths and sizes, in one place and all along."""
    places = torch.from_numpy(x)
    apart = (places[:, None] - places).norm(dim=2)
    base = torch.from_numpy(errors.covariance) + (_WIDE * size) ** 2  # a constant
    most = int(np.square(errors.error).mean(0).argmax())
    channel = torch.from_numpy(errors.error[:, most : most + 1].copy())
    for width in _WIDTHS:
        inside = make_kernel("matern52", 1.0, width * lengthscale)(places, places)
        window = change_window(base, channel, inside, apart, width * lengthscale)
        for kernel in (inside, window[:, None] * window * inside):
            for each in _SIZES:
                yield (each * size) ** 2 * kernel.numpy()

"""Wild values among the first cells, which came before a map could judge them.

Each is compared with what all others say at its place, under the starts that were just found
(Rasmussen and Williams 2006, section 5.4.2):

    r_i = [C⁻¹ y]_i/[C⁻¹]_ii,   v_i = 1/[C⁻¹]_ii,   C = K + σ² W⁻¹

with the weights W of the look before, so that a wild cell does not make its neighbours wild. Beyond
five standard deviations it is suspect, as later cells are. It weighs as a Student's t has it where
it lies beyond twelve, as for first values, once the starts are found without it: a narrow source
is suspect while starts are rough, too. Neighbours that agree with a cell keep r small. A
source that is narrower than two cells, and passed once, looks as a wild cell does.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.types import Samples
from gp_mapping.mapping.scoring.change import student_weight
from gp_mapping.settings.mapping import MapSettings

__all__ = ["UNLIKELY", "first_weights", "in_runs", "weakened"]

_SUSPECT, _FAR = 5.0, 12.0  # standard deviations at the first look, and at later ones
UNLIKELY = 3.0  # standard deviations beyond which a cell has no part in starts beside wild ones
_AGREE = 3  # in a row are no error, as of first values
_TOGETHER = 256  # cells that speak of each other; a robot that stands makes many more
_LEVEL = 100.0  # variance of the unknown level, in that of the field


def first_weights(
    x: Tensor,
    y: Tensor,
    settings: MapSettings,
    before: Tensor | None = None,
    gate: float | None = None,
) -> Tensor:
    """Weight of each of the first cells but the newest, which nothing has confirmed: (N,).

    Of more than 256, those that follow each other are asked together.

    Args:
        x: places (N, 2), m.
        y: values (N, C), SI.
        settings: with the starts that were found from them.
        before: weights (N,) with which they speak of each other; 1 if None.
        gate: standard deviations beyond which a cell is weakened; None: five at the first look,
            twelve at later ones.
    """
    gate = gate or (_SUSPECT if before is None else _FAR)
    # the newest does not speak of the others either
    x, y = x[:-1], y[:-1]
    known = torch.ones(len(x), dtype=torch.float64) if before is None else before[:-1]
    blocks = zip(x.split(_TOGETHER), y.split(_TOGETHER), known.split(_TOGETHER))
    weights = [_weights(*block, settings, gate) for block in blocks if len(block[0])]
    return torch.cat([*weights, torch.ones(1, dtype=torch.float64)])


def _weights(x: Tensor, y: Tensor, before: Tensor, settings: MapSettings, gate: float) -> Tensor:
    """Weights of cells by what they say of each other: (N,).

    Args:
        x: places (N, 2), m.
        y: values (N, C), SI.
        before: weights (N,) with which they speak.
        settings: with the starts.
        gate: standard deviations beyond which a cell is weakened.
    """
    signal = settings.signal_stddev
    noise = torch.full((len(x),), (settings.noise_stddev / signal) ** 2, dtype=torch.float64)
    counted = noise / before
    covariance = make_kernel(settings.kernel, 1.0, settings.lengthscale)(x, x) + _LEVEL
    factor, failed = torch.linalg.cholesky_ex(covariance + counted.diag())
    if int(failed):
        return torch.ones(len(x), dtype=torch.float64)

    precision = torch.cholesky_inverse(factor)
    about = (y - y.median(0).values) / signal
    variance = precision.diagonal().reciprocal()
    residual = (precision @ about) * variance[:, None]
    squares = residual.square().mean(1) / (variance - counted + noise)
    weights = [student_weight(square, gate * gate) for square in squares.tolist()]
    return torch.tensor(weights, dtype=torch.float64)


def in_runs(wild: Tensor) -> Tensor:
    """Which wild cells (N,) come with others in a row: enough of them are the field (N,)."""
    out = torch.zeros_like(wild)
    for i in range(len(wild) - _AGREE + 1):
        if bool(wild[i : i + _AGREE].all()):
            out[i : i + _AGREE] = True
    return out


def weakened(cells: list[Samples], weights: Tensor, noise_stddev: float) -> list[Samples]:
    """The cells, each with the sensor variance that gives it its weight.

    Args:
        cells: batch by batch, N rows in all.
        weights: of each row (N,).
        noise_stddev: of a cell, SI.
    """
    out, first = [], 0
    for batch in cells:
        own, first = weights[first : first + len(batch)], first + len(batch)
        if bool((own < 1.0).any()):
            count = torch.ones_like(own) if batch.count is None else batch.count
            least = count * noise_stddev**2 * (1.0 / own - 1.0)
            known = batch.sensor_variance
            variance = least if known is None else known.maximum(least)
            batch = replace(batch, sensor_variance=variance)
        out.append(batch)
    return out

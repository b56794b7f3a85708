"""Predictions of several posteriors in one batched computation, each at places of its own.

A card spends its time on large products; one posterior after the other it waits for many small
ones. T posteriors are padded to a common number M of inducing inputs, and to N places each:

    k_t = s_t² ρ(|x/ℓ_t − z/ℓ_t|)                                          (T, N, M)
    a_t = [features; L_t⁻¹ k_tᵀ]                                           (T, F + M, N)
    mean_t = a_tᵀ w_t                                                      (T, N, C)
    variance_t = s_t² + s_c² + s_h²|ĥ|² − |a_t|² + |R_t⁻¹ a_t|²            (T, N)

with the symbols of posterior.py, each posterior at its own θ. Factors are padded with the identity,
k_t with zeros, so padding adds zeros to every sum. How many operations there are, and how often the
processor waits for the card, does not depend on T.

Padding costs work and memory: `batches` forms batches of posteriors of like size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import tensor_on, to_device
from gp_mapping.core.hyper.theta import heading_from_velocity, sensor_place
from gp_mapping.core.kernels.stationary import Stationary, distances, single_square_distance
from gp_mapping.core.linalg import solve_lower
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.core.types import Prediction

__all__ = [
    "MOST_NUMBERS",
    "Ragged",
    "batch_kind",
    "batches",
    "padded_factors",
    "predict_together",
]

# Numbers of the largest array of a batch, 128 MiB in float64; about eight such are alive at once.
MOST_NUMBERS = 2**24
_PADDED = 2.0  # work of a batch with its padding, at most, as a multiple of the work without


def batch_kind(posterior: object) -> tuple | None:
    """What posteriors must have in common to be predicted together.

    Args:
        posterior: of any kind.

    Returns:
        None for one that has to be asked alone: of another form than the equations above.
    """
    if type(posterior) is not Posterior or posterior.orthogonal is not None:
        return None
    theta, names = posterior.theta, posterior.theta.feature_names()
    if len(posterior.R) != len(names) + len(posterior.z):
        return None  # rows of a(x) that keep their prior
    if not isinstance(theta.kernel(), Stationary):
        return None
    shape = theta.kernel_name, theta.long_share, theta.long_ratio
    return (*shape, tuple(names), posterior.L.dtype, posterior.weights.shape[1])


def batches(kinds: Sequence[tuple], sizes: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Which posteriors to predict together: of one kind and of like size.

    A triangular solve with R rows for n places takes R² n. That of a batch, whose largest have R'
    rows and n' places, takes T R'² n', which is at most twice Σ R² n.

    Args:
        kinds: `batch_kind` of each posterior.
        sizes: of each the rows R of a(x), and the places n at which it is asked.

    Returns:
        Batches of their numbers, each in order, by their first ones. None has an array of more than
        MOST_NUMBERS numbers, unless one posterior alone has.
    """
    work = [max(1, rows**2 * places) for rows, places in sizes]
    by_work = sorted(range(len(sizes)), key=lambda i: -work[i])
    found: list[list[int]] = []
    for kind in dict.fromkeys(kinds):
        batch: list[int] = []
        for i in (i for i in by_work if kinds[i] == kind):
            together = [*batch, i]
            rows, places = (max(sizes[k][axis] for k in together) for axis in (0, 1))
            padded = len(together) * max(1, rows**2 * places)
            if batch and (
                padded > _PADDED * sum(work[k] for k in together)
                or len(together) * rows * max(rows, places) > MOST_NUMBERS
            ):
                found.append(batch)
                together = [i]
            batch = together
        found.append(batch)
    return sorted(sorted(batch) for batch in found if batch)


class Ragged:
    """T lists of rows of different length, one after the other, and padded to the longest.

    Args:
        counts: the lengths.
        device: of the rows.
    """

    def __init__(self, counts: Sequence[int], device: torch.device):
        self.shape = len(counts), max(counts)
        lengths = tensor_on(device, counts, torch.long)
        within = torch.arange(self.shape[1], device=device)
        self.there = within < lengths[:, None]  # (T, longest)

        lists = torch.arange(len(counts), device=device)
        self.list = lists.repeat_interleave(lengths, output_size=sum(counts))  # of each row
        before = (lengths.cumsum(0) - lengths)[self.list]
        self.place = torch.arange(sum(counts), device=device) - before  # in its list

    def padded(self, rows: Tensor) -> Tensor:
        """Rows (Σ n, …) as (T, longest, …), zeros beyond each list."""
        whole = rows.new_zeros((*self.shape, *rows.shape[1:]))
        whole[self.list, self.place] = rows
        return whole

    def rows(self, padded: Tensor) -> Tensor:
        """The rows (Σ n, …) of (T, longest, …)."""
        return padded[self.list, self.place]


class _Numbers:
    """Hyper-parameters of T posteriors as columns (T, 1), for sums over the places of each.

    Args:
        posteriors: T of them.

    Attributes:
        signal: s².
        constant: s_c.
        body: s_h.
        arm: δ, along and across: where the sensor was.
        scale: SI per inner unit.
        lengthscales: ℓ, (T, 1, D).
    """

    def __init__(self, posteriors: Sequence[Posterior]):
        z = posteriors[0].z
        rows = [
            (
                theta.signal_stddev**2,
                theta.constant_stddev,
                theta.heading_stddev,
                *(theta.time_offset, theta.lever_arm_along, theta.lever_arm_across),
                scale,
                *_lengthscales(theta.kernel(), z.shape[1]),
            )
            for theta, scale in ((p.theta, p.scaling.scale) for p in posteriors)
        ]
        columns = tensor_on(z.device, rows, torch.float64).mT[:, :, None]
        self.signal, self.constant, self.body, *self.arm, self.scale = columns[:7].unbind()
        self.lengthscales = columns[7:].permute(1, 2, 0)


def predict_together(
    posteriors: Sequence[Posterior],
    counts: Sequence[int],
    x: Tensor,
    velocity: Tensor | None = None,
    heading: Tensor | None = None,
) -> Prediction:
    """As FieldMap.predict, of T posteriors of one kind (`batch_kind`).

    Args:
        posteriors: at least one.
        counts: how many of the places each is asked at, in order.
        x: (P, D) m, the places of the first posterior, then those of the second, and so on.
        velocity: (P, D) m/s, or None.
        heading: ĥ (P, 2); the direction of travel if None.

    Returns:
        The prediction at all places (P, C), each by its own posterior; the noise is the first's.
    """
    first, numbers = posteriors[0], _Numbers(posteriors)
    device, dtype = first.z.device, first.L.dtype
    asked = Ragged(counts, device)

    # places about each posterior's origin, where the sensor was: (P, D)
    origins, centres = (
        torch.stack([getattr(p.scaling, name) for p in posteriors])[asked.list]
        for name in ("origin", "centre")
    )
    x = to_device(x, device) - origins
    if velocity is None:
        heading = None  # without a motion it is the field that is predicted
    else:
        velocity = to_device(velocity, device)
        heading = heading_from_velocity(velocity) if heading is None else to_device(heading, device)
        x = sensor_place(x, velocity, heading, *(part[asked.list] for part in numbers.arm))

    features = _padded_features(first, numbers, asked, heading)
    prior = numbers.signal + numbers.constant**2
    if first.theta.heading_stddev > 0:
        prior = prior + features[-1].square().sum(1)
    cross = _padded_cross(posteriors, numbers, asked.padded(x))
    factors = padded_factors([p.L for p in posteriors], cross.shape[2])
    a = torch.cat([*(rows.to(dtype) for rows in features), solve_lower(factors, cross.mT)], 1)
    roots = padded_factors([p.R for p in posteriors], a.shape[1]).to(dtype)
    explained = a.square().sum(1) - solve_lower(roots, a).square().sum(1)

    rows = Ragged([len(p.weights) for p in posteriors], device)
    weights = rows.padded(torch.cat([p.weights for p in posteriors])).to(dtype)
    mean = asked.rows((a.mT @ weights).double())
    variance = asked.rows((prior - explained.double()).clamp_min(0.0))

    scale = numbers.scale[asked.list]  # (P, 1)
    return Prediction(
        mean * scale + centres,
        (variance[:, None] * scale**2).expand(-1, mean.shape[1]),
        first.scaling.outer(mean[:0], variance[:0], first.noise_variance).noise_variance,
    )


def _padded_features(
    first: Posterior, numbers: _Numbers, asked: Ragged, heading: Tensor | None
) -> list[Tensor]:
    """The features of places: s_c (T, 1, N), then s_h ĥ (T, 2, N), as far as there are any.

    Args:
        first: of the posteriors, which have the same features.
        numbers: of all.
        asked: which place is whose.
        heading: ĥ (P, 2), or None.
    """
    features = []
    if first.theta.constant_stddev > 0:
        features.append(numbers.constant[:, None].expand(-1, 1, asked.shape[1]))
    if first.theta.heading_stddev > 0:
        headings = numbers.body.new_zeros((len(asked.list), 2)) if heading is None else heading
        features.append(asked.padded(headings).mT * numbers.body[:, None])
    return features


def _padded_cross(posteriors: Sequence[Posterior], numbers: _Numbers, places: Tensor) -> Tensor:
    """k_t between places (T, N, D), standardised, and inducing inputs: (T, N, M), 0 beyond each."""
    dtype, kernel = posteriors[0].L.dtype, posteriors[0].theta.kernel()
    inputs = Ragged([len(p.z) for p in posteriors], places.device)
    z = inputs.padded(torch.cat([p.z for p in posteriors]))
    if dtype == torch.float64:
        distance = distances(places / numbers.lengthscales, z / numbers.lengthscales)
    else:
        distance = single_square_distance(places, z, numbers.lengthscales).sqrt_()
    cross = kernel.from_distance(distance).mul_(numbers.signal[:, :, None].to(dtype))
    # padded columns would cancel in the variance, but for rounding
    return cross.mul_(inputs.there[:, None])


def _lengthscales(kernel: Stationary, dimensions: int) -> list[float]:
    """ℓ along each axis, m."""
    lengthscale = kernel.lengthscale
    if torch.is_tensor(lengthscale):
        return lengthscale.tolist()
    return [float(lengthscale)] * dimensions


def padded_factors(factors: Sequence[Tensor], size: int) -> Tensor:
    """Triangular factors (n, n) of different size as (T, size, size), the identity beyond each.

    They are brought together by one copy, whether they are stored by rows or by columns.
    """
    by_rows = [factor.is_contiguous() for factor in factors]
    flat = torch.cat([(f if rows else f.mT).reshape(-1) for f, rows in zip(factors, by_rows)])

    # of each: where it begins, its size, and from row to row and column to column
    about: list[tuple[int, int, int, int]] = []
    start = 0
    for factor, rows in zip(factors, by_rows):
        n = len(factor)
        about.append((start, n, *((n, 1) if rows else (1, n))))
        start += n * n
    begin, n, down, across = tensor_on(flat.device, about, torch.long).mT[:, :, None, None]

    index = torch.arange(size, device=flat.device)
    i, j = index[:, None], index
    inside = (i < n) & (j < n)
    at = (begin + i * down + j * across).masked_fill_(inside.logical_not(), 0)
    return torch.where(inside, flat[at], torch.eye(size, dtype=flat.dtype, device=flat.device))

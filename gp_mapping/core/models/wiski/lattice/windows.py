"""The posterior variance from nearby data: small dense GPs on aggregates within two lengthscales.

    var(x) = k(x, x) − k(x, z)(k(z, z) + M⁻¹)⁻¹k(z, x) + (φ − t)ᵀ Σ (φ − t)
    t = Φᵀ(k(z, z) + M⁻¹)⁻¹k(z, x)

z, M: places and masses of the aggregates. Σ: covariance of the features' weights given all data.
k is the kernel itself and not w K_uu wᵀ, so what structured interpolation drops, k(x, x) − w K_uu
wᵀ, is included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import add_rows
from gp_mapping.core.kernels.stationary import Stationary
from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.models.wiski.lattice.features import COVARIATES, feature_rows

__all__ = [
    "Aggregates",
    "Window",
    "feature_covariance",
    "feature_posterior",
    "fits_one_window",
    "groups",
    "rim_thinned",
    "thinned",
]

_WHOLE = 700  # aggregates up to which one window holds them all
_FULL = 600  # aggregates of a window; beyond, its rim is thinned
_MOST = 1200  # beyond, it is halved, and in the end thinned further
_HALO = 2.0  # lengthscales about a window's places
_FEATURE_AGGREGATES = 1000  # the most from which the features' weights are computed
_CURVATURE = 6.25  # (½ sd of the field's second derivative, in s/ℓ²)², of Matérn-5/2


@dataclass(frozen=True)
class Aggregates:
    """Weighted samples, sorted by squares of two lengthscales.

    Attributes:
        x: (K, 2) places.
        covariates: (K, 2 + P) mean headings and shares of passes.
        mass: (K,) precisions.
        code: (K,) number of each one's square, ascending.
        side: of a square, m.
        value: (K, C) mean values, where they are known.
        spread: (K,) m², mean squared distance of what was merged; None: nothing was.
    """

    x: Tensor
    covariates: Tensor
    mass: Tensor
    code: Tensor
    side: float
    value: Tensor | None = None
    spread: Tensor | None = None

    @staticmethod
    def from_samples(
        x: Tensor, covariates: Tensor, mass: Tensor, lengthscale: float, value: Tensor | None = None
    ) -> "Aggregates":
        """Aggregates of weighted samples in any order.

        Args:
            x: (K, 2) places, m.
            covariates: (K, 2 + P) ĥ and passes.
            mass: (K,) precisions.
            lengthscale: m.
            value: (K, C) values, or None.
        """
        side = _HALO * lengthscale
        code = _code((x / side).floor().long())
        code, order = code.sort(stable=True)
        return Aggregates(
            x[order],
            covariates[order],
            mass[order],
            code,
            side,
            None if value is None else value[order],
        )

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: Tensor) -> "Aggregates":
        """Aggregates of the given indices, whose order must be ascending for `around`."""
        return Aggregates(
            self.x[index],
            self.covariates[index],
            self.mass[index],
            self.code[index],
            self.side,
            None if self.value is None else self.value[index],
        )

    def around(self, low: Tensor, high: Tensor) -> "Aggregates":
        """Aggregates within two lengthscales of a box that is no larger than a square.

        Args:
            low: lower corner (2,), m.
            high: upper corner (2,), m.
        """
        first, last = (
            ((v + s * self.side) / self.side).floor().long() for v, s in ((low, -1.0), (high, 1.0))
        )

        rows = torch.arange(int(first[0]), int(last[0]) + 1, device=self.x.device)
        ends = torch.stack(
            [
                _code(torch.stack([rows, last[1].expand_as(rows)], 1)) + 1,
                _code(torch.stack([rows, first[1].expand_as(rows)], 1)),
            ]
        )

        stop, start = torch.searchsorted(self.code, ends).tolist()
        parts = [torch.arange(a, b, device=self.x.device) for a, b in zip(start, stop) if b > a]
        if not parts:
            return self.take(torch.zeros(0, dtype=torch.long, device=self.x.device))

        index = torch.cat(parts)
        x = self.x[index]
        return self.take(index[((x >= low - self.side) & (x <= high + self.side)).all(1)])


def _code(square: Tensor) -> Tensor:
    """One number for each square (N, 2), ordered by row, then column."""
    return square[:, 0] * (1 << 31) + square[:, 1] + (1 << 30)


def thinned(aggregates: Aggregates, side: float, which: Tensor | None = None) -> Aggregates:
    """Merge aggregates on squares: masses add, places, covariates and values average by mass.

    Args:
        aggregates: K of them.
        side: of the squares, m.
        which: (K,) those that may be merged; None for all.
    """
    key = _code((aggregates.x / side).floor().long())
    if which is not None:
        # the others stay: each has a key of its own, below every other
        key = torch.where(which, key, -(1 << 62) + torch.arange(len(key), device=key.device))
    _, owner = key.unique(return_inverse=True)
    return _merged(aggregates, owner)


def pass_by_pass(aggregates: Aggregates, side: float) -> Aggregates:
    """Merge aggregates on squares as `thinned`, those of different passes apart.

    What passes that cross say of each other's constants would be lost in a common mean.

    Args:
        aggregates: K of them.
        side: of the squares, m.
    """
    square = _code((aggregates.x / side).floor().long())
    passes = aggregates.covariates[:, COVARIATES:]
    mostly = passes.argmax(1) if passes.shape[1] else torch.zeros_like(square)
    _, owner = torch.stack([square, mostly], 1).unique(dim=0, return_inverse=True)
    return _merged(aggregates, owner)


def _merged(aggregates: Aggregates, owner: Tensor) -> Aggregates:
    """Merge aggregates that have the same owner (K,)."""
    count = int(owner.max()) + 1 if len(owner) else 0
    value = [] if aggregates.value is None else [aggregates.value]
    x, width = aggregates.x, 3 + aggregates.covariates.shape[1]
    parts = [torch.ones_like(x[:, :1]), x, aggregates.covariates, *value]
    total = torch.cat(parts, 1) * aggregates.mass[:, None]
    sums = add_rows(total.new_zeros((count, total.shape[1])), owner, total)

    mass = sums[:, :1]
    places = sums[:, 1:3] / mass

    apart = (x - places[owner]).square().sum(1)
    if aggregates.spread is not None:
        apart = apart + aggregates.spread
    spread = add_rows(mass.new_zeros(count), owner, apart * aggregates.mass) / mass[:, 0]

    # the codes have just the right length: nobody calls `around` of merged aggregates
    return Aggregates(
        places,
        sums[:, 3:width] / mass,
        mass[:, 0],
        aggregates.code[:count],
        aggregates.side,
        sums[:, width:] / mass if value else None,
        spread,
    )


def fits_one_window(aggregates: Aggregates) -> bool:
    """Whether the aggregates of a whole map are few enough to factor."""
    return len(aggregates) <= _WHOLE


def groups(aggregates: Aggregates, x: Tensor, lengthscale: float):
    """Parts of the places x (N, 2), each with aggregates that are few enough to factor.

    Args:
        aggregates: all of the map's.
        x: (N, 2) places.
        lengthscale: m.

    Yields:
        Indices of x, and the aggregates for them.
    """
    if fits_one_window(aggregates):
        yield torch.arange(len(x), device=x.device), aggregates
        return

    code, order = _code((x / aggregates.side).floor().long()).sort(stable=True)
    cuts = (code[1:] != code[:-1]).nonzero()[:, 0] + 1
    for index in order.tensor_split(cuts.cpu()):
        yield from _split(aggregates, x, index, lengthscale)


def _split(aggregates: Aggregates, x: Tensor, index: Tensor, lengthscale: float):
    """As `groups`, for the places of one square; halved and thinned as far as it must be."""
    if not len(index):
        return
    places = x[index]
    low, high = places.min(0).values, places.max(0).values

    near = aggregates.around(low, high)
    # far aggregates change the variance little: the rim is merged first
    if len(near) > _FULL:
        near = rim_thinned(near, low, high, lengthscale, 0.125 * lengthscale)
    if len(near) > _MOST:
        near = rim_thinned(near, low, high, 0.5 * lengthscale, 0.125 * lengthscale)
    if len(near) > _MOST:
        span, axis = (high - low).max(0)
        if float(span) > 0.25 * lengthscale:
            lower = places[:, axis] <= 0.5 * (low[axis] + high[axis])
            yield from _split(aggregates, x, index[lower], lengthscale)
            yield from _split(aggregates, x, index[~lower], lengthscale)
            return

        # not to be halved any more: thinned until it fits
        for reach, side in (
            (0.5, 0.25),
            (0.25, 0.125),
            (0.25, 0.25),
            (0.125, 0.25),
            (0.125, 0.5),
            (0.0, 0.5),
        ):
            near = rim_thinned(near, low, high, reach * lengthscale, side * lengthscale)
            if len(near) <= _MOST:
                break

    yield index, near


def rim_thinned(
    aggregates: Aggregates, low: Tensor, high: Tensor, reach: float, side: float
) -> Aggregates:
    """Merge the aggregates that lie away from a box of places.

    Args:
        aggregates: all of them.
        low: (2,) corner of the box, m.
        high: (2,) corner of the box, m.
        reach: distance from the box within which they stay as they are, m.
        side: of the squares on which the others are merged, m.
    """
    return thinned(
        aggregates, side, ((aggregates.x < low - reach) | (aggregates.x > high + reach)).any(1)
    )


class Window:
    """A dense GP on a few aggregates, factored: k(z, z) + M⁻¹ = R Rᵀ.

    Args:
        kernel: k.
        aggregates: at z, of mass M (K,) and, where they are known, values.
    """

    def __init__(self, kernel: Stationary, aggregates: Aggregates):
        self.kernel, self.aggregates = kernel, aggregates
        gram = kernel(aggregates.x, aggregates.x)
        gram.diagonal().add_(1.0 / aggregates.mass)
        self.factor, _ = cholesky(gram)

        self.whitened_phi = solve_lower(self.factor, feature_rows(aggregates.covariates))
        self.whitened_value = (
            None if aggregates.value is None else solve_lower(self.factor, aggregates.value)
        )

    def solved_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """R⁻¹k(z, x) (K, N) and t(x) (N, F), at places x (N, 2)."""
        whitened = solve_lower(self.factor, self.kernel(self.aggregates.x, x))
        return whitened, whitened.mT @ self.whitened_phi


def feature_covariance(
    kernel: Stationary, aggregates: Aggregates, scatter: Tensor, prior: Tensor, lengthscale: float
) -> Tensor:
    """Covariance Σ (F, F) of the features' weights. As `feature_posterior` for the arguments."""
    return feature_posterior(kernel, aggregates, scatter, None, prior, lengthscale)[0]


def feature_posterior(
    kernel: Stationary,
    aggregates: Aggregates,
    scatter: Tensor,
    linear: Tensor | None,
    prior: Tensor,
    lengthscale: float,
) -> tuple[Tensor, Tensor | None]:
    """Covariance and mean of the features' weights given all data.

        Σ = (S⁻¹ + scatter + Φᵀ(k(z, z) + M⁻¹)⁻¹Φ)⁻¹,   f = Σ (linear + Φᵀ(k(z, z) + M⁻¹)⁻¹ ȳ)

    Of many aggregates, coarser ones stand in: the features are common to all of the map, and coarse
    aggregates, which pretend to see single places, make Σ a little too large. Passes are told apart
    by their differences from each other: they are merged each by itself, and by how much the field
    curves within a coarse aggregate its value is less certain, ¼ var f″ (spread)².

    Args:
        kernel: k.
        aggregates: with values ȳ where `linear` is given.
        scatter: (F, F) what the features' spread within aggregates tells.
        linear: (F, C) the same of the values; None leaves the mean out.
        prior: (F,) variances S; Σ and f are 0 where they are.
        lengthscale: m.

    Returns:
        Σ (F, F), and f (F, C) or None.
    """
    side, passes = 0.125 * lengthscale, aggregates.covariates.shape[1] > COVARIATES
    while len(aggregates) > _FEATURE_AGGREGATES:
        merged = (pass_by_pass if passes else thinned)(aggregates, side)
        # many passes in small squares: what remains to be merged is of different ones
        passes = passes and side < 2.0 * lengthscale
        aggregates, side = merged, 2.0 * side
    if passes and aggregates.spread is not None:
        curved = _CURVATURE * kernel.variance * (aggregates.spread / lengthscale**2).square()
        curved = curved.clamp_max(2.0 * kernel.variance)
        aggregates = replace(aggregates, mass=1.0 / (1.0 / aggregates.mass + curved))
    use = (prior > 0).nonzero()[:, 0]

    size = len(prior)
    covariance, mean = torch.zeros((size, size), dtype=torch.float64, device=prior.device), None
    if linear is not None:
        mean = torch.zeros_like(linear)
    if not len(use):
        return covariance, mean

    precision, pull = (
        torch.diag(1.0 / prior[use]) + scatter[use][:, use],
        None if mean is None else linear[use],
    )

    if len(aggregates):
        window = Window(kernel, aggregates)
        whitened = window.whitened_phi[:, use]
        precision = precision + whitened.mT @ whitened
        if mean is not None:
            pull = pull + whitened.mT @ window.whitened_value

    factor = cholesky(precision)[0]
    covariance[use[:, None], use] = torch.cholesky_inverse(factor)
    if mean is not None:
        mean[use] = torch.cholesky_solve(pull, factor)
    return covariance, mean

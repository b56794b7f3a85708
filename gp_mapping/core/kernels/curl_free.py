"""Kernels of vector fields that are the gradient of one scalar potential, B = ∇φ.

    k_cd(x, x') = ∂_c ∂'_d k_φ(x, x')

A row of data is a place and a component: (x, y, c) in the plane z = 0, or (x, y, z, c). Below,
d = x − x' and r = |d|.

CurlFreeKernel: k = s² [δ_cd ρ(r) + d_c d_d ρ'(r)/r], −k_φ'(r)/r = s² ρ(r) (Solin et al. 2018,
sec. IV, whose RBF potential is ρ's RBF). In a plane it leaves the vertical component independent of
the others.

HarmonicKernel: where there is neither current nor iron, ∇²φ = 0 as well, so B has no divergence,
either. With sources below a depth H/2 only, k_φ ∝ 1/√(d_x² + d_y² + h²), h = H + z + z' (Poisson's
integral); with sources above, its mirror image. The vertical component is then as strong as both
others together and, if the sources are on one side, follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.kernels.stationary import RBF, Kernel, Matern32, Matern52

__all__ = [
    "COMPONENTS",
    "POTENTIALS",
    "CurlFreeKernel",
    "HarmonicKernel",
    "by_component",
    "to_rows",
]

COMPONENTS = 3
POTENTIALS = ("harmonic", "free")
_FIELDS = {"rbf": RBF, "matern32": Matern32, "matern52": Matern52}
# H/ℓ: then the vertical component's correlation falls off at first like that of an RBF of ℓ
_DEPTH = 6.0**0.5


def to_rows(x: Tensor) -> Tensor:
    """Rows (3N, D + 1) of places x (N, D), D 2 or 3; the last column is the component 0, 1, 2."""
    component = torch.arange(COMPONENTS, dtype=x.dtype, device=x.device).repeat(len(x))
    return torch.cat([x.repeat_interleave(COMPONENTS, 0), component[:, None]], 1)


def by_component(values: Tensor) -> Tensor:
    """Values of rows (3N, …) as (N, 3, …)."""
    return values.reshape(-1, COMPONENTS, *values.shape[1:])


def split(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Split rows into places (N, 3), z = 0 in the plane, and components (N,)."""
    place = rows[:, :-1]
    if place.shape[1] == 2:
        place = torch.nn.functional.pad(place, (0, 1))
    return place, rows[:, -1].detach().round().long()


def _selectors(component: Tensor) -> Tensor:
    """One-hot components, (N, 3), in the dtype of the rows."""
    kinds = torch.arange(COMPONENTS, dtype=component.dtype, device=component.device)
    return (component.detach().round()[:, None] == kinds).to(component.dtype)


def _differences(left: Tensor, c: Tensor, right: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Differences x − x' along the left row's component, and along the right row's: (N, K) each."""
    along = left.gather(1, c[:, None]) - right.mT[c]
    across = left[:, d] - right.gather(1, d[:, None]).mT
    return along, across


def _square(left: Tensor, right: Tensor, axes: int) -> Tensor:
    """Squared distance over the first `axes` coordinates, (N, K)."""
    total = torch.zeros(len(left), len(right), dtype=left.dtype, device=left.device)
    for axis in range(axes):
        difference = left[:, axis, None] - right[None, :, axis]
        total = torch.addcmul(total, difference, difference)
    return total


@dataclass(frozen=True)
class CurlFreeKernel(Kernel):
    """Kernel of a field without curl; see the module's equations.

    Attributes:
        variance: s², of each component.
        lengthscale: ℓ of the field across d, metres.
        name: of ρ. matern12 is refused: its potential has no second derivatives.
    """

    variance: float
    lengthscale: float
    name: str = "matern52"

    def __post_init__(self):
        if self.name not in _FIELDS:
            raise ValueError(
                f"a curl-free field has kernel {', '.join(_FIELDS)}, not {self.name!r}"
            )

    def __call__(self, a, b):
        """As Kernel.__call__, of rows: the last column is the component."""
        (left, c), (right, d) = split(a), split(b)
        kind, ell = _FIELDS[self.name], self.lengthscale
        along, across = _differences(left, c, right, d)
        square = _square(left, right, a.shape[1] - 1) / ell**2

        # ρ'(r)/r = 2 ∂ρ/∂(r²)
        out = along * across * (kind.slope(square) * (2.0 / ell**2))
        return self.variance * (out + kind.correlation(square) * (c[:, None] == d[None, :]))

    def diag(self, a):
        """Prior variance s² of each component, (N,)."""
        return a.new_full((len(a),), self.variance)


@dataclass(frozen=True)
class HarmonicKernel(Kernel):
    """Kernel of a field without curl and divergence.

        k = s² H³/2 [±δ_cd/ρ³ − 3 u_c u'_d/ρ⁵],   ρ² = d_x² + d_y² + h²
        u = (d_x, d_y, h),   u' = (d_x, d_y, −h),   the sign is − at c = z

    Attributes:
        variance: s², of the vertical component at z = 0; each of the others has half of it.
        lengthscale: ℓ, metres; H = √6 ℓ.
        coherence: γ in [−1, 1]; (1 + γ)/2 of the variance comes from sources below.
    """

    variance: float
    lengthscale: float
    coherence: float = 0.0

    @property
    def depth(self) -> float:
        """H, metres: twice the least depth of the sources."""
        return _DEPTH * self.lengthscale

    def _height(self, z: Tensor, side: float) -> Tensor:
        """h = H ± (z + z'), of z + z'; ValueError for places among the sources."""
        h = self.depth + side * z
        if bool((h <= 0.05 * self.depth).any()):
            raise ValueError(
                f"a place lies among the sources of this field, which begin {self.depth / 2:.2g} m above "
                "and below z = 0; ask nearer to the plane of the data"
            )
        return h

    def _side(self, left, c, right, d, side: float) -> Tensor:
        """Kernel of sources below (side 1) or above (−1), (N, K)."""
        # u_c and u'_d: differences, and ±h where the component is vertical
        along, across = _differences(left, c, right, d)
        h = self._height(left[:, 2, None] + right[None, :, 2], side)
        left_vertical, right_vertical = (c == 2)[:, None], (d == 2)[None, :]
        along = torch.where(left_vertical, side * h, along)
        across = torch.where(right_vertical, -side * h, across)

        inverse = (_square(left, right, 2) + h.square()).rsqrt()  # 1/ρ
        cubed = inverse * inverse * inverse
        out = -3.0 * along * across * (cubed * inverse * inverse)
        signed_delta = (c[:, None] == d[None, :]) * torch.where(left_vertical, -1.0, 1.0)
        out = out + signed_delta * cubed
        return (0.5 * self.variance * self.depth**3) * out

    def _plane(self, a: Tensor, b: Tensor) -> Tensor:
        """Kernel of rows (x, y, c) in the plane z = 0, where h = H.

        There both sides differ in the sign of the mixed terms only. u_c, u'_d, ±δ_cd, and γ where
        exactly one of c and d is vertical, are matrices of rank 4 and less: one product each, and
        no selection, which costs more than the arithmetic.
        """
        h, of_a, of_b = (
            self.depth,
            _selectors(a[:, 2]),
            _selectors(b[:, 2]),
        )  # (N, 3), (K, 3): x, y, z
        ones = [torch.ones_like(part[:, :1]) for part in (of_a, of_b)]

        # u_c
        along = (
            torch.cat(
                [(of_a[:, :2] * a[:, :2]).sum(1, keepdim=True) + h * of_a[:, 2:], -of_a[:, :2]], 1
            )
            @ torch.cat([ones[1], b[:, :2]], 1).mT
        )
        # u'_d
        across = (
            torch.cat([ones[0], a[:, :2]], 1)
            @ torch.cat(
                [-(of_b[:, :2] * b[:, :2]).sum(1, keepdim=True) - h * of_b[:, 2:], of_b[:, :2]],
                1,
            ).mT
        )

        # 1/ρ
        inverse = along.new_full(along.shape, h * h)
        for axis in range(2):
            difference = a[:, axis, None] - b[None, :, axis]
            inverse.addcmul_(difference, difference)
        inverse.rsqrt_()
        square = inverse * inverse

        out = torch.cat([of_a[:, :2], -of_a[:, 2:]], 1) @ of_b.mT
        out.addcmul_(along.mul_(across), square, value=-3.0).mul_(inverse).mul_(square)

        # 1 where c and d are both vertical, or both horizontal; the other terms have the factor γ
        a_vertical, b_vertical = of_a[:, 2:], of_b[:, 2:]
        scale = 0.5 * self.variance * h**3
        unmixed = (
            torch.cat([a_vertical, ones[0] - a_vertical], 1)
            @ torch.cat([b_vertical, ones[1] - b_vertical], 1).mT
        )
        return out.mul_(unmixed.mul_(scale * (1.0 - self.coherence)).add_(scale * self.coherence))

    def __call__(self, a, b):
        """As Kernel.__call__, of rows: the last column is the component."""
        if a.shape[1] == 3:
            return self._plane(a, b)

        (left, c), (right, d) = split(a), split(b)
        below, above = 0.5 * (1.0 + self.coherence), 0.5 * (1.0 - self.coherence)
        return below * self._side(left, c, right, d, 1.0) + above * self._side(
            left, c, right, d, -1.0
        )

    def diag(self, a):
        """Prior variance of each row's component, (N,): half as much in the plane as upwards."""
        place, component = split(a)
        in_plane = torch.where(component == 2, 1.0, 0.5).to(a.dtype) * self.variance
        if a.shape[1] == 3:
            return in_plane

        # towards its sources a field grows, by (H/h)³
        ratio = [(self._height(2 * place[:, 2], side) / self.depth) ** -3 for side in (1.0, -1.0)]
        return in_plane * (
            0.5 * (1 + self.coherence) * ratio[0] + 0.5 * (1 - self.coherence) * ratio[1]
        )

"""Vector fields that are the gradient of one scalar potential: B = ∇φ, k_cd(x, x') = ∂_c ∂'_d k_φ(x, x').

A row of data is a place and a component: (x, y, c) in the plane z = 0, or (x, y, z, c). d = x − x', r = |d|.

CurlFreeKernel: k = s² [δ_cd ρ(r) + d_c d_d ρ'(r)/r], −k_φ'(r)/r = s² ρ(r) (Solin et al. 2018, sec. IV, whose RBF
potential is ρ's RBF). In a plane it leaves the vertical component independent of the others.

HarmonicKernel: where there is neither current nor iron, ∇²φ = 0 as well: B has no divergence either. With sources
below a depth H/2 only, k_φ ∝ 1/√(d_x² + d_y² + h²), h = H + z + z' (Poisson's integral), and for sources above its
mirror image. The vertical component is then as strong as both others together,
and, if the sources are on one side, follows from them.
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
_DEPTH = (
    6.0**0.5
)  # H/ℓ: then the vertical component's correlation falls off at first like an RBF's of ℓ


def to_rows(x: Tensor) -> Tensor:
    """Places x (N, D), D 2 or 3 → rows (3N, D + 1), the last column the component 0, 1, 2."""
    component = torch.arange(COMPONENTS, dtype=x.dtype, device=x.device).repeat(len(x))
    return torch.cat([x.repeat_interleave(COMPONENTS, 0), component[:, None]], 1)


def by_component(values: Tensor) -> Tensor:
    """(3N, …) of rows → (N, 3, …)."""
    return values.reshape(-1, COMPONENTS, *values.shape[1:])


def split(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Places (N, 3), z = 0 in the plane, and components (N,)."""
    place = rows[:, :-1]
    if place.shape[1] == 2:
        place = torch.nn.functional.pad(place, (0, 1))
    return place, rows[:, -1].detach().round().long()


def _selectors(component: Tensor) -> Tensor:
    """(N, 3): 1 at the component, else 0."""
    kinds = torch.arange(COMPONENTS, dtype=component.dtype, device=component.device)
    return (component.detach().round()[:, None] == kinds).to(component.dtype)


def _differences(left: Tensor, c: Tensor, right: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """x − x' along each left row's component, and along each right row's: (N, K) twice."""
    along = left.gather(1, c[:, None]) - right.mT[c]
    across = left[:, d] - right.gather(1, d[:, None]).mT
    return along, across


def _square(left: Tensor, right: Tensor, axes: int) -> Tensor:
    total = torch.zeros(len(left), len(right), dtype=left.dtype, device=left.device)
    for axis in range(axes):
        difference = left[:, axis, None] - right[None, :, axis]
        total = torch.addcmul(total, difference, difference)
    return total


@dataclass(frozen=True)
class CurlFreeKernel(Kernel):
    """Without curl. variance: s², of each component.  lengthscale: ℓ, of the field across d.  name: of ρ.

    matern12 is refused: its potential has no second derivatives to make a field of.
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
        (left, c), (right, d) = split(a), split(b)
        kind, ell = _FIELDS[self.name], self.lengthscale
        along, across = _differences(left, c, right, d)
        square = _square(left, right, a.shape[1] - 1) / ell**2
        out = along * across * (kind.slope(square) * (2.0 / ell**2))
        return self.variance * (out + kind.correlation(square) * (c[:, None] == d[None, :]))

    def diag(self, a):
        return a.new_full((len(a),), self.variance)


@dataclass(frozen=True)
class HarmonicKernel(Kernel):
    """Without curl and divergence. variance: s², of the vertical component at z = 0; each of the others has half of it.

    lengthscale: H = √6 ℓ.  coherence: γ in [−1, 1], (1 + γ)/2 of the variance comes from sources below.

    k = s² H³/2 [±δ_cd/ρ³ − 3 u_c u'_d/ρ⁵], ρ² = d_x² + d_y² + h², u = (d_x, d_y, h), u' = (d_x, d_y, −h), − at c = z.
    """

    variance: float
    lengthscale: float
    coherence: float = 0.0

    @property
    def depth(self) -> float:
        """H, metres: twice the least depth of the sources."""
        return _DEPTH * self.lengthscale

    def _height(self, z: Tensor, side: float) -> Tensor:
        h = self.depth + side * z
        if bool((h <= 0.05 * self.depth).any()):
            raise ValueError(
                f"a place lies among the sources of this field, which begin {self.depth / 2:.2g} m above "
                "and below z = 0; ask nearer to the plane of the data"
            )
        return h

    def _side(self, left, c, right, d, side: float) -> Tensor:
        """Sources below (side 1) or above (−1)."""
        along, across = _differences(left, c, right, d)
        h = self._height(left[:, 2, None] + right[None, :, 2], side)
        up, over = (c == 2)[:, None], (d == 2)[None, :]
        along = torch.where(up, side * h, along)
        across = torch.where(over, -side * h, across)
        inverse = (_square(left, right, 2) + h.square()).rsqrt()
        cubed = inverse * inverse * inverse
        out = -3.0 * along * across * (cubed * inverse * inverse)
        same = (c[:, None] == d[None, :]) * torch.where(up, -1.0, 1.0)
        out = out + same * cubed
        return (0.5 * self.variance * self.depth**3) * out

    def _plane(self, a: Tensor, b: Tensor) -> Tensor:
        """Rows of the plane: h = H, and both sides differ in the mixed terms' sign only. u_c, u'_d, ±δ_cd and γ where c
        or d is vertical are matrices of rank 4 and less: one product each, and no selection, which costs more than the
        arithmetic."""
        h, one, other = (
            self.depth,
            _selectors(a[:, 2]),
            _selectors(b[:, 2]),
        )  # (N, 3), (K, 3): x, y, z
        ones = [torch.ones_like(part[:, :1]) for part in (one, other)]
        along = (
            torch.cat(
                [(one[:, :2] * a[:, :2]).sum(1, keepdim=True) + h * one[:, 2:], -one[:, :2]], 1
            )
            @ torch.cat([ones[1], b[:, :2]], 1).mT
        )
        across = (
            torch.cat([ones[0], a[:, :2]], 1)
            @ torch.cat(
                [-(other[:, :2] * b[:, :2]).sum(1, keepdim=True) - h * other[:, 2:], other[:, :2]],
                1,
            ).mT
        )
        inverse = along.new_full(along.shape, h * h)
        for axis in range(2):
            difference = a[:, axis, None] - b[None, :, axis]
            inverse.addcmul_(difference, difference)
        inverse.rsqrt_()
        square = inverse * inverse
        out = (one * one.new_tensor([1.0, 1.0, -1.0])) @ other.mT
        out.addcmul_(along.mul_(across), square, value=-3.0).mul_(inverse).mul_(square)
        up, over = one[:, 2:], other[:, 2:]
        scale = 0.5 * self.variance * h**3
        same = torch.cat([up, ones[0] - up], 1) @ torch.cat([over, ones[1] - over], 1).mT  # 1 or 0
        return out.mul_(same.mul_(scale * (1.0 - self.coherence)).add_(scale * self.coherence))

    def __call__(self, a, b):
        if a.shape[1] == 3:
            return self._plane(a, b)
        (left, c), (right, d) = split(a), split(b)
        below, above = 0.5 * (1.0 + self.coherence), 0.5 * (1.0 - self.coherence)
        return below * self._side(left, c, right, d, 1.0) + above * self._side(
            left, c, right, d, -1.0
        )

    def diag(self, a):
        place, component = split(a)
        share = torch.where(component == 2, 1.0, 0.5).to(a.dtype) * self.variance
        if a.shape[1] == 3:
            return share
        ratio = [(self._height(2 * place[:, 2], side) / self.depth) ** -3 for side in (1.0, -1.0)]
        return share * (
            0.5 * (1 + self.coherence) * ratio[0] + 0.5 * (1 - self.coherence) * ratio[1]
        )

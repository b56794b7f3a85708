"""Covariance functions: RBF and Matérn with a lengthscale per dimension, a constant, and sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import is_synchronous
from gp_mapping.core.kernels.fused import fused_covariances, fused_of_halves
from gp_mapping.gradients import recorded
from gp_mapping.settings.parts import KERNELS

__all__ = [
    "RBF",
    "Constant",
    "Kernel",
    "Matern12",
    "Matern32",
    "Matern52",
    "Matern72",
    "Matern92",
    "Stationary",
    "Sum",
    "TwoScales",
    "distances",
    "make_kernel",
    "prior_variance",
]


def scaled_square_distance(a: Tensor, b: Tensor, lengthscale: Tensor) -> Tensor:
    """Squared distance in lengthscales, Σ_d (a_d − b_d)² / ℓ_d².

    It uses direct differences, which are exact for near points, where |a|² + |b|² − 2ab is not.

    Args:
        a: (N, D).
        b: (K, D).
        lengthscale: ℓ, () or (D,).

    Returns:
        (N, K).
    """
    lengthscale = lengthscale.expand(a.shape[1])
    total = None
    for d in range(a.shape[1]):
        difference = (a[:, d, None] - b[None, :, d]).div_(lengthscale[d])
        total = difference * difference if total is None else total.addcmul_(difference, difference)
    return total


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Distances of places by direct differences, without a gradient: (…, N, K).

    Args:
        a: (…, N, D).
        b: (…, K, D).
    """
    if is_synchronous(a.device):
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    # a card's cdist takes sixty times as long, since it has a block of threads for each pair
    total: Tensor | None = None
    for one, other in zip(a.unbind(-1), b.unbind(-1)):
        difference = one[..., :, None] - other[..., None, :]
        total = difference.square_() if total is None else total.addcmul_(difference, difference)
    return a.new_zeros((*a.shape[:-1], b.shape[-2])) if total is None else total.sqrt_()


def single_square_distance(a: Tensor, b: Tensor, lengthscale: Tensor) -> Tensor:
    """r² of places in float32, where they are near as exact as in float64: (…, N, K).

    Each coordinate is the sum of two float32 numbers. Of near places their differences are exact.

    Args:
        a: (…, N, D) m, float64.
        b: (…, K, D) m, float64.
        lengthscale: ℓ, m, of a shape that divides both.
    """
    total: Tensor | None = None
    for one, other in zip((a / lengthscale).unbind(-1), (b / lengthscale).unbind(-1)):
        (one, fine), (other, fine_other) = _halves(one), _halves(other)
        difference = one[..., :, None] - other[..., None, :]
        difference += fine[..., :, None] - fine_other[..., None, :]
        total = difference.square_() if total is None else total.addcmul_(difference, difference)
    return total


def _halves(coordinate: Tensor) -> tuple[Tensor, Tensor]:
    """Two float32 tensors whose sum is a float64 one."""
    rounded = coordinate.float()
    return rounded, (coordinate - rounded).float()


def as_like(value: Tensor | float, like: Tensor) -> Tensor:
    """A number or a tensor in the precision and on the device of another, not waiting for it."""
    if torch.is_tensor(value):
        return value.to(like, non_blocking=value.device.type == "cpu")
    return like.new_full((), value)


def prior_variance(kernel: Kernel, x: Tensor) -> Tensor | float:
    """k(x_i, x_i), (N,), or the number that all of them are.

    Args:
        kernel: k.
        x: (N, D).
    """
    is_plain = isinstance(kernel, Stationary) and type(kernel).diag is Stationary.diag
    if is_plain and isinstance(kernel.variance, float):
        return kernel.variance
    return kernel.diag(x)


def _is_recorded(*inputs: Tensor | float) -> bool:
    """Whether a gradient is wanted with respect to one of the inputs."""
    return torch.is_grad_enabled() and any(
        isinstance(value, Tensor) and value.requires_grad for value in inputs
    )


class Kernel:
    """Base of covariance functions: k(a, b), (N, K), for a (N, D) and b (K, D).

    `diag(a)` is k(a_i, a_i), (N,). Kernels are added with +.
    """

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Prior covariance k(a, b); a kernel of your own defines it.

        Args:
            a: (N, D).
            b: (K, D).

        Returns:
            (N, K).

        Raises:
            TypeError: the kernel does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define k(a, b)")

    def diag(self, a: Tensor) -> Tensor:
        """k(a_i, a_i), (N,); a kernel of your own defines it.

        Raises:
            TypeError: the kernel does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define k(a, a)")

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum((self, other))


@dataclass(frozen=True)
class Constant(Kernel):
    """Kernel k(a, b) = c² of a common offset with prior variance c²."""

    variance: Tensor | float

    def __call__(self, a, b):
        """As Kernel.__call__: c²."""
        return as_like(self.variance, a).expand(len(a), len(b))

    def diag(self, a):
        """As Kernel.diag: c²."""
        return as_like(self.variance, a).expand(len(a))


@dataclass(frozen=True)
class Stationary(Kernel):
    """Base of stationary kernels, k(a, b) = s² ρ(r) with r² = Σ_d (a_d − b_d)²/ℓ_d².

    A kernel of your own defines `correlation`.

    Attributes:
        variance: s².
        lengthscale: ℓ in metres, a number or (D,).
        card_code: ρ of r² in CUDA's C++ (fused.py), for those that have it.
    """

    card_code: ClassVar[str | None] = None

    variance: Tensor | float
    lengthscale: Tensor | float

    def __call__(self, a, b):
        """As Kernel.__call__; differentiable in what requires a gradient."""
        lengthscale = self.lengthscale
        if not isinstance(lengthscale, float):  # mostly a float: no tensor is made of it
            lengthscale = as_like(lengthscale, a)

        if _is_recorded(a, b, self.variance, lengthscale):
            return self.variance * self.correlations(a, b, lengthscale)
        code = self._fused_code(a)
        if code is not None:
            fused = fused_covariances(code, self.variance, a / lengthscale, b / lengthscale)
            if fused is not None:
                return fused
        return self.correlations(a, b, lengthscale).mul_(self.variance)

    def correlations(self, a: Tensor, b: Tensor, lengthscale: Tensor | float) -> Tensor:
        """ρ(r) between places, (N, K); differentiable in what requires a gradient.

        Args:
            a: (N, D).
            b: (K, D).
            lengthscale: ℓ, a number, () or (D,), in place of the kernel's own.
        """
        if _is_recorded(a, b, lengthscale):
            lengthscale = as_like(lengthscale, a)
            return self.correlation(scaled_square_distance(a, b, lengthscale))

        # Without gradients in place, by direct differences as well: temporaries would cost more
        # than the arithmetic.
        return self.from_distance(distances(a / lengthscale, b / lengthscale))

    def _fused_code(self, a: Tensor) -> str | None:
        """`card_code` for places that are not here, if it is of this class and s² a number.

        One that is inherited may not be of this class's `correlation`.
        """
        if is_synchronous(a.device) or torch.is_tensor(self.variance):
            return None
        return vars(type(self)).get("card_code")

    def single(self, a: Tensor, b: Tensor) -> Tensor:
        """k(a, b) in float32 of float64 places that may be far apart, without a gradient: (N, K).

        Args:
            a: (N, D) m.
            b: (K, D) m.
        """
        lengthscale, code = as_like(self.lengthscale, a), self._fused_code(a)
        if code is not None:
            halves = [
                [part for column in (x / lengthscale).mT for part in _halves(column)]
                for x in (a, b)
            ]
            fused = fused_of_halves(code, self.variance, *halves)
            if fused is not None:
                return fused
        return self.variance * self.correlation(single_square_distance(a, b, lengthscale))

    def correlations_with(self, b: Tensor) -> Callable[[Tensor], Tensor]:
        """ρ(r) of many a and the same b, without gradients: less work than as many k(a, b).

        Args:
            b: (K, D).

        Returns:
            A function of a (N, D) that returns ρ between them, (N, K).
        """
        lengthscale = self.lengthscale
        if not isinstance(lengthscale, float):
            lengthscale = as_like(lengthscale, b)
        columns = (b / lengthscale).mT.contiguous()  # by whole columns: cdist goes pair by pair

        def at(a: Tensor) -> Tensor:
            """ρ between a (N, D) and b, (N, K)."""
            total: Tensor | None = None
            for one, other in zip((a / lengthscale).mT, columns):
                difference = one[:, None] - other
                total = (
                    difference.square_()
                    if total is None
                    else total.addcmul_(difference, difference)
                )
            return self.from_distance(total.sqrt_())

        return at

    def diag(self, a):
        """As Kernel.diag: s²."""
        return as_like(self.variance, a).expand(len(a))

    def correlation(self, square: Tensor) -> Tensor:
        """ρ as a function of r² = `square`; a kernel of your own defines it.

        Args:
            square: r², of any shape, in squared lengthscales; it must not be changed.

        Returns:
            ρ, of the same shape; 1 at 0.

        Raises:
            TypeError: the kernel does not define it.
        """
        raise TypeError("use RBF or a Matérn kernel")

    def slope(self, square: Tensor) -> Tensor:
        """∂ρ/∂(r²) as a function of r², of the same shape; here by automatic differentiation."""
        with recorded():
            at = square.detach().clone().requires_grad_(True)
            return torch.autograd.grad(self.correlation(at).sum(), at)[0]

    def correlation_and_slope(self, square: Tensor) -> tuple[Tensor, Tensor]:
        """ρ and ∂ρ/∂(r²) as functions of r², each in its own memory."""
        return self.correlation(square), self.slope(square)

    def from_distance(self, r: Tensor) -> Tensor:
        """ρ as a function of r, in lengthscales and of any shape, without a gradient.

        Args:
            r: it may be overwritten.
        """
        return self.correlation(r.square_())


def _distance(square: Tensor, factor: float) -> Tensor:
    """√(factor · r²), clamped so that its gradient at r = 0 is 0 and not NaN."""
    return (factor * square).clamp_min(1e-36).sqrt()


class RBF(Stationary):
    """Squared exponential, ρ = exp(−r²/2)."""

    card_code = "exp(T(-0.5) * s)"

    @staticmethod
    def correlation(square):
        """As Stationary.correlation: ρ = exp(−r²/2)."""
        return torch.exp(-0.5 * square)

    @staticmethod
    def slope(square):
        """As Stationary.slope: −½ exp(−r²/2)."""
        return -0.5 * torch.exp(-0.5 * square)

    @staticmethod
    def from_distance(r):
        """As Stationary.from_distance."""
        return r.square_().mul_(-0.5).exp_()


class Matern12(Stationary):
    """Matérn ½, ρ = exp(−r)."""

    card_code = "exp(-sqrt(s))"

    @staticmethod
    def correlation(square):
        """As Stationary.correlation: ρ = exp(−r)."""
        return torch.exp(-_distance(square, 1.0))

    @staticmethod
    def slope(square):
        """As Stationary.slope: −exp(−r)/(2r)."""
        r = _distance(square, 1.0).clamp_min(1e-9)  # infinite at 0, where every use has a factor r²
        return -0.5 * torch.exp(-r) / r

    @staticmethod
    def from_distance(r):
        """As Stationary.from_distance."""
        return r.neg_().exp_()


class Matern32(Stationary):
    """Matérn 3/2, ρ = (1 + √3 r) exp(−√3 r)."""

    card_code = "(T(1) + sqrt(T(3) * s)) * exp(-sqrt(T(3) * s))"

    @staticmethod
    def correlation(square):
        """As Stationary.correlation: ρ = (1 + √3 r) exp(−√3 r)."""
        r = _distance(square, 3.0)
        return (1.0 + r) * torch.exp(-r)

    @staticmethod
    def slope(square):
        """As Stationary.slope: −3/2 exp(−√3 r)."""
        return -1.5 * torch.exp(-_distance(square, 3.0))

    @staticmethod
    def from_distance(r):
        """As Stationary.from_distance."""
        r.mul_(-(3.0**0.5))
        decay = torch.exp(r)
        return decay.addcmul_(decay, r, value=-1.0)


class Matern52(Stationary):
    """Matérn 5/2, ρ = (1 + √5 r + 5r²/3) exp(−√5 r)."""

    card_code = "(T(1) + sqrt(T(5) * s) + T(5) * s / T(3)) * exp(-sqrt(T(5) * s))"

    @staticmethod
    def correlation(square):
        """As Stationary.correlation: ρ = (1 + √5 r + 5r²/3) exp(−√5 r)."""
        r = _distance(square, 5.0)
        return (1.0 + r * (1.0 + r / 3.0)) * torch.exp(-r)

    @staticmethod
    def slope(square):
        """As Stationary.slope: −5/6 (1 + √5 r) exp(−√5 r)."""
        r = _distance(square, 5.0)
        return (-5.0 / 6.0) * (1.0 + r) * torch.exp(-r)

    @staticmethod
    def correlation_and_slope(square):
        """As Stationary.correlation_and_slope, by one exponential."""
        r = (5.0 * square).clamp_min_(1e-36).sqrt_()  # as _distance, but in one piece of memory
        decay = torch.neg(r).exp_()
        return (r / 3.0).add_(1.0).mul_(r).add_(1.0).mul_(decay), r.add_(1.0).mul_(-5.0 / 6.0).mul_(
            decay
        )

    @staticmethod
    def from_distance(r):
        """As Stationary.from_distance."""
        # few passes over memory: with q = −√5 r it is e^q − e^q (q − q²/3)
        q = r.mul_(-(5.0**0.5))
        rest = torch.addcmul(q, q, q, value=-1.0 / 3.0)
        return q.exp_().addcmul_(q, rest, value=-1.0)


class _SmoothMatern(Stationary):
    """Matérn p + ½ with ρ = P(q) e^(−q), q = √(2p + 1) r.

    As ρ' = −½ (2p + 1) ρ(q; p − 1)/(2p − 1) in r², the polynomial of the slope is that of the next
    rougher one (Abramowitz and Stegun 1972, 10.2.21).
    """

    factor: ClassVar[float]  # 2p + 1
    polynomial: ClassVar[tuple[float, ...]]  # P, the highest power first
    derivative: ClassVar[tuple[float, ...]]  # of the slope, with its factor
    # −P(−q) from its highest power to that of q²: the highest coefficient h, others divided by h
    _rest: ClassVar[tuple[float, tuple[float, ...]]]

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        order = len(cls.polynomial) - 1
        highest, *others = (
            c if (order - i) % 2 else -c for i, c in enumerate(cls.polynomial[: order - 1])
        )
        cls._rest = highest, tuple(c / highest for c in others)

    @classmethod
    def correlation(cls, square):
        """As Stationary.correlation."""
        q = _distance(square, cls.factor)
        return _horner(cls.polynomial, q) * torch.exp(-q)

    @classmethod
    def slope(cls, square):
        """As Stationary.slope."""
        q = _distance(square, cls.factor)
        return _horner(cls.derivative, q) * torch.exp(-q)

    @classmethod
    def correlation_and_slope(cls, square):
        """As Stationary.correlation_and_slope, by one exponential."""
        q = (cls.factor * square).clamp_min_(1e-36).sqrt_()
        decay = torch.neg(q).exp_()
        both = (_horner(cls.polynomial, q), _horner(cls.derivative, q))
        return both[0].mul_(decay), both[1].mul_(decay)

    @classmethod
    def from_distance(cls, r):
        """As Stationary.from_distance."""
        # few passes over memory: with q = −√(2p + 1) r it is e^q − e^q (q + h q² (…)), where (…) is
        # a polynomial with a highest coefficient of 1
        q = r.mul_(-(cls.factor**0.5))
        highest, others = cls._rest
        inner = q + others[0]
        for c in others[1:]:
            inner.mul_(q).add_(c)
        rest = torch.addcmul(q, q, inner.mul_(q), value=highest)
        return q.exp_().addcmul_(q, rest, value=-1.0)


def _horner(coefficients: tuple[float, ...], q: Tensor) -> Tensor:
    """The polynomial in its own memory; differentiable."""
    total = q * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        total = total * q + c
    return total


class Matern72(_SmoothMatern):
    """Matérn 7/2, ρ = (1 + q + 2q²/5 + q³/15) exp(−q), q = √7 r."""

    card_code = (
        "(T(1) + sqrt(T(7) * s) * (T(1) + sqrt(T(7) * s) * (T(0.4) + sqrt(T(7) * s) / T(15))))"
        " * exp(-sqrt(T(7) * s))"
    )
    factor = 7.0
    polynomial = (1.0 / 15.0, 0.4, 1.0, 1.0)
    derivative = (-7.0 / 30.0, -0.7, -0.7)


class Matern92(_SmoothMatern):
    """Matérn 9/2, ρ = (1 + q + 3q²/7 + 2q³/21 + q⁴/105) exp(−q), q = 3r."""

    card_code = (
        "(T(1) + sqrt(T(9) * s) * (T(1) + sqrt(T(9) * s) * (T(3) / T(7) + sqrt(T(9) * s)"
        " * (T(2) / T(21) + sqrt(T(9) * s) / T(105))))) * exp(-sqrt(T(9) * s))"
    )
    factor = 9.0
    polynomial = (1.0 / 105.0, 2.0 / 21.0, 3.0 / 7.0, 1.0, 1.0)
    derivative = (-3.0 / 70.0, -9.0 / 35.0, -9.0 / 14.0, -9.0 / 14.0)


@dataclass(frozen=True)
class TwoScales(Stationary):
    """Sum of a short and a long lengthscale, ρ(r²) = (1 − w) ρ₁(r²) + w ρ₁(r²/q²).

    Attributes:
        shape: the stationary kernel that gives ρ₁.
        ratio: q, long over short lengthscale.
        share: w, fraction of the variance that has the long lengthscale.
    """

    shape: Stationary
    ratio: float
    share: float

    def correlation(self, square):
        """As Stationary.correlation: (1 − w) ρ₁(r²) + w ρ₁(r²/q²)."""
        return (1.0 - self.share) * self.shape.correlation(
            square
        ) + self.share * self.shape.correlation(square / self.ratio**2)

    def slope(self, square):
        """As Stationary.slope: (1 − w) ρ₁'(r²) + w/q² ρ₁'(r²/q²)."""
        long = self.shape.slope(square / self.ratio**2)
        return (1.0 - self.share) * self.shape.slope(square) + self.share / self.ratio**2 * long

    def from_distance(self, r):
        """As Stationary.from_distance."""
        long = self.shape.from_distance(r / self.ratio).mul_(self.share)
        return self.shape.from_distance(r).mul_(1.0 - self.share).add_(long)


@dataclass(frozen=True)
class Sum(Kernel):
    """Sum of kernels, k = Σ_j k_j."""

    parts: tuple[Kernel, ...]

    def __call__(self, a, b):
        """As Kernel.__call__: Σ_j k_j(a, b)."""
        return math_sum(part(a, b) for part in self.parts)

    def diag(self, a):
        """As Kernel.diag: Σ_j k_j(a_i, a_i)."""
        return math_sum(part.diag(a) for part in self.parts)


def math_sum(terms) -> Tensor:
    """Sum of tensors.

    Raises:
        ValueError: there is none.
    """
    total = None
    for term in terms:
        total = term if total is None else total + term
    if total is None:
        raise ValueError("a sum of kernels needs at least one part")
    return total


def make_kernel(name: str, variance: float, lengthscale) -> Stationary:
    """Make a stationary kernel by its name.

    Args:
        name: of the kernel, one of KERNELS.
        variance: s².
        lengthscale: ℓ in metres, a number or one per dimension.

    Raises:
        ValueError: a number is not positive and finite.
    """
    kind = KERNELS[name]
    for label, value in (("variance", variance), ("lengthscale", lengthscale)):
        is_float = isinstance(value, float)  # mostly, and this runs with each prediction
        values = (
            [value]
            if is_float
            else torch.as_tensor(value, dtype=torch.float64).reshape(-1).tolist()
        )
        if not all(math.isfinite(v) and v > 0 for v in values):
            raise ValueError(f"{label} must be positive and finite, not {value}")
    return kind(variance, lengthscale)

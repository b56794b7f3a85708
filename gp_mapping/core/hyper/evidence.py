"""The log evidence of a neighbourhood of samples: value, gradient and information in closed form.

    C = s²ρ(r) + s_c² + s_h² ĥĥᵀ + s_b² δ(p, p′) + diag(s_p² + extra)

r is the distance between the sensor's places x − δv + along ĥ + across ĥ⊥, p the pass of a sample.
Of samples that average the field along a stretch of path, s²ρ is the covariance of the averages
(kernels/extents.py).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import tensor_on
from gp_mapping.core.hyper.bias import bias_correlation
from gp_mapping.core.hyper.theta import Theta, sensor_place
from gp_mapping.core.kernels.extents import ends, matter, mean_of_ends
from gp_mapping.core.kernels.stationary import scaled_square_distance

__all__ = ["evidence_score", "negative_log_evidence", "pass_membership", "sample_covariance"]


def sample_covariance(
    theta: Theta,
    vector: Tensor,
    x: Tensor,
    velocity: Tensor,
    heading: Tensor,
    extra: Tensor,
    pass_numbers: Tensor | None = None,
    extent: Tensor | None = None,
) -> Tensor:
    """Covariance C (n, n) of samples, with gradients.

        C = k(x', x') + s_c² + s_h² ĥĥᵀ + s_b² Z Zᵀ + diag(s_p² + extra)

    x' are the sensor's places, Z is `pass_membership`. As `negative_log_evidence` for the
    arguments.
    """
    # plain numbers, unless a gradient is wanted: torch takes longer for one than for many
    if torch.is_grad_enabled() and vector.requires_grad:
        entries, scales = vector.unbind(), vector[:4].exp().unbind()
    else:
        entries = vector.tolist()
        scales = list(map(math.exp, entries[:4]))
    places = sensor_place(x, velocity, heading, *entries[4:7])
    averages = matter(extent, float(scales[0]))
    if averages:
        places = ends(places, velocity, extent)
    field = theta.kernel().correlations(places, places, theta.lengthscales(scales[0]))
    field = mean_of_ends(field) if averages else field
    covariance = scales[1] * field + theta.constant_stddev**2

    if theta.heading_stddev > 0:
        covariance = covariance + scales[3] * (heading @ heading.mT)
    if theta.bias_stddev > 0 and pass_numbers is not None:
        together = pass_membership(pass_numbers, theta.bias_correlation)
        covariance = covariance + theta.bias_stddev**2 * (together @ together.mT)
    return covariance + torch.diag(scales[2] + extra)


def negative_log_evidence(
    theta: Theta,
    vector: Tensor,
    x: Tensor,
    velocity: Tensor,
    heading: Tensor,
    y: Tensor,
    extra: Tensor,
    pass_numbers: Tensor | None = None,
    extent: Tensor | None = None,
) -> Tensor:
    """−log N(y | 0, C) per sample and channel.

    Args:
        theta: the kernel's form, s_c, s_b, and whether there is a body-fixed field.
        vector: as of Theta.vector (7,).
        x: positions (n, D), m.
        velocity: (n, D), m/s.
        heading: (n, 2).
        y: targets (n, C).
        extra: noise variance in addition to s_p² (n,), 0 where unknown.
        pass_numbers: pass of each sample (n,), negative where it has none.
        extent: of the places that each sample averages, along its velocity (n,), m; None: 0.
    """
    factor = torch.linalg.cholesky(
        sample_covariance(theta, vector, x, velocity, heading, extra, pass_numbers, extent)
    )
    whitened = torch.linalg.solve_triangular(factor, y, upper=False)

    n, channels = y.shape
    return (
        0.5 * whitened.square().sum() / channels + factor.diagonal().log().sum()
    ) / n + 0.5 * math.log(2 * math.pi)


def pass_membership(pass_numbers: Tensor, correlation: float = 0.0) -> Tensor:
    """Z (n, P): 1 where a sample belongs to a pass; Z L with the correlation LLᵀ of segments.

    Args:
        pass_numbers: pass of each sample (n,), negative where it has none.
        correlation: ρ of neighbouring segments of a pass.
    """
    numbers = sorted({number for number in pass_numbers.tolist() if number >= 0})
    passes = tensor_on(pass_numbers.device, numbers, pass_numbers.dtype)
    together = (pass_numbers[:, None] == passes).to(torch.float64)
    if correlation > 0 and len(passes):
        together = together @ torch.linalg.cholesky(bias_correlation(passes, passes, correlation))
    return together


def _shift(k: int, velocity: Tensor, heading: Tensor) -> Tensor:
    """How a sample's place moves with entry k of v, which is δ, along or across: (n, D)."""
    axis = [float(k == j) for j in (4, 5, 6)]
    return sensor_place(torch.zeros_like(velocity), velocity, heading, *axis)


def evidence_score(
    theta: Theta,
    vector: Tensor,
    free: list[bool],
    x: Tensor,
    velocity: Tensor,
    heading: Tensor,
    y: Tensor,
    extra: Tensor,
    pass_numbers: Tensor | None = None,
    extent: Tensor | None = None,
    fisher: bool = True,
    average: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Gradient of −log evidence (7,), mean over channels, and information (7, 7); 0 where held.

        ∂_k = ½ tr[(C⁻¹ − ααᵀ) ∂_kC],   α = C⁻¹y
        F_kl = ½ tr[C⁻¹ ∂_kC C⁻¹ ∂_lC],   A_kl = ½ αᵀ∂_kC C⁻¹ ∂_lC α

    F is the Fisher information, expected where the model holds. A is the average of F and the
    observed information, without second derivatives: it follows the curvature of these data, and
    costs no product of matrices.

    Only ℓ and what moves a place cost a product of matrices; for the other parameters C⁻¹∂C follows
    from C⁻¹C = I.

    Args:
        theta: as of `negative_log_evidence`, and so are the arguments below.
        vector: (7,), best on the processor.
        free: which parameters are not held (7).
        x: (n, D) m.
        velocity: (n, D) m/s.
        heading: (n, 2).
        y: (n, C).
        extra: (n,).
        pass_numbers: (n,).
        extent: (n,) m.
        fisher: whether F is computed.
        average: whether A is computed in place of F.

    Returns:
        The gradient, and F or A; None in place of F where `fisher` is False.

    Raises:
        LinAlgError: C does not factor.

    Reference:
        Rasmussen and Williams 2006, eq. 5.9; Gilmour, Thompson and Cullis 1995.
    """
    length, signal, noise, heading_variance = torch.exp(vector[:4]).tolist()
    heading_variance = heading_variance if theta.heading_stddev > 0 else 0.0

    kernel = theta.kernel()
    places = sensor_place(x, velocity, heading, *vector[4:7].tolist())
    scales = theta.lengthscales(x.new_full((), length))
    averages = matter(extent, length)
    if averages:
        places = ends(places, velocity, extent)
    square = scaled_square_distance(places, places, scales)
    field, slope = (part.mul_(signal) for part in kernel.correlation_and_slope(square))
    field = mean_of_ends(field) if averages else field

    # C: field, its mean, noise, body-fixed field, passes' constants
    covariance = field + theta.constant_stddev**2
    covariance.diagonal().add_(noise + extra)
    if heading_variance:
        covariance.addmm_(heading, heading.mT, alpha=heading_variance)
    together = None
    if theta.bias_stddev > 0 and pass_numbers is not None:
        together = theta.bias_stddev * pass_membership(pass_numbers, theta.bias_correlation)
        covariance.addmm_(together, together.mT)

    score = _Score(covariance, y, fisher and not average)

    # ℓ and what moves a place: ∂C of each pair of samples
    moving = [k for k in (0, 4, 5, 6) if free[k]]
    stretch = (scales.expand(x.shape[1]) / length).square()
    centred = places - places.mean(0)
    for k in moving:
        if k == 0:
            change = (square * slope).mul_(-2.0)
        else:
            shift = _shift(k, velocity, heading)
            if averages:  # both ends move
                shift = torch.cat([shift, shift])
            change = _inner_of_differences(centred / stretch, shift)
            change.mul_(slope).mul_(2.0 / length**2)
        score.of_matrix(k, mean_of_ends(change) if averages else change)

    # s², s_p² and s_h²: C⁻¹∂C without a product of n × n matrices
    if free[1]:
        score.of_signal(
            field, noise + extra, theta.constant_stddev**2, heading, heading_variance, together
        )
    if free[2]:
        score.of_noise(noise)
    if free[3] and heading_variance:
        score.of_heading(heading, heading_variance)

    if average:
        return score.gradient, _average_information(score.bends, score.inverse, y.shape[1])
    return score.gradient, score.fisher_information() if score.fisher else None


class _Score:
    """Gradient and information, parameter by parameter.

    Args:
        covariance: C (n, n).
        y: (n, C).
        fisher: whether C⁻¹ ∂_kC is kept, for F.

    Attributes:
        inverse: C⁻¹ (n, n).
        gradient: (7,); 0 where nothing was asked.
        bends: ∂_kC α (n, C) of each parameter.
        products: C⁻¹ ∂_kC (n, n) of each parameter.
    """

    def __init__(self, covariance: Tensor, y: Tensor, fisher: bool):
        # transposed, so that the factor is laid out by columns, as LAPACK has it
        self.inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance.mT))
        self.alpha, self.fisher = self.inverse @ y, fisher
        # C⁻¹ − ααᵀ, mean over channels
        self.pull = torch.addmm(self.inverse, self.alpha, self.alpha.mT, alpha=-1.0 / y.shape[1])
        self.gradient = torch.zeros(7, dtype=torch.float64, device=y.device)
        self.bends: dict[int, Tensor] = {}
        self.products: dict[int, Tensor] = {}

    def of_matrix(self, k: int, change: Tensor) -> None:
        """Of a parameter whose derivative is a matrix without structure.

        Args:
            k: which one.
            change: ∂_kC (n, n).
        """
        self.gradient[k] = 0.5 * torch.dot(self.pull.flatten(), change.flatten())
        self.bends[k] = change @ self.alpha
        if self.fisher:
            self.products[k] = self.inverse @ change

    def of_signal(
        self,
        field: Tensor,
        sample_noise: Tensor,
        constant: float,
        heading: Tensor,
        heading_variance: float,
        together: Tensor | None,
    ) -> None:
        """Of the signal variance: C⁻¹ times the field's part is I minus C⁻¹ times all else in C.

        Args:
            field: s²ρ (n, n), which is its own derivative.
            sample_noise: s_p² + extra (n,).
            constant: s_c².
            heading: (n, 2).
            heading_variance: s_h²; 0: there is no body-fixed field.
            together: s_b Z (n, P); None: no pass has a constant.
        """
        self.gradient[1] = 0.5 * torch.dot(self.pull.flatten(), field.flatten())
        self.bends[1] = field @ self.alpha
        if not self.fisher:
            return

        product = (
            (self.inverse * sample_noise).add_(constant * self.inverse.sum(1, keepdim=True)).neg_()
        )
        product.diagonal().add_(1.0)
        if heading_variance:
            product.addmm_(self.inverse @ heading, heading.mT, alpha=-heading_variance)
        if together is not None:
            product.addmm_(self.inverse @ together, together.mT, alpha=-1.0)
        self.products[1] = product

    def of_noise(self, noise: float) -> None:
        """Of s_p²."""
        self.gradient[2] = 0.5 * noise * self.pull.diagonal().sum()
        self.bends[2] = noise * self.alpha
        if self.fisher:
            self.products[2] = noise * self.inverse

    def of_heading(self, heading: Tensor, variance: float) -> None:
        """Of s_h².

        Args:
            heading: ĥ (n, 2).
            variance: s_h².
        """
        self.gradient[3] = 0.5 * variance * ((self.pull @ heading) * heading).sum()
        self.bends[3] = variance * (heading @ (heading.mT @ self.alpha))
        if self.fisher:
            self.products[3] = variance * ((self.inverse @ heading) @ heading.mT)

    def fisher_information(self) -> Tensor:
        """F (7, 7): ½ tr of all products at once."""
        information = torch.zeros((7, 7), dtype=torch.float64, device=self.gradient.device)
        if self.products:
            chosen, parts = (
                tensor_on(self.gradient.device, list(self.products), torch.long),
                torch.stack(list(self.products.values())),
            )
            traces = 0.5 * parts.flatten(1) @ parts.mT.flatten(1).mT
            information[chosen[:, None], chosen] = 0.5 * (traces + traces.mT)
        return information


def _inner_of_differences(a: Tensor, b: Tensor) -> Tensor:
    """(a_i − a_j) · (b_i − b_j) of all pairs of rows of a and b (n, D): (n, n).

    One product of matrices; a must be about its mean, or the differences lose digits.
    """
    own, ones = (a * b).sum(1, keepdim=True), torch.ones_like(a[:, :1])
    inner = torch.cat([a, b, own, ones], 1) @ torch.cat([-b, -a, ones, own], 1).mT
    return inner.fill_diagonal_(0.0)


def _average_information(bends: dict[int, Tensor], inverse: Tensor, channels: int) -> Tensor:
    """A (7, 7) from ∂_kC α (n, C) of each parameter and C⁻¹ (n, n), mean over channels."""
    information = torch.zeros((7, 7), dtype=torch.float64, device=inverse.device)
    if bends:
        chosen = tensor_on(inverse.device, list(bends), torch.long)
        bent = torch.stack(list(bends.values()))  # (K, n, C)
        average = 0.5 / channels * bent.flatten(1) @ (inverse @ bent).flatten(1).mT
        information[chosen[:, None], chosen] = 0.5 * (average + average.mT)
    return information

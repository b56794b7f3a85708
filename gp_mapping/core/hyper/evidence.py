"""The log evidence of a neighbourhood of samples: value, gradient and Fisher information in closed form.

C = s²ρ(r) + s_c² + s_h² ĥĥᵀ + s_b² δ(p, p′) + diag(s_p² + extra),   r between the sensor's places
x − δv + along ĥ + across ĥ⊥, p the pass of a sample
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta, sensor_place
from gp_mapping.core.kernels.stationary import scaled_square_distance

__all__ = ["evidence_score", "membership", "negative_log_evidence"]


def negative_log_evidence(
    theta: Theta,
    vector: Tensor,
    x: Tensor,
    velocity: Tensor,
    heading: Tensor,
    y: Tensor,
    extra: Tensor,
    of: Tensor | None = None,
) -> Tensor:
    """−log N(y | 0, C) per sample and channel.

    vector (7,); x, velocity (n, D); heading (n, 2); y (n, C); extra (n,): white variance of each, 0 where unknown;
    of (n,): the pass of each, negative where it has none.
    """
    places = sensor_place(x, velocity, heading, vector[4], vector[5], vector[6])
    scale = torch.exp(vector[0])
    square = scaled_square_distance(places, places, theta.lengthscales(scale))
    covariance = (
        torch.exp(vector[1]) * theta.kernel().correlation(square) + theta.constant_stddev**2
    )
    if theta.heading_stddev > 0:
        covariance = covariance + torch.exp(vector[3]) * (heading @ heading.mT)
    if theta.bias_stddev > 0 and of is not None:
        together = membership(of)
        covariance = covariance + theta.bias_stddev**2 * (together @ together.mT)
    factor = torch.linalg.cholesky(covariance + torch.diag(torch.exp(vector[2]) + extra))
    whitened = torch.linalg.solve_triangular(factor, y, upper=False)
    n, channels = y.shape
    return (
        0.5 * whitened.square().sum() / channels + factor.diagonal().log().sum()
    ) / n + 0.5 * math.log(2 * math.pi)


def membership(of: Tensor) -> Tensor:
    """(n, P), 1 where a sample belongs to a pass: of (n,), negative where it has none."""
    known = torch.unique(of[of >= 0])
    return (of[:, None] == known).to(torch.float64)


def _shifts(velocity: Tensor, heading: Tensor, dimension: int) -> tuple[Tensor, Tensor, Tensor]:
    """How a sample's place moves with δ, along and across: three (n, D)."""
    one = torch.zeros_like(velocity)
    return tuple(
        sensor_place(one, velocity, heading, *axis)[:, :dimension]
        for axis in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    )


def evidence_score(
    theta: Theta,
    vector: Tensor,
    free: list[bool],
    x: Tensor,
    velocity: Tensor,
    heading: Tensor,
    y: Tensor,
    extra: Tensor,
    of: Tensor | None = None,
    fisher: bool = True,
    average: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Gradient of −log evidence (7,), mean over channels, and information (7, 7); 0 where a parameter is held.

        ∂_k = ½ tr[(C⁻¹ − ααᵀ) ∂C],  α = C⁻¹y;      F_kl = ½ tr[C⁻¹ ∂_kC C⁻¹ ∂_lC],  A_kl = ½ αᵀ∂_kC C⁻¹ ∂_lC α

    F is Fisher's, expected where the model holds. A, with `average`, is the average of F and the observed information
    but for second derivatives (Gilmour, Thompson and Cullis 1995): it bends as these data do, and costs no product of
    matrices.

    Arguments as of `negative_log_evidence`; Rasmussen and Williams 2006, eq. 5.9.  Only ℓ and what moves a
    place cost a product of matrices: the rest of C⁻¹∂C follows from C⁻¹C = I. LinAlgError where C does not factor.
    """
    n, channels = y.shape
    length, signal, noise, turn = (float(v) for v in torch.exp(vector[:4]))
    turn = turn if theta.heading_stddev > 0 else 0.0
    kernel = theta.kernel()
    places = sensor_place(x, velocity, heading, *vector[4:])
    scales = theta.lengthscales(torch.as_tensor(length, dtype=x.dtype, device=x.device))
    square = scaled_square_distance(places, places, scales)
    field, slope = (part.mul_(signal) for part in kernel.correlation_and_slope(square))
    beside = noise + extra
    covariance = field + theta.constant_stddev**2
    covariance.diagonal().add_(beside)
    if turn:
        covariance.addmm_(heading, heading.mT, alpha=turn)
    together = None
    if theta.bias_stddev > 0 and of is not None:
        together = theta.bias_stddev * membership(of)
        covariance.addmm_(together, together.mT)
    inverse = torch.cholesky_inverse(
        torch.linalg.cholesky(covariance.mT)
    )  # by columns, as LAPACK has it
    alpha = inverse @ y
    pull = torch.addmm(inverse, alpha, alpha.mT, alpha=-1.0 / channels)  # C⁻¹ − ααᵀ

    gradient = torch.zeros(7, dtype=torch.float64, device=x.device)
    products: dict[int, Tensor] = {}  # C⁻¹ ∂_kC
    bends: dict[int, Tensor] = {}  # ∂_kC α
    fisher = fisher and not average
    moving = [k for k in (0, 4, 5, 6) if free[k]]
    shifts = _shifts(velocity, heading, x.shape[1]) if moving else ()
    for k in moving:
        if k == 0:
            change = (square * slope).mul_(-2.0)
        else:
            shift, change = shifts[k - 4], torch.zeros_like(square)
            stretch = (scales.expand(x.shape[1]) / length).square()
            for d in range(x.shape[1]):
                apart = places[:, None, d] - places[None, :, d]
                change.addcmul_(
                    apart, shift[:, None, d] - shift[None, :, d], value=1.0 / float(stretch[d])
                )
            change.mul_(slope).mul_(2.0 / length**2)
        gradient[k] = 0.5 * torch.dot(pull.flatten(), change.flatten())
        bends[k] = change @ alpha
        if fisher:
            products[k] = inverse @ change
    turned = inverse @ heading
    if free[1]:
        gradient[1] = 0.5 * torch.dot(pull.flatten(), field.flatten())
        bends[1] = field @ alpha
        if fisher:  # C⁻¹C = I without what is beside the field
            product = (
                (inverse * beside)
                .add_(theta.constant_stddev**2 * inverse.sum(1, keepdim=True))
                .neg_()
            )
            product.diagonal().add_(1.0)
            if turn:
                product.addmm_(turned, heading.mT, alpha=-turn)
            if together is not None:
                product.addmm_(inverse @ together, together.mT, alpha=-1.0)
            products[1] = product
    if free[2]:
        gradient[2] = 0.5 * noise * pull.diagonal().sum()
        products[2], bends[2] = noise * inverse, noise * alpha
    if free[3] and turn:
        gradient[3] = 0.5 * turn * ((pull @ heading) * heading).sum()
        products[3], bends[3] = (
            turn * (turned @ heading.mT),
            turn * (heading @ (heading.mT @ alpha)),
        )
    if average:
        return gradient, _average_information(bends, inverse, channels)
    if not fisher:
        return gradient, None
    information = torch.zeros((7, 7), dtype=torch.float64, device=x.device)
    if products:  # ½ tr of all their products at once
        chosen, parts = (
            torch.tensor(list(products), device=x.device),
            torch.stack(list(products.values())),
        )
        traces = 0.5 * parts.flatten(1) @ parts.mT.flatten(1).mT
        information[chosen[:, None], chosen] = 0.5 * (traces + traces.mT)
    return gradient, information


def _average_information(bends: dict[int, Tensor], inverse: Tensor, channels: int) -> Tensor:
    """A (7, 7) from ∂_kC α (n, C) of each parameter and C⁻¹ (n, n), mean over channels."""
    information = torch.zeros((7, 7), dtype=torch.float64, device=inverse.device)
    if bends:
        chosen = torch.tensor(list(bends), device=inverse.device)
        bent = torch.stack(list(bends.values()))  # (K, n, C)
        average = 0.5 / channels * bent.flatten(1) @ (inverse @ bent).flatten(1).mT
        information[chosen[:, None], chosen] = 0.5 * (average + average.mT)
    return information

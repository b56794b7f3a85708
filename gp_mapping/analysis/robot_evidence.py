"""How well the remembered samples determine time offset, lever arm and body-fixed field.

From curvature and scatter of the log evidence, block by block. Constants of passes are part of it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.field_map import CalibrationData
from gp_mapping.core.hyper.evidence import evidence_score, pass_membership
from gp_mapping.core.hyper.theta import Theta, sensor_place
from gp_mapping.core.linalg import cholesky, solve_lower

__all__ = ["LEAST", "estimate_body_field", "given_held", "laplace", "neighbourhoods"]

LEAST = 5  # samples in a neighbourhood, at least
_BLOCKS, _ROWS = 8, 250  # neighbourhoods, and samples in each, at most
_STEPS = (1e-3, 1e-3, 1e-3)  # s, m, m: of the central differences of the gradient
_ROUNDS = 8  # Newton steps towards the mode


def neighbourhoods(x: Tensor) -> list[Tensor]:
    """Return up to 8 disjoint sets of at most 250 indices.

    They are Voronoi cells of centres far from each other; of each cell the samples nearest to its
    centre.

    Args:
        x: (m, D) m, places of the samples.
    """
    count = min(_BLOCKS, max(1, len(x) // (4 * LEAST)))
    distance = (x - x.mean(0)).square().sum(1)
    centres = [int(distance.argmin())]
    nearest = (x - x[centres[0]]).square().sum(1)

    # Farthest-point selection: the next centre is the sample farthest from all centres so far.
    while len(centres) < count:
        centres.append(int(nearest.argmax()))
        nearest = torch.minimum(nearest, (x - x[centres[-1]]).square().sum(1))

    distances = torch.cdist(x, x[centres])
    owner = distances.argmin(1)
    cells = [(owner == k).nonzero()[:, 0] for k in range(count)]
    return [
        c[distances[c, k].argsort(stable=True)[:_ROWS]]
        for k, c in enumerate(cells)
        if len(c) >= LEAST
    ]


def _scores(theta: Theta, vector: Tensor, data: CalibrationData, blocks: list[Tensor]) -> Tensor:
    """Return the gradients of each block's −log evidence over (δ, along, across): (blocks, 3)."""
    rows, searched = [], [False] * 4 + [True] * 3
    columns = (data.x, data.velocity, data.heading, data.y, data.extra, data.pass_number)
    for block in blocks:
        parts = [column[block] for column in columns]
        parts.append(None if data.extent is None else data.extent[block])
        gradient, _ = evidence_score(theta, vector, searched, *parts, fisher=False)
        rows.append(gradient[4:] * data.y.shape[1])
    return torch.stack(rows)


def laplace(data: CalibrationData, blocks: list[Tensor], free: list[bool]):
    """Return the Laplace approximation of the posterior of (δ, along, across).

    Args:
        data: remembered samples.
        blocks: indices of each neighbourhood.
        free: (3,) whether each is searched for; the others stay where they are in use.

    Returns:
        Mode (3,), covariance (3, 3) with all three free, and the factor on standard deviations from
        the scatter of the scores.
    """
    theta, used = data.theta, sum(map(len, blocks))
    scale = len(data) / used

    # The last three of Theta.vector() are (δ, along, across); weight is their prior precision.
    centre, weight = data.prior.vector()[4:], 1.0 / data.prior_stddev[4:].square()

    vector, mask = theta.vector().to(data.x.device), torch.tensor(free)
    centre, weight, mask = (t.to(vector.device) for t in (centre, weight, mask))

    def gradient(at: Tensor) -> Tensor:
        """Return the scores of the blocks, (blocks, 3)."""
        return _scores(theta, at, data, blocks)

    def curvature(at: Tensor) -> Tensor:
        """Return the Hessians (blocks, 3, 3) by central differences of the gradient."""
        columns = []
        for k, step in enumerate(_STEPS):
            moved = torch.zeros_like(at)
            moved[4 + k] = step
            columns.append((gradient(at + moved) - gradient(at - moved)) / (2 * step))

        hessian = torch.stack(columns, 2)
        return 0.5 * (hessian + hessian.mT)

    # Newton's method: blocks stand for all samples, and the prior counts once.
    for _ in range(_ROUNDS if any(free) else 0):
        total = scale * gradient(vector).sum(0) + weight * (vector[4:] - centre)
        hessian = _positive(scale * curvature(vector).sum(0)) + torch.diag(weight)
        step = torch.zeros_like(total)
        step[mask] = torch.linalg.solve(hessian[mask][:, mask], total[mask])
        step = step.clamp(-0.05, 0.05)  # s, m: beyond, the curvature of the start says little
        vector = vector.clone()
        vector[4:] -= step
        if float(step.abs().max()) < 1e-4:
            break

    hessian = curvature(vector)
    inflation = _inflation(gradient(vector), hessian, mask)
    # The inflation is of the data's part alone: the prior stays what it is.
    data_part = _positive(scale * hessian.sum(0)) / inflation**2
    return vector[4:].cpu(), torch.linalg.inv(data_part + torch.diag(weight)).cpu(), inflation


def _positive(hessian: Tensor) -> Tensor:
    """Return the nearest positive semi-definite matrix.

    A direction in which the evidence curves the wrong way determines nothing.
    """
    values, vectors = torch.linalg.eigh(hessian)
    return (vectors * values.clamp_min(0.0)) @ vectors.mT


def _inflation(scores: Tensor, hessian: Tensor, mask: Tensor) -> float:
    """Return √ of the mean of g²/h over blocks and learned parameters, at least 1.

    h is the variance of g where the model is right. Noise that is not white, and gross errors, make
    scores scatter more.

    Args:
        scores: (blocks, 3) g.
        hessian: (blocks, 3, 3), with h on its diagonals.
        mask: (3,) learned parameters.
    """
    curvature = hessian.diagonal(dim1=1, dim2=2)
    chosen = mask if bool(mask.any()) else torch.ones_like(mask)

    usable = (curvature > 0) & chosen
    # Scatter about the common mean, which is not 0 where a parameter is held.
    scores = scores - scores.mean(0) if len(scores) > 2 else scores

    if int(usable.sum()) < 3:
        return 1.0
    freedom = (len(scores) - 1) / len(scores) if len(scores) > 2 else 1.0
    return max(1.0, math.sqrt(float((scores.square() / curvature)[usable].mean()) / freedom))


def given_held(covariance: Tensor, free: list[bool]) -> Tensor:
    """Return the covariance with what is held held.

    Of the free parameters it is the conditional covariance; of a held one what it would be if free.

    Args:
        covariance: (3, 3) with all free.
        free: (3,).
    """
    mask = torch.tensor(free)
    out = covariance.clone()

    if bool(mask.any()) and not bool(mask.all()):
        precision = torch.linalg.inv(covariance)
        # The inverse of a block of the precision is the conditional covariance.
        inner = torch.linalg.inv(precision[mask][:, mask])
        out[mask.nonzero(), mask.nonzero().mT] = inner
    return out


def estimate_body_field(
    data: CalibrationData, blocks: list[Tensor], mode: Tensor
) -> dict[str, float]:
    """Return amplitude and direction of the body-fixed field w, SI.

        y = w·ĥ + field + constant of the pass + noise,   w ~ N(0, s_h² I)

    The map's own posterior of its heading features is the same, but at the time offset that it uses
    now and with noise taken as white. Here it is at the mode of the offset, and its covariance
    grows by the scatter of the blocks: scores Hᵀ C⁻¹ (y − Hw), of variance A = Hᵀ C⁻¹ H were the
    noise white.

    Args:
        data: remembered samples.
        blocks: indices of each neighbourhood.
        mode: (3,) offset, along and across.

    Returns:
        turning, turning_stddev, direction, direction_stddev and turning_chi_square, as of
        Calibration.
    """
    theta = data.theta
    names = ("turning", "turning_stddev", "direction", "direction_stddev", "turning_chi_square")
    if theta.heading_stddev <= 0:
        return dict.fromkeys(names, 0.0)

    information, projections = [], []
    for block in blocks:
        heading, y = data.heading[block], data.y[block].mean(1, keepdim=True)

        x = sensor_place(data.x[block], data.velocity[block], heading, *mode.tolist())
        noise = theta.noise_stddev**2 + data.extra[block]
        # s_b² δ(p, p′): one constant for each pass
        together = pass_membership(data.pass_number[block], theta.bias_correlation)
        constants = theta.constant_stddev**2 + theta.bias_stddev**2 * (together @ together.mT)
        factor, _ = cholesky(theta.kernel()(x, x) + constants + torch.diag(noise))

        whitened_heading, whitened_y = solve_lower(factor, heading), solve_lower(factor, y)
        information.append(whitened_heading.mT @ whitened_heading)
        projections.append((whitened_heading.mT @ whitened_y)[:, 0])
    information, projections = torch.stack(information), torch.stack(projections)

    scale = len(data) / sum(map(len, blocks))
    prior_precision = (
        torch.eye(2, dtype=information.dtype, device=information.device) / theta.heading_stddev**2
    )
    mean = torch.linalg.solve(
        scale * information.sum(0) + prior_precision, scale * projections.sum(0)
    )

    # Blocks with hardly any turn say nothing of the scatter.
    diagonal = information.diagonal(dim1=1, dim2=2)
    usable = diagonal > 1e-3 * diagonal.max()
    # Two parameters are fitted.
    freedom, inflation = int(usable.sum()) - 2, 1.0
    if freedom >= 2:
        scores = (projections - information @ mean).square() / diagonal
        inflation = max(1.0, math.sqrt(float(scores[usable].sum()) / freedom))

    covariance = torch.linalg.inv(scale * information.sum(0) / inflation**2 + prior_precision).cpu()
    mean = mean.cpu()

    amplitude = max(float(mean.norm()), 1e-12)
    ahead = mean / amplitude
    # Standard deviations along w are of its amplitude, across it of its direction.
    left = torch.stack([-ahead[1], ahead[0]])
    along, across = (float((axis @ covariance @ axis).sqrt()) for axis in (ahead, left))

    values = (
        amplitude * data.scale,
        along * data.scale,
        float(torch.atan2(mean[1], mean[0])),
        min(math.pi, across / amplitude),
        float(mean @ torch.linalg.solve(covariance, mean)),
    )
    return dict(zip(names, values))

"""How well the remembered samples know the robot: curvature and scatter of the log evidence, block by block."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.hyper import HyperLearner, Theta, negative_log_evidence, sensor_place
from gp_mapping.core.linalg import cholesky, solve_lower

__all__ = ["LEAST", "columns", "given_held", "laplace", "neighbourhoods", "turning"]

LEAST = 5  # samples in a neighbourhood
_BLOCKS, _ROWS = 8, HyperLearner.NEIGHBOURS
_STEPS = (1e-3, 1e-3, 1e-3)  # s, m, m: of the central differences of the gradient
_ROUNDS = 8  # Newton steps towards the mode


def columns(source) -> dict[str, Tensor] | None:
    """What is read of a memory or of an exact map's data."""
    if source is None:
        return None
    names = ("x", "velocity", "heading", "y", "noise", "extra")
    return {n: source[n] if isinstance(source, dict) else getattr(source, n) for n in names}


def neighbourhoods(x: Tensor) -> list[Tensor]:
    """Up to 8 disjoint sets of at most 250 indices: Voronoi cells of centres far from each other, nearest first."""
    count = min(_BLOCKS, max(1, len(x) // (4 * LEAST)))
    distance = (x - x.mean(0)).square().sum(1)
    centres = [int(distance.argmin())]
    nearest = (x - x[centres[0]]).square().sum(1)
    while len(centres) < count:
        centres.append(int(nearest.argmax()))
        nearest = torch.minimum(nearest, (x - x[centres[-1]]).square().sum(1))
    apart = torch.cdist(x, x[centres])
    owner = apart.argmin(1)
    cells = [(owner == k).nonzero()[:, 0] for k in range(count)]
    return [c[apart[c, k].argsort(stable=True)[:_ROWS]] for k, c in enumerate(cells) if len(c) >= LEAST]


def _scores(theta: Theta, vector: Tensor, data: dict, blocks: list[Tensor]) -> Tensor:
    """Gradients of each block's −log evidence over (δ, along, across): (blocks, 3)."""
    rows = []
    for near in blocks:
        at = vector.clone().requires_grad_(True)
        with torch.enable_grad():
            parts = (data[name][near] for name in ("x", "velocity", "heading", "y", "extra"))
            loss = negative_log_evidence(theta, at, *parts) * len(near) * data["y"].shape[1]
            rows.append(torch.autograd.grad(loss, at)[0][4:])
    return torch.stack(rows)


def laplace(theta: Theta, data: dict, blocks: list[Tensor], learner, free: list[bool]):
    """Mode (3,), covariance (3, 3) with all three free, and the factor on sd's from the scatter of the scores."""
    used = sum(map(len, blocks))
    scale = len(data["x"]) / used
    centre, weight = learner.prior.vector()[4:], 1.0 / learner.prior_sd[4:].square()
    vector, mask = theta.vector().to(data["x"].device), torch.tensor(free)
    centre, weight, mask = (t.to(vector.device) for t in (centre, weight, mask))

    def gradient(at: Tensor) -> Tensor:
        return _scores(theta, at, data, blocks)

    def curvature(at: Tensor) -> Tensor:
        """(blocks, 3, 3) by central differences of the gradient."""
        columns = []
        for k, step in enumerate(_STEPS):
            moved = torch.zeros_like(at)
            moved[4 + k] = step
            columns.append((gradient(at + moved) - gradient(at - moved)) / (2 * step))
        hessian = torch.stack(columns, 2)
        return 0.5 * (hessian + hessian.mT)

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
    data_part = _positive(scale * hessian.sum(0)) / inflation**2
    return vector[4:].cpu(), torch.linalg.inv(data_part + torch.diag(weight)).cpu(), inflation


def _positive(hessian: Tensor) -> Tensor:
    """The nearest positive semi-definite matrix: a direction in which the evidence curves the wrong way says nothing"""
    values, vectors = torch.linalg.eigh(hessian)
    return (vectors * values.clamp_min(0.0)) @ vectors.mT


def _inflation(scores: Tensor, hessian: Tensor, mask: Tensor) -> float:
    """√ of the mean of g²/h over blocks and learned parameters, at least 1: h is the variance of g where the model is
    right. Noise that is not white, and gross errors, make scores scatter more."""
    curved = hessian.diagonal(dim1=1, dim2=2)
    chosen = mask if bool(mask.any()) else torch.ones_like(mask)
    good = (curved > 0) & chosen
    scores = scores - scores.mean(0) if len(scores) > 2 else scores
    if int(good.sum()) < 3:
        return 1.0
    freedom = (len(scores) - 1) / len(scores) if len(scores) > 2 else 1.0
    return max(1.0, math.sqrt(float((scores.square() / curved)[good].mean()) / freedom))


def given_held(covariance: Tensor, free: list[bool]) -> Tensor:
    """With what is held held: of the free ones the conditional covariance; of a held one what it would be, free."""
    mask = torch.tensor(free)
    out = covariance.clone()
    if bool(mask.any()) and not bool(mask.all()):
        precision = torch.linalg.inv(covariance)
        inner = torch.linalg.inv(precision[mask][:, mask])
        out[mask.nonzero(), mask.nonzero().mT] = inner
    return out


def turning(field, data: dict, blocks: list[Tensor], mode: Tensor) -> dict[str, float]:
    """Amplitude and direction of the field that turns with the robot, from the posterior of the heading features.

    Its covariance grows by the scatter of what the blocks say of it, each by itself.
    """
    theta, scale = field.theta, field.scale
    names = ("turning", "turning_stddev", "direction", "direction_stddev", "turning_chi_square")
    if theta.heading <= 0:
        return dict.fromkeys(names, 0.0)
    posterior = field.posterior
    if hasattr(posterior, "weights") and hasattr(posterior, "z"):
        first = 1 if theta.constant > 0 else 0
        rows = slice(first, first + 2)
        unit = torch.zeros((len(posterior.R), 2), dtype=posterior.R.dtype, device=posterior.R.device)
        unit[rows] = torch.eye(2, dtype=unit.dtype, device=unit.device)
        half = solve_lower(posterior.R, unit)
        mean, covariance = theta.heading * posterior.weights[rows].mean(1), theta.heading**2 * half.mT @ half
    else:
        half = solve_lower(posterior.factor, posterior.heading)
        mean = theta.heading**2 * (posterior.heading.mT @ posterior.weights).mean(1)
        covariance = theta.heading**2 * torch.eye(2, dtype=half.dtype) - theta.heading**4 * half.mT @ half
    mean, covariance = mean.double().cpu(), covariance.double().cpu()
    covariance = covariance * _scatter(theta, data, blocks, mode) ** 2
    amplitude = float(mean.norm())
    if amplitude == 0.0:
        spread = float(covariance.diagonal().mean().sqrt())
        return dict(zip(names, (0.0, spread * scale, 0.0, math.pi, 0.0)))
    ahead = mean / amplitude
    left = torch.stack([-ahead[1], ahead[0]])
    chi = float(mean @ torch.linalg.solve(covariance, mean))
    along, across = (float((axis @ covariance @ axis).sqrt()) for axis in (ahead, left))
    values = (amplitude * scale, along * scale, float(torch.atan2(mean[1], mean[0])),
              min(math.pi, across / amplitude), chi)
    return dict(zip(names, values))


def _scatter(theta: Theta, data: dict, blocks: list[Tensor], mode: Tensor) -> float:
    """As _inflation, of w in y = w·ĥ + field + noise: scores Hᵀ C⁻¹ (y − Hw), of variance A = Hᵀ C⁻¹ H."""
    curved, pulls = [], []
    for near in blocks:
        heading, y = data["heading"][near], data["y"][near].mean(1, keepdim=True)
        x = sensor_place(data["x"][near], data["velocity"][near], heading, *mode.tolist())
        noise = theta.noise**2 + data["extra"][near]
        factor, _ = cholesky(theta.kernel()(x, x) + theta.constant**2 + torch.diag(noise))
        half, white = solve_lower(factor, heading), solve_lower(factor, y)
        curved.append(half.mT @ half)
        pulls.append((half.mT @ white)[:, 0])
    curved, pulls = torch.stack(curved), torch.stack(pulls)
    shrink = torch.eye(2, dtype=curved.dtype, device=curved.device) / theta.heading**2
    best = torch.linalg.solve(curved.sum(0) + shrink, pulls.sum(0))
    diagonal = curved.diagonal(dim1=1, dim2=2)
    good = diagonal > 1e-3 * diagonal.max()
    freedom = int(good.sum()) - 2
    if freedom < 2:
        return 1.0
    return max(1.0, math.sqrt(float(((pulls - curved @ best).square() / diagonal)[good].sum()) / freedom))

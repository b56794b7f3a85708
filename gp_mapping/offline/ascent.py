"""θ from all cells at once: quasi-Newton ascent where the objective's curvature is about one.

    max_v  F(θ(v)) + log p(v),   v = v₀ + S u,   S Sᵀ = (Fisher information + prior precision)⁻¹

L-BFGS in u starts from u = 0. Gradients are central differences of a hundredth of a posterior
standard deviation, since an objective is a function of θ alone, whatever θ contains. The ascent
stops where an iteration gains less than `tolerance` nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.errors import NumericalError
from gp_mapping.offline.objectives import Objective
from gp_mapping.offline.stored_cells import StoredCells

__all__ = ["Ascent", "ascend", "information"]

_STEP = 1e-2  # of a central difference, posterior standard deviations
_NOWHERE = 1e12  # loss, in nats, of a θ that does not factor or lies beyond all priors
_LOOKED_AT = 800, 4  # cells of a block, and blocks, whose Fisher information is computed


@dataclass(frozen=True)
class Ascent:
    """The result of an ascent.

    Attributes:
        theta: the best θ found.
        value: the objective there, nats, without the prior.
        iterations: of L-BFGS.
        converged: whether nothing was left to gain when it stopped.
    """

    theta: Theta
    value: float
    iterations: int
    converged: bool


def information(learner: HyperLearner, theta: Theta, cells: StoredCells) -> Tensor:
    """Fisher information of all cells about θ.

        I = N/n Σ_b I_b,   n cells in the few blocks b that are computed

    Args:
        learner: computes the information of a block.
        theta: where.
        cells: all N of them.

    Returns:
        (P, P), in the coordinates of `theta.vector()`.
    """
    most, count = _LOOKED_AT
    blocks = cells.blocks(most)[:count]

    total = torch.zeros((len(theta.vector()),) * 2, dtype=torch.float64)
    for block in blocks:
        total += learner.score(
            theta.vector(), block.learning_data(theta), torch.arange(len(block))
        )[1].cpu()

    return total * len(cells) / sum(map(len, blocks))


def ascend(
    objective: Objective,
    learner: HyperLearner,
    theta: Theta,
    fisher: Tensor,
    most: int,
    tolerance: float,
    progress: Callable[[float], None],
) -> Ascent:
    """Raise the objective from θ.

    Args:
        objective: renewed already.
        learner: says which of θ is free, its priors and limits.
        theta: the start.
        fisher: information about θ there (P, P).
        most: iterations at most.
        tolerance: gain of an iteration, nats, below which the ascent stops.
        progress: called with the objective after each iteration.

    Returns:
        The best θ; the start itself where nothing was better.
    """
    free, start = torch.tensor(learner.free), theta.vector()
    if not bool(free.any()):
        return Ascent(theta, objective.value(theta), 0, True)

    # a unit of u is a posterior standard deviation
    curvature = (fisher + torch.diag(learner.prior_sd.reciprocal().square()))[free][:, free]
    scale = torch.linalg.inv(torch.linalg.cholesky(curvature)).mT

    def at(u: np.ndarray) -> Tensor:
        """Parameters v at the coordinates u."""
        vector = start.clone()
        vector[free] += scale @ torch.from_numpy(u)
        return vector

    def loss(u: np.ndarray) -> float:
        """−(objective + log prior) at u, _NOWHERE where it cannot be computed."""
        vector = at(u)
        if not learner.is_within_limits(vector):
            return _NOWHERE

        try:
            value = objective.value(theta.with_vector(vector)) + learner.log_prior(vector)
        except (NumericalError, ArithmeticError, torch.linalg.LinAlgError):
            return _NOWHERE
        return -value if math.isfinite(value) else _NOWHERE

    def slope(u: np.ndarray) -> np.ndarray:
        """Gradient of the loss by central differences, 0 along an axis that leads nowhere."""
        ends = [[loss(u + sign * _STEP * axis) for sign in (1.0, -1.0)] for axis in np.eye(len(u))]
        return np.array([(a - b) / (2 * _STEP) if max(a, b) < _NOWHERE else 0.0 for a, b in ends])

    zero = np.zeros(int(free.sum()))

    first = loss(zero)
    best, count, converged = (zero, first), 0, False

    def after_iteration(intermediate_result) -> None:
        """Keep the best u, report it, and stop where the gain is small."""
        nonlocal best, count, converged
        gain, count = best[1] - float(intermediate_result.fun), count + 1
        if gain > 0:
            best = np.array(intermediate_result.x), float(intermediate_result.fun)
        progress(-best[1])

        converged = gain < tolerance
        if converged:
            raise StopIteration

    result = minimize(
        loss,
        zero,
        jac=slope,
        method="L-BFGS-B",
        callback=after_iteration,
        options={"maxiter": max(1, most), "ftol": 1e-12, "gtol": 1e-3},
    )

    # the last iterate may be better than the last one that was reported
    if result.fun < best[1]:
        best = result.x, float(result.fun)
    at_best = theta.with_vector(at(best[0]))
    # status 0: the slope vanished; others are a limit that was reached, or a failed line search
    return Ascent(at_best, objective.value(at_best), count, converged or result.status == 0)

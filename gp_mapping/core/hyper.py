"""Hyper-parameters, learned online in small, safe steps from neighbourhoods of remembered samples.

Each step is one of Adam on the exact negative log evidence of at most 250 samples near a random one (half the time one
of the newest 40), per sample, with log-normal priors (measured.md, "Honest intervals", 5). A map takes the learner's
values over only when they have moved by `adopt_change`, since that costs it a rebuild of its factors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.kernels import make_kernel, scaled_square_distance

__all__ = ["HyperLearner", "Theta"]


@dataclass(frozen=True)
class Theta:
    """ℓ (m), s, s_p (noise) and s_c (constant): standard deviations in inner units."""

    lengthscale: float
    signal: float
    noise: float
    constant: float
    kernel_name: str = "matern52"

    def kernel(self):
        return make_kernel(self.kernel_name, self.signal**2, self.lengthscale)

    def logs(self) -> Tensor:
        """[log ℓ, log s², log s_p²]: what is learned."""
        return torch.tensor([math.log(self.lengthscale), 2 * math.log(self.signal), 2 * math.log(self.noise)],
                            dtype=torch.float64)

    def with_logs(self, logs: Tensor) -> "Theta":
        length, signal, noise = logs.tolist()
        return replace(self, lengthscale=math.exp(length), signal=math.exp(signal / 2), noise=math.exp(noise / 2))

    def distance(self, other: "Theta") -> float:
        """Largest change of a learned logarithm."""
        return float((self.logs() - other.logs()).abs().max())


def negative_log_evidence(theta: Theta, logs: Tensor, square: Tensor, y: Tensor, extra: Tensor) -> Tensor:
    """−log N(y | 0, s²ρ(r) + s_c² + diag(s_p² + extra)) per sample and channel.

    logs (3,); square (n, n) squared distances in m²; y (n, C); extra (n,): white variance of each, 0 where unknown.
    """
    correlation = type(theta.kernel()).correlation(square * torch.exp(-2.0 * logs[0]))
    covariance = torch.exp(logs[1]) * correlation + theta.constant**2 + torch.diag(torch.exp(logs[2]) + extra)
    factor = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(factor, y, upper=False)
    n, channels = y.shape
    return (0.5 * white.square().sum() / channels + factor.diagonal().log().sum()) / n + 0.5 * math.log(2 * math.pi)


class HyperLearner:
    """Adam on [log ℓ, log s², log s_p²] with log-normal priors; owes `rate` steps per sample and works them off."""

    STEPS_PER_SAMPLE = 0.2
    NEIGHBOURS = 250
    NEWEST = 40
    SETTLE = 400  # steps after which the step length decays with the square root of their number

    def __init__(self, theta: Theta, prior: Theta, prior_sd=(0.5, 1.0, 1.0), learning_rate: float = 0.05,
                 adopt_change: float = 0.05):
        self.start, self.theta, self.prior = theta, theta, prior
        self.prior_sd = torch.tensor(prior_sd, dtype=torch.float64)
        self.learning_rate, self.adopt_change = learning_rate, adopt_change
        self.logs, self.first, self.second = theta.logs(), torch.zeros(3).double(), torch.zeros(3).double()
        self.steps, self.owed, self.rejected = 0, 0.0, 0

    def owe(self, samples: int) -> None:
        """A bounded debt: a burst of samples never means a burst of learning."""
        self.owed = min(self.owed + self.STEPS_PER_SAMPLE * samples, 40.0)

    def neighbourhood(self, x: Tensor, order: Tensor, generator: torch.Generator) -> Tensor:
        """Indices of at most NEIGHBOURS samples within 2 prior lengthscales of a random one."""
        draw = torch.rand(2, dtype=torch.float64, generator=generator).tolist()
        n = len(x)
        pool = order.topk(min(self.NEWEST, n)).indices if draw[0] < 0.5 else torch.arange(n, device=x.device)
        centre = x[pool[int(draw[1] * len(pool))]]
        near = ((x - centre).square().sum(1) <= (2.0 * self.prior.lengthscale) ** 2).nonzero()[:, 0]
        if len(near) > self.NEIGHBOURS:
            near = near[torch.randperm(len(near), generator=generator)[: self.NEIGHBOURS].to(x.device)]
        return near

    def step(self, x: Tensor, y: Tensor, extra: Tensor, order: Tensor, generator: torch.Generator) -> bool:
        """One step from samples x (n, D), y (n, C), extra (n,); False where it was refused as not finite."""
        self.owed -= 1.0
        near = self.neighbourhood(x, order, generator)
        if len(near) < 5:
            return False
        logs = self.logs.to(x.device).requires_grad_(True)
        places = x[near]
        square = scaled_square_distance(places, places, torch.ones((), dtype=x.dtype, device=x.device))
        values = y[near]
        with torch.enable_grad():
            try:
                loss = negative_log_evidence(self.theta, logs, square, values, extra[near])
            except torch.linalg.LinAlgError:
                self.rejected += 1
                return False
            prior = ((logs - self.prior.logs().to(x.device)) / self.prior_sd.to(x.device)).square().sum()
            (loss + 0.5 * prior / len(near)).backward()
        gradient = logs.grad.cpu()
        if not bool(torch.isfinite(gradient).all()):
            self.rejected += 1
            return False
        self.steps += 1
        self.first.mul_(0.9).add_(gradient, alpha=0.1)
        self.second.mul_(0.999).add_(gradient.square(), alpha=0.001)
        first, second = self.first / (1 - 0.9**self.steps), self.second / (1 - 0.999**self.steps)
        rate = self.learning_rate * min(1.0, (self.SETTLE / self.steps) ** 0.5)
        moved = self.logs - rate * first / (second.sqrt() + 1e-8)
        centre = self.prior.logs()  # six prior standard deviations: beyond lies only a fault
        self.logs = torch.minimum(torch.maximum(moved, centre - 6 * self.prior_sd), centre + 6 * self.prior_sd)
        self.theta = self.theta.with_logs(self.logs)
        return True

    def state_dict(self) -> dict:
        return {"logs": self.logs.clone(), "first": self.first.clone(), "second": self.second.clone(),
                "steps": self.steps, "owed": self.owed, "rejected": self.rejected}

    def load_state_dict(self, state: dict) -> None:
        self.logs, self.first, self.second = (state[k].clone() for k in ("logs", "first", "second"))
        self.steps, self.owed, self.rejected = int(state["steps"]), float(state["owed"]), int(state["rejected"])
        self.theta = self.theta.with_logs(self.logs)

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

__all__ = ["HyperLearner", "Theta", "heading_of", "negative_log_evidence", "sensor_place"]


SLOWEST = 0.03  # m/s below which a velocity says nothing of the heading


@dataclass(frozen=True)
class Theta:
    """ℓ (m), s, s_p (noise), s_c (constant), s_h (heading): standard deviations in inner units; δ (s) time offset;
    along, across (m): the sensor's lever arm, forward and to the left. A heading of 0 leaves the robot's own field out.
    """

    lengthscale: float
    signal: float
    noise: float
    constant: float
    heading: float = 0.0
    offset: float = 0.0
    along: float = 0.0
    across: float = 0.0
    kernel_name: str = "matern52"

    def kernel(self):
        return make_kernel(self.kernel_name, self.signal**2, self.lengthscale)

    def vector(self) -> Tensor:
        """[log ℓ, log s², log s_p², log s_h², δ, along, across]: what may be learned."""
        return torch.tensor([math.log(self.lengthscale), 2 * math.log(self.signal), 2 * math.log(self.noise),
                             2 * math.log(self.heading) if self.heading > 0 else 0.0, self.offset,
                             self.along, self.across], dtype=torch.float64)

    def with_vector(self, vector: Tensor) -> "Theta":
        length, signal, noise, heading, offset, along, across = vector.tolist()
        return replace(self, lengthscale=math.exp(length), signal=math.exp(signal / 2), noise=math.exp(noise / 2),
                       heading=math.exp(heading / 2) if self.heading > 0 else 0.0, offset=offset, along=along,
                       across=across)

    def distance(self, other: "Theta") -> float:
        """Largest change of a learned logarithm; 20 ms of offset, or 1 cm of lever arm, count as much as a tenth."""
        weights = torch.tensor([1.0, 1.0, 1.0, 1.0, 5.0, 10.0, 10.0], dtype=torch.float64)
        return float(((self.vector() - other.vector()) * weights).abs().max())

    def place(self, x: Tensor, velocity: Tensor, heading: Tensor) -> Tensor:
        """Where the sensor was when it measured: x − δ v + along ĥ + across ĥ⊥. (N, D)"""
        if not (self.offset or self.along or self.across):
            return x
        return sensor_place(x, velocity, heading, self.offset, self.along, self.across)


def sensor_place(x: Tensor, velocity: Tensor, heading: Tensor, offset, along, across) -> Tensor:
    """x − δ v + along ĥ + across ĥ⊥, ĥ⊥ to the left of ĥ. (N, D)"""
    left = torch.stack([-heading[:, 1], heading[:, 0]], 1)
    arm = (along * heading + across * left)[:, : x.shape[1]]
    if x.shape[1] > 2:
        arm = torch.cat([arm, torch.zeros_like(x[:, 2:])], 1)
    return x - offset * velocity + arm


def heading_of(velocity: Tensor) -> Tensor:
    """ĥ = v / max(|v|, 0.03 m/s): (N, 2), short where the robot hardly moves."""
    plane = velocity[:, :2]
    if velocity.shape[1] == 1:
        plane = torch.cat([plane, torch.zeros_like(plane)], 1)
    return plane / plane.norm(dim=1, keepdim=True).clamp_min(SLOWEST)


def negative_log_evidence(theta: Theta, vector: Tensor, x: Tensor, velocity: Tensor, heading: Tensor, y: Tensor,
                          extra: Tensor) -> Tensor:
    """−log N(y | 0, s²ρ(r) + s_c² + s_h² ĥĥᵀ + diag(s_p² + extra)) per sample and channel, r between sensor places.

    vector (7,); x, velocity (n, D); heading (n, 2); y (n, C); extra (n,): white variance of each, 0 where unknown.
    """
    places = sensor_place(x, velocity, heading, vector[4], vector[5], vector[6])
    scale = torch.exp(vector[0])
    square = scaled_square_distance(places, places, scale)
    covariance = torch.exp(vector[1]) * type(theta.kernel()).correlation(square) + theta.constant**2
    if theta.heading > 0:
        covariance = covariance + torch.exp(vector[3]) * (heading @ heading.mT)
    factor = torch.linalg.cholesky(covariance + torch.diag(torch.exp(vector[2]) + extra))
    white = torch.linalg.solve_triangular(factor, y, upper=False)
    n, channels = y.shape
    return (0.5 * white.square().sum() / channels + factor.diagonal().log().sum()) / n + 0.5 * math.log(2 * math.pi)


class HyperLearner:
    """Adam on Theta.vector() with priors; owes STEPS √n steps for n samples and works them off.

    prior: medians.  prior_sd: (7,) of the logarithms, of δ in s and of the lever arm in m.  free: which are learned.
    """

    STEPS = 0.2
    NEIGHBOURS = 250
    NEWEST = 40
    SETTLE = 400  # steps after which the step length decays with the square root of their number
    RATES = (0.05, 0.05, 0.05, 0.05, 0.01, 0.002, 0.002)

    def __init__(self, theta: Theta, prior: Theta, prior_sd=(0.5, 1.0, 1.0, 1.0, 0.2, 0.05, 0.05),
                 free=(True, True, True, True, True, False, False), adopt_change: float = 0.1):
        self.theta, self.prior, self.adopt_change = theta, prior, adopt_change
        self.prior_sd = torch.tensor(prior_sd, dtype=torch.float64)
        mask = [bool(f) for f in free]
        mask[3] = mask[3] and theta.heading > 0
        self.rates = torch.tensor(self.RATES, dtype=torch.float64) * torch.tensor(mask, dtype=torch.float64)
        self.vector, self.first, self.second = theta.vector(), torch.zeros(7).double(), torch.zeros(7).double()
        # six prior standard deviations: beyond lies only a fault, unless the start lies there
        centre, start = prior.vector(), theta.vector()
        self.low = torch.minimum(centre - 6 * self.prior_sd, start)
        self.high = torch.maximum(centre + 6 * self.prior_sd, start)
        self.steps, self.owed, self.rejected = 0, 0.0, 0

    def owe(self, samples: int) -> None:
        """√n, since the more samples come together the less new each says; bounded: a burst is no burst of learning."""
        self.owed = min(self.owed + self.STEPS * samples**0.5, 40.0)

    def neighbourhood(self, x: Tensor, order: Tensor, generator: torch.Generator) -> Tensor:
        """Indices of at most NEIGHBOURS samples within 2 prior lengthscales of a random one."""
        draw = torch.rand(2, dtype=torch.float64, generator=generator).tolist()
        n = len(x)
        pool = order.topk(min(self.NEWEST, n)).indices if draw[0] < 0.5 else torch.arange(n, device=x.device)
        centre = x[pool[int(draw[1] * len(pool))]]
        near = ((x - centre).square().sum(1) <= (2.0 * self.prior.lengthscale) ** 2 * (1 + 1e-6)).nonzero()[:, 0]
        if len(near) > self.NEIGHBOURS:
            near = near[torch.randperm(len(near), generator=generator)[: self.NEIGHBOURS].to(x.device)]
        return near

    def loss(self, vector: Tensor, data: dict[str, Tensor], near: Tensor) -> Tensor:
        """Negative log evidence per sample of the samples `near` (indices)."""
        parts = (data[name][near] for name in ("x", "velocity", "heading", "y", "extra"))
        return negative_log_evidence(self.theta, vector, *parts)

    def step(self, data: dict[str, Tensor], generator: torch.Generator) -> bool:
        """One step from x, velocity (n, D), heading (n, 2), y (n, C), extra, order (n,); False where it was refused."""
        self.owed -= 1.0
        x = data["x"]
        if not len(x):
            return False
        near = self.neighbourhood(x, data["order"], generator)
        if len(near) < 5:
            return False
        vector = self.vector.to(x.device).requires_grad_(True)
        with torch.enable_grad():
            try:
                loss = self.loss(vector, data, near)
            except torch.linalg.LinAlgError:
                self.rejected += 1
                return False
            prior = ((vector - self.prior.vector().to(x.device)) / self.prior_sd.to(x.device)).square().sum()
            (loss + 0.5 * prior / len(near)).backward()
        gradient = vector.grad.cpu()
        if not bool(torch.isfinite(gradient).all()):
            self.rejected += 1
            return False
        self.steps += 1
        self.first.mul_(0.9).add_(gradient, alpha=0.1)
        self.second.mul_(0.999).add_(gradient.square(), alpha=0.001)
        first, second = self.first / (1 - 0.9**self.steps), self.second / (1 - 0.999**self.steps)
        rate = self.rates * min(1.0, (self.SETTLE / self.steps) ** 0.5)
        # 1e-3 nats: along a direction that the data say nothing of, rounding errors are no gradient to follow
        moved = self.vector - rate * first / (second.sqrt() + 1e-3)
        self.vector = torch.minimum(torch.maximum(moved, self.low), self.high)
        self.theta = self.theta.with_vector(self.vector)
        return True

    def state_dict(self) -> dict:
        return {"vector": self.vector.clone(), "first": self.first.clone(), "second": self.second.clone(),
                "steps": self.steps, "owed": self.owed, "rejected": self.rejected}

    def load_state_dict(self, state: dict) -> None:
        self.vector, self.first, self.second = (state[k].clone() for k in ("vector", "first", "second"))
        self.steps, self.owed, self.rejected = int(state["steps"]), float(state["owed"]), int(state["rejected"])
        self.theta = self.theta.with_vector(self.vector)

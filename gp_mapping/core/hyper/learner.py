"""Hyper-parameters, learned online in small, safe steps from neighbourhoods of remembered samples.

Each step is a natural-gradient step (Fisher scoring) on the exact log evidence of at most 250 samples near a random
one, half the time one of the newest 40, with log-normal priors (measured.md, "Honest intervals", 5). In the metric of
the Fisher information no start is far, and steps shorten as the data agree. A map takes the learner's values over only
when they have moved by `adopt_change`, since that costs it a rebuild of its factors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.hyper.evidence import evidence_score
from gp_mapping.core.hyper.theta import Theta

__all__ = ["HyperLearner"]


class HyperLearner:
    """Fisher scoring on Theta.vector() with priors; owes STEPS √n steps for n samples and works them off.

        Λ ← (1 − γ_t) Λ + F + P,   v ← v − Λ⁻¹ (g + P (v − v₀)),   γ_t = max(LAST, 3/(t + 6))

    g, F: gradient of the neighbourhood's −log evidence and its Fisher information; P: the prior's precision. Λ is what
    the last third of the steps knew, so each direction moves by what this neighbourhood adds to it: a lane alone does
    not fix δ, and the first lane beside it does, however late it comes.
    prior: medians.  prior_sd: (7,) of the logarithms, of δ in s and of the lever arm in m.  free: which are learned.
    """

    STEPS = 0.2
    NEIGHBOURS = 250
    NEWEST = 40
    LAST = 0.02
    LONGEST = (0.1, 0.1, 0.1, 0.1, 0.05, 0.03, 0.03)  # of one step: beyond, the quadratic is not to be trusted

    def __init__(self, theta: Theta, prior: Theta, prior_sd=(0.5, 1.0, 1.0, 1.0, 0.2, 0.05, 0.05),
                 free=(True, True, True, True, True, False, False), adopt_change: float = 0.1):
        self.theta, self.prior, self.largest_change = theta, prior, adopt_change
        self.prior_sd = torch.tensor(prior_sd, dtype=torch.float64)
        self.free = [bool(f) for f in free]
        self.free[3] = self.free[3] and theta.heading > 0
        self.vector, self.metric = theta.vector(), torch.zeros((7, 7), dtype=torch.float64)  # v, Λ
        # six prior standard deviations: beyond lies only a fault, unless the start lies there
        centre, start = prior.vector(), theta.vector()
        self.low = torch.minimum(centre - 6 * self.prior_sd, start)
        self.high = torch.maximum(centre + 6 * self.prior_sd, start)
        self.steps, self.owed, self.rejected = 0, 0.0, 0

    @property
    def forgetting(self) -> float:
        """γ_t of the next step."""
        return max(self.LAST, 3.0 / (self.steps + 6.0))

    @property
    def adopt_change(self) -> float:
        """Theta.distance beyond which a map takes θ over: largest_change at first, a fifth once steps are short."""
        return self.largest_change * max(0.2, min(1.0, 5.0 * self.forgetting))

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

    def score(self, vector: Tensor, data: dict[str, Tensor], near: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (7,) of −log evidence of the samples `near` (indices), and its Fisher information (7, 7)."""
        parts = (data[name][near] for name in ("x", "velocity", "heading", "y", "extra"))
        return evidence_score(self.theta, vector, self.free, *parts)

    @torch.no_grad()
    def step(self, data: dict[str, Tensor], generator: torch.Generator) -> bool:
        """One step from x, velocity (n, D), heading (n, 2), y (n, C), extra, order (n,); False where it was refused."""
        self.owed -= 1.0
        x = data["x"]
        if not len(x):
            return False
        near = self.neighbourhood(x, data["order"], generator)
        if len(near) < 5:
            return False
        try:
            gradient, information = (t.cpu() for t in self.score(self.vector.to(x.device), data, near))
        except torch.linalg.LinAlgError:
            self.rejected += 1
            return False
        if not bool(torch.isfinite(gradient).all() and torch.isfinite(information).all()):
            self.rejected += 1
            return False
        prior = self.prior_sd**-2
        self.metric = (1.0 - self.forgetting) * self.metric + information + torch.diag(prior)
        self.steps += 1
        downhill = gradient + prior * (self.vector - self.prior.vector())
        free, move = torch.tensor(self.free), torch.zeros_like(self.vector)
        move[free] = torch.linalg.solve(self.metric[free][:, free], downhill[free])
        longest = torch.tensor(self.LONGEST, dtype=torch.float64)
        move = torch.minimum(torch.maximum(move, -longest), longest)
        self.vector = torch.minimum(torch.maximum(self.vector - move, self.low), self.high)
        self.theta = self.theta.with_vector(self.vector)
        return True

    def state_dict(self) -> dict:
        return {"vector": self.vector.clone(), "metric": self.metric.clone(),
                "steps": self.steps, "owed": self.owed, "rejected": self.rejected}

    def load_state_dict(self, state: dict) -> None:
        self.vector, self.metric = state["vector"].clone(), state["metric"].clone()
        self.steps, self.owed, self.rejected = int(state["steps"]), float(state["owed"]), int(state["rejected"])
        self.theta = self.theta.with_vector(self.vector)

"""What every model's snapshot shares: asked in SI, answered in inner units."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from gp_mapping.core.field_map import Snapshot
from gp_mapping.core.hyper.bias import BiasEvidence
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.types import Prediction

__all__ = ["InnerSnapshot", "gradient_of"]


def gradient_of(mean: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """∇ of a mean by automatic differentiation.

    Args:
        mean: places (N, D) → values (N, C), each of its own place alone.
        x: (N, D).

    Returns:
        (N, C, D).
    """
    places = x.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        values = mean(places)
        if not values.requires_grad:  # a map without inducing inputs says the same of every place
            return values.new_zeros((*values.shape, x.shape[1]))
        columns = [
            torch.autograd.grad(values[:, c].sum(), places, retain_graph=True)[0]
            for c in range(values.shape[1])
        ]
    return torch.stack(columns, 1)


class InnerSnapshot(Snapshot):
    """A snapshot of a map in inner units: a subclass has the attributes, `inner`, and `mean` where it is not of that.

    theta, scaling, noise_variance: of that moment, the last in inner units.
    """

    theta: Theta
    scaling: Scaling
    noise_variance: float

    @abstractmethod
    def inner(self, x: Tensor, heading: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean (N, C), latent variance (N,) at standardised x (N, D); with a heading, of field and robot together."""

    def mean(self, x: Tensor) -> Tensor:
        """(N, C) at standardised x (N, D), without the robot's own field; differentiable in x."""
        return self.inner(x)[0]

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """At x (N, D) in metres; SI. With a velocity (N, D): what the robot measures passing x, δ and ĥ included."""
        told = self.inner(*self.theta.passing(self.scaling.inner_x(x), velocity, heading))
        return self.scaling.outer(*told, self.noise_variance)

    def bias_evidence(self) -> BiasEvidence | None:
        """What the passes say of how much their constants differ; None where they have none, or there is but one."""
        return None

    def gradient(self, x: Tensor) -> Tensor:
        """∇ of the mean at standardised x (N, D), without the robot's own field: (N, C, D)."""
        return gradient_of(self.mean, x)

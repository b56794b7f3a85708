"""Base of the models' snapshots: SI outside, inner units inside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from gp_mapping.core.field_map import Snapshot
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.types import Prediction
from gp_mapping.gradients import recorded

__all__ = ["InnerSnapshot", "gradient_of"]


def gradient_of(mean: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Gradient of a mean by automatic differentiation.

    Args:
        mean: function of places (N, D) that returns values (N, C), each of its own place alone.
        x: (N, D).

    Returns:
        (N, C, D).
    """
    places = x.detach().clone().requires_grad_(True)
    with recorded():
        values = mean(places)
        if not values.requires_grad:  # a map without inducing inputs predicts the same everywhere
            return values.new_zeros((*values.shape, x.shape[1]))
        columns = [
            torch.autograd.grad(values[:, c].sum(), places, retain_graph=True)[0]
            for c in range(values.shape[1])
        ]
    return torch.stack(columns, 1)


class InnerSnapshot(Snapshot):
    """A snapshot of a map in inner units.

    A subclass sets the attributes and defines `predict_inner`, and `mean` where that is another
    than that of `predict_inner`.

    Attributes:
        theta: hyper-parameters of that moment.
        scaling: from SI to inner units.
        noise_variance: of that moment, inner units.
    """

    theta: Theta
    scaling: Scaling
    noise_variance: float

    @abstractmethod
    def predict_inner(self, x: Tensor, heading: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean (N, C) and latent variance (N,) at standardised x (N, D).

        Args:
            x: (N, D), standardised.
            heading: ĥ (N, 2); with it the body-fixed field is included.
        """

    def mean(self, x: Tensor) -> Tensor:
        """Mean (N, C) at standardised x (N, D), no body-fixed field; differentiable in x."""
        return self.predict_inner(x)[0]

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """Predict in SI.

        Args:
            x: (N, D) metres.
            velocity: (N, D) m/s; with it the prediction is of what the robot measures when it
                passes x, with time offset δ and heading ĥ.
            heading: ĥ (N, 2); the direction of travel if None.
        """
        prediction = self.predict_inner(
            *self.theta.prediction_inputs(self.scaling.inner_x(x), velocity, heading)
        )
        return self.scaling.outer(*prediction, self.noise_variance)

    def bias_evidence(self) -> PassEvidence | None:
        """Evidence for the spread of the passes' constants; None of none, or of one pass."""
        return None

    def gradient(self, x: Tensor) -> Tensor:
        """Gradient of the mean, (N, C, D), at standardised x (N, D), no body-fixed field."""
        return gradient_of(self.mean, x)

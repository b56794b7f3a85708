"""SI outside, standardised inside: what online maps and offline fits have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import any_positive
from gp_mapping.core.field_map import Covariances
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.standardised import Standardised
from gp_mapping.core.types import Prediction, Samples

__all__ = ["Scaled"]


class Scaled:
    """SI outside, standardised inside.

    A subclass has `posterior`, `theta` in inner units, and `empty`.

    Args:
        scale: SI per inner unit.
        centre: (C,) SI, the prior mean; the median of the first batch if None.
        device: of all tensors.

    Attributes:
        scale: SI per inner unit.
        given_centre: prior mean of each channel, SI; None: the median of the first batch.
        device: of all tensors.
        scaling: None before the first sample.
    """

    def __init__(self, *, scale: float, centre, device):
        self.scale, self.given_centre, self.device = float(scale), centre, torch.device(device)
        self.scaling: Scaling | None = None

    def _scaling_for(self, batch: Samples) -> Scaling:
        """The scaling of a map whose first batch this is."""
        first = Scaling.from_first(batch.x, batch.y, self.scale, self.given_centre)
        return Scaling(first.origin.to(self.device), first.centre.to(self.device), first.scale)

    def _extra(self, batch: Standardised) -> Tensor:
        """Variance in addition to each sample's own noise, (N,), with what an uncertain pose adds.

        |∇ mean|² σ_x²,   averaged over channels; 0 before there is a map
        """
        if self.empty or not any_positive(batch.here.position_variance):
            return batch.extra

        slope = self.posterior.gradient(
            self.theta.sensor_place(batch.x, batch.velocity, batch.heading)
        )
        return batch.extra + slope.square().sum(2).mean(1) * batch.position_variance

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """Mean and latent variance of the field at x, or of what a moving robot measures there, SI.

        Args:
            x: (N, D) metres.
            velocity: (N, D) m/s; with it the prediction is of what the robot measures when it
                passes x, with its time offset, its lever arm and its body-fixed field.
            heading: ĥ (N, 2); the direction of travel if None.

        Raises:
            RuntimeError: the map has seen no sample.
        """
        return self.posterior.predict(x, velocity, heading)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance."""
        return self.posterior.covariance(a, b)

    def covariance_with(self, b: Tensor) -> Covariances:
        """As FieldMap.covariance_with."""
        return self.posterior.covariance_with(b)

    def prior_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.prior_covariance."""
        return self.posterior.prior_covariance(a, b)

    def hyperparameters(self) -> dict[str, float]:
        """Hyper-parameters: lengthscale (m), stddevs (SI), time_offset (s), lever arm (m)."""
        t = self.theta
        return {
            "lengthscale": t.lengthscale,
            "signal_stddev": t.signal_stddev * self.scale,
            "noise_stddev": t.noise_stddev * self.scale,
            "constant_stddev": t.constant_stddev * self.scale,
            "heading_stddev": t.heading_stddev * self.scale,
            "bias_stddev": t.bias_stddev * self.scale,
            "time_offset": t.time_offset,
            "lever_arm_along": t.lever_arm_along,
            "lever_arm_across": t.lever_arm_across,
        }

    def need_data(self) -> None:
        """Check that the map has seen a sample.

        Raises:
            RuntimeError: it has not.
        """
        if self.scaling is None:
            raise RuntimeError("the map has seen no sample yet; call update() first")

"""What all models share at their surface: SI in and out, standardised inside, checks before anything changes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.scaling import Scaling
from gp_mapping.core.types import Prediction, Samples, UpdateReport

__all__ = ["ScaledMap", "Standardised"]


@dataclass(frozen=True)
class Standardised:
    """A batch in inner units: x, velocity (N, D), y (N, C); noise (own variance or 0), count, sensor variance (N,)."""

    x: Tensor
    velocity: Tensor
    y: Tensor
    noise: Tensor
    count: Tensor
    sensor: Tensor


class ScaledMap:
    """Base of the models: a subclass gives _update(Standardised) and `posterior`, and has `theta` in inner units."""

    def __init__(self, *, scale: float, centre, device):
        self.scale, self.given_centre, self.device = float(scale), centre, torch.device(device)
        self.scaling: Scaling | None = None

    def update(self, batch: Samples) -> UpdateReport:
        """Absorb each sample once. Raises ValueError, and leaves the map as it was, where the batch does not fit it."""
        if not len(batch):
            return self._report(0)
        if self.scaling is None:
            self.scaling = self._scaling_for(batch)
        if batch.x.shape[1] != len(self.scaling.origin) or batch.y.shape[1] != len(self.scaling.centre):
            raise ValueError(f"samples are {batch.x.shape[1]}-D with {batch.y.shape[1]} channels, the map is "
                             f"{len(self.scaling.origin)}-D with {len(self.scaling.centre)}")
        return self._update(self._standardise(batch))

    def _scaling_for(self, batch: Samples) -> Scaling:
        first = Scaling.from_first(batch.x, batch.y, self.scale, self.given_centre)
        return Scaling(first.origin.to(self.device), first.centre.to(self.device), first.scale)

    def _standardise(self, batch: Samples) -> Standardised:
        n, s = len(batch), self.scaling

        def column(values: Tensor | None, default: float) -> Tensor:
            if values is None:
                return torch.full((n,), default, dtype=torch.float64, device=self.device)
            return values.to(self.device)

        velocity = torch.zeros_like(batch.x) if batch.velocity is None else batch.velocity
        return Standardised(s.inner_x(batch.x), velocity.to(self.device), s.inner_y(batch.y),
                            column(s.inner_variance(batch.noise_variance), 0.0), column(batch.count, 1.0),
                            column(s.inner_variance(batch.sensor_variance), 0.0))

    def predict(self, x: Tensor, velocity: Tensor | None = None) -> Prediction:
        """Mean and latent variance at x (N, D) in metres, SI. RuntimeError while the map has seen nothing.

        velocity (N, D) m/s: then of what the robot measures when it passes x, with its time offset and its own field.
        """
        return self.posterior.predict(x, velocity)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance of the latent field between a (N, D) and b (K, D): (N, K), squared SI."""
        return self.posterior.covariance(a, b)

    def hyperparameters(self) -> dict[str, float]:
        """lengthscale in m; signal, noise, constant and heading standard deviations in SI; time_offset in s."""
        t = self.theta
        return {"lengthscale": t.lengthscale, "signal_stddev": t.signal * self.scale,
                "noise_stddev": t.noise * self.scale, "constant_stddev": t.constant * self.scale,
                "heading_stddev": t.heading * self.scale, "time_offset": t.offset}

    def _need_data(self) -> None:
        if self.scaling is None:
            raise RuntimeError("the map has seen no sample yet; call update() first")

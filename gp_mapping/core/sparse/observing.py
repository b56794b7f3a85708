"""What a map with a likelihood shares at its surface: observations encoded, and what the latent field stands for."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.base import Likelihood
from gp_mapping.core.scaled_map import ScaledMap, average_noise
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.types import Prediction, Samples, UpdateReport

__all__ = ["ObservingMap"]


class ObservingMap(ScaledMap):
    """Base of the maps with sites: a subclass has `memory`, `theta`, `generator` and `marginals`."""

    def __init__(self, likelihood: Likelihood, *, scale: float, centre, device):
        super().__init__(scale=scale, centre=centre, device=device)
        self.likelihood = likelihood
        if not likelihood.metric and (scale != 1.0 or centre is not None):
            raise ValueError(
                f"likelihood {likelihood.name}: the latent field has no unit; field_scale must be 1.0, "
                f"not {scale:g}, and a centre cannot be given"
            )

    def update(self, batch: Samples) -> UpdateReport:
        """Absorb each sample once. Raises ValueError, and leaves the map as it was, where the batch does not fit it."""
        if len(batch) and not self.likelihood.metric:
            batch = replace(batch, y=self.likelihood.encode(batch.y))
        return super().update(batch)

    def _scaling_for(self, batch: Samples) -> Scaling:
        if self.likelihood.metric:
            return super()._scaling_for(batch)
        zero = torch.zeros(
            batch.y.shape[1], dtype=torch.float64, device=self.device
        )  # neither scaled nor centred
        return Scaling(batch.x.median(0).values.round().to(self.device), zero, 1.0)

    @property
    def noise_level(self) -> float:
        """σ² of one measurement, inner units."""
        return average_noise(self.theta, self.memory.extra)

    def noise_variance(self) -> Tensor:
        """Noise variance of one new measurement, of each channel: (C,), squared SI."""
        self.need_data()
        told = self.likelihood.noise_variance(
            self.noise_level
        )  # what a posterior of now says, without its factor
        return torch.full_like(self.scaling.centre, told) * self.scale**2

    def observed(self, p: Prediction) -> Prediction:
        """What a prediction of the latent field stands for: the field in SI, a probability, a rate; with its variance.

        noise_variance is 0: it is no measurement but what measurements are drawn from. E[g(f)] and Var[g(f)].
        """
        mean, variance = self.likelihood.observable(p.mean, p.variance)
        return Prediction(mean, variance, torch.zeros_like(p.noise_variance))

    def outcome(self, y: Tensor) -> Tensor:
        """Measurements as `observed` predicts them: labels as 0 and 1, one of C as a row of them, counts."""
        # a Bernoulli 0 is encoded as −1
        return y if self.likelihood.metric else self.likelihood.encode(y).clamp_min(0.0)

    def log_predictive(self, batch: Samples) -> Tensor:
        """log p(y* | data) of new samples, (N,): log ∫ p(y*|f) q(f) df. y in SI where the likelihood is metric."""
        self.need_data()
        p, given = (
            self.predict(batch.x),
            self._standardise(replace(batch, y=self.likelihood.encode(batch.y))),
        )
        mean = self.scaling.inner_y(p.mean)
        variance = p.variance[:, 0] / self.scaling.scale**2
        noise = torch.where(given.noise > 0, given.noise, self.noise_level)
        inner = self.likelihood.log_predictive(given.y, mean, variance, noise)
        if not self.likelihood.metric:
            return inner
        return inner - mean.shape[1] * torch.log(
            torch.tensor(self.scaling.scale, dtype=torch.float64)
        )

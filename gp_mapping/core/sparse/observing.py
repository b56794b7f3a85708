"""Base of maps with a likelihood: encodes observations, interprets the latent field."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.base import Likelihood
from gp_mapping.core.scaled_map import ScaledMap
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.standardised import Standardised, average_noise
from gp_mapping.core.types import Prediction, Samples, UpdateReport

__all__ = ["ObservingMap"]


class ObservingMap(ScaledMap):
    """Base of the maps with sites.

    A subclass has `memory`, `theta`, `generator` and `marginals`.

    Args:
        likelihood: p(y | f).
        scale: SI per inner unit.
        centre: (C,) SI, the prior mean; the median of the first batch if None.
        device: of all tensors.

    Attributes:
        likelihood: p(y | f).

    Raises:
        ValueError: values have no unit, and a scale or a centre is given.
    """

    def __init__(self, likelihood: Likelihood, *, scale: float, centre, device):
        super().__init__(scale=scale, centre=centre, device=device)
        self.likelihood = likelihood
        if not likelihood.metric and (scale != 1.0 or centre is not None):
            raise ValueError(
                f"likelihood {likelihood.name}: the latent field has no unit; field_scale must be 1.0, "
                f"not {scale:g}, and a centre cannot be given"
            )

    @property
    def scaling(self) -> Scaling | None:
        """Between SI and inner units; None before the first sample."""
        return self._scaling

    @scaling.setter
    def scaling(self, scaling: Scaling | None) -> None:
        self._scaling = scaling
        # limits of a likelihood are in SI, its arguments in inner units
        if scaling is not None:
            self.likelihood = self.likelihood.at(scaling)

    def update(self, batch: Samples) -> UpdateReport:
        """Absorb each sample once.

        Args:
            batch: samples, SI, labels or counts.

        Raises:
            ValueError: the batch does not fit the map, which stays as it was.
        """
        if len(batch) and not self.likelihood.metric:
            batch = replace(batch, y=self.likelihood.encode(batch.y))
        return super().update(batch)

    def _scaling_for(self, batch: Samples) -> Scaling:
        """The scaling of a map whose first batch this is; labels and counts keep their unit."""
        if self.likelihood.metric:
            return super()._scaling_for(batch)
        # labels and counts are neither scaled nor centred
        zero = torch.zeros(batch.y.shape[1], dtype=torch.float64, device=self.device)
        return Scaling(batch.x.median(0).values.round().to(self.device), zero, 1.0)

    @property
    def noise_level(self) -> float:
        """σ² of one measurement, inner units."""
        return average_noise(self.theta, self.memory.extra)

    def noise_variance(self) -> Tensor:
        """Noise variance of one new measurement, of each channel: (C,), squared SI."""
        self.need_data()
        # what a posterior would report, without its factorisation
        variance = self.likelihood.noise_variance(self.noise_level)
        return torch.full_like(self.scaling.centre, variance) * self.scale**2

    def observed(self, p: Prediction) -> Prediction:
        """E[g(f)] and Var[g(f)] of what f stands for: the field (SI), a probability, a rate.

        Args:
            p: prediction of the latent field f.

        Returns:
            Its noise_variance is 0: g(f) is no measurement but what measurements are drawn from.
        """
        mean, variance = self.likelihood.observable(p.mean, p.variance)
        return Prediction(mean, variance, torch.zeros_like(p.noise_variance))

    def outcome(self, y: Tensor) -> Tensor:
        """Measurements (N, C) as `observed` predicts them: 0 or 1, one-hot rows, or counts."""
        # a Bernoulli 0 is encoded as −1
        return y if self.likelihood.metric else self.likelihood.encode(y).clamp_min(0.0)

    def log_predictive(self, batch: Samples) -> Tensor:
        """Log predictive density of new samples, (N,).

            log p(y* | data) = log ∫ p(y*|f) q(f) df

        Args:
            batch: samples; y is in SI where the likelihood is metric. Of the noise their
                noise_variance is used, else the map's typical one; nothing of the robot's motion.
        """
        self.need_data()
        p, standardised = (
            self.predict(batch.x),
            Standardised.from_samples(
                replace(batch, y=self.likelihood.encode(batch.y)), self.scaling
            ),
        )

        mean = self.scaling.inner_y(p.mean)
        variance = p.variance[:, 0] / self.scaling.scale**2
        noise = torch.where(standardised.noise > 0, standardised.noise, self.noise_level)
        inner = self.likelihood.log_predictive(standardised.y, mean, variance, noise)
        if not self.likelihood.metric:
            return inner

        # a density per SI unit: the Jacobian of the scaling, once per channel
        return inner - mean.shape[1] * torch.log(
            torch.tensor(self.scaling.scale, dtype=torch.float64)
        )

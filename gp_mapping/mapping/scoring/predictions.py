"""What a map answers at places, with variances as one-step-ahead scores have found them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.scoring.offset_variance import OffsetVariance
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.settings.mapping import MapSettings

__all__ = ["ScoredPredictions"]


@dataclass(frozen=True)
class ScoredPredictions:
    """Predictions of a map, scaled by its scores.

    Attributes:
        field: the map.
        scores: of its predictions.
        settings: which of the scores count, and what is published.
        slow: what the time constant of a slow sensor adds to the variance.
    """

    field: FieldMap
    scores: OneStepAhead
    settings: MapSettings
    slow: ResponseVariance

    def predict(self, x, velocity=None, heading=None) -> Prediction:
        """Mean, latent variance and predictive noise at x.

        Both variances are scaled by the one-step-ahead scores around x (local_scale.py), so
        noise_variance is (N, C) there; the latent variance also by the uncertainty of
        hyper-parameters, and where the time offset is uncertain it has what a shift of the map
        along the path makes (offset_variance.py), of a slow sensor what its time constant makes
        (response_variance.py). The noise is that of a measurement in a pass to
        come: it includes the pass's unknown constant, which the latent variance does not.
        Intervals of other levels than 95 % are those of Student's t (error_shape.py).

        Args:
            x: (N, 2) metres.
            velocity: (N, 2) m/s; with it the prediction is of what the robot would measure on its
                way, with its time offset and its body-fixed field.
            heading: (N, 2) unit vectors; the direction of travel if None.

        Raises:
            RuntimeError: before the first cell.
        """
        x = torch.as_tensor(x, dtype=torch.float64).reshape(-1, 2)
        velocity, heading = (
            None if c is None else torch.as_tensor(c, dtype=torch.float64)
            for c in (velocity, heading)
        )

        prediction = self.field.predict(x, velocity, heading)
        noise = (
            self.scores.component_variances(self.field)
            .to(prediction.noise_variance)
            .expand_as(prediction.noise_variance)
        )
        bias = self.field.bias_variance().to(prediction.noise_variance)

        local = self.local_scale
        if local is None or not local.is_active:
            return self._shifted(replace(prediction, noise_variance=noise + bias), x, velocity)
        factor, count = local.scale_and_count_at(x.cpu())
        local_factor = torch.from_numpy(factor).to(prediction.mean)[:, None]

        # no place is without the sensor's white noise, however well scores are there
        local_noise = (noise * local_factor).clamp_min(self.scores.white_variance)

        scale = local.everywhere * local_factor
        joint = None if prediction.covariance is None else prediction.covariance * scale[:, :, None]
        scaled = replace(
            prediction,
            variance=prediction.variance * scale,
            noise_variance=local_noise + bias,
            covariance=joint,
            degrees=torch.from_numpy(self.scores.degrees(self.field, count))[:, None],
        )
        return self._shifted(scaled, x, velocity)

    def _shifted(self, prediction: Prediction, x: Tensor, velocity: Tensor | None) -> Prediction:
        """The prediction at x with what an uncertain time offset, and time constant, add."""
        if not self.settings.metric:
            return prediction
        if self.slow.is_active:
            prediction = self.slow.widened(prediction, x)
        added = OffsetVariance.of(self.field, self.scores.variance(self.field))
        return prediction if added is None else added.widened(prediction, x, velocity)

    def published(self, x) -> Prediction:
        """What is published at x: of classes and counts the probability or rate, else as predict.

        The setting `published` decides which.

        Args:
            x: (N, 2) metres.

        Raises:
            RuntimeError: before the first cell.
        """
        prediction = self.predict(x)
        return self.field.observed(prediction) if self.settings.observes else prediction

    @property
    def local_scale(self) -> LocalScale | None:
        """The local scale of variances as of now; None where the settings switch it off."""
        return self.scores.scale(self.field) if self.settings.local_scale else None

    @property
    def error_degrees(self) -> float:
        """Degrees of freedom of errors where no score is near; infinite: they are normal."""
        if not (self.settings.local_scale and self.settings.metric):
            return math.inf
        return float(self.scores.degrees(self.field, np.zeros(1))[0])

    def local_scale_at(self, x) -> Tensor | None:
        """Factor of the variance at x (N, 2) m from one-step-ahead scores: (N,), or None."""
        if not self.settings.local_scale or not len(self.scores.local):
            return None
        return torch.from_numpy(self.scores.local.scale_at(torch.as_tensor(x).cpu()))

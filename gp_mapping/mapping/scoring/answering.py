"""Questions to a session about its map: predictions with honest noise, and what it is made of."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Prediction
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.scoring.predictions import ScoredPredictions
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Answering"]


class Answering:
    """Answers from a map and the scores of its predictions.

    Attributes:
        map: the field model.
        scores: one step ahead, of its predictions.
        slow: what the time constant of a slow sensor adds to its variance.
    """

    settings: MapSettings
    map: FieldMap
    scores: OneStepAhead
    slow: ResponseVariance

    @property
    def noise_variance(self) -> float:
        """Variance of a new measurement about the latent field, squared SI (OneStepAhead)."""
        return self.scores.variance(self.map)

    @property
    def changes(self) -> tuple:
        """The newest changes of the field that were found (scoring.change.Change)."""
        return tuple(self.scores.changes)

    @property
    def _answers(self) -> ScoredPredictions:
        """The map as it is now, for questions."""
        return ScoredPredictions(self.map, self.scores, self.settings, self.slow)

    @torch.no_grad()
    def predict(self, x, velocity=None, heading=None) -> Prediction:
        """Mean, latent variance and predictive noise at x (ScoredPredictions.predict).

        Args:
            x: (N, 2) m.
            velocity: (N, 2) m/s, to predict what the robot would measure on its way, or None.
            heading: (N, 2) unit vectors; the direction of travel if None.

        Raises:
            RuntimeError: before the first cell.
        """
        return self._answers.predict(x, velocity, heading)

    @torch.no_grad()
    def published(self, x) -> Prediction:
        """What is published at x (N, 2) m: a probability, a rate or the field."""
        return self._answers.published(x)

    @property
    def local_scale(self) -> LocalScale | None:
        """The local scale of variances as of now; None where the settings switch it off."""
        return self._answers.local_scale

    def local_scale_at(self, x) -> Tensor | None:
        """Factor of the variance at x (N, 2) m from one-step-ahead scores: (N,), or None."""
        return self._answers.local_scale_at(x)

    @property
    def inducing(self) -> Tensor:
        """Inducing inputs: (M, 2) metres; none for the exact model."""
        return self.map.inducing_inputs().cpu()

    @property
    def memory(self) -> Tensor:
        """Positions of remembered samples: (m, 2) metres."""
        return self.map.remembered_places().cpu()

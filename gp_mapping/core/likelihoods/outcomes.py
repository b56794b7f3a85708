"""Judges which values can be measured at all: a label is one of the classes, a count is ≥ 0."""

from __future__ import annotations

from typing import Any

import torch

from gp_mapping.core.likelihoods import make_likelihood
from gp_mapping.settings.mapping import MapSettings

__all__ = ["OutcomeJudge", "make_judge"]


class OutcomeJudge:
    """The values that a map's likelihood accepts: those that its `encode` takes.

    With a metric likelihood every number is accepted.
    """

    def __init__(self, settings: MapSettings):
        self._likelihood = None if settings.metric else make_likelihood(settings)

    def accepts_all(self, y) -> bool:
        """Whether the likelihood accepts all of y, (N, C) or a list of rows."""
        if self._likelihood is None or not len(y):
            return True
        try:
            self._likelihood.encode(torch.as_tensor(y, dtype=torch.float64))
        except ValueError:
            return False
        return True

    def rejected_rows(self, y: Any) -> list[int]:
        """Indices of the rows of y (N, C) that the likelihood does not accept, in order.

        The search goes by halves, so that few among many cost little.
        """
        if self.accepts_all(y):
            return []
        if len(y) == 1:
            return [0]

        half = len(y) // 2
        return self.rejected_rows(y[:half]) + [half + i for i in self.rejected_rows(y[half:])]


def make_judge(settings: MapSettings) -> OutcomeJudge | None:
    """The judge of values for a map with these settings; None where every number is accepted."""
    return None if settings.metric else OutcomeJudge(settings)

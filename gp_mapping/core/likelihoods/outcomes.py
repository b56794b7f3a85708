"""Which numbers can be measured at all: a label is one of the classes, a count is not negative."""

from __future__ import annotations

from typing import Any

import torch

from gp_mapping.core.likelihoods import make_likelihood
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Outcomes", "judge_of"]


class Outcomes:
    """The outcomes that a map's likelihood knows: those that its `encode` takes; with a metric one, every number."""

    def __init__(self, settings: MapSettings):
        self._likelihood = None if settings.metric else make_likelihood(settings)

    def all_in(self, y) -> bool:
        """Whether each of y, (N, C) or a list of rows, is one."""
        if self._likelihood is None or not len(y):
            return True
        try:
            self._likelihood.encode(torch.as_tensor(y, dtype=torch.float64))
        except ValueError:
            return False
        return True

    def strangers(self, y: Any) -> list[int]:
        """The rows of y (N, C) that are none, in order: by halves, so that few among many cost little."""
        if self.all_in(y):
            return []
        if len(y) == 1:
            return [0]
        half = len(y) // 2
        return self.strangers(y[:half]) + [half + i for i in self.strangers(y[half:])]


def judge_of(settings: MapSettings) -> Outcomes | None:
    """For the intake of such a map; None where there is nothing to judge."""
    return None if settings.metric else Outcomes(settings)

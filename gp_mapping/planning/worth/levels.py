"""What a map says of the field at places, for rules that seek high values: mean and stddev."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.field_map import Planned

__all__ = ["Levels"]


class Levels(NamedTuple):
    """Mean and spread of the field at places; of several channels the mean over these.

    Attributes:
        mean: (P,) SI.
        variance: (P,) SI².
    """

    mean: Tensor
    variance: Tensor

    @property
    def stddev(self) -> Tensor:
        """(P,) SI."""
        return self.variance.sqrt()

    @staticmethod
    @torch.no_grad()
    def of(field: Planned, places) -> Levels:
        """Return what a map predicts.

        Args:
            field: any map, as of its for_planning().
            places: (P, 2) m.
        """
        prediction = field.predict(torch.as_tensor(places, dtype=torch.float64))
        return Levels(prediction.mean.mean(1).cpu(), prediction.variance.mean(1).cpu())

"""Predictions of several one-channel maps as channels of one: a channel for each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gp_mapping.core.snapshot import Covariances, Snapshot
from gp_mapping.core.types import Prediction

__all__ = ["ClassSnapshot", "joined"]


def joined(parts: Sequence[Prediction]) -> Prediction:
    """One prediction of C channels from C predictions of one channel."""
    return Prediction(
        torch.cat([p.mean for p in parts], 1),
        torch.cat([p.variance for p in parts], 1),
        torch.cat([p.noise_variance for p in parts], -1),
    )


class ClassSnapshot(Snapshot):
    """Snapshots, or what else predicts, of all classes together.

    Args:
        parts: of class 0, 1, …
    """

    def __init__(self, parts: list[Any]):
        self.parts = parts

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict: a channel for each class."""
        return joined([part.predict(x, velocity, heading) for part in self.parts])

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance: mean over classes, positive definite as each of them is."""
        return torch.stack([part.covariance(a, b) for part in self.parts]).mean(0)

    def covariance_with(self, b: Tensor) -> Covariances:
        """As FieldMap.covariance_with: means over classes."""
        each = [part.covariance_with(b) for part in self.parts]

        def at(a: Tensor) -> tuple[Tensor, Tensor]:
            """Covariances (N, K) and variances (N,) at a."""
            shared, variance = zip(*(one(a) for one in each))
            return torch.stack(shared).mean(0), torch.stack(variance).mean(0)

        return at

    def fantasize(self, x: Tensor) -> ClassSnapshot:
        """Conditioned on its own mean at x (K, D), where the parts can be."""
        return ClassSnapshot([part.fantasize(x) for part in self.parts])

    def state_dict(self) -> dict | None:
        """As Snapshot.state_dict; None where a class has none."""
        states = [part.state_dict() for part in self.parts]
        if any(state is None for state in states):
            return None
        return {"classes": {str(c): state for c, state in enumerate(states)}}

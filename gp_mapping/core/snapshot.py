"""What a map gives that later updates do not change: snapshots, and what planners ask of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from gp_mapping.core.types import PassBias, Prediction

__all__ = ["Covariances", "Increments", "Planned", "Snapshot", "Unchanged"]

# Function of places a (N, D) m. Returns their covariance with fixed places b (N, K), and the
# variance at a (N,), mean over channels; squared SI.
Covariances = Callable[[Tensor], tuple[Tensor, Tensor]]


class Increments(ABC):
    """What has changed in a map between two moments, as a function of places."""

    @abstractmethod
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Changes at x (N, D) m.

        Returns:
            Mean now − mean then (N, C), SI; variance now − variance then (N, C), squared SI;
            whether they are known (N,). Unknown: 0.
        """


class Unchanged(Increments):
    """No change anywhere.

    Args:
        zero: (1, C) zeros, of the map's type and device.
    """

    def __init__(self, zero: Tensor):
        self._zero = zero

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As Increments.__call__: 0, known everywhere."""
        none = self._zero.expand(len(x), -1)
        return none.clone(), none.clone(), none.new_ones(len(x), dtype=torch.bool)


class Snapshot(ABC):
    """A map's predictions as of one moment, which later updates of the map do not change."""

    @abstractmethod
    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict, as of that moment."""

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As FieldMap.predict_in_pass, as of that moment."""
        return self.predict(x, velocity, heading)

    def biases(self) -> list[PassBias]:
        """As FieldMap.biases, as of that moment."""
        return []

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance, as of that moment; optional for a snapshot of a few places.

        Raises:
            NotImplementedError: this snapshot has none.
        """
        raise NotImplementedError(f"a {type(self).__name__} has no covariance")

    def covariance_with(self, b: Tensor) -> Covariances:
        """As FieldMap.covariance_with, as of that moment."""
        return lambda a: (self.covariance(a, b), self.predict(a).variance.mean(1))

    def state_dict(self) -> dict | None:
        """State for FieldMap.load_snapshot; None (the default) where it is not worth saving."""
        return None


class Planned(Protocol):
    """What a planner uses: variances, covariances, and copies conditioned on their own mean."""

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict; the mean may lag."""

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance."""

    def covariance_with(self, b: Tensor) -> Covariances:
        """As FieldMap.covariance_with."""

    def fantasize(self, x: Tensor) -> Planned:
        """As FieldMap.fantasize."""

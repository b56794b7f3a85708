"""The one interface of every model: what a mapper, a renderer and a planner may ask of a map."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from gp_mapping.core.types import Prediction, Samples, UpdateReport

__all__ = ["FieldMap"]


@runtime_checkable
class FieldMap(Protocol):
    """An online probabilistic map of a scalar (or C-channel) field. All values are SI; x is (N, D) in metres."""

    def update(self, batch: Samples) -> UpdateReport:
        """Absorb each sample once; bounded time and memory."""

    def refine(self, budget_s: float) -> bool:
        """Anytime work (hyper-parameters); at most about budget_s seconds. True: there is more to do."""

    def predict(self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None) -> Prediction:
        """Mean and latent variance at x (N, D), each (N, C); with a velocity, of what the robot measures there."""

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance of the latent field between a (N, D) and b (K, D): (N, K), squared SI."""

    def fantasize(self, x: Tensor) -> "FieldMap":
        """A copy conditioned on its own mean at x: the mean stays, the variance shrinks."""

    def forget(self, factor: float) -> None:
        """Scale what the data said by factor in (0, 1]."""

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what was known within radius (m) of x (K, D), but for the newest samples; how many went."""

    def merge(self, other: "FieldMap") -> None:
        """Add what another robot or session learned."""

    def hyperparameters(self) -> dict[str, float]:
        """lengthscale (m), signal_stddev, noise_stddev, constant_stddev, heading_stddev (SI), time_offset (s), …"""

    def state_dict(self) -> dict:
        """Everything needed for exact resume: tensors, numbers, strings and nested dicts of them."""

    def load_state_dict(self, state: dict) -> None:
        """Continue exactly where state_dict was taken; ValueError, and the map as it was, where it does not fit."""

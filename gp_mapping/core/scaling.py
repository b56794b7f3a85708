"""Conversion between SI and standardised values; the only place that knows the scale.

A field variance in tesla squared is about 1e-11, far under any jitter, and map coordinates may be
1e6 m. So models work in units of `scale` about `centre`, at positions about `origin`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import to_device
from gp_mapping.core.places import places_of
from gp_mapping.core.types import Prediction

__all__ = ["Scaling"]


@dataclass(frozen=True)
class Scaling:
    """The standardisation x → x − origin, y → (y − centre)/scale.

    Attributes:
        origin: (D,) metres.
        centre: (C,) SI.
        scale: SI per inner unit.
    """

    origin: Tensor
    centre: Tensor
    scale: float

    @staticmethod
    def from_first(x: Tensor, y: Tensor, scale: float, centre=None) -> Scaling:
        """Scaling from the first samples: origin and centre at their medians.

        A median is where most of the samples are, however far away a wild one is.

        Args:
            x: (N, D) metres.
            y: (N, C) SI.
            scale: SI per inner unit.
            centre: (C,) SI; the median of y if None.

        Raises:
            ValueError: `centre` has another number of channels than y, or is not finite.
        """
        centre = (
            y.median(0).values
            if centre is None
            else torch.as_tensor(centre, dtype=torch.float64).reshape(-1)
        )
        if centre.shape != y.shape[1:]:
            raise ValueError(f"centre has {len(centre)} channels, y has {y.shape[1]}")
        if not bool(centre.isfinite().all()):
            raise ValueError(f"centre is {centre.tolist()}, expected finite numbers")

        # origin in whole metres: differences of coordinates stay exact
        return Scaling(x.median(0).values.round(), centre.clone(), float(scale))

    @cached_property
    def here(self) -> Scaling:
        """The same on the processor."""
        if self.origin.device.type == "cpu":
            return self
        return Scaling(self.origin.cpu(), self.centre.cpu(), self.scale)

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return {"origin": self.origin.clone(), "centre": self.centre.clone(), "scale": self.scale}

    @staticmethod
    def from_state_dict(state: dict, device) -> Scaling:
        """The scaling of a state, on a device."""
        return Scaling(
            state["origin"].to(device, copy=True),
            state["centre"].to(device, copy=True),
            state["scale"],
        )

    def inner_x(self, x: Tensor) -> Tensor:
        """Places about the origin, (N, D) m.

        Raises:
            ValueError: x is not (N, D), or a place is not finite.
        """
        return to_device(places_of(x, self.origin.shape[0]), self.origin.device) - self.origin

    def inner_y(self, y: Tensor) -> Tensor:
        """(y − centre)/scale, of y (N, C) SI."""
        return (to_device(y, self.centre.device) - self.centre) / self.scale

    def inner_variance(self, variance: Tensor | None) -> Tensor | None:
        """variance/scale² of a variance of any shape, squared SI; None stays."""
        return None if variance is None else to_device(variance, self.centre.device) / self.scale**2

    def outer(self, mean: Tensor, variance: Tensor, noise_variance: Tensor) -> Prediction:
        """Prediction in SI.

        Args:
            mean: (N, C), inner units.
            variance: of each channel, (N,), inner units.
            noise_variance: of each channel, (), inner units.
        """
        channels, square = mean.shape[1], self.scale**2
        noise = noise_variance * square
        return Prediction(
            mean.double() * self.scale + self.centre,
            variance.double()[:, None].expand(-1, channels) * square,
            noise.to(self.centre).expand(channels).clone()
            if torch.is_tensor(noise)
            else torch.full_like(self.centre, noise),
        )

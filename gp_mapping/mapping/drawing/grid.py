"""Where a map is drawn: a window of square cells that follows the path and grows with it, within a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.mapping.drawing.channels import layer_names

__all__ = ["FieldGrid", "GridWindow"]


@dataclass(frozen=True)
class GridWindow:
    """Cells on a lattice of whole multiples of the resolution: left, bottom (cell indices), width, height (cells)."""

    left: int
    bottom: int
    width: int
    height: int
    resolution: float

    @staticmethod
    def around(low, high, resolution: float, margin: float, max_cells: int) -> "GridWindow":
        """The window over [low − margin, high + margin] (metres); twice as coarse until it has at most max_cells."""
        while True:
            left, bottom = (math.floor((v - margin) / resolution) for v in low)
            right, top = (math.ceil((v + margin) / resolution) for v in high)
            width, height = max(1, right - left), max(1, top - bottom)
            if width * height <= max_cells:
                return GridWindow(left, bottom, width, height, resolution)
            resolution *= 2.0

    @staticmethod
    def within(low, high, about, resolution: float, margin: float, max_cells: int) -> "GridWindow":
        """The window over [low − margin, high + margin] (metres) at that resolution, cut where it has too many cells.

        What is left lies about `about` (2,) m, as far as the whole goes: all of the shorter side, if that may be.
        """
        left, bottom = (math.floor((v - margin) / resolution) for v in low)
        right, top = (math.ceil((v + margin) / resolution) for v in high)
        width, height = max(1, right - left), max(1, top - bottom)
        if width * height <= max_cells:
            return GridWindow(left, bottom, width, height, resolution)
        side = math.isqrt(max_cells)
        across = width if width <= side else min(width, max(side, max_cells // height))
        down = min(height, max_cells // across)
        first = []
        for start, whole, part, place in (
            (left, width, across, about[0]),
            (bottom, height, down, about[1]),
        ):
            middle = math.floor(place / resolution) - part // 2
            beyond = (
                part // 4 if part < whole else 0
            )  # room to drive on into before the window has to move
            first.append(min(max(middle, start - beyond), start + whole - part + beyond))
        return GridWindow(*first, across, down, resolution)

    def contains(self, low, high, margin: float) -> bool:
        """Whether [low − margin, high + margin] lies inside."""
        r = self.resolution
        return (
            low[0] - margin >= (self.left - 1e-9) * r
            and low[1] - margin >= (self.bottom - 1e-9) * r
            and high[0] + margin <= (self.left + self.width + 1e-9) * r
            and high[1] + margin <= (self.bottom + self.height + 1e-9) * r
        )

    @property
    def origin(self) -> tuple[float, float]:
        """Lower left corner, metres."""
        return self.left * self.resolution, self.bottom * self.resolution

    def axes(self) -> tuple[Tensor, Tensor]:
        """Cell centres along x (W,) and y (H,), metres."""
        r = self.resolution
        return (
            (torch.arange(self.width, dtype=torch.float64) + self.left + 0.5) * r,
            (torch.arange(self.height, dtype=torch.float64) + self.bottom + 0.5) * r,
        )


@dataclass(frozen=True)
class FieldGrid:
    """A drawn map. Row 0 is at the smallest y, as in an OccupancyGrid; centres at origin + (i + ½) resolution.

    origin: lower left corner (m).  mean, stddev (H, W): SI, stddev of the latent field.  known (H, W): False where
    stddev says that nothing was learned.  noise_stddev: SI, of one new measurement about the latent field.
    axes_mean, axes_stddev (C, H, W): of each component where the map has several; mean and stddev then are of the norm
    (vector.norm).  None for a scalar field.
    classes (H, W): with likelihood softmax the most likely class; mean and stddev then are of it, axes_… of each class.
    """

    origin: tuple[float, float]
    resolution: float
    mean: Tensor
    stddev: Tensor
    known: Tensor
    noise_stddev: float
    revision: int
    axes_mean: Tensor | None = None
    axes_stddev: Tensor | None = None
    classes: Tensor | None = None

    @property
    def layers(self) -> dict[str, Tensor]:
        """mean and stddev (H, W), SI; also mean_x, stddev_x, … of several components, or class, mean_0, … of classes."""
        out = {"mean": self.mean, "stddev": self.stddev}
        if self.classes is not None:
            out["class"] = self.classes
        if self.axes_mean is not None:
            for name, mean, stddev in zip(
                layer_names(len(self.axes_mean), self.classes is not None),
                self.axes_mean,
                self.axes_stddev,
            ):
                out[f"mean_{name}"], out[f"stddev_{name}"] = mean, stddev
        return out

    @property
    def shape(self) -> tuple[int, int]:
        """(H, W)."""
        return tuple(self.mean.shape)

    def centres(self) -> Tensor:
        """(H·W, 2), metres, in the order of mean.reshape(-1)."""
        h, w = self.shape
        xs = self.origin[0] + (torch.arange(w, dtype=torch.float64) + 0.5) * self.resolution
        ys = self.origin[1] + (torch.arange(h, dtype=torch.float64) + 0.5) * self.resolution
        return torch.stack([xs.repeat(h), ys.repeat_interleave(w)], 1)

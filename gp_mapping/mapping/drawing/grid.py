"""Where a map is drawn: a bounded window of square cells that grows with the path."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.mapping.drawing.channels import layer_names

__all__ = ["FieldGrid", "GridWindow"]


@dataclass(frozen=True)
class GridWindow:
    """Cells on a lattice of whole multiples of the resolution.

    Attributes:
        left: number of the first column.
        bottom: number of the first row.
        width: columns.
        height: rows.
        resolution: side of a cell, m.
    """

    left: int
    bottom: int
    width: int
    height: int
    resolution: float

    @staticmethod
    def around(low, high, resolution: float, margin: float, max_cells: int) -> "GridWindow":
        """The window over [low − margin, high + margin], at most as fine as max_cells allows.

        The resolution is doubled until the cells are few enough.

        Args:
            low: corner (2,), m.
            high: corner (2,), m.
            resolution: finest side of a cell, m.
            margin: m.
            max_cells: bound.
        """
        while True:
            left, bottom = (math.floor((v - margin) / resolution) for v in low)
            right, top = (math.ceil((v + margin) / resolution) for v in high)
            width, height = max(1, right - left), max(1, top - bottom)
            if width * height <= max_cells:
                return GridWindow(left, bottom, width, height, resolution)
            resolution *= 2.0

    @staticmethod
    def within(low, high, about, resolution: float, margin: float, max_cells: int) -> "GridWindow":
        """The window over [low − margin, high + margin], cut where it has too many cells.

        A cut one lies around `about`, as far as the whole goes, with all of the shorter side if
        possible.

        Args:
            low: corner (2,), m.
            high: corner (2,), m.
            about: (2,) m.
            resolution: side of a cell, m.
            margin: m.
            max_cells: bound.
        """
        left, bottom = (math.floor((v - margin) / resolution) for v in low)
        right, top = (math.ceil((v + margin) / resolution) for v in high)
        width, height = max(1, right - left), max(1, top - bottom)
        if width * height <= max_cells:
            return GridWindow(left, bottom, width, height, resolution)

        # a square of that many cells, or all of the shorter side and more of the longer one
        side = math.isqrt(max_cells)
        columns = width if width <= side else min(width, max(side, max_cells // height))
        rows = min(height, max_cells // columns)

        starts = []
        for start, whole, part, place in (
            (left, width, columns, about[0]),
            (bottom, height, rows, about[1]),
        ):
            middle = math.floor(place / resolution) - part // 2
            # room to drive on into before the window has to move
            beyond = part // 4 if part < whole else 0
            starts.append(min(max(middle, start - beyond), start + whole - part + beyond))
        return GridWindow(*starts, columns, rows, resolution)

    def contains(self, low, high, margin: float) -> bool:
        """Whether a box lies inside with a margin all around.

        Args:
            low: lower corner (2,), m.
            high: upper corner (2,), m.
            margin: m.
        """
        r = self.resolution
        # a billionth of a cell for rounding
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
    """A drawn map.

    Row 0 is at the smallest y, as in an OccupancyGrid; centres lie at origin + (i + ½) resolution.

    Attributes:
        origin: lower left corner, m.
        resolution: side of a cell, m.
        mean: (H, W), SI; of several components their norm (vector.norm), of classes the most likely
            one.
        stddev: (H, W), SI, of the latent field, and of the same.
        known: (H, W) bool, False where stddev shows that nothing was learned.
        noise_stddev: of one new measurement about the latent field, SI.
        revision: of the map.
        axes_mean: (C, H, W) of each component or class; None for a scalar field.
        axes_stddev: (C, H, W), the same.
        classes: (H, W) the most likely class with likelihood softmax, else None.
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
        """Layers (H, W) by name, SI: mean and stddev.

        Of several components also mean_x, stddev_x, …; of classes also class, mean_0, stddev_0, ….
        """
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
        """Rows and columns, (H, W)."""
        return tuple(self.mean.shape)

    def centres(self) -> Tensor:
        """Cell centres (H·W, 2), metres, in the order of mean.reshape(-1)."""
        h, w = self.shape
        xs = self.origin[0] + (torch.arange(w, dtype=torch.float64) + 0.5) * self.resolution
        ys = self.origin[1] + (torch.arange(h, dtype=torch.float64) + 0.5) * self.resolution
        # rows follow each other, x is the quicker one
        return torch.stack([xs.repeat(h), ys.repeat_interleave(w)], 1)

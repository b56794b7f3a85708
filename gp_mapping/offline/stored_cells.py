"""All cells of a recording in a map's inner units, and blocks of cells that lie together."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gp_mapping.core.hyper.evidence import pass_membership
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.standardised import Standardised, excess_variance
from gp_mapping.core.types import Samples

__all__ = ["StoredCells"]


@dataclass(frozen=True)
class StoredCells:
    """N cells in inner units.

    Attributes:
        x: positions (N, D), m.
        velocity: (N, D), m/s.
        heading: (N, 2).
        y: values about their centre (N, C).
        noise: a cell's own noise variance, or 0 (N,).
        extra: variance in addition to the model's noise (N,).
        pass_number: of the cell's pass (N,), negative where passes have no constants.
        extent: of the places that a cell averages, along its velocity (N,), m.
        scaling: to SI.
    """

    x: Tensor
    velocity: Tensor
    heading: Tensor
    y: Tensor
    noise: Tensor
    extra: Tensor
    pass_number: Tensor
    extent: Tensor
    scaling: Scaling

    @classmethod
    def from_batches(
        cls, parts: list[Samples], scale: float, theta: Theta, slope=None
    ) -> StoredCells:
        """From batches of cells as a map was given them.

        Args:
            parts: the batches; not all of them need have the same columns.
            scale: SI in an inner unit.
            theta: says whether passes have constants.
            slope: x (N, D) m → |∇f|² of the field, mean over channels, SI per m, squared: by it an
                uncertain position adds to the noise. None: positions add nothing.

        Raises:
            ValueError: there are no cells.
        """
        if not sum(map(len, parts)):
            raise ValueError("there are no cells to fit")

        x, y = (torch.cat([getattr(part, name) for part in parts]) for name in ("x", "y"))
        scaling = Scaling.from_first(x, y, scale)
        inner = [Standardised.from_samples(part, scaling) for part in parts]
        columns = {
            f.name: torch.cat([getattr(part, f.name) for part in inner])
            for f in fields(cls)
            if f.name != "scaling"
        }

        uncertain = torch.cat([part.position_variance for part in inner])
        if slope is not None and bool((uncertain > 0).any()):
            slope_squared = slope(columns["x"] + scaling.origin) / scale**2
            columns["extra"] = columns["extra"] + slope_squared * uncertain

        return cls(**columns, scaling=scaling)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, which: Tensor) -> StoredCells:
        """Some of the cells, by indices (n,)."""
        picked = {f.name: getattr(self, f.name)[which] for f in fields(self) if f.name != "scaling"}
        return StoredCells(**picked, scaling=self.scaling)

    def places(self, theta: Theta) -> Tensor:
        """Where the sensor was, given θ's time offset and lever arm: (N, D)."""
        return theta.sensor_place(self.x, self.velocity, self.heading)

    def constants(self, theta: Theta) -> Tensor:
        """Features of the passes' constants (P, N): s_b where a cell belongs to a pass."""
        return (
            theta.bias_stddev * pass_membership(self.pass_number, theta.bias_correlation).mT
            if theta.bias_stddev > 0
            else self.y.new_zeros((0, len(self)))
        )

    def variance(self, theta: Theta) -> Tensor:
        """Noise variance of each cell at θ: (N,)."""
        return torch.where(self.noise > 0, self.noise, theta.noise_stddev**2) + self.extra

    def learning_data(self, theta: Theta) -> dict[str, Tensor]:
        """The cells as a map's learning_data, for a HyperLearner."""
        extra = excess_variance(self.noise, self.extra, theta)
        return {
            "x": self.x,
            "velocity": self.velocity,
            "heading": self.heading,
            "y": self.y,
            "extra": extra,
            "pass_number": self.pass_number,
            "extent": self.extent,
        }

    def blocks(self, most: int) -> list[StoredCells]:
        """All cells in blocks of at most `most` that lie together.

        A block is cut into halves along its longer side, again and again.
        """

        def halves(which: Tensor) -> list[Tensor]:
            """Index sets of the blocks that `which` falls into."""
            if len(which) <= most:
                return [which]
            x = self.x[which]
            # cut at the median of the longer side
            axis = int((x.amax(0) - x.amin(0)).argmax())

            order = which[x[:, axis].argsort(stable=True)]
            return halves(order[: len(order) // 2]) + halves(order[len(order) // 2 :])

        return [self[part] for part in halves(torch.arange(len(self)))]

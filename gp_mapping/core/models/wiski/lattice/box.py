"""A box of nodes of a global lattice: where they lie, which places it holds, and how it grows.

Lattices are global: node k lies at k·spacing metres of the map's frame, and the box grows by tiles
of 32 × 32 nodes. A map that goes over to another frame takes its lattice along: node k then lies at
anchor + k·spacing metres.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.models.wiski.lattice.interpolation import stencil_nodes

__all__ = ["TILE", "LatticeBox"]

# nodes along a side of the tiles by which the box grows
TILE = 32
_MARGIN = 16  # nodes, at least, between a sample and the box's edge
_SAME = 1e-6  # spacings between two nodes that are one place: rounding of a frame's coordinates


class LatticeBox:
    """A box of a global lattice.

    Args:
        spacing: of the nodes, m.
        origin: (2,) m, of the local coordinates that samples come in.
        device: of all tensors.
        anchor: (2,) m, of node 0 in the map's frame; None: at 0, where it lies in all maps that
            were not moved.

    Attributes:
        first: global number (row, column) of the node at or below the origin.
        shift: (2,) from that node to the origin, in spacings.
        low: first node of the box, counted from `first`.
        shape: (H, W) nodes of the box.
    """

    def __init__(self, spacing: float, origin: Tensor, device, anchor: Tensor | None = None):
        self.spacing, self.device = float(spacing), torch.device(device)
        self.anchor = torch.zeros_like(origin) if anchor is None else anchor

        place = origin - self.anchor
        whole = torch.floor(place / self.spacing)
        self._copied: tuple[Tensor, Tensor] | None = None  # the shift, and it on the processor
        self.shift = (place - whole * self.spacing) / self.spacing
        self.first = tuple(int(v) for v in whole)

        self.low, self.shape = (0, 0), (0, 0)

    @property
    def nodes(self) -> int:
        """Number of nodes in the box."""
        return self.shape[0] * self.shape[1]

    def units(self, x: Tensor) -> Tensor:
        """Local metres (N, 2) in spacings from the global node `first`.

        Differences are exact, whatever the map's frame.
        """
        return x / self.spacing + self._shift_on(x.device)

    def _shift_on(self, device: torch.device) -> Tensor:
        """The shift on a device; a copy on the processor is made once."""
        if device == self.shift.device:
            return self.shift
        if self._copied is None or self._copied[0] is not self.shift:
            self._copied = self.shift, self.shift.to(device)
        return self._copied[1]

    def places(self, units: Tensor) -> Tensor:
        """Local metres of places given in spacings from the node `first` (N, 2)."""
        return (units.double() - self.shift) * self.spacing

    def box_for(self, x: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
        """The smallest box of whole tiles that holds the present box, and places with a margin.

        Args:
            x: (N, 2) local metres, N > 0.

        Returns:
            low and shape of that box.
        """
        units = self.units(x)
        bounds = [
            [math.floor(v) for v in row]
            for row in torch.stack(torch.aminmax(units, dim=0)).tolist()
        ]

        low, high = [], []
        for d in range(2):
            # tiles are counted in global numbers, so that the boxes of all maps fit together
            first = self.first[d]
            lowest, highest = bounds[0][d] + first - _MARGIN, bounds[1][d] + first + _MARGIN + 1
            if self.shape[0]:
                lowest = min(lowest, self.low[d] + first)
                highest = max(highest, self.low[d] + first + self.shape[d])
            low.append(lowest // TILE * TILE - first)
            high.append(-(-highest // TILE) * TILE - first)

        return tuple(low), tuple(h - k for h, k in zip(high, low))

    def inside(self, x: Tensor) -> Tensor:
        """Whether all sixteen nodes of x (N, 2) lie in the box: (N,)."""
        base = self.units(x).floor().long()
        low = torch.tensor(self.low, device=self.device)
        shape = torch.tensor(self.shape, device=self.device)
        return ((base - 1 >= low) & (base + 2 < low + shape)).all(1)

    def weights(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and weights that interpolate places inside the box.

        Args:
            units: (N, 2) places in spacings.

        Returns:
            Flat number of the first of each place's sixteen nodes (N,), and their weights (N, 16).
        """
        corner, weights = stencil_nodes(units)
        return (corner[:, 0] - self.low[0]) * self.shape[1] + (corner[:, 1] - self.low[1]), weights

    def offset_of(self, other: LatticeBox) -> tuple[int, int]:
        """Row and column in this box of another grid's first node.

        Raises:
            ValueError: the nodes of one lattice are not those of the other.
        """
        if other.spacing != self.spacing:
            raise ValueError(
                f"grids of spacing {self.spacing:g} m and {other.spacing:g} m do not add"
            )
        if not self.coincides(other):
            raise ValueError("grids whose nodes lie between each other's do not add")
        low = self._low_of(other)
        return low[0] - self.low[0], low[1] - self.low[1]

    def coincides(self, other: LatticeBox) -> bool:
        """Whether the nodes of both lattices are the same places of the map's frame."""
        steps = self._steps_to(other)
        return other.spacing == self.spacing and bool(((steps - steps.round()).abs() < _SAME).all())

    def _steps_to(self, other: LatticeBox) -> Tensor:
        """From this lattice's node 0 to another's, in spacings: (2,)."""
        return (other.anchor - self.anchor) / self.spacing

    def _low_of(self, other: LatticeBox) -> tuple[int, int]:
        """First node of another grid's box, counted from this one's `first`."""
        steps = self._steps_to(other).round().long().tolist()
        rows, columns = (steps[d] + other.first[d] + other.low[d] - self.first[d] for d in range(2))
        return rows, columns

    def move(self, by: Tensor) -> None:
        """Go over to a frame in which all places lie `by` (2,) m further, the nodes along.

        Where nodes lie relative to the samples does not change, so neither does any sum.
        """
        self.anchor = self.anchor + by.to(self.anchor)

    def within(self, units: Tensor, x: Tensor, radius: float) -> Tensor:
        """Which places lie near some others: (N,).

        Args:
            units: (N, 2) places in spacings.
            x: (K, 2) local metres.
            radius: m, up to which a place is near.
        """
        near = torch.zeros(len(units), dtype=torch.bool, device=self.device)
        for place in x:
            near |= (self.places(units) - place).norm(dim=1) <= radius
        return near

    def joint_box(self, other: LatticeBox) -> tuple[tuple[int, int], tuple[int, int]]:
        """low and shape of the smallest box that holds this one and another grid's."""
        other_low = self._low_of(other)
        if not self.nodes:
            return other_low, other.shape

        low = tuple(min(self.low[d], other_low[d]) for d in range(2))
        end = (max(self.low[d] + self.shape[d], other_low[d] + other.shape[d]) for d in range(2))
        return low, tuple(e - k for e, k in zip(end, low))

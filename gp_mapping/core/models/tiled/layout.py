"""Where tiles lie, and the weights, which sum to one, that blend what they predict.

The first tile is the ground that was driven over while one map sufficed; its sides, continued, are
the first lines of a grid whose other columns and rows are `side` wide. Beyond its core a tile knows
the samples of a halo. Across a border predictions go over from one tile to the other along `blend`
metres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["FULL", "Key", "Layout", "key_of", "name_of", "side_for"]

Key = tuple[int, int]  # column and row; (0, 0) is the first tile

FULL = 0.9  # fraction of a budget from which a tile that has left its square takes no more ground
# how fast, per `blend`, a tile's weight falls outside all cores: the nearest of the tiles decides
_FADE = 8.0
# metres below a border within which a place lies on it, and so in the upper tile's core: several
# tiles remember a sample, each about an origin of its own, and rounding must not move it
_ON = 1e-6
_FAINT = 1e-9  # its weight compared with that of a tile whose core is near


@dataclass(frozen=True)
class Layout:
    """The grid, in metres of the map's frame.

    Attributes:
        low: (2,) lower corner of the first tile's core.
        high: (2,) upper corner of the first tile's core.
        side: of every other core.
        halo: how far beyond its core a tile takes samples.
        blend: width of the strip along a border in which two tiles are blended.
    """

    low: tuple[float, float]
    high: tuple[float, float]
    side: float
    halo: float
    blend: float

    def key_at(self, x) -> Key:
        """The tile whose core holds x (2,)."""
        return self._index(float(x[0]), 0), self._index(float(x[1]), 1)

    def _index(self, x: float, axis: int) -> int:
        """Column (axis 0) or row (axis 1) of the core that holds a coordinate."""
        x, low, high = x + _ON, self.low[axis], self.high[axis]

        if x < low:
            return -1 - math.floor((low - x) / self.side)
        return 0 if x < high else 1 + math.floor((x - high) / self.side)

    def core(self, key: Key) -> tuple[list[float], list[float]]:
        """Lower and upper corner of a tile's core."""
        spans = [self._span(index, axis) for axis, index in enumerate(key)]
        return [low for low, _ in spans], [high for _, high in spans]

    def _span(self, index: int, axis: int) -> tuple[float, float]:
        """Lower and upper end of a column (axis 0) or row (axis 1) of cores, m."""
        low, high = self.low[axis], self.high[axis]
        if index > 0:
            return high + (index - 1) * self.side, high + index * self.side
        if index < 0:
            return low + index * self.side, low + (index + 1) * self.side
        return low, high

    def core_fraction(self, key: Key) -> float:
        """Fraction of the ground that a tile covers that is its core."""
        low, high = self.core(key)
        sides = [b - a for a, b in zip(low, high)]
        covered = [side + 2.0 * self.halo for side in sides]
        return sides[0] * sides[1] / (covered[0] * covered[1])

    def owners(self, x: Tensor) -> tuple[list[Key], Tensor]:
        """The tiles whose cores hold places.

        Args:
            x: (N, 2) m.

        Returns:
            The tiles, and for each place the number of its own among them (N,).
        """
        if x.shape[0] == 1:  # a robot brings one place at a time
            return [self.key_at(x[0].tolist())], torch.zeros(1, dtype=torch.long, device=x.device)
        if not len(x):
            return [], torch.zeros(0, dtype=torch.long, device=x.device)

        index = self._indices(x)
        low, high = (corner.tolist() for corner in (index.amin(0), index.amax(0)))
        columns, rows = (last - first + 1 for first, last in zip(low, high))

        # one number for each column and row, by which they are found once
        codes = (index[:, 0] - low[0]).mul_(rows).add_(index[:, 1] - low[1])
        if columns * rows < len(x):  # of few tiles: counted, not sorted
            there = codes.bincount(minlength=columns * rows) > 0
            found, owner = there.nonzero()[:, 0], (there.cumsum(0) - 1)[codes]
        else:
            found, owner = codes.unique(return_inverse=True)
        return [(low[0] + code // rows, low[1] + code % rows) for code in found.tolist()], owner

    def _indices(self, x: Tensor) -> Tensor:
        """Column and row of the core that holds each place, as `key_at`: (N, 2) for x (N, 2)."""
        low, high = (
            torch.tensor([v - _ON for v in corner], dtype=x.dtype, device=x.device)
            for corner in (self.low, self.high)
        )
        # a place on the lower border is in the core, one on the upper border in the next
        above = ((x - high) / self.side).floor_().add_(1.0).clamp_min_(0.0)
        below = ((low - x) / self.side).ceil_().clamp_min_(0.0)
        return above.sub_(below).long()

    def margins(self, keys: list[Key], owner: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Distances of places from the borders of their own core, along each axis.

        Args:
            keys: tiles.
            owner: number of the own tile among them, (N,).
            x: (N, 2) m.

        Returns:
            Above the lower border and below the upper one, (2, N) m each.
        """
        corners = torch.tensor([self.core(key) for key in keys], dtype=x.dtype, device=x.device)
        low, high = corners.permute(1, 2, 0).contiguous()[:, :, owner]
        return x.mT - low, high - x.mT

    def holds(self, key: Key, x: Tensor) -> Tensor:
        """Whether places lie in a tile's core: (N,). A place on a border is in one alone.

        Args:
            key: of the tile.
            x: (N, 2), m.
        """
        return (self._indices(x) == torch.tensor(key, device=x.device)).all(1)

    def in_own(self, parts: list[tuple[Key, Tensor]]) -> tuple[Tensor, Tensor]:
        """Places of several tiles, and which of them lie in the core of the tile that they are of.

        Args:
            parts: tiles, at least one, each with places (n, 2), m.

        Returns:
            The places one tile after the other, (N, 2), and whether each lies there, (N,).
        """
        x = torch.cat([places for _, places in parts])
        counts = [len(places) for _, places in parts]
        keys = torch.tensor([key for key, _ in parts], device=x.device)
        own = keys.repeat_interleave(
            torch.tensor(counts, device=x.device), dim=0, output_size=sum(counts)
        )
        return x, (self._indices(x) == own).all(1)

    def group_by_tile(self, x: Tensor) -> list[tuple[Key, Tensor]]:
        """The tiles whose cores hold x (N, 2), each with the indices of its places."""
        keys, owner = self.owners(x)
        order = owner.argsort(stable=True)  # by tile, then in the order of x
        return list(zip(keys, order.split(owner.bincount(minlength=len(keys)).tolist())))

    def outside(self, key: Key, x: Tensor) -> Tensor:
        """Distance from a tile's core along the worse axis: (N,) m, negative inside.

        Args:
            key: of the tile.
            x: (N, 2), m.
        """
        return self._outside([key], x)[0]

    def _outside(self, keys: list[Key], x: Tensor) -> Tensor:
        """As `outside`, of K tiles: (K, N)."""
        corners = torch.tensor([self.core(key) for key in keys], dtype=x.dtype, device=x.device)
        low, high = corners.view(-1, 2, 1, 2).unbind(1)
        return torch.maximum(low - x, x - high).amax(2)

    def covers(self, key: Key, x: Tensor) -> Tensor:
        """Which samples a tile knows, those in its core or halo: (N,).

        Args:
            key: of the tile.
            x: (N, 2), m.
        """
        return self.outside(key, x) <= self.halo

    def knowing(self, keys: list[Key], x: Tensor) -> dict[Key, Tensor]:
        """Which samples each of some tiles knows, of the tiles that know any: (N,) each.

        Args:
            keys: of the tiles.
            x: (N, 2), m.
        """
        if not keys:
            return {}
        covered = self._outside(keys, x) <= self.halo
        some = covered.any(1).tolist()
        return {key: which for key, which, any_ in zip(keys, covered, some) if any_}

    def neighbourhood(self, key: Key) -> list[Key]:
        """The tile and its eight neighbours."""
        return [(key[0] + i, key[1] + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]

    def inside(self, axis: int, indices: list[int], x: Tensor) -> tuple[Tensor, Tensor]:
        """How far inside columns or rows of cores places lie.

        Args:
            axis: 0 for columns, 1 for rows.
            indices: of the n columns or rows.
            x: (N, 2) m.

        Returns:
            Metres inside each, negative outside, (n, N); whether it is the place's own column or
            row or one next to that, (n, N).
        """
        spans = [[self._span(index + i, axis) for i in (-1, 0, 1)] for index in indices]
        ends = [(*own, before[0] - _ON, after[1] - _ON) for before, own, after in spans]
        low, high, first, last = torch.tensor(ends, dtype=x.dtype, device=x.device).mT[:, :, None]

        at = x[:, axis]
        return torch.minimum(at - low, high - at), (at >= first).logical_and_(at < last)

    def raw_weights(self, columns: Tensor, rows: Tensor) -> Tensor:
        """Unnormalised weights of tiles about places.

            w = r_x r_y + faint exp(−fade d / blend)

        r goes over from one tile to the next along each axis, without a kink: a drawing is splined.
        d is the distance from the tile's core. Both are continuous in the place.

        Args:
            columns: how far inside each column of cores a place lies, negative outside, (n, N) m.
            rows: likewise of rows, (m, N) m.

        Returns:
            (n, m, N).
        """
        parts = columns[:, None], rows[None]
        # twice r = (1 + sin φ)/2, φ from −π/2 to π/2 over the border
        r_x, r_y = (
            (part * (math.pi / self.blend)).clamp_(-0.5 * math.pi, 0.5 * math.pi).sin_().add_(1.0)
            for part in parts
        )

        distance = torch.hypot(*(part.clamp_max(0.0) for part in parts))
        faint = distance.mul_(-_FADE / self.blend).exp_().mul_(_FAINT).clamp_min_(1e-300)
        return faint.addcmul_(r_x, r_y, value=0.25)

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return {
            "low": list(self.low),
            "high": list(self.high),
            "side": self.side,
            "halo": self.halo,
            "blend": self.blend,
        }

    @staticmethod
    def from_state_dict(state: dict) -> Layout:
        """The layout of a state."""
        return Layout(
            tuple(state["low"]), tuple(state["high"]), state["side"], state["halo"], state["blend"]
        )


def name_of(key: Key) -> str:
    """The tile's name in files."""
    return f"{key[0]} {key[1]}"


def key_of(name: str) -> Key:
    """The tile of a name in files."""
    column, row = name.split()
    return int(column), int(row)


def side_for(density: float, budget: int, halo: float, most: float) -> float:
    """Side of tiles in lengthscales, such that each with its halo keeps within its budget.

    Args:
        density: inducing inputs that the ground takes per square of a lengthscale.
        budget: inducing inputs of a tile.
        halo: lengthscales.
        most: the largest side, lengthscales; the smallest is two halos, so that a sample lies in no
            more than four tiles.
    """
    return min(most, max(2.0 * halo, math.sqrt(FULL * budget / max(density, 1e-9)) - 2.0 * halo))

"""Blocks of data that share a residual: PITC's and PIC's Γ_B, as whitened samples that add up like any others.

    Γ_B = K_BB − A_Bᵀ A_B + diag(σ²) = U Uᵀ,   h_B = A_B Γ_B⁻¹ y_B = W λ,   G_B = A_B Γ_B⁻¹ A_Bᵀ = W Wᵀ,
    W = A_B U⁻ᵀ,  λ = U⁻¹ y_B                     (A_B: inducing rows of a(x) at the block's samples)

so the block stands in the sites as n samples with features W, β = 1 and λ (Hoang et al. 2015, eqs. 66–67; whitened).
Blocks are squares of the plane ("tiles"). One that is full closes: its older half becomes a block of its own, the rest
stays open for what is measured there next. That is a finer partition, so the model remains a member of its family.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.sparse.memory import Memory

__all__ = ["Block", "BlockMemory", "chop", "partition", "tiles_of", "whiten_block"]


def tiles_of(x: Tensor, side: float) -> Tensor:
    """Integer coordinates (as float64) of the squares that x (N, D) lies in, the origin amid its own: (N, D)."""
    return torch.floor(x / side + 0.5)


def chop(members: Tensor, most: int) -> list[Tensor]:
    """A tile's samples, oldest first, as closed blocks of most/2 and one open block, the last, of at most `most`."""
    half, over = max(1, most // 2), len(members) - most
    closed = -(-over // half) if over > 0 else 0
    return (
        [*members[: closed * half].split(half), members[closed * half :]] if closed else [members]
    )


def partition(tiles: Tensor, order: Tensor, most: int) -> list[list[Tensor]]:
    """Per tile its blocks (indices, oldest first), the open one last. tiles (m, D), order (m,) of arrival."""
    if not len(tiles):
        return []
    arrived = order.argsort()
    _, owner = torch.unique(tiles[arrived], dim=0, return_inverse=True)
    by_tile = owner.argsort(stable=True)
    return [chop(arrived[part], most) for part in by_tile.split(torch.bincount(owner).tolist())]


def whiten_block(kernel, x: Tensor, raw: Tensor, features: int, noise: Tensor, y: Tensor):
    """U (n, n), W (R, n) and λ (n, C) of one block.

    x (n, D) places, raw a(x) (R, n) whose first `features` rows are the constant and the heading, noise (n,), y (n, C).
    """
    inducing = raw[features:]
    gamma = kernel(x, x) - inducing.mT @ inducing
    gamma.diagonal().add_(noise)
    factor, _ = cholesky(gamma)
    both = solve_lower(factor, torch.cat([raw.mT, y], 1))
    return factor, both[:, : len(raw)].mT, both[:, len(raw) :]


@dataclass(frozen=True)
class Block:
    """What a test conditional needs of one block: x (n, D), U (n, n), W (R, n), λ (n, C), and its tile."""

    tile: tuple[int, ...]
    x: Tensor
    factor: Tensor
    whitened: Tensor
    lam: Tensor

    def reduce(self, kernel, x: Tensor, whitened: Tensor, features: int) -> Tensor:
        """U⁻¹ (k(x_B, x) − A_Bᵀ a(x)), what the block's residuals tell of x (N, D), a(x) white (R, N): (n, N)."""
        return (
            solve_lower(self.factor, kernel(self.x, x))
            - self.whitened[features:].mT @ whitened[features:]
        )

    def state_dict(self) -> dict:
        return {
            "tile": list(self.tile),
            "x": self.x.clone(),
            "factor": self.factor.clone(),
            "white": self.whitened.clone(),
            "lam": self.lam.clone(),
        }

    @staticmethod
    def from_state_dict(state: dict, device) -> "Block":
        return Block(
            tuple(int(i) for i in state["tile"]),
            *(state[name].to(device) for name in ("x", "factor", "white", "lam")),
        )


class BlockMemory(Memory):
    """A memory whose samples stand in the sites as parts of blocks.

    raw (m, R): a(x), where `white` holds W.  chain (m, width): the sample's row of U.  tile (m, D).  block (m,): which;
    of a tile's blocks the open one has the largest number; −1 is a sample by itself.
    """

    COLUMNS = (*Memory.COLUMNS, "raw", "chain", "tile", "block")

    def __init__(
        self,
        capacity: int,
        dimension: int,
        channels: int,
        rows: int,
        device,
        protect: int = 250,
        width: int = 100,
    ):
        super().__init__(capacity, dimension, channels, rows, device, protect)
        self.width = width
        for name, size in (
            ("raw", (rows,)),
            ("chain", (width,)),
            ("tile", (dimension,)),
            ("block", ()),
        ):
            self._store[name] = torch.zeros((capacity, *size), dtype=torch.float64, device=device)

    def mark(self) -> None:
        """Blocks are rewritten in place, by whoever rearranges them: everything is copied at once."""
        super().mark()
        self.keep_columns(features=True)

    def blocks(self, which: Tensor | None = None) -> list[Tensor]:
        """Indices of each block's samples, oldest first; of the blocks that `which` (m,) has a sample of, or of all."""
        chosen = torch.arange(self.size, device=self.block.device)
        if which is not None:
            chosen = torch.isin(self.block, self.block[which].unique()).nonzero()[:, 0]
        chosen = chosen[self.order[chosen].argsort()]
        chosen = chosen[self.block[chosen].argsort(stable=True)]
        return list(chosen.split(torch.unique(self.block[chosen], return_counts=True)[1].tolist()))

    def open_blocks(self) -> Iterable[tuple[tuple[int, ...], Tensor]]:
        """Each tile that has one, with the indices of its open block's samples."""
        newest = {
            tuple(int(i) for i in self.tile[part[0]].tolist()): part
            for part in self.blocks()
            if float(self.block[part[0]]) >= 0
        }  # by number: the last is open
        return newest.items()

    def in_tile(self, tile: Tensor) -> Tensor:
        """Indices of the samples of a tile's open block, oldest first."""
        here = ((self.tile == tile).all(1) & (self.block >= 0)).nonzero()[:, 0]
        if not len(here):
            return here
        here = here[self.block[here] == self.block[here].max()]
        return here[self.order[here].argsort()]

    def factor(self, part: Tensor) -> Tensor:
        """U of a block, given its samples' indices, oldest first: (n, n)."""
        return self.chain[part][:, : len(part)]

    def state_dict(self) -> dict:
        return super().state_dict() | {"width": self.width}

    @classmethod
    def _sized(cls, state: dict, device) -> "BlockMemory":
        return cls(
            int(state["capacity"]),
            state["x"].shape[1],
            state["y"].shape[1],
            int(state["rows"]),
            device,
            width=int(state["width"]),
        )

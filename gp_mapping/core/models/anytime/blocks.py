"""Blocks of data that share a residual, as whitened samples that add up like any others.

Γ_B is that of PITC and PIC, A_B the inducing rows of a(x) at the block's samples:

    Γ_B = K_BB − A_Bᵀ A_B + diag(σ²) = U Uᵀ,   h_B = A_B Γ_B⁻¹ y_B = W λ
    G_B = A_B Γ_B⁻¹ A_Bᵀ = W Wᵀ,               W = A_B U⁻ᵀ,  λ = U⁻¹ y_B

So the block stands in the sites as n samples with features W, β = 1 and λ (Hoang et al. 2015,
eqs. 66–67; whitened).

Blocks are squares of the plane ("tiles"). A full one closes: its older half becomes a block of its
own, and the rest stays open for what is measured there next. That is a finer partition, so the
model remains a member of its family.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.sparse.memory import Memory

__all__ = ["Block", "BlockMemory", "partition", "split_into_blocks", "tiles_of", "whiten_block"]


def tiles_of(x: Tensor, side: float) -> Tensor:
    """Integer coordinates (as float64) of the squares that places lie in: (N, D).

    The origin is in the middle of its square.

    Args:
        x: (N, D), m.
        side: of a square, m.
    """
    return torch.floor(x / side + 0.5)


def split_into_blocks(members: Tensor, most: int) -> list[Tensor]:
    """Split a tile's samples, oldest first, into closed blocks of most/2 and one open, last block.

    Args:
        members: indices of the samples, oldest first.
        most: samples of the open block at most.
    """
    size, surplus = max(1, most // 2), len(members) - most
    closed = -(-surplus // size) if surplus > 0 else 0

    return (
        [*members[: closed * size].split(size), members[closed * size :]] if closed else [members]
    )


def partition(tiles: Tensor, order: Tensor, most: int) -> list[list[Tensor]]:
    """The blocks of each tile as indices, oldest first; the open block is the last.

    Args:
        tiles: tile of each sample (m, D).
        order: arrival number of each sample (m,).
        most: samples in a block at most.
    """
    if not len(tiles):
        return []

    # by arrival first, so that a stable sort by tile leaves each tile's samples oldest first
    arrived = order.argsort()
    _, owner = torch.unique(tiles[arrived], dim=0, return_inverse=True)
    by_tile = owner.argsort(stable=True)

    return [
        split_into_blocks(arrived[part], most)
        for part in by_tile.split(torch.bincount(owner).tolist())
    ]


def whiten_block(kernel, x: Tensor, raw: Tensor, features: int, noise: Tensor, y: Tensor):
    """U (n, n), W (R, n) and λ (n, C) of one block.

    Args:
        kernel: k.
        x: places of its samples (n, D).
        raw: a(x) (R, n).
        features: the first rows of a(x), for the constant and the heading.
        noise: noise variance (n,).
        y: targets (n, C).
    """
    inducing = raw[features:]
    gamma = kernel(x, x) - inducing.mT @ inducing
    gamma.diagonal().add_(noise)
    factor, _ = cholesky(gamma)

    # one solve for both: W = A_B U⁻ᵀ and λ = U⁻¹ y
    both = solve_lower(factor, torch.cat([raw.mT, y], 1))
    return factor, both[:, : len(raw)].mT, both[:, len(raw) :]


@dataclass(frozen=True)
class Block:
    """What a test conditional needs of one block.

    Attributes:
        tile: its integer coordinates.
        x: places of its samples (n, D).
        factor: U (n, n).
        whitened: W (R, n).
        lam: λ (n, C).
    """

    tile: tuple[int, ...]
    x: Tensor
    factor: Tensor
    whitened: Tensor
    lam: Tensor

    def residual_features(self, kernel, x: Tensor, whitened: Tensor, features: int) -> Tensor:
        """What the block's residuals say of x: U⁻¹ (k(x_B, x) − A_Bᵀ a(x)), (n, N).

        Args:
            kernel: k.
            x: places (N, D).
            whitened: a(x) (R, N).
            features: the first rows of a(x), for the constant and the heading.
        """
        return (
            solve_lower(self.factor, kernel(self.x, x))
            - self.whitened[features:].mT @ whitened[features:]
        )

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return {
            "tile": list(self.tile),
            "x": self.x.clone(),
            "factor": self.factor.clone(),
            "white": self.whitened.clone(),
            "lam": self.lam.clone(),
        }

    @staticmethod
    def from_state_dict(state: dict, device) -> "Block":
        """The block of a state, on a device."""
        return Block(
            tuple(int(i) for i in state["tile"]),
            *(state[name].to(device) for name in ("x", "factor", "white", "lam")),
        )


class BlockMemory(Memory):
    """A memory whose samples stand in the sites as parts of blocks.

    Its features `whitened` are W, and it has more columns than Memory.

    Args:
        capacity: as of Memory, and so are those below.
        dimension: D.
        channels: C.
        rows: R.
        device: of all tensors.
        protect: number of newest samples that never leave.
        width: samples in a block at most.

    Attributes:
        raw: a(x) (m, R).
        chain: the sample's row of U (m, width).
        tile: integer coordinates (m, D).
        block: number of the sample's block (m,). The open block of a tile has the largest number of
            the tile's blocks; −1 is a sample by itself.
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
            column = torch.zeros((capacity, *size), dtype=torch.float64, device=device)
            self._store[name] = column
            self._tables.append(((name,), column))

    def mark(self) -> None:
        """Begin a transaction with copies of all columns: blocks are rewritten in place."""
        super().mark()
        self.keep_columns(features=True)

    def blocks(self, which: Tensor | None = None) -> list[Tensor]:
        """Indices of each block's samples, oldest first.

        Args:
            which: samples (m,) whose blocks are wanted; None: all blocks.
        """
        chosen = torch.arange(self.size, device=self.block.device)
        if which is not None:
            chosen = torch.isin(self.block, self.block[which].unique()).nonzero()[:, 0]

        # two sorts, the second stable: by block, and by arrival within a block
        chosen = chosen[self.order[chosen].argsort()]
        chosen = chosen[self.block[chosen].argsort(stable=True)]
        return list(chosen.split(torch.unique(self.block[chosen], return_counts=True)[1].tolist()))

    def open_blocks(self) -> Iterable[tuple[tuple[int, ...], Tensor]]:
        """Each tile that has an open block, with the indices of that block's samples."""
        newest = {
            tuple(int(i) for i in self.tile[part[0]].tolist()): part
            for part in self.blocks()
            if float(self.block[part[0]]) >= 0
        }  # blocks come by number: the last of a tile, its open one, is kept
        return newest.items()

    def in_tile(self, tile: Tensor) -> Tensor:
        """Indices of the samples of a tile's open block, oldest first."""
        here = ((self.tile == tile).all(1) & (self.block >= 0)).nonzero()[:, 0]
        if not len(here):
            return here
        here = here[self.block[here] == self.block[here].max()]
        return here[self.order[here].argsort()]

    def factor(self, part: Tensor) -> Tensor:
        """U (n, n) of a block, given the indices of its samples, oldest first."""
        return self.chain[part][:, : len(part)]

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return super().state_dict() | {"width": self.width}

    @classmethod
    def _sized(cls, state: dict, device) -> "BlockMemory":
        """An empty memory with the sizes of a state."""
        return cls(
            int(state["capacity"]),
            state["x"].shape[1],
            state["y"].shape[1],
            int(state["rows"]),
            device,
            width=int(state["width"]),
        )

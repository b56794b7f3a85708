"""PITC and PIC on a stream: data fall into square tiles.

A tile's (h_B, G_B) is replaced when the tile gains data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.models.anytime.blocks import (
    Block,
    BlockMemory,
    partition,
    split_into_blocks,
    tiles_of,
    whiten_block,
)
from gp_mapping.core.models.anytime.model import STALE, AnytimeMap
from gp_mapping.core.models.dual_svgp.memory_sites import MemorySites
from gp_mapping.core.sparse.basis import Basis

__all__ = ["TileMap"]


class TileMap(AnytimeMap):
    """PITC and PIC: Γ has a block for each tile.

    A sample that leaves the memory becomes a block of its own, which stays in the sites; the rest
    of its block goes on without it. `closed` counts blocks that closed because their tile was full.
    Both are finer partitions of the same data.

    Args:
        name: a key of MEMBERS.
        theta: hyper-parameters in inner units (of `scale` SI).
        tile_side: side of a tile in lengthscales.
        tile_samples: most samples in one block.
        settings: DualSVGP's.
    """

    memory_kind = BlockMemory
    sums_follow = False  # blocks are more than their samples
    fitting = (*AnytimeMap.fitting, "tile_side", "tile_samples")
    counted = (*AnytimeMap.counted, "closed")

    def __init__(
        self, name: str, theta, *, tile_side: float = 2.0, tile_samples: int = 100, **settings
    ):
        super().__init__(name, theta, **settings)
        self.tile_side, self.tile_samples, self.closed = tile_side, tile_samples, 0
        # copies of blocks for posteriors, by number; made when first needed
        self._blocks: dict[int, Block] = {}

    @property
    def side(self) -> float:
        """Side of a tile, m."""
        return self.tile_side * self.theta.lengthscale

    def new_memory(self, dimension: int, channels: int, rows: int) -> BlockMemory:
        """As SparseMap.new_memory, of blocks."""
        return BlockMemory(
            self.memory_size, dimension, channels, rows, self.device, width=self.tile_samples
        ).set_rule(self.memory_rule)

    def remembered_features(self, rows: int) -> Tensor:
        """Features of the remembered samples, not those of their blocks: (rows, m)."""
        return self.memory.raw[:, :rows].mT

    # --- samples in and out -----------------------------------------------------------------------
    def remember(self, values: dict[str, Tensor], whitened: Tensor) -> int:
        """As Memory.offer_batch, as blocks of one, which then join their tiles' blocks."""
        values, single = self._alone(values, whitened)
        fell = self.memory.offer_batch(values, single, self.leverage, self.generator, self._isolate)
        self._join()
        return fell

    def merge_memory(self, values: dict[str, Tensor], whitened: Tensor, arrivals: int) -> int:
        """As MergingMap.merge_memory; the samples join the blocks of their tiles."""
        self._rate(values, whitened)
        self.sites.add(whitened, values["beta"], values["lam"])

        values, single = self._alone(values, whitened)
        self.discard_posterior()
        fell = self.memory.insert_all(values, single, self.leverage, arrivals, self._isolate)
        self._join()
        return fell

    def _alone(
        self, values: dict[str, Tensor], whitened: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Samples that stand in the sites by themselves, as blocks of one.

            W = a β^½, λ = y β^½

        Returns:
            All columns of the samples, but for U, which they get where they join (`_join`); and
            W (R, N).
        """
        root, memory = values["beta"].sqrt(), self.memory
        n = len(root)
        raw = root.new_zeros((n, memory.rows))
        raw[:, : len(whitened)] = whitened.mT

        places = self.theta.sensor_place(values["x"], values["velocity"], values["heading"])
        return values | {
            "lam": root[:, None] * values["y"],
            "beta": torch.ones_like(root),
            "raw": raw,
            "chain": root.new_zeros((n, memory.width)),
            "tile": tiles_of(places, self.side),
            "block": torch.full_like(root, -1.0),
        }, whitened * root

    def _isolate(self, leaving: Tensor) -> None:
        """Make a block of its own of each sample about to leave; the others stay together."""
        memory, groups = self.memory, []
        inside = leaving[memory.block[leaving] >= 0]
        if not len(inside):
            return

        for part in memory.blocks(inside):
            gone, number = torch.isin(part, inside), float(memory.block[part[0]])
            groups += [(part[~gone], number)] if bool((~gone).any()) else []
            groups += [(sample, -1.0) for sample in part[gone].split(1)]
        self._arrange(groups)

    def _join(self) -> None:
        """Let newcomers join the open blocks of their tiles."""
        memory = self.memory
        new = (memory.block < 0).nonzero()[:, 0]
        groups = []
        if not len(new):
            return

        for tile in torch.unique(memory.tile[new], dim=0):
            newcomers = new[(memory.tile[new] == tile).all(1)]
            old, newcomers = memory.in_tile(tile), newcomers[memory.order[newcomers].argsort()]

            # a block that only gains samples is extended; others are made anew
            parts = split_into_blocks(torch.cat([old, newcomers]), self.tile_samples)
            self.closed += len(parts) - 1
            if len(parts) == 1 and len(old):
                self._extend(old, newcomers)
            else:
                groups += [(part, None) for part in parts]
        self._arrange(groups)

    def _extend(self, old: Tensor, new: Tensor) -> None:
        """Let a block gain samples: its rows of U, W and λ stay, and new rows are added.

        So (h_B, G_B) is replaced by adding the new samples.

        Args:
            old: indices of the block's samples, oldest first.
            new: indices of the samples that join.
        """
        memory, rows, features = self.memory, self.basis.size, self.basis.features
        places, factor = self.memory_places(self.theta), memory.factor(old)
        raw, fresh = memory.raw[old, :rows].mT, memory.raw[new, :rows].mT

        # U gains the block row [knownᵀ, root], as in a bordered Cholesky factor
        shared = self.basis.kernel(places[old], places[new]) - raw[features:].mT @ fresh[features:]
        known = solve_lower(factor, shared)  # (n, k)
        gamma = (
            self.basis.kernel(places[new], places[new])
            - fresh[features:].mT @ fresh[features:]
            - known.mT @ known
        )
        gamma.diagonal().add_(self.own_noise(self.theta)[new])
        root, _ = cholesky(gamma)

        whitened = solve_lower(root, (fresh - memory.whitened(rows)[:, old] @ known).mT).mT
        lam = solve_lower(root, memory.y[new] - known.mT @ memory.lam[old])
        self._replace(new, whitened, lam)

        n, k = known.shape
        memory.chain[new] = 0.0
        memory.chain[new, :n] = known.mT
        memory.chain[new, n : n + k] = root

        self._forget_copies(old)
        memory.block[new] = float(memory.block[old[0]])

    def _arrange(self, groups: list[tuple[Tensor, float | None]]) -> None:
        """Replace whole blocks by new ones of the same samples.

            (h, G) ← (h, G) − Σ_old (h_B, G_B) + Σ_new (h_B, G_B)

        Both sums are over the same samples.

        Args:
            groups: of each new block the indices of its samples, oldest first, and its number: None
                is a new one, larger than all others; a block that goes on keeps its own, so that
                its tile's newest block stays the open one; −1 is a sample by itself.
        """
        if not groups:
            return

        memory, rows = self.memory, self.basis.size
        noise, places, raw = self.own_noise(self.theta), self.memory_places(self.theta), memory.raw

        made = [
            whiten_block(
                self.basis.kernel,
                places[part],
                raw[part, :rows].mT,
                self.basis.features,
                noise[part],
                memory.y[part],
            )
            for part, _ in groups
        ]

        changed = torch.cat([part for part, _ in groups])
        self._forget_copies(changed)
        self._replace(
            changed,
            torch.cat([whitened for _, whitened, _ in made], 1),
            torch.cat([lam for _, _, lam in made]),
        )

        # of a tile's blocks the one with the largest number is open
        newest, chain, block = float(memory.block.max()), memory.chain, memory.block
        for (part, number), (factor, _, _) in zip(groups, made):
            chain[part] = 0.0
            chain[part, : len(part)] = factor
            if number is None:
                number = newest = newest + 1.0
            block[part] = number

    def _replace(self, which: Tensor, whitened: Tensor, lam: Tensor) -> None:
        """Replace what the samples contribute to the sites by new features and λ.

        What they contributed is subtracted exactly as it stands.
        """
        memory, rows = self.memory, self.basis.size
        beta = memory.beta[which]
        self.sites.subtract(memory.whitened(rows)[:, which], beta, memory.lam[which])
        self.sites.add(whitened, beta, lam)

        memory.whitened(rows)[:, which] = whitened
        memory.lam[which] = lam
        self.discard_posterior()

    def _forget_copies(self, which: Tensor) -> None:
        """Drop the copies of these samples' blocks, which change: posteriors need new ones."""
        gone = set(self.memory.block[which].tolist())
        self._blocks = {known: block for known, block in self._blocks.items() if known not in gone}

    # --- the basis and θ change -------------------------------------------------------------------
    def _extend_remembered(self, old: int, remembered: Tensor, new_rows: Tensor) -> None:
        """Border the sites with U⁻¹ of the new rows, and replace the blocks that these changed."""
        memory = self.memory

        solved, blocks = torch.zeros_like(new_rows), memory.blocks()
        for part in blocks:
            solved[:, part] = solve_lower(memory.factor(part), new_rows[:, part].mT).mT

        self.sites.border(solved, memory.whitened(old), memory.beta, memory.lam)
        memory.extend_whitened(old, solved)
        memory.raw[:, old : old + len(new_rows)] = new_rows.mT
        self._blocks = {}

        # the new inputs lowered Γ there: these blocks are made anew
        changed = new_rows.square().sum(0) / self.own_noise(self.theta) > STALE
        self._arrange(
            [(part, float(memory.block[part[0]])) for part in blocks if bool(changed[part].any())]
        )

    def memory_sites_at(self, theta, basis: Basis, whitened: Tensor) -> MemorySites:
        """As RememberedSites.memory_sites_at, with new tiles.

        The side of a tile follows the lengthscale, and places follow the time offset.
        """
        memory, places = self.memory, self.memory_places(theta)
        # new tiles, and from them new blocks
        tiles = tiles_of(places, self.tile_side * theta.lengthscale)
        groups = [
            part for parts in partition(tiles, memory.order, self.tile_samples) for part in parts
        ]

        return self._memory_sites(
            theta, basis, whitened, groups, torch.arange(len(memory), device=self.device), tiles
        )

    def memory_sites_of(self, kept: Tensor) -> MemorySites:
        """The contribution of the blocks as they are, without the samples that leave."""
        memory, stay = self.memory, kept.nonzero()[:, 0]
        groups = [part[kept[part]] for part in memory.blocks()]
        return self._memory_sites(
            self.theta,
            self.basis,
            self.remembered_features(self.basis.size),
            [part for part in groups if len(part)],
            stay,
            memory.tile,
        )

    def _memory_sites(
        self, theta, basis: Basis, raw: Tensor, groups: list[Tensor], stay: Tensor, tiles: Tensor
    ) -> MemorySites:
        """What the samples contribute in the given blocks.

        Args:
            theta: hyper-parameters.
            basis: of the features.
            raw: a(x) of the remembered samples in that basis (R, m).
            groups: indices of each block's samples.
            stay: indices of the samples whose contribution is returned.
            tiles: tile of each remembered sample (m, D).
        """
        memory, noise, places = self.memory, self.own_noise(theta), self.memory_places(theta)
        self._blocks = {}
        whitened, lam = torch.zeros_like(raw), torch.zeros_like(memory.y)
        chain, block = torch.zeros_like(memory.chain), torch.zeros_like(memory.block)

        full = raw.new_zeros((len(memory), memory.rows))
        full[:, : len(raw)] = raw.mT

        for number, part in enumerate(groups):
            factor, whitened[:, part], lam[part] = whiten_block(
                basis.kernel,
                places[part],
                raw[:, part],
                basis.features,
                noise[part],
                memory.y[part],
            )
            chain[part, : len(part)] = factor
            block[part] = float(number)

        columns = {
            "beta": torch.ones_like(memory.beta),
            "lam": lam,
            "raw": full,
            "chain": chain,
            "tile": tiles,
            "block": block,
        }
        return MemorySites(
            whitened[:, stay], {name: column[stay] for name, column in columns.items()}
        )

    # --- test conditional, fantasies, files -------------------------------------------------------
    def leverage(self, whitened: Tensor) -> Tensor:
        """aᵀD⁻¹a of features (R, N): (N,)."""
        factor, *_ = self.factor_system()  # not the posterior: its blocks are about to change
        return solve_lower(factor, whitened).square().sum(0)

    def _local(self) -> dict:
        """The open block of each tile, for PIC; copied once, and again when it has changed."""
        if self.member.conditional != "local":
            return {}

        memory, rows, known = self.memory, self.basis.size, {}
        places = self.memory_places(self.theta)
        # a copy that is known stands as long as its block has not changed
        for tile, part in memory.open_blocks():
            number = int(memory.block[part[0]])
            known[number] = self._blocks.get(number) or Block(
                tile,
                places[part],
                memory.factor(part).clone(),
                memory.whitened(rows)[:, part].clone(),
                memory.lam[part],
            )

        self._blocks = known
        return {"side": self.side, "blocks": tuple(known.values())}

    @torch.no_grad()
    def fantasize(self, x: Tensor) -> "TileMap":
        """A copy conditioned on its own mean at x (K, D).

        PIC's is conditioned by samples in their tiles, which keeps its mean.
        """
        if self.member.conditional != "local":
            return super().fantasize(x)
        self.need_data()
        inner, before, new = self.scaling.inner_x(x), self.posterior, self.duplicate()
        n = len(inner)

        # room for the fantasies, so that no sample has to leave
        new.tile_samples, new.memory_size = self.tile_samples + n, self.memory_size + n
        new.memory = self.memory.copy(
            capacity=self.memory.capacity + n, width=self.memory.width + n
        )

        mean, _ = before.predict_inner(inner)
        noise = torch.full((n,), before.noise_variance, dtype=torch.float64, device=self.device)
        whitened = new.basis.whitened(inner)
        zero = torch.zeros_like(noise)
        lam, beta = new.add_sites(whitened, inner, mean, noise, zero + 1.0)

        new.remember(
            {
                "x": inner,
                "velocity": torch.zeros_like(inner),
                "heading": inner.new_zeros((n, 2)),
                "y": mean,
                "lam": lam,
                "beta": beta,
                "noise": noise,
                "extra": zero,
                "weight": zero + 1.0,
            },
            whitened,
        )
        return new

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """The parts of a file, without cached blocks."""
        return super()._loaded_parts(state, parts) | {"_blocks": {}}

"""The test conditionals of the anytime family, on one posterior of the inducing variables.

q(f*) = ∫ q*(f*| y_B, u) q(u) du        (Hoang et al. 2015, eq. 3; App. D.4)

deterministic  f* = a*ᵀu                                               SoR
joint          f* | u exact, so that test points share their residual  DTC, FITC, PITC
independent    f* | u exact for one point, residuals of two points are independent  FIC
local          f* | u, y_B exact, B the block of x*'s tile             PIC
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from gp_mapping.core.field_map import Covariances, Snapshot
from gp_mapping.core.inner_snapshot import gradient_of
from gp_mapping.core.models.anytime.blocks import Block, tiles_of
from gp_mapping.core.sparse.posterior import Posterior

__all__ = ["AnytimePosterior", "posterior_fields"]

_CHUNK = 1024  # places at a time: time and memory alone


@dataclass(frozen=True, eq=False)
class AnytimePosterior(Posterior, kind="anytime"):
    """A Posterior with one of the four test conditionals.

    Attributes:
        conditional: its name.
        side: of a tile, m; local only.
        blocks: the open block of each tile; local only.
    """

    conditional: str = "joint"
    side: float = 0.0
    blocks: tuple[Block, ...] = ()

    def _features(self) -> int:
        """Rows of a(x) before those of the inducing inputs."""
        return len(self.weights) - len(self.z)

    def group_by_tile(self, x: Tensor) -> list[tuple[Block | None, Tensor]]:
        """The tiles that x (N, D) lies in: for each its block or None, and the indices of x."""
        if self.conditional != "local":
            return [(None, torch.arange(len(x), device=x.device))]
        tiles, owner = torch.unique(tiles_of(x, self.side).long(), dim=0, return_inverse=True)

        # sorted by tile, so that each tile is one slice
        known = {block.tile: block for block in self.blocks}
        parts = owner.argsort(stable=True).split(
            torch.bincount(owner, minlength=len(tiles)).tolist()
        )
        return [(known.get(tuple(tile)), part) for tile, part in zip(tiles.tolist(), parts)]

    def conditional_features(self, x: Tensor, heading: Tensor | None, block: Block | None):
        """What the block and the inducing inputs say at x, all of one tile.

            f* = ãᵀu + cᵀΓ⁻¹y_B + residual,  ã = a − A_B Γ⁻¹ c,  c = k(x_B, x*) − A_Bᵀ a*

        Args:
            x: places (N, D), standardised.
            heading: (N, 2), None where the robot is left out.
            block: of the tile, None where it has none.

        Returns:
            The mean in addition to ãᵀD⁻¹r (N, C); the corrected ã (R, N); a(x) itself (R, N); U⁻¹c
            (n, N).

        Reference:
            Hoang et al. 2015, App. D.4.1, whitened.
        """
        a = self.whitened(x, heading).double()
        if block is None:
            return a.new_zeros((len(x), self.weights.shape[1])), a, a, a.new_zeros((0, len(x)))

        reduced = block.residual_features(self.theta.kernel(), x, a, self._features())
        return reduced.mT @ block.lam, a - block.whitened @ reduced, a, reduced

    def predict_inner(self, x: Tensor, heading: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As InnerSnapshot.predict_inner, with the member's test conditional."""
        if self.conditional in ("joint", "independent"):
            return super().predict_inner(x, heading)

        mean, variance = x.new_empty((len(x), self.weights.shape[1])), x.new_empty(len(x))
        features = self._features()
        for block, group in self.group_by_tile(x):
            for part in group.split(_CHUNK):
                part_heading = None if heading is None else heading[part]
                offset, corrected, a, reduced = self.conditional_features(
                    x[part], part_heading, block
                )

                mean[part] = corrected.mT @ self.weights + offset
                part_variance = self.solve_root(corrected).square().sum(0)
                if self.conditional == "local":
                    residual = (
                        self.theta.signal_stddev**2
                        - a[features:].square().sum(0)
                        - reduced.square().sum(0)
                    )
                    part_variance = part_variance + residual.clamp_min(0.0)
                variance[part] = part_variance
        return mean, variance

    def predict_inner_solved(
        self, x: Tensor, heading: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As Posterior.predict_inner_solved, with R⁻¹a of the basis alone."""
        if self.conditional in ("joint", "independent"):
            return super().predict_inner_solved(x, heading)
        used_heading = heading if self.theta.heading_stddev > 0 else None
        return *self.predict_inner(x, heading), self.solve_root(
            self.whitened(x, used_heading).double()
        )

    def gradient(self, x: Tensor) -> Tensor:
        """∇ of the mean at standardised x (N, D), inside x's tile: (N, C, D)."""
        if self.conditional != "local":
            return super().gradient(x)

        out = x.new_empty((len(x), self.weights.shape[1], x.shape[1]))
        for block, part in self.group_by_tile(x):
            out[part] = gradient_of(partial(self._with_block, block), x[part])
        return out

    def _with_block(self, block: Block | None, x: Tensor) -> Tensor:
        """The mean at x (N, D) of the block's tile: (N, C)."""
        offset, corrected, _, _ = self.conditional_features(x, None, block)
        return corrected.mT @ self.weights + offset

    def explained(self, x: Tensor) -> Tensor | None:
        """b(x), only where test points share their residual; else None."""
        return super().explained(x) if self.conditional == "joint" else None

    def covariance_with(self, b: Tensor) -> Covariances:
        """Covariances with b; what depends on b alone is kept only for joint test points."""
        return (
            super().covariance_with(b)
            if self.conditional == "joint"
            else Snapshot.covariance_with(self, b)
        )

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance.

        It is ãᵀD⁻¹b̃, and of the residuals what the test conditional shares between two points.
        """
        if self.conditional == "joint":
            return super().covariance(a, b)

        a, b = self.scaling.inner_x(a), self.scaling.inner_x(b)
        features, kernel = self._features(), self.theta.kernel()
        sides, out = {}, a.new_zeros((len(a), len(b)))
        for name, x in (("a", a), ("b", b)):
            solved = x.new_empty((len(self.R), len(x)))
            groups = []
            for block, part in self.group_by_tile(x):
                _, corrected, whitened, reduced = self.conditional_features(x[part], None, block)
                solved[:, part] = self.solve_root(corrected)
                groups.append((part, whitened[features:], reduced))
            sides[name] = (solved, groups)

        if self.conditional == "independent":
            # points share a residual only with themselves
            same = (a[:, None] == b[None]).all(2)
            whitened_a, whitened_b = sides["a"][1][0][1], sides["b"][1][0][1]
            out = torch.where(same, kernel(a, b) - whitened_a.mT @ whitened_b, out)
        elif self.conditional == "local":
            # points share a residual with points of their tile
            tiles = {"a": tiles_of(a, self.side), "b": tiles_of(b, self.side)}
            for part, whitened, reduced in sides["a"][1]:
                for part_b, whitened_b, reduced_b in sides["b"][1]:
                    if bool((tiles["a"][part[0]] == tiles["b"][part_b[0]]).all()):
                        out[part[:, None], part_b] = (
                            kernel(a[part], b[part_b])
                            - whitened.mT @ whitened_b
                            - reduced.mT @ reduced_b
                        )
        return (out + sides["a"][0].mT @ sides["b"][0]) * self.scaling.scale**2

    def state_dict(self) -> dict:
        """State for `restore`."""
        return super().state_dict() | {
            "kind": "anytime",
            "conditional": self.conditional,
            "side": self.side,
            "blocks": [block.state_dict() for block in self.blocks],
        }

    @classmethod
    def restore(cls, state: dict, plain: Posterior, device) -> "AnytimePosterior":
        """The posterior of a state.

        Args:
            state: of `state_dict`.
            plain: the Posterior that is part of it.
            device: of all tensors.
        """
        return cls(
            **posterior_fields(plain),
            conditional=state["conditional"],
            side=state["side"],
            blocks=tuple(Block.from_state_dict(block, device) for block in state["blocks"]),
        )


def posterior_fields(posterior: Posterior) -> dict:
    """The fields of a Posterior by name, not copied."""
    return {f.name: getattr(posterior, f.name) for f in fields(Posterior) if f.init}

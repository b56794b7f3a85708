"""A large recording in limited time: stochastic natural gradients for the whole anytime family.

    (r, D − I) ← (1 − ρ_t)(r, D − I) + ρ_t (P/|S|) Σ_{s∈S} (r_s, G_s),    ρ_t = ρ₀ / (1 + τ ρ₀ t)^κ

S is drawn i.i.d. from the P blocks; r_s = A_s Γ_s⁻¹ y_s, G_s = A_s Γ_s⁻¹ A_sᵀ (Hoang et al. 2015,
eqs. 24–26). A step is unbiased (Theorem 6), and one of all blocks with ρ = 1 is the batch model.

Blocks of PITC and PIC are tiles of the ground. Nothing is known of a tile that was never drawn, and
i.i.d. draws leave a fraction (1 − |S|/P)^t of them out after t steps. Drawn without replacement, in
T = P/|S| parts of a shuffled order, each step is as unbiased (each block is in one part, each part
as likely), and with ρ_t = 1/(1 + t) the running mean after T steps is the batch model itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import cholesky
from gp_mapping.core.models.anytime.blocks import Block, partition, tiles_of, whiten_block
from gp_mapping.core.models.anytime.model import MEMBERS
from gp_mapping.core.models.anytime.posterior import AnytimePosterior
from gp_mapping.core.scaled import Scaled
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.standardised import Standardised, average_noise
from gp_mapping.core.types import Prediction, Samples

__all__ = ["AnytimeFit"]


class AnytimeFit(Scaled):
    """A member of the family at fixed z and θ, from stored samples.

    Args:
        name: a key of MEMBERS.
        theta: inner units (of `scale` SI).
        samples: all of them.
        inducing_inputs: (M, D) m.
        side: of a tile, m, whose samples are blocks of at most `most`. None draws the blocks'
            samples at random, which suits a diagonal Γ: each block then speaks of the whole map,
            and a few suffice.
        most: samples of a block at most.
        rate: ρ₀.
        decay: τ.
        power: κ.
        draw: |S|.
        shuffled: blocks are drawn without replacement, round after round.
        seed: of the draws.
        scale: SI in an inner unit.
        centre: (C,) SI; the median if None.
        device: of the tensors.
    """

    def __init__(
        self,
        name: str,
        theta: Theta,
        samples: Samples,
        inducing_inputs,
        *,
        side: float | None = None,
        most: int = 200,
        rate: float = 1.0,
        decay: float = 1.0,
        power: float = 1.0,
        draw: int = 1,
        shuffled: bool = False,
        seed: int = 0,
        scale: float = 1.0,
        centre=None,
        device="cpu",
    ):
        super().__init__(scale=scale, centre=centre, device=device)

        if not len(samples):
            raise ValueError("there are no samples to fit")
        if not (0.0 < rate <= 1.0 and decay >= 0.0 and 0.5 <= power <= 1.0 and draw > 0):
            raise ValueError(
                f"rate {rate}, decay {decay}, power {power}, draw {draw}: expected a rate in (0, 1], "
                "a decay of at least 0, a power in [0.5, 1] and a positive draw"
            )

        self.member, self.theta = MEMBERS[name], theta
        if side is None and self.member.residual == "block":
            raise ValueError(
                f"model {name} needs blocks of samples that lie together: give side, in metres"
            )
        self.rate, self.decay, self.power, self.draw, self.steps = rate, decay, power, draw, 0
        self.shuffled, self._round = shuffled, []  # the parts of this round that are still to come

        self.generator = torch.Generator().manual_seed(seed)
        self.scaling = self._scaling_for(samples)
        self.data = Standardised.from_samples(samples, self.scaling)
        self.places = theta.sensor_place(self.data.x, self.data.velocity, self.data.heading)
        self.noise = (
            torch.where(self.data.noise > 0, self.data.noise, theta.noise_stddev**2)
            + self.data.extra
        )

        z = self.scaling.inner_x(torch.as_tensor(inducing_inputs, dtype=torch.float64))
        self.basis = Basis.at(z, Basis(theta, z.shape[1], len(z), torch.float64, self.device))
        self.side = side or 0.0
        self.open = [-1]
        self.blocks = self._tiles(most) if side else self._random(most)

        self.excess = torch.zeros(
            (self.basis.size, self.basis.size), dtype=torch.float64, device=self.device
        )
        self.linear = self.excess.new_zeros((self.basis.size, self.data.y.shape[1]))

    def _random(self, most: int) -> list[Tensor]:
        """Blocks of at most `most` samples, drawn at random."""
        n = len(self.places)
        return list(
            torch.randperm(n, generator=self.generator).to(self.device).chunk(-(-n // most))
        )

    def _tiles(self, most: int) -> list[Tensor]:
        """Blocks of at most `most` samples by tile; `open` becomes the last block of each tile."""
        order = torch.arange(len(self.places), dtype=torch.float64, device=self.device)
        parts = partition(tiles_of(self.places, self.side), order, most)
        ends = torch.tensor([len(p) for p in parts]).cumsum(0)
        self.open = (ends - 1).tolist()  # the last of each tile
        return [block for tile in parts for block in tile]

    def block(self, number: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """W (R, n) and λ (n, C) of a block, with G_s = W Wᵀ and r_s = W λ; and its U (n, n).

        U is None for blocks without a common residual.
        """
        which = self.blocks[number]
        places, y, noise = self.places[which], self.data.y[which], self.noise[which]
        raw = self.basis.whitened(places, self.data.heading[which])

        if self.member.residual == "block":
            factor, whitened, lam = whiten_block(
                self.basis.kernel, places, raw, self.basis.features, noise, y
            )
            return whitened, lam, factor

        if self.member.residual == "diagonal":
            noise = noise + self.basis.residual(places, raw)
        # a diagonal Γ: each sample is its own block
        root = noise.rsqrt()
        return raw * root, root[:, None] * y, None

    @property
    def steps_per_epoch(self) -> int:
        """T: steps in which shuffled draws use every block once."""
        return -(-len(self.blocks) // self.draw)

    def target(self, chosen: list[int], fraction: float | None = None) -> tuple[Tensor, Tensor]:
        """(P/|S|) Σ (G_s, r_s): an unbiased estimate of the sums over all blocks.

        Args:
            chosen: numbers of the blocks, S.
            fraction: factor in place of P/|S|.
        """
        excess, linear = torch.zeros_like(self.excess), torch.zeros_like(self.linear)
        for number in chosen:
            whitened, lam, _ = self.block(number)
            excess.addmm_(whitened, whitened.mT)
            linear.addmm_(whitened, lam)
        fraction = len(self.blocks) / len(chosen) if fraction is None else fraction
        return fraction * excess, fraction * linear

    def absorb(self, chosen: list[int], rho: float, fraction: float | None = None) -> None:
        """Take one natural-gradient step of rate ρ towards what the chosen blocks say.

        Args:
            chosen: numbers of the blocks, S.
            rho: ρ.
            fraction: as of `target`.
        """
        excess, linear = self.target(chosen, fraction)
        self.excess.lerp_(excess, rho)
        self.linear.lerp_(linear, rho)

    def step(self, count: int = 1) -> None:
        """Take `count` steps of the schedule.

        Each is on |S| blocks drawn i.i.d., or on the next part of a shuffled round.
        """
        for _ in range(count):
            rho = self.rate / (1.0 + self.decay * self.rate * self.steps) ** self.power
            if self.shuffled:
                self._absorb_next(rho)
                continue
            chosen = torch.randint(
                len(self.blocks), (self.draw,), generator=self.generator
            ).tolist()
            self.absorb(chosen, rho)
            self.steps += 1

    def _absorb_next(self, rho: float) -> None:
        """Take a step on the next part of the round; a new round is shuffled where none is left."""
        if not self._round:
            order = torch.randperm(len(self.blocks), generator=self.generator)
            self._round = [part.tolist() for part in order.tensor_split(self.steps_per_epoch)]
        # parts differ by a block in size: the factor is T for each, not P/|S|
        self.absorb(self._round.pop(), rho, self.steps_per_epoch)
        self.steps += 1

    def batch(self) -> None:
        """Make it the batch model: all blocks, ρ = 1."""
        self.absorb(list(range(len(self.blocks))), 1.0)

    @property
    def posterior(self) -> AnytimePosterior:
        """The posterior with the member's test conditional; PIC's has every tile's open block."""
        return self.posterior_near(None)

    @torch.no_grad()
    def posterior_near(self, x: Tensor | None) -> AnytimePosterior:
        """The posterior with the blocks of the tiles of x (N, D), m, only; of all tiles if None."""
        precision = self.excess + torch.eye(
            len(self.excess), dtype=torch.float64, device=self.device
        )
        factor, _ = cholesky(precision)
        weights = torch.cholesky_solve(self.linear, factor)

        blocks = []
        if self.member.conditional == "local":
            near = self.places[:0] if x is None else self.scaling.inner_x(x)
            tiles = (
                None if x is None else set(map(tuple, tiles_of(near, self.side).long().tolist()))
            )
            # PIC has the open block, the last one, of each tile
            for number in self.open:
                places = self.places[self.blocks[number]]
                tile = tuple(tiles_of(places[:1], self.side).long()[0].tolist())
                if tiles is None or tile in tiles:
                    whitened, lam, root = self.block(number)
                    blocks.append(Block(tile, places, root, whitened, lam))

        return AnytimePosterior(
            self.theta,
            self.basis.z,
            self.basis.L,
            factor,
            weights,
            average_noise(self.theta, self.data.extra),
            self.scaling,
            conditional=self.member.conditional,
            side=self.side,
            blocks=tuple(blocks),
        )

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict; without velocity only the blocks near x are computed."""
        near = torch.as_tensor(x, dtype=torch.float64)
        if velocity is not None:
            near = None  # the sensor's place is not x
        return self.posterior_near(near).predict(x, velocity, heading)

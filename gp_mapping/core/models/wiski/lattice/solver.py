"""The posterior mean on the lattice by conjugate gradients, preconditioned by the prior, stopped in time.

    [K⁻¹ + G    B      ] [u]   [b ]          u = K p,   S = diag(s_c², s_h², s_h²): the features' prior
    [Bᵀ         S⁻¹ + F] [f] = [b_f]

With the prior as preconditioner, r'z is the squared norm of the whitened residual. The whitened matrix is I + (≥ 0), so
that |error of the mean at x| ≤ ‖residual‖ · posterior sd at x, everywhere: stopping at ε promises ε posterior sd.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.kernels.stationary import Stationary
from gp_mapping.core.models.wiski.lattice.coarse import CoarseSpace
from gp_mapping.core.models.wiski.lattice.frozen import Frozen, System
from gp_mapping.core.models.wiski.lattice.toeplitz import KernelGrid
from gp_mapping.core.models.wiski.lattice.windows import Aggregates

__all__ = ["MeanSolve", "Solution"]


@dataclass(frozen=True)
class Solution:
    """u (C, H, W) on the nodes, p (n, C) on the held ones with u = K p, f (3, C), residual left, iterations."""

    u: Tensor
    p: Tensor
    f: Tensor
    residual: float
    iterations: int


class MeanSolve:
    """A solve that is done step by step: the preconditioner, then an iteration each, channel by channel.

    first (2,): place of the box's first node, metres.  lumps: the data, for the preconditioner.  kernel: of the box,
    made from the stationary one.  prior: (3,) variances S, 0 leaves one out.  tolerance: ε, of the absolute whitened
    residual, a channel.  iterations: at most.  Steps change nothing in place: `fork` makes another that goes on alone.
    """

    def __init__(
        self,
        sums: Frozen,
        first: Tensor,
        spacing: float,
        aggregates: Aggregates,
        stationary: Stationary,
        kernel: KernelGrid,
        prior: Tensor,
        tolerance: float,
        iterations: int = 3000,
    ):
        self.sums, self.tolerance, self.iterations = sums, tolerance, iterations
        self.system = System(sums, kernel, prior)
        self.coarse = CoarseSpace(
            sums.held, sums.shape, first, spacing, stationary, aggregates, prior
        )
        self.torus = kernel.torus[0] * kernel.torus[1]
        self.channels: tuple[_Channel, ...] = ()  # the last may be at work, the others are done
        self.steps = 0

    @property
    def finished(self) -> bool:
        return len(self.channels) == self.sums.rhs.shape[1] and self.channels[-1].finished

    @property
    def step_cost(self) -> float:
        """Of the next step: points of the torus times iterations."""
        return self.torus if self.coarse.ready else self.coarse.step_cost

    def fork(self) -> "MeanSolve":
        """Another that goes on from here."""
        new: MeanSolve = copy.copy(self)
        new.coarse = self.coarse.fork()
        new.channels = tuple(c.fork() for c in self.channels)
        return new

    def step(self) -> None:
        """A small part of the work. Not to be called once it is finished."""
        self.steps += 1
        if not self.coarse.ready:
            self.coarse.step()
        elif not self.channels or self.channels[-1].finished:
            c, s = len(self.channels), self.sums
            # one by one: a channel's digits do not depend on its neighbours
            self.channels += (
                _Channel(
                    self.system,
                    self.coarse,
                    s.rhs[:, c],
                    s.linear[:, c],
                    (s.start[:, c], s.start_f[:, c]),
                    self.tolerance,
                    self.iterations,
                ),
            )
        else:
            self.channels[-1].step()

    def run(self) -> Solution:
        """All that is left, at once."""
        while not self.finished:
            self.step()
        return self.solution()

    def solution(self) -> Solution:
        """Of a finished solve."""
        p, f = (torch.stack([getattr(c, name) for c in self.channels], 1) for name in ("p", "f"))
        return Solution(
            torch.stack([self.system.spread(c.p) for c in self.channels]),
            p,
            f,
            max(float(c.rz) ** 0.5 for c in self.channels),
            max(c.done for c in self.channels),
        )


class _Channel:
    """Preconditioned conjugate gradients for p (n,), f (3,); rz: the whitened residual's squared norm."""

    def __init__(
        self,
        system: System,
        coarse: CoarseSpace,
        b: Tensor,
        b_f: Tensor,
        start,
        tolerance: float,
        most: int,
    ):
        self.system, self.b, self.b_f = system, b, b_f * system.use
        self.goal, self.most, self.done, self.rounds, self.finished = (
            tolerance**2,
            most,
            0,
            0,
            False,
        )
        self.coarse: CoarseSpace | None = coarse  # None: the prior alone
        p, f = start[0], start[1] * system.use
        self._begin(torch.zeros_like(p), torch.zeros_like(f), torch.zeros_like(p), b, self.b_f)
        if bool((p != 0).any()) or bool((f != 0).any()):
            nothing = dict(self.__dict__)
            self._truly(p, f)
            if not bool(
                self.rz <= nothing["rz"]
            ):  # a start from other hyper-parameters may be worse than none
                self.__dict__.update(nothing)

    def fork(self) -> "_Channel":
        new: _Channel = copy.copy(self)
        return new

    def _begin(self, p: Tensor, f: Tensor, u: Tensor, r: Tensor, r_f: Tensor) -> None:
        """Without a direction yet."""
        self.p, self.f, self.u, self.r, self.r_f = p, f, u, r, r_f
        self.z, self.z_f = self.system.prior_times(r, r_f)
        self.rz = (r @ self.z + r_f @ self.z_f).clamp_min(0.0)
        self.dp, self.d, self.d_f = torch.zeros_like(r), torch.zeros_like(r), torch.zeros_like(r_f)
        self.last = torch.inf

    def _truly(self, p: Tensor, f: Tensor) -> None:
        """From p and f alone, the residual anew."""
        u = self.system.prior_times(p, f)[0]
        q, q_f = self.system.times(p, u, f)
        self._begin(p, f, u, self.b - q, self.b_f - q_f)

    def _precondition(self) -> tuple[Tensor, Tensor, Tensor]:
        """dp, d = K dp, d_f: the residual r with z = K r, z_f = S r_f, less what lumps know of it."""
        if self.coarse is None:
            return self.r, self.z, self.z_f
        less, less_f = self.coarse.correction(self.z, self.r_f)
        dp = self.r - less
        return dp, self.system.prior_times(dp, self.r_f)[0], self.z_f - less_f

    def step(self) -> None:
        """An iteration, or, where the recursion says that it is done, a look at the residual itself."""
        if float(self.rz) > self.goal and self.done < self.most:
            fresh_p, fresh, fresh_f = self._precondition()
            along = self.r @ fresh + self.r_f @ fresh_f
            if not float(along) > 0.0 and self.coarse is not None:  # not positive: ε was too little
                self.coarse = self.coarse.cautious() if self.coarse.epsilon < 1.0 else None
                self._truly(self.p, self.f)
                return
            turn = along / self.last
            self.dp, self.d, self.d_f = (
                fresh_p + turn * self.dp,
                fresh + turn * self.d,
                fresh_f + turn * self.d_f,
            )
            q, q_f = self.system.times(self.dp, self.d, self.d_f)
            step, self.last = along / (self.d @ q + self.d_f @ q_f), along
            self.u, self.p, self.f = (
                self.u + step * self.d,
                self.p + step * self.dp,
                self.f + step * self.d_f,
            )
            self.r, self.r_f = self.r - step * q, self.r_f - step * q_f
            self.z, self.z_f = self.system.prior_times(self.r, self.r_f)
            self.rz, self.done = self.r @ self.z + self.r_f @ self.z_f, self.done + 1
            return
        if self.done:
            self._truly(self.p, self.f)
            self.rounds += 1
        # again only where rounding has made the recursion's residual a dream
        self.finished = (
            not self.done
            or self.rounds == 3
            or self.done >= self.most
            or float(self.rz) <= 1.21 * self.goal
        )

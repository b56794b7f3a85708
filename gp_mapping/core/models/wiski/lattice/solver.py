"""The posterior mean on the lattice by preconditioned conjugate gradients with a known error.

    [K⁻¹ + G    B      ] [u]   [b ]          u = K p,   S: the F features' prior
    [Bᵀ         S⁻¹ + F] [f] = [b_f]

r'z, with z the residual r times the prior, is the squared norm of the whitened residual. The
whitened matrix is I + (≥ 0), so that |error of the mean at x| ≤ ‖residual‖ · posterior sd at x,
everywhere: stopping at ε promises an error of at most ε posterior sd.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.device.replay import Replay
from gp_mapping.core.device.transfers import is_synchronous
from gp_mapping.core.kernels.stationary import Stationary
from gp_mapping.core.models.wiski.lattice.coarse import CoarseSpace
from gp_mapping.core.models.wiski.lattice.frozen import FrozenSums, System
from gp_mapping.core.models.wiski.lattice.toeplitz import KernelGrid
from gp_mapping.core.models.wiski.lattice.windows import Aggregates

__all__ = ["MeanSolve", "Solution"]

_TOGETHER = 4  # iterations of which a card tells the residual: the processor waits for it
# tensors that an iteration changes (_Channel)
_STATE = ("p", "f", "u", "r", "r_f", "z", "z_f", "dp", "d", "d_f", "last")


@dataclass(frozen=True)
class Solution:
    """The mean on the lattice, of all channels.

    Attributes:
        u: (C, H, W) on the nodes, u = K p.
        p: (n, C) on the held nodes.
        f: (F, C) weights of the features.
        residual: whitened norm at the end, the largest of the channels.
        iterations: the most that a channel took.
    """

    u: Tensor
    p: Tensor
    f: Tensor
    residual: float
    iterations: int


class MeanSolve:
    """A solve in small steps: the preconditioner, then one iteration each, channel by channel.

    Steps change nothing in place: `fork` makes another solve that goes on alone.

    Args:
        sums: G, B, F and right-hand sides of the held nodes.
        first: (2,) place of the box's first node, m.
        spacing: of the lattice, m.
        aggregates: the data as weighted samples, for the preconditioner.
        stationary: the kernel.
        kernel: K_uu of that kernel on the box.
        prior: (F,) variances S of the features' weights; 0 leaves one out.
        tolerance: ε, of the absolute whitened residual of a channel.
        iterations: the most that a channel may take.
    """

    def __init__(
        self,
        sums: FrozenSums,
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
        """Whether all channels are solved."""
        return len(self.channels) == self.sums.rhs.shape[1] and self.channels[-1].finished

    @property
    def step_cost(self) -> float:
        """Cost of the next step: points of the torus times iterations."""
        return self.torus if self.coarse.ready else self.coarse.step_cost

    def fork(self) -> "MeanSolve":
        """An independent solve that goes on from here."""
        new: MeanSolve = copy.copy(self)
        new.coarse = self.coarse.fork()
        new.channels = tuple(c.fork() for c in self.channels)
        return new

    def step(self) -> None:
        """Do a small part of the work; not to be called once the solve is finished."""
        self.steps += 1

        if not self.coarse.ready:
            self.coarse.step()
        elif not self.channels or self.channels[-1].finished:
            c, s = len(self.channels), self.sums
            # one by one, so that a channel's digits do not depend on its neighbours
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
        """Do all steps that remain."""
        while not self.finished:
            self.step()
        return self.solution()

    def solution(self) -> Solution:
        """The solution of a finished solve."""
        p, f = (torch.stack([getattr(c, name) for c in self.channels], 1) for name in ("p", "f"))
        return Solution(
            torch.stack([self.system.spread(c.p) for c in self.channels]),
            p,
            f,
            max(max(c.rz, 0.0) ** 0.5 for c in self.channels),
            max(c.done for c in self.channels),
        )


class _Channel:
    """Preconditioned conjugate gradients of one channel.

    Args:
        system: what is solved.
        coarse: the preconditioner.
        b: (n,), right-hand side of the nodes.
        b_f: (F,), of the features.
        start: p and f to begin with.
        tolerance: norm of the whitened residual at which it is solved.
        max_iterations: it ends after these.

    Attributes:
        p: (n,), of the present solution; u = K p.
        f: (F,), of the present solution.
        r: (n,), of its residual; z = K r.
        r_f: (F,), of its residual; z_f = S r_f.
        rz: squared norm of the whitened residual, a number.
        dp: (n,), of the search direction; d = K dp.
        d_f: (F,), of the search direction.
        last: rᵀ(preconditioned r) of the last iteration; infinite where there is none.
        done: iterations.
        together: iterations of a step.
        rounds: how often the residual was computed anew at what seemed the end.
    """

    def __init__(
        self,
        system: System,
        coarse: CoarseSpace,
        b: Tensor,
        b_f: Tensor,
        start,
        tolerance: float,
        max_iterations: int,
    ):
        self.system, self.b, self.b_f = system, b, b_f * system.use
        self.goal, self.max_iterations, self.done, self.rounds, self.finished = (
            tolerance**2,
            max_iterations,
            0,
            0,
            False,
        )
        self.coarse: CoarseSpace | None = coarse  # None: the prior alone
        self.replay = Replay()  # of iterations with this preconditioner
        self.together = 1 if is_synchronous(b.device) else _TOGETHER

        p, f = start[0], start[1] * system.use
        self._begin(torch.zeros_like(p), torch.zeros_like(f), torch.zeros_like(p), b, self.b_f)
        if bool((p != 0).any()) or bool((f != 0).any()):
            zero_start = dict(self.__dict__)
            self._truly(p, f)
            # a start from other hyper-parameters may be worse than none
            if not self.rz <= zero_start["rz"]:
                self.__dict__.update(zero_start)

    def fork(self) -> "_Channel":
        """A copy that goes on by itself; no step writes into a tensor that it has."""
        new: _Channel = copy.copy(self)
        return new

    def _begin(self, p: Tensor, f: Tensor, u: Tensor, r: Tensor, r_f: Tensor) -> None:
        """Set the solution and its residual; there is no search direction yet."""
        self.p, self.f, self.u, self.r, self.r_f = p, f, u, r, r_f
        self.z, self.z_f = self.system.prior_times(r, r_f)
        self.rz = float((r @ self.z + r_f @ self.z_f).clamp_min(0.0))
        self.dp, self.d, self.d_f = torch.zeros_like(r), torch.zeros_like(r), torch.zeros_like(r_f)
        self.last = self.z.new_full((), torch.inf)

    def _truly(self, p: Tensor, f: Tensor) -> None:
        """Start again from p and f, with the residual computed anew."""
        u = self.system.prior_times(p, f)[0]
        product, product_f = self.system.times(p, u, f)
        self._begin(p, f, u, self.b - product, self.b_f - product_f)

    def _precondition(self, r: Tensor, r_f: Tensor, z: Tensor, z_f: Tensor) -> tuple[Tensor, ...]:
        """The preconditioned residual: dp (n,), d = K dp, and d_f (F,).

        That is r with z = K r and z_f = S r_f, less what the aggregates explain of it.
        """
        if self.coarse is None:
            return r, z, z_f
        less, less_f = self.coarse.correction(z, r_f)
        dp = r - less
        return dp, self.system.prior_times(dp, r_f)[0], z_f - less_f

    def _iterated(
        self,
        p: Tensor,
        f: Tensor,
        u: Tensor,
        r: Tensor,
        r_f: Tensor,
        z: Tensor,
        z_f: Tensor,
        dp: Tensor,
        d: Tensor,
        d_f: Tensor,
        last: Tensor,
    ) -> tuple[Tensor, ...]:
        """What an iteration makes of _STATE, and rz and rᵀ(preconditioned r)."""
        fresh_p, fresh, fresh_f = self._precondition(r, r_f, z, z_f)
        along = r @ fresh + r_f @ fresh_f
        conjugacy = along / last
        dp, d, d_f = (
            torch.addcmul(new, conjugacy, old)
            for new, old in ((fresh_p, dp), (fresh, d), (fresh_f, d_f))
        )

        product, product_f = self.system.times(dp, d, d_f)
        step = along / (d @ product + d_f @ product_f)
        u, p, f = (torch.addcmul(a, step, b) for a, b in ((u, d), (p, dp), (f, d_f)))
        r, r_f = (
            torch.addcmul(a, step, b, value=-1.0) for a, b in ((r, product), (r_f, product_f))
        )

        z, z_f = self.system.prior_times(r, r_f)
        return p, f, u, r, r_f, z, z_f, dp, d, d_f, along, (r @ z + r_f @ z_f, along)

    def _iterated_together(self, *state: Tensor) -> tuple[Tensor, ...]:
        """As `_iterated`, so many iterations; rz is of the last, and the least of the others."""
        least = None
        for _ in range(self.together):
            *state, (rz, along) = self._iterated(*state)
            least = along if least is None else torch.minimum(least, along)
        return *state, torch.stack([rz, least])

    def step(self) -> None:
        """Do an iteration, or check the residual where the recursion says that it is small."""
        if self.rz > self.goal and self.done < self.max_iterations:
            *state, numbers = self.replay(
                self._iterated_together, [getattr(self, name) for name in _STATE]
            )
            rz, along = numbers.tolist()
            # the preconditioner is not positive, so its ε was too small: more of it, or none at all
            if not along > 0.0 and self.coarse is not None:
                self.coarse = self.coarse.more_regularised() if self.coarse.epsilon < 1.0 else None
                self.replay = Replay()
                self._truly(self.p, self.f)
                return

            for name, value in zip(_STATE, state):
                setattr(self, name, value)
            self.rz, self.done = rz, self.done + self.together
            return

        # rounding has gathered in the recursion: the residual is computed anew
        if self.done:
            self._truly(self.p, self.f)
            self.rounds += 1

        # iterate again only where rounding has made the recursion's residual too small: the one
        # computed anew may exceed the goal by a tenth (its square by 1.21)
        self.finished = (
            not self.done
            or self.rounds == 3
            or self.done >= self.max_iterations
            or self.rz <= 1.21 * self.goal
        )

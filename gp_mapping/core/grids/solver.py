"""The posterior mean on the lattice by conjugate gradients, preconditioned by the prior, stopped in time.

    [K⁻¹ + G    B      ] [u]   [b ]          u = K p,   S = diag(s_c², s_h², s_h²): the features' prior
    [Bᵀ         S⁻¹ + F] [f] = [b_f]

With the prior as preconditioner, r'z is the squared norm of the whitened residual. The whitened matrix is I + (≥ 0), so
that |error of the mean at x| ≤ ‖residual‖ · posterior sd at x, everywhere: stopping at ε promises ε posterior sd.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.grids.coarse import CoarseSpace
from gp_mapping.core.grids.sites import OFFSETS, GridSites
from gp_mapping.core.grids.toeplitz import KernelGrid
from gp_mapping.core.kernels import Stationary

__all__ = ["Solution", "solve_mean"]


@dataclass(frozen=True)
class Solution:
    """u (C, H, W) on the nodes, p (H·W, C) with u = K p, f (3, C), the whitened residual left, iterations."""

    u: Tensor
    p: Tensor
    f: Tensor
    residual: float
    iterations: int


class _Stencil:
    """G among the nodes `held` (n,), sorted flat numbers: 49 neighbours and numbers a row, products by gathering."""

    def __init__(self, grid: GridSites, held: Tensor):
        n, width = len(held), grid.shape[1]
        number = torch.full((grid.nodes,), n, dtype=torch.long, device=held.device)
        number[held] = torch.arange(n, device=held.device)
        ahead = torch.tensor([i * width + j for i, j in OFFSETS], device=held.device)
        # a node near the box's edge holds no sample (see _MARGIN in sites.py): nothing there wraps
        after = (held[:, None] + ahead).clamp_(max=grid.nodes - 1)
        before = (held[:, None] - ahead[1:]).clamp_(min=0)
        behind = grid.stencil[before, torch.arange(1, len(OFFSETS), device=held.device)]
        self.values = torch.cat([grid.stencil[held], behind], 1)
        self.index = torch.cat([number[after], number[before]], 1).view(-1)
        self.padded = torch.zeros(n + 1, dtype=torch.float64, device=held.device)  # what is not held is nought

    def times(self, u: Tensor) -> Tensor:
        """G u for u (n,)."""
        self.padded[:-1] = u
        return (self.padded.index_select(0, self.index).view(self.values.shape) * self.values).sum(1)


def solve_mean(grid: GridSites, stationary: Stationary, kernel: KernelGrid, prior: Tensor, start_f: Tensor,
               tolerance: float, iterations: int = 3000) -> Solution:
    """The mean at the present sums, from grid.start and start_f (3, C). prior: (3,) variances S, 0 leaves one out.

    kernel: of the grid's box, made from the stationary one.
    tolerance: ε, of the absolute whitened residual, per channel.  iterations: at most.
    """
    system = _System(grid, stationary, kernel, prior)
    p, f, left, done = torch.zeros_like(grid.start), torch.zeros_like(start_f), 0.0, 0
    u = torch.zeros((grid.channels, *grid.shape), dtype=torch.float64, device=grid.device)
    for c in range(grid.channels):  # one by one: a channel's digits do not depend on its neighbours
        start = (grid.start[system.held, c], start_f[:, c])
        one, f[:, c], norm, turns = _conjugate_gradients(system, grid.rhs[system.held, c], grid.linear[:, c], start,
                                                         tolerance, iterations)
        p[system.held, c], left, done = one, max(left, norm), max(done, turns)
        u[c] = system.spread(one)
    return Solution(u, p, f, left, done)


class _System:
    """G, B and F among the nodes that samples touch, K through the whole box."""

    def __init__(self, grid: GridSites, stationary: Stationary, kernel: KernelGrid, prior: Tensor):
        diagonal = grid.stencil[:, 0]
        # β w² of a weight that is next to nothing still counts
        self.held = (diagonal > 1e-18 * diagonal.max().clamp_min(1e-300)).nonzero()[:, 0]
        self.kernel, self.shape, self.use = kernel, grid.shape, prior > 0
        self.stencil, self.prior = _Stencil(grid, self.held), prior
        self.border, self.features = grid.border[self.held] * self.use, grid.features * self.use
        self.inverse = torch.where(self.use, 1.0 / prior.clamp_min(1e-300), 0.0)
        self.coarse = CoarseSpace(grid, stationary, self.held, prior)
        self.wide = torch.zeros(grid.nodes, dtype=torch.float64, device=prior.device)

    def spread(self, p: Tensor) -> Tensor:
        """K p on all nodes, for p (n,) on the held ones: (H, W)."""
        self.wide[self.held] = p
        return self.kernel.apply(self.wide.view(1, *self.shape))[0]

    def prior_times(self, r: Tensor, r_f: Tensor) -> tuple[Tensor, Tensor]:
        """The prior: K r, S r_f."""
        return self.spread(r).reshape(-1)[self.held], self.prior * r_f

    def precondition(self, r: Tensor, r_f: Tensor, z: Tensor, z_f: Tensor):
        """dp, d = K dp, d_f: the residual r with z = K r, z_f = S r_f, less what the coarse space has of it."""
        numbers = self.coarse.numbers
        less, less_f = self.coarse.correction(z[numbers], r_f)
        dp = r.clone()
        dp[numbers] -= less
        return dp, self.spread(dp).reshape(-1)[self.held], z_f - less_f

    def times(self, p: Tensor, u: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """(K⁻¹ + G)u + B f with p = K⁻¹u, and Bᵀu + (S⁻¹ + F)f."""
        return (p + self.stencil.times(u) + self.border @ f,
                (self.border.mT @ u + self.inverse * f + self.features @ f) * self.use)


def _conjugate_gradients(system: _System, b: Tensor, b_f: Tensor, start, tolerance: float, iterations: int):
    """p (n,), f (3,), the whitened residual's norm, iterations. start: (p, f), left alone if nought is nearer."""
    b_f = b_f * system.use
    p, f = start[0], start[1] * system.use
    u, r, r_f = torch.zeros_like(b), b, b_f
    z, z_f = system.prior_times(b, b_f)
    rz = r @ z + r_f @ z_f
    if bool((p != 0).any()) or bool((f != 0).any()):
        u_start = system.prior_times(p, f)[0]
        q, q_f = system.times(p, u_start, f)
        left, left_f = b - q, b_f - q_f
        whole, whole_f = system.prior_times(left, left_f)
        norm = left @ whole + left_f @ whole_f
        if bool(norm <= rz):
            u, r, r_f, z, z_f, rz = u_start, left, left_f, whole, whole_f, norm
        else:  # a start from other hyper-parameters may be worse than none
            p, f = torch.zeros_like(b), torch.zeros_like(b_f)
    else:
        p, f = torch.zeros_like(b), torch.zeros_like(b_f)
    done, goal = 0, tolerance**2
    for _ in range(3):  # again only where rounding has made the recursion's residual a dream
        dp, d, d_f, last = torch.zeros_like(r), torch.zeros_like(r), torch.zeros_like(r_f), torch.inf
        while float(rz) > goal and done < iterations:
            fresh_p, fresh, fresh_f = system.precondition(r, r_f, z, z_f)
            along = r @ fresh + r_f @ fresh_f
            turn = along / last
            dp, d, d_f = fresh_p + turn * dp, fresh + turn * d, fresh_f + turn * d_f
            q, q_f = system.times(dp, d, d_f)
            step, last = along / (d @ q + d_f @ q_f), along
            u, p, f = u + step * d, p + step * dp, f + step * d_f
            r, r_f = r - step * q, r_f - step * q_f
            z, z_f = system.prior_times(r, r_f)
            rz, done = r @ z + r_f @ z_f, done + 1
        if not done:
            break
        u = system.prior_times(p, f)[0]
        q, q_f = system.times(p, u, f)
        r, r_f = b - q, b_f - q_f
        z, z_f = system.prior_times(r, r_f)
        rz = (r @ z + r_f @ z_f).clamp_min(0.0)
        if float(rz) <= (1.1 * tolerance) ** 2 or done >= iterations:
            break
    return p, f, float(rz) ** 0.5, done

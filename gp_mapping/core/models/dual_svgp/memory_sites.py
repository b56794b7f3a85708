"""What remembered samples contribute to the sites of a dual SVGP, and a map's rebuilt parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import cholesky
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.sites import Sites

__all__ = ["MemorySites", "RebuiltParts", "RememberedSites"]


@dataclass(frozen=True)
class MemorySites:
    """What the remembered samples contribute to the sites.

    Attributes:
        whitened: features a(x) (R, m).
        columns: columns of the memory that go with them; β (m,) and λ (m, C) among them.
        pass_numbers: passes of the samples (m,).
    """

    whitened: Tensor
    columns: dict[str, Tensor]
    pass_numbers: Tensor | None = None

    def add_to(self, sites: Sites) -> None:
        """Add the samples' sites to the sums."""
        sites.add(self.whitened, self.columns["beta"], self.columns["lam"], self.pass_numbers)

    def part(self, which: slice) -> MemorySites:
        """The contribution of some of the samples."""
        columns = {name: column[which] for name, column in self.columns.items()}
        return MemorySites(
            self.whitened[:, which],
            columns,
            None if self.pass_numbers is None else self.pass_numbers[which],
        )

    def write(self, memory: Memory) -> None:
        """Write features and columns into the memory, as the samples stand in the sites."""
        memory.keep_columns(features=True)

        for name, column in self.columns.items():
            getattr(memory, name).copy_(column)
        memory.set_whitened(self.whitened)


@dataclass(frozen=True)
class RebuiltParts:
    """The parts of a map at new hyper-parameters.

    Attributes:
        basis: of the features.
        sites: of all samples.
        memory_sites: what the remembered samples contribute to the sites.
        floor: bits below which a sample becomes no input; above 0 where inputs were given up that
            had been worth theirs.
    """

    basis: Basis
    sites: Sites
    memory_sites: MemorySites
    floor: float = 0.0


class RememberedSites:
    """The sites of the samples that a DualSVGP remembers: computed, added and removed.

    It uses the attributes below, `noise`, `unremembered_empty` and `unremembered_sites` of
    SparseMap, and changes `sites` and `memory` in `remove_samples` alone.
    """

    theta: Theta
    basis: Basis
    sites: Sites
    memory: Memory

    def memory_sites_at(self, theta: Theta, basis: Basis, whitened: Tensor) -> MemorySites:
        """What the remembered samples contribute to the sites at θ, in the given basis.

        Args:
            theta: the hyper-parameters; they set β and λ of a Gaussian likelihood.
            basis: of the features; a subclass needs it.
            whitened: a(x) of the remembered samples in that basis (R, m).
        """
        memory = self.memory

        # sites of another likelihood do not follow from θ: they are kept
        if not self.likelihood.conjugate:
            return MemorySites(
                whitened,
                {"beta": memory.beta.clone(), "lam": memory.lam.clone()},
                memory.pass_number,
            )

        beta = memory.weight / self.noise(memory.noise, memory.extra, theta, memory.x)
        return MemorySites(
            whitened, {"beta": beta, "lam": beta[:, None] * memory.y}, memory.pass_number
        )

    def memory_sites_of(self, kept: Tensor) -> MemorySites:
        """What the samples `kept` (m,) contribute to the present sites, once others left."""
        memory = self.memory
        return MemorySites(
            memory.whitened(self.basis.size)[:, kept],
            {"beta": memory.beta[kept], "lam": memory.lam[kept]},
            memory.pass_number[kept],
        )

    def add_memory_sites(self, store: Sites, sign: float, among: slice = slice(None)) -> None:
        """Add the remembered samples' sites to a store, or take them out, as they are.

        Args:
            store: sums in this map's basis.
            sign: 1 to add, −1 to take out.
            among: which of the samples.
        """
        memory, whitened = self.memory, self.memory.whitened(self.basis.size)[:, among]
        store.add(
            whitened, sign * memory.beta[among], sign * memory.lam[among], memory.pass_number[among]
        )

    def remove_samples(self, gone: Tensor, near: Tensor, radius: float) -> None:
        """Remove remembered samples, and what the unremembered sites say near x, from the sites.

        The unremembered sites are pseudo-data on u; those near x go: Λ ← SΛS, S_jj ∈ {0, 1}, which
        is the transfer T = LᵀSL⁻ᵀ in the whitened basis. The passes' constants are integrated out
        of the unremembered sites before: what is forgotten must not be mistaken for a constant.

        Args:
            gone: remembered samples to remove (m,), bool.
            near: places (K, D), inner.
            radius: m.
        """
        if self.unremembered_empty:
            sites = self.sites.emptied()
        else:
            unremembered = self.unremembered_sites()
            every = set(unremembered.passes.numbers)
            unremembered.close(every, self.theta.bias_stddev**2, self.theta.bias_correlation)
            sites = unremembered.project(self._kept_away(near, radius), self.sites.capacity)

        memory_sites = self.memory_sites_of(~gone)
        memory_sites.add_to(sites)

        # raises NumericalError before anything of the map is changed
        cholesky(sites.precision)

        self.sites = sites
        self.memory.keep(~gone)
        memory_sites.write(self.memory)

    def _kept_away(self, near: Tensor, radius: float) -> Tensor:
        """T (R, R) that leaves no pseudo-data within `radius` of the places `near` (K, D)."""
        factor = self.basis.L.double()
        keep = (~(torch.cdist(self.basis.z, near) <= radius).any(1)).double()
        inducing = torch.linalg.solve_triangular(factor, keep[:, None] * factor, upper=False).mT
        return torch.block_diag(
            torch.eye(self.basis.features, dtype=torch.float64, device=self.device), inducing
        )

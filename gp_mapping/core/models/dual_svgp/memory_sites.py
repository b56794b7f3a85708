"""Parts of a dual SVGP on their way into other hyper-parameters or another basis."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.sites import Sites

__all__ = ["MemorySites", "RebuiltParts"]


@dataclass(frozen=True)
class MemorySites:
    """What the memory's samples have in the sites: features (R, m), and β (m,), λ (m, C) among the columns."""

    whitened: Tensor
    columns: dict[str, Tensor]
    of: Tensor | None = None  # the passes of the samples (m,)

    def add_to(self, sites: Sites) -> None:
        sites.add(self.whitened, self.columns["beta"], self.columns["lam"], self.of)

    def part(self, which: slice) -> MemorySites:
        """The share of some of the samples."""
        columns = {name: column[which] for name, column in self.columns.items()}
        return MemorySites(
            self.whitened[:, which], columns, None if self.of is None else self.of[which]
        )

    def write(self, memory: Memory) -> None:
        """The memory keeps it, to take it out again."""
        memory.keep_columns(features=True)
        for name, column in self.columns.items():
            getattr(memory, name).copy_(column)
        memory.set_whitened(self.whitened)


@dataclass(frozen=True)
class RebuiltParts:
    """The parts of a map at new hyper-parameters."""

    basis: Basis
    sites: Sites
    memory_sites: MemorySites
    floor: float = 0.0  # bits, where inputs were given up that had been worth theirs

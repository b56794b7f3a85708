"""Parts of a dual SVGP while it is transferred to other hyper-parameters or another basis."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.sites import Sites

__all__ = ["MemorySites", "RebuiltParts"]


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

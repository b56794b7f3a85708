"""What the data said, as natural parameters in the whitened basis: they add, subtract, scale, project and merge.

    D = I + Σ_i β_i a_i a_iᵀ  (R, R),     r = Σ_i a_i λ_iᵀ  (R, C),     s = Σ_i β_i a_i  (R, 1)

With a = L⁻¹k these are D = I + L⁻¹GL⁻ᵀ and r = L⁻¹h of the papers; what each pass has in them stands beside them
(passes.py). D ≥ I always, so it factors without jitter; s is
what a shift of the data's centre would add to r. Sums are float64 whatever the precision of the kernels.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from gp_mapping.core.sparse.passes import PassSums
from gp_mapping.core.transaction import Revertible, require_finite

__all__ = ["SiteStore", "Sites"]


class SiteStore(Protocol):
    """Sums over sites, wherever they are kept: in a dense basis (Sites) or on a lattice (GridSites).

    Every operation of a map is one of these: observe = add · take out = add with −β, −λ · forget = scale · fuse two
    maps = merge · copy = clone · the same place with nothing in it = emptied · another centre = shift_centre.
    """

    channels: int

    def add(self, *features_beta_lam: Tensor) -> None:
        """Add sites: features as the store takes them, β (N,), λ (N, C). Negative β and λ take away."""

    def scale(self, factor: float) -> None:
        """All sums times the factor."""

    def shift_centre(self, delta: Tensor) -> None:
        """Every target grows by delta (C,)."""

    def merge(self, other: SiteStore) -> None:
        """Add another store's sums in the same basis, or on the same lattice."""

    def clone(self) -> SiteStore: ...

    def emptied(self) -> SiteStore: ...

    def state_dict(self) -> dict: ...


class Sites(Revertible):
    """D, r and s inside buffers of `capacity` rows; `size` rows are in use, the rest of D is the identity."""

    def __init__(self, size: int, channels: int, capacity: int, device):
        self.size, self.channels = size, channels
        self._d = torch.eye(capacity, dtype=torch.float64, device=device)
        self._r = torch.zeros((capacity, channels + 1), dtype=torch.float64, device=device)
        self._copy: tuple[Tensor, Tensor] | None = None  # of both, as they were at `mark`
        self.passes = PassSums.none(size, channels, device)

    @property
    def precision(self) -> Tensor:
        """D: (R, R), a view."""
        return self._d[: self.size, : self.size]

    @property
    def linear(self) -> Tensor:
        """r: (R, C), a view."""
        return self._r[: self.size, : self.channels]

    @property
    def ones(self) -> Tensor:
        """s: (R, 1), a view."""
        return self._r[: self.size, self.channels :]

    def integrated(self, variance: float) -> tuple[Tensor, Tensor]:
        """D (R, R) and r (R, C) without the constants of the open passes; `variance`: s_b² (passes.py)."""
        if not len(self.passes) or variance <= 0.0:
            return self.precision, self.linear
        precision, sums = self.passes.integrated(self.precision, self._r[: self.size], variance)
        return precision, sums[:, : self.channels]

    def close(self, numbers: set[float], variance: float) -> None:
        """Integrate the constants of some passes out for good."""
        self._keep()
        if not numbers:
            return
        closing = self.passes.only(numbers)
        precision, sums = closing.integrated(self.precision, self._r[: self.size], variance)
        self.precision.copy_(precision)
        self._r[: self.size] = sums
        self.passes = self.passes.only(set(self.passes.numbers) - numbers)

    def add(self, whitened: Tensor, beta: Tensor, lam: Tensor, of: Tensor | None = None) -> None:
        """Add sites: white (R, N), beta (N,), lam (N, C). Negative beta and lam take away what was added.

        of: their passes (N,), NO_PASS where a sample has none.
        """
        self._keep()
        self.passes = self.passes.add(of, whitened, beta, lam)
        weighted = whitened * beta
        self.precision.addmm_(weighted, whitened.mT)
        self._r[: self.size].addmm_(whitened, torch.cat([lam, beta[:, None]], 1))

    def subtract(self, whitened: Tensor, beta: Tensor, lam: Tensor) -> None:
        """Take out exactly what was added."""
        self.add(whitened, -beta, -lam)

    def scale(self, factor: float) -> None:
        """Forget: D − I, r and s times the factor."""
        self._keep()
        self.precision.mul_(factor)
        self.precision.diagonal().add_(1.0 - factor)
        self._r[: self.size].mul_(factor)
        self.passes = self.passes.scale(factor)

    def pad(self, rows: int) -> None:
        """The basis grew: identity in D, zero in r. This *is* the projection of the old sites (P = L'[I 0]ᵀL⁻¹)."""
        if self.size + rows > len(self._d):
            raise ValueError(
                f"{self.size} + {rows} rows exceed the capacity {len(self._d)} of the sites"
            )
        self.size += rows
        self.passes = self.passes.pad(rows)

    def border(
        self, new: Tensor, old: Tensor, beta: Tensor, lam: Tensor, of: Tensor | None = None
    ) -> None:
        """Give samples whose features grew by `new` (A, N) beside `old` (R − A, N) their share of the new rows."""
        self._keep()
        split = self.size - len(new)
        weighted = new * beta
        block, precision = weighted @ old.mT, self.precision
        precision[split:, :split].add_(block)
        precision[:split, split:].add_(block.mT)
        precision[split:, split:].add_(weighted @ new.mT)
        self._r[split : self.size].addmm_(new, torch.cat([lam, beta[:, None]], 1))
        self.passes = self.passes.border(of, new, beta)

    def project(self, transfer: Tensor, capacity: int) -> "Sites":
        """The sites in another basis: D' = I + T(D − I)Tᵀ, r' = T r. transfer: T (R', R)."""
        new = Sites(len(transfer), self.channels, capacity, transfer.device)
        excess = self.precision - torch.eye(self.size, dtype=torch.float64, device=transfer.device)
        moved = transfer @ excess @ transfer.mT
        new.precision.add_(0.5 * (moved + moved.mT))
        new._r[: new.size] = transfer @ self._r[: self.size]
        new.passes = self.passes.project(transfer)
        return new

    def turn(self, rows: Tensor, columns: Tensor) -> None:
        """In orthogonal features Q a, of targets P λ: D ← Q D Qᵀ, r ← Q r Pᵀ. rows: Q (R, R).  columns: P (C, C)."""
        self._keep()
        self.precision.copy_(rows @ self.precision @ rows.mT)
        self._r[: self.size] = rows @ self._r[: self.size]
        self.linear.copy_(self.linear @ columns.mT)
        self.passes = self.passes.turn(rows, columns)

    def merge(self, other: Sites) -> None:
        """Add another map's sites in the same basis."""
        self._keep()
        self.precision.add_(other.precision)
        self.precision.diagonal().sub_(1.0)
        self._r[: self.size] += other._r[: other.size]
        self.passes = self.passes.merge(other.passes)

    def shift_centre(self, delta: Tensor) -> None:
        """Move the data's centre by −delta (C,): every target grows by delta, so r grows by s deltaᵀ."""
        self._keep()
        self.linear.addmm_(self.ones, delta[None, :])
        self.passes = self.passes.shift_centre(delta)

    def _keep(self) -> None:
        """Before the first write of a transaction: a copy of what is in use then."""
        if self._before is None or self._copy is not None:
            return
        size = self._before["size"]  # rows beyond are those of no site: the identity
        self._copy = self._d[:size, :size].clone(), self._r[:size].clone()

    def _put_back(self) -> None:
        if self._copy is None:
            return
        size = self._before["size"]
        self._d[size : self.size, : self.size] = self._d[: self.size, size : self.size] = 0.0
        self._d.diagonal()[size : self.size] = 1.0
        self._r[size : self.size] = 0.0
        self._d[:size, :size], self._r[:size] = self._copy

    def release(self) -> None:
        super().release()
        self._copy = None

    def check(self) -> None:
        """D is a sum of β a aᵀ: where anything in it is not finite, its diagonal says so."""
        require_finite("the sites", self.precision.diagonal(), self._r[: self.size])

    @property
    def capacity(self) -> int:
        """Rows that there is room for."""
        return len(self._d)

    def emptied(self) -> Sites:
        """As many rows without any site."""
        return Sites(self.size, self.channels, self.capacity, self._d.device)

    def clone(self, capacity: int | None = None) -> Sites:
        """A copy, with another capacity where it is given."""
        new = Sites(self.size, self.channels, capacity or self.capacity, self._d.device)
        new._d[: self.size, : self.size], new._r[: self.size] = self.precision, self._r[: self.size]
        new.passes = self.passes
        return new

    def state_dict(self) -> dict:
        return {
            "precision": self.precision.clone(),
            "linear": self._r[: self.size].clone(),
            "capacity": self.capacity,
            "passes": self.passes.state_dict(),
        }

    @classmethod
    def from_state_dict(cls, state: dict, device) -> "Sites":
        linear = state["linear"].to(device)
        new = cls(len(linear), linear.shape[1] - 1, int(state["capacity"]), device)
        new.precision.copy_(state["precision"].to(device))
        new._r[: new.size] = linear
        new.passes = PassSums.from_state_dict(state["passes"], device)
        return new

"""Sites: the data as natural parameters in the whitened basis, which add, scale and project.

Sample i with whitened features a_i = L⁻¹k(z, x_i) has the site (β_i, λ_i): a precision and a
precision-weighted value. The map keeps their sums,

    D = I + Σ_i β_i a_i a_iᵀ  (R, R),     r = Σ_i a_i λ_iᵀ  (R, C),     s = Σ_i β_i a_i  (R, 1)

These are D = I + L⁻¹GL⁻ᵀ and r = L⁻¹h of the papers. s is what a shift of the data's centre adds
to r. D ≥ I always, so it factors without jitter. Sums are float64, whatever the precision of the
kernels. The contribution of each pass to the sums is kept next to them (passes.py).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from gp_mapping.core.linalg import mirror_upper, upper_blocks
from gp_mapping.core.sparse.passes import PassSums
from gp_mapping.core.transaction import Revertible, require_finite

__all__ = ["SiteStore", "Sites"]

_ROOM = 64  # rows beyond those in use that new buffers have room for


class SiteStore(Protocol):
    """Sums over sites, kept in a dense basis (Sites) or on a lattice (GridSites).

    Every operation of a map is one of these: observing is `add`, taking out is `add` with −β and
    −λ, forgetting is `scale`, fusing two maps is `merge`, copying is `clone`, the same basis
    without data is `emptied`, another centre is `shift_centre`.
    """

    channels: int

    def add(self, *features_beta_lam: Tensor) -> None:
        """Add sites: features as the store takes them, β (N,), λ (N, C); negative β, λ take out."""

    def scale(self, factor: float) -> None:
        """Multiply all sums by the factor."""

    def shift_centre(self, delta: Tensor) -> None:
        """Add delta (C,) to every target."""

    def merge(self, other: SiteStore) -> None:
        """Add another store's sums in the same basis, or on the same lattice."""

    def clone(self) -> SiteStore:
        """A copy with tensors of its own."""

    def emptied(self) -> SiteStore:
        """The same basis, or lattice, without data."""

    def state_dict(self) -> dict:
        """State for the model's file."""


class Sites(Revertible):
    """D, r and s of a dense basis, in buffers that double where they are full.

    `size` rows are in use; beyond them D is the identity, and r and s are zero. D is symmetric: its
    upper triangle is kept up, and the rest follows where somebody reads all of it. What a
    transaction adds is written when it ends, since nothing can refuse it any more: without a copy
    of D. Only where the sums are read or changed otherwise before that, they are copied and written
    then.

    Args:
        size: R, rows in use.
        channels: C, of values.
        capacity: most rows.
        device: of all tensors.
    """

    def __init__(self, size: int, channels: int, capacity: int, device):
        self.size, self.channels, self.capacity = size, channels, capacity
        # most sites are of few rows, or made for one sum: not all of the capacity is written
        room = min(capacity, size + _ROOM)
        self._d = torch.eye(room, dtype=torch.float64, device=device)
        self._is_whole = True  # whether D is known below its diagonal, too
        # r and s are columns of one buffer: one product updates both
        self._r = torch.zeros((room, channels + 1), dtype=torch.float64, device=device)
        self._copy: tuple[Tensor, Tensor] | None = None  # D and [r | s] as they were at `mark`
        # features, the same times β, and [λ | β] of sites that this transaction has still to write
        self._added: tuple[tuple[Tensor, Tensor, Tensor], ...] = ()
        self.passes = PassSums.empty(size, channels, device)

    @property
    def precision(self) -> Tensor:
        """D: (R, R), a view."""
        self._write_early()
        if not self._is_whole:
            mirror_upper(self._used)
            self._is_whole = True
        return self._used

    @property
    def _used(self) -> Tensor:
        """D: (R, R), a view, of which the upper triangle is known; without what is to be added."""
        return self._d[: self.size, : self.size]

    def _upper(self) -> Tensor:
        """D: (R, R), a view, of which the upper triangle is known, to be written into."""
        self._keep()
        self._is_whole = False
        return self._used

    @property
    def linear(self) -> Tensor:
        """r: (R, C), a view."""
        return self._targets[:, : self.channels]

    @property
    def ones(self) -> Tensor:
        """s: (R, 1), a view."""
        return self._targets[:, self.channels :]

    @property
    def _targets(self) -> Tensor:
        """[r | s]: (R, C + 1), a view."""
        self._write_early()
        return self._r[: self.size]

    def integrated(
        self, variance: float, correlation: float = 0.0, power: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """D and r with the constants of the open passes integrated out (passes.py).

        Args:
            variance: s_b², of the passes' constants.
            correlation: ρ of neighbouring segments of a pass.
            power: to which the samples' likelihood counts.

        Returns:
            D (R, R) and r (R, C); r is a view of the sums where no pass is open.
        """
        precision, linear = self.upper_integrated(variance, correlation, power)
        return mirror_upper(precision), linear

    def upper_integrated(
        self, variance: float, correlation: float = 0.0, power: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """As `integrated`, with the upper triangle of D alone; what is below it is not known."""
        self._write_early()
        passes, sums = self.passes, self._targets
        precision = _upper_of(self._used, power)
        if power != 1.0:
            passes, sums = passes.to_power(power), power * sums
            precision.diagonal().add_(1.0 - power)

        if len(passes) and variance > 0.0:
            precision, sums = passes.integrated(precision, sums, variance, correlation)
        return precision, sums[:, : self.channels]

    def join_segments(self, earlier: float, later: float) -> None:
        """Let two segments of a pass share one constant, as PassSums.join_segments.

        Args:
            earlier: number of the one that goes.
            later: number of the one that stays.
        """
        self.passes = self.passes.join_segments(earlier, later)

    def close(self, numbers: set[float], variance: float, correlation: float = 0.0) -> None:
        """Integrate the constants of some passes out of the sums for good.

        With their prior, not with what other samples say of them: in the sums for good, the level
        that all constants have in common would count with each of them anew.

        Args:
            numbers: of the passes to close.
            variance: s_b², of their constants.
            correlation: ρ of neighbouring segments of a pass; those that stay open are then taken
                for independent of the closed ones.
        """
        if not numbers:
            return

        closing = self.passes.select(numbers).with_elsewhere(None)
        _, sums = closing.integrated(self._upper(), self._targets, variance, correlation)

        self._targets.copy_(sums)
        self.passes = self.passes.select(set(self.passes.numbers) - numbers)

    def add(
        self, whitened: Tensor, beta: Tensor, lam: Tensor, pass_numbers: Tensor | None = None
    ) -> None:
        """Add sites of N samples; negative beta and lam take out what was added.

        Args:
            whitened: features a, (R, N); in a transaction nobody writes into them before it ends.
            beta: precisions β, (N,).
            lam: precision-weighted values λ, (N, C).
            pass_numbers: of their passes (N,), NO_PASS where a sample has none; None: none has.
        """
        weighted = whitened * beta
        self.passes = self.passes.add(pass_numbers, weighted, beta, lam)
        added = whitened, weighted, torch.cat([lam, beta[:, None]], 1)
        if self.marked and self._copy is None:
            self._added = (*self._added, added)
        else:
            self._write(*added)

    def _write(self, whitened: Tensor, weighted: Tensor, targets: Tensor) -> None:
        """Add sites to the sums: features (R, N), the same times β, and [λ | β] (N, C + 1)."""
        used, features = self._used, whitened.mT
        for rows, columns in upper_blocks(used):
            used[rows, columns].addmm_(weighted[rows], features[:, columns])
        self._r[: self.size].addmm_(whitened, targets)
        self._is_whole = False

    def _write_added(self) -> None:
        """Write what the transaction has added so far."""
        added, self._added = self._added, ()
        for sites in added:
            self._write(*sites)

    def _write_early(self) -> None:
        """As `_write_added`, before the transaction ends: D is copied first."""
        if self._added:
            self._keep()

    def subtract(self, whitened: Tensor, beta: Tensor, lam: Tensor) -> None:
        """Take sites out again: as `add`, with the signs of beta and lam reversed.

        Args:
            whitened: features a, (R, N).
            beta: precisions β, (N,).
            lam: precision-weighted values λ, (N, C).
        """
        self.add(whitened, -beta, -lam)

    def scale(self, factor: float) -> None:
        """Forget: multiply D − I, r and s by the factor."""
        self._keep()
        self._used.mul_(factor).diagonal().add_(1.0 - factor)
        self._targets.mul_(factor)
        self.passes = self.passes.scale(factor)

    def pad(self, rows: int) -> None:
        """Add rows for new inducing inputs: the identity in D, zero in r.

        This is exactly the projection of the old sites into the grown basis, P = L'[I 0]ᵀL⁻¹.

        Raises:
            ValueError: the rows exceed the capacity.
        """
        self._write_early()
        size = self.size + rows
        if size > self.capacity:
            raise ValueError(
                f"{self.size} + {rows} rows exceed the capacity {self.capacity} of the sites"
            )
        if size > self._d.shape[0]:
            self._widen(min(self.capacity, max(2 * len(self._d), size)))
        self.size = size
        self.passes = self.passes.pad(rows)

    def _widen(self, room: int) -> None:
        """Go on in buffers with room for so many rows; those of before stay as they are."""
        used, before_d, before_r = self.size, self._d, self._r
        self._d = torch.eye(room, dtype=torch.float64, device=before_d.device)
        self._r = before_r.new_zeros((room, self.channels + 1))
        self._d[:used, :used], self._r[:used] = before_d[:used, :used], before_r[:used]

    def border(
        self,
        new: Tensor,
        old: Tensor,
        beta: Tensor,
        lam: Tensor,
        pass_numbers: Tensor | None = None,
    ) -> None:
        """Add to the new rows what samples that are already in the sums contribute to them.

        Args:
            new: features in the A new rows, for which `pad` has made room, (A, N).
            old: features in the old rows, (R − A, N).
            beta: precisions β, (N,).
            lam: precision-weighted values λ, (N, C).
            pass_numbers: numbers of the samples' passes, (N,) or None.
        """
        split = self.size - new.shape[0]
        weighted, precision = new * beta, self._upper()
        precision[:split, split:].add_((weighted @ old.mT).mT)
        precision[split:, split:].add_(weighted @ new.mT)

        self._r[split : self.size].addmm_(new, torch.cat([lam, beta[:, None]], 1))
        self.passes = self.passes.border(pass_numbers, weighted)

    def project(self, transfer: Tensor, capacity: int) -> "Sites":
        """The sites in another basis.

            D' = I + T(D − I)Tᵀ,   r' = T r

        Args:
            transfer: T, (R', R).
            capacity: most rows of the new sites.

        Returns:
            New sites; these stay as they are.
        """
        new = Sites(len(transfer), self.channels, capacity, transfer.device)
        excess = self.precision - torch.eye(self.size, dtype=torch.float64, device=transfer.device)
        projected = transfer @ excess @ transfer.mT
        new.precision.add_(0.5 * (projected + projected.mT))  # symmetric to the last bit

        new._r[: new.size] = transfer @ self._targets
        new.passes = self.passes.project(transfer)
        return new

    def turn(self, rows: Tensor, columns: Tensor) -> None:
        """Rotate features to Q a and targets to P λ: D ← Q D Qᵀ, r ← Q r Pᵀ.

        Args:
            rows: Q (R, R), orthogonal.
            columns: P (C, C).
        """
        self._keep()
        self.precision.copy_(rows @ self.precision @ rows.mT)
        self._targets.copy_(rows @ self._targets)
        self.linear.copy_(self.linear @ columns.mT)
        self.passes = self.passes.turn(rows, columns)

    def merge(self, other: Sites) -> None:
        """Add another map's sites in the same basis."""
        added = other.precision  # also where that is these sites themselves
        self._upper().add_(added).diagonal().sub_(1.0)  # both have the prior's identity
        self._targets.add_(other._targets)
        self.passes = self.passes.merge(other.passes)

    def shift_centre(self, delta: Tensor) -> None:
        """Move the data's centre by −delta (C,): every target grows by delta, r by s deltaᵀ."""
        self._keep()
        self.linear.addmm_(self.ones, delta[None, :])
        self.passes = self.passes.shift_centre(delta)

    def _keep(self) -> None:
        """Copy the used rows before the first write of a transaction (core/transaction.py)."""
        if self._before is None or self._copy is not None:
            return

        size = self._before["size"]  # rows beyond belong to no site: the identity
        self._copy = _upper_of(self._d[:size, :size]), self._r[:size].clone()
        self._write_added()

    def _put_back(self) -> None:
        """Restore D, r and s as they were at `mark`."""
        if self._copy is None:
            return

        # rows that came since `mark` become the identity again, the others what they were: in the
        # buffers of then, which may have become too small
        size, d, r = (self._before[name] for name in ("size", "_d", "_r"))
        used = min(self.size, len(d))
        d[size:used, :used] = d[:used, size:used] = 0.0
        d.diagonal()[size:used] = 1.0
        r[size:used] = 0.0
        copied, r[:size] = self._copy
        for rows, columns in upper_blocks(copied):
            d[rows, columns] = copied[rows, columns]
        self._before["_is_whole"] = False

    def release(self) -> None:
        """As Revertible.release."""
        super().release()
        self._write_added()
        self._copy = None

    def check(self) -> None:
        """Raise NumericalError where a sum is not finite."""
        # D is a sum of β a aᵀ: where anything in it is not finite, its diagonal is not, either
        sums = [self._d.diagonal()[: self.size], self._r[: self.size]]
        for whitened, weighted, targets in self._added:
            # the trace of what D will grow by: not finite where an entry of its diagonal is not
            flat = whitened.mT.reshape(-1), weighted.mT.reshape(-1)
            sums += [torch.dot(*flat), whitened @ targets]
        require_finite("the sites", *sums)

    def emptied(self) -> Sites:
        """Sites with as many rows and no data."""
        new = Sites(self.size, self.channels, self.capacity, self._d.device)
        new.passes = new.passes.with_elsewhere(self.passes.elsewhere)
        return new

    def clone(self, capacity: int | None = None) -> Sites:
        """An independent copy, with another capacity where it is given."""
        new = Sites(self.size, self.channels, capacity or self.capacity, self._d.device)
        self._write_early()
        new._used.copy_(self._used)
        new._is_whole, new._r[: self.size], new.passes = self._is_whole, self._targets, self.passes
        return new

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return {
            "precision": self.precision.clone(),
            "linear": self._targets.clone(),
            "capacity": self.capacity,
            "passes": self.passes.state_dict(),
        }

    @classmethod
    def from_state_dict(cls, state: dict, device) -> "Sites":
        """The sites of a state.

        Args:
            state: of `state_dict`.
            device: of all tensors.
        """
        linear = state["linear"].to(device)
        new = cls(len(linear), linear.shape[1] - 1, int(state["capacity"]), device)
        new.precision.copy_(state["precision"].to(device))
        new._r[: new.size] = linear
        new.passes = PassSums.from_state_dict(state["passes"], device)
        return new


def _upper_of(matrix: Tensor, factor: float = 1.0) -> Tensor:
    """The upper triangle of a matrix (M, M), times a factor, in a new one; the rest is not set."""
    new = matrix.new_empty(matrix.shape)
    for block in upper_blocks(matrix):
        if factor == 1.0:
            new[block] = matrix[block]
        else:
            torch.mul(matrix[block], factor, out=new[block])
    return new

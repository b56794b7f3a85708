"""The part of the lattice's sums that is of passes: a feature e_p, and so a column, for each.

Columns come with the passes. Sums in which features change, φ' = T φ, follow exactly: B' = B Tᵀ,
F' = T F Tᵀ, Σ φ'λᵀ = T Σ φ λᵀ. T of zeros and ones opens a pass, puts columns in another order, or
lets two passes share one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import to_device
from gp_mapping.core.models.wiski.lattice.features import COVARIATES, FEATURES
from gp_mapping.core.models.wiski.lattice.moments import MOMENTS
from gp_mapping.core.transaction import Revertible

__all__ = ["PassColumns"]


class PassColumns(Revertible):
    """The columns of P passes in the sums of a lattice (sites.py). All operations are exact.

    Attributes:
        numbers: of the passes, in the order of their columns.
        sides: (m, 3 + P + C), B and b.
        features: (3 + P, 3 + P), F.
        linear: (3 + P, C), Σ φ λᵀ.
        aggregates: (K, 6 + 2 + P + C).
    """

    numbers: tuple[float, ...] = ()
    sides: Tensor
    features: Tensor
    linear: Tensor
    aggregates: Tensor

    @property
    def width(self) -> int:
        """Number of features, 3 + P."""
        return FEATURES + len(self.numbers)

    @property
    def aggregate_width(self) -> int:
        """Number of an aggregate's columns before λ."""
        return MOMENTS + COVARIATES + len(self.numbers)

    def covariates(self, heading: Tensor, pass_numbers: Tensor | None) -> Tensor:
        """[ĥ, e_p] of samples; passes that have no column yet get one.

        Args:
            heading: (N, 2) ĥ.
            pass_numbers: (N,), best on the processor, negative where a sample has no pass; None:
                none has.

        Returns:
            (N, 2 + P).
        """
        if pass_numbers is None:
            return torch.nn.functional.pad(heading, (0, len(self.numbers)))
        known = pass_numbers >= 0
        if bool(known.any()):
            # in the order in which they come
            found = dict.fromkeys(pass_numbers[known].tolist())
            self.open_passes(tuple(number for number in found if number not in self.numbers))
        if not self.numbers:
            return heading
        columns = pass_numbers.new_tensor(self.numbers)
        own = to_device(pass_numbers[:, None] == columns, heading.device)
        return torch.cat([heading, own.to(heading)], 1)

    def open_passes(self, fresh: tuple[float, ...]) -> None:
        """Add columns of zeros for passes that have none."""
        if fresh:
            transfer = torch.eye(
                self.width + len(fresh), self.width, dtype=torch.float64, device=self.linear.device
            )
            self._put(self._transferred(transfer), (*self.numbers, *fresh))

    def arranged(self, numbers: tuple[float, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """sides, features, linear and aggregates with columns for the given passes.

        Args:
            numbers: all of these passes, in any order, and others, whose columns are 0.
        """
        if numbers == self.numbers:
            return self.sides, self.features, self.linear, self.aggregates
        transfer = self.linear.new_zeros((FEATURES + len(numbers), self.width))
        transfer[:FEATURES, :FEATURES].fill_diagonal_(1.0)
        for i, number in enumerate(self.numbers):
            transfer[FEATURES + numbers.index(number), FEATURES + i] = 1.0
        return self._transferred(transfer)

    def share_column(self, leaving: float, staying: float, difference: Tensor) -> None:
        """Let two passes have one constant, their mean, and a difference that is known from now on.

        Args:
            leaving: number of the pass whose column goes.
            staying: number of the pass whose column it then shares.
            difference: (C,) constant of the former minus that of the latter. The values of the
                former shrink by half of it, those of the latter grow by the other half.
        """
        i, j = (FEATURES + self.numbers.index(number) for number in (leaving, staying))
        self.sides, self.linear, self.aggregates = (
            part.clone() for part in (self.sides, self.linear, self.aggregates)
        )
        for k, half in ((i, -0.5 * difference[None]), (j, 0.5 * difference[None])):
            self.sides[:, self.width :].addmm_(self.sides[:, k : k + 1], half)
            self.linear.addmm_(self.features[:, k : k + 1], half)
            column = self.aggregates[:, MOMENTS + k - 1 : MOMENTS + k]
            self.aggregates[:, self.aggregate_width :].addmm_(column, half)

        transfer = torch.eye(self.width, dtype=torch.float64, device=self.linear.device)
        transfer[j, i] = 1.0
        kept = [k for k in range(self.width) if k != i]
        numbers = tuple(number for number in self.numbers if number != leaving)
        self._put(self._transferred(transfer[kept]), numbers)

    def renumber(self, by: float) -> None:
        """Add `by` to the number of every pass, so that those of two robots differ."""
        self.numbers = tuple(number + by for number in self.numbers)

    def _transferred(self, transfer: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """sides, features, linear and aggregates of the features T φ, with T (F', 3 + P)."""
        rest = transfer[1:, 1:].mT  # the 1 stays what it is
        split, end = MOMENTS, self.aggregate_width
        sides, aggregates = self.sides, self.aggregates
        return (
            torch.cat([sides[:, : self.width] @ transfer.mT, sides[:, self.width :]], 1),
            transfer @ self.features @ transfer.mT,
            transfer @ self.linear,
            torch.cat(
                [aggregates[:, :split], aggregates[:, split:end] @ rest, aggregates[:, end:]], 1
            ),
        )

    def _put(self, parts: tuple[Tensor, ...], numbers: tuple[float, ...]) -> None:
        """Take new sums, which a transaction can put back, since the old ones stay."""
        self.sides, self.features, self.linear, self.aggregates = parts
        self.numbers = numbers

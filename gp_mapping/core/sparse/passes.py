"""Sums over the samples of each pass, from which its unknown constant is integrated out exactly.

All samples of pass p share one constant s_b b_p, b_p ~ N(0, 1): a kernel term s_b² δ(p, p′). D and
r contain every sample as if there were no such constant. In addition, each pass has three sums over
its samples,

    g_p = Σ β a (R,),   n_p = Σ β,   l_p = Σ λ (C,)

Given u, the constant has variance w_p = s_b²/(1 + s_b² n_p) and mean w_p (l_p − g_pᵀu). Integrated
out,

    D ← D − Σ_p w_p g_p g_pᵀ,    r ← r − Σ_p w_p g_p l_pᵀ

This is the GP with the additional kernel term, by Woodbury's identity, pass by pass. The sums add,
scale and project as D and r do, and s_b is in none of them. A pass is closed by leaving its term in
D and r for good.

Where other maps hold samples of the same passes, their evidence (pass_evidence.py) takes the place
of the prior: b ~ N(μ, Σ). Then, with n as a diagonal matrix N and g as the rows of G,

    W = (I + ΣN)⁻¹Σ,    m = (I + ΣN)⁻¹μ,    E b = W (l − G u) + m given u
    D ← D − Gᵀ W G,     r ← r − Gᵀ (W l + m)

So it is where a pass drifts: it has a constant for each of its segments, with a Σ in which these
are correlated (hyper/bias.py). Beyond the bound neighbouring segments share a constant; where one
is closed nevertheless, it is taken for independent of the open ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import tensor_on, to_device
from gp_mapping.core.hyper.bias import bias_correlation
from gp_mapping.core.linalg import upper_blocks
from gp_mapping.core.sparse.pass_evidence import PassEvidence

__all__ = ["NO_PASS", "PassSums"]

_FEW = 16  # samples whose passes are looked up one by one
NO_PASS = -1.0  # the number of a sample whose pass is not known: it has no constant


@dataclass(frozen=True)
class PassSums:
    """Sums of the open passes. Immutable: every operation returns new ones.

    Attributes:
        numbers: of the P passes, in the order in which they came.
        whitened: g, (P, R).
        precision: n, (P,).
        linear: l, (P, C).
        elsewhere: what samples that are not in the sums say of the constants; None: there are none.
    """

    numbers: tuple[float, ...]
    whitened: Tensor
    precision: Tensor
    linear: Tensor
    elsewhere: PassEvidence | None = None

    @staticmethod
    def empty(rows: int, channels: int, device) -> PassSums:
        """Sums of no pass.

        Args:
            rows: R, features.
            channels: C.
            device: of all tensors.
        """
        kind = {"dtype": torch.float64, "device": device}
        return PassSums(
            (),
            torch.zeros((0, rows), **kind),
            torch.zeros(0, **kind),
            torch.zeros((0, channels), **kind),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def _places(self, pass_numbers: Tensor) -> tuple[PassSums, Tensor | slice, Tensor]:
        """Find the passes of samples, and make room for new ones.

        Args:
            pass_numbers: numbers of the samples' passes, (N,); negative where a sample has none.

        Returns:
            The sums with zeros for new passes; which samples have a pass, (N,) bool or all; and the
            index of the pass of each of these, (n,).
        """
        if pass_numbers.shape[0] <= _FEW:
            return self._places_of_few(pass_numbers)

        # mostly all samples are of passes that are here
        if self.numbers:
            found, where = (pass_numbers[:, None] == pass_numbers.new_tensor(self.numbers)).max(1)
            if bool(found.all()):
                return self, slice(None), where

        known: Tensor | slice = pass_numbers >= 0
        if bool(known.all()):  # mostly; a slice costs less than a mask
            known = slice(None)
        numbers, which = pass_numbers[known], slice(None)
        if numbers.shape[0] > _FEW:
            numbers, which = numbers.unique(return_inverse=True)

        order = {number: i for i, number in enumerate(self.numbers)}
        where = [order.setdefault(number, len(order)) for number in numbers.tolist()]
        return (
            self._widened(tuple(order)),
            known,
            torch.tensor(where, dtype=torch.long, device=pass_numbers.device)[which],
        )

    def _places_of_few(self, pass_numbers: Tensor) -> tuple[PassSums, Tensor | slice, Tensor]:
        """As `_places`, number by number: with a few samples tensor operations cost more."""
        numbers = pass_numbers.tolist()
        order = {number: i for i, number in enumerate(self.numbers)}
        where = [order.setdefault(number, len(order)) for number in numbers if number >= 0]
        known: Tensor | slice = slice(None) if len(where) == len(numbers) else pass_numbers >= 0
        return (
            self._widened(tuple(order)),
            known,
            torch.tensor(where, dtype=torch.long, device=pass_numbers.device),
        )

    def _widened(self, numbers: tuple[float, ...]) -> PassSums:
        """These sums with zeros for the passes at the end of `numbers`."""
        more = len(numbers) - len(self)
        if not more:
            return self

        def longer(column: Tensor) -> Tensor:
            """The column with zeros for the new passes."""
            return torch.cat([column, column.new_zeros((more, *column.shape[1:]))])

        return PassSums(
            numbers,
            longer(self.whitened),
            longer(self.precision),
            longer(self.linear),
            self.elsewhere,
        )

    def with_elsewhere(self, evidence: PassEvidence | None) -> PassSums:
        """These sums, with what other samples say of the constants."""
        return replace(self, elsewhere=evidence)

    def with_pass(self, number: float) -> PassSums:
        """These sums, also of a pass that may have no samples here."""
        return self if number in self.numbers else self._widened((*self.numbers, number))

    def add(
        self, pass_numbers: Tensor | None, weighted: Tensor, beta: Tensor, lam: Tensor
    ) -> PassSums:
        """The sums with more samples; negative beta and lam take samples out.

        Args:
            pass_numbers: numbers of the samples' passes, (N,), best on the processor; None: none
                has one.
            weighted: features times β, βa, (R, N).
            beta: β, (N,).
            lam: λ, (N, C).
        """
        if pass_numbers is None:
            return self
        if pass_numbers.shape[0] == 1:
            return self._with_one(float(pass_numbers), (weighted.mT, beta, lam))
        if not bool((pass_numbers >= 0).any()):
            return self
        new, known, where = self._places(pass_numbers)
        where = to_device(where, weighted.device)
        if torch.is_tensor(known):
            known = to_device(known.nonzero()[:, 0], weighted.device)
        return replace(
            new,
            whitened=new.whitened.index_add(0, where, weighted.mT[known]),
            precision=new.precision.index_add(0, where, beta[known]),
            linear=new.linear.index_add(0, where, lam[known]),
        )

    def _with_one(self, number: float, rows: tuple[Tensor, Tensor, Tensor]) -> PassSums:
        """The sums with one more sample, as samples mostly come.

        Args:
            number: of its pass, negative where it has none.
            rows: its βa (1, R), β (1,) and λ (1, C).
        """
        if number < 0:
            return self
        new = self.with_pass(number)
        columns = new.whitened, new.precision, new.linear
        if len(new) == 1:
            sums = [column + row for column, row in zip(columns, rows)]
        else:
            sums, i = [column.clone() for column in columns], new.numbers.index(number)
            for column, row in zip(sums, rows):
                column[i : i + 1] += row
        return PassSums(new.numbers, *sums, new.elsewhere)

    def border(self, pass_numbers: Tensor | None, weighted: Tensor) -> PassSums:
        """Add to the new rows of g what samples that are already in the sums contribute.

        Args:
            pass_numbers: numbers of the samples' passes, (N,) or None.
            weighted: the samples' features in the new rows, for which `pad` has made room, times β,
                (A, N).
        """
        if pass_numbers is None or not len(self):
            return self

        numbers = tensor_on(weighted.device, self.numbers, torch.float64)
        belongs = (numbers[:, None] == pass_numbers).to(weighted)  # (P, N)
        grown = self.whitened.clone()
        grown[:, -weighted.shape[0] :] += belongs @ weighted.mT
        return replace(self, whitened=grown)

    def pad(self, rows: int) -> PassSums:
        """Sums for a basis that has grown by `rows` features: zeros in the new rows of g."""
        return replace(self, whitened=torch.nn.functional.pad(self.whitened, (0, rows)))

    def project(self, transfer: Tensor) -> PassSums:
        """Sums in another basis, g ← T g, with T = transfer (R', R)."""
        return replace(self, whitened=self.whitened @ transfer.mT)

    def turn(self, rows: Tensor, columns: Tensor) -> PassSums:
        """As Sites.turn: g ← Q g, l ← P l."""
        return replace(
            self,
            whitened=self.whitened @ rows.mT,
            linear=self.linear @ columns.mT,
            elsewhere=None if self.elsewhere is None else self.elsewhere.turn(columns),
        )

    def scale(self, factor: float) -> PassSums:
        """Forget: all sums times the factor."""
        return replace(
            self,
            whitened=self.whitened * factor,
            precision=self.precision * factor,
            linear=self.linear * factor,
            elsewhere=None if self.elsewhere is None else self.elsewhere.scale(factor),
        )

    def to_power(self, power: float) -> PassSums:
        """The likelihood of these samples to a power: their sums times it."""
        return self.scale(power).with_elsewhere(self.elsewhere)

    def shift_centre(self, delta: Tensor) -> PassSums:
        """Add delta (C,) to every target."""
        return replace(self, linear=self.linear + self.precision[:, None] * delta)

    def merge(self, other: PassSums) -> PassSums:
        """Add the sums of passes that both have, and append those of the other's other passes."""
        if not len(other):
            return self
        new, _, where = self._places(
            torch.tensor(other.numbers, dtype=torch.float64, device=other.whitened.device)
        )
        return replace(
            new,
            whitened=new.whitened.index_add(0, where, other.whitened),
            precision=new.precision.index_add(0, where, other.precision),
            linear=new.linear.index_add(0, where, other.linear),
        )

    def renumber(self, by: float) -> PassSums:
        """Add `by` to every number, so that passes of two robots differ."""
        return replace(
            self,
            numbers=tuple(number + by for number in self.numbers),
            elsewhere=None if self.elsewhere is None else self.elsewhere.renumber(by),
        )

    def select(self, numbers: set[float]) -> PassSums:
        """The sums of the passes with these numbers."""
        which = [i for i, number in enumerate(self.numbers) if number in numbers]
        return PassSums(
            tuple(self.numbers[i] for i in which),
            self.whitened[which],
            self.precision[which],
            self.linear[which],
            self.elsewhere,
        )

    def passes_to_close(self, most: int, remembered: Tensor) -> set[float]:
        """Choose passes to close: those with the fewest remembered samples, older ones first.

        The newest pass, which goes on, is never chosen.

        Args:
            most: number of passes that may stay open.
            remembered: pass numbers of the remembered samples, (m,).

        Returns:
            Numbers of the passes to close.
        """
        if len(self) <= most:
            return set()

        held = {number: int((remembered == number).sum()) for number in self.numbers[:-1]}
        return set(sorted(held, key=held.__getitem__)[: len(self) - most])

    def segments_to_join(self, most: int) -> tuple[float, float] | None:
        """Choose neighbouring segments of a pass that had better share a constant, if too many are.

        Those that weigh least together: so all segments grow alike. The newest goes on, and is
        never chosen.

        Args:
            most: number of passes and segments that may stay apart.

        Returns:
            Numbers of the earlier and the later one; None: all may stay, or none are neighbours.
        """
        if len(self) <= most:
            return None
        weight = dict(zip(self.numbers, self.precision.tolist()))
        pairs = [
            (weight[earlier] + weight[later], earlier, later)
            for earlier, later in pairwise(sorted(self.numbers[:-1]))
            if math.floor(earlier) == math.floor(later)
        ]
        return min(pairs)[1:] if pairs else None

    def join_segments(self, earlier: float, later: float) -> PassSums:
        """The sums of two segments as those of one, that has the later one's number.

        Args:
            earlier: number of the one that goes.
            later: number of the one that stays.
        """
        gone, kept = self.numbers.index(earlier), self.numbers.index(later)
        rest = [i for i in range(len(self)) if i != gone]

        def joined(column: Tensor) -> Tensor:
            """The column with the one's row added to the other's."""
            column = column.clone()
            column[kept] += column[gone]
            return column[rest]

        return PassSums(
            tuple(self.numbers[i] for i in rest),
            joined(self.whitened),
            joined(self.precision),
            joined(self.linear),
            self.elsewhere,
        )

    # --- the constants ----------------------------------------------------------------------------
    def has_segments_of(self, number: float) -> bool:
        """Whether a segment of the same pass is here, or its pass."""
        return any(math.floor(number) == math.floor(other) for other in self.numbers)

    def constants(self, variance: float, correlation: float = 0.0) -> tuple[Tensor, Tensor]:
        """The passes' constants b given the field u: covariance W, mean W (l − G u) + m.

        Args:
            variance: s_b².
            correlation: ρ of neighbouring segments of a pass.

        Returns:
            W (P, P) and m (P, C).
        """
        if self.elsewhere is None and correlation <= 0:
            left = variance / (1.0 + variance * self.precision)
            return left.diag(), torch.zeros_like(self.linear)

        if self.elsewhere is None:
            own = self.precision.new_tensor(self.numbers)
            mean = torch.zeros_like(self.linear)
            covariance = variance * bias_correlation(own, own, correlation)
        else:
            mean, covariance = self.elsewhere.prior_of(self.numbers, variance, correlation)
        eye = torch.eye(len(self), dtype=mean.dtype, device=mean.device)
        solved = torch.linalg.solve(
            eye + covariance * self.precision, torch.cat([covariance, mean], 1)
        )
        left = solved[:, : len(self)]
        return 0.5 * (left + left.mT), solved[:, len(self) :]

    def integrated(
        self, precision: Tensor, sums: Tensor, variance: float, correlation: float
    ) -> tuple[Tensor, Tensor]:
        """Integrate the constants of these passes out of sums over sites.

        Args:
            precision: D, (R, R), of which the upper triangle is known; it is changed in place.
            sums: [r | s], (R, C + 1), s being the sum of βa.
            variance: s_b².
            correlation: ρ of neighbouring segments of a pass.

        Returns:
            D, and new [r | s].
        """
        targets = torch.cat([self.linear, self.precision[:, None]], 1)
        if self.elsewhere is None and correlation <= 0:  # W is diagonal
            weighted = self.whitened * (variance / (1.0 + variance * self.precision))[:, None]
            taken = weighted.mT @ targets
        else:
            left, mean = self.constants(variance, correlation)
            weighted = left @ self.whitened
            taken = weighted.mT @ targets
            taken[:, :-1] += self.whitened.mT @ mean
        for rows, columns in upper_blocks(precision):
            of_rows, of_columns = self.whitened.mT[rows], weighted[:, columns]
            precision[rows, columns].addmm_(of_rows, of_columns, alpha=-1.0)
        return precision, sums - taken

    def state_dict(self) -> dict:
        """Everything that from_state_dict needs; tensors are not copied, they never change."""
        return {
            "numbers": torch.tensor(self.numbers, dtype=torch.float64),
            "white": self.whitened,
            "precision": self.precision,
            "linear": self.linear,
        } | ({} if self.elsewhere is None else {"elsewhere": self.elsewhere.state_dict()})

    @staticmethod
    def from_state_dict(state: dict, device) -> PassSums:
        """The sums of a state, on a device."""
        whitened, precision, linear = (
            state[name].to(device) for name in ("white", "precision", "linear")
        )
        elsewhere = state.get("elsewhere")
        return PassSums(
            tuple(state["numbers"].tolist()),
            whitened,
            precision,
            linear,
            None if elsewhere is None else PassEvidence.from_state_dict(elsewhere, device),
        )

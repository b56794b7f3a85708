"""What each pass said, summed: from it the unknown constant of every pass is integrated out, exactly.

All samples of pass p share one constant s_b b_p, b_p ~ N(0, 1): a kernel term s_b² δ(p, p′). Beside D and r, in which
every sample stands as if there were no such constant, each pass has three sums

    g_p = Σ β a (R,),   n_p = Σ β,   l_p = Σ λ (C,)          over its samples

and, u given, the constant has variance w_p = s_b²/(1 + s_b² n_p) and mean w_p (l_p − g_pᵀu). Integrated out,

    D ← D − Σ_p w_p g_p g_pᵀ,    r ← r − Σ_p w_p g_p l_pᵀ

which is the GP with the extra kernel term: Woodbury's identity, pass by pass. The sums add, scale and project as D and
r do, and s_b is in none of them. A pass is closed by leaving its term in D and r for good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["NO_PASS", "PassSums"]

_FEW = 16  # samples whose passes are looked up one by one
NO_PASS = -1.0  # the number of a sample whose pass is not known: it has no constant


@dataclass(frozen=True)
class PassSums:
    """Sums of open passes; never changed, so that whoever keeps one keeps what was.

    numbers: of the passes, in the order in which they came.  white: g (P, R).  precision: n (P,).  linear: l (P, C).
    """

    numbers: tuple[float, ...]
    whitened: Tensor
    precision: Tensor
    linear: Tensor

    @staticmethod
    def none(rows: int, channels: int, device) -> PassSums:
        """Of no pass, for R = `rows`."""
        kind = {"dtype": torch.float64, "device": device}
        return PassSums(
            (),
            torch.zeros((0, rows), **kind),
            torch.zeros(0, **kind),
            torch.zeros((0, channels), **kind),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def _places(self, of: Tensor) -> tuple[PassSums, Tensor | slice, Tensor]:
        """These with room for the passes of samples (N,); which samples have a pass (N,), and where it stands (n,)."""
        if self.numbers:  # each of a pass that is there, as it mostly is
            there, where = (of[:, None] == of.new_tensor(self.numbers)).max(1)
            if bool(there.all()):
                return self, slice(None), where
        known: Tensor | slice = of >= 0
        if bool(known.all()):  # as it mostly is
            known = slice(None)
        there, which = of[known], slice(None)
        if there.shape[0] > _FEW:
            there, which = there.unique(return_inverse=True)
        order = {number: i for i, number in enumerate(self.numbers)}
        where = [order.setdefault(number, len(order)) for number in there.tolist()]
        return (
            self._widened(tuple(order)),
            known,
            torch.tensor(where, dtype=torch.long, device=of.device)[which],
        )

    def _widened(self, numbers: tuple[float, ...]) -> PassSums:
        more = len(numbers) - len(self)
        if not more:
            return self

        def longer(column: Tensor) -> Tensor:
            return torch.cat([column, column.new_zeros((more, *column.shape[1:]))])

        return PassSums(numbers, longer(self.whitened), longer(self.precision), longer(self.linear))

    def add(self, of: Tensor | None, whitened: Tensor, beta: Tensor, lam: Tensor) -> PassSums:
        """With samples more: their passes (N,), a (R, N), β (N,), λ (N, C). Negative β and λ take them out."""
        if of is None or not bool((of >= 0).any()):
            return self
        new, known, where = self._places(of)
        return replace(
            new,
            whitened=new.whitened.index_add(0, where, (whitened * beta).mT[known]),
            precision=new.precision.index_add(0, where, beta[known]),
            linear=new.linear.index_add(0, where, lam[known]),
        )

    def border(self, of: Tensor | None, rows: Tensor, beta: Tensor) -> PassSums:
        """The basis grew, and `pad` has made room: rows of a (A, N) for samples of these passes that are in the sums."""
        if of is None or not len(self):
            return self
        new, known, where = self._places(of)
        grown = new.whitened.clone()
        grown[:, -len(rows) :].index_add_(0, where, (rows * beta).mT[known])
        return replace(new, whitened=grown)

    def pad(self, rows: int) -> PassSums:
        """The basis grew by `rows`."""
        return replace(self, whitened=torch.nn.functional.pad(self.whitened, (0, rows)))

    def project(self, transfer: Tensor) -> PassSums:
        """In another basis, g ← T g. transfer: T (R', R)."""
        return replace(self, whitened=self.whitened @ transfer.mT)

    def turn(self, rows: Tensor, columns: Tensor) -> PassSums:
        """As Sites.turn: g ← Q g, l ← P l."""
        return replace(self, whitened=self.whitened @ rows.mT, linear=self.linear @ columns.mT)

    def scale(self, factor: float) -> PassSums:
        return replace(
            self,
            whitened=self.whitened * factor,
            precision=self.precision * factor,
            linear=self.linear * factor,
        )

    def shift_centre(self, delta: Tensor) -> PassSums:
        """Every target grows by delta (C,)."""
        return replace(self, linear=self.linear + self.precision[:, None] * delta)

    def merge(self, other: PassSums) -> PassSums:
        """Sums of the same passes add; others come beside them."""
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
        """Every number grows: no pass of one robot is one of another's."""
        return replace(self, numbers=tuple(number + by for number in self.numbers))

    def only(self, numbers: set[float]) -> PassSums:
        """Those of these passes alone."""
        which = [i for i, number in enumerate(self.numbers) if number in numbers]
        return PassSums(
            tuple(self.numbers[i] for i in which),
            self.whitened[which],
            self.precision[which],
            self.linear[which],
        )

    def surplus(self, most: int, remembered: Tensor) -> set[float]:
        """Which to close so that `most` are left: those of which the fewest samples are remembered, the oldest first.

        Never the newest, which goes on.  remembered: the passes of remembered samples (m,).
        """
        if len(self) <= most:
            return set()
        held = {number: int((remembered == number).sum()) for number in self.numbers[:-1]}
        return set(sorted(held, key=held.__getitem__)[: len(self) - most])

    # --- what they say --------------------------------------------------------------------------------------------
    def left(self, variance: float) -> Tensor:
        """w (P,): variance of each pass's constant where the field is known; `variance`: s_b²."""
        return variance / (1.0 + variance * self.precision)

    def integrated(self, precision: Tensor, sums: Tensor, variance: float) -> tuple[Tensor, Tensor]:
        """D (R, R) and [r | s] (R, C + 1) without the constants of these passes; s: the sum of βa."""
        weighted = self.whitened * self.left(variance)[:, None]
        targets = torch.cat([self.linear, self.precision[:, None]], 1)
        return torch.addmm(
            precision, self.whitened.mT, weighted, alpha=-1.0
        ), sums - weighted.mT @ targets

    def state_dict(self) -> dict:
        """Everything that from_state_dict needs; its own tensors, which never change."""
        return {
            "numbers": torch.tensor(self.numbers, dtype=torch.float64),
            "white": self.whitened,
            "precision": self.precision,
            "linear": self.linear,
        }

    @staticmethod
    def from_state_dict(state: dict, device) -> PassSums:
        whitened, precision, linear = (
            state[name].to(device) for name in ("white", "precision", "linear")
        )
        return PassSums(tuple(state["numbers"].tolist()), whitened, precision, linear)

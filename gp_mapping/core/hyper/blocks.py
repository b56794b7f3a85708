"""What blocks of samples that lie together say of θ: −log evidence of each as a quadratic about where it was asked.

    −log p(y | v) ≈ Σ_b [ g_bᵀ(v − v_b) + ½ (v − v_b)ᵀ A_b (v − v_b) ]

g_b, A_b: gradient and average information of block b at v_b. One block at a time is asked anew, the one of which most
is out of date, and v goes to the minimum of the sum and the prior (incremental Newton method: Rodomanov and Kropotov,
A superlinearly-convergent proximal Newton-type method for the optimization of finite sums, 2016). Its resting point is
a maximum of the blocks' posterior: there is no scatter to be averaged away, all samples count, new ones at once, and
where nothing changes nothing is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

__all__ = ["Blocks"]

_FAR = 1e300  # m: the edge of the plane; a saved map holds finite numbers alone
_FRESH = 0.05  # share of a block's samples that may be new before that counts as much as a nat


@dataclass(frozen=True)
class Blocks:
    """K boxes that part the plane, and what the samples in each said; a change makes a new one.

    low, high: (K, D) m, a box holds low ≤ x < high.
    count: (K,) samples when it was asked, 0 before.  newest: (K,) the latest arrival number of all samples then.
    at: v_b (K, P).  gradient: g_b (K, P).  information: A_b (K, P, P).
    """

    low: Tensor
    high: Tensor
    count: Tensor
    newest: Tensor
    at: Tensor
    gradient: Tensor
    information: Tensor

    @staticmethod
    def empty(dimension: int, parameters: int) -> Blocks:
        """One box, all of the plane."""
        edge = torch.full((1, dimension), _FAR, dtype=torch.float64)
        nothing = torch.zeros(1, parameters, dtype=torch.float64)
        return Blocks(
            -edge,
            edge,
            torch.zeros(1, dtype=torch.int64),
            nothing[:, 0],
            nothing,
            nothing,
            nothing[:, :, None] * nothing[:, None],
        )

    def of(self, x: Tensor) -> Tensor:
        """In which box each of x (N, D) lies: (N,)."""
        if len(self.low) == 1:  # all of the plane
            return torch.zeros(len(x), dtype=torch.int64, device=x.device)
        inside = (x[:, None] >= self.low) & (x[:, None] < self.high)
        return inside.all(2).to(torch.int8).argmax(1)

    def held(self, x: Tensor) -> Tensor:
        """How many of x (N, D) lie in each: (K,)."""
        return torch.bincount(self.of(x), minlength=len(self.low))

    def split(self, x: Tensor, most: int) -> Blocks:
        """Boxes of at most `most` of x (N, D), one that has more cut at its median across its longer side."""
        new = self
        while True:
            held = new.held(x)
            full = int(held.argmax())
            if held[full] <= most:
                return new
            here = x[new.of(x) == full]
            axis = int((here.amax(0) - here.amin(0)).argmax())
            values = here[:, axis].sort().values
            cut = float(values[len(values) // 2])
            if cut <= float(values[0]):
                return new  # so many at one place
            new = new._cut(full, axis, cut)

    def _cut(self, which: int, axis: int, cut: float) -> Blocks:
        """Two halves of a box, neither of which has been asked."""
        twice = torch.cat([torch.arange(len(self.low)), torch.tensor([which])])
        new = Blocks(*(getattr(self, f.name)[twice] for f in fields(self)))
        new.low[-1, axis], new.high[which, axis] = cut, cut
        for name in ("count", "gradient", "information"):
            getattr(new, name)[[which, -1]] = 0
        return new

    def news(self, x: Tensor, order: Tensor, vector: Tensor) -> Tensor:
        """How much of each is out of date: (K,).

        ½ ΔᵀA_bΔ nats that it may be wrong by at v = vector (P,), Δ = v − v_b, and samples that came or went, of x
        (N, D) with arrival numbers order (N,); of many samples, those that are more than a small share.
        """
        of, away = self.of(x), vector - self.at
        nats = 0.5 * torch.einsum("kp,kpq,kq->k", away, self.information, away)
        held = torch.bincount(of, minlength=len(self.low))
        came = torch.bincount(of[order > self.newest[of]], minlength=len(self.low))
        came = torch.where(self.count == 0, held, came)
        gone = (self.count + came - held).clamp_min(0)
        return nats + (came + gone) / (_FRESH * self.count).clamp_min(1.0)

    def silent(self, x: Tensor) -> bool:
        """Whether there are samples in a box that has not been asked: halves differ, each to its own side."""
        return bool(((self.count == 0) & (self.held(x) > 0)).any())

    def recorded(
        self,
        which: int,
        count: int,
        newest: float,
        vector: Tensor,
        gradient: Tensor,
        information: Tensor,
    ) -> Blocks:
        """With what box `which` says now."""
        new = replace(self, **{f.name: getattr(self, f.name).clone() for f in fields(self)})
        new.count[which], new.newest[which], new.at[which] = count, newest, vector
        new.gradient[which], new.information[which] = gradient, information
        return new

    def slope(self, vector: Tensor) -> Tensor:
        """Gradient of the sum at v = vector: (P,)."""
        return (self.gradient + torch.einsum("kpq,kq->kp", self.information, vector - self.at)).sum(
            0
        )

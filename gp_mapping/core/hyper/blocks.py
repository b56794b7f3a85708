"""What blocks of nearby samples say of θ: −log evidence of each, as a quadratic.

    −log p(y | v) ≈ Σ_b [ g_bᵀ(v − v_b) + ½ (v − v_b)ᵀ A_b (v − v_b) ]

g_b and A_b are gradient and average information of block b at v_b. One block at a time is evaluated
anew, the one that is most out of date, and v moves to the minimum of the sum and the prior
(incremental Newton method: Rodomanov and Kropotov, A superlinearly-convergent proximal Newton-type
method for the optimization of finite sums, 2016). Its fixed point is a maximum of the blocks'
posterior: there is no scatter to be averaged away, all samples count, new ones at once, and nothing
is computed where nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

__all__ = ["OFFSET", "Blocks", "positive", "spacing"]

OFFSET = 4  # where v has the time offset (Theta.vector)
VARIANCES = slice(1, 3)  # log s², log σ²
_FAR = 1e300  # m: the edge of the plane; a saved map holds finite numbers alone
_LARGE = 100.0  # of Δ: what is stale by more is not more stale
_SOME = 100  # samples whose nearest neighbours tell the spacing
_FRESH = 0.1  # fraction of a block's samples: as many new ones count as much as a nat


@dataclass(frozen=True)
class Blocks:
    """K boxes that partition the plane, and what the samples in each said.

    A box holds the places low ≤ x < high. The object is never changed; a change makes a new one.

    Attributes:
        low: (K, D) m.
        high: (K, D) m.
        count: samples in the box when it was evaluated (K,), 0 before.
        newest: the latest arrival number of all samples at that time (K,).
        at: v_b (K, P).
        gradient: g_b (K, P).
        information: A_b (K, P, P).
        against: by how many nats the block's evidence is less at v_b with the time offset of the
            stamps than at v_b itself (K,).
    """

    low: Tensor
    high: Tensor
    count: Tensor
    newest: Tensor
    at: Tensor
    gradient: Tensor
    information: Tensor
    against: Tensor

    @staticmethod
    def empty(dimension: int, parameters: int) -> Blocks:
        """One box, the whole plane, which has said nothing.

        Args:
            dimension: D, of places.
            parameters: P, of θ.
        """
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
            nothing[:, 0],
        )

    @staticmethod
    def restored(state: dict[str, Tensor], stamped: float) -> Blocks:
        """The boxes of a saved map.

        Args:
            state: attributes by name, also of a version that did not compute `against`: it is that
                of the quadratics.
            stamped: time offset of the stamps, s.
        """
        if "against" in state:
            return Blocks(**state)
        older = Blocks(**state, against=torch.zeros(len(state["low"]), dtype=torch.float64))
        stamps = torch.zeros_like(older.at[0])
        stamps[OFFSET] = stamped
        return replace(older, against=older._rise(OFFSET, stamps))

    def box_of(self, x: Tensor) -> Tensor:
        """The box in which each of x (N, D) lies: (N,)."""
        if self.low.shape[0] == 1:  # all of the plane
            return torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        inside = (x[:, None] >= self.low) & (x[:, None] < self.high)
        return inside.all(2).to(torch.int8).argmax(1)

    def count_in(self, x: Tensor) -> Tensor:
        """How many of x (N, D) lie in each box: (K,)."""
        return torch.bincount(self.box_of(x), minlength=len(self.low))

    def split(self, x: Tensor, most: int) -> Blocks:
        """These boxes, the fuller ones cut at their median across the longer side.

        A box with too many samples at one place stays.

        Args:
            x: (N, D) samples.
            most: in a box.
        """
        new = self
        while True:
            counts = new.count_in(x)
            fullest = int(counts.argmax())
            if counts[fullest] <= most:
                return new

            # cut the fullest box at the median of its longer side
            here = x[new.box_of(x) == fullest]
            axis = int((here.amax(0) - here.amin(0)).argmax())
            values = here[:, axis].sort().values
            cut = float(values[len(values) // 2])
            if cut <= float(values[0]):
                return new  # too many samples at one place to be separated
            new = new._cut(fullest, axis, cut)

    def _cut(self, which: int, axis: int, cut: float) -> Blocks:
        """Cut a box into two halves, neither of which has been evaluated."""
        copied = torch.cat([torch.arange(len(self.low)), torch.tensor([which])])

        # the copy becomes the upper half
        new = Blocks(*(getattr(self, f.name)[copied] for f in fields(self)))
        new.low[-1, axis], new.high[which, axis] = cut, cut
        for name in ("count", "gradient", "information", "against"):
            getattr(new, name)[[which, -1]] = 0
        return new

    def members(self, which: int, x: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Indices of the samples in a box, and of those beside it that its evidence is given.

        These are the nearest in boxes of lower number: so the product over all boxes is a density
        of all samples (Vecchia 1988).

        Args:
            which: number of the box.
            x: places (N, D).
            most: at most so many of the others.
        """
        box = self.box_of(x)
        inside, others = (box == which).nonzero()[:, 0], (box < which).nonzero()[:, 0]
        if len(inside) and len(others) > most:
            away = torch.cdist(x[others], x[inside]).amin(1)
            others = others[away.topk(most, largest=False).indices]
        return inside, others

    def waiting(self, x: Tensor, order: Tensor) -> Tensor:
        """Which of x (N, D) came after their box was evaluated: (N,).

        Args:
            x: places (N, D).
            order: arrival numbers (N,).
        """
        box = self.box_of(x)
        return (order > self.newest[box]) | (self.count[box] == 0)

    def staleness(self, x: Tensor, order: Tensor, vector: Tensor) -> Tensor:
        """How much each box is out of date: (K,), 1 is a nat or _FRESH of its samples.

        It is ½ ΔᵀA_bΔ nats, by which the box may be wrong at v with Δ = v − v_b, plus the samples
        that came or went. Δ of a log variance that has grown counts as more (`stretched`). A_b of
        a box that could never be evaluated is the others' mean: it is tried again where they would
        have to be.

        Args:
            x: places (N, D).
            order: arrival numbers (N,).
            vector: v (P,).
        """
        box, away = self.box_of(x), stretched(vector - self.at)
        information, evaluated = self.information, self.evaluated
        if bool(evaluated.any()):
            mean = information[evaluated].mean(0)
            information = torch.where(
                (evaluated | (self.count == 0))[:, None, None], information, mean
            )
        nats = 0.5 * ((information @ away[:, :, None])[:, :, 0] * away).sum(1)

        counts = torch.bincount(box, minlength=len(self.low))
        # arrivals after the box was evaluated; those that are missing have gone
        came = torch.bincount(box[order > self.newest[box]], minlength=len(self.low))
        came = torch.where(self.count == 0, counts, came)
        gone = (self.count + came - counts).clamp_min(0)

        return nats + (came + gone) / (_FRESH * self.count).clamp_min(1.0)

    @property
    def evaluated(self) -> Tensor:
        """Which boxes have said anything: (K,)."""
        return self.information.flatten(1).any(1)

    def is_incomplete(self, x: Tensor) -> bool:
        """Whether there are samples in a box that was not asked, or no box has said anything.

        After a cut neither half may speak for the other, so v has to wait.
        """
        asked = bool((self.count > 0)[self.count_in(x) > 0].all())
        return not asked or not bool(self.evaluated.any())

    def with_evaluation(
        self,
        which: int,
        count: int,
        newest: float,
        vector: Tensor,
        gradient: Tensor,
        information: Tensor,
        against: float = 0.0,
    ) -> Blocks:
        """With what box `which` says now.

        Args:
            which: number of the box.
            count: samples in it.
            newest: the latest arrival number of all samples.
            vector: v (P,).
            gradient: g (P,) at v.
            information: A (P, P) at v.
            against: nats that the time offset of the stamps loses against v.
        """
        new = replace(self, **{f.name: getattr(self, f.name).clone() for f in fields(self)})
        new.count[which], new.newest[which], new.at[which] = count, newest, vector
        new.gradient[which], new.information[which] = gradient, information
        new.against[which] = against
        return new

    def with_skipped(self, which: int, count: int, newest: float, vector: Tensor) -> Blocks:
        """With box `which`, which cannot be evaluated at v, saying what it said before.

        Its quadratic is the same one, about v; it is zero where the box has said nothing yet. So
        the box is not out of date until v has moved, or samples have come.

        Args:
            which: number of the box.
            count: samples in it.
            newest: the latest arrival number of all samples.
            vector: v (P,).
        """
        information = self.information[which]
        gradient = self.gradient[which] + information @ (vector - self.at[which])
        against = float(self.against[which] - self._rise(OFFSET, vector)[which])
        return self.with_evaluation(which, count, newest, vector, gradient, information, against)

    def loss_of_stamps(self, vector: Tensor) -> float:
        """Nats by which all evidence is less with the time offset of the stamps than at v (P,)."""
        return float((self.against - self._rise(OFFSET, vector)).sum())

    def _rise(self, entry: int, vector: Tensor) -> Tensor:
        """By how much −log evidence of each block grows from v_b to v along one entry: (K,)."""
        away = vector[entry] - self.at[:, entry]
        return (self.gradient[:, entry] + 0.5 * away * self.information[:, entry, entry]) * away

    def slope(self, vector: Tensor) -> Tensor:
        """Gradient of the sum at v = vector (P,): (P,)."""
        away = vector - self.at
        return (self.gradient + (self.information @ away[:, :, None])[:, :, 0]).sum(0)


def stretched(away: Tensor) -> Tensor:
    """Δ with log variances that have grown as far as the box may be wrong about them: (K, P).

    Where observations have the variances λ + σ², and σ² becomes σ² e^Δ, log evidence is expected to
    lose

        ½ Σ [log(1 + f (e^Δ − 1)) − f (e^Δ − 1)/(1 + f (e^Δ − 1))] ≤ ½ A (e^Δ − 1)²

    with f = σ²/(λ + σ²) and A = ½ Σ f², the information about log σ². So Δ' = e^Δ − 1 is returned.
    A noise that is too small to show has hardly any A, and ½ A Δ² next to nothing of one that is
    twenty times as large. Of a variance that falls ½ A Δ² is the larger one.

    Args:
        away: Δ (K, P).
    """
    away = away.clone()
    variances = away[:, VARIANCES]
    grown = variances.clamp(0.0, _LARGE).expm1()
    away[:, VARIANCES] = torch.where(variances > 0.0, grown, variances)
    return away


def positive(information: Tensor) -> Tensor:
    """A symmetric matrix (P, P) without its negative eigenvalues."""
    values, vectors = torch.linalg.eigh(information)
    return (vectors * values.clamp_min(0.0)) @ vectors.mT


def spacing(x: Tensor) -> float:
    """Usual distance (m) from one of x (N, D) to the nearest other one.

    Not from one row to the next: a memory that is full keeps samples in any order.
    """
    some = torch.linspace(0, len(x) - 1, min(_SOME, len(x))).long()
    away = torch.cdist(x[some], x)
    away[torch.arange(len(some)), some] = torch.inf
    return float(away.amin(1).median())

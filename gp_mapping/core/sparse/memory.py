"""A bounded memory of past samples, seeded: which of them stay is one of the RULES of remembering.py.

Weighted sampling without replacement from a stream (Efraimidis and Spirakis 2006): sample i gets the key
log(u_i)/w_i, and the largest keys stay. The newest samples are protected, since hyper-parameters are learned there.
Each sample keeps the feature vector with which it stands in the sites, so that it can be taken out exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.sparse.remembering import RULES, Offered
from gp_mapping.core.transaction import Revertible, require_finite

__all__ = ["COLUMNS", "OFFERED", "UNRANKED", "Memory"]

COLUMNS = (
    "x",
    "velocity",
    "heading",
    "y",
    "lam",
    "beta",
    "noise",
    "extra",
    "weight",
    "pass_number",
    "draw",
    "key",
    "order",
)
UNRANKED = 1.0  # a key above every other: its leverage has not been asked for yet
_NOTHING = 1e-100  # weight of a sample that is forgotten; its noise, in proportion to 1/weight, stays a number
OFFERED = 32  # samples of one batch that a full memory looks at


class Memory(Revertible):
    """At most `capacity` samples: x, velocity (m, D), heading (m, 2), y (m, C) standardised; features as in the sites.

    beta (m,), lam (m, C): the site, as it was added.  noise (m,): the sample's own variance, or 0 where the model's
    noise applies.  extra (m,): variance beside it.  weight (m,): what forgetting left.  order (m,): arrival number.
    pass_number (m,): NO_PASS where the sample has none.  rule: by which samples stay, a name of RULES.
    """

    rule = "uniform"
    COLUMNS = COLUMNS  # a subclass may keep more

    def __init__(
        self, capacity: int, dimension: int, channels: int, rows: int, device, protect: int = 250
    ):
        self.capacity, self.protect = capacity, min(protect, capacity // 4)
        self.size, self.arrivals = 0, 0

        def new(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self._store = {name: new(capacity) for name in COLUMNS[5:]}
        self._store |= {name: new(capacity, dimension) for name in ("x", "velocity")}
        self._store |= {name: new(capacity, channels) for name in ("y", "lam")}
        self._store["heading"] = new(capacity, 2)
        # rows are written when they come into use: until then they take no memory
        self._whitened = torch.empty((capacity, rows), dtype=torch.float64, device=device)
        self._kept: dict[str, Tensor] = {}  # whole columns as they were at `mark`
        self._before_keys: Tensor | None = None  # keys before some of them were ranked
        self._kept_rows: list[
            tuple
        ] = []  # which rows were written since, their columns and features before
        self._extended: int | None = None  # the first row of features that was added since

    def __len__(self) -> int:
        return self.size

    def __getattr__(self, name: str) -> Tensor:
        if name in type(self).COLUMNS:
            return self._store[name][: self.size]
        raise AttributeError(name)

    def whitened(self, rows: int) -> Tensor:
        """Features as they stand in the sites: (rows, m)."""
        return self._whitened[: self.size, :rows].mT

    def set_whitened(self, whitened: Tensor) -> None:
        """Replace all features. white: (R, m)."""
        self.keep_columns(features=True)
        self._whitened[: self.size, : len(whitened)] = whitened.mT
        self._whitened[: self.size, len(whitened) :] = 0.0

    def extend_whitened(self, start: int, rows: Tensor) -> None:
        """The basis grew: rows (A, m) from row `start` on."""
        if self._before is not None:
            self._extended = start if self._extended is None else min(start, self._extended)
        self._whitened[: self.size, start : start + len(rows)] = rows.mT

    def insert(
        self,
        values: dict[str, Tensor],
        whitened: Tensor,
        leverage_of,
        generator: torch.Generator,
        leaving=None,
    ) -> int:
        """Offer samples. values: the columns but draw, key and order; white (R, N).

        leverage_of: features (R, K) → v = a D⁻¹ a (K,). Asked only when somebody has to go by it, and of a full
        memory's batch only for OFFERED samples drawn at random, so that the memory costs an update little.
        Returns how many samples, old or new, fell out of the memory.
        """
        n, fell = whitened.shape[1], 0
        draw = (
            torch.rand(n, dtype=torch.float64, generator=generator)
            .clamp_min(1e-300)
            .log()
            .to(whitened.device)
        )
        order = torch.arange(
            self.arrivals, self.arrivals + n, dtype=torch.float64, device=whitened.device
        )
        of = {"pass_number": torch.full_like(draw, NO_PASS)}
        fresh = of | values | {"draw": draw, "key": torch.full_like(draw, UNRANKED), "order": order}
        if self.size + n > self.capacity and n > OFFERED and self.size:
            chosen = draw.topk(OFFERED).indices.sort().values  # uniform draws: the choice is random
            fresh, whitened, fell = (
                {k: v[chosen] for k, v in fresh.items()},
                whitened[:, chosen],
                n - OFFERED,
            )
            fresh["draw"] = (
                torch.rand(OFFERED, dtype=torch.float64, generator=generator)
                .log()
                .to(whitened.device)
            )
        return fell + self.offer(fresh, whitened, leverage_of, n, leaving)

    def offer(
        self, fresh: dict[str, Tensor], whitened: Tensor, leverage_of, arrivals: int, leaving=None
    ) -> int:
        """Insert samples with all their columns; how many, old or new, fell out. The newest always enter.

        leaving: called with the indices of those that are about to fall out, while they are still here.
        """
        n = whitened.shape[1]
        self.arrivals += arrivals
        if not self.capacity:
            return n
        if n > self.capacity:  # a batch larger than the memory: its own best
            everybody = torch.arange(n, device=whitened.device)
            key = RULES[self.rule](
                Offered(
                    everybody,
                    fresh["draw"],
                    lambda: fresh["beta"] * leverage_of(whitened),
                    fresh["x"],
                    fresh["order"],
                )
            )
            best = key.topk(self.capacity).indices.sort().values
            fresh, whitened = {k: v[best] for k, v in fresh.items()}, whitened[:, best]
        kept = whitened.shape[1]
        overflow = max(0, self.size + kept - self.capacity)
        slots: slice | Tensor = slice(self.size, self.size + kept)
        if overflow:
            unranked = (self.key == UNRANKED).nonzero()[:, 0]
            if len(unranked):
                if self._before is not None and self._before_keys is None:
                    self._before_keys = self.key.clone()
                self._store["key"][unranked] = self.ranked(unranked, len(whitened), leverage_of)
            key = self.key.masked_fill(
                self.order >= self.arrivals - arrivals - self.protect, 0.0
            )  # above every key
            weakest = key.topk(overflow, largest=False).indices.sort().values
            if leaving is not None:
                leaving(weakest)
            behind = torch.arange(self.size, self.capacity, device=whitened.device)
            slots = torch.cat([weakest, behind])
            self._keep(
                slots
            )  # what is written behind the others alone is nothing that could be put back
        require_finite(
            "the variance of a remembered sample", fresh["extra"]
        )  # the sites show all else
        self.size += kept - overflow
        for name, values in fresh.items():
            self._store[name][slots] = values
        self._whitened[slots, : len(whitened)] = whitened.mT
        self._whitened[slots, len(whitened) :] = 0.0
        return n - kept + overflow

    def ranked(self, which: Tensor, rows: int, leverage_of) -> Tensor:
        """Keys < 0 of samples `which` (m,), given their features in the first rows: those with the least go."""

        def leverage() -> Tensor:
            return self.beta[which] * leverage_of(self._whitened[which, :rows].mT)

        return RULES[self.rule](Offered(which, self.draw[which], leverage, self.x, self.order))

    def follow(self, rule: str) -> Memory:
        """From now on samples stay by that rule, which those that are here have to meet anew."""
        if rule != self.rule:
            self.rule = rule
            self.key.fill_(UNRANKED)
        return self

    def scale(self, factor: float) -> None:
        """Forgetting reaches the memory's share too."""
        for name in ("weight", "beta", "lam"):
            getattr(self, name).mul_(factor)
        self.weight.clamp_min_(_NOTHING)

    def keep(self, which: Tensor) -> None:
        """Drop the samples where `which` (m,) is False."""
        self.keep_columns(features=True)
        n = int(which.sum())
        for store in (*self._store.values(), self._whitened):
            store[:n] = store[: self.size][which]
        self.size = n

    # --- all or nothing (core/transaction.py) ---------------------------------------------------------------------
    def _keep(self, slots: Tensor) -> None:
        """Before rows are written: a copy of them."""
        if self._before is None or "white" in self._kept:
            return
        columns = {name: column.index_select(0, slots) for name, column in self._store.items()}
        self._kept_rows = [
            *self._kept_rows,
            (slots, columns, self._whitened.index_select(0, slots)),
        ]

    def keep_columns(self, features: bool = False) -> None:
        """Before anybody writes into the columns: a copy of them. features: of those, too."""
        if self._before is None:
            return
        size = self._before["size"]
        used = max(self.size, size)  # nothing behind was written since
        if "key" not in self._kept:
            self._kept = {
                name: self._restored(column[:used].clone(), name)[:size]
                for name, column in self._store.items()
            }
        if features and "white" not in self._kept:
            self._kept["white"] = self._restored(self._whitened[:used].clone(), "white")[:size]

    def _restored(self, column: Tensor, name: str) -> Tensor:
        """A column without what was written since `mark`."""
        for slots, rows, whitened in reversed(self._kept_rows):
            column[slots] = whitened if name == "white" else rows[name]
        if name == "white" and self._extended is not None:
            column[:, self._extended :] = 0.0
        return column

    def _put_back(self) -> None:
        for name, column in {**self._store, "white": self._whitened}.items():
            if name in self._kept:
                column[: self._before["size"]] = self._kept[name]
            else:
                self._restored(column, name)
        if self._before_keys is not None:
            self._store["key"][: len(self._before_keys)] = self._before_keys

    def release(self) -> None:
        super().release()
        self._kept, self._kept_rows, self._extended, self._before_keys = {}, [], None, None

    def copy(self, rows: int | None = None, **sizes: int) -> Memory:
        """An independent copy; with room for features of `rows` rows, or other sizes, where they are given."""
        wider = {} if rows is None else {"rows": rows}
        return type(self).from_state_dict(self.state_dict() | wider | sizes, self._whitened.device)

    @property
    def rows(self) -> int:
        """Rows of features that there is room for."""
        return self._whitened.shape[1]

    def values(self) -> dict[str, Tensor]:
        """Every column, copied: what `offer` takes."""
        return {name: getattr(self, name).clone() for name in type(self).COLUMNS}

    def state_dict(self) -> dict:
        return self.values() | {
            "white": self._whitened[: self.size].clone(),
            "capacity": self.capacity,
            "rows": self.rows,
            "protect": self.protect,
            "arrivals": self.arrivals,
            "rule": self.rule,
        }

    @classmethod
    def _sized(cls, state: dict, device) -> Memory:
        """An empty memory for that state."""
        return cls(
            int(state["capacity"]),
            state["x"].shape[1],
            state["y"].shape[1],
            int(state["rows"]),
            device,
        )

    @classmethod
    def from_state_dict(cls, state: dict, device) -> Memory:
        new: Memory = cls._sized(state, device)
        new.size, new.arrivals, new.protect = (
            len(state["x"]),
            int(state["arrivals"]),
            int(state["protect"]),
        )
        new.rule = str(state["rule"])
        for name in cls.COLUMNS:
            value = state[name].to(device)
            new._store[name][(slice(new.size), *map(slice, value.shape[1:]))] = (
                value  # it may have become wider
            )
        new._whitened[: new.size] = 0.0
        new._whitened[: new.size, : state["white"].shape[1]] = state["white"].to(device)
        return new

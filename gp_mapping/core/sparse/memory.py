"""A bounded memory of past samples; one of the RULES of memory_rules.py decides which of them stay.

Weighted sampling without replacement from a stream (Efraimidis and Spirakis 2006): sample i gets
the key log(u_i)/w_i, and the largest keys stay. Draws come from a seeded generator. The newest
samples are protected, since hyper-parameters are learned there. Each sample keeps the whitened
features that it has in the sites, so that it can be taken out exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import to_device
from gp_mapping.core.sparse.memory_rules import RULES, Candidates
from gp_mapping.core.sparse.passes import NO_PASS
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
    "extent",
    "draw",
    "key",
    "order",
)
UNRANKED = 1.0  # a key above every other: it has not been computed yet
# least weight of a forgotten sample; its noise, in proportion to 1/weight, stays finite
_NOTHING = 1e-100
OFFERED = 32  # samples of one batch that a full memory considers


def _side_by_side(columns: list[Tensor]) -> Tensor:
    """Columns (N,) or (N, W) as one table; a single one stays as it is."""
    if len(columns) == 1:
        return columns[0]
    if all(column.ndim == 1 for column in columns):
        return torch.stack(columns, 1)
    return torch.cat([c if c.ndim == 2 else c[:, None] for c in columns], 1)


def _draws(n: int, generator: torch.Generator) -> Tensor:
    """log(u) of n uniform u, (n,); a u of 0 has a logarithm, too."""
    return torch.rand(n, dtype=torch.float64, generator=generator).clamp_min(1e-300).log()


class Memory(Revertible):
    """At most `capacity` standardised samples with their sites and whitened features.

    The columns are attributes; each is a view of the m samples in use.

    Args:
        capacity: samples at most.
        dimension: D, of places.
        channels: C, of values.
        rows: R, of features that there is room for.
        device: of all tensors.
        protect: number of newest samples that never leave; a quarter of the capacity at most.

    Attributes:
        x: places (m, D).
        velocity: of the robot (m, D).
        heading: ĥ (m, 2).
        y: values (m, C).
        beta: β of the site as it was added (m,).
        lam: λ of the site as it was added (m, C).
        noise: the sample's own noise variance, or 0 where the model's noise applies (m,).
        extra: variance in addition to it (m,).
        weight: of the sample in the likelihood, scaled down by forgetting (m,).
        pass_number: NO_PASS where the sample has none (m,).
        extent: of the places that the sample averages, along its velocity (m,), m.
        draw: log(u), u uniform (m,).
        key: of the rule, UNRANKED until it is needed (m,).
        order: arrival number (m,).
        rule: name of the rule by which samples stay, of RULES.
        protect: number of newest samples that never leave.
    """

    rule = "uniform"
    COLUMNS = COLUMNS  # a subclass may keep more

    def __init__(
        self, capacity: int, dimension: int, channels: int, rows: int, device, protect: int = 250
    ):
        self.capacity, self.protect = capacity, min(protect, capacity // 4)
        self.size, self.arrivals = 0, 0

        def new(*shape: int) -> Tensor:
            """Zeros of that shape."""
            return torch.zeros(shape, dtype=torch.float64, device=device)

        # Columns are views of two tables, so that a batch is written by two copies, not by one for
        # each column. Numbers lie one behind the other in their column, vectors in their row.
        widths = (dimension, dimension, 2, channels, channels)
        vectors, numbers = new(capacity, sum(widths)), new(len(COLUMNS) - 5, capacity)
        self._tables = [(COLUMNS[:5], vectors), (COLUMNS[5:], numbers.mT)]
        self._store = dict(zip(COLUMNS, (*vectors.split(widths, 1), *numbers)))
        # the columns in use that were asked for, each with the size at which it was
        self._views: dict[str, tuple[int, Tensor]] = {}
        # empty, not zeros: rows that were never written take no memory
        self._whitened = torch.empty((capacity, rows), dtype=torch.float64, device=device)

        # for `revert` (core/transaction.py): whole tables as they were at `mark`, by number,
        self._kept: dict[int | str, Tensor] = {}
        # keys before some of them were computed,
        self._before_keys: Tensor | None = None
        # rows that were written since, with their tables and features before,
        self._kept_rows: list[tuple] = []
        # and the first row of features that was added since
        self._extended: int | None = None

    def __len__(self) -> int:
        return self.size

    def __getattr__(self, name: str) -> Tensor:
        if name not in type(self).COLUMNS:
            raise AttributeError(name)
        seen = self._views.get(name)
        if seen is None or seen[0] != self.size:
            seen = self._views[name] = self.size, self._store[name][: self.size]
        return seen[1]

    def whitened(self, rows: int) -> Tensor:
        """Whitened features as they are in the sites, (rows, m)."""
        return self._whitened[: self.size, :rows].mT

    def set_whitened(self, whitened: Tensor) -> None:
        """Replace the features of all samples by `whitened`, (R, m)."""
        self.keep_columns(features=True)
        self._whitened[: self.size, : len(whitened)] = whitened.mT
        self._whitened[: self.size, len(whitened) :] = 0.0

    def extend_whitened(self, start: int, rows: Tensor) -> None:
        """Add features for a basis that has grown.

        Args:
            start: row of the first of them.
            rows: (A, m), of the remembered samples.
        """
        if self._before is not None:
            self._extended = start if self._extended is None else min(start, self._extended)
        self._whitened[: self.size, start : start + rows.shape[0]] = rows.mT

    def offer_batch(
        self,
        values: dict[str, Tensor],
        whitened: Tensor,
        leverage_of,
        generator: torch.Generator,
        leaving=None,
    ) -> int:
        """Offer N new samples, of which a full memory considers OFFERED at random.

        So the memory costs an update little.

        Args:
            values: the columns except draw, key and order.
            whitened: features (R, N).
            leverage_of: function of features (R, K) that returns v = aᵀD⁻¹a, (K,). It is called
                only where a sample has to leave by it.
            generator: source of the random draws.
            leaving: called with the indices of samples that are about to be dropped.

        Returns:
            How many samples, old or new, fell out of the memory.
        """
        n, skipped = whitened.shape[1], 0
        draw = to_device(_draws(n, generator), whitened.device)
        order = torch.arange(
            self.arrivals, self.arrivals + n, dtype=torch.float64, device=whitened.device
        )
        fresh = values | {"draw": draw, "key": torch.full_like(draw, UNRANKED), "order": order}
        for name, value in (("pass_number", NO_PASS), ("extent", 0.0)):
            if name not in values:
                fresh[name] = torch.full_like(draw, value)

        if self.size + n > self.capacity and n > OFFERED and self.size:
            chosen = draw.topk(OFFERED).indices.sort().values  # uniform draws: the choice is random
            fresh, whitened, skipped = (
                {k: v[chosen] for k, v in fresh.items()},
                whitened[:, chosen],
                n - OFFERED,
            )
            # new draws: those that were chosen by them are larger than others
            fresh["draw"] = to_device(_draws(OFFERED, generator), whitened.device)

        return skipped + self.insert_all(fresh, whitened, leverage_of, n, leaving)

    def insert_all(
        self, fresh: dict[str, Tensor], whitened: Tensor, leverage_of, arrivals: int, leaving=None
    ) -> int:
        """Insert samples with all their columns; they always enter, and the least keys leave.

        Of more samples than the capacity only the best by the rule enter.

        Args:
            fresh: every column of N samples.
            whitened: features (R, N).
            leverage_of: as in `offer_batch`.
            arrivals: by how much the arrival number grows.
            leaving: called with the indices of samples that are about to be dropped, before they
                are overwritten.

        Returns:
            How many samples, old or new, fell out of the memory.
        """
        n = whitened.shape[1]
        self.arrivals += arrivals
        if not self.capacity:
            return n

        if n > self.capacity:
            all_samples = torch.arange(n, device=whitened.device)
            key = RULES[self.rule](
                Candidates(
                    all_samples,
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
            # keys are computed only now: their leverage needs a solve
            unranked = (self.key == UNRANKED).nonzero()[:, 0]
            if len(unranked):
                if self._before is not None and self._before_keys is None:
                    self._before_keys = self.key.clone()
                self._store["key"][unranked] = self.draw_keys(unranked, len(whitened), leverage_of)

            # keys are < 0, so 0 protects the newest
            key = self.key.masked_fill(self.order >= self.arrivals - arrivals - self.protect, 0.0)
            weakest = key.topk(overflow, largest=False).indices.sort().values
            if leaving is not None:
                leaving(weakest)

            behind = torch.arange(self.size, self.capacity, device=whitened.device)
            slots = torch.cat([weakest, behind])
            # without an overflow all rows are written behind the others, and none has to be
            # restored
            self._keep(slots)

        # the sites check all other columns
        require_finite("the variance of a remembered sample", fresh["extra"])

        self.size += kept - overflow
        for names, table in self._tables:
            table[slots] = _side_by_side([fresh[name] for name in names])
        used = whitened.shape[0]
        self._whitened[slots, :used] = whitened.mT
        if used < self.rows:
            self._whitened[slots, used:] = 0.0
        return n - kept + overflow

    def draw_keys(self, which: Tensor, rows: int, leverage_of) -> Tensor:
        """Keys by the rule, all < 0; samples with the least keys leave.

        Args:
            which: indices of the samples, (m,).
            rows: number of rows of features that are in use.
            leverage_of: as in `offer_batch`.
        """

        def leverage() -> Tensor:
            """β v of these samples, v = aᵀD⁻¹a."""
            return self.beta[which] * leverage_of(self._whitened[which, :rows].mT)

        return RULES[self.rule](Candidates(which, self.draw[which], leverage, self.x, self.order))

    def set_rule(self, rule: str) -> Memory:
        """Change the rule; samples that are here get new keys when they are needed."""
        if rule != self.rule:
            self.rule = rule
            self.key.fill_(UNRANKED)
        return self

    def scale(self, factor: float) -> None:
        """Forget: multiply the samples' weights and sites by the factor."""
        for name in ("weight", "beta", "lam"):
            getattr(self, name).mul_(factor)
        self.weight.clamp_min_(_NOTHING)

    def keep(self, which: Tensor) -> None:
        """Drop the samples where `which` (m,) is False."""
        self.keep_columns(features=True)
        n = int(which.sum())
        for store in (*(table for _, table in self._tables), self._whitened):
            store[:n] = store[: self.size][which]
        self.size = n

    def join_segments(self, earlier: float, later: float) -> None:
        """Give the samples of one segment of a pass the number of another one.

        Args:
            earlier: number of the one that goes.
            later: number of the one that stays.
        """
        self.keep_columns()
        numbers = self._store["pass_number"][: self.size]
        numbers[numbers == earlier] = later

    # --- all or nothing (core/transaction.py) -----------------------------------------------------
    def _keep(self, slots: Tensor) -> None:
        """Copy rows of a transaction before they are written."""
        if self._before is None or "whitened" in self._kept:
            return

        rows = {k: table.index_select(0, slots) for k, (_, table) in enumerate(self._tables)}
        rows["whitened"] = self._whitened.index_select(0, slots)
        self._kept_rows = [*self._kept_rows, (slots, rows)]

    def keep_columns(self, features: bool = False) -> None:
        """Copy whole columns of a transaction before they are written.

        Args:
            features: copy the whitened features, too.
        """
        if self._before is None:
            return

        size = self._before["size"]
        used = max(self.size, size)  # nothing behind was written since
        if 0 not in self._kept:
            self._kept = {
                k: self._restored(table[:used].clone(), k)[:size]
                for k, (_, table) in enumerate(self._tables)
            }
        if features and "whitened" not in self._kept:
            features_then = self._restored(self._whitened[:used].clone(), "whitened")
            self._kept["whitened"] = features_then[:size]

    def _restored(self, table: Tensor, which: int | str) -> Tensor:
        """Undo, in place and in reverse order, what was written into a table since `mark`."""
        for slots, rows in reversed(self._kept_rows):
            table[slots] = rows[which]
        if which == "whitened" and self._extended is not None:
            table[:, self._extended :] = 0.0
        return table

    def _put_back(self) -> None:
        """Restore the tables as they were at `mark`."""
        tables = dict(enumerate(table for _, table in self._tables))
        for which, table in {**tables, "whitened": self._whitened}.items():
            if which in self._kept:
                table[: self._before["size"]] = self._kept[which]
            else:
                self._restored(table, which)
        if self._before_keys is not None:
            self._store["key"][: len(self._before_keys)] = self._before_keys

    def release(self) -> None:
        """As Revertible.release."""
        super().release()
        self._kept, self._kept_rows, self._extended, self._before_keys = {}, [], None, None

    def copy(self, rows: int | None = None, **sizes: int) -> Memory:
        """An independent copy.

        Args:
            rows: rows of features that it has room for, at least those in use; None: as many as
                here.
            sizes: other entries of the state to replace, such as `capacity`.
        """
        state = self.state_dict() | sizes
        if rows is not None:
            state |= {"rows": rows, "white": state["white"][:, :rows]}
        return type(self).from_state_dict(state, self._whitened.device)

    @property
    def rows(self) -> int:
        """Number of rows of features that there is room for."""
        return self._whitened.shape[1]

    def copy_columns(self) -> dict[str, Tensor]:
        """Copies of all columns, as `insert_all` takes them."""
        return {name: getattr(self, name).clone() for name in type(self).COLUMNS}

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return self.copy_columns() | {
            "white": self._whitened[: self.size].clone(),
            "capacity": self.capacity,
            "rows": self.rows,
            "protect": self.protect,
            "arrivals": self.arrivals,
            "rule": self.rule,
        }

    @classmethod
    def _sized(cls, state: dict, device) -> Memory:
        """An empty memory of the sizes in a state."""
        return cls(
            int(state["capacity"]),
            state["x"].shape[1],
            state["y"].shape[1],
            int(state["rows"]),
            device,
        )

    @classmethod
    def from_state_dict(cls, state: dict, device) -> Memory:
        """The memory of a state; its buffers may be wider than the state's columns.

        Args:
            state: of `state_dict`.
            device: of all tensors.
        """
        new: Memory = cls._sized(state, device)
        new.size, new.arrivals, new.protect = (
            len(state["x"]),
            int(state["arrivals"]),
            int(state["protect"]),
        )
        new.rule = str(state["rule"])

        for name in cls.COLUMNS:
            if name == "extent" and name not in state:
                continue  # an older map does not say it: 0
            value = state[name].to(device)
            new._store[name][(slice(new.size), *map(slice, value.shape[1:]))] = value

        new._whitened[: new.size] = 0.0
        new._whitened[: new.size, : state["white"].shape[1]] = state["white"].to(device)
        return new

"""The bounded memory of a map whose updates take a fraction of a millisecond: one table."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import to_device
from gp_mapping.core.sparse.memory import COLUMNS, OFFERED, UNRANKED, Memory

__all__ = ["PackedMemory"]


class PackedMemory(Memory):
    """Memory without features, whose columns are views of one table: few steps a batch.

    Samples are drawn by β alone: every leverage is taken for 1.

    Args:
        capacity: the most samples.
        dimension: D.
        channels: C.
        rows: of the features; they are not kept here.
        device: of the table.
        protect: so many newest samples are not replaced.
    """

    def draw_keys(self, which: Tensor, rows: int, leverage_of) -> Tensor:
        """As Memory.draw_keys: log(u)/β, without features and leverages."""
        return self.draw[which] / self.beta[which].clamp_min(1e-12)

    def __init__(
        self, capacity: int, dimension: int, channels: int, rows: int, device, protect: int = 250
    ):
        super().__init__(capacity, dimension, channels, rows, device, protect)
        wide = {"x": dimension, "velocity": dimension, "heading": 2, "y": channels, "lam": channels}
        widths = [wide.get(name, 1) for name in COLUMNS]
        self._table = torch.zeros((capacity, sum(widths)), dtype=torch.float64, device=device)
        self._beta = sum(widths[: COLUMNS.index("beta")])
        self._tables = [(COLUMNS, self._table)]
        views = zip(COLUMNS, self._table.split(widths, 1))
        self._store = {name: view if name in wide else view[:, 0] for name, view in views}

    def offer_batch(
        self, values: dict[str, Tensor], whitened: Tensor, leverage_of, generator: torch.Generator
    ) -> int:
        """Insert as Memory.offer_batch does: keys log(u)/β at once, and one write to the table.

        Args:
            values: columns of the samples.
            whitened: their features, which are not kept.
            leverage_of: for the general way.
            generator: of the random keys.

        Returns:
            How many samples, old or new, are not in the memory afterwards.
        """
        n = len(values["beta"])

        room = self.capacity - self.size
        # rare, or few samples: the general way
        if n > self.capacity or room < n <= OFFERED:
            self.keep_columns()
            fell = super().offer_batch(values, whitened, leverage_of, generator)
            self._rank()
            return fell

        columns = COLUMNS[: COLUMNS.index("draw")]
        rows = torch.cat(
            [c if c.ndim == 2 else c[:, None] for c in (values[name] for name in columns)], 1
        )
        device = rows.device
        order = torch.arange(self.arrivals, self.arrivals + n, dtype=torch.float64, device=device)
        self.arrivals += n

        entering = n
        if n > room:
            # a full memory takes a few samples of a large batch, at random
            entering = max(OFFERED, room)
            chosen = to_device(torch.randperm(n, generator=generator)[:entering], device)
            rows, order = rows.index_select(0, chosen), order.index_select(0, chosen)

        uniform = torch.rand(entering, dtype=torch.float64, generator=generator)
        draw = to_device(uniform.clamp_min(1e-300).log(), device)
        key = (
            draw / values["beta"].clamp_min(1e-12)
            if entering == n
            else draw / rows[:, self._beta].clamp_min(1e-12)
        )

        rows = torch.cat([rows, torch.stack([draw, key, order], 1)], 1)

        overflow = max(0, entering - room)
        if not overflow:
            # these rows lie beyond what a transaction would restore
            self._table[self.size : self.size + entering] = rows
        else:
            # protected samples get a key above every other: keys are negative
            held = self.key.masked_fill(self.order >= self.arrivals - n - self.protect, 0.0)
            slots = held.topk(overflow, largest=False).indices
            if overflow < entering:
                slots = torch.cat([slots, torch.arange(self.size, self.capacity, device=device)])
            self._keep(slots)
            self._table[slots] = rows

        self.size += entering - overflow
        return n - entering + overflow

    def _keep(self, slots: Tensor) -> None:
        """Record, within a transaction, the rows at `slots` before they are overwritten."""
        if self._before is not None:
            self._kept_rows = [*self._kept_rows, (slots, self._table.index_select(0, slots))]

    def keep_columns(self, features: bool = False) -> None:
        """Record, within a transaction, the whole table, which is one copy of all columns.

        Args:
            features: unused: there are none.
        """
        if self._before is not None:
            everything = torch.arange(self.size, device=self._table.device)
            self._kept_rows = [*self._kept_rows, (everything, self._table[: self.size].clone())]

    def _put_back(self) -> None:
        """Restore the rows that were written since `mark`."""
        for slots, rows in reversed(self._kept_rows):
            self._table[slots] = rows

    def _rank(self) -> None:
        """Set the keys of samples that were inserted the general way."""
        key = self.key
        key.copy_(torch.where(key == UNRANKED, self.draw / self.beta.clamp_min(1e-12), key))

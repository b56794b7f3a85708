"""The bounded memory of a map whose updates take a fraction of a millisecond: one table, few operations a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core import memory
from gp_mapping.core.memory import Memory

__all__ = ["PackedMemory"]

_COLUMNS = memory._COLUMNS
_OFFERED, _UNRANKED = memory._OFFERED, memory._UNRANKED


class PackedMemory(Memory):
    """Memory without features, its columns views of one table; drawn by β alone (every leverage is taken for 1)."""

    def __init__(self, capacity: int, dimension: int, channels: int, rows: int, device, protect: int = 250):
        super().__init__(capacity, dimension, channels, rows, device, protect)
        wide = {"x": dimension, "velocity": dimension, "heading": 2, "y": channels, "lam": channels}
        widths = [wide.get(name, 1) for name in _COLUMNS]
        self._table = torch.zeros((capacity, sum(widths)), dtype=torch.float64, device=device)
        views = zip(_COLUMNS, self._table.split(widths, 1))
        self._store = {name: view if name in wide else view[:, 0] for name, view in views}

    def insert(self, values: dict[str, Tensor], white: Tensor, leverage_of, generator: torch.Generator) -> int:
        """As Memory.insert. A full memory takes its few of a large batch in one go."""
        n = len(values["beta"])
        if self.size + n <= self.capacity or not _OFFERED < n <= self.capacity or not self.size:
            return super().insert(values, white, leverage_of, generator)
        draw = torch.rand(n, dtype=torch.float64, generator=generator)
        chosen = draw.topk(_OFFERED).indices.sort().values
        again = torch.rand(_OFFERED, dtype=torch.float64, generator=generator).clamp_min(1e-300).log()
        device = values["beta"].device
        chosen, again = chosen.to(device), again.to(device)
        columns = [values[name] for name in _COLUMNS[:9]]
        rows = torch.cat([c if c.ndim == 2 else c[:, None] for c in columns], 1).index_select(0, chosen)
        late = torch.stack([again, torch.full_like(again, _UNRANKED), (chosen + self.arrivals).double()], 1)
        self.arrivals += n
        key = self.key
        torch.where(key == _UNRANKED, self.draw / self.beta.clamp_min(1e-12), key, out=key)
        overflow = max(0, self.size + _OFFERED - self.capacity)
        held = key.masked_fill(self.order >= self.arrivals - n - self.protect, 0.0)  # above every key
        slots = torch.cat([held.topk(overflow, largest=False).indices,
                           torch.arange(self.size, self.size + _OFFERED - overflow, device=device)])
        self._table[slots] = torch.cat([rows, late], 1)
        self.size += _OFFERED - overflow
        return n - _OFFERED + overflow

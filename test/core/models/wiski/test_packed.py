"""The memory of a lattice map: bounded, each loss counted, and its columns belong together."""

import pytest
import torch

from gp_mapping.core.models.wiski.lattice.packed import PackedMemory
from gp_mapping.core.sparse.memory import COLUMNS


@pytest.mark.parametrize(
    "capacity, batch", [(7, 1), (50, 10), (50, 40), (50, 200), (90, 50), (400, 100), (1000, 10)]
)
def test_bounded_and_every_loss_counted(capacity, batch):
    memory = PackedMemory(capacity, 2, 1, 0, "cpu", protect=5)
    generator, fell = torch.Generator().manual_seed(0), 0
    for start in range(0, 400, batch):
        number = torch.arange(start, start + batch, dtype=torch.float64)
        wide = {"x": 2, "velocity": 2, "heading": 2, "y": 1, "lam": 1}
        values = {
            name: number[:, None].repeat(1, wide[name]) if name in wide else number
            for name in COLUMNS[: COLUMNS.index("draw")]
        } | {"beta": torch.ones(batch).double()}
        fell += memory.offer_batch(
            values, torch.ones(1, batch).double(), lambda white: white[0], generator
        )
    assert len(memory) == min(capacity, 400) and memory.arrivals == 400
    assert fell == 400 - len(memory) and len(set(memory.order.tolist())) == len(memory)
    assert torch.equal(memory.order, memory.y[:, 0]) and torch.equal(memory.x[:, 1], memory.order)

"""The memory of a lattice map: bounded, each loss counted, and its columns belong together."""

import numpy as np
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


def values_of(first: int, beta) -> dict[str, torch.Tensor]:
    """Samples whose number is in every column, of precisions beta (n,)."""
    number = first + torch.arange(len(beta), dtype=torch.float64)
    wide = {"x": 2, "velocity": 2, "heading": 2, "y": 1, "lam": 1}
    return {
        name: number[:, None].repeat(1, wide[name]) if name in wide else number
        for name in COLUMNS[: COLUMNS.index("draw")]
    } | {"beta": torch.as_tensor(beta, dtype=torch.float64)}


@pytest.mark.parametrize("batch", [1, 5, 40])
def test_the_newest_samples_stay_however_little_they_say(batch):
    """Their precision is a millionth of that of those before, which would all be kept in their place."""
    memory, generator = (
        PackedMemory(200, 2, 1, 0, "cpu", protect=45),
        torch.Generator().manual_seed(0),
    )
    for start in range(0, 560, batch):
        before = set(memory.order.tolist())
        beta = torch.full((batch,), 1e-6 if start >= 400 else 1.0, dtype=torch.float64)
        memory.offer_batch(values_of(start, beta), torch.ones(1, batch).double(), None, generator)
        assert {number for number in before if number >= start - 45} <= set(memory.order.tolist())
    # of those that say little hardly any other is left (32 enter with a batch of 40, and 32 leave)
    assert sum(400 <= number < 560 - batch - 45 for number in memory.order.tolist()) <= 1
    assert sum(number < 400 for number in memory.order.tolist()) >= 200 - 45 - batch


def test_samples_are_kept_as_often_as_their_precision_says():
    """Those with the largest log(u)/β, of 300 with two precisions (Efraimidis and Spirakis 2006)."""
    kept, generator = torch.zeros(2), torch.Generator().manual_seed(1)
    for batch in (3, 20, 4, 30):
        memory = PackedMemory(60, 2, 1, 0, "cpu", protect=0)
        for start in range(0, 300, batch):
            beta = 1.0 + 3.0 * (torch.arange(start, start + batch) % 2).double()
            memory.offer_batch(
                values_of(start, beta), torch.ones(1, batch).double(), None, generator
            )
        kept += torch.bincount(memory.order.long() % 2, minlength=2)
    rng = np.random.default_rng(0)
    keys = np.log(rng.uniform(size=(2000, 300))) / np.tile([1.0, 4.0], 150)
    louder = (np.argsort(-keys, axis=1)[:, :60] % 2).mean()
    # 240 draws: three of their standard deviations
    assert float(kept[1] / kept.sum()) == pytest.approx(
        louder, abs=3 * (louder * (1 - louder) / 240) ** 0.5
    )

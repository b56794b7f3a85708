"""A transaction that fails leaves a memory as it was, to the bit, whatever was written into it."""

import pytest
import torch
from test_memory import filled, leverage_by, values, white_of

from gp_mapping.core.transaction import transaction


class Refused(Exception):
    pass


def offered(memory, start=400):
    fresh = values(30, start)
    memory.offer_batch(
        fresh, white_of(fresh["y"][:, 0]), leverage_by(None), torch.Generator().manual_seed(3)
    )


@pytest.mark.parametrize("capacity", [50, 410, 1000])
@pytest.mark.parametrize(
    "write",
    [
        offered,
        lambda memory: [offered(memory, start) for start in (400, 430, 460)],
        lambda memory: memory.join_segments(390.0, 399.0),
        lambda memory: (offered(memory), memory.join_segments(410.0, 420.0)),
        lambda memory: (memory.keep_columns(True), memory.scale(0.5)),
    ],
    ids=["a batch", "batches", "segments", "both", "scale"],
)
def test_all_is_put_back(capacity, write):
    memory, _ = filled(capacity, protect=5)
    before = memory.state_dict()
    with pytest.raises(Refused), transaction(memory):
        write(memory)
        told = memory.state_dict()
        raise Refused
    after = memory.state_dict()
    changed = [name for name in before if not same(before[name], told[name])]
    assert changed and all(same(before[name], after[name]) for name in before)
    offered(memory)  # and goes on
    assert len(memory) == min(capacity, 430)


def same(a, b):
    return torch.equal(a, b) if torch.is_tensor(a) else a == b

"""The memory: bounded, seeded, in proportion to the leverage, the newest protected."""

import copy

import pytest
import torch

from gp_mapping.core.sparse.memory import Memory


def values(n, start=0):
    """Every column that a memory keeps beside key and order, filled with the arrival number; weights of one."""
    index = torch.arange(start, start + n, dtype=torch.float64)
    columns = Memory(1, 2, 1, 1, "cpu")._store
    out = {name: index if store.ndim == 1 else index[:, None].repeat(1, store.shape[1])
           for name, store in columns.items() if name not in ("draw", "key", "order")}
    return out | {name: torch.ones(n, dtype=torch.float64) for name in ("beta", "weight")}


def white_of(index):
    return torch.stack([index, -index, index**2])


def leverage_by(leverage):
    """Features (R, K) → leverage (K,): the first feature is the arrival number."""
    return lambda white: torch.ones_like(white[0]) if leverage is None else leverage[white[0].long()]


def filled(capacity=50, n=400, batch=10, seed=0, leverage=None, protect=250):
    memory, generator = Memory(capacity, 2, 1, 5, "cpu", protect=protect), torch.Generator().manual_seed(seed)
    fell = 0
    for i in range(0, n, batch):
        fresh = values(batch, i)
        fell += memory.insert(fresh, white_of(fresh["y"][:, 0]), leverage_by(leverage), generator)
    return memory, fell


@pytest.mark.parametrize("capacity, batch", [(0, 10), (1, 10), (7, 1), (50, 10), (50, 200), (400, 10), (1000, 10)])
def test_bounded_and_every_loss_counted(capacity, batch):
    memory, fell = filled(capacity, batch=batch)
    assert len(memory) == min(capacity, 400) and fell == 400 - len(memory) and memory.arrivals == 400
    assert len(set(memory.order.tolist())) == len(memory), "a sample twice"
    assert torch.equal(memory.order, memory.y[:, 0]), "columns no longer belong together"
    assert torch.equal(memory.white(3), white_of(memory.y[:, 0])) and not memory.white(5)[3:].any()


def test_seeded():
    a, b, c = (filled(seed=s)[0].order for s in (0, 0, 1))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_the_newest_are_protected():
    memory, _ = filled(100, n=1000, protect=250)
    assert memory.protect == 25, "at most a quarter of the memory"
    assert set(range(975, 1000)) <= set(memory.order.int().tolist())
    assert memory.order.min() < 500, "all old ones are gone"


def test_drawn_in_proportion_to_the_leverage():
    """Old samples of three times the leverage are kept about three times as often (few of many are kept)."""
    heavy = torch.arange(2000) % 2 == 0
    leverage = torch.where(heavy, 0.3, 0.1).double()
    kept = torch.zeros(2, dtype=torch.float64)
    for seed in range(30):
        memory, _ = filled(60, n=2000, seed=seed, leverage=leverage, batch=50, protect=0)
        old = memory.order[memory.order < 1900].long()
        kept += torch.stack([heavy[old].sum(), (~heavy[old]).sum()]).double()
    assert 2.2 < float(kept[0] / kept[1]) < 3.9, kept


def test_every_age_has_its_share():
    """Uniform leverage: a reservoir, not a window (the last batch is always in)."""
    counts = torch.zeros(4, dtype=torch.float64)
    for seed in range(30):
        order = filled(40, n=800, seed=seed, protect=0)[0].order
        counts += torch.histc(order[order < 790], 4, 0, 790)
    share = counts / counts.sum()
    assert float(share.min()) > 0.18 and float(share.max()) < 0.33, share


def test_zero_leverage_is_no_error():
    memory, _ = filled(20, leverage=torch.zeros(400, dtype=torch.float64))
    assert len(memory) == 20 and bool(torch.isfinite(memory.key).all())


def test_features_grow_and_are_replaced():
    memory, _ = filled(20)
    rows = torch.full((1, 20), 7.0, dtype=torch.float64)
    memory.extend_white(3, rows)
    assert torch.equal(memory.white(4)[3:], rows)
    memory.set_white(rows)
    assert torch.equal(memory.white(5)[:1], rows) and not memory.white(5)[1:].any()


def test_scale():
    memory, _ = filled(20)
    lam = memory.lam.clone()
    memory.scale(0.5)
    assert torch.equal(memory.lam, 0.5 * lam)
    assert bool((memory.weight == 0.5).all()) and bool((memory.beta == 0.5).all())
    assert torch.equal(memory.y[:, 0], memory.order), "the data themselves do not fade"


def test_state_is_a_copy_and_complete():
    memory, _ = filled(20, n=300)
    state = memory.state_dict()
    kept = copy.deepcopy(state)
    other = Memory.from_state_dict(state, "cpu")
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    leverage = torch.rand(400, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    for m, generator in zip((memory, other), generators):
        fresh = values(100, 300)
        m.insert(fresh, white_of(fresh["y"][:, 0]), leverage_by(leverage), generator)
    assert torch.equal(memory.order, other.order) and torch.equal(memory.white(5), other.white(5))
    assert other.arrivals == 400 and other.protect == memory.protect
    for name, value in state.items():
        assert torch.equal(value, kept[name]) if torch.is_tensor(value) else value == kept[name], name


def test_an_unknown_column_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = filled(5)[0].colour

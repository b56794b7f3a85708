"""The memory: bounded, seeded, each rule by what stays, the newest protected."""

import copy

import pytest
import torch

from gp_mapping.core.registry import create_map
from gp_mapping.core.sparse.memory import UNRANKED, Memory
from gp_mapping.core.types import Samples


def values(n, start=0):
    """Every column that a memory keeps beside key and order, filled with the arrival number; weights of one."""
    index = torch.arange(start, start + n, dtype=torch.float64)
    columns = Memory(1, 2, 1, 1, "cpu")._store
    out = {
        name: index if store.ndim == 1 else index[:, None].repeat(1, store.shape[1])
        for name, store in columns.items()
        if name not in ("draw", "key", "order")
    }
    return out | {name: torch.ones(n, dtype=torch.float64) for name in ("beta", "weight")}


def white_of(index):
    return torch.stack([index, -index, index**2])


def leverage_by(leverage):
    """Features (R, K) → leverage (K,): the first feature is the arrival number."""
    return lambda white: (
        torch.ones_like(white[0]) if leverage is None else leverage[white[0].long()]
    )


def filled(capacity=50, n=400, batch=10, seed=0, leverage=None, protect=250, rule="uniform"):
    memory = Memory(capacity, 2, 1, 5, "cpu", protect=protect).set_rule(rule)
    generator = torch.Generator().manual_seed(seed)
    fell = 0
    for i in range(0, n, batch):
        fresh = values(batch, i)
        fell += memory.offer_batch(
            fresh, white_of(fresh["y"][:, 0]), leverage_by(leverage), generator
        )
    return memory, fell


@pytest.mark.parametrize(
    "capacity, batch", [(0, 10), (1, 10), (7, 1), (50, 10), (50, 200), (400, 10), (1000, 10)]
)
def test_bounded_and_every_loss_counted(capacity, batch):
    memory, fell = filled(capacity, batch=batch)
    assert (
        len(memory) == min(capacity, 400) and fell == 400 - len(memory) and memory.arrivals == 400
    )
    assert len(set(memory.order.tolist())) == len(memory), "a sample twice"
    assert torch.equal(memory.order, memory.y[:, 0]), "columns no longer belong together"
    assert (
        torch.equal(memory.whitened(3), white_of(memory.y[:, 0]))
        and not memory.whitened(5)[3:].any()
    )


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
        memory, _ = filled(
            60, n=2000, seed=seed, leverage=leverage, batch=50, protect=0, rule="leverage"
        )
        old = memory.order[memory.order < 1900].long()
        kept += torch.stack([heavy[old].sum(), (~heavy[old]).sum()]).double()
    assert 2.2 < float(kept[0] / kept[1]) < 3.9, kept


def test_every_age_has_its_share():
    """A reservoir, not a window (the last batch is always in)."""
    counts = torch.zeros(4, dtype=torch.float64)
    for seed in range(30):
        order = filled(40, n=800, seed=seed, protect=0)[0].order
        counts += torch.histc(order[order < 790], 4, 0, 790)
    share = counts / counts.sum()
    assert float(share.min()) > 0.18 and float(share.max()) < 0.33, share


def test_uniform_asks_no_leverage():
    def refuse(white):
        raise AssertionError("leverage was asked for")

    memory, generator = Memory(10, 2, 1, 5, "cpu"), torch.Generator().manual_seed(0)
    for i in range(0, 50, 10):
        memory.offer_batch(values(10, i), white_of(values(10, i)["y"][:, 0]), refuse, generator)
    assert len(memory) == 10


def test_newest_is_a_window():
    memory, _ = filled(50, n=400, rule="newest", protect=0)
    assert set(memory.order.int().tolist()) == set(range(350, 400))


def test_farthest_covers_what_came():
    """400 samples on a line, crowded at its start: what stays lies farther apart there than a random choice of it."""
    generator, least = torch.Generator().manual_seed(0), {}
    x = torch.cat([torch.linspace(0, 1, 350), torch.linspace(1, 20, 50)]).double()
    for rule in ("farthest", "uniform"):
        memory = Memory(40, 2, 1, 5, "cpu", protect=0).set_rule(rule)
        for part in torch.arange(400).split(5):
            fresh = values(5, int(part[0])) | {"x": x[part, None].repeat(1, 2)}
            memory.offer_batch(fresh, white_of(fresh["y"][:, 0]), leverage_by(None), generator)
        least[rule] = int((memory.x[:, 0] > 1).sum())
    assert least["farthest"] >= 35 and least["uniform"] < 20, least


def test_another_rule_holds_for_those_that_are_here():
    """A memory of the newest that goes on as any other one still has a bound; its old keys do not stay."""
    memory, _ = filled(30, n=300, rule="newest", protect=0)
    other = Memory.from_state_dict(memory.state_dict(), "cpu")
    assert other.rule == "newest" and torch.equal(other.key, memory.key)
    assert bool((other.set_rule("uniform").key == UNRANKED).all()) and len(other) == 30


def test_the_setting_reaches_the_map_and_its_file():
    x = torch.linspace(0, 8, 160, dtype=torch.float64)[:, None] * torch.tensor([[1.0, 0.0]])
    settings = {
        "memory_size": 40,
        "lengthscale": 0.5,
        "learn_hyperparameters": False,
        "learn_time_offset": False,
    }
    oldest, saved = {}, {}
    for rule in ("newest", "uniform"):
        field = create_map("dual_svgp", memory_rule=rule, **settings)
        for part in torch.arange(160).split(8):
            field.update(Samples(x[part], 1e-5 * torch.sin(x[part, :1])))
        oldest[rule], saved[rule] = float(field.remembered_places()[:, 0].min()), field.state_dict()
    assert oldest["newest"] > 5.9 and oldest["uniform"] < 3.0, oldest

    other = create_map("dual_svgp", memory_rule="uniform", **settings)
    other.load_state_dict(saved["newest"])
    other.update(Samples(x + 20.0, 1e-5 * torch.sin(x[:, :1])))
    assert other.memory.rule == "uniform" and len(other.memory) == 40


def test_zero_leverage_is_no_error():
    memory, _ = filled(20, leverage=torch.zeros(400, dtype=torch.float64), rule="leverage")
    assert len(memory) == 20 and bool(torch.isfinite(memory.key).all())


def test_features_grow_and_are_replaced():
    memory, _ = filled(20)
    rows = torch.full((1, 20), 7.0, dtype=torch.float64)
    memory.extend_whitened(3, rows)
    assert torch.equal(memory.whitened(4)[3:], rows)
    memory.set_whitened(rows)
    assert torch.equal(memory.whitened(5)[:1], rows) and not memory.whitened(5)[1:].any()


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
        m.offer_batch(fresh, white_of(fresh["y"][:, 0]), leverage_by(leverage), generator)
    assert torch.equal(memory.order, other.order) and torch.equal(
        memory.whitened(5), other.whitened(5)
    )
    assert other.arrivals == 400 and other.protect == memory.protect
    for name, value in state.items():
        assert torch.equal(value, kept[name]) if torch.is_tensor(value) else value == kept[name], (
            name
        )


def test_a_copy_with_room_for_more_features_is_independent():
    memory, _ = filled(20)
    wider = memory.copy(9, capacity=30)
    assert (
        wider.rows == 9
        and wider.capacity == 30
        and torch.equal(wider.whitened(5), memory.whitened(5))
    )
    before = memory.lam.clone()
    for each in (wider, memory.copy()):
        assert torch.equal(each.order, memory.order) and each.arrivals == memory.arrivals
        each.scale(0.5)
        assert torch.equal(memory.lam, before) and torch.equal(each.lam, 0.5 * before)


def test_an_unknown_column_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = filled(5)[0].colour

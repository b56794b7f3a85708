"""A drive through many tiles with everything learned: no update does much, and the map is as good."""

import math

import pytest
import torch

import gp_mapping.core.models.dual_svgp.rebuild as rebuilds
import gp_mapping.core.models.dual_svgp.rebuilding as rebuilding
from gp_mapping import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

UT = 1e-6
SMALL = {"max_inducing": 100, "memory_size": 400, "map_tile_side": 5.0, "tiles_in_memory": 9}
FEW = 1e6  # operations of a slice: a small share, as a small budget takes a small share of a large one's


def field_at(x):
    g = torch.Generator().manual_seed(5)
    w = torch.randn(200, 2, generator=g).double() / 0.25
    phase = 2 * math.pi * torch.rand(200, generator=g).double()
    return 45 * UT + UT * torch.cos(x @ w.mT + phase).sum(1, keepdim=True)


def samples():
    rows = []
    for i, y in enumerate(torch.arange(0.0, 3.2, 0.35).double()):
        xs = torch.arange(0.0, 6.0, 0.1).double()
        rows.append(torch.stack([xs if i % 2 == 0 else 6.0 - xs, y.expand(len(xs))], 1))
    x = torch.cat(rows)
    g = torch.Generator().manual_seed(1)
    return Samples(
        x,
        field_at(x) + 0.3 * UT * torch.randn(len(x), 1, generator=g).double(),
        stamp=1.0 + 0.2 * torch.arange(len(x)).double(),
    )


@pytest.fixture
def counted(monkeypatch):
    """Operations of rebuilds since it was cleared, and the largest of a single step."""
    told = {"spent": 0.0, "step": 0.0, "begun": 0}
    plain, freeze = rebuilds.Rebuild.advance, rebuilds.Rebuild.freeze

    def advance(self, operations):
        total = 0.0
        while self.steps_left and total < operations:
            step = plain(self, 1e-9)  # one step
            told["step"], total = max(told["step"], step), total + max(step, 1e-9)
        told["spent"] += total
        return total

    def frozen(self):
        told["begun"] += 1
        freeze(self)

    monkeypatch.setattr(rebuilds.Rebuild, "advance", advance)
    monkeypatch.setattr(rebuilds.Rebuild, "freeze", frozen)
    return told


def drive(slice_, monkeypatch, counted):
    """The session at the end, and what each call spent; half way it is saved and read again."""
    for module in (rebuilds, rebuilding):
        monkeypatch.setattr(module, "SLICE", slice_)
    data, spent = samples(), []
    session = MapSession(MapSettings(**SMALL))
    for i in range(len(data)):
        counted["spent"] = 0.0
        session.ingest(data[i : i + 1])
        if session.cell_count > 150:  # before, the map is made again of its first cells
            spent.append(counted["spent"])
    return session, spent


def test_a_drive_that_learns_opens_and_closes_tiles_in_slices(monkeypatch, counted):
    sliced, spent = drive(FEW, monkeypatch, counted)
    begun = counted["begun"]
    told = sliced.report()
    assert told["tiles"] >= 12 and told["tiles_loaded"] > 0 and begun > 20, (told["tiles"], begun)
    # one slice a cell, two where one ends and another begins, each with its last step
    assert max(spent) <= 2 * (FEW + counted["step"]) + 1, (max(spent), counted["step"])

    counted["begun"] = 0
    once, at_once = drive(math.inf, monkeypatch, counted)
    # at once, one update does the work of many slices
    assert counted["begun"] == 0 and max(at_once) > 5 * FEW, (max(at_once), max(spent))
    sliced.map.in_slices(False)
    x = samples().x[::7] + 0.1
    a, b, truth = sliced.predict(x), once.predict(x), field_at(x)
    rms = [float((p.mean - truth).square().mean().sqrt()) for p in (a, b)]
    assert rms[0] < 1.05 * rms[1], rms
    honest = [float(((p.mean - truth) / p.stddev).square().mean().sqrt()) for p in (a, b)]
    assert honest[0] < 1.1 * honest[1], honest
    assert abs(float((a.stddev / b.stddev).median()) - 1.0) < 0.1


def test_saved_on_the_way_a_session_goes_on_exactly(monkeypatch):
    """Where a tile is being carried, and where the first cells are being taken in again."""
    for module in (rebuilds, rebuilding):
        monkeypatch.setattr(module, "SLICE", FEW)
    data, x = samples(), samples().x[::50] + 0.1
    one, other, kinds, found = MapSession(MapSettings(**SMALL)), None, set(), 0
    for i in range(700):
        if len(kinds) == 2 and i == found + 200:  # what was under way has long ended
            break
        one.ingest(data[i : i + 1])
        if other is not None:
            other.ingest(data[i : i + 1])
        state = None
        if i % 5 == 0 and len(kinds) < 2:
            state = one.state_dict()
            under_way = "rebuild" if "'rebuild'" in str(keys(state["map"])) else ""
            kind = under_way if state["again"] is None else "again"
            if kind and kind not in kinds:
                kinds.add(kind)
                found = i
                other = MapSession.from_state_dict(state)
        elif other is not None and i % 49 == 0:
            a, b = one.predict(x), other.predict(x)
            assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance), (i, kinds)
    assert kinds == {"again", "rebuild"}
    a, b = one.predict(x), other.predict(x)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)


@torch.no_grad()
def test_at_the_end_nothing_is_put_off(monkeypatch):
    """A recording may end while starts are found, while the room is being split, while a tile is being carried."""
    for module in (rebuilds, rebuilding):
        monkeypatch.setattr(module, "SLICE", FEW)
    data, ended = samples(), set()
    one = MapSession(MapSettings(**SMALL))
    for i in range(700):
        one.ingest(data[i : i + 1])
        if not put_off(one.state_dict()) - ended:
            continue
        other = MapSession.from_state_dict(one.state_dict())
        other.flush()
        new = put_off(other.state_dict()) - ended
        if not new:
            continue
        a, b = (
            each.predict_in_pass(data.x[:i], 1e9) for each in (other.map, other.map.current_map)
        )
        assert torch.equal(a.mean, b.mean) or "a tile's rebuild" in new, (
            "the map that was answers until all are there"
        )
        epoch, revision, before = other.map.epoch, other.revision, other.predict(data.x[:i])
        other.finish()
        assert not put_off(other.state_dict()), new
        assert other.revision > revision, new
        assert "again" in new or other.map.changed_since(epoch) is None, (
            new
        )  # who draws draws all of it
        after, truth = other.predict(data.x[:i]), field_at(data.x[:i])
        rms = [float((p.mean - truth).square().mean().sqrt()) for p in (before, after)]
        honest = float(((after.mean - truth) / after.stddev).square().mean().sqrt())
        # other inputs of a bit each, of so few samples: what they leave out is among the standard deviations
        assert rms[1] < 1.5 * rms[0] and honest < 1.0, (new, rms, honest)
        ended |= new
        if len(ended) == 4:
            break
    assert ended == {"again", "split", "rebuild", "a tile's rebuild"}


def put_off(state):
    """What a session has put off to cells to come."""
    if state["again"] is not None:
        return {"again"}
    if state["map"].get("former") is not None:
        return {"split"}
    if "'rebuild'" in str(keys(state["map"])):
        return {"a tile's rebuild" if "layout" in state["map"] else "rebuild"}
    return set()


def keys(state):
    """Names in a state, nested, also in those of tiles."""
    if hasattr(state, "get") and not isinstance(state, dict):
        state = state.get()
    if isinstance(state, dict):
        return [(name, keys(part)) for name, part in state.items()]
    return [keys(part) for part in state] if isinstance(state, list | tuple) else None

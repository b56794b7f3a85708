"""A drive through many tiles with everything learned: no update does much, and the map is as good."""

import copy
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
    for i, y in enumerate(torch.arange(0.0, 2.9, 0.35).double()):
        xs = torch.arange(0.0, 6.0, 0.1).double()
        rows.append(torch.stack([xs if i % 2 == 0 else 6.0 - xs, y.expand(len(xs))], 1))
    x = torch.cat(rows)
    g = torch.Generator().manual_seed(1)
    return Samples(
        x,
        field_at(x) + 0.3 * UT * torch.randn(len(x), 1, generator=g).double(),
        stamp=1.0 + 0.2 * torch.arange(len(x)).double(),
    )


class Counted:
    """Operations of rebuilds since `spent` was cleared, the largest of a single step, and how many rebuilds began."""

    def __init__(self, patch, slice_):
        self.spent = self.step = 0.0
        self.begun = 0
        plain, freeze, counts = rebuilds.Rebuild.advance, rebuilds.Rebuild.freeze, self

        def advance(self, operations):
            total = 0.0
            while self.steps_left and total < operations:
                step = plain(self, 1e-9)  # one step
                counts.step, total = max(counts.step, step), total + max(step, 1e-9)
            counts.spent += total
            return total

        def frozen(self):
            counts.begun += 1
            freeze(self)

        patch.setattr(rebuilds.Rebuild, "advance", advance)
        patch.setattr(rebuilds.Rebuild, "freeze", frozen)
        for module in (rebuilds, rebuilding):
            patch.setattr(module, "SLICE", slice_)

    def ingest(self, session, sample) -> float:
        """Operations of rebuilds with this sample."""
        self.spent = 0.0
        session.ingest(sample)
        return self.spent


LATE = 150  # cells; up to there the map is made again of its first ones
KINDS = {"again", "split", "rebuild", "a tile's rebuild"}


class Drive:
    """The drive in slices, which several tests ask about.

    session: at its end.  spent: with each late cell.  put_off: for each of KINDS, a session that was saved and read
    again where that was put off, and before which sample.  told: predictions of the drive's session on its way.
    """

    def __init__(self, counted):
        data = samples()
        self.session, self.spent, self.put_off, self.told = (
            MapSession(MapSettings(**SMALL)),
            [],
            {},
            {},
        )
        for i in range(len(data)):
            spent = counted.ingest(self.session, data[i : i + 1])
            if self.session.cell_count > LATE:
                self.spent.append(spent)
            if i % 3 == 0 and len(self.put_off) < len(KINDS):
                self._look(i)
            if i % 12 == 11:
                self.told[i] = self.session.predict(data.x[::50] + 0.1)

    def _look(self, i):
        """Keep a copy where something is put off that was not before, also once it has been flushed."""
        state = self.session.state_dict()
        if not put_off(state) - self.put_off.keys():
            return
        state = copy.deepcopy(state)  # the session goes on
        other = MapSession.from_state_dict(copy.deepcopy(state))
        other.flush()
        if new := put_off(other.state_dict()) - self.put_off.keys():
            self.put_off |= dict.fromkeys(new, (i + 1, state))


@pytest.fixture(scope="module")
def sliced():
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch, FEW)
        yield Drive(counted), counted


def test_a_drive_that_learns_opens_and_closes_tiles_in_slices(monkeypatch, sliced):
    drive, counted = sliced
    told, spent = drive.session.report(), drive.spent
    assert told["tiles"] >= 12 and told["tiles_loaded"] > 0 and counted.begun > 20, told["tiles"]
    # one slice a cell, two where one ends and another begins, each with its last step
    assert max(spent) <= 2 * (FEW + counted.step) + 1, (max(spent), counted.step)

    whole, data, at_once = Counted(monkeypatch, math.inf), samples(), []
    once = MapSession(MapSettings(**SMALL))
    for i in range(len(data)):
        used = whole.ingest(once, data[i : i + 1])
        at_once += [used] if once.cell_count > LATE else []
    # at once, one update does the work of many slices
    assert whole.begun == 0 and max(at_once) > 5 * FEW, (max(at_once), max(spent))
    session = MapSession.from_state_dict(drive.session.state_dict())
    session.map.in_slices(False)
    x = samples().x[::7] + 0.1
    a, b, truth = session.predict(x), once.predict(x), field_at(x)
    rms = [float((p.mean - truth).square().mean().sqrt()) for p in (a, b)]
    assert rms[0] < 1.05 * rms[1], rms
    honest = [float(((p.mean - truth) / p.stddev).square().mean().sqrt()) for p in (a, b)]
    assert honest[0] < 1.1 * honest[1], honest
    assert abs(float((a.stddev / b.stddev).median()) - 1.0) < 0.1


@pytest.mark.parametrize("kind", ["again", "a tile's rebuild"])
def test_saved_on_the_way_a_session_goes_on_exactly(sliced, kind):
    """Where a tile is being carried, and where the first cells are being taken in again."""
    (start, state), data = sliced[0].put_off[kind], samples()
    other, compared = MapSession.from_state_dict(copy.deepcopy(state)), 0
    for i in range(start, min(start + 100, len(data))):  # what was under way has long ended
        other.ingest(data[i : i + 1])
        if i in sliced[0].told:
            a, b = sliced[0].told[i], other.predict(data.x[::50] + 0.1)
            assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance), i
            compared += 1
    assert compared >= 3


@torch.no_grad()
def test_at_the_end_nothing_is_put_off(sliced):
    """A recording may end while starts are found, while the room is being split, while a tile is being carried."""
    data = samples()
    assert sliced[0].put_off.keys() == KINDS
    for new, (i, state) in sliced[0].put_off.items():
        other = MapSession.from_state_dict(copy.deepcopy(state))
        other.flush()
        assert new in put_off(other.state_dict())
        a, b = (
            each.predict_in_pass(data.x[:i], 1e9) for each in (other.map, other.map.current_map)
        )
        assert torch.equal(a.mean, b.mean) or new == "a tile's rebuild", (
            "the map that was answers until all are there"
        )
        epoch, revision, before = other.map.epoch, other.revision, other.predict(data.x[:i])
        other.finish()
        assert not put_off(other.state_dict()), new
        assert other.revision > revision, new
        assert new == "again" or other.map.changed_since(epoch) is None, (
            new
        )  # who draws draws all of it
        after, truth = other.predict(data.x[:i]), field_at(data.x[:i])
        rms = [float((p.mean - truth).square().mean().sqrt()) for p in (before, after)]
        honest = float(((after.mean - truth) / after.stddev).square().mean().sqrt())
        # other inputs of a bit each, of so few samples: what they leave out is among the standard deviations
        assert rms[1] < 1.5 * rms[0] and honest < 1.0, (new, rms, honest)


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

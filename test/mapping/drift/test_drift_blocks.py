"""What is averaged to a block, and what of it a search for a drift is given."""

import dataclasses

import pytest
import torch
from drifting import done

from gp_mapping.core.types import Samples
from gp_mapping.mapping.drift import watch
from gp_mapping.mapping.drift.alternatives import DriftTrack
from gp_mapping.mapping.drift.blocks import blocks_of, forward
from gp_mapping.mapping.drift.evidence import Drift
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.settings.mapping import MapSettings


def rows(x, stamp, passes, origin=0.0):
    """Rows along a line, that tell ten times their place."""
    x = torch.tensor(x, dtype=torch.float64)
    places = torch.stack([origin + x, origin + 0.0 * x], 1)
    heading = torch.stack([x, 1.0 - x], 1)
    return DriftTrack(places, 10.0 * x, torch.tensor(stamp).double(), torch.tensor(passes), heading)


@pytest.mark.parametrize("origin", [0.0, 5e6])
def test_a_block_ends_at_a_length_with_a_pass_and_where_time_does_not_go_on(origin):
    """Each is the mean of its rows, to the micrometre also where coordinates are large."""
    told = blocks_of(
        rows(
            [0.0, 0.3, 0.9, 1.0, 1.2, 1.3, 1.4, 1.5, 3.0],
            [0.0, 1.0, 2.0, 3.0, 4.0, 4.0, 5.0, 5.5, 7.0],
            [1, 1, 1, 1, 1, 1, 1, 2, 2],
            origin,
        ),
        1.0,
    )
    means = torch.tensor([0.4, 1.1, 1.35, 1.5, 3.0], dtype=torch.float64)
    assert torch.allclose(told.x[:, 0] - origin, means, atol=1e-6, rtol=0.0)
    assert torch.allclose(told.y, 10.0 * means)
    assert told.stamp.tolist() == pytest.approx([1.0, 3.5, 4.5, 5.5, 7.0])
    assert told.passes.tolist() == [1, 1, 1, 2, 2]
    assert torch.allclose(told.heading, torch.stack([means, 1.0 - means], 1))
    without = rows([0.0, 0.3], [0.0, 1.0], [1, 1])._replace(heading=None)
    assert blocks_of(without, 1.0).heading is None


def test_a_block_of_rows_evenly_spaced_ends_where_rounding_leaves_it():
    """Ten steps of .1 are a metre."""
    at = torch.arange(40, dtype=torch.float64) * 0.1
    told = blocks_of(rows(at.tolist(), at.tolist(), [1] * 40), 1.0)
    assert told.stamp.tolist() == pytest.approx([0.45, 1.45, 2.45, 3.45])


def test_forward_is_the_heading_or_the_way_or_nothing():
    cells = Samples([[0.0, 0.0]] * 2, [0.0, 0.0], velocity=[[0.0, -3.0], [0.0, 0.0]])
    assert forward(cells).tolist() == [[0.0, -1.0], [0.0, 0.0]]
    turned = dataclasses.replace(cells, heading=torch.tensor([[1.0, 0.0]] * 2).double())
    assert forward(turned) is turned.heading
    assert forward(Samples([[0.0, 0.0]], [0.0])).tolist() == [[0.0, 0.0]]


class Nothing:
    """A search that finds nothing, or what it is told, and keeps what it was given."""

    steps, anisotropy, finds = 0, 1.0, None
    turning, contradicts, place = 0.0, False, None
    given: list

    def __init__(self, track, length, kernel, finds_delay, axes):
        self.given.append((track, length, kernel))
        self.found = self.finds

    def advance(self):
        return True


def looks(monkeypatch, settings, count=150, last=True, together=1, **more):
    """Of a drive along a line, a row a block long each second: the watch, and what was given."""
    search = type("Found", (Nothing,), {"given": [], **more})
    monkeypatch.setattr(watch, "DriftSearch", search)
    out, again = DriftWatch(settings, looks=True), False
    for k in range(0, count, together):
        second, at = k >= count // 2, torch.arange(k, k + together, dtype=torch.float64)[:, None]
        columns = {
            "stamp": at[:, 0] + 100.0 * second,
            "heading": 0.0 * at + at.new_tensor([0.6, 0.8]),
        }
        out.add(Samples(0.4 * at.expand(-1, 2), at[:, 0], **columns), 1 + second)
        again |= out.look(lambda: 2.0 * 2.0**0.5)
    again |= last and done(out.looking_last(lambda: 2.0 * 2.0**0.5))
    return out, search.given, again


@pytest.mark.parametrize("turns", [0.0, 0.2])
def test_a_search_is_given_the_blocks_as_the_map_sees_them(monkeypatch, turns):
    """In units of the shorter lengthscale; which way the robot looks where the sensor may turn."""
    for ratio, axes in ((1.0, (1.0, 1.0)), (4.0, (1.0, 0.25)), (0.25, (0.25, 1.0))):
        settings = MapSettings(heading_stddev=turns, anisotropy=ratio, kernel="matern32")
        out, given, again = looks(monkeypatch, settings, anisotropy=0.5)
        (first, length, kernel), *_ = given
        assert (length, kernel) == (2.0 * 2.0**0.5, "matern32") and not again
        n = len(first.y)
        wanted = 0.4 * torch.arange(n, dtype=torch.float64)[:, None] * torch.tensor(axes)
        assert 100 <= n < 116 and torch.allclose(first.x, wanted)
        assert first.stamp[:75].tolist() == list(range(75)) and int(first.passes[75]) == 2
        assert (first.heading is not None) == (turns > 0.0)
        assert torch.allclose(first.motion[1:70], wanted.diff(dim=0)[:69])
        assert out.anisotropy == 0.5 * ratio and len(out.notes()) == 1


def test_the_newest_blocks_are_looked_at_and_at_doublings_some_of_all(monkeypatch):
    """No more than 400 of them; after 3200 nothing is kept."""
    settings = MapSettings(heading_stddev=0.0)
    out, given, _ = looks(monkeypatch, settings, 3264, together=16)
    looked = [(float(track.stamp[0]), float(track.stamp[-1]), len(track.y)) for track, *_ in given]
    seconds = (100, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200)
    for (begin, end, count), due in zip(looked, seconds, strict=True):
        end -= 100.0 * (end > 1700.0)
        assert due - 1 <= end < due + 16 and count == min(400, round(end) + 1)
        newest = due in (600, 1200, 2400)
        assert begin - 100.0 * (begin > 1700.0) == (end - 399.0 if newest else 0.0)
    assert out.state_dict()["kept"] is None


def test_constants_last_a_tenth_of_the_shortest_time_and_twice_the_drive(monkeypatch):
    """Of the time that was driven: what lies between passes does not count."""
    found = Drift(40.0, 30.0, 0.5, True, 20.0)
    for most, seconds in ((1000, 3.0), (10, None)):
        settings = MapSettings(max_biases=most, field_scale=0.1, field_unit="°C")
        out, given, again = looks(monkeypatch, settings, 75, finds=found)
        ((track, *_),) = given
        driven = float(track.stamp[-1] - track.stamp[0]) - 101.0
        assert again and out.drift == found
        assert out.bias_time == pytest.approx(seconds or 2.0 * driven / 10)
        (note,) = out.notes()
        assert "5" in note and "40" in note
    kept = out.again()
    assert [float(cell.y) for cell, _ in kept] == list(range(75)) and out.again() == []


def test_cells_that_came_too_early_are_forgotten_with_their_way(monkeypatch):
    out, _, _ = looks(monkeypatch, MapSettings(), 60, last=False)
    assert out.state_dict()["way"] == pytest.approx(58 * 0.4 * 2.0**0.5)  # in each of both passes
    out.forget_before(10.0)
    state = out.state_dict()
    assert state["way"] == pytest.approx(48 * 0.4 * 2.0**0.5)
    kept = out.again()
    assert float(kept[0][0].stamp) == 10.0 and [p for _, p in kept] == [1] * 20 + [2] * 30
    out.replace(kept)  # nothing is kept any more
    assert out.state_dict()["kept"] is None


def test_a_long_way_on_one_spot_is_no_search(monkeypatch):
    """To and fro in less than a block: nothing is found, and nothing is taken for longer than it was."""
    monkeypatch.setattr(watch, "DriftSearch", None)
    out = DriftWatch(MapSettings(anisotropy=2.0), looks=True)
    for k in range(400):
        out.add(Samples([[0.2 * (k % 2), 0.0]], [k], stamp=[k]), 1)
        assert not out.look(lambda: 2.0)
    state = out.state_dict()
    assert state["looked"] >= 100 and state["search"] is None and state["kept"] is not None
    assert state["anisotropy"] == 2.0 and out.notes() == []


def test_it_looks_where_constants_are_learned_and_their_time_is_not_set():
    def looks_by(**settings):
        return DriftWatch(MapSettings(**settings), looks=True).state_dict()["kept"] is not None

    assert looks_by() and not looks_by(bias_time=7.0)
    assert not looks_by(learn_bias=False) and not looks_by(learn_bias_time=False)
    assert DriftWatch(MapSettings()).state_dict()["kept"] is None

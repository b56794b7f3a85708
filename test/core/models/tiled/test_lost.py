"""A tile that cannot be read any more: its ground is unknown and drawn anew, and all are told, by name or number."""

import pytest
import torch
from tiled_data import long_road

from gp_mapping.core.models.tiled.tile_copies import TileLost


@pytest.fixture
def away():
    return long_road()


def test_its_ground_is_unknown_and_drawn_anew(away):
    place = torch.tensor([[0.5, 0.0]], dtype=torch.float64)
    key = away.layout.key_at(place[0])
    low, high = map(torch.tensor, away.layout.core(key))
    known, epoch = float(away.predict(place).stddev), away.epoch
    assert key in away.shelf
    away.drop_lost(TileLost(key, "it is gone"))
    assert float(away.predict(place).stddev) > 5.0 * known
    ((begin, end),) = away.changed_since(epoch)
    assert (torch.tensor(begin) <= low).all() and (torch.tensor(end) >= high).all()


def test_the_ten_newest_are_named_and_the_others_are_counted(away):
    for number in range(12):
        away.drop_lost(TileLost((number, 9), f"reason {number}."))
    notes = [note for note in away.notes() if "left out" in note]
    assert [note.split("reason ")[1] for note in notes[:-1]] == [f"{i}." for i in range(2, 12)]
    assert notes[-1] == "2 more tiles are left out"
    assert away.counters()["tiles_lost"] == 12

"""A tile that cannot be read any more: its ground is unknown and drawn anew, and all are told, by name or number."""

import pytest
import torch

from gp_mapping import Samples, create_map
from gp_mapping.core.models.tiled.tile_copies import TileLost

UT = 1e-6
SETTINGS = {
    "lengthscale": 0.6,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.3 * UT,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "centre": [45 * UT],
    "tiles": True,
    "max_inducing": 60,
    "memory_size": 300,
    "map_tile_side": 5.0,
    "tiles_in_memory": 9,
}


@pytest.fixture
def away():
    """A road, of which only the tiles about its end are in memory."""
    field = create_map("dual_svgp", **SETTINGS)
    field.most = 1
    for start in torch.arange(0.0, 12.0, 0.8).tolist():
        along = torch.arange(start, start + 0.8, 0.1, dtype=torch.float64)
        x = torch.stack([along, torch.zeros_like(along)], 1)
        field.update(Samples(x, 45 * UT + 8 * UT * torch.sin(2.0 * x[:, :1])))
        field.absorb_waiting()
    return field


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

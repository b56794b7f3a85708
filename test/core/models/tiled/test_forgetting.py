"""What was forgotten is forgotten wherever it lies: on the shelf, waiting for a tile, in another map."""

import copy

import pytest
import torch
from tiled_data import SETTINGS, UT, field_at, road

from gp_mapping import Samples, create_map
from gp_mapping.core.models.tiled import joining


def drive(field, samples, size=5):
    for start in range(0, len(samples), size):
        field.update(samples[start : start + size])
    return field


def alike(one, other, x):
    a, b = one.predict(x), other.predict(x)
    return bool(
        ((a.mean - b.mean).abs() < 0.02 * b.stddev).all()
        and ((a.stddev / b.stddev - 1).abs() < 0.02).all()
    )


@pytest.fixture(scope="module")
def roads():
    """The same road in maps that keep all of their tiles in memory, and only those near the robot."""
    fields = []
    for most in (100, 1):
        field = create_map("dual_svgp", **SETTINGS)
        field.most = most
        fields.append(drive(field, road(0.0, 18.0)))
    whole, few = fields
    assert not len(whole.shelf) and len(few.shelf) > 2
    return whole, few


def merged_into(field):
    into = create_map("dual_svgp", **SETTINGS)
    drive(into, road(8.0, 10.0, 1.0))
    into.merge(field)
    return into


def merging(field):
    other = create_map("dual_svgp", **SETTINGS)
    drive(other, road(1.0, 3.0, 0.3))
    field.merge(other)
    return drive(field, road(0.5, 1.0))


def opening(field):
    """Beside a tile that lies on the shelf; one by one, so that what it hands on is taken in."""
    return drive(field, road(-1.5, -1.2), 1)


def forgetting_near(field):
    field.forget_near(torch.tensor([[2.0, 0.0]]).double(), 0.3, 0)
    return field


def looking(field):
    """Neighbours come from the shelf that know nothing of the samples; then all is forgotten once more."""
    drive(field, road(field.layout.high[0] + 1.2, field.layout.high[0] + 1.4))
    field.forget(0.5)
    return field


def saved(field):
    other = create_map("dual_svgp", **SETTINGS)
    other.most = field.most
    other.load_state_dict(copy.deepcopy(looking(field).state_dict()))
    return other


@torch.no_grad()
@pytest.mark.parametrize(
    "act",
    [merged_into, merging, opening, forgetting_near, looking, saved],
    ids=lambda f: f.__name__,
)
def test_a_tile_on_the_shelf_forgets_as_those_in_memory(act, roads):
    whole, few = copy.deepcopy(roads)
    for field in (whole, few):
        field.forget(0.02)
    whole, few = act(whole), act(few)
    x = torch.cat([road(-0.6, 18.0).x[::3], road(0.0, 3.0, 0.4).x[::3]])
    assert float(whole.predict(x).stddev.max()) > 0.5 * UT, "it was forgotten"
    assert alike(few, whole, x)


@torch.no_grad()
def test_a_tile_that_lags_behind_in_an_old_file_catches_up(roads):
    """Earlier versions saved tiles that the robot had come near to as they had lain on the shelf."""
    field = copy.deepcopy(roads[1])
    lagging = field.state_dict()["tiles"]
    field.forget(0.02)
    again = create_map("dual_svgp", **SETTINGS)
    again.load_state_dict(copy.deepcopy(field.state_dict() | {"tiles": lagging}))
    assert alike(again, field, road(0.0, 18.0).x[::3])


@torch.no_grad()
def test_what_waits_for_a_tile_is_forgotten_as_what_it_has():
    settings = SETTINGS | {"inducing_information": 0.0}  # of weak data fewer inputs are worth it
    field = create_map("dual_svgp", **settings)
    samples, i = road(0.0, 18.0), 0
    while field.former is None:
        field.update(samples[i : i + 5])
        i += 5
    assert sum(len(tile.seeds) for tile in field.tiles.values()) > 1
    before, after = copy.deepcopy(field), field
    before.absorb_waiting()
    before.forget(0.02)
    after.forget(0.02)
    resumed = create_map("dual_svgp", **settings)
    resumed.load_state_dict(copy.deepcopy(after.state_dict()))
    for one in (after, resumed):
        one.absorb_waiting()
        assert alike(one, before, samples.x[:i])


@torch.no_grad()
def test_what_opens_a_tile_while_the_first_map_is_split_counts_once():
    field = create_map("dual_svgp", **SETTINGS)
    samples, i, opened = road(0.0, 18.0), 0, 0
    while not opened:
        splitting, before = field.former is not None, set(field.tiles)
        field.update(samples[i : i + 5])
        opened = len(set(field.tiles) - before) if splitting else 0
        i += 5
    field.absorb_waiting()
    places = field.remembered_places()
    assert len(places) == len(places.unique(dim=0)) == i
    assert all(tile.map.samples <= i for tile in field.tiles.values())


@torch.no_grad()
def test_a_sample_on_a_border_goes_over_when_maps_merge_and_tiles_open():
    """Its place is in one core alone, as of all samples: not in none."""
    field = create_map("dual_svgp", **SETTINGS)
    field.most = 100
    drive(field, road(0.0, 12.0))
    field.absorb_waiting()
    low, high = field.layout.low, field.layout.high
    y = torch.linspace(low[1], high[1], 7).double()
    for border in (high[0], low[0], low[0] - field.layout.side):
        x = torch.stack([torch.full_like(y, border), y], 1)
        field.update(Samples(x, field_at(x)))
    remembered = field.remembered_places()
    assert len(remembered) == field.samples, "each is in one tile's core"

    into = create_map("dual_svgp", **SETTINGS)
    drive(into, road(30.0, 31.0))
    into.merge(field)
    assert into.counters()["merged_without"] == field.counters()["merged_without"]
    for border in (high[0], low[0], low[0] - field.layout.side):
        x = torch.stack([torch.full_like(y, border), y], 1)
        assert float(into.predict(x).stddev.max()) < UT


def test_whose_core_places_are_in_is_told_on_their_device():
    places = torch.zeros((3, 2), device="meta")
    assert joining.in_core(None, (0, 0), places).device.type == "meta"

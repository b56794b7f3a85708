"""As many tiles as there may be: what is known stays and goes on, what lies beyond is left out and said."""

import copy

import pytest
import torch
from tiled_data import SETTINGS, UT, field_at, road

from gp_mapping import Samples, create_map
from gp_mapping.errors import MapFullError

MOST = 12


def built(**settings):
    return create_map("dual_svgp", **SETTINGS | {"max_tiles": MOST} | settings)


def drive(field, samples):
    """One by one; how many found no room."""
    left = 0
    for i in range(len(samples)):
        try:
            field.update(samples[i : i + 1])
        except MapFullError:
            left += 1
    return left


@pytest.fixture(scope="module")
def full():
    """A map of as many tiles as there may be, and where its ground ends, m."""
    field = built()
    samples = road(0.0, 60.0)
    left = drive(field, samples)
    return field, float(samples.x[len(samples) - left, 0])


def test_no_more_tiles_are_opened_and_the_map_stays_as_it_was(full):
    field, end = full
    assert field.counters()["tiles"] == MOST and 20.0 < end < 55.0
    known = torch.stack([torch.linspace(0.0, end, 200).double(), torch.zeros(200).double()], 1)
    free = drive(built(max_tiles=1000), road(0.0, end))
    assert free == 0
    before, state = field.predict(known), field.samples
    with pytest.raises(
        MapFullError, match=r"12 tiles, all that max_tiles \(12\) allows.*raise max_tiles"
    ):
        field.update(road(70.0, 70.5))
    after = field.predict(known)
    assert torch.equal(before.mean, after.mean) and torch.equal(before.variance, after.variance)
    assert field.samples == state
    error = (before.mean - field_at(known)).abs()
    assert float(error.max()) < 1.0 * UT, "what is known is known to its end"


def test_a_batch_that_wants_more_tiles_than_are_left_is_told_so():
    field = built()
    drive(field, road(0.0, 12.0))
    tiles = field.counters()["tiles"]
    assert 1 < tiles < MOST
    far = torch.cat([torch.arange(100.0, 1e4, 100.0)[:, None], torch.zeros(99, 1)], 1).double()
    with pytest.raises(
        MapFullError, match=rf"99 more tiles, and the map has {tiles} of the {MOST} that max_tiles"
    ):
        field.update(Samples(far, field_at(far)))
    assert field.counters()["tiles"] == tiles


def test_it_goes_on_where_its_tiles_are(full):
    field = copy.deepcopy(full[0])
    assert drive(field, road(1.0, 12.0)) == 0 and field.counters()["tiles"] == MOST


def test_it_is_said_while_it_lasts(full):
    field, end = full
    assert any("raise max_tiles" in note for note in field.notes())
    fewer = built()
    drive(fewer, road(0.0, 0.5 * end))
    assert fewer.counters()["tiles"] < MOST and not any(
        "max_tiles" in note for note in fewer.notes()
    )


def test_a_larger_bound_goes_on_from_what_was_saved(full):
    field, end = full
    state = field.state_dict()
    same, larger, smaller = built(), built(max_tiles=100), built(max_tiles=9)
    for one in (same, larger, smaller):
        one.load_state_dict(state)
    beyond = road(end + 0.05, end + 4.0)
    assert drive(same, beyond) == len(beyond)
    assert drive(larger, beyond) == 0 and larger.counters()["tiles"] > MOST
    assert smaller.counters()["tiles"] == MOST, (
        "what was measured is not thrown away for a smaller bound"
    )
    assert drive(smaller, beyond) == len(beyond) and drive(smaller, road(1.0, 8.0)) == 0


def test_one_map_is_not_split_into_more_than_there_may_be():
    """It becomes the first tile as it is: nothing is lost."""
    field = built()
    field.limit = 2  # fewer than a setting allows
    left = drive(field, road(0.0, 30.0))
    assert left > 0 and field.counters()["tiles"] == 2
    x = road(0.0, 5.0).x
    assert float((field.predict(x).mean - field_at(x)).abs().max()) < 1.5 * UT


def test_merging_counts_what_finds_no_room(full):
    field, end = copy.deepcopy(full[0]), full[1]
    other = built()
    drive(other, road(end - 3.0, end + 3.0))
    field.merge(other)
    assert field.counters()["tiles"] == MOST
    beyond = int((other.remembered_places()[:, 0] > end).sum())
    assert field.counters()["merged_without"] == pytest.approx(beyond, abs=2) and beyond > 20
    assert built().counters()["merged_without"] == 0


def test_two_maps_that_one_budget_does_not_hold_are_tiles_when_they_are_merged():
    """Each of them is one map still; what both say of the road is said by the tiles."""
    one, other = built(max_inducing=30), built(max_inducing=30)
    for field, samples in ((one, road(0.0, 2.8)), (other, road(3.0, 5.8))):
        for i in range(0, len(samples), 4):
            field.update(samples[i : i + 4])
    assert one.counters()["tiles"] == other.counters()["tiles"] == 1
    one.merge(other)
    assert one.counters()["tiles"] > 1
    x = road(0.0, 5.8).x
    assert float((one.predict(x).mean - field_at(x)).abs().max()) < 1.5 * UT


def test_tiles_are_shifted_together_with_those_on_the_shelf(full):
    field, end = copy.deepcopy(full[0]), full[1]
    x = torch.stack([torch.linspace(0.0, end, 100).double(), torch.zeros(100).double()], 1)
    before, shift = field.predict(x), torch.tensor([12.0, -7.0]).double()
    assert field.counters()["tiles_in_memory"] < field.counters()["tiles"]
    with pytest.raises(ValueError, match="can be shifted, not turned"):
        field.move(torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double(), shift)
    field.move(torch.eye(2).double(), shift)
    after = field.predict(x + shift)
    assert float(((after.mean - before.mean) / before.stddev).abs().max()) < 1e-6
    assert torch.allclose(after.variance, before.variance, rtol=1e-6, atol=0.0)
    field.update(Samples(x[:1] + shift, field_at(x[:1])))
    assert field.counters()["tiles"] == MOST


def test_of_a_pass_to_come_every_tile_says_the_field_and_the_constant_that_passes_have(full):
    field, end = full
    x = torch.stack([torch.linspace(0.0, end, 100).double(), torch.zeros(100).double()], 1)
    now, then = field.predict(x), field.predict_in_pass(x, 1e9)
    assert torch.allclose(then.mean, now.mean, rtol=1e-9, atol=0.0)
    assert torch.allclose(then.variance, now.variance + field.bias_variance(), rtol=1e-9, atol=0.0)

"""What has changed of a map of tiles since a moment: blended as its answers are, known where the same tiles answer."""

import copy
import dataclasses
import functools

import pytest
import torch
from test_bound import SETTINGS, UT, built, field_at, road

from gp_mapping import Samples, create_map

PLACES = torch.stack(
    torch.meshgrid(
        torch.arange(-1.0, 14.0, 0.13).double(),
        torch.arange(-1.0, 4.0, 0.11).double(),
        indexing="ij",
    ),
    -1,
).reshape(-1, 2)


def lanes(count, start=0):
    """Lanes of 12 m, 0.3 m apart; 10 cm a sample."""
    at = 0.1 * (start + torch.arange(count).double())
    lane, along = at.div(12.0).floor(), at.remainder(12.0)
    x = torch.stack([torch.where(lane % 2 == 0, along, 12.0 - along), 0.3 * lane], 1)
    return Samples(x, field_at(x))


@functools.cache
def survey():
    """900 samples of it, which no test changes."""
    field = create_map(
        "dual_svgp", **SETTINGS | {"max_inducing": 150, "memory_size": 700, "tiles_in_memory": 12}
    )
    for i in range(0, 900, 10):
        field.update(lanes(10, i))
    return field


def surveyed():
    """A copy, which goes on by itself."""
    return copy.deepcopy(survey())


def assert_told(field, moment, before, share):
    mean, variance, known = field.since(moment)(PLACES)
    now = field.predict(PLACES)
    assert float(known.double().mean()) > share
    assert float((now.mean - before.mean - mean)[known].abs().max()) < 1e-8 * 10 * UT
    assert (
        float((now.variance - before.variance - variance)[known].abs().max())
        < 1e-8 * (10 * UT) ** 2
    )
    return mean, known


def test_what_samples_have_changed_in_the_tiles_that_know_them():
    field = surveyed()
    assert field.counters()["tiles"] >= 4
    before, moment = field.predict(PLACES), field.moment()
    same, known = assert_told(field, moment, before, 0.99)
    assert not same.any()
    field.update(lanes(3, 900))
    mean, known = assert_told(field, moment, before, 0.5)
    assert float(mean.abs().max()) > 1e-3 * UT
    assert 0 < field.counters()["tiles_in_memory"] < field.counters()["tiles"], (
        "some were on the disk all the time"
    )
    far = (PLACES[:, 0] - lanes(3, 900).x[0, 0]).abs() > 8.0
    assert bool(known[far].all()) and not mean[far].any(), (
        "tiles that know nothing of it say what they said"
    )


def test_a_tile_that_was_not_there_is_not_told():
    field = surveyed()
    before, moment, tiles = field.predict(PLACES), field.moment(), field.counters()["tiles"]
    x = torch.tensor([[5.0, 4.6], [5.1, 4.6], [5.2, 4.6]]).double()
    field.update(Samples(x, field_at(x)))
    assert field.counters()["tiles"] > tiles
    _, known = assert_told(field, moment, before, 0.1)
    near = (PLACES - x[1]).norm(dim=1) < 0.8
    assert bool(near.any()) and not bool(known[near].any())


def test_another_layout_is_not_told():
    field = create_map("dual_svgp", **SETTINGS | {"max_inducing": 150, "memory_size": 700})
    for i in range(0, 20, 4):
        field.update(lanes(4, i))
    field.predict(PLACES)
    alone = field.moment()
    for i in range(20, 900, 4):
        field.update(lanes(4, i))
        if field.counters()["tiles"] > 1 and field.former is None:
            break
    field.predict(PLACES)
    assert (
        field.counters()["tiles"] > 1 and field.since(alone) is None and field.since(None) is None
    )


def test_what_was_forgotten_is_not_told():
    """A tile on the disk forgets when it is needed next: nobody has touched it, and it is another one all the same."""
    field = surveyed()
    field.predict(PLACES)
    moment = field.moment()
    field.forget(0.5)
    assert field.since(moment) is None


def test_a_tile_that_was_fetched_meanwhile_is_not_taken_for_the_same():
    """It was on the disk and is there again, and has learned something in between."""
    field = surveyed()
    before, moment = field.predict(PLACES), field.moment()
    away = next(x for x in PLACES if field.layout.key_at(x) in field.shelf)
    key = field.layout.key_at(away)
    for i in range(10):
        x = away + 0.05 * torch.tensor([[i, 0.0], [i, 1.0]]).double()
        field.update(Samples(x, field_at(x) + 3 * UT))
    assert key in field.tiles
    for x in PLACES[(PLACES - away).norm(dim=1) > 4.0][::40]:
        if key in field.shelf:
            break
        field.update(Samples(x[None], field_at(x[None])))
    assert key in field.shelf
    _, known = assert_told(field, moment, before, 0.0)
    assert not bool(known[(PLACES - away).norm(dim=1) < 0.3].any())


def test_a_tile_that_goes_over_to_what_was_learned_has_changed_and_its_team_is_told_what():
    field, samples = built(max_inducing=30, learn_hyperparameters=True), road(0.0, 6.0)
    for i in range(0, len(samples), 4):
        field.update(samples[i : i + 4])
        before, epoch = field.hyperparameters(), field.epoch
        several = field.counters()["tiles"] > 1 and field.former is None
        if several and field.refine() is False and field.hyperparameters() != before:
            break
    assert field.learned().theta.lengthscale == pytest.approx(
        field.hyperparameters()["lengthscale"], rel=0.2
    )
    assert field.hyperparameters() != before and float(field.learned().information[0, 0]) > 1.0
    here = samples.x[i + 3]
    assert any(
        low[0] <= here[0] <= high[0] and low[1] <= here[1] <= high[1]
        for low, high in field.changed_since(epoch)
    )


def test_a_tile_that_has_changed_all_over_says_how_far_that_matters():
    """Half a blend into a tile beside it, and where there is none until the prior is all that is left."""
    field = surveyed()
    length, half = field.current_map.theta.lengthscale, 0.5 * field.layout.blend
    told = set()
    for key in list(field.tiles)[::4]:
        before, epoch = field.predict(PLACES), field.epoch
        field.tiles[key].map.forget(0.2)
        field.note_change(key)
        ((low, high),) = field.changed_since(epoch)
        core_low, core_high = field.layout.core(key)
        for axis in range(2):
            for sign, end, core in ((-1, low, core_low), (1, high, core_high)):
                beside = (key[0] + sign, key[1]) if axis == 0 else (key[0], key[1] + sign)
                told.add(field.exists(beside))
                reach = sign * (end[axis] - core[axis])
                if field.exists(beside):
                    assert reach == pytest.approx(half)
                else:
                    assert reach > 2.0 * length
        now = field.predict(PLACES)
        inside = ((PLACES >= torch.tensor(low)) & (PLACES <= torch.tensor(high))).all(1)
        moved = ((now.variance / before.variance).log().abs())[:, 0]
        # a hundredth: where no tile is, those about a corner answer together for a long way
        assert float(moved[~inside].max()) < 0.01 and float(moved[inside].max()) > 0.1
    assert told == {True, False}

    # a change of all is one of everywhere, and nothing is known of what came before it
    epoch = field.epoch
    field.note_change()
    assert field.changed_since(epoch) is None and field.changed_since(field.epoch) == []


def test_changes_and_passes_are_counted_on_where_a_map_is_split():
    field, samples, epochs = built(max_inducing=30), road(0.0, 6.0), []
    for i in range(0, len(samples), 4):
        field.update(samples[i : i + 4])
        if i == 16:
            field.forget(0.9)
        epochs.append(field.epoch)
        if field.layout is not None:
            break
    assert field.layout is not None and epochs[-1] > 0 and epochs == sorted(epochs)
    field.update(dataclasses.replace(samples[:1], pass_number=torch.tensor([7.0]).double()))
    assert field.newest_pass == 7.0

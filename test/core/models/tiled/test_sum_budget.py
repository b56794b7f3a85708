"""A sum of maps in tiles has the inputs that the data of all robots ask for, wherever it is kept."""

import copy
from dataclasses import fields

import pytest
import torch
from map_contract import same_state
from tiled_data import SETTINGS, UT, field_at

from gp_mapping import MapSettings, Samples, create_map
from gp_mapping.core.models.dual_svgp import rebuilding

TIMES = 3  # in 4 budgets all would be one map
QUIET = SETTINGS | {
    "lengthscale": 0.5,
    "noise_stddev": 0.1 * UT,
    "inducing_information": 0.1,
    "max_inducing": 60,
}
PLACES = torch.cartesian_prod(torch.linspace(0.3, 3.5, 22), torch.linspace(0.2, 1.2, 8)).double()


def lanes(offset):
    """A measurement every .15 m on lanes .5 m apart, m."""
    rows = []
    for i, y in enumerate(torch.arange(offset, 1.5, 0.5, dtype=torch.float64)):
        along = torch.arange(0.0, 3.9, 0.15, dtype=torch.float64) + 0.07 * i
        rows.append(torch.stack([along, torch.full_like(along, float(y))], 1))
    return torch.cat(rows)


def robot(offset, **settings):
    """What one robot has mapped."""
    x = lanes(offset)
    field = create_map("dual_svgp", **(QUIET | settings))
    for part in x.split(30):
        field.update(Samples(part, field_at(part)))
    if settings.get("tiles", True):
        field.absorb_waiting()
    return field


@pytest.fixture(scope="module")
def robots():
    return robot(0.0), robot(0.25)


@pytest.fixture(scope="module")
def exact():
    field = create_map("exact", **{n: v for n, v in QUIET.items() if n != "tiles"})
    x = torch.cat([lanes(0.0), lanes(0.25)])
    field.update(Samples(x, field_at(x)))
    return field.predict(PLACES)


def summed(robots, times, most=9):
    """Their sum, with so many tiles in memory."""
    first, second = copy.deepcopy(robots)
    for field in (first, second):
        field.most = most
        field.shelve_tiles()
        field.widen_budget(times)
    first.merge(second)
    first.use_budget()
    return first


def away(field, exact):
    """Distance of the means in the exact GP's standard deviations, at nine of ten places."""
    told = field.predict(PLACES)
    return float(((told.mean - exact.mean).abs() / exact.variance.sqrt()).quantile(0.9))


def inputs_of(field):
    """Most inputs of a tile in memory."""
    return max(len(tile.map.basis) for tile in field.tiles.values())


@pytest.fixture(scope="module")
def whole(robots):
    return summed(robots, TIMES)


def test_a_sum_in_tiles_is_the_exact_gp_whichever_map_comes_first(robots, whole, exact):
    """The budget of one map leaves out what two robots have measured of one tile."""
    assert all(field.counters()["tiles"] > 1 for field in robots)
    for field in (whole, summed(robots[::-1], TIMES)):
        assert away(field, exact) < 0.01
        assert field.counters()["budget"] == TIMES * QUIET["max_inducing"] >= inputs_of(field)
    narrow = summed(robots, 1)
    assert inputs_of(narrow) <= QUIET["max_inducing"] == narrow.counters()["budget"]
    assert away(narrow, exact) > 0.04


def test_with_few_tiles_in_memory_it_says_the_same(robots, whole):
    shelved = summed(robots, TIMES, most=1)
    assert len(shelved.shelf) and not shelved.unreadable()
    told, same = shelved.predict(PLACES), whole.predict(PLACES)
    assert shelved.counters()["tiles_lost"] == 0
    assert float(((told.mean - same.mean) / same.stddev).abs().max()) < 1e-6
    for key in shelved.shelf.keys():  # and when it comes back to be changed
        assert shelved.load_tiles([key]) == [key]
        assert len(shelved.tiles[key].map.basis) == len(whole.tiles[key].map.basis)


@pytest.mark.parametrize("most", [9, 1])
def test_a_saved_sum_opens_as_it_was(robots, most):
    field = summed(robots, TIMES, most)
    state = field.state_dict()
    again = create_map("dual_svgp", **QUIET)
    again.load_state_dict(state)
    told, same = again.predict(PLACES), field.predict(PLACES)
    assert torch.equal(told.mean, same.mean) and torch.equal(told.variance, same.variance)
    assert again.counters()["tiles_lost"] == 0 and same_state(again.state_dict(), state)


def test_a_map_of_an_earlier_version_has_the_budget_of_its_settings(robots):
    state = copy.deepcopy(robots[0].state_dict())
    del state["widened"]
    for tile in state["tiles"].values():
        content = tile["state"].get()
        del content["map"]["budget"]
    again = create_map("dual_svgp", **QUIET)
    again.load_state_dict(state)
    assert torch.equal(again.predict(PLACES).mean, robots[0].predict(PLACES).mean)
    assert again.counters()["budget"] == QUIET["max_inducing"]


@pytest.mark.parametrize("sliced", [False, True])
def test_where_a_robot_goes_on_a_tile_returns_to_its_own_budget(whole, monkeypatch, sliced):
    """A sum is read; what it costs to update a map is bounded by the setting."""
    monkeypatch.setattr(rebuilding, "SLICE", 1.0)
    field, most = copy.deepcopy(whole), QUIET["max_inducing"]
    field.in_slices(sliced)
    home = field.layout.key_at(torch.tensor([0.1, 0.1]))
    assert len(field.tiles[home].map.basis) > most
    for step in range(25 if sliced else 1):
        x = torch.tensor([[0.1 + 0.001 * step, 0.1]]).double()
        field.update(Samples(x, field_at(x)))
    settled = [
        (tile.map.budget, len(tile.map.basis) <= most)
        for key, tile in field.tiles.items()
        if bool(field.layout.covers(key, x))
    ]
    assert settled.count((most, True)) == len(settled) if not sliced else (most, True) in settled
    assert field.tiles[home].map.sites.capacity == field.tiles[home].map.basis.features + most
    # all that the robot has not come to is as it was
    assert inputs_of(field) > most


def test_one_map_has_the_budgets_too_and_returns_to_its_own():
    settings = {n: v for n, v in QUIET.items() if n != "tiles"}
    first, second = (robot(offset, **(settings | {"tiles": False})) for offset in (0.0, 0.25))
    for field in (first, second):
        field.widen_budget(TIMES)
    first.merge(second)
    first.use_budget()
    assert len(first.basis) > QUIET["max_inducing"]
    again = create_map("dual_svgp", **(settings | {"tiles": False}))
    again.load_state_dict(first.state_dict())
    assert torch.equal(again.predict(PLACES).mean, first.predict(PLACES).mean)
    assert again.counters()["budget"] == TIMES * QUIET["max_inducing"]
    x = torch.tensor([[0.1, 0.1]]).double()
    again.update(Samples(x, field_at(x)))
    assert len(again.basis) <= QUIET["max_inducing"] == again.budget == again.basis.capacity


def test_a_sum_remembers_more_and_returns_to_what_one_map_does(monkeypatch):
    """What it no longer remembers one by one stays in what it says."""
    settings = {n: v for n, v in QUIET.items() if n != "tiles"} | {"memory_size": 80}
    first, second = (robot(offset, **(settings | {"tiles": False})) for offset in (0.0, 0.25))
    field = copy.deepcopy(first)
    field.widen_budget(TIMES)
    field.merge(second)
    assert 80 < len(field.remembered_places()) <= TIMES * 80 == field.memory.capacity
    most, fit = QUIET["max_inducing"], field.fit_budget
    with monkeypatch.context() as patch:
        patch.setattr(type(field), "fit_budget", lambda *_: None)
        field.begin_rebuild(field.theta, most)
    told = field.predict(PLACES)
    fit(most)
    same = field.predict(PLACES)
    assert float(((told.mean - same.mean) / told.stddev).abs().max()) < 1e-9
    assert float((told.stddev / same.stddev - 1.0).abs().max()) < 1e-9
    x = torch.tensor([[0.1, 0.1]]).double()
    for _ in range(2):
        assert len(field.remembered_places()) == 80 == field.memory.capacity
        assert not field.remembers_all and float(field.memory.order.max()) + 1 >= field.samples
        field.update(Samples(x, field_at(x)))


def test_a_sum_may_have_no_more_than_the_settings_allow():
    most = {f.name: f.metadata["high"] for f in fields(MapSettings)}
    field = create_map("dual_svgp", **(QUIET | {"tiles": False}))
    field.widen_budget(10**6)
    assert field.budget == most["max_inducing"] and field.memory_budget == most["memory_size"]


def test_a_fantasy_keeps_its_own_rows_when_samples_come():
    """It is no sum that returns to the budget of one map."""
    field = robot(0.0, tiles=False)
    at = torch.tensor([[0.3, 2.4], [2.0, 2.9], [3.3, 2.3]]).double()
    fantasy = field.fantasize(at)
    x = torch.tensor([[0.4, 2.4]]).double()
    fantasy.update(Samples(x, field_at(x)))
    apart = torch.cdist(at, fantasy.inducing_inputs()[:, :2]).amin(1)
    assert float(apart.max()) < 1e-6 and fantasy.rebuild is None
    assert fantasy.counters()["budget"] == QUIET["max_inducing"] + len(at)


def test_a_map_with_given_inputs_keeps_them():
    given = create_map("dual_svgp", **QUIET, inducing_inputs=PLACES[::9].numpy())
    given.widen_budget(TIMES)
    assert given.budget == len(PLACES[::9])


@pytest.mark.parametrize("most", [9, 1])
def test_a_sum_that_fits_into_one_budget_has_no_borders(robots, exact, most):
    """A tile knows its core and halo alone, which a quiet sensor would notice."""
    field = summed(robots, 4, most)
    told = field.predict(PLACES)
    off = (told.mean - exact.mean).abs() / exact.variance.sqrt()
    assert field.layout is None and not len(field.shelf) and float(off.max()) < 0.01
    assert float((told.stddev / exact.stddev - 1.0).abs().max()) < 0.01
    assert field.samples == sum(one.samples for one in robots)
    again = create_map("dual_svgp", **QUIET)
    again.load_state_dict(field.state_dict())
    assert torch.equal(again.predict(PLACES).mean, told.mean)
    # it goes on as any map: in tiles, where its own budget does not suffice
    for step in range(30):
        x = torch.tensor([[0.1 * step, 0.12]]).double()
        again.update(Samples(x, field_at(x)))
    assert again.layout is not None and inputs_of(again) <= QUIET["max_inducing"]
    assert again.samples == field.samples + 30

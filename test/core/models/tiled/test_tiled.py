"""A map of tiles: one room is the map that it was, a larger area has no seams, and what goes away comes back."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from map_contract import same_state

from gp_mapping import create_map
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.tile_copies import make_copy
from gp_mapping.core.stored import StoredState
from gp_mapping.core.types import Samples
from gp_mapping.errors import NumericalError

UT = 1e-6
SETTINGS = {
    "lengthscale": 0.6,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.3 * UT,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "centre": [45 * UT],
}
SMALL = {"max_inducing": 110, "memory_size": 600, "map_tile_side": 5.0}


def field_at(x):
    g = torch.Generator().manual_seed(5)
    w = torch.randn(200, 2, generator=g).double() / 0.6
    phase = 2 * math.pi * torch.rand(200, generator=g).double()
    return 45 * UT + UT * torch.cos(x @ w.mT + phase).sum(1, keepdim=True)


def lanes(width, height, gap=0.4, step=0.15):
    rows = []
    for i, y in enumerate(torch.arange(0.0, height + 1e-9, gap).double()):
        xs = torch.arange(0.0, width + 1e-9, step).double()
        rows.append(torch.stack([xs if i % 2 == 0 else width - xs, y.expand(len(xs))], 1))
    return torch.cat(rows)


def measured(x, seed=1):
    g = torch.Generator().manual_seed(seed)
    return Samples(x, field_at(x) + 0.3 * UT * torch.randn(len(x), 1, generator=g).double())


def build(**settings):
    return create_map("dual_svgp", **(SETTINGS | settings))


def drive(field, samples, size=24):
    """In batches of that many: each of the samples alone is test_slices.py's, and a session's."""
    for start in range(0, len(samples), size):
        field.update(samples[start : start + size])
    return field


@pytest.fixture(scope="module")
def survey():
    """8 × 4 m in tiles, and in one map that is large enough."""
    samples = measured(lanes(8.0, 4.0))
    return (
        drive(build(tiles=True, **SMALL), samples),
        drive(build(max_inducing=900), samples),
        samples,
    )


@pytest.fixture(scope="module")
def few(survey):
    """The same survey with four tiles in memory, fewer than a setting allows: so that some are put away."""
    field = build(tiles=True, **SMALL, tiles_in_memory=9)
    field.most = 4
    return drive(field, survey[2])


def test_one_room_is_the_map_without_tiles_bit_for_bit():
    samples, x = measured(lanes(2.0, 2.0)), 2.5 * torch.rand(50, 2).double()
    one, tiled = drive(build(), samples, 1), drive(build(tiles=True), samples, 1)
    assert tiled.counters()["tiles"] == 1
    a, b = one.predict(x), tiled.predict(x)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)
    assert torch.equal(one.covariance(x, x[:5]), tiled.covariance(x, x[:5]))


def test_a_room_that_its_budget_would_smooth_goes_on_in_tiles():
    """Nine lengthscales across: on its lanes as the exact GP, where one map of that budget is not; with enough, one."""
    noise, samples = {"noise_stddev": 0.5 * UT}, measured(lanes(5.4, 5.4))
    x = samples.x[::3]
    exact = create_map("exact", **(SETTINGS | noise))
    drive(exact, samples, len(samples))
    tiled, one, ample = (
        drive(build(tiles=tiles, max_inducing=m, **noise), samples, 4)
        for tiles, m in ((True, 180), (False, 180), (True, 500))
    )
    assert tiled.counters()["tiles"] > 1 and ample.counters()["tiles"] == 1
    judge = exact.predict(x)
    off = [
        float(((p.mean - judge.mean) / judge.stddev).square().mean().sqrt())
        for p in (field.predict(x) for field in (tiled, one, ample))
    ]
    assert off[0] < 1.2 * off[2] and off[0] < 0.5 * off[1], off
    assert all(tile.map.moves < one.moves / 3 for tile in tiled.tiles.values()), (
        "a tile with its halo fits its budget"
    )


def test_a_room_that_tiles_could_not_share_stays_one_however_full():
    """Of less than six lengthscales the smallest tile with its halo would know all."""
    field = drive(build(tiles=True, max_inducing=60), measured(lanes(3.4, 3.4)))
    assert field.counters()["budget_full"] > 0 and field.counters()["tiles"] == 1


def test_no_seam(survey):
    """Along every border, and everywhere else: as one large map within a tenth of its sd."""
    tiled, large, samples = survey
    assert tiled.counters()["tiles"] >= 4
    for key, tile in tiled.tiles.items():  # of all that reach a place each has its samples, once
        assert tile.map.samples == int(tiled.layout.covers(key, samples.x).sum()), key
    assert all(len(t.map.inducing_inputs()) <= SMALL["max_inducing"] for t in tiled.tiles.values())
    where = torch.cartesian_prod(
        torch.linspace(0.1, 7.9, 80), torch.linspace(0.1, 3.9, 40)
    ).double()
    near = torch.zeros(len(where), dtype=torch.bool)
    for key in tiled.tiles:
        near |= tiled.layout.outside(key, where).abs() < 0.3
    assert int(near.sum()) > 200
    a, b = tiled.predict(where), large.predict(where)
    deviation, spread = (a.mean - b.mean) / b.stddev, a.stddev / b.stddev
    inner = float(deviation[~near].square().mean().sqrt())
    assert float(deviation[near].square().mean().sqrt()) < max(0.1, 1.5 * inner)
    assert abs(float(spread[near].median()) - float(spread[~near].median())) < 0.1
    error = [float((p.mean - field_at(where)).square().mean().sqrt()) for p in (a, b)]
    assert error[0] < 1.1 * error[1]


def test_nothing_jumps_at_a_border(survey):
    tiled, large, _ = survey
    x = torch.stack(
        [torch.linspace(0.2, 7.8, 3000).double(), torch.full((3000,), 2.05).double()], 1
    )
    steps = [(p.mean[1:] - p.mean[:-1]).abs().max() for p in (tiled.predict(x), large.predict(x))]
    assert float(steps[0]) < 1.3 * float(steps[1])


def test_fewer_in_memory_says_the_same(survey, few):
    """Tiles that were put away, and came back, answer as before."""
    tiled, few = survey[0], copy.deepcopy(few)
    assert len(few.shelf) > 0 and len(few.tiles) <= 9
    x = torch.cartesian_prod(torch.linspace(0.0, 8.0, 30), torch.linspace(0.0, 4.0, 15)).double()
    a, b = tiled.predict(x), few.predict(x)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)
    assert few.counters()["tiles_loaded"] > 0

    there = replace(few.current_map.theta, lengthscale=1.1 * few.current_map.theta.lengthscale)
    before, most = few.tile_count, len(few.layout.neighbourhood(few.current))
    assert few.agree_on(there) and few.tile_count == before, (
        "each tile goes to a team's hyper-parameters"
    )
    assert len(few.tiles) <= most and len(few.shelf) > 0, "and back to the shelf"
    assert all(
        make_copy(key, few.shelf.peek(key), few.forgot, few.restored).theta == there
        for key in few.shelf.keys()
    )


def test_a_tile_forgets_when_it_comes_back_what_was_forgotten_meanwhile(survey, few):
    whole, few = copy.deepcopy(survey[0]), copy.deepcopy(few)
    away, again = (
        set(few.shelf.keys()),
        measured(lanes(8.0, 0.0), seed=3),
    )  # the first lane, which was left long ago
    for field in (whole, few):
        field.forget(0.2)
        drive(field, again)
    back = [key for key in few.tiles if key in away]
    assert back, "a tile that lay on the shelf when something was forgotten is there again"
    x = torch.cartesian_prod(torch.linspace(0.0, 8.0, 30), torch.linspace(0.0, 4.0, 15)).double()
    a, b = whole.predict(x), few.predict(x)
    assert torch.allclose(a.mean / UT, b.mean / UT, atol=1e-6) and torch.allclose(
        a.variance, b.variance, rtol=1e-6, atol=0.0
    )


def test_questions_leave_no_trace(survey):
    """The map depends on its samples alone, whoever asks what in between."""
    samples = survey[2][:400]
    silent, asked = (build(tiles=True, **SMALL, tiles_in_memory=9) for _ in range(2))
    silent.most = asked.most = 4
    x = torch.cartesian_prod(torch.linspace(0.0, 8.0, 10), torch.linspace(0.0, 4.0, 8)).double()
    for start in range(0, len(samples), 20):
        for field in (silent, asked):
            field.forget(0.999)
            drive(field, samples[start : start + 20])
        asked.predict(x)
        asked.covariance(x[:3], x)
        asked.fantasize(x[:2])
    assert torch.equal(asked.predict(x).mean, silent.predict(x).mean)
    assert sorted(asked.tiles) == sorted(silent.tiles) and len(asked.shelf) > 0


def test_what_is_not_remembered_is_not_lost():
    """A room long driven over, then on: the first map stays whole, as a tile."""
    few = SMALL | {"memory_size": 150, "max_inducing": 400}
    room, out = (
        measured(lanes(3.0, 3.0, step=0.1)),
        measured(lanes(5.0, 0.8) + torch.tensor([3.2, 0.0]), seed=2),
    )
    field = drive(build(tiles=True, **few), room)
    x = torch.cartesian_prod(torch.linspace(0.2, 2.4, 12), torch.linspace(1.6, 2.8, 8)).double()
    before = field.predict(x)
    drive(field, out)
    assert field.counters()["tiles"] > 1
    assert float(((field.predict(x).mean - before.mean) / before.stddev).abs().max()) < 0.5


class Gone:
    """Where a state was that cannot be read any more."""

    def visible_fault(self) -> str:
        return ""

    def read(self) -> dict:
        raise OSError("it is gone")


def test_a_tile_that_cannot_be_loaded_is_counted_and_named(survey):
    state = copy.deepcopy(survey[0].state_dict())
    name = max(state["tiles"], key=lambda name: name != str(state["current"]))
    state["tiles"][name]["state"] = StoredState(name, None, Gone())
    field = build(tiles=True, **SMALL)
    field.load_state_dict(state)
    assert field.counters()["tiles_lost"] == 1 and "it is gone" in " ".join(field.notes())


def test_a_tile_that_does_not_come_back_from_the_shelf_is_counted_and_named(survey):
    field = build(tiles=True, **SMALL)
    field.load_state_dict(copy.deepcopy(survey[0].state_dict()))
    report = field.update(measured(lanes(1.0, 1.0))[:0])
    assert (report.used, report.samples) == (0, field.current_map.samples)
    key = next(iter(field.shelf.keys()))
    field.shelf.put(key, StoredState("a tile", None, Gone()))
    assert field.load_tiles([key, field.current]) == [field.current] and key not in field.shelf
    assert field.counters()["tiles_lost"] == 1 and "it is gone" in " ".join(field.notes())


def test_resume_is_bit_for_bit(survey):
    tiled, _, samples = survey
    state = copy.deepcopy(tiled.state_dict())
    again = build(tiles=True, **SMALL)
    again.load_state_dict(state)
    more = measured(lanes(3.0, 1.0) + torch.tensor([7.0, 3.0]), seed=2)
    other = build(tiles=True, **SMALL)
    other.load_state_dict(copy.deepcopy(state))
    drive(again, more)
    drive(other, more)
    x = torch.cartesian_prod(torch.linspace(0.0, 10.0, 30), torch.linspace(0.0, 4.0, 15)).double()
    assert torch.equal(again.predict(x).mean, other.predict(x).mean)
    assert again.samples == len(samples) + len(more)


def test_an_old_file_of_one_map_goes_on_in_tiles():
    samples = measured(lanes(3.0, 2.0))
    one = drive(build(**SMALL), samples)
    tiled = build(tiles=True, **SMALL)
    tiled.load_state_dict(one.state_dict())
    x = 2 * torch.rand(20, 2).double()
    assert torch.equal(one.predict(x).mean, tiled.predict(x).mean)
    drive(tiled, measured(lanes(3.0, 2.0) + torch.tensor([3.2, 0.0])))
    assert tiled.counters()["tiles"] > 1


def test_a_covariance_is_one(survey):
    tiled, _, _ = survey
    x = torch.cartesian_prod(torch.linspace(1.0, 7.0, 20), torch.linspace(0.5, 3.5, 8)).double()
    c = tiled.covariance(x, x) / UT**2
    assert torch.allclose(c, c.mT, atol=1e-9)
    assert float(torch.linalg.eigvalsh(c).min()) > -1e-8
    assert torch.allclose(c.diagonal(), tiled.predict(x).variance[:, 0] / UT**2, rtol=1e-6)
    beyond = torch.cat(
        [x[::7], torch.tensor([[30.0, -20.0], [9.5, 5.5]]).double()]
    )  # where no tile is, and near one
    shared, variance = tiled.covariance_with(x[-60:])(beyond)
    assert torch.allclose(shared / UT**2, tiled.covariance(x[-60:], beyond).mT / UT**2, atol=1e-9)
    assert torch.allclose(variance, tiled.predict(beyond).variance[:, 0], rtol=1e-9, atol=0.0)
    assert float(shared[-2].abs().max()) == 0.0 and float(shared[-1].abs().max()) > 0.0


def test_places_on_either_side_of_a_border_have_in_common_what_one_large_map_says():
    """Lanes two lengthscales apart; pairs up to one and a half apart, neither within half of one of the border."""
    samples = measured(lanes(8.0, 4.0, gap=1.2))
    tiled, large = (
        drive(build(tiles=True, **SMALL), samples),
        drive(build(max_inducing=900), samples),
    )
    layout, length = tiled.layout, SETTINGS["lengthscale"]
    border = layout.core((0, 0))[0][0]  # along y
    y = torch.linspace(0.3, 3.7, 40).double()
    for apart, least in ((1.1, 0.3), (1.5, 0.1)):
        left, right = (
            torch.stack([torch.full_like(y, border + s * 0.5 * apart * length), y], 1)
            for s in (-1.0, 1.0)
        )
        mine, its = (
            f.covariance(left, right).diagonal()
            / (f.predict(left).stddev * f.predict(right).stddev)[:, 0]
            for f in (tiled, large)
        )
        assert float(its.abs().max()) > least, "there is something in common"
        assert float((mine - its).square().mean().sqrt()) < 0.05
        assert float((mine - its).abs().max()) < 0.15


def test_a_snapshot_has_the_covariance_of_its_moment(survey):
    """A planner asks one: the map goes on being written while it plans."""
    tiled, _, samples = survey
    tiled = copy.deepcopy(tiled)
    a, b = samples.x[::40] + 0.1, samples.x[::60] - 0.1
    before, told = tiled.covariance(a, b) / UT**2, tiled.snapshot()
    said = told.covariance(a, b)
    assert len(told.tiles) > 1 and torch.allclose(said / UT**2, before, atol=1e-9)
    drive(tiled, measured(lanes(8.0, 4.0) + 0.2, seed=2), 20)
    assert torch.equal(told.covariance(a, b), said)
    assert not torch.allclose(tiled.covariance(a, b) / UT**2, before, atol=1e-3)


def test_a_fantasy_keeps_the_mean_narrows_and_leaves_the_map(survey):
    tiled, _, _ = survey
    x = torch.tensor([[4.0, 4.6], [8.5, 2.0]]).double()
    before = tiled.predict(x)
    new = tiled.fantasize(x)
    after = new.predict(x)
    assert torch.allclose(after.mean, before.mean, rtol=1e-9, atol=0.0)
    assert bool((after.variance < 0.2 * before.variance).all())
    assert torch.equal(tiled.predict(x).variance, before.variance)


def test_what_changed_is_forgotten_in_every_tile(survey):
    """At places of lanes along a border; how much a full budget knew of one of them is a matter of where inputs lie."""
    tiled = copy.deepcopy(survey[0])
    x = torch.tensor([[tiled.layout.high[0], y] for y in (0.8, 2.0, 3.2)]).double()
    before = tiled.predict(x).variance
    assert tiled.forget_near(x, 0.5, 0) > 15
    assert float((tiled.predict(x).variance / before).log().mean().exp()) > 5


def test_merging_two_surveys_is_the_survey_of_both():
    left, right = (
        measured(lanes(3.0, 3.0)),
        measured(lanes(5.0, 3.0) + torch.tensor([3.2, 0.0]), seed=2),
    )
    a, b = drive(build(tiles=True, **SMALL), left), drive(build(tiles=True, **SMALL), right)
    assert b.counters()["tiles"] > 1
    a.merge(b)
    x = torch.cartesian_prod(torch.linspace(0.2, 8.0, 40), torch.linspace(0.2, 2.8, 15)).double()
    p = a.predict(x)
    assert float((p.mean - field_at(x)).square().mean().sqrt()) < 1.3 * float(
        p.stddev.square().mean().sqrt()
    )
    assert float(p.stddev.max()) < 5 * UT  # no ground is missing
    assert a.samples == len(left) + len(right)
    # each is in every tile that reaches its place, once: also beyond the other's borders, and ours
    both = torch.cat([left.x, right.x])
    for key, tile in a.tiles.items():
        assert tile.map.samples == int(a.layout.covers(key, both).sum()), key
    whole = drive(drive(build(max_inducing=900), left, 50), right, 50).predict(x)
    assert float(((p.mean - whole.mean) / whole.stddev).square().mean().sqrt()) < 0.3


def test_a_merge_that_fails_in_the_third_tile_changes_none(survey, monkeypatch):
    """Nor does it take one from the shelf, which is part of no transaction."""
    tiled, other = copy.deepcopy(survey[0]), copy.deepcopy(survey[0])
    tiled.most = 2
    tiled.shelve_tiles()
    x = torch.cartesian_prod(torch.linspace(0.0, 9.0, 30), torch.linspace(0.0, 4.0, 15)).double()
    shelved, at_hand = set(tiled.shelf.keys()), set(tiled.tiles)
    before, counters, samples = tiled.predict(x), tiled.counters(), tiled.samples
    assert shelved
    reached, merge_own = [], DualSVGP.merge_same_robot

    def fails(self, seed):
        reached.append(id(self))
        if len(set(reached)) == 3:
            raise NumericalError("a pivot is NaN")
        merge_own(self, seed)

    with monkeypatch.context() as patched:
        patched.setattr(DualSVGP, "merge_same_robot", fails)
        with pytest.raises(NumericalError, match="a pivot is NaN"):
            tiled.merge(other)
    after = tiled.predict(x)
    assert torch.equal(after.mean, before.mean) and torch.equal(after.variance, before.variance)
    assert (set(tiled.shelf.keys()), set(tiled.tiles)) == (shelved, at_hand)
    assert tiled.samples == samples and tiled.counters() == counters
    tiled.merge(other)
    assert tiled.samples == samples + other.samples


def test_a_batch_that_is_refused_changes_no_tile(survey):
    tiled = copy.deepcopy(survey[0])
    x = torch.cartesian_prod(torch.linspace(0.0, 9.0, 30), torch.linspace(0.0, 4.0, 15)).double()
    before, count = tiled.predict(x), tiled.samples
    border = tiled.layout.high[0]
    # refused by the first tile that is asked; and by the last, after the first has taken its sample
    for places, values in (
        ([[border, 1.0], [border + 0.01, 1.0], [9.9, 1.0]], [[45e-6], [1e15], [45e-6]]),
        ([[0.1, 1.0], [9.9, 1.0]], [[45e-6], [1e15]]),
    ):
        bad = Samples(torch.tensor(places).double(), torch.tensor(values).double())
        with pytest.raises(Exception, match="credible"):
            tiled.update(bad)
        after = tiled.predict(x)
        assert torch.equal(after.mean, before.mean) and tiled.samples == count


def test_a_split_that_fails_takes_its_batch_back(monkeypatch):
    """The map is not half in tiles; the same batch later makes what it would have made."""
    settings = {"max_inducing": 40, "memory_size": 300, "map_tile_side": 3.0, "tiles": True}
    settings |= {"learn_hyperparameters": True}
    samples, field, plain = measured(lanes(5.0, 1.2)), build(**settings), build(**settings)
    split, excerpts, excerpt = field.split_into_tiles, [], DualSVGP.excerpt

    def fails(self, indices):
        excerpts.append(indices)
        if len(excerpts) == 3:
            raise NumericalError("the third part of a tile")
        return excerpt(self, indices)

    def failing():
        monkeypatch.setattr(DualSVGP, "excerpt", fails)
        split()

    monkeypatch.setattr(field, "split_into_tiles", failing)
    for start in range(0, len(samples), 4):
        batch = samples[start : start + 4]
        before, theta = copy.deepcopy(field.state_dict()), field.current_map.theta
        try:
            field.update(batch)
        except NumericalError:
            break
        plain.update(batch)

    assert len(excerpts) == 3 and field.layout is None and field.counters()["tiles"] == 1
    assert same_state(before, field.state_dict()) and field.current_map.theta == theta
    monkeypatch.undo()
    for each in (field, plain):
        drive(each, samples[start:])
    mine, its = (each.predict(samples.x) for each in (field, plain))
    assert torch.equal(mine.mean, its.mean) and torch.equal(mine.variance, its.variance)
    assert plain.counters() == field.counters() and plain.counters()["tiles"] > 1


def test_cost_and_memory_stay_as_they_are():
    """A road of 60 m in tiles: no tile grows over its budget, and no more than so many are in memory."""
    field = build(tiles=True, **SMALL, tiles_in_memory=9)
    x = torch.stack([torch.arange(0, 60, 0.1).double(), torch.zeros(600).double()], 1)
    drive(field, measured(x), 2)
    told = field.counters()
    assert told["tiles"] > 9 >= told["tiles_in_memory"]
    for tile in field.tiles.values():  # handed on from tile to tile, nothing is counted twice
        assert tile.map.memory.arrivals <= len(x) and float(tile.map.memory.order.max()) < len(x)
    p = field.predict(x)
    assert float((p.mean - field_at(x)).square().mean().sqrt()) < 0.5 * UT
    assert float(p.stddev.max()) < UT


def test_nothing_can_be_asked_before_the_first_sample():
    field, x = build(tiles=True, **SMALL), torch.zeros(1, 2, dtype=torch.float64)
    for ask in (field.predict, field.fantasize, lambda at: field.covariance(at, at)):
        with pytest.raises(RuntimeError, match="no sample"):
            ask(x)


def test_a_map_of_one_room_agrees_on_a_theta_as_its_one_map_does():
    field = drive(build(tiles=True, **SMALL), measured(lanes(1.0, 0.4)))
    theta = replace(field.current_map.theta, lengthscale=0.7)
    assert field.layout is None and field.agree_on(theta) is True
    assert field.current_map.theta.lengthscale == 0.7

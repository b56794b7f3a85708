"""Constants of passes over several tiles: what one tile finds out, the others know."""

import copy
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from map_contract import same_state
from test_tiled import SETTINGS, UT, field_at, lanes, measured

from gp_mapping import create_map
from gp_mapping.core.hyper.bias import SEGMENT
from gp_mapping.core.models.tiled import shared_constants
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.stored import StoredState

BIAS = 4.0
SMALL = {"max_inducing": 110, "memory_size": 600, "map_tile_side": 5.0, "tiles": True}
WIDTH, BAND, BANDS = 5.0, 2.4, 3


def survey(bias=1.0):
    """Bands beside each other, each a pass with a constant of its own; neighbours share a lane."""
    batches, g = [], torch.Generator().manual_seed(11)
    for number in range(BANDS):
        x = lanes(WIDTH, BAND + 0.4) + torch.tensor([0.0, number * BAND])
        batch = measured(x, seed=number)
        constant = bias * BIAS * UT * float(torch.randn((), generator=g))
        numbers = torch.full((len(x),), float(number), dtype=torch.float64)
        batch = replace(batch, y=batch.y + constant, pass_number=numbers)
        batches.append(batch)
    return batches


def build(model="dual_svgp", **settings):
    given = {"bias_stddev": BIAS * UT, "learn_bias": False}
    return create_map(model, **(SETTINGS | SMALL | given | settings))


def driven(field, batches, size=20):
    for batch in batches:
        for start in range(0, len(batch), size):
            field.update(batch[start : start + size])
    return field


def plain(state):
    """A state with the content of the tiles' own states, in tensors of its own."""
    if isinstance(state, StoredState):
        return plain(state.get())
    if isinstance(state, dict):
        return {name: plain(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [plain(value) for value in state]
    return copy.deepcopy(state)


def error(field):
    """RMSE in µT, but for the common level, which the passes' constants leave open."""
    side = torch.linspace(0.2, WIDTH - 0.2, 25).double()
    x = torch.cartesian_prod(side, torch.linspace(0.2, BANDS * BAND - 0.2, 40).double())
    wrong = (field.predict(x).mean - field_at(x)) / UT
    return float((wrong - wrong.mean()).square().mean().sqrt())


@pytest.fixture(scope="module")
def tiles():
    return driven(build(tiles_in_memory=9), survey())


@pytest.fixture(scope="module")
def told():
    return driven(build(bias_stddev=0.0), survey(bias=0.0))


def test_tiles_know_the_constants_as_a_map_that_is_told_them(tiles, told):
    assert len(tiles.shelf) > 2
    assert error(tiles) < 1.1 * error(told)  # 2.5 times as much where no tile tells another
    assert told.bias_variance().tolist() == [0.0]
    assert tiles.bias_variance().sqrt().item() == pytest.approx(BIAS * UT, rel=0.05)


def test_a_tile_tells_nothing_that_it_has_not_found_out(tiles):
    for key, tile in tiles.tiles.items():
        if tile.evidence is not None:
            assert float(tile.evidence.precision.sum(1).abs().max()) < 1e-9, key


def test_tiles_of_two_sets_of_inputs_tell_what_those_of_one_tell(tiles):
    """The same inputs, of which half are orthogonal: evidence is of all of D."""
    half = SMALL["max_inducing"] // 2
    sizes = {"max_inducing": half, "max_orthogonal": half, "tiles_in_memory": 9}
    both, told = driven(build("solve_gp", **sizes), survey()), 0
    for key, tile in both.tiles.items():
        if tile.evidence is not None and tile.map.samples == tiles.tiles[key].map.samples:
            expected = tiles.tiles[key].evidence
            assert torch.allclose(tile.evidence.precision, expected.precision, rtol=1e-6)
            assert torch.allclose(tile.evidence.linear, expected.linear, rtol=1e-6)
            told += 1
    assert told


def test_samples_of_halos_count_once(tiles):
    field = copy.deepcopy(tiles)
    field.absorb_waiting()
    # side 3 and halo 1.5 lengthscales: a quarter of what a tile covers is its core
    for key in [(0, 2), (0, 3)]:
        tile = field.tiles[key]
        whole = tile.map.posterior.pass_evidence().of_differences()
        assert torch.allclose(tile.evidence.precision, 0.25 * whole.precision, rtol=1e-6)


def test_what_is_said_is_the_same_on_the_shelf_and_in_memory(tiles):
    field = copy.deepcopy(tiles)
    before = shared_constants.shared_evidence(field).others((9, 9))
    assert len(field.shelved_evidence) > 1
    assert field.load_tiles(field.shelf.keys()) and not len(field.shelf)
    after = shared_constants.shared_evidence(field).others((9, 9))
    at = [after.numbers.index(number) for number in before.numbers]
    assert torch.allclose(after.precision[at][:, at], before.precision, rtol=1e-6, atol=1e-9)
    assert torch.allclose(after.linear[at], before.linear, rtol=1e-6, atol=1e-6)


def test_a_question_is_answered_with_what_was_found_out_since(tiles):
    field = copy.deepcopy(tiles)
    for key in field.shelf.keys():
        asked, stored = field.map_for(key), field.shelf.peek(key).get()
        told = asked.sites.passes
        own = stored["evidence"]
        own = None if own is None else PassEvidence.from_state_dict(own, "cpu")
        others = shared_constants.shared_evidence(field).others(key, own, on_shelf=True)
        assert others.divergence(told.elsewhere, told.numbers, BIAS**2) < 0.02


def test_all_constants_are_listed_wherever_the_robot_is(tiles):
    field = copy.deepcopy(tiles)
    field.absorb_waiting()
    assert field.current_map.sites.passes.numbers == (2.0,)
    listed = field.biases()
    assert [bias.number for bias in listed] == [0.0, 1.0, 2.0]

    g = torch.Generator().manual_seed(11)
    true = BIAS * torch.randn(BANDS, generator=g)
    told = torch.tensor([float(bias.mean[0]) for bias in listed]) / UT
    assert torch.allclose((told - told.mean()), (true - true.mean()), atol=0.3)


def test_without_constants_nothing_is_told(told):
    assert told.evidence_version == 0
    assert all(tile.evidence is None for tile in told.tiles.values())


def test_a_saved_map_goes_on_to_the_bit(tiles):
    """Also where the passes to come are of tiles that lie on the shelf."""
    field, again = copy.deepcopy(tiles), build(tiles_in_memory=9)
    new = [replace(band[:80], pass_number=band.pass_number[:80] + 3.0) for band in survey()[::2]]
    again.load_state_dict(copy.deepcopy(field.state_dict()))
    assert same_state(plain(field.state_dict()), plain(again.state_dict()))
    for one in (field, again):
        driven(one, new)
    assert same_state(plain(field.state_dict()), plain(again.state_dict()))


def test_a_refused_update_leaves_what_was_told(tiles, monkeypatch):
    field, told = copy.deepcopy(tiles), []

    def said():
        state = plain(field.state_dict())
        # where the robot has been is not what the map knows
        return [state[name] for name in ("evidence_version", "pass_evidence")] + [
            part["state"] for _, part in sorted(state["tiles"].items())
        ]

    def shared(model, stack, new):
        version = model.evidence_version
        share(model, stack, new)
        told.append(model.evidence_version - version)
        raise RuntimeError("after a tile has told the others")

    share, before = shared_constants.exchange_due, said()
    monkeypatch.setattr("gp_mapping.core.models.tiled.model.shared_constants.exchange_due", shared)
    with pytest.raises(RuntimeError):
        field.update(survey()[-1][-110:])
    assert told[0] > 0 and same_state({"said": before}, {"said": said()})


def test_copies_of_the_shelf_are_made_anew_when_they_would_be_told_something_else(tiles):
    field = copy.deepcopy(tiles)
    near = survey()[-1][-2:]
    field.update(near)
    asked = [field.map_for(key) for key in field.shelf.keys()]
    field.update(near)
    assert asked == [field.map_for(key) for key in field.shelf.keys()]

    # as if they had been told nothing so far: the next tile that tells has all of them told
    field.shelf_prior, epoch = field.shelf_prior.scale(0.0), field.epoch
    field.update(survey()[-1][-110:])
    assert field.epoch > epoch
    for before, key in zip(asked, field.shelf.keys()):
        assert field.map_for(key) is not before


def test_a_tile_is_told_of_so_many_passes_by_the_nearest_first():
    def of(*numbers):
        eye = torch.eye(len(numbers), dtype=torch.float64)
        return PassEvidence(tuple(map(float, numbers)), eye, eye[:, :1])

    tiles = {(k, 0): of(10 * k, 10 * k + 1) for k in range(5)}
    said = shared_constants.SharedEvidence(tiles, of(90, 91), most=6, variance=1.0)
    assert set(said.others((0, 0)).numbers) == {10.0, 11.0, 20.0, 21.0, 30.0, 31.0}
    assert set(said.others((4, 0)).numbers) == {10.0, 11.0, 20.0, 21.0, 30.0, 31.0}
    # one on the shelf is told what those there say first
    assert set(said.others((9, 0), on_shelf=True).numbers) == {90.0, 91.0, 30.0, 31.0, 40.0, 41.0}
    assert shared_constants.SharedEvidence({}, None, most=6, variance=1.0).others((0, 0)) is None


def test_a_tile_is_told_of_the_segments_beside_its_own():
    """Of a sensor that drifts: another tile knows the segment before, and nothing of this one."""
    here, beside = 1.0 + SEGMENT, 1.0
    field = create_map("dual_svgp", **SETTINGS | {"bias_stddev": BIAS * UT, "learn_bias": False})
    x = lanes(2.0, 1.0)
    field.update(replace(measured(x), pass_number=torch.full((len(x),), here, dtype=torch.float64)))
    one = torch.ones(1, 1, dtype=torch.float64)
    said = shared_constants.SharedEvidence(
        {(1, 0): PassEvidence((beside,), one, one)}, None, 6, BIAS**2
    )
    for correlation in (0.0, 0.9):
        field.adopt(replace(field.theta, bias_correlation=correlation))
        said.prepare((0, 0), field, {})
        assert (field.sites.passes.elsewhere is not None) == (correlation > 0.0)


def test_a_tile_that_is_sent_knows_the_constants(tiles):
    key, tile = next((k, t) for k, t in sorted(tiles.tiles.items()) if t.map.unremembered_empty)
    there = tile.map.sites.passes.elsewhere
    state = tiles.slimmed(plain(tile.stored("sent")))
    sent = tiles.restored(state["map"]).sites.passes.elsewhere
    assert same_state(there.state_dict(), sent.state_dict()), key


def test_the_shelf_keeps_so_many_passes():
    field = driven(build(tiles_in_memory=9, max_biases=2), survey())
    assert len(field.shelf) > 2
    assert len(field.shelved_evidence) <= 2


def test_tiles_of_two_robots_know_the_constants_of_both(told):
    """A sum gets no further samples, with which tiles would tell each other what the other knows."""
    first, second = driven(build(), survey()[:2]), driven(build(), survey()[2:])
    first.merge(second)
    before = error(first)
    first.use_budget()
    assert error(first) < 1.1 * error(told) < 0.8 * before


def told_nothing(tiles):
    """The map, none of whose tiles in memory has told or been told anything."""
    field = copy.deepcopy(tiles)
    field.absorb_waiting()
    for tile in field.tiles.values():
        passes = tile.map.sites.passes
        if passes.elsewhere is not None:
            tile.map.adopt_pass_evidence(passes.elsewhere.scale(0.0))
        tile.evidence, tile.evidence_samples = None, -1
    return field


def test_settled_tiles_have_told_all_that_they_know_and_know_what_the_others_say(tiles):
    """First all tell and then all are told: what the last one says, the first one knows. Again, nothing changes."""
    field = told_nothing(tiles)
    copied = {key: field.map_for(key) for key in field.shelf.keys()}
    versions = []
    for _ in range(2):
        shared_constants.exchange_all(field)
        versions.append((field.evidence_version, [t.map.epoch for t in field.tiles.values()]))
    assert versions[0] == versions[1]

    said = shared_constants.shared_evidence(field)
    assert (
        len(said.tiles) > 1 and len({n for part in said.tiles.values() for n in part.numbers}) > 1
    )
    for key, tile in field.tiles.items():
        assert tile.evidence_samples == tile.map.samples
        own = tile.map.posterior.pass_evidence()
        if own is not None and len(own) > 1:
            own = own.of_differences().scale(field.layout.core_fraction(key))
            assert torch.allclose(tile.evidence.precision, own.precision, rtol=1e-6, atol=1e-9)
        others, passes = said.others(key), tile.map.sites.passes
        assert others.divergence(passes.elsewhere, passes.numbers, BIAS**2) < 0.02
    # of those on the shelf, copies are told anew
    assert copied and all(field.map_for(key) is not copied[key] for key in copied)


def test_a_map_without_tiles_or_constants_settles_as_it_is(told):
    one = driven(build(), [survey()[0][:20]])
    assert one.layout is None and len(told.tiles) > 1
    for field in (one, copy.deepcopy(told)):
        before = plain(field.state_dict())
        shared_constants.exchange_all(field)
        assert same_state(before, plain(field.state_dict()))


def those_with_a_turn(monkeypatch, new, *tiles):
    """Which of some tiles renew something with so many new samples, and whether their evidence."""
    asked = []
    monkeypatch.setattr(
        shared_constants,
        "_exchange",
        lambda model, key, tile, anew: asked.append((key, anew)) or True,
    )
    monkeypatch.setattr(shared_constants, "transaction", lambda tile: nullcontext())
    model = SimpleNamespace(former=None, current=len(tiles) - 1, turn=9, evidence_version=3)
    model.current_map = SimpleNamespace(theta=SimpleNamespace(bias_stddev=1.0))
    usual = {"evidence_samples": 200, "touched": 9, "seen_version": 3, "seeds": 0}
    model.tiles = {
        number: SimpleNamespace(map=SimpleNamespace(started=True, samples=200), **usual | tile)
        for number, tile in enumerate(tiles)
    }
    shared_constants.exchange_due(model, ExitStack(), new)
    return asked


@pytest.mark.parametrize(
    "tile, anew",
    [
        ({}, None),  # it knows all
        ({"evidence_samples": -1}, True),  # its evidence has never been computed
        ({"evidence_samples": 101}, None),  # where the robot is, 99 more wait
        ({"evidence_samples": 100}, True),
        ({"touched": 8}, None),  # the robot has left it: nothing new
        ({"touched": 8, "evidence_samples": 199}, True),
        ({"seen_version": 2}, False),  # another tile's evidence is new
        ({"evidence_samples": -1, "seeds": 1}, None),  # it still takes what its neighbours have
    ],
)
def test_a_tile_has_its_turn_where_there_is_something_to_renew(monkeypatch, tile, anew):
    expected = [] if anew is None else [(0, anew)]
    assert those_with_a_turn(monkeypatch, 1, tile) == expected


@pytest.mark.parametrize("new, turns", [(1, 1), (10, 1), (11, 2), (40, 3)])
def test_one_tile_has_its_turn_with_ten_samples_and_where_the_robot_is_the_last(
    monkeypatch, new, turns
):
    waiting = {"seen_version": 2}, {"seen_version": 1}, {"seen_version": 0}
    asked = those_with_a_turn(monkeypatch, new, *waiting)
    assert asked == [(2, False), (1, False), (0, False)][:turns]

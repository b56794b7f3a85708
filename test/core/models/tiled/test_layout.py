"""Tiles cover the plane once, and their weights are continuous and sum to one."""

import math
from dataclasses import replace

import pytest
import torch

from gp_mapping import Prediction
from gp_mapping.core.models.tiled.blended import (
    KeptWeights,
    blended_covariances,
    blended_prediction,
    tile_weights,
)
from gp_mapping.core.models.tiled.layout import Layout, side_for

LAYOUT = Layout((-1.0, 2.0), (4.0, 4.5), 3.0, 1.2, 0.6)
PLACES = torch.rand(4000, 2, generator=torch.Generator().manual_seed(0)).double() * 40 - 20


def test_every_place_has_one_core():
    seen = torch.zeros(len(PLACES))
    for key, which in LAYOUT.group_by_tile(PLACES):
        seen[which] += 1
        low, high = LAYOUT.core(key)
        assert bool(
            (PLACES[which] >= torch.tensor(low)).all()
            and (PLACES[which] <= torch.tensor(high)).all()
        )
        assert {LAYOUT.key_at(PLACES[i]) for i in which[:20].tolist()} == {key}
    assert bool((seen == 1).all())
    assert LAYOUT.core((0, 0)) == ([-1.0, 2.0], [4.0, 4.5])
    assert LAYOUT.core((1, -1)) == ([4.0, -1.0], [7.0, 2.0])


def test_one_place_has_the_core_that_it_has_among_others():
    edges = torch.tensor(
        [[-1.0, 2.0], [4.0, 4.5], [7.0, -1.0], [-4.0, 7.5], [3.999999999, 2.0]]
    ).double()
    places = torch.cat([PLACES[:200], edges])
    among = {i: key for key, which in LAYOUT.group_by_tile(places) for i in which.tolist()}
    for i in range(len(places)):
        ((key, which),) = LAYOUT.group_by_tile(places[i : i + 1])
        assert key == among[i] and which.tolist() == [0]


def test_a_place_on_a_border_is_in_the_same_core_whoever_has_rounded_it():
    edges = torch.tensor([[-1.0, 2.0], [4.0, 4.5], [7.0, -1.0], [-4.0, 7.5], [-7.0, 3.0]]).double()
    about = [edges, edges + 1e-9, edges - 1e-9]
    told = [[LAYOUT.key_at(x.tolist()) for x in places] for places in about]
    assert told[0] == told[1] == told[2] == [(0, 0), (1, 1), (2, -1), (-1, 2), (-2, 0)]
    for places in [*about, PLACES[:300]]:
        keys, owner = LAYOUT.owners(places)
        for i, key in enumerate(keys):
            assert torch.equal(LAYOUT.holds(key, places), owner == i)


def test_weights_are_one_inside_and_go_over_without_a_step():
    line = torch.stack(
        [torch.linspace(0.0, 8.0, 4001).double(), torch.full((4001,), 3.0).double()], 1
    )
    keys = [(0, 0), (1, 0), (2, 0)]
    weights = torch.zeros(3, 4001).double()
    for key, which, weight in tile_weights(LAYOUT, keys.__contains__, line):
        weights[keys.index(key), which] = weight
    assert torch.allclose(weights.sum(0), torch.ones(4001).double())
    # of half a period of a sine the slope is at most π/2
    assert float(weights.diff(dim=1).abs().max()) < 1.58 * 0.002 / LAYOUT.blend
    bends = weights[:, ::10].diff(dim=1).diff(dim=1).abs() / 0.02**2
    assert float(bends.max()) <= 6.0 / LAYOUT.blend**2, "a kink, which no drawing can follow"
    assert float(weights[0, line[:, 0] < 3.6].min()) > 1 - 1e-6
    assert float(weights[1, (line[:, 0] > 4.4) & (line[:, 0] < 6.6)].min()) > 1 - 1e-6
    at = int((line[:, 0] - 4.0).abs().argmin())
    assert abs(float(weights[0, at]) - 0.5) < 0.01


def test_all_that_exist_answer_for_their_surroundings_and_nobody_far_away():
    there = {(0, 0), (1, 0)}
    total = torch.zeros(len(PLACES)).double()
    for key, which, weight in tile_weights(LAYOUT, there.__contains__, PLACES):
        total.index_add_(0, which, weight)
        far = torch.stack([LAYOUT.outside(k, PLACES[which]) for k in there]).amin(0)
        assert float(far.min()) > LAYOUT.side - 1e-9 if key is None else float(far.max()) <= 5.0
    assert torch.allclose(total, torch.ones(len(PLACES)).double())


def said_plainly(there: set, x, layout=LAYOUT) -> dict:
    """The weights at one place by the formula: a smooth step over each border, and faintly by the distance outside."""
    say = {}
    for key in filter(there.__contains__, layout.neighbourhood(layout.key_at(x))):
        low, high = layout.core(key)
        inside = [min(a - first, last - a) for a, first, last in zip(x.tolist(), low, high)]
        share = [min(0.5, max(-0.5, d / layout.blend)) for d in inside]
        ramp = math.prod(0.5 + 0.5 * math.sin(math.pi * u) for u in share)
        say[key] = ramp + 1e-9 * math.exp(
            -8.0 * math.hypot(*(max(0.0, -d) for d in inside)) / layout.blend
        )
    loud = {key: w for key, w in say.items() if w >= 1e-4 * sum(say.values())}
    return {key: w / sum(loud.values()) for key, w in loud.items()}


@pytest.mark.parametrize(
    "there",
    [
        {(0, 0)},
        {(0, 0), (1, 0), (1, 1), (-1, 0)},
        {(i, j) for i in range(-7, 7) for j in range(-9, 7)},
        set(),
    ],
)
def test_who_answers_is_what_the_formula_says_for_one_place_and_for_many(there):
    close = PLACES[:300] * 0.2  # about the borders of the first tiles
    # in the first tile: far from its borders, then up to one of them
    inside = PLACES[:300] * 0.045 + torch.tensor([1.5, 3.25]).double()
    in_one = [inside, *(inside + torch.tensor(by).double() for by in ((1.6, 0.0), (0.0, -0.3)))]
    for places in (PLACES[:300], close, close[:1], close[:0], PLACES[:1], *in_one):
        told = [{} for _ in places]
        for key, which, weight in tile_weights(LAYOUT, there.__contains__, places):
            assert bool((which[1:] > which[:-1]).all())
            for i, w in zip(which.tolist(), weight.tolist()):
                told[i][key] = w
        for one, x in zip(told, places):
            assert one == pytest.approx(said_plainly(there, x) or {None: 1.0}, rel=1e-12)


class Said:
    """A tile that says a number, in a pass another one, and has a variance and a correlation of its own."""

    def __init__(self, key):
        self.mean, self.scale = 3.0 * key[0] + key[1], 2.0 + key[0]

    def predict(self, x, velocity=None, heading=None):
        every = torch.ones(len(x), 1).double()
        return Prediction(self.mean * every, self.scale * every, torch.ones(1).double())

    def predict_in_pass(self, x, number, velocity=None, heading=None):
        told = self.predict(x)
        return replace(told, mean=told.mean + number)

    def covariance_with(self, b):
        return lambda a: (
            self.scale * torch.exp(-torch.cdist(a, b)),
            self.predict(a).variance[:, 0],
        )


PRIOR = Prediction(
    torch.full((1, 1), -9.0).double(), torch.full((1, 1), 7.0).double(), torch.ones(1).double()
)
THERE = {(0, 0), (1, 0), (1, 1)}


@pytest.mark.parametrize("number", [None, 5.0])
def test_answers_are_blended_by_these_weights(number):
    places = torch.cat([PLACES[:200] * 0.2, PLACES[:20]])
    told = blended_prediction(LAYOUT, THERE.__contains__, Said, PRIOR, places, None, None, number)
    for i, x in enumerate(places):
        say = said_plainly(THERE, x)
        mean = (
            sum(w * (Said(key).mean + (number or 0.0)) for key, w in say.items()) if say else -9.0
        )
        variance = sum(w * Said(key).scale for key, w in say.items()) if say else 7.0
        assert (float(told.mean[i]), float(told.variance[i])) == pytest.approx(
            (mean, variance), rel=1e-12
        )


def test_covariances_are_blended_as_far_as_the_halos_reach():
    """s(a) s(b) Σ √v(a) cov √v(b) with weights v that go over along both halos, s² = variance / Σ v variance."""
    a, b = PLACES[:40] * 0.2 + 2.0, PLACES[40:70] * 0.2 + 2.0
    wide = replace(LAYOUT, blend=2.0 * LAYOUT.halo)

    def weights(x):
        """√(v scale) s of each tile at x, and the variance there."""
        near, far = said_plainly(THERE, x), said_plainly(THERE, x, wide)
        variance = sum(w * Said(key).scale for key, w in near.items()) if near else 7.0
        reached = sum(v * Said(key).scale for key, v in far.items()) if far else 7.0
        return {
            key: math.sqrt(v * Said(key).scale * variance / reached) for key, v in far.items()
        }, variance

    shared, variance = blended_covariances(LAYOUT, THERE.__contains__, Said, PRIOR, b)(a)
    between, told = torch.exp(-torch.cdist(a, b)), [weights(x) for x in b]
    for i, x in enumerate(a):
        mine, own = weights(x)
        assert float(variance[i]) == pytest.approx(own, rel=1e-12)
        expected = [sum(w * its.get(key, 0.0) for key, w in mine.items()) for its, _ in told]
        assert shared[i].tolist() == pytest.approx(
            [w * k for w, k in zip(expected, between[i].tolist())], rel=1e-9
        )


@pytest.mark.parametrize("density", [0.5, 3.0, 5.6, 8.0, 10.0])
def test_a_tile_with_its_halo_holds_its_inputs_within_its_budget(density):
    side = side_for(density, 400, 1.5, 8.0)
    assert (side + 3.0) ** 2 * density <= 400 and 3.0 <= side <= 8.0
    assert side_for(100.0, 400, 1.5, 8.0) == 3.0, (
        "below two halos a sample would lie in more than four tiles"
    )


def test_places_of_several_tiles_are_told_at_once_which_of_them_are_in_their_own_core():
    parts = [((0, 0), PLACES[:300]), ((1, 0), PLACES[:0]), ((-1, 1), PLACES[200:900])]
    places, inside = LAYOUT.in_own(parts)
    assert torch.equal(places, torch.cat([x for _, x in parts]))
    assert torch.equal(inside, torch.cat([LAYOUT.holds(key, x) for key, x in parts]))
    assert 0 < int(inside.sum()) < len(places)


def test_the_tiles_that_know_any_of_some_places_are_told_with_which():
    keys = [(i, j) for i in range(-3, 4) for j in range(-3, 4)]
    known = LAYOUT.knowing(keys, PLACES[:5])
    by_one = {key: LAYOUT.covers(key, PLACES[:5]) for key in keys}
    assert list(known) == [key for key in keys if bool(by_one[key].any())] and 0 < len(known) < 49
    assert all(torch.equal(which, by_one[key]) for key, which in known.items())
    assert LAYOUT.knowing([], PLACES) == {}


@pytest.mark.parametrize("count", [60, 4000])
def test_weights_of_the_same_places_are_kept_until_other_tiles_are_there(count):
    there, kept = {(0, 0), (1, 0)}, KeptWeights()
    places = PLACES[:count].clone()
    first = kept.at(LAYOUT, there.__contains__, places)
    assert kept.at(LAYOUT, there.__contains__, PLACES[:9].clone()) is not first
    assert kept.at(LAYOUT, there.__contains__, places) is first

    for change in (lambda: there.add((0, 1)), lambda: there.discard((1, 0))):
        change()
        found, fresh = (ask(LAYOUT, there.__contains__, places) for ask in (kept.at, tile_weights))
        assert found is not first and [part[0] for part in found] == [part[0] for part in fresh]
        assert all(torch.equal(a, b) for x, y in zip(found, fresh) for a, b in zip(x[1:], y[1:]))
    assert kept.at(replace(LAYOUT, blend=0.3), there.__contains__, places) is not found

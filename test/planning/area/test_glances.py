"""Ways at a glance, their exchange with a small memory, and cells that stand for others, by brute force."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from floor_scene import node, problem_in, travel_in

from gp_mapping.planning.area import approximate_legs
from gp_mapping.planning.area.approximate_legs import ApproximateLegs
from gp_mapping.planning.suggest import Suggestion, Suggestions, thin
from gp_mapping.planning.worth import leg_exchange
from gp_mapping.planning.worth.leg_exchange import LegExchange


@pytest.fixture(scope="module")
def walled():
    return travel_in(wall=True)


def test_a_glance_is_straight_where_it_can_be_and_measures_in_equal_parts():
    travel = travel_in()
    a, b = sorted((node(travel, 0.45, 0.45), node(travel, 2.45, 1.45)))
    (glance,) = ApproximateLegs(travel).for_pairs([(a, b)])
    metres = math.hypot(2.0, 1.0)
    assert glance.metres == pytest.approx(metres)
    count = round(metres / travel.step)
    assert len(glance.places) == len(glance.weights) == count == 4
    assert glance.scale == pytest.approx(travel.step * count / metres)
    fraction = (np.arange(count) + 0.5)[:, None] / count
    x = travel.nodes[a] + fraction * (travel.nodes[b] - travel.nodes[a])
    places, weights = travel.interpolation_at(x)
    np.testing.assert_array_equal(glance.places, places)
    np.testing.assert_allclose(glance.weights, weights)
    (still,) = ApproximateLegs(travel).for_pairs([(a, a)])
    assert still.metres == 0.0 and len(still.places) == len(still.weights) == 0


def test_behind_a_wall_there_is_no_way_and_around_a_corner_it_goes_over_the_grid(walled):
    left, right = node(walled, 1.45, 0.45), node(walled, 2.55, 0.45)
    (nowhere,) = ApproximateLegs(walled).for_pairs([tuple(sorted((left, right)))])
    assert nowhere.metres == math.inf and len(nowhere.places) == 0
    travel = travel_in()
    free = travel.free
    shut = np.zeros_like(free.open)
    shut[:20, 20] = True
    object.__setattr__(free, "open", free.open & ~shut)
    from gp_mapping.planning.area.travel import Travel

    around = Travel(free, 0.4)
    a, b = sorted((node(around, 1.85, 0.45), node(around, 2.25, 0.45)))
    (glance,) = ApproximateLegs(around).for_pairs([(a, b)])
    line = around.over_the_grid(a, b)
    ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    assert glance.metres == pytest.approx(ends[-1]) == pytest.approx(around.distances(a)[b])
    count = round(ends[-1] / around.step)
    at = (np.arange(count) + 0.5) * ends[-1] / count
    x = np.stack([np.interp(at, ends, line[:, k]) for k in (0, 1)], 1)
    np.testing.assert_allclose(glance.weights, around.interpolation_at(x)[1])


def test_glances_and_exchanges_with_a_small_memory_are_the_same(monkeypatch):
    travel = travel_in()
    rng = np.random.default_rng(0)
    stops = rng.choice(travel.places, 12).tolist()
    keys = [(min(a, b), max(a, b)) for a, b in pairwise(stops)]
    problem = problem_in(travel)

    def changes(glances):
        exchange = LegExchange(problem.value)
        legs = dict(zip(keys, glances.for_pairs(keys)))
        exchange.begin(keys[:5], [legs[key] for key in keys[:5]])
        return exchange.gain, [exchange.change(keys[i : i + 4], legs) for i in range(7)] * 2

    whole = ApproximateLegs.for_travel(travel)
    assert ApproximateLegs.for_travel(travel) is whole
    wanted = changes(whole)
    again = whole.for_pairs(keys)
    assert all(a is b for a, b in zip(again, whole.for_pairs(keys))), "they are kept"
    monkeypatch.setattr(approximate_legs, "_KEPT", 2)
    monkeypatch.setattr(leg_exchange, "_ROWS", 10_000)
    small = ApproximateLegs(travel)
    found = changes(small)
    assert found[0] == pytest.approx(wanted[0]) and found[1] == pytest.approx(wanted[1])
    fresh = ApproximateLegs(travel)
    kept = fresh.for_pairs(keys)
    assert fresh.for_pairs(keys[-1:])[0] is kept[-1], "the newest stay"
    assert fresh.for_pairs(keys[:1])[0] is not kept[0]


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 30, 10**6])
def test_each_block_sends_its_best_cell_and_says_for_how_many_it_stands(limit, scored):
    mask = torch.rand(13, 17, generator=torch.Generator().manual_seed(0)) < 0.6
    score = torch.rand(13, 17, generator=torch.Generator().manual_seed(1)).double()
    chosen, count = thin(mask, limit, score if scored else None)
    assert len(chosen) <= limit and int(count.sum()) == int(mask.sum())
    assert mask.reshape(-1)[chosen].all()
    sides = []
    for side in range(1, 60):
        rows, columns = mask.nonzero(as_tuple=True)
        blocks = {}
        for row, column in zip(rows.tolist(), columns.tolist()):
            blocks.setdefault((row // side, column // side), []).append((row, column))
        if len(blocks) == len(chosen):
            sides.append((side, blocks))
    for side, blocks in sides:
        best = []
        for cells in blocks.values():
            middle = (side - 1) / 2
            merit = [
                float(score[cell])
                if scored
                else -((cell[0] % side - middle) ** 2) - (cell[1] % side - middle) ** 2
                for cell in cells
            ]
            row, column = cells[int(np.argmax(merit))]
            best.append((row * 17 + column, len(cells)))
        if sorted(best) == sorted(zip(chosen.tolist(), count.tolist())):
            break
    else:
        raise AssertionError("of no size of blocks")


def test_suggestions_are_a_sequence_of_places():
    found = Suggestions("variance", (Suggestion(1.0, 2.0, 3.0), Suggestion(4.0, 5.0, 6.0)))
    assert len(found) == 2 and found[1].score == 6.0 and [s.x for s in found] == [1.0, 4.0]
    assert found.positions.tolist() == [[1.0, 2.0], [4.0, 5.0]]
    assert Suggestions("variance").positions.shape == (0, 2) and not len(Suggestions("variance"))

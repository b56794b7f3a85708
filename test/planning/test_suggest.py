"""Batches of suggestions: greedy brute force, masks, spacing, thinning, and reasons when there is nothing to say."""

import math

import numpy as np
import planning_scene as scene
import pytest
import torch
from planning_scene import occupancy

from gp_mapping import create_map
from gp_mapping.core.types import Prediction, Samples
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.planning import ACQUISITIONS, FreeSpace, suggest
from gp_mapping.planning.suggest import _values, thin


@pytest.mark.parametrize("kind", ACQUISITIONS)
@pytest.mark.parametrize("model", ["exact", "dual_svgp"])
def test_batch_is_the_greedy_brute_force(model, kind):
    field = scene.measured_map(
        model,
        **(
            {"inducing_tolerance": 1e-5, "inducing_information": 0.0}
            if model == "dual_svgp"
            else {}
        ),
    )
    grid = scene.grid_of(field)
    before = field.predict(grid.centres()).variance
    found = suggest(field, grid, 5, kind)
    chosen, values = scene.greedy(grid.centres().numpy(), 5, kind)
    scores = np.array([s.score for s in found]) / (
        1.0 if kind == "variance" else grid.resolution**2
    )
    assert found.reason == "" and found.kind == kind
    np.testing.assert_allclose(scores, values, rtol=1e-6 if model == "exact" else 0.02)
    if model == "exact":
        np.testing.assert_array_equal(found.positions.numpy(), grid.centres()[chosen].numpy())
    assert torch.equal(field.predict(grid.centres()).variance, before), (
        "the map itself must stay as it was"
    )


@pytest.mark.parametrize("model", ["exact", "dual_svgp"])
@pytest.mark.parametrize("kind", ACQUISITIONS)
def test_fantasies_spread_the_batch(model, kind):
    """Without them the k best cells are neighbours; with them they are about a lengthscale apart."""
    field = scene.measured_map(model)
    grid = scene.grid_of(field, 48, 40, 0.0625)
    apart = torch.pdist(suggest(field, grid, 4, kind).positions).min()
    top = field.predict(grid.centres()).variance[:, 0].topk(4).indices
    assert float(torch.pdist(grid.centres()[top]).min()) < 0.1
    assert float(apart) > 0.5 * scene.LENGTHSCALE


def test_of_labels_the_probability_counts():
    """Where the latent field is least known the probability may be sure: 'variance' is that of the probability."""
    x = torch.cartesian_prod(torch.linspace(0, 2, 9), torch.linspace(0, 2, 9)).double()
    field = create_map(
        "dual_svgp", likelihood="bernoulli", lengthscale=0.5, learn_hyperparameters=False
    )
    field.update(Samples(x, (x[:, :1] < 0.6).double()))
    grid = scene.grid_of(field)
    centres = grid.centres()
    told = field.observable(centres).variance[:, 0]
    found = suggest(field, grid, 1, "variance", max_candidates=len(centres))[0]
    best = centres[int(told.argmax())].tolist()
    assert [found.x, found.y] == pytest.approx(best) and found.score == pytest.approx(
        float(told.max())
    )
    assert best != centres[int(field.predict(centres).variance[:, 0].argmax())].tolist(), (
        "nothing is shown"
    )


@pytest.mark.parametrize("kind", ACQUISITIONS)
def test_masked_cells_are_never_suggested(kind):
    field = scene.measured_map("exact")
    grid = scene.grid_of(field)
    data = np.full((30, 36), 100)
    data[2:12, 2:20] = 0  # a room
    data[20:28, 24:34] = 0  # another, not connected
    free = FreeSpace.from_occupancy_grid(occupancy(data, 0.1, (-0.2, -0.2)), radius=0.15)
    found = suggest(field, grid, 40, kind, free)
    assert 0 < len(found) < 40
    assert bool(free.allows(found.positions).all())
    assert "of 40" in found.reason
    assert len({(s.x, s.y) for s in found}) == len(found)
    here = suggest(field, grid, 40, kind, free, position=(0.5, 0.5))
    assert 0 < len(here) < len(found)
    assert float(here.positions[:, 0].max()) < 1.8 and float(here.positions[:, 1].max()) < 1.0


def test_minimum_spacing_holds_and_is_explained():
    field = scene.measured_map("exact")
    found = suggest(field, scene.grid_of(field), 20, min_distance=1.5)
    assert 2 <= len(found) < 20
    assert float(torch.pdist(found.positions).min()) >= 1.5
    assert f"{len(found)} of 20" in found.reason and "1.5 m" in found.reason


def test_nothing_allowed_gives_a_reason():
    field = scene.measured_map("exact")
    grid = scene.grid_of(field)
    walls = FreeSpace.from_occupancy_grid(occupancy(np.full((40, 40), 100), 0.1))
    found = suggest(field, grid, 3, free=walls)
    assert len(found) == 0 and found.positions.shape == (0, 2) and "may enter" in found.reason
    elsewhere = FreeSpace.from_occupancy_grid(occupancy(np.zeros((10, 10)), 0.1, (50.0, 50.0)))
    assert "may enter" in suggest(field, grid, 3, free=elsewhere).reason
    assert "(0.10, 0.20) m" in suggest(field, grid, 3, free=elsewhere, position=(0.1, 0.2)).reason


def test_large_grids_are_thinned_and_still_find_the_highest_variance():
    field = scene.measured_map("exact")
    grid = scene.grid_of(field, 60, 50, 0.05)
    coarse = suggest(field, grid, 1, max_candidates=100)
    assert coarse == suggest(field, grid, 1, max_candidates=10**6)
    full = suggest(field, grid, 3, "integrated_variance", max_candidates=3000, max_targets=3000)
    thinned = suggest(field, grid, 3, "integrated_variance", max_candidates=300, max_targets=200)
    total = [sum(s.score for s in found) for found in (full, thinned)]
    assert total[1] == pytest.approx(total[0], rel=0.05)


def test_a_block_is_represented_by_its_most_uncertain_cell_or_by_its_middle():
    field = scene.measured_map("exact")
    grid = scene.grid_of(field, 12, 9, 0.25)
    # the middles of blocks of three cells lie a cell and a half from their edges
    middles = {
        (round(0.375 + 0.75 * i, 6), round(0.375 + 0.75 * j, 6)) for i in range(4) for j in range(3)
    }
    found = suggest(field, grid, 4, "integrated_variance", max_candidates=12)
    assert {tuple(x) for x in found.positions.numpy().round(6).tolist()} <= middles
    found = suggest(field, grid, 1, "variance", max_candidates=12)
    assert torch.equal(found.positions[0], grid.centres()[int(grid.stddev.argmax())])
    assert tuple(found.positions[0].numpy().round(6).tolist()) not in middles


def test_thin_keeps_narrow_passages_and_counts_all_cells():
    mask = torch.zeros(40, 60, dtype=torch.bool)
    mask[:, 33] = True  # one cell wide: a fixed stride of four would miss it
    chosen, count = thin(mask, 15)
    assert 8 <= len(chosen) <= 15 and bool((chosen % 60 == 33).all()) and int(count.sum()) == 40
    middles, nine_each = thin(torch.ones(9, 12, dtype=torch.bool), 12)
    assert middles.tolist() == [12 * row + column for row in (1, 4, 7) for column in (1, 4, 7, 10)]
    assert bool((nine_each == 9).all())
    everything, one_each = thin(mask, 40)
    assert torch.equal(everything, mask.reshape(-1).nonzero()[:, 0]) and bool((one_each == 1).all())


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "entropy"},
        {"k": 0},
        {"min_distance": -1.0},
        {"min_distance": float("nan")},
        {"max_targets": 0},
    ],
)
def test_errors_say_what_was_expected(wrong):
    field = scene.measured_map("exact")
    with pytest.raises(ValueError, match="expected"):
        suggest(field, scene.grid_of(field), **wrong)


@pytest.mark.parametrize("kind", ACQUISITIONS)
def test_one_candidate_that_is_worth_something_to_one_target_is_enough(kind):
    field = scene.measured_map("exact")
    found = suggest(field, scene.grid_of(field), 1, kind, max_candidates=1, max_targets=1)
    assert len(found) == 1 and found[0].score > 0.0 and found.reason == ""


def test_of_an_empty_grid_nothing_is_suggested_and_it_is_said():
    field, blank = scene.measured_map("exact"), torch.zeros(0, 0, dtype=torch.float64)
    nothing = FieldGrid((0.0, 0.0), 0.25, blank, blank, blank > 0, 0.0, 0)
    found = suggest(field, nothing, 2)
    assert not found and "the map is empty" in found.reason and found.kind == "variance"


def test_a_covariance_that_is_broken_somewhere_is_named_with_the_first_place():
    places = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    told = Prediction(
        torch.zeros(3, 1).double(),
        torch.tensor([[1.0], [math.nan], [math.inf]]).double(),
        torch.ones(1).double(),
    )
    field = scene.measured_map("exact").for_planning()
    with pytest.raises(ValueError, match=r"acquisition 'variance' is nan at \[1.0, 2.0\]"):
        _values("variance", field, lambda _: told, places, places, places[:, 0])


def test_a_place_just_as_far_as_the_least_distance_is_far_enough():
    field = scene.measured_map("exact")
    grid = scene.grid_of(field, 3, 1, 0.5, (-2.0, 4.0))
    found = suggest(field, grid, 3, "variance", min_distance=1.0)
    assert sorted(found.positions[:, 0].tolist()) == [-1.75, -0.75] and "2 of 3" in found.reason

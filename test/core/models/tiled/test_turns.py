"""Which tile goes over to what was learned, when: one at a time, a slice with each update, first where the robot is."""

from dataclasses import replace

import pytest
from tiled_data import SETTINGS, road

import gp_mapping.core.models.dual_svgp.rebuild as rebuild
import gp_mapping.core.models.dual_svgp.rebuilding as rebuilding
from gp_mapping import create_map
from gp_mapping.core.models.tiled.tile import Tile


@pytest.fixture
def learned():
    """A road through tiles, of which a learner then knows better: a lengthscale twice as large."""
    field = create_map("dual_svgp", **SETTINGS | {"learn_hyperparameters": True})
    samples = road(0.0, 9.0)
    for i in range(0, len(samples), 5):
        field.update(samples[i : i + 5])
    field.absorb_waiting()
    assert len(field.tiles) >= 3
    for tile in field.tiles.values():
        tile.map.finish_rebuild()
    theta = field.current_map.theta
    field.learner.theta = replace(theta, lengthscale=2.0 * theta.lengthscale)
    assert field.learner.should_adopt(theta)
    return field


def behind(field):
    """Tiles that have not gone over yet."""
    theta = field.learner.theta
    return {k for k, t in field.tiles.items() if t.map.theta.lengthscale != theta.lengthscale}


def test_one_slice_with_each_update_first_where_the_robot_is_and_what_has_begun_is_ended(
    learned, monkeypatch
):
    for module in (rebuild, rebuilding):  # no transfer is done in one update
        monkeypatch.setattr(module, "SLICE", 1.0)
    learned.in_slices(True)
    order = []
    for i in range(75):
        epoch = learned.epoch
        begun = {k: t.map.rebuild for k, t in learned.tiles.items() if t.map.rebuild is not None}
        done = {k: each.done for k, each in begun.items()}
        # it begins where the robot is, which then goes to where two other tiles' budgets fill up
        place = 8.9 if i < 4 else 1.0
        learned.update(road(place, place + 0.05))

        over = {k for k, each in begun.items() if learned.tiles[k].map.rebuild is not each}
        further = over | {k for k, each in begun.items() if each.done > done[k]}
        assert len(further) == min(1, len(begun)), "one slice for all tiles together"
        order += [k for k in further if order[-1:] != [k]]
        changed = learned.changed_since(epoch)
        assert len(changed) == len(over), "a tile that has gone over is drawn anew, and no other"
        for key, (low, high) in zip(over, changed):
            core_low, core_high = learned.layout.core(key)
            assert all(low[a] < core_low[a] and core_high[a] < high[a] for a in range(2))

    far, here = learned.layout.key_at(road(8.9, 9.0).x[0]), learned.current
    (beside,) = set(learned.knowing(road(1.0, 1.05).x)) - {here}
    assert order == [far, here, beside, far, here, beside]
    assert behind(learned) == set(learned.tiles) - {far, here, beside}, "the others have time"


def test_what_was_learned_comes_to_an_empty_tile_always_and_to_another_at_once_where_not_in_slices(
    learned,
):
    learner, full = learned.learner, learned.tiles[learned.current]
    for sliced in (True, False):
        empty = Tile(learned.make(None))
        for tile in (empty, full):
            tile.map.in_slices(sliced)
            before = tile.map.theta
            tile.adopt_learned(None)
            assert tile.map.theta == before
            tile.adopt_learned(learner)
        assert empty.map.theta == learner.theta
        assert (full.map.theta == learner.theta) is not sliced


def test_whether_a_tile_goes_over_is_asked_once_for_each_step_of_the_learner(learned, monkeypatch):
    asked, learner = [], learned.learner
    monkeypatch.setattr(type(learner), "should_adopt", lambda _, theta: asked.append(theta))
    tile = learned.tiles[learned.current]
    for change in (
        lambda: None,
        lambda: setattr(learner, "metric", learner.metric.clone()),
        lambda: setattr(learner, "theta", replace(learner.theta, lengthscale=1.5)),
    ):
        change()
        before = len(asked)
        for _ in range(3):
            tile.adopt_learned(learner)
        assert len(asked) == before + 1

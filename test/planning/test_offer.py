"""Suggestions as settings ask for them: where they may lie, and why there are fewer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planning_scene import occupancy

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning import FreeSpace
from gp_mapping.planning.area.ground import Ground
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.offer import driven_area, offer, offer_as_set, offer_by_way
from gp_mapping.planning.suggest import suggest
from gp_mapping.settings.node import NodeSettings

KINDS = ("gain_per_metre", "variance", "integrated_variance")


@pytest.fixture(scope="module")
def session():
    """Along y = 1 m, from x = 1 m to 3 m."""
    out = MapSession(
        MapSettings(learn_hyperparameters=False, lengthscale=0.6, resolution=0.2, max_inducing=60)
    )
    t = torch.linspace(0, 1, 60, dtype=torch.float64)
    x = torch.stack([1 + 2 * t, 1 + 0 * t], 1)
    out.ingest(Samples(x, 45e-6 + 5e-6 * torch.sin(6 * t), stamp=10 * t))
    out.flush()
    return out


@pytest.fixture(scope="module")
def grid(session):
    return session.render()


def square(x, y, side):
    return Polygon.from_corners([(x, y), (x + side, y), (x + side, y + side), (x, y + side)])


def as_set(session, grid, kind, free=None, position=None, **polygons):
    settings = NodeSettings(suggestion_kind=kind, suggestion_count=3, suggestion_distance=0.5)
    return offer_as_set(session, grid, settings, Ground(), free, position, **polygons)


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_as_the_settings_say_and_as_far_apart(session, grid, kind):
    room = FreeSpace.from_occupancy_grid(occupancy(np.zeros((20, 40)), 0.1), 0.1)
    found = as_set(session, grid, kind, room)
    assert len(found) == 3 and found.kind == kind and found.reason == ""
    assert room.allows(found.positions).all() and torch.pdist(found.positions).min() >= 0.5
    inside = as_set(session, grid, kind, room, region=(square(1.6, 0.4, 1.4),))
    assert len(inside) and square(1.6, 0.4, 1.4).contains(inside.positions.numpy()).all()
    none = as_set(session, grid, kind, room, region=(square(30.0, 0.0, 1.0),))
    assert not len(none) and "no free place lies inside the region" in none.reason
    assert none.kind == kind


def test_more_than_there_is_room_for_has_its_reason(session, grid):
    small = FreeSpace.from_occupancy_grid(occupancy(np.zeros((8, 8)), 0.1, (2.6, 0.6)), 0.1)
    by_way = offer_by_way(session, Ground(), 9, small, (3.0, 1.0), min_distance=0.45)
    assert 0 < len(by_way) < 9
    assert by_way.reason.startswith(
        f"{len(by_way)} of 9: every other place that the robot may enter"
    )
    set_ = offer(session, grid, 9, "variance", small, min_distance=0.45)
    assert 0 < len(set_) < 9 and f"{len(set_)} of 9: " in set_.reason
    assert len(suggest(session.map, grid)) == 1, "one, where nobody says how many"


def test_where_nothing_can_be_offered_it_says_why(session, grid):
    fresh = MapSession(MapSettings())
    found = offer_by_way(fresh, Ground(), 2, None, None)
    assert not len(found) and found.reason == "nothing has been measured yet"
    walls = FreeSpace.from_occupancy_grid(occupancy(np.full((9, 9), 100)))
    assert "leaves no place" in offer_by_way(session, Ground(), 2, walls, (1.0, 1.0)).reason
    away = offer(session, grid, 1, "variance", walls, (1.0, 1.0))
    assert "leaves it no room" in away.reason and not len(away)
    assert "leaves no cell" in offer(session, grid, 1, "variance", walls).reason


def test_without_obstacles_places_lie_in_the_hull_of_the_path(session, grid):
    area = driven_area(session.driven.numpy(), grid, 0.5)
    x = area.centres()
    assert len(x) > 20 and (np.abs(x[:, 1] - 1.0) <= 0.5).all()
    assert x[:, 0].min() > 0.5 and x[:, 0].max() < 3.5
    assert area.resolution == grid.resolution and area.origin == tuple(map(float, grid.origin))
    assert (area.clearance[area.open] == grid.resolution).all() and not area.clearance[
        ~area.open
    ].any()
    for beyond, height in ((0.3, 0.3), (0.7, 0.7)):
        found = offer(session, grid, 4, "variance", beyond=beyond)
        assert len(found) == 4 and (found.positions[:, 1] - 1.0).abs().max() <= height + 1e-9
    near = offer_by_way(session, Ground(), 3, None, None, beyond=0.4, min_distance=0.3)
    assert len(near) == 3 and (near.positions[:, 1] - 1.0).abs().max() < 0.41
    reach = offer_by_way(session, Ground(), 2, None, (1.0, 1.0), beyond=0.4, reach=0.8)
    assert len(reach) and (reach.positions - torch.tensor([1.0, 1.0])).norm(dim=1).max() <= 0.8


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"max_candidates": 0}, {"max_targets": 0}, {"min_distance": -0.1}]
)
def test_counts_and_distances_out_of_range_are_refused(session, grid, wrong):
    with pytest.raises(ValueError, match="expected counts of 1 or more"):
        suggest(session.map, grid, **wrong)
    with pytest.raises(ValueError, match="kind is 'best'"):
        suggest(session.map, grid, kind="best")
    assert len(suggest(session.map, grid, 1, max_candidates=1, max_targets=1)) == 1


def test_a_drawing_that_lies_beside_the_path_offers_nothing(session, grid):
    aside = replace(grid, origin=(30.0, 0.0))
    found = offer(session, aside, 2)
    assert len(found) == 0 and found.kind == "variance"
    assert "nothing that is drawn lies inside the hull" in found.reason

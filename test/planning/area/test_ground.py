"""The cached ground: made anew when what it is of has changed, and only then."""

from dataclasses import replace

import numpy as np
import pytest
from rooms import free_room, somewhere

from gp_mapping.planning.area.ground import Ground, GroundSettings
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.offer import why_no_ways


@pytest.fixture(scope="module")
def room():
    """Free space, a place in it and a way (2, 2) m of nothing but that place."""
    free = free_room(0)
    here = somewhere(free)
    return free, here, np.stack([here, here])


def around(x, y, side: float = 0.8) -> Polygon:
    half = 0.5 * side
    return Polygon.from_corners(
        [(x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)]
    )


@pytest.mark.parametrize("name", ["region", "keep_out"])
def test_a_polygon_after_one_that_was_dropped_is_another_one(room, name):
    """It mostly gets the same place in memory: by its identity it would be the one before."""
    free, here, path = room
    ground, given = Ground(), {"path": path, "lengthscale": 0.9}
    far = free.centres()[np.hypot(*(free.centres() - here).T).argmax()]
    first = around(*(here if name == "region" else far), 1.2)
    corners = around(*(here + 0.1 if name == "region" else 0.5 * (here + far)), 1.0).corners
    place, others = id(first), []
    ground.ground_at(here, free, **given, settings=GroundSettings(**{name: (first,)}))
    del first

    while len(others) < 1000 and (not others or id(others[-1]) != place):
        others.append(Polygon(corners))
    area, _ = ground.ground_at(
        here, free, **given, settings=GroundSettings(**{name: (others[-1],)})
    )
    inside = others[-1].contains(area.cells.numpy())
    assert area and (inside.all() if name == "region" else not inside.any())


def test_equal_polygons_are_one_ground(room):
    free, here, path = room
    ground = Ground()
    for _ in range(2):
        ground.ground_at(here, free, path, 0.9, GroundSettings(region=(around(*here),)))
    assert ground.made == 1


def test_a_ground_that_cannot_be_made_leaves_the_one_before_whole(room):
    free, here, path = room
    ground = Ground()
    before = ground.ground_at(here, free, path, 0.9, GroundSettings(places=100))
    with pytest.raises(ValueError, match="2 places"):
        ground.ground_at(here, free, path, 0.9, GroundSettings(places=1))
    assert (ground.area is before[0], ground.travel is before[1], ground.made) == (True, True, 1)
    assert ground.is_valid_for(here, free, path, 0.9, GroundSettings(places=100))


def test_a_ground_is_made_anew_where_it_would_be_another_one(room):
    free, here, path = room
    ground, given = Ground(4), GroundSettings(reach=2.0, margin=0.5, places=100)
    assert not ground.is_valid_for(here, free, path, 0.9, given)
    assert not ground.can_stand_in(here, free, given)
    area, travel = ground.ground_at(here, free, path, 0.9, given)
    assert ground.made == 5 and area and travel
    # places are a third of a lengthscale apart; a little more or less makes no other ground
    assert travel.spacing == pytest.approx(0.3)
    for lengthscale, valid in ((0.64, True), (0.62, False), (1.25, True), (1.27, False)):
        assert ground.is_valid_for(here, free, path, lengthscale, given) == valid
    # a fifth of its reach
    assert ground.is_valid_for(here + np.array([0.39, 0.0]), free, path, 0.9, given)
    assert not ground.is_valid_for(here + np.array([0.0, 0.41]), free, path, 0.9, given)
    # where it was made a while ago it stands in, for the same settings
    far = here + np.array([50.0, 0.0])
    assert ground.can_stand_in(far, free, given), "obstacles are known: a new one would not help"
    for other in (
        {"reach": 2.1},
        {"margin": 0.6},
        {"places": 90},
        {"robot_radius": 0.1},
        {"keep_out": (around(9, 9),)},
    ):
        assert not ground.can_stand_in(here, free, replace(given, **other))
        assert not ground.is_valid_for(here, free, path, 0.9, replace(given, **other))
    assert not ground.can_stand_in(here, None, given)
    # with obstacles the length of the path is of no matter
    assert ground.is_valid_for(here, free, np.vstack([path, far[None]]), 0.9, given)


def test_without_obstacles_the_ground_grows_with_the_path():
    path = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]])
    ground, given = Ground(), GroundSettings(margin=1.0, reach=40.0)
    here = np.array([4.0, 3.0])
    ground.ground_at(here, None, path, 0.9, given)

    def valid(*place):
        return ground.is_valid_for(here, None, np.vstack([path, [place]]), 0.9, given)

    assert valid(2.0, 1.0) and valid(4.2, 3.2) and valid(-0.2, -0.2)
    for outside in ((6.0, 1.0), (-2.0, 1.0), (2.0, 5.0), (2.0, -2.0)):
        assert not valid(*outside), outside
    given_region = replace(given, region=(around(3.0, 2.0, 6.0),))
    ground.ground_at(here, None, path, 0.9, given_region)
    assert ground.is_valid_for(here, None, np.vstack([path, [[9, 9]]]), 0.9, given_region)


def test_a_robot_that_has_left_the_hull_of_its_path_gets_another_ground():
    path = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [0.0, 3.0]])
    ground, given = Ground(), GroundSettings(margin=0.5, reach=40.0)
    here = np.array([4.0, 3.0])
    ground.ground_at(here, None, path, 0.9, given)
    for at, inside in ((here, True), (np.array([0.5, 0.5]), True), (np.array([8.0, 3.0]), False)):
        assert ground.can_stand_in(at, None, given) == inside
        assert ground.is_valid_for(at, None, path, 0.9, given) == inside


def test_the_ground_before_the_first_way_grows_with_it():
    square = Polygon.from_corners([(0.0, 0.0), (3.0, 0.0), (3.0, 3.0), (0.0, 3.0)])
    ground, here, given = Ground(), np.array([1.0, 1.0]), GroundSettings(region=(square,))
    ground.ground_at(here, None, np.empty((0, 2)), 1.0, given)
    for path in (np.empty((0, 2)), np.array([[-9.0, -9.0], [9.0, 9.0]])):
        assert ground.is_valid_for(here, None, path, 1.0, given), "its region is given"
    ground.ground_at(here, None, path := np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0]]), 1.0, given)
    free = replace(given, region=())
    ground.ground_at(here, None, path, 1.0, free)
    assert ground.is_valid_for(here, None, np.empty((0, 2)), 1.0, free), "it has not grown"


def test_an_area_of_one_place_is_said_to_be_too_small():
    square = Polygon.from_corners([(1.0, 1.0), (1.3, 1.0), (1.3, 1.3), (1.0, 1.3)])
    area, travel = Ground().ground_at(
        np.array([1.1, 1.1]), None, np.empty((0, 2)), 3.0, GroundSettings(region=(square,))
    )
    assert len(travel) == 1 and "m² is so small that it has one place" in why_no_ways(area, travel)
    assert why_no_ways(area, None).startswith("no free-space map")
    assert why_no_ways(SurveyArea.empty("gone"), None) == "gone"

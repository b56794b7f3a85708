"""The cached ground: made anew when what it is of has changed, and only then."""

import numpy as np
import pytest
from rooms import free_room, somewhere

from gp_mapping.planning.area.ground import Ground
from gp_mapping.planning.area.polygon import Polygon


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
    ground.ground_at(here, free, **given, **{name: (first,)})
    del first

    while len(others) < 1000 and (not others or id(others[-1]) != place):
        others.append(Polygon(corners))
    area, _ = ground.ground_at(here, free, **given, **{name: (others[-1],)})
    inside = others[-1].contains(area.cells.numpy())
    assert area and (inside.all() if name == "region" else not inside.any())


def test_equal_polygons_are_one_ground(room):
    free, here, path = room
    ground = Ground()
    for _ in range(2):
        ground.ground_at(here, free, path, 0.9, region=(around(*here),))
    assert ground.made == 1


def test_a_ground_that_cannot_be_made_leaves_the_one_before_whole(room):
    free, here, path = room
    ground = Ground()
    before = ground.ground_at(here, free, path, 0.9, places=100)
    with pytest.raises(ValueError, match="2 places"):
        ground.ground_at(here, free, path, 0.9, places=1)
    assert (ground.area is before[0], ground.travel is before[1], ground.made) == (True, True, 1)
    assert ground.is_valid_for(here, free, path, 0.9, places=100)

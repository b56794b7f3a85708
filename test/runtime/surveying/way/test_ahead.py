"""What lies right ahead of a robot: walls between the poses of its plan, and obstacles that it may leave."""

import math
from array import array
from dataclasses import replace

import numpy as np
import pytest
from survey_scene import floor

from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.plan import Plan
from gp_mapping.runtime.surveying.way.ahead import has_room_ahead, lead_of, loses_room, next_pose_of

POSES = np.array([[1.0, 1.0], [1.5, 1.0], [2.0, 1.0]])


def room(*walls: tuple[float, float, float, float], radius: float = 0.2) -> FreeSpace:
    """A room with walls from low to high x and y, m; its cells are of .1 m."""
    message = floor(wall=False)
    data = np.frombuffer(message.data, dtype=np.int8).reshape(40, 50).copy()
    for wall in walls:
        left, bottom, right, top = np.rint(np.multiply(wall, 10.0)).astype(int)
        data[bottom:top, left:right] = 100
    message.data = array("b", data.tobytes())
    return FreeSpace.from_occupancy_grid(message, radius)


@pytest.mark.parametrize("radius", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("wall", [(1.2, 0.0, 1.3, 4.0), (1.2, 1.0, 1.3, 4.0)])
def test_a_wall_between_two_poses_stops_a_robot_that_is_near_enough(wall, radius):
    """Each pose has room; what lies between was not looked at."""
    free = room(wall, radius=radius)
    assert bool((free.room(POSES, 0.2) >= radius - 0.05).all())
    assert not has_room_ahead(free, (0.9, 1.0), POSES, 0.6)
    assert not has_room_ahead(free, (0.9, 1.0), POSES, 0.6, straight=False), "Nav2 heeds it, too"
    assert has_room_ahead(free, (0.3, 1.0), POSES, 0.6), "it is far away yet"
    assert has_room_ahead(room(radius=radius), (0.9, 1.0), POSES, 0.6)


def test_a_wall_between_the_robot_and_its_first_pose_stops_who_drives_straight_there():
    free = room((0.7, 0.0, 0.8, 4.0))
    assert not has_room_ahead(free, (0.5, 1.0), POSES, 0.6)
    assert has_room_ahead(free, (0.5, 1.0), POSES, 0.6, straight=False), "Nav2 drives around it"


def test_deep_in_an_obstacle_there_is_no_room():
    """Its border alone is known, and that is farther away than the robot is wide."""
    thick = room((1.1, 0.0, 2.2, 4.0))
    assert (thick.room(np.array([[1.65, 1.0], [-1.0, 1.0]]), 0.2) == 0.0).all()
    assert not has_room_ahead(thick, (0.9, 1.0), np.array([[1.65, 1.0]]), 1.0)


def test_a_robot_that_stands_too_near_may_leave_and_come_no_nearer():
    free = room((0.5, 0.0, 0.9, 4.0))  # .08 m beside it
    assert has_room_ahead(free, (0.98, 1.0), np.array([[1.3, 1.0], [1.6, 1.0]]), 0.6)
    assert not has_room_ahead(free, (0.98, 1.0), np.array([[0.35, 1.0], [0.3, 1.0]]), 0.6)
    assert not has_room_ahead(free, (0.98, 1.0), np.array([[0.98, 1.3]]), 0.6), "nor stay so near"


LINE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [0.0, 2.0]])
PLAN = Plan("x", LINE, metres=4.0, seconds=8.0)


@pytest.mark.parametrize(
    "driven, least, pose",
    [
        (0.0, 0.0, (1.0, 0.0, 0.0)),
        (0.3, 0.5, (1.0, 0.0, 0.0)),
        (0.3, 0.7, (1.0, 0.0, 0.0)),  # just there
        (0.3, 0.8, (1.0, 2.0, math.pi / 2)),
        (0.3, -1.0, (1.0, 0.0, 0.0)),
        (1.5, 0.5, (1.0, 2.0, math.pi / 2)),
        (2.0, 1.5, (0.0, 2.0, math.pi)),
        (2.0, 99.0, (0.0, 2.0, math.pi)),
        (4.0, 0.5, (0.0, 2.0, math.pi)),  # at its end
        (9.0, 0.5, (0.0, 2.0, math.pi)),
    ],
)
def test_the_next_pose_is_a_corner_ahead_and_looks_where_the_robot_comes_along(driven, least, pose):
    assert next_pose_of(PLAN, driven, least) == pytest.approx(pose)


def test_a_lead_begins_at_the_robot_and_has_its_length():
    free = room()
    shifted = replace(PLAN, line=LINE + 1.0)
    lead = lead_of(shifted, 0.5, (1.4, 1.0), 1.0, free)
    np.testing.assert_allclose(lead, [[1.4, 1.0], [1.5, 1.0], [2.0, 1.0], [2.0, 1.4]])
    np.testing.assert_allclose(lead_of(shifted, 0.5, (1.4, 1.0), 0.6, free)[-1], [2.0, 1.0])
    assert len(lead_of(shifted, 0.5, (1.4, 1.0), 0.6, free)) == 3, (
        "a corner just there is once in it"
    )
    np.testing.assert_allclose(lead_of(shifted, 0.5, (1.4, 1.0), 0.0, free), [[1.4, 1.0]])
    np.testing.assert_allclose(lead_of(shifted, 4.0, (1.2, 3.0), 9.0, free)[-1], [1.0, 3.0])
    assert lead_of(shifted, 0.5, (1.4, 1.0), 1.0, room((1.8, 0.0, 2.4, 4.0))).shape == (0, 2)


def test_room_is_lost_where_it_was_there_before():
    line = np.array([[0.5, 1.0], [2.5, 1.0]])
    wall, open_ = room((1.4, 0.0, 1.5, 4.0)), room()
    assert loses_room(line, wall, open_) and loses_room(line, wall, None)
    assert not loses_room(line, open_, wall) and not loses_room(line, open_, None)
    assert not loses_room(line, wall, wall) and not loses_room(line[:1], wall, open_)
    # it lacked room there already: another copy of the same map takes nothing away
    assert not loses_room(line, room((1.4, 0.0, 1.5, 4.0)), wall)
    assert loses_room(line, room((1.4, 0.0, 1.5, 4.0), (2.0, 0.0, 2.1, 4.0)), wall)
    # a tremble of the map is none: the line is as far from the wall as the robot is wide
    near = np.array([[0.5, 1.0], [1.2, 1.0]])
    assert not loses_room(near, wall, open_)
    assert loses_room(np.array([[0.5, 1.0], [1.3, 1.0]]), wall, open_)
    assert not loses_room(np.array([[1.0, 1.0], [1.0, 1.0]]), wall, open_)


def test_who_stands_where_its_way_ends_has_room():
    free = room()
    assert has_room_ahead(free, (1.0, 1.0), POSES[:1], 0.6)
    assert has_room_ahead(free, (1.0, 1.0), POSES, 0.0)

"""The survey area: what is free, reached, wanted and near; reasons where nothing is left."""

import math

import numpy as np
import pytest
import torch
from docs_text import ROOT, fenced
from planning_scene import occupancy
from rooms import free_room, measured_at, somewhere

from gp_mapping.planning import FreeSpace
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.area.survey_area import SurveyArea, hull_space
from gp_mapping.planning.area.travel import Travel


def two_rooms() -> FreeSpace:
    data = np.zeros((40, 81))
    data[:, 40] = 100
    return FreeSpace.from_occupancy_grid(occupancy(data, 0.1, (5.0, -1.0)), 0.2)


def square(x, y, side, frame="") -> Polygon:
    return Polygon.from_corners([(x, y), (x + side, y), (x + side, y + side), (x, y + side)], frame)


def test_it_is_the_robots_room_not_the_drawn_window():
    free = two_rooms()
    area = SurveyArea.from_free_space(free, (6.0, 0.0))
    assert area and area.reason == ""
    assert float(area.cells[:, 0].min()) < 5.4 and 8.5 < float(area.cells[:, 0].max()) < 9.0
    assert float(area.cells[:, 1].max()) > 2.6
    assert area.size == pytest.approx(float(area.free.open.sum()) * 0.01)
    assert float(SurveyArea.from_free_space(free, (11.0, 0.0)).cells[:, 0].min()) > 9.1


def test_cells_stand_for_the_area_however_few():
    free = free_room(3)
    here = somewhere(free)
    fine, coarse = (
        SurveyArea.from_free_space(free, here, max_cells=10**6),
        SurveyArea.from_free_space(free, here, max_cells=90),
    )
    assert len(coarse.cells) <= 90 < len(fine.cells) == int(fine.free.open.sum())
    assert coarse.size == pytest.approx(fine.size)
    assert bool(free.allows(coarse.cells).all())
    mean = (coarse.areas[:, None] * coarse.cells).sum(0) / coarse.size
    torch.testing.assert_close(mean, fine.cells.mean(0), atol=0.1, rtol=0.0)


def test_region_and_keep_out_are_kept_by_every_cell():
    free = two_rooms()
    rng = np.random.default_rng(0)
    region, hole = square(5.5, -0.5, 2.4), square(6.5, 0.5, 0.6)
    area = SurveyArea.from_free_space(free, (6.0, 0.0), region=[region], keep_out=[hole])
    inside = (
        rng.uniform(-0.05, 0.05, (len(area.free.centres()), 2)) + area.free.centres()
    )  # anywhere in a cell
    assert region.contains(inside).all() and not hole.contains(inside).any()
    assert (hole.distance(inside) > 0.2).all(), "the robot's body stays out"
    both = SurveyArea.from_free_space(
        free, (6.0, 0.0), region=[square(5.5, -0.5, 1.0), square(6.5, -0.5, 1.0)]
    )
    assert float(both.cells[:, 0].max()) > 7.3, "two regions that touch are one"
    thin = Polygon.from_corners(
        [(5.0, 1.0), (9.0, 1.0), (9.0, 1.01), (5.0, 1.01)]
    )  # a line on the floor, thinner than a cell
    assert (
        float(SurveyArea.from_free_space(free, (6.0, 0.0), keep_out=[thin]).cells[:, 1].max()) < 0.8
    )


def test_reach_bounds_the_area_and_the_work():
    free = two_rooms()
    area = SurveyArea.from_free_space(free, (6.0, 0.0), reach=1.0)
    assert float((area.cells - torch.tensor([6.0, 0.0])).norm(dim=1).max()) <= 1.0 + 1e-9
    assert area.size == pytest.approx(np.pi, rel=0.2)
    assert area.free.open.size < 0.3 * free.open.size
    wide = SurveyArea.from_free_space(free, (6.0, 0.0), reach=100.0)
    assert wide.size == SurveyArea.from_free_space(free, (6.0, 0.0)).size
    assert SurveyArea.from_free_space(free, (6.0, 1.0), region=[square(7.0, 0.0, 1.0)], search=2.0)


def test_reach_ends_before_the_far_corner_of_a_floor_that_is_no_wider():
    floor = FreeSpace.from_occupancy_grid(occupancy(np.zeros((40, 40)), 0.1, (-1.0, -1.0)), 0.1)
    area = SurveyArea.from_free_space(floor, (-0.5, -0.5), reach=4.0, max_cells=2000)
    farthest = float((area.cells - torch.tensor([-0.5, -0.5])).norm(dim=1).max())
    assert 3.9 < farthest <= 4.0 + 1e-9


def test_without_a_map_it_is_the_hull_of_the_path_grown():
    path = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [2.0, 1.0]])
    area = SurveyArea.from_free_space(None, (4.0, 3.0), path=path, grow=0.5)
    assert "no free-space map: the hull of the path, grown by 0.5 m" in area.reason
    assert area.size == pytest.approx(6.0 + 0.5 * 12.0 + np.pi * 0.25, rel=0.03)
    line = SurveyArea.from_free_space(None, (0.0, 0.0), path=[[0.0, 0.0], [5.0, 0.0]], grow=1.0)
    assert line.size == pytest.approx(10.0 + np.pi, rel=0.03)
    assert SurveyArea.from_free_space(
        None, (1.0, 1.0), path=[[1.0, 1.0]], grow=1.0
    ).size == pytest.approx(np.pi, rel=0.05)
    region = SurveyArea.from_free_space(None, (1.0, 1.0), region=[square(0, 0, 3)])
    assert "the whole region" in region.reason and region.size == pytest.approx(9.0, rel=0.05)
    assert hull_space(np.empty((0, 2)), 1.0) is None


@pytest.mark.parametrize("side", [100.0, 300.0, 1000.0])
def test_a_robot_stands_in_its_cell_however_large_that_is(side):
    """Without a map of obstacles cells grow with the region: their centres are metres away."""
    here = np.array([11.3, 7.7])
    area = SurveyArea.from_free_space(None, here, region=[square(-5.0, -5.0, side)])
    assert area.size == pytest.approx(side * side, rel=0.05)
    travel = Travel(area.free, 0.3)
    assert math.dist(travel.nodes[travel.locate(here)], here) > 0.5
    near = SurveyArea.from_free_space(None, here, region=[square(-5.0, -5.0, side)], reach=10.0)
    assert near.free.resolution < 0.11 and float((near.cells - torch.tensor(here)).abs().max()) < 10


def test_a_long_path_is_looked_at_as_far_as_the_reach():
    path = np.stack([np.linspace(0.0, 400.0, 200), 200.0 * np.sin(np.linspace(0.0, 6.0, 200))], 1)
    area = SurveyArea.from_free_space(None, path[-1], path=path, grow=1.0, reach=10.0)
    assert area.free.resolution < 0.11 and area.size < np.pi * 100.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"free": FreeSpace.from_occupancy_grid(occupancy(np.full((20, 20), 100)))},
            "leaves no place that the robot may",
        ),
        (
            {"position": (0.0, 0.0)},
            "(0.00, 0.00) m stands where the free-space map leaves it no room",
        ),
        ({"region": [square(20.0, 20.0, 1.0)]}, "no free place lies inside the region"),
        ({"region": [square(7.5, 1.0, 1.0)]}, "stands outside the region, more than 0.5 m"),
        ({"keep_out": [square(5.0, -1.0, 2.0)]}, "stands inside a keep-out area"),
        (
            {"region": [square(4.2, -1.8, 3.6)], "keep_out": [square(5.0, -1.0, 2.0)]},
            "stands inside a keep-out area",  # a hole in the region
        ),
        (
            {"keep_out": [square(0.0, -9.0, 30.0)]},
            "no free place lies inside the region, out of the keep-out areas",
        ),
        ({"free": None, "path": None}, "nothing has been measured yet"),
        # nothing is said of a free-space map where there is none
        (
            {"free": None, "region": [square(7.5, 1.0, 1.0)]},
            "stands outside the region, more than 0.5 m",
        ),
        (
            {"free": None, "region": [square(90.0, 1.0, 1.0)], "reach": 10.0},
            "no free place lies inside the region",
        ),
        (
            {"free": None, "path": [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], "grow": 0.5},
            "stands outside the hull of its path, and there is no free-space map",
        ),
        ({"free": None, "region": [square(5.0, -1.0, 1e4)]}, "near to its border, and the ground"),
    ],
)
def test_where_nothing_is_left_it_says_why(arguments, words):
    area = SurveyArea.from_free_space(**({"free": two_rooms(), "position": (6.0, 0.0)} | arguments))
    assert not area and len(area.areas) == 0 and words in area.reason


def test_what_the_page_writes_in_python_plans():
    (code,) = fenced((ROOT / "docs/exploration.md").read_text(), "python")
    free, position = two_rooms(), np.array([6.0, 0.0])
    names = {"free": free, "position": position, "field": measured_at(position)}
    exec(code.replace("metres=40.0, home=(0.0, 0.0)", "metres=6.0, home=(6.0, 0.0)"), names)
    assert 4.0 < names["way"].metres <= 6.0 and names["way"].gains.sum() > 0.0


def test_frames_and_bounds_are_checked():
    free = two_rooms()
    with pytest.raises(ValueError, match="region is in frame 'odom' and the map in 'map'"):
        SurveyArea.from_free_space(free, (6.0, 0.0), region=[square(5, 0, 1, "odom")], frame="map")
    with pytest.raises(ValueError, match="free-space map is in frame 'map' and the map in 'earth'"):
        SurveyArea.from_free_space(free, (6.0, 0.0), frame="earth")
    assert SurveyArea.from_free_space(
        free, (6.0, 0.0), region=[square(5.2, -0.5, 3, "/map")], frame="map"
    )
    with pytest.raises(ValueError, match="expected a reach above 0"):
        SurveyArea.from_free_space(free, (6.0, 0.0), reach=0.0)


@pytest.mark.parametrize("yaw", [0.0, 0.6, -2.0])
@pytest.mark.parametrize("here", [(1.2, 1.0), (0.1, 0.1), (3.9, 2.9), (0.3, 2.7)])
def test_a_grid_that_is_cut_to_the_reach_has_the_same_cells_and_obstacles(yaw, here):
    data = np.zeros((30, 40))
    data[14, 17] = 100
    free = FreeSpace.from_occupancy_grid(occupancy(data, 0.1, (3.0, -7.0), yaw), 0.15)
    turned = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
    position = np.array(here) @ turned + (3.0, -7.0)
    area = SurveyArea.from_free_space(free, position, reach=0.8, max_cells=10**6)
    x = free.centres()
    near = x[np.hypot(*(x - position).T) <= 0.8]
    np.testing.assert_allclose(area.cells, near, atol=1e-9)
    assert area.free.open.size <= (2 * 12 + 1) ** 2
    cut, whole = (np.minimum(each.room(near, 0.3), 0.3) for each in (area.free, free))
    np.testing.assert_allclose(cut, whole, atol=1e-9)
    np.testing.assert_allclose(
        area.free.clearance[area.free.open],
        free.clearance[np.isin(free.open, True)][np.hypot(*(x - position).T) <= 0.8],
    )


@pytest.mark.parametrize("width, height", [(3.0, 2.0), (300.0, 100.0), (9000.0, 2.0)])
def test_a_region_without_a_map_has_a_bounded_grid(width, height):
    region = Polygon.from_corners([(0, 0), (width, 0), (width, height), (0, height)])
    here = (width / 2, height / 2)
    area = SurveyArea.from_free_space(None, here, region=[region])
    rows, columns = area.free.open.shape
    assert max(rows * columns, rows, columns) < 1.03 * 40_000 + rows + columns
    cell = area.free.resolution
    assert cell == pytest.approx(
        max(0.05, ((width + 0.1) * (height + 0.1) / 40_000) ** 0.5, (width + 0.1) / 40_000)
    )
    assert area.size == pytest.approx(width * height, rel=4 * cell / min(width, height))
    near = SurveyArea.from_free_space(None, here, region=[region], reach=0.7)
    assert near.free.resolution == 0.05 and near.size == pytest.approx(0.49 * np.pi, rel=0.1)


def test_how_far_the_robot_may_stand_from_the_area():
    region = [square(7.0, 0.0, 1.0)]
    for x, found in ((6.3, True), (5.9, False)):
        assert (
            bool(SurveyArea.from_free_space(two_rooms(), (x, 0.5), region=region, search=1.0))
            == found
        )
    with pytest.raises(ValueError, match="grow=-1"):
        SurveyArea.from_free_space(two_rooms(), (6.0, 0.0), grow=-1.0)
    with pytest.raises(ValueError, match="max_cells=0"):
        SurveyArea.from_free_space(two_rooms(), (6.0, 0.0), max_cells=0)
    one = SurveyArea.from_free_space(two_rooms(), (6.0, 0.0), max_cells=1, grow=0.0)
    assert len(one.cells) == 1 and one.size > 5.0
    empty = SurveyArea.empty("none")
    assert not empty and empty.reason == "none" and empty.size == 0.0 and not empty.free.open.any()


def test_the_robots_body_stays_out_of_what_is_kept_out_cell_by_cell():
    """A cell's centre is farther than its half diagonal and the radius from the border."""
    free = two_rooms()
    hole = square(7.0, 0.0, 0.6)
    area = SurveyArea.from_free_space(free, (6.0, 0.0), keep_out=[hole])
    plain = SurveyArea.from_free_space(free, (6.0, 0.0))
    x = plain.free.centres()
    kept = x[~hole.contains(x) & (hole.distance(x) > 0.2 + 0.1 * np.sqrt(0.5))]
    np.testing.assert_allclose(area.free.centres(), kept)
    # no map of obstacles has the radius: it is given, and has no effect where one has it
    same = SurveyArea.from_free_space(free, (6.0, 0.0), keep_out=[hole], robot_radius=0.4)
    np.testing.assert_array_equal(same.free.open, area.free.open)
    region = [square(5.0, -2.0, 4.0)]
    for radius in (0.0, 0.3):
        given = {"region": region, "keep_out": [hole], "robot_radius": radius}
        x = SurveyArea.from_free_space(None, (6.0, 0.0), **given).free.centres()
        assert radius < hole.distance(x).min() < radius + 0.11
    inside = SurveyArea.from_free_space(free, (6.0, 0.0), region=[square(5.5, -0.5, 1.03)])
    x = plain.free.centres()
    whole = x[((x >= [5.55, -0.45]) & (x <= [6.481, 0.481])).all(1)]
    np.testing.assert_allclose(inside.free.centres(), whole)


@pytest.mark.parametrize("shape", [(2, 40), (40, 2), (40, 40)])
@pytest.mark.parametrize("end", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("beyond", [-0.0005, 0.0005])
def test_of_a_floor_as_long_as_the_reach_the_farthest_corner_is_left_out(shape, end, beyond):
    floor = FreeSpace.from_occupancy_grid(occupancy(np.zeros(shape), 0.1, (-1.0, -1.0)), 0.0)
    ends = np.array([end, 1 - np.array(end)]).T * (np.array(shape) - 1)[:, None]
    tip, here = floor.centres_at(*ends)
    reach = math.dist(tip, here) + beyond
    area = SurveyArea.from_free_space(floor, here, reach=reach, max_cells=2000)
    assert len(area.cells) == shape[0] * shape[1] - (beyond < 0)
    assert float((area.cells - torch.from_numpy(here)).norm(dim=1).max()) <= reach


def test_an_empty_area_has_no_place_and_its_reason():
    empty = SurveyArea.empty("because")
    assert not empty and empty.size == 0.0 and empty.reason == "because"
    assert empty.cells.shape == (0, 2) and empty.areas.shape == (0,)
    assert not empty.free.open.any()

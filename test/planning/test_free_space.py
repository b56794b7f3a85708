"""Occupancy grids as messages bring them: thresholds, unknown cells, the robot's radius, a rotated origin."""

import math
from array import array
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_scene import occupancy

from gp_mapping.planning import FreeSpace


def at(*places):
    return torch.tensor(places, dtype=torch.float64)


def test_thresholds_and_unknown():
    row = occupancy([[0, 24, 25, 64, 65, 100, -1]], 1.0)
    x = at(*[(i + 0.5, 0.5) for i in range(7)])
    assert FreeSpace.from_occupancy_grid(row).allows(x).tolist() == [True, True] + [False] * 5
    lenient = FreeSpace.from_occupancy_grid(row, unknown="free")
    assert lenient.allows(x).tolist() == [True] * 4 + [False, False, True]
    assert lenient.frame == "map"


def test_row_zero_is_the_lowest_and_outside_is_never_allowed():
    data = np.zeros((2, 3))
    data[1, 2] = 100
    free = FreeSpace.from_occupancy_grid(occupancy(data, 1.0, (10.0, -5.0)), unknown="free")
    assert free.allows(at((10.5, -4.5), (12.5, -3.5), (12.5, -4.5))).tolist() == [True, False, True]
    assert not free.allows(
        at((9.9, -4.5), (13.1, -4.5), (10.5, -5.1), (10.5, -2.9), (1e9, 1e9))
    ).any()
    # nor is a line that begins there, or nowhere
    ends = [(9.9, -4.5), (10.5, -5.1), (1e15, 1e15), (math.nan, -4.5), (10.5, -4.5)]
    inside = [(10.1, -4.5), (10.5, -4.9), (1e15, 1e15), (10.5, -4.5), (11.5, -4.5)]
    with np.errstate(invalid="ignore"):
        for look in (free.sees, free.seems_open):
            assert look(ends, inside).tolist() == [False, False, False, False, True]


@given(st.floats(-3.2, 3.2), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
@settings(max_examples=40, deadline=None)
def test_rotated_origin_is_the_same_map_turned(yaw, ox, oy):
    generator = np.random.default_rng(1)
    data = generator.choice([0, 100, -1], (7, 5))
    flat = FreeSpace.from_occupancy_grid(occupancy(data, 0.5))
    turned = FreeSpace.from_occupancy_grid(occupancy(data, 0.5, (ox, oy), yaw))
    column, row = np.meshgrid(np.arange(5), np.arange(7))
    x = (np.stack([column, row], -1).reshape(-1, 2) + generator.uniform(0.1, 0.9, (35, 2))) * 0.5
    c, s = math.cos(yaw), math.sin(yaw)
    world = x @ np.array([[c, s], [-s, c]]) + np.array([ox, oy])
    assert torch.equal(flat.allows(torch.from_numpy(x)), turned.allows(torch.from_numpy(world)))


@pytest.mark.parametrize("radius", [0.05, 0.2, 0.33])
def test_robot_radius_against_brute_force(radius):
    """Wherever it is allowed, no obstacle's square is nearer than the radius; and it is not needlessly strict."""
    generator = np.random.default_rng(0)
    resolution, data = 0.1, np.where(np.random.default_rng(3).random((30, 40)) < 0.03, 100, 0)
    free = FreeSpace.from_occupancy_grid(occupancy(data, resolution), radius)
    x = generator.uniform(0, 1, (3000, 2)) * np.array([4.0, 3.0])
    rows, columns = np.nonzero(data)
    low = np.stack([columns, rows], 1) * resolution
    gap = np.maximum(np.maximum(low[None] - x[:, None], x[:, None] - low[None] - resolution), 0)
    gap = np.hypot(gap[..., 0], gap[..., 1]).min(1)
    gap = np.minimum(
        gap, np.minimum(x, np.array([4.0, 3.0]) - x).min(1)
    )  # the outside is unknown, hence blocked
    allowed = free.allows(torch.from_numpy(x)).numpy()
    assert (gap[allowed] >= radius - 1e-9).all()
    assert allowed.any() and allowed[gap > radius + 2 * math.sqrt(2) * resolution].all()


def test_radius_against_unknown_cells():
    data = np.zeros((9, 9))
    data[4, 4] = -1
    near = at((0.55, 0.45))
    assert not FreeSpace.from_occupancy_grid(occupancy(data), 0.1).allows(near).any()
    assert FreeSpace.from_occupancy_grid(occupancy(data), 0.0).allows(near).all()
    assert FreeSpace.from_occupancy_grid(occupancy(data), 0.1, unknown="free").allows(near).all()


def test_reachable_is_the_robots_own_room():
    data = np.zeros((10, 21))
    data[:, 10] = 100
    free = FreeSpace.from_occupancy_grid(occupancy(data, 0.1, (5.0, 5.0), 0.3))
    c, s = math.cos(0.3), math.sin(0.3)
    left, right = ((5.0 + c * u - s * 0.5, 5.0 + s * u + c * 0.5) for u in (0.45, 1.65))
    assert free.reachable_from(left).allows(at(left, right)).tolist() == [True, False]
    assert free.reachable_from(right).allows(at(left, right)).tolist() == [False, True]
    assert not free.reachable_from((0.0, 0.0)).open.any()
    assert free.allows(at(left, right)).all()


def _broken(**changes):
    message = occupancy(np.zeros((4, 5)))
    for name, value in changes.items():
        target = message.info if hasattr(message.info, name) else message
        target = message.info.origin if name == "orientation" else target
        setattr(target, name, value)
    return message


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (_broken(width=6), "20 values for 6 x 4"),
        (_broken(resolution=0.0), "positive resolution"),
        (_broken(resolution=float("nan")), "positive resolution"),
        (_broken(data=array("b", [101] * 20)), "101"),
        (_broken(data=array("b", [-2] * 20)), "-2"),
        (
            _broken(orientation=SimpleNamespace(x=0.0, y=0.0, z=0.0, w=0.0)),
            "zero or non-finite quaternion",
        ),
        (_broken(orientation=SimpleNamespace(x=0.7, y=0.0, z=0.0, w=0.7)), "tilted"),
        (
            _broken(orientation=SimpleNamespace(x=0.0, y=0.7, z=0.0, w=0.7)),
            "tilted .quaternion x=0.0000 y=0.7071",
        ),
        (occupancy(np.zeros((4, 5)), origin=(float("inf"), 0.0)), "expected finite metres"),
        (occupancy(np.zeros((4, 5)), origin=(0.0, -1e200)), "expected finite metres"),
        (occupancy(np.zeros((4, 5)), resolution=1e150), "expected finite metres, at most 1e.08"),
        (occupancy(np.zeros((0, 5))), "at least one cell"),
    ],
)
def test_contradicting_messages_are_refused(message, words):
    with pytest.raises(ValueError, match=words):
        FreeSpace.from_occupancy_grid(message)


@pytest.mark.parametrize(
    "wrong",
    [
        {"radius": -1.0},
        {"radius": float("nan")},
        {"unknown": "maybe"},
        {"free_threshold": 70},
        {"free_threshold": 0},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        FreeSpace.from_occupancy_grid(occupancy(np.zeros((2, 2))), **wrong)


def test_components_are_found_once_and_a_robot_in_the_same_one_costs_nothing():
    data = np.zeros((60, 80), np.int8)
    data[:, 40] = 100
    free = FreeSpace.from_occupancy_grid(
        SimpleNamespace(
            header=SimpleNamespace(frame_id="map"),
            data=data.ravel(),
            info=SimpleNamespace(
                width=80,
                height=60,
                resolution=0.1,
                origin=SimpleNamespace(
                    position=SimpleNamespace(x=-1.0, y=2.0),
                    orientation=SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0),
                ),
            ),
        )
    )
    left, right = free.reachable_from((0.0, 3.0)), free.reachable_from((5.0, 3.0))
    assert free.reachable_from((6.0, 7.0)) is right and left is not right
    assert (
        left.open.sum() == 60 * 40
        and right.open.sum() == 60 * 39
        and not (left.open & right.open).any()
    )
    assert (
        not free.reachable_from((-3.0, 3.0)).open.any()
        and not free.reachable_from((math.nan, 1.0)).open.any()
    )

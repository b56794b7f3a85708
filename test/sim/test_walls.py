"""Walls stop a robot that is steered into them, and let it go."""

import math

import pytest

from gp_mapping.sim.robot import CommandedDrive, RobotSettings
from gp_mapping.sim.walls import Walls, parse_walls


def test_boxes_are_read_and_wrong_ones_named():
    assert (
        parse_walls("1 0 1.1 2, 3 3 4 4") == [[1.0, 0.0, 1.1, 2.0], [3.0, 3.0, 4.0, 4.0]]
        and parse_walls("") == []
    )
    for text in ("1 0 1.1", "2 0 1 1", "a b c d"):
        with pytest.raises(ValueError, match="is not 'x0 y0 x1 y1'"):
            parse_walls(text)


def test_clearance_is_the_distance_to_the_nearest_wall():
    walls = Walls(6.0, 5.0, [[2.0, 0.0, 2.2, 3.0]])
    assert walls.clearance(1.0, 2.5) == pytest.approx(1.0) and walls.clearance(2.1, 1.0) == 0.0
    assert walls.clearance(3.2, 4.0) == pytest.approx(1.0) and walls.clearance(-0.5, 1.0) == -0.5
    assert walls.clearance(2.6, 3.3) == pytest.approx(0.5)


def test_a_robot_stops_at_a_wall_and_turns_away_from_it():
    walls = Walls(6.0, 5.0, [[2.0, 0.0, 2.2, 3.0]])
    robot = CommandedDrive(1.0, 1.0, 0.0, RobotSettings(radius=0.15), walls=walls)
    for _ in range(1000):
        robot.command(0.5, 0.0)
        robot.step(0.01)
    assert robot.bumps == 1 and robot.x == pytest.approx(1.85, abs=0.01) and robot.travelled < 0.86
    for turn in (1.0,) * 350 + (0.0,) * 300:
        robot.command(0.0 if turn else 0.5, turn)
        robot.step(0.01)
    assert robot.bumps == 1 and robot.x < 1.2, "it drove away again"
    assert math.isclose(walls.clearance(1.85, 1.0), 0.15)


def test_a_driver_aboard_is_asked_in_every_step():
    seen = []
    robot = CommandedDrive(
        1.0, 1.0, walls=Walls(6.0, 5.0), driver=lambda *pose: seen.append(pose) or (0.3, 0.0)
    )
    for _ in range(50):
        robot.step(0.01)
    assert len(seen) == 50 and robot.x > 1.05

"""Steering along a line with the simulated robot's own limits: close to the line, around corners, and to a stop."""

import math
from itertools import pairwise

import numpy as np
import pytest

from gp_mapping.runtime.surveying.way.pursuit import Pursuit
from gp_mapping.sim.robot import CommandedDrive, RobotSettings


def driven(line, start, yaw=0.0, seconds=120.0):
    robot = CommandedDrive(
        *start, yaw=yaw, settings=RobotSettings(max_speed=0.5, max_turn_rate=1.5)
    )
    pursuit = Pursuit(0.3, 1.0, 0.5, 0.06)
    pursuit.follow(line)
    track = []
    for step in range(int(seconds * 50)):
        if step % 3 == 0:
            robot.command(*pursuit.command(robot.x, robot.y, robot.yaw))
        robot.step(0.02)
        track.append((robot.x, robot.y))
        if pursuit.done and robot.speed == 0.0:
            break
    return np.array(track), robot, pursuit


def away(track, line):
    best = np.full(len(track), np.inf)
    for a, b in pairwise(line):
        share = np.clip((track - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
        best = np.minimum(best, np.hypot(*(track - a - share[:, None] * (b - a)).T))
    return best


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("yaw", [0.0, 2.5, -1.6])
def test_it_keeps_within_centimetres_of_a_zigzag(dense, yaw):
    line = np.array([[0, 0], [2, 0], [2, 1.0], [0.5, 1.2], [2.0, 1.9], [0.0, 0.4]], dtype=float)
    given = line
    if dense:
        given = np.vstack(
            [
                a
                + (b - a)
                * np.linspace(0, 1, max(2, int(math.dist(a, b) / 0.25)), endpoint=False)[:, None]
                for a, b in pairwise(line)
            ]
            + [line[-1:]]
        )
    track, robot, pursuit = driven(given, (0.0, 0.0), yaw)
    assert pursuit.done and math.dist((robot.x, robot.y), line[-1]) < 0.08
    assert away(track, line).max() < 0.07


def test_a_robot_beside_the_line_comes_to_it_and_an_empty_line_stops_it():
    track, robot, pursuit = driven(np.array([[1.0, 0.0], [3.0, 0.0]]), (0.0, 0.5))
    assert math.dist((robot.x, robot.y), (3.0, 0.0)) < 0.08
    pursuit.follow([])
    assert pursuit.done and pursuit.command(0.0, 0.0, 0.0) == (0.0, 0.0)


def test_a_base_without_commands_stops_and_takes_no_nonsense():
    robot = CommandedDrive(0.0, 0.0)
    robot.command(0.4, 0.0)
    for _ in range(200):
        robot.step(0.02)
    assert robot.speed == 0.0 and 0.1 < robot.x < 0.6 and not robot.done
    robot.command(float("nan"), 1.0)
    robot.step(0.02)
    assert math.isfinite(robot.x) and robot.turn_rate == 0.0


@pytest.mark.parametrize(("corner", "full"), [(3.0, True), (0.2, False)])
def test_however_dense_its_points_a_straight_is_driven_at_full_speed_and_a_corner_slowly(
    corner, full
):
    pursuit = Pursuit(0.3, 1.0, 0.5, 0.06)
    straight = np.linspace(0.0, corner, round(corner / 0.02) + 1)
    pursuit.follow(np.vstack([np.stack([straight, np.zeros_like(straight)], 1), [(corner, 0.5)]]))
    speed, turn = pursuit.command(0.1, 0.0, 0.0)
    assert (
        speed == (0.3 if full else pytest.approx(math.sqrt(2.0 * 0.5 * (0.1 - 0.3 * 0.06))))
        and turn == 0.0
    )


def test_a_new_line_is_joined_where_the_robot_is_not_where_it_begins():
    pursuit = Pursuit(0.3, 1.0, 0.5, 0.06)
    pursuit.follow([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [1.0, 2.0]])
    speed, turn = pursuit.command(0.8, 0.02, 0.0)
    assert speed > 0.1 and abs(turn) < 0.3, "on, not back to the beginning"
    np.testing.assert_allclose(pursuit.points_ahead[0], [1.0, 0.0])


@pytest.mark.parametrize(("aside", "passed"), [(0.1, True), (0.2, False)])
def test_a_point_of_a_straight_that_is_passed_by_is_behind_unless_it_is_far_off(aside, passed):
    """Three tolerances: who is carried farther off goes back to the line."""
    pursuit = Pursuit(0.3, 1.0, 0.5, 0.06)
    pursuit.follow([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [1.5, 0.0]])
    pursuit.command(0.3, 0.0, 0.0)
    np.testing.assert_allclose(pursuit.points_ahead[0], [0.5, 0.0])
    speed, _ = pursuit.command(0.55, aside, 0.0)
    np.testing.assert_allclose(pursuit.points_ahead[0], [1.0 if passed else 0.5, 0.0])
    assert (speed > 0.0) == passed


STRAIGHT = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [9.0, 0.0]]


@pytest.mark.parametrize(
    "yaw, turn, share",
    [
        (0.0, 0.0, 1.0),
        (0.2, -0.4, math.cos(0.2) ** 2),
        (-0.3, 0.6, math.cos(0.3) ** 2),
        (0.51, -1.0, math.cos(0.51) ** 2),  # as fast as it turns
        (0.53, -1.0, 0.0),  # beyond 30° on the spot
        (-3.0, 1.0, 0.0),
        (math.tau + 0.2, -0.4, math.cos(0.2) ** 2),
    ],
)
def test_it_turns_by_twice_its_error_a_second_and_drives_as_it_points(yaw, turn, share):
    pursuit = Pursuit(0.3, 1.0, 0.5, 0.06)
    pursuit.follow(STRAIGHT)
    assert pursuit.command(0.5, 0.0, yaw) == (pytest.approx(0.3 * share), pytest.approx(turn))


@pytest.mark.parametrize("left", [0.5, 0.1, 0.065])
def test_it_can_stop_at_the_end_from_the_speed_that_it_has(left):
    pursuit = Pursuit(9.0, 1.0, 0.5, 0.06)
    pursuit.follow([[0.0, 0.0], [2.0, 0.0]])
    speed, _ = pursuit.command(2.0 - left, 0.0, 0.0)
    assert speed == pytest.approx(math.sqrt(2.0 * 0.5 * max(left - 0.018, 0.01)))


@pytest.mark.parametrize("angle, slow", [(0.1, False), (0.2, True), (-0.2, True)])
def test_a_bend_is_a_corner_beyond_a_hundredth_of_a_turn(angle, slow):
    pursuit = Pursuit(0.9, 1.0, 0.5, 0.06)
    bend = [1.0 + 3.0 * math.cos(angle), 3.0 * math.sin(angle)]
    pursuit.follow([[0.0, 0.0], [1.0, 0.0], bend])
    speed, _ = pursuit.command(0.8, 0.0, 0.0)
    assert speed == pytest.approx(math.sqrt(0.2 - 0.018) if slow else 0.9)


def test_a_point_is_reached_within_the_tolerance_and_a_corner_is_not_cut():
    pursuit = Pursuit(0.3, 1.0, 0.5, 0.1)
    corner = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    for x, ahead in ((0.89, 2), (0.91, 1)):
        pursuit.follow(corner)
        pursuit.ahead_of(0.5, 0.0)
        assert len(pursuit.ahead_of(x, 0.0)) == ahead
    pursuit.follow(corner)
    pursuit.ahead_of(0.5, 0.0)
    assert len(pursuit.ahead_of(1.02, -0.15)) == 2, "beside a corner, it is not passed"
    straight = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]
    for at, ahead in (((0.95, 0.15), 2), ((1.05, 0.15), 1), ((1.05, 0.31), 2)):
        pursuit.follow(straight)
        pursuit.ahead_of(0.5, 0.0)
        assert len(pursuit.ahead_of(*at)) == ahead, at
    # the end is reached, not passed
    pursuit.follow(straight[:2])
    pursuit.ahead_of(0.5, 0.0)
    assert len(pursuit.ahead_of(1.15, 0.0)) == 1 and not pursuit.done
    assert len(pursuit.ahead_of(1.05, 0.0)) == 0 and pursuit.done


def test_of_a_new_line_the_first_metre_and_a_half_may_be_behind():
    pursuit = Pursuit(0.3, 1.0, 0.5, 0.06)
    line = [[0.4 * i, 0.0] for i in range(9)]
    for x, first in ((-1.0, 0.0), (0.1, 0.4), (0.5, 0.8), (1.5, 1.6), (1.9, 1.6), (3.1, 1.6)):
        pursuit.follow(line)
        points = pursuit.ahead_of(x, 0.01)
        assert points[0][0] == pytest.approx(first), x
    # it comes back to where it began: the beginning counts, not the end
    loop = [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 0.1]]
    pursuit.follow(loop)
    assert len(pursuit.ahead_of(0.0, 0.08)) == 4
    assert len(pursuit.ahead_of(0.0, 0.05)) == 3 == len(pursuit.points_ahead)


def test_where_a_line_begins_there_is_no_corner():
    pursuit = Pursuit(0.9, 1.0, 0.5, 0.06)
    pursuit.follow([[0.0, 0.0], [5.0, 0.0]])
    speed, turn = pursuit.command(-0.1, 0.0, 0.0)
    assert (speed, turn) == (0.9, 0.0)


@pytest.mark.parametrize("angle, shift", [(2.5, (40.0, -30.0)), (-1.1, (-7.0, 90.0))])
def test_it_does_the_same_wherever_the_line_lies_and_whichever_way_it_leads(angle, shift):
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    along, rng = np.arange(0.0, 6.0, 0.25), np.random.default_rng(0)
    line = np.stack([np.minimum(along, 3.0), np.maximum(along - 3.0, 0.0)], 1)
    here, there = (Pursuit(0.3, 1.0, 0.5, 0.06) for _ in range(2))
    here.follow(line)
    there.follow(line @ turn.T + shift)
    left = []
    for metres in np.arange(0.0, 5.5, 0.05):
        on = np.array([min(metres, 3.0), max(metres - 3.0, 0.0)])
        if abs(metres - 3.0) > 0.02:  # corners are not cut
            on += rng.uniform(-0.1, 0.1, 2)
        yaw = (0.0 if metres < 3.0 else math.pi / 2) + rng.uniform(-0.3, 0.3)
        expected = here.command(*on, yaw)
        assert there.command(*(turn @ on + shift), yaw + angle) == pytest.approx(expected, abs=1e-9)
        assert len(there.points_ahead) == len(here.points_ahead)
        left.append(len(here.points_ahead))
    assert left[-1] <= 3, "points beside it are passed, too"

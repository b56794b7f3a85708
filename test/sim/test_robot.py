"""The robot keeps to its limits and reaches its waypoints; odometry drifts as it says it does."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_mapping.sim.robot import (
    CommandedDrive,
    DifferentialDrive,
    DriftingOdometry,
    OdometrySettings,
    RobotSettings,
    lawnmower,
)


def drive(robot, dt=0.01, limit=600.0):
    """Rows of t, x, y, yaw, speed, turn rate until the route is done."""
    rows = [(0.0, robot.x, robot.y, robot.yaw, robot.speed, robot.turn_rate)]
    while not robot.done:
        robot.step(dt)
        rows.append((rows[-1][0] + dt, robot.x, robot.y, robot.yaw, robot.speed, robot.turn_rate))
        assert rows[-1][0] < limit, (
            f"stuck at {robot.x, robot.y}, {robot.progress:.0%} of the route done"
        )
    return np.array(rows)


def check_limits(rows, s, dt):
    t, x, y, yaw, v, w = rows.T
    tiny = 1 + 1e-9
    assert (
        v.min() >= 0 and v.max() <= s.max_speed * tiny and np.abs(w).max() <= s.max_turn_rate * tiny
    )
    assert np.abs(np.diff(v)).max() <= s.max_acceleration * dt * tiny
    assert np.abs(np.diff(w)).max() <= s.max_turn_acceleration * dt * tiny
    # what it does is what it says: the poses themselves move no faster, and only along the heading
    assert np.hypot(np.diff(x), np.diff(y)).max() <= s.max_speed * dt * tiny
    turned = np.array([math.remainder(d, math.tau) for d in np.diff(yaw)])
    assert np.abs(turned).max() <= s.max_turn_rate * dt * tiny + 1e-12
    middle = yaw[:-1] + turned / 2
    assert (
        np.abs(-np.sin(middle) * np.diff(x) + np.cos(middle) * np.diff(y)).max() < 1e-12
    )  # no sideways slip


def test_lawnmower_is_covered_within_the_limits():
    robot = DifferentialDrive(lawnmower(0.4, 0.4, 5.6, 4.6, 0.6, 1.3))
    rows = drive(robot)
    check_limits(rows, robot.settings, 0.01)
    for waypoint in robot.waypoints:
        assert np.hypot(rows[:, 1] - waypoint[0], rows[:, 2] - waypoint[1]).min() < 0.06
    assert (
        rows[:, 1:3].min() > 0.3 and rows[:, 1].max() < 5.7 and rows[:, 2].max() < 4.7
    )  # does not swing wide
    assert robot.travelled == pytest.approx(robot.length, rel=0.03)
    assert robot.progress == 1.0 and robot.speed == 0.0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=2, max_size=5),
    st.floats(0.1, 2.0),
    st.floats(0.3, 4.0),
    st.floats(0.2, 5.0),
    st.floats(-3, 3),
)
def test_any_route_ends_within_the_limits(route, speed, turn, acceleration, yaw):
    s = RobotSettings(max_speed=speed, max_turn_rate=turn, max_acceleration=acceleration)
    rows = drive(DifferentialDrive(route, s, yaw=yaw), dt=0.02, limit=2000.0)
    if len(rows) > 1:
        check_limits(rows, s, 0.02)


@pytest.mark.parametrize("speed", [-5.0, 5.0])
def test_a_commanded_robot_keeps_to_its_limits_backwards_as_well(speed):
    robot, way = CommandedDrive(0.0, 0.0), []
    s, dt = robot.settings, 0.02
    for _ in range(200):
        robot.command(speed, 0.0)
        before = robot.speed
        robot.step(dt)
        assert abs(robot.speed - before) <= s.max_acceleration * dt * (1 + 1e-9)
        way.append(abs(robot.speed) * dt)
    assert robot.speed == math.copysign(s.max_speed, speed)
    assert math.copysign(1.0, robot.x) == math.copysign(1.0, speed)
    assert robot.travelled == pytest.approx(sum(way)) == pytest.approx(abs(robot.x))


def test_a_route_of_one_place_is_done():
    robot = DifferentialDrive([[1.0, 2.0]] * 3)
    assert robot.progress == 1.0
    robot.step(0.02)
    assert robot.done and robot.progress == 1.0 and (robot.x, robot.y) == (1.0, 2.0)


def test_lawnmower_lanes_lie_on_the_borders_and_turn_back_and_forth():
    points = lawnmower(0.0, 0.0, 2.0, 1.0, 0.4)
    assert sorted(set(points[:, 1])) == pytest.approx(
        [0.0, 1 / 3, 2 / 3, 1.0]
    )  # at most 0.4 m apart
    assert points[:4].tolist() == [
        [0, 0],
        [2, 0],
        [2, pytest.approx(1 / 3)],
        [0, pytest.approx(1 / 3)],
    ]
    crossed = lawnmower(0.0, 0.0, 2.0, 1.0, 0.4, 1.0)
    steps = np.abs(np.diff(crossed, axis=0))
    assert (steps.min(axis=1) < 1e-12).all() and (
        steps.max(axis=1) > 0
    ).all()  # along x or along y, never nowhere
    assert np.allclose(crossed[: len(points)], points) and set(crossed[len(points) :, 0]) == {
        0.0,
        1.0,
        2.0,
    }


def test_no_drift_means_the_true_pose():
    o = DriftingOdometry(OdometrySettings(), np.random.default_rng(0), 1.0, 2.0, 0.5)
    o.update(3.0, 4.0, -1.0)
    assert (o.x, o.y, o.yaw) == (3.0, 4.0, -1.0)
    assert np.array_equal(o.reported_covariance(), np.diag([1e-6] * 3))


def test_drift_has_the_covariance_it_reports():
    s = OdometrySettings(distance_drift=0.02, heading_drift=0.02, turn_drift=0.01)
    errors, nees = [], []
    for seed in range(400):
        o = DriftingOdometry(s, np.random.default_rng(seed), 0.0, 0.0, 0.0)
        for k in range(1, 101):  # an arc of radius 5 m and length 5 m
            yaw = 0.01 * k
            o.update(5 * math.sin(yaw), 5 - 5 * math.cos(yaw), yaw)
        errors.append((o.x - 5 * math.sin(1.0), o.y - 5 + 5 * math.cos(1.0), o.yaw - 1.0))
        nees.append(errors[-1] @ np.linalg.solve(o.covariance, errors[-1]))
    errors = np.array(errors)
    truth = np.cov(errors.T)
    assert np.linalg.norm(o.covariance - truth) < 0.25 * np.linalg.norm(truth)
    assert 2.6 < np.mean(nees) < 3.4  # chi squared with 3 degrees of freedom


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: lawnmower(1.0, 0.0, 1.0, 2.0, 0.5), "is empty"),
        (lambda: lawnmower(0.0, 0.0, 1.0, 2.0, 0.0), "spacing"),
        (lambda: DifferentialDrive([[0.0, 0.0]]), "at least 2"),
        (lambda: DifferentialDrive([[0.0, 0.0], [math.nan, 1.0]]), "finite"),
        (lambda: RobotSettings(max_speed=0.0), "max_speed"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()

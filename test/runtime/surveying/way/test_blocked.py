"""A robot that does not get on: the next goal and the ground ahead of it are left out, and the survey goes on."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from survey_scene import Robot, floor, settings

from gp_mapping.planning.budget import Budget
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.plan import Plan
from gp_mapping.runtime.surveying import rules as rules_module
from gp_mapping.runtime.surveying.rules import Basis, RulesNow
from gp_mapping.runtime.surveying.way import driven_path
from gp_mapping.runtime.surveying.way.blocked import leave_out, way_home_remarks
from gp_mapping.runtime.surveying.way.course import Course
from gp_mapping.runtime.surveying.way.driven_path import DrivenPath, length_of
from gp_mapping.runtime.surveying.way.pursuit import Pursuit

SETTINGS = settings(robot_radius=0.1, plan_avoid=0.5)
# along y = 1, with goals at 2 and 4 m, and home again
ALONG = Plan(
    "route",
    np.array([[1.0, 1.0], [4.0, 1.0], [4.0, 3.0], [1.0, 3.0]]),
    stops=np.array([[2.0, 1.0], [4.0, 1.0], [1.0, 3.0]]),
    stop_marks=np.array([1.0, 3.0, 8.0]),
    nodes=(7, 8),
    metres=8.0,
    seconds=30.0,
)


def course(plan: Plan = ALONG, home=(1.0, 3.0), along: float = 0.0, wall: bool = True) -> Course:
    free = FreeSpace.from_occupancy_grid(floor(wall=wall), SETTINGS.robot_radius)
    made = Course(plan, Basis(free=free, home=home))
    made.along = along
    return made


def closed(rules: RulesNow) -> list:
    return [goal[:2] for goal in rules.now().closed]


def test_a_pose_of_the_plan_that_is_not_reached_takes_its_next_goal_along():
    rules = RulesNow()
    leave_out(rules, course(), (1.0, 1.0), (3.0, 1.0), SETTINGS)
    assert closed(rules) == [(3.0, 1.0), (4.0, 1.0)] and not rules.barred

    rules = RulesNow()
    leave_out(rules, course(along=4.0), (4.0, 2.0), (1.0, 3.0), SETTINGS)
    assert closed(rules) == [(1.0, 3.0)], "there is no goal behind home"
    leave_out(rules, course(along=2.0), (3.0, 1.0), (2.0, 1.0), SETTINGS)
    assert closed(rules)[1:] == [(2.0, 1.0)], "it lies behind the robot"
    leave_out(rules, course(Plan("route")), None, (9.0, 9.0), SETTINGS)
    assert closed(rules)[2:] == [(9.0, 9.0)] and not rules.barred


def test_what_stands_right_ahead_is_led_around_from_the_robots_body_on_and_for_a_time(monkeypatch):
    now = 0.0
    monkeypatch.setattr(rules_module, "time", SimpleNamespace(monotonic=lambda: now))
    rules, at = RulesNow(), np.array([3.0, 1.0])
    leave_out(rules, course(home=None, along=2.0), at, (3.1, 1.0), SETTINGS)
    ((x, y, radius),) = rules.barred
    assert radius == 0.5 and (x, y) == pytest.approx((3.8, 1.0))
    (disc,) = rules.now().keep_out
    assert disc.distance(at[None])[0] > 0.1 + 0.1 and rules.now().keep_out is rules.now().keep_out

    leave_out(rules, course(home=None, along=2.0), (3.8, 0.5), (3.8, 0.6), SETTINGS)
    assert [r for *_, r in rules.barred] == [0.5, 1.0], "it stands at the first one again"
    leave_out(rules, course(home=None, along=2.0), (1.0, 1.0), (1.6, 1.0), SETTINGS)
    leave_out(rules, course(home=None, along=2.0), (3.0, 1.0), (4.0, 1.0), SETTINGS)
    assert len(rules.barred) == 2, "these are not right ahead"
    now = SETTINGS.plan_retry
    assert [r for *_, r in rules.barred] == [1.0], "it touches one before: for twice as long"
    now = 2.0 * SETTINGS.plan_retry
    assert not rules.barred and not rules.now().keep_out


def test_what_is_still_in_the_way_is_met_less_and_less_often(monkeypatch):
    """Before a door that is shut for good a robot would drive up and down, however little is left."""
    now = 0.0
    monkeypatch.setattr(rules_module, "time", SimpleNamespace(monotonic=lambda: now))
    rules, met = RulesNow(), []
    while now < 200.0 * SETTINGS.plan_retry:
        if not rules.barred:
            leave_out(rules, course(home=None, along=2.0), (3.0, 1.0), (3.1, 1.0), SETTINGS)
            met.append(now / SETTINGS.plan_retry)
        now += SETTINGS.plan_retry
    assert met == [0, 1, 3, 7, 15, 31, 63, 127, 191], "64 times as long at most"
    leave_out(rules, course(home=None, along=2.0), (3.0, 3.0), (3.1, 3.0), SETTINGS)
    now += SETTINGS.plan_retry
    assert [y for _, y, _ in rules.barred] == [1.0], "elsewhere it is the first one"


def test_of_a_way_home_it_is_said_what_is_in_its_way_and_that_it_is_too_long():
    assert (
        way_home_remarks(ALONG, Budget(8.0), 0)
        == way_home_remarks(Plan("route"), Budget(0.0), 3)
        == ""
    )
    assert (
        way_home_remarks(ALONG, Budget(9.0), 1) == ", around 1 place where the robot did not get on"
    )
    assert way_home_remarks(ALONG, Budget(seconds=20.0), 0) == ", beyond the budget"
    both = ", around 2 places where the robot did not get on, beyond the budget"
    assert way_home_remarks(ALONG, Budget(7.9), 2) == both


def test_no_disc_cuts_the_robot_off_from_home():
    """In the room's doorway: no disc of 0.5 m would leave a way through it."""
    rules, at = RulesNow(), np.array([2.9, 3.2])
    way = np.array([at, (1.0, 3.2)])
    plan = Plan("lanes", way, metres=1.9, seconds=6.0)
    leave_out(rules, course(plan, home=None), at, (2.8, 3.2), SETTINGS)
    assert [r for *_, r in rules.barred] == [0.5]
    rules = RulesNow()
    leave_out(rules, course(plan, home=(1.0, 3.2)), at, (2.8, 3.2), SETTINGS)
    assert all(r < 0.5 for *_, r in rules.barred)

    rules = RulesNow()
    leave_out(rules, course(plan, home=(2.7, 3.2)), at, (2.8, 3.2), SETTINGS)
    assert not rules.barred and closed(rules) == [(2.8, 3.2)]


def test_another_frame_ends_what_is_led_around():
    rules = RulesNow()
    rules.enter("map")
    leave_out(rules, course(home=None, along=2.0), (3.0, 1.0), (3.1, 1.0), SETTINGS)
    assert rules.enter("odom") and not rules.barred and not rules.now().keep_out


def test_the_place_ahead_is_on_the_way_to_the_next_point():
    pursuit = Pursuit(0.3, 1.0, 0.5, 0.06)
    assert pursuit.place_ahead(0.0, 0.0, 0.3) is None
    pursuit.follow([(0.0, 0.0), (2.0, 0.0), (2.0, 2.0)])
    assert pursuit.place_ahead(1.0, 0.0, 0.3) == pytest.approx((1.3, 0.0))
    assert pursuit.place_ahead(1.8, 0.0, 0.3) == pytest.approx((2.0, 0.0))


class Blocked(Robot):
    """It stops at the wall of the room, which its map does not show, and says so after 15 s."""

    def __init__(self, **changes):
        super().__init__(settings(**changes), floor(wall=False))
        self.stood = 0

    def drive(self, metres: float) -> None:
        ahead = np.vstack([self.at, self.rest()])
        ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(ahead, axis=0).T))])
        marks = np.arange(0.03, min(metres, ends[-1]) + 0.03, 0.03).clip(max=ends[-1])
        x = np.stack([np.interp(marks, ends, ahead[:, i]) for i in (0, 1)], 1)
        wall = (np.abs(x[:, 0] - 2.55) < 0.15) & (x[:, 1] < 2.7)
        if not wall.any():
            return super().drive(metres)

        x = x[: int(wall.argmax())]
        if len(x):
            self.at = x[-1]
            self.measure(x)
            self.survey.record_drive(x)
        self.stood += 1
        self.measure(np.repeat(self.at[None], 150, 0))
        ahead = self.rest()  # from here on
        towards = ahead[np.hypot(*(ahead - self.at).T) > 0.02][0] - self.at
        place = self.at + min(1.0, 0.1 / np.hypot(*towards)) * towards
        self.survey.close(*place.tolist())


def test_the_way_home_that_was_driven_is_known(monkeypatch):
    """Out round a corner: back the same way, by what is near; not where the robot was carried."""
    driven = DrivenPath()
    out = np.concatenate([np.linspace((0, 0), (0, 4), 201), np.linspace((0, 4), (3, 4), 151)])
    loop = np.concatenate([np.linspace((3, 4), (3, 2), 101), np.linspace((3, 2), (3.1, 4), 101)])
    for x in np.vstack([out, loop]):
        driven.add(x, leapt=False)
    assert driven.path_home((3.1, 4.0), (0.0, 0.0)) is None, "nothing was in the way"
    driven.block(np.array([3.3, 4.0]), np.array([3.1, 4.0]))
    way = driven.path_home((3.1, 4.0), (0.0, 0.0))
    assert 7.0 < length_of(way) < 7.6 and way[0].tolist() == [3.1, 4.0]
    assert way[-1].tolist() == [0.0, 0.0] and driven.path_home((3.1, 4.0), None) is None
    assert driven.path_home((3.1, 4.0), (9.0, 0.0)) is None, "it was never there"

    # where it does not get on what it has driven there counts no more
    driven.block(np.array([1.0, 4.0]), np.array([1.2, 4.0]))
    assert driven.path_home((3.1, 4.0), (0.0, 0.0)) is None
    driven.add(np.array([0.5, 0.0]), leapt=True)
    driven.add(np.array([0.5, 0.2]), leapt=False)
    assert driven.path_home((0.5, 0.2), (0.0, 0.0)) is None
    monkeypatch.setattr(driven_path, "_MOST", 40)
    for y in np.arange(0.3, 20.0, 0.02):
        driven.add(np.array([0.5, y]), leapt=False)
    way = driven.path_home((0.5, 19.98), (0.5, 17.0))
    assert length_of(way) == pytest.approx(2.98, abs=0.01)
    assert driven.path_home((0.5, 19.98), (0.5, 10.0)) is None, "older positions are forgotten"


def test_what_is_not_remembered_is_counted_and_said(monkeypatch):
    """Of 60 m the last 40 positions, 0.2 m apart; a robot that was carried for 5 m drove none of them."""
    monkeypatch.setattr(driven_path, "_MOST", 40)
    driven = DrivenPath()
    driven.needed = True
    for i in range(301):
        driven.add(np.array([0.2 * i + 5.0 * (i >= 30), 0.0]), leapt=i == 30)
        assert i > 30 or (not driven.forgotten and not driven.missing)
        kept = 0.2 * i - 0.2 * (i >= 30) - driven.forgotten
        assert i < 60 or 6.7 < kept < 8.0
    assert (
        f"the first {driven.forgotten:.0f} m that were driven are not remembered" in driven.missing
    )
    driven.needed = False
    assert not driven.missing


def test_a_robot_that_was_carried_did_not_drive_there():
    driven = DrivenPath()
    for x in np.linspace((0, 0), (0, 2), 11):
        driven.add(x, leapt=False)
    for x in np.linspace((3, 2), (3, 4), 11):
        driven.add(x, leapt=x[1] == 2.0)
    driven.needed = True
    assert driven.path_home((3.0, 4.0), (0.0, 0.0)) is None
    assert length_of(driven.path_home((3.0, 4.0), (3.0, 2.0))) == pytest.approx(2.0)


def test_of_two_ways_that_were_driven_the_shorter_one_is_taken_however_often_the_robot_was_seen_on_it():
    driven = DrivenPath()
    slow = np.linspace((0, 0), (1.92, 0), 13)
    fast = np.array([(1.92, 0.6), (1.28, 0.6), (0.64, 0.6), (0, 0.6), (0, 0)])
    for x in np.vstack([slow, fast]):
        driven.add(x, leapt=False)
    driven.needed = True
    assert length_of(driven.path_home((1.92, 0.0), (0.0, 0.0))) == pytest.approx(1.92)


def test_where_something_was_in_the_way_the_way_that_was_driven_is_kept_in_the_budget():
    """It has come 3 m round about: as many metres are kept, and with less it goes back as it came."""
    robot = Robot(
        settings(plan_budget=16.0, plan_home="start", robot_radius=0.1, plan_kind="lanes"),
        floor(wall=False),
    )
    survey = robot.survey
    survey.start()
    robot.think()
    out = np.concatenate([np.linspace((1, 1), (4, 1), 61), np.linspace((4, 1), (4, 3), 41)])
    out = np.concatenate([out, np.linspace((4, 3), (1, 3), 61)])
    robot.at = out[-1]
    robot.measure(out[::4])
    survey.record_drive(out)
    robot.think()
    before = survey.plan.nodes
    survey.close(1.0, 2.8)
    survey._decisions.driven.block(np.array([1.0, 2.8]), robot.at)
    robot.think()
    assert survey.current_state().phase == "running" and before
    assert "this is the way home, as it was driven" in survey.plan.reason
    assert survey.plan.metres == pytest.approx(8.0, abs=0.2)

    # a robot that has been out for longer than is remembered
    driven = survey._decisions.driven
    driven._forget(10)
    plan = survey._decisions.homeward(survey.settings, "the budget is spent")
    assert plan and plan.reason.endswith(driven.missing) and driven.missing
    assert survey.current_state().forgotten == driven.forgotten > 0.0


@pytest.mark.parametrize("kind", ["lanes", "gain_per_metre"])
def test_a_wall_that_no_map_shows_does_not_end_the_survey(monkeypatch, kind):
    robot = Blocked(plan_kind=kind, plan_home="start", plan_budget=14.0, robot_radius=0.1)
    monkeypatch.setattr(rules_module, "time", SimpleNamespace(monotonic=lambda: robot.time))
    robot.survey.start()
    robot.go_on(90)
    state = robot.survey.current_state()
    assert state.phase == "done" and robot.stood >= 1
    assert math.dist(robot.at, (1.0, 1.0)) < 0.35
    assert np.array(robot.track)[:, 0].max() > 3.0, "it went through the door"

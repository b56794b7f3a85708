"""A survey beside a live map: slices, budget, home, regions, goals left out, ends; all without ROS."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from survey_scene import Robot, floor, settings

from gp_mapping.settings.node import NodeSettings


def test_a_survey_ends_at_home_within_its_budget():
    robot = Robot(settings(plan_budget=9.0, plan_home="start"))
    assert robot.think() == 0 and not robot.plans, "nothing is planned before somebody asks"
    assert robot.survey.start() == "the survey has begun"
    robot.go_on()
    state = robot.survey.current_state()
    assert state.phase == "done" and "budget" in state.reason
    assert math.dist(robot.at, (1.0, 1.0)) < 0.35
    assert 5.0 < robot.metres < 9.0
    assert state.driven == pytest.approx(robot.metres, abs=0.3), (
        "but for the way on, when home was near enough"
    )
    free = robot.survey._free
    assert bool(free.allows(torch.from_numpy(np.array(robot.track))).all())
    assert sum(bool(plan) for plan in robot.plans) >= 3, "it was planned anew on the way"
    told = [plan.stddev_now for plan in robot.plans if plan]
    assert told[-1] < 0.8 * told[0]


def test_a_way_is_counted_with_its_corners_however_seldom_the_survey_is_asked():
    """A busy node takes in seconds of driving at a time: the budget counts the way, not the chord."""
    robot = Robot(settings(plan_budget=9.0))
    robot.survey.start()
    robot.survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    corner = np.vstack(
        [
            np.linspace((1.0, 1.0), (2.0, 1.0), 100),
            np.linspace((2.0, 1.0), (2.0, 2.0), 100),
            np.linspace((2.0, 2.0), (1.0, 1.0), 141),
        ]
    )
    robot.survey.record_drive(corner)
    robot.survey.step(robot.session, tuple(corner[-1]), robot.message, "map", robot.time + 10.0)
    assert robot.survey.current_state().driven == pytest.approx(2.0 + math.sqrt(2.0), abs=0.05)


def test_a_planner_that_is_too_slow_does_not_break_the_budget():
    """The robot drives metres while a plan is made: one that it no longer fits is not taken, the old one leads home."""
    robot = Robot(
        settings(
            plan_budget=9.0, plan_home="start", plan_slice=0.001, plan_interval=0.5, plan_effort=200
        )
    )
    told = []
    robot.survey.on_plan = told.append
    robot.survey.start()
    robot.think()
    for _ in range(200):
        if not robot.survey.plan:
            robot.think()
        if not robot.survey.plan:
            break
        robot.drive(0.4)
    assert robot.survey.current_state().phase == "done" and robot.metres < 9.1
    assert len(told) == robot.survey.current_state().plans, (
        "every decision is published, were it to go on as before"
    )
    assert math.dist(robot.at, (1.0, 1.0)) < 0.35


def test_twice_what_is_driven_while_a_plan_is_made_is_kept():
    """At .3 m/s: a robot that a plan finds beyond its turning has to come back. No more than a fifth, however slow."""
    metres = []
    for seconds in (0.1, 2.0, 60.0):
        robot = Robot(settings(plan_budget=9.0, plan_home="start"), message=floor(wall=False))
        robot.survey._pace.mean = seconds
        robot.survey.start()
        robot.think()
        metres.append(robot.survey.plan.metres)
    assert 8.0 < metres[0] < 8.8 and 7.2 < metres[1] <= 7.8 and 6.0 < metres[2] <= 7.2, metres


def test_a_robot_that_stands_while_a_plan_is_made_keeps_no_metres_for_it():
    """Before its first plan, and while its time stands still: of a simulated robot on a busy machine, a minute."""
    robot = Robot(settings(plan_budget=9.0, plan_home="start"), message=floor(wall=False))
    robot.survey.start()
    robot.survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    robot.measure(np.repeat(robot.at[None], 600, 0))
    robot.think()
    assert robot.survey.plan
    robot.drive(2.5)
    robot.survey._stale = True
    robot.think()
    assert robot.metres + robot.survey.plan.metres > 8.4


@pytest.mark.parametrize(
    "robot_is", [{"plan_budget": 1.2}, {"plan_budget": 8.0, "plan_turn_rate": 0.01}]
)
def test_a_small_budget_and_a_robot_that_hardly_turns_are_planned_for_all_the_same(robot_is):
    robot = Robot(settings(plan_home="start", **robot_is), message=floor(wall=False))
    robot.survey.start()
    robot.go_on()
    assert robot.metres > 0.5 * robot_is["plan_budget"] and math.dist(robot.at, (1.0, 1.0)) < 0.35
    assert robot.metres <= robot_is["plan_budget"] and robot.survey.current_state().phase == "done"


@pytest.mark.parametrize(("budget", "zigzag"), [(9.0, 0.009), (12.0, 0.009), (10.0, 0.012)])
def test_a_robot_that_drives_more_than_is_planned_comes_home_all_the_same(budget, zigzag):
    """A sixth and more, as by turns, plans that come late, and a trembling position: it is learned on the way."""
    at_once = {"plan_slice": 1.0}  # no plan is later on a slower computer
    robot = Robot(
        settings(plan_budget=budget, plan_home="start", plan_interval=1.0, **at_once),
        zigzag=zigzag,
    )
    robot.survey.start()
    robot.go_on()
    told = robot.survey.current_state()
    assert told.phase == "done" and math.dist(robot.at, (1.0, 1.0)) < 0.35
    assert 0.8 * budget < robot.metres <= budget, robot.metres


@pytest.mark.parametrize(("budget", "turn_rate"), [(6.0, 1.0), (7.0, 1.0), (8.0, 5.0), (9.0, 0.6)])
def test_nobody_turns_round_on_the_way_home_for_less_than_the_turns_take(budget, turn_rate):
    """A robot that turns as it drives, at .3 m/s and 1 rad/s, needs .94 m for half a circle, at .6 rad/s 1.57 m."""
    home, half = (1.0, 1.0), math.pi * 0.3 / turn_rate
    robot = Robot(
        settings(
            plan_budget=budget, plan_home="start", plan_interval=0.3, plan_turn_rate=turn_rate
        ),
        message=floor(wall=False),
    )
    told = []

    def published(plan):
        away = math.dist(robot.at, home)
        told.append((robot.survey.budget.metres - away, plan.metres - away if plan else 0.0))

    robot.survey.on_plan = published
    robot.survey.start()
    robot.go_on()
    assert (
        robot.survey.current_state().phase == "done"
        and math.dist(robot.at, home) < 0.35
        and robot.metres < budget
    )
    assert turn_rate <= 1.0 or robot.metres > 0.9 * budget, (
        "who turns quickly has little to keep for it"
    )
    assert told[0][1] > 3.0 and told[-1][1] < 0.15, "the last one leads straight home"
    assert max((more for left, more in told if left < 0.95 * half), default=0.0) < 0.15, told


def test_a_robot_that_is_at_home_with_little_left_is_done():
    """What is left pays for no measurement, and home is nearer than a robot stops at: no plan, and the end."""
    robot = Robot(settings(plan_budget=0.2, plan_home="start"))
    robot.survey.start()
    robot.survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    robot.at = np.array([1.1, 1.05])
    for _ in range(3):
        robot.think()
    assert robot.survey.current_state().phase == "done" and not robot.survey.plan
    assert "budget" in robot.survey.current_state().reason


def test_time_is_a_budget_too():
    robot = Robot(settings(plan_budget_time=25.0, plan_speed=0.3))
    robot.survey.start()
    robot.think()
    first = robot.survey.plan
    assert first.seconds <= 25.0 + 1e-6 and first.metres < 7.5
    began = robot.time
    robot.drive(0.9)
    assert robot.survey.budget.seconds == pytest.approx(25.0 - (robot.time - began), abs=0.5)


def test_what_is_driven_while_a_plan_is_made_takes_time_too():
    """A plan begins with a part of the one before it: its seconds count, and the turn at its end does."""
    robot = Robot(settings(plan_horizon=8.0, plan_effort=5, plan_turn_rate=0.5))
    robot.survey.start()
    robot.think()
    robot.survey._pace.mean, robot.survey._stale = 3.0, True
    robot.think()
    assert robot.survey._pace.lead > 0.5
    plan = robot.survey.plan
    ahead = np.diff(plan.line, axis=0)
    headings = np.arctan2(*ahead[np.hypot(*ahead.T) > 0.0].T[::-1])
    turned = np.abs((np.diff(headings) + math.pi) % (2.0 * math.pi) - math.pi).sum()
    assert plan.seconds == pytest.approx(plan.metres / 0.3 + turned / 0.5)


def test_of_a_time_budget_as_much_is_kept_as_a_fifth_of_a_metre_takes():
    """At .3 m/s: the last metres have as many corners as the others."""
    robot = Robot(settings(plan_budget_time=7.0, plan_turn_rate=10.0), message=floor(wall=False))
    robot.survey.start()
    robot.think()
    assert 5.0 < robot.survey.plan.seconds <= 7.0 - 0.2 / 0.3


def test_a_plan_that_should_be_driven_by_now_is_made_anew():
    """Whatever the robot's place says of how far along it is: a loop ends where it begins."""
    robot = Robot(settings(plan_budget=20.0))
    robot.time += 1.8e9  # stamps are of today
    robot.survey.start()
    robot.think()
    count, plan = len(robot.plans), robot.survey.plan
    end = robot.time + plan.seconds + 4.0
    while robot.time < end:  # stamps that leap by minutes are no time
        robot.time = min(end, robot.time + 30.0)
        robot.think()
    assert len(robot.plans) == count
    robot.time += 2.0
    robot.think()
    assert len(robot.plans) == count + 1


def test_slices_are_short_and_the_map_is_untouched():
    robot = Robot(settings(plan_budget=20.0, plan_slice=0.01))
    told = robot.session.predict([[2.0, 2.0]])
    state = robot.session.revision
    robot.survey.start()
    assert robot.think() >= 5
    assert robot.session.revision == state
    torch.testing.assert_close(
        robot.session.predict([[2.0, 2.0]]).variance, told.variance, rtol=0, atol=0
    )


def test_goals_that_were_not_reached_are_left_out_for_a_while():
    robot = Robot(settings(plan_kind="gain_per_metre", plan_retry=0.6, plan_avoid=0.6))
    robot.survey.start()
    robot.think()
    goal = robot.survey.plan.stops[0]
    robot.survey.close(*goal.tolist())
    robot.think()
    other = robot.survey.plan.stops[0]
    assert math.dist(other, goal) > 0.6
    assert robot.survey.current_state().closed == 1
    time.sleep(0.7)
    robot.survey.stop()
    robot.survey.start()  # from where it stands again, not from where the plan that it had would lead it meanwhile
    robot.think()
    np.testing.assert_allclose(robot.survey.plan.stops[0], goal)


def test_region_and_keep_out_bound_the_plan_and_wrong_ones_are_refused():
    robot = Robot(settings(plan_budget=6.0))
    survey = robot.survey
    survey.start()
    assert survey.set_region([(0.3, 0.3), (2.0, 0.3), (2.0, 2.0), (0.3, 2.0)], "map", "map") == ""
    robot.think()
    assert survey.plan and survey.plan.line.max() < 2.0 and survey.plan.line.min() > 0.3
    for corners, frame, words in (
        ([(0, 0), (2, 2), (2, 0), (0, 2)], "map", "crosses or touches"),
        ([(0, 0), (1, 1)], "map", "2 corners"),
        ([(0, 0), (1, 0), (0, 1)], "odom", "odom"),
    ):
        wrong = survey.set_region(corners, frame, "map")
        assert words in wrong and wrong.endswith("it is not used") and survey.note == wrong
    robot.think()
    assert survey.plan.line.max() < 2.0, "what was valid before stays"
    assert (
        survey.set_keep_out([(1.3, 0.2), (1.6, 0.2), (1.6, 1.4), (1.3, 1.4)], "/map", "map") == ""
    )
    robot.think()
    x = survey.plan.line
    assert not ((x[:, 0] > 1.1) & (x[:, 0] < 1.8) & (x[:, 1] < 1.6)).any()
    survey.start()
    robot.think(message=None)  # without a map of obstacles the robot is as large
    assert survey.plan and not survey.rules.now().broken_on(survey.plan, 0.2)
    assert survey.set_keep_out([], "map", "map") == "" and survey.set_region([], "map", "map") == ""
    survey.set_region([(3.0, 3.0), (4.0, 3.0), (4.0, 3.8)], "map", "map")
    robot.think()
    assert not survey.plan and "outside the region" in survey.plan.reason


def test_what_was_said_in_another_frame_ends_with_it():
    """After ~/clear poses may come in another frame: a region there is of other ground."""
    robot = Robot(settings(plan_budget=6.0))
    survey = robot.survey
    survey.start()
    assert survey.set_region([(0.3, 0.3), (2.0, 0.3), (2.0, 2.0), (0.3, 2.0)], "map", "map") == ""
    survey.set_keep_out([(1.3, 0.2), (1.6, 0.2), (1.6, 1.4)], "map", "/map")
    survey.close(1.0, 1.8)
    robot.think()
    robot.think(frame="")  # not known for a while: all stays
    assert survey.plan and survey.plan.line.max() < 2.0 and not survey.rules.problem
    robot.think(message=floor(frame="slam"), frame="slam")
    assert "now in frame 'slam'" in survey.rules.problem and "'map'" in survey.rules.problem
    assert survey.rules.now() == ((), (), ()) and survey.plan.line.max() > 2.0
    assert survey.set_region([(0.3, 0.3), (2.0, 0.3), (2.0, 2.0)], "slam", "slam") == ""
    assert not survey.rules.problem and len(survey.rules.now().region) == 1


def begin_plans(robot, monkeypatch, count):
    """Step until so many plans have begun from where the robot is."""
    decisions, begun = robot.survey._decisions, []
    begin = decisions._start
    monkeypatch.setattr(decisions, "_start", lambda *a, **k: begun.append(1) or begin(*a, **k))
    while len(begun) < count:
        assert robot.survey.step(robot.session, (1.0, 1.0), robot.message, "map", robot.time)


@pytest.mark.parametrize("blocked", [False, True])
def test_an_old_plan_that_is_kept_is_still_one_of_its_own_ground(monkeypatch, blocked):
    """The robot drove too far for the new one. Where the old one leads through what is new, the way home is driven."""
    robot = Robot(
        settings(plan_budget=9.0, plan_home="start", plan_slice=0.001),
        message=floor(wall=False),
    )
    survey = robot.survey
    survey.start()
    robot.think()
    old, before = survey.plan, survey._course.basis.ground
    x, y = old.line[len(old.line) // 2] if blocked else (4.5, 0.3)
    away = 0.3 if blocked else 0.1
    square = [
        (x - away, y - away),
        (x + away, y - away),
        (x + away, y + away),
        (x - away, y + away),
    ]
    assert survey.set_keep_out(square, "map", "map") == ""
    begin_plans(robot, monkeypatch, 2 if blocked else 1)  # a first answer first, if it is withdrawn
    count = 120 if blocked else 4
    survey.record_drive(np.stack([1.0 + 0.05 * (np.arange(count) % 2), np.ones(count)], 1))
    robot.think()
    if blocked:
        assert survey.plan.metres <= survey.budget.metres, "one from where the robot is"
        assert np.hypot(*(survey.plan.poses(0.02)[0] - [x, y]).T).min() > 0.29
    else:
        np.testing.assert_allclose(survey.plan.line[-1], old.line[-1])
        assert (
            survey.plan.nodes
            and survey._course.basis.ground == before != survey._questions.ground_count
        )


def test_a_robot_that_drove_too_far_for_both_plans_gets_another_one(monkeypatch):
    """It had stood, shaken by a third of a metre, and its survey ended with nearly all of the budget left."""
    robot = Robot(
        settings(plan_budget=9.0, plan_home="start", plan_slice=0.001), message=floor(wall=False)
    )
    survey = robot.survey
    survey.start()
    robot.think()
    metres = survey.plan.metres
    assert survey.set_keep_out([(4.4, 0.2), (4.6, 0.2), (4.6, 0.4), (4.4, 0.4)], "map", "map") == ""
    begin_plans(robot, monkeypatch, 1)
    shaken = 9.0 - metres + 0.05
    survey.record_drive(np.array([[1.0, 1.0], [1.0 + 0.5 * shaken, 1.0], [1.0, 1.0]]))
    robot.think()
    assert survey.plan.nodes and survey.plan.metres <= survey.budget.metres < metres
    assert not survey.plan.reason


def test_pause_stop_and_start_again():
    robot = Robot(settings(plan_budget=8.0))
    survey = robot.survey
    assert "there is no survey to pause" in survey.pause()
    survey.start()
    robot.think()
    robot.drive(1.0)
    left = survey.budget.metres
    survey.pause()
    assert (
        not robot.plans[-1]
        and robot.plans[-1].reason == "the survey is paused"
        and robot.think() == 0
    )
    assert survey.start() == "the survey goes on" and survey.budget.metres == left
    robot.think()
    assert survey.plan
    survey.stop()
    assert not survey.plan and survey.current_state().phase == "idle"
    survey.start()
    assert survey.budget.metres == 8.0


def test_it_ends_when_the_target_is_known_or_little_is_to_be_had():
    robot = Robot(settings(target_stddev=5e-6, target_share=0.6))
    robot.survey.start()
    robot.go_on()
    assert (
        robot.survey.current_state().phase == "done"
        and "of the area are known to 5e-06" in robot.survey.current_state().reason
    )
    lazy = Robot(settings(plan_least_gain=0.9999, plan_budget=5.0))
    lazy.survey.start()
    lazy.think()
    assert (
        not lazy.survey.plan
        and "less than 0.9999 of the area's variance" in lazy.survey.current_state().reason
    )
    keen = Robot(settings(plan_least_gain=0.01, plan_budget=5.0))
    keen.survey.start()
    keen.think()
    assert keen.survey.plan, "a fraction of the area's variance, and no variance"


def test_a_budget_that_is_little_more_than_the_way_home_is_spent():
    robot = Robot(settings(plan_budget=3.3, plan_home="3.5 1.0", plan_places=30), floor(wall=False))
    robot.survey.start()
    robot.think()
    assert robot.survey.current_state().reason == "the budget is spent" and robot.survey.plan


def test_plans_on_demand_leave_the_survey_alone():
    robot = Robot(settings(plan_budget=8.0))
    asked = robot.survey.ask(goal=(4.0, 1.0))
    elsewhere = robot.survey.ask(start=(4.0, 3.0))
    nowhere = robot.survey.ask(start=(40.0, 3.0))
    while not nowhere.done():
        robot.think()
    found = asked.result()
    assert math.dist(found.line[-1], (4.0, 1.0)) < 0.1 and found.metres <= 8.0
    assert math.dist(elsewhere.result().line[0], (4.0, 3.0)) < 1e-9
    assert not nowhere.result() and "leaves it no room" in nowhere.result().reason
    assert not robot.plans and robot.survey.current_state().phase == "idle"


def test_a_plan_on_demand_ends_at_home_as_one_of_the_survey_does():
    robot = Robot(settings(plan_budget=8.0, plan_home="1.0 2.0"))

    def found(**changes):
        robot.survey.settings = replace(robot.survey.settings, **changes)
        asked = robot.survey.ask()
        robot.think()
        return asked.result(0)

    assert math.dist(found().line[-1], (1.0, 2.0)) < 0.1
    way = found(plan_home="start")
    assert math.dist(way.line[-1], (1.0, 1.0)) < 0.1 and 4.0 < way.metres <= 8.0
    refused = found(plan_home="4.0 1.0", plan_budget=2.0)
    assert not refused and "the way home takes" in refused.reason


@pytest.mark.parametrize("end", ["stop", "pause", "forget", "drop"])
def test_whoever_asked_for_a_plan_is_answered_whatever_comes_between(end):
    robot = Robot(settings(plan_budget=8.0))
    survey = robot.survey
    survey.start()
    robot.think()
    asked = survey.ask(goal=(4.0, 1.0))
    assert (
        survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
        and not asked.done()
    )
    if end == "drop":
        survey.drop(ArithmeticError("no inverse"))
        assert "no inverse" in str(asked.exception())
        return
    getattr(survey, end)()
    robot.think()
    assert asked.done()
    found = asked.result()
    if end == "forget":
        assert not found and found.reason == "the map has changed"
    else:
        assert math.dist(found.line[-1], (4.0, 1.0)) < 0.1, (
            "the survey's end is not the end of what others asked"
        )
        assert (
            not survey.plan
            and survey.current_state().phase == {"stop": "idle", "pause": "paused"}[end]
        )


def test_a_question_that_cannot_even_be_begun_is_answered_and_the_next_one_gets_its_turn():
    robot = Robot(settings(plan_budget=8.0))
    asked, other = robot.survey.ask(goal=(4.0, 1.0)), robot.survey.ask(goal=(4.0, 1.0))
    robot.survey.drop(ArithmeticError("no ground"))
    assert "no ground" in str(asked.exception()) and not other.done()
    while not other.done():
        robot.think()
    assert other.result()


def test_other_robots_plans_are_not_measured_twice():
    robot = Robot(settings(plan_budget=5.0, plan_kind="route", plan_effort=64))
    robot.survey.start()
    robot.think()
    mine = robot.survey.plan
    robot.survey.set_others("robot2", mine.line)
    robot.survey._stale = True
    robot.survey._set(type(mine)("route"))
    robot.think()
    near = (
        np.hypot(*(robot.survey.plan.visits[:, None] - mine.visits).transpose(2, 0, 1)).min(1) < 0.4
    )
    assert near.mean() < 0.6


def test_a_map_that_moves_under_the_plan_and_one_that_cannot_be_read():
    robot = Robot(settings(plan_budget=12.0), message=floor(wall=False))
    robot.survey.start()
    robot.think()
    walls = floor()
    robot.survey._stale = True
    robot.think(message=walls)
    free = robot.survey._free
    assert not free.allows(torch.tensor([[2.55, 1.0]]).double()).any()
    line = robot.survey.plan.line
    assert free.sees(line[:-1], line[1:]).all(), "the new plan keeps to the new walls"
    broken = floor()
    broken.info.width = 7
    unusable = [(broken, "the free-space map cannot be read")]
    unusable += [(floor(frame=frame), f"in frame {frame!r}") for frame in ("other", "")]
    for message, words in unusable:
        assert robot.survey.plan
        robot.think(message=message)
        assert not robot.survey.plan and words in robot.survey.plan.reason
        assert robot.think(message=message) == 0, "it is said once"
        robot.survey._stale = True
        robot.think(message=floor(frame="/map"))
    assert robot.survey.plan


def test_without_a_free_space_map_it_says_what_it_assumes():
    robot = Robot(settings(plan_budget=5.0, plan_margin=1.5))
    robot.message = None
    robot.survey.start()
    robot.think()
    assert robot.survey.plan
    assert "no free-space map: the hull of the path" in robot.survey.current_state().reason


def test_next_pose_is_ahead_with_a_heading():
    robot = Robot(settings(plan_budget=9.0))
    assert robot.survey.next_pose((1.0, 1.0)) is None
    robot.survey.start()
    robot.think()
    x, y, heading = robot.survey.next_pose(tuple(robot.at))
    plan = robot.survey.plan
    corner = np.hypot(*(plan.line - (x, y)).T).argmin()
    np.testing.assert_allclose(plan.line[corner], (x, y))
    before = plan.line[corner - 1]
    assert heading == pytest.approx(math.atan2(y - before[1], x - before[0]))


def test_how_far_a_plan_into_a_dead_end_and_out_again_is_driven():
    """The way out leads over the same places: whoever takes them for the way in goes backwards, and plans no more."""
    robot = Robot(NodeSettings(plan_budget=40.0))
    robot.survey.start()
    robot.think()
    line = np.array([[1.0, 1.0], [2.2, 1.0], [1.0, 1.0], [1.0, 3.0]])
    robot.survey._set(replace(robot.survey.plan, line=line, metres=4.4))
    robot.survey._course.along = 0.0
    x = np.append(np.linspace(1.0, 2.2, 31), np.linspace(2.16, 1.32, 22))
    robot.survey.record_drive(np.stack([x, np.ones_like(x)], 1))
    assert robot.survey._course.along == pytest.approx(2.08, abs=0.05)


def test_who_turns_before_the_tip_of_a_dead_end_is_on_the_way_out():
    """A pursuit looks ahead and cuts the tip; every place of the way out is as near to the way in."""
    robot = Robot(NodeSettings(plan_budget=40.0))
    robot.survey.start()
    robot.think()
    line = np.array([[1.0, 1.0], [2.2, 1.0], [1.0, 1.0], [1.0, 3.0]])
    robot.survey._set(replace(robot.survey.plan, line=line, metres=4.4))
    x = np.append(np.linspace(1.0, 1.9, 31), np.linspace(1.88, 1.3, 22))
    robot.survey.record_drive(np.stack([x, np.ones_like(x)], 1))
    assert robot.survey._course.along == pytest.approx(2.1, abs=0.1)
    robot.survey.record_drive(np.stack([np.ones(40), np.linspace(1.0, 2.0, 40)], 1))
    assert robot.survey._course.along == pytest.approx(3.4, abs=0.1)


def test_a_robot_that_leaves_its_plan_gets_another_one_after_as_many_metres():
    """It does not get on along the line, and whoever waits for the next plan would wait for ever."""
    robot = Robot(NodeSettings(plan_budget=40.0, plan_interval=2.0))
    robot.survey.start()
    robot.think()
    made, begin = robot.survey._decisions.made, robot.survey.plan.line[0]
    angle = np.linspace(0.0, 6.0 * math.pi, 200)  # rounds of .2 m about where it stood
    robot.at = begin + 0.2 * np.array([math.cos(angle[-1]) - 1.0, math.sin(angle[-1])])
    robot.survey.record_drive(begin + 0.2 * np.stack([np.cos(angle) - 1.0, np.sin(angle)], 1))
    assert robot.survey._course.along < 2.0, "by the line nothing would be due"
    robot.think()
    assert robot.survey._decisions.made == made + 1


def test_plans_that_are_requested_again_and_again_do_not_keep_the_survey_waiting():
    """A behaviour tree that asks ~/make_plan whenever it has an answer: the robot got no plan of its own."""
    robot = Robot(settings(plan_budget=4.0))
    robot.survey.start()
    asked, answered = robot.survey.ask(), 0
    while not robot.survey.plan:
        robot.survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
        if asked.done():
            asked, answered = robot.survey.ask(), answered + 1
        assert answered < 4
    while answered < 4:  # and the survey does not keep requests waiting
        robot.survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
        if asked.done():
            asked, answered = robot.survey.ask(), answered + 1

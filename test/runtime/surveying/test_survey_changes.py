"""What changes while a survey runs: settings, and a region that is published again."""

import math
from dataclasses import replace

import numpy as np
from survey_scene import Robot, settings


def test_an_old_plan_is_kept_only_where_what_is_left_is_enough_for_it():
    """A budget that is cut while the robot drives, and a robot that has driven far more than was planned."""
    robot = Robot(settings(plan_budget=20.0, plan_home="start"))
    survey = robot.survey
    survey.start()
    robot.think()
    robot.drive(3.5)
    away = math.dist(robot.at, (1.0, 1.0))
    survey.settings = replace(survey.settings, plan_budget=float(robot.metres) + away + 1.0)
    robot.go_on()
    assert robot.metres <= survey.settings.plan_budget and math.dist(robot.at, (1.0, 1.0)) < 0.3

    for more, metres in (({}, 6.0), ({"plan_home": "3 1"}, 0.3)):
        strays = Robot(settings(plan_budget=9.0, plan_home="start", plan_slice=0.001))
        survey = strays.survey
        survey.start()
        strays.think()
        old = survey.plan

        # While the next plan is made the robot drives more than it leaves room for.
        survey.settings = replace(survey.settings, plan_effort=41, **more)
        gain = survey.gain  # of the newest question
        while survey.gain is gain:
            assert survey.step(strays.session, (1.0, 1.0), strays.message, "map", strays.time)
        count = round(metres / 0.05)
        survey.record_drive(np.stack([1.0 + 0.05 * (np.arange(count) % 2), np.ones(count)], 1))
        strays.think()
        assert survey.plan.metres < 9.0 - metres and survey.plan.metres < old.metres - 0.5, more


def test_a_change_of_what_plans_depend_on_makes_another_plan_at_once():
    robot = Robot(settings(plan_budget=20.0, plan_home="1 1"))
    survey = robot.survey
    survey.start()
    robot.think()
    count = len(robot.plans)
    for changes, more in (
        ({"plan_budget": 8.0}, 1),
        ({"plan_budget": 8.0, "publish_rate": 3.0}, 0),
        ({"plan_home": "4 1"}, 1),
        ({"plan_kind": "lanes"}, 1),
    ):
        survey.settings = replace(survey.settings, **changes)
        robot.think()
        count += more
        assert len(robot.plans) == count, changes
    assert survey.plan.kind == "lanes" and survey.plan.metres <= 8.0
    assert math.dist(survey.plan.line[-1], (4.0, 1.0)) < 0.2

    # A plan that is being made is of the settings before: it is dropped.
    survey.settings = replace(survey.settings, plan_kind="route", plan_slice=0.001)
    survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    survey.settings = replace(survey.settings, plan_budget=5.0)
    robot.think()
    assert len(robot.plans) == count + 1 and survey.plan.metres <= 5.0
    survey.pause()
    survey.settings = replace(survey.settings, plan_budget=6.0)
    assert robot.think() == 0 and not survey.plan


def test_a_region_that_is_published_again_and_again_is_no_reason_for_a_plan():
    robot = Robot(settings(plan_budget=6.0))
    survey, square = robot.survey, [(0.1, 0.1), (2.4, 0.1), (2.4, 3.9), (0.1, 3.9)]
    survey.start()
    assert survey.set_region(square, "map", "map") == ""
    robot.think()
    count = len(robot.plans)
    for _ in range(3):
        assert survey.set_region(square, "map", "map") == ""
        assert survey.set_keep_out([], "map", "map") == "" and robot.think() == 0
    assert len(robot.plans) == count

    robot.go_on()
    assert survey.current_state().phase == "done"
    survey.set_region(square, "map", "map")
    assert survey.current_state().phase == "done" and "spent" in survey.current_state().reason

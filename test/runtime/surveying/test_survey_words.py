"""What a survey says and is in: its phases, what starts and ends them, and why there is no plan."""

from dataclasses import replace

import numpy as np
import pytest
from survey_scene import Robot, floor, settings

from gp_mapping import MapSettings
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.surveying.rules import RulesNow
from gp_mapping.runtime.surveying.suggester import Suggester
from gp_mapping.runtime.surveying.survey import Survey

REGION = [(0.4, 0.4), (2.2, 0.4), (2.2, 3.0), (0.4, 3.0)]


def phase(survey):
    return survey.current_state().phase


def test_phases_follow_what_is_asked_for():
    told = []
    survey = Survey(settings(plan_budget=6.0), on_plan=told.append)
    assert phase(survey) == "idle" and not survey.plan and not told
    assert survey.pause() == "there is no survey to pause: it is idle" and phase(survey) == "idle"
    assert survey.set_region(REGION, "map", "map") == "" and phase(survey) == "idle"
    assert survey.start() == "the survey has begun" and phase(survey) == "running"
    assert survey.pause() == "the survey is paused" and phase(survey) == "paused"
    assert told[-1].reason == "the survey is paused" and survey.state.phase == "paused"
    assert survey.pause() == "there is no survey to pause: it is paused"
    assert survey.start() == "the survey goes on" and phase(survey) == "running"
    assert survey.stop() == "the survey was stopped" and phase(survey) == "idle"
    assert told[-1].reason == "the survey was stopped" and len(told) == 2
    assert survey.state.reason == "stopped" and not any(told)
    assert survey.next_pose((0.0, 0.0)) is None and survey.next_pose(None) is None
    survey.forget()
    assert told[-1].reason == "the map has changed"


def test_a_pause_keeps_the_budget_and_a_new_start_has_all_of_it():
    survey = Survey(settings(plan_budget=6.0))
    survey.record_drive(np.array([[0.0, 0.0], [1.0, 0.0]]))
    assert survey.current_state().driven == 0.0, "it does not run"
    survey.start()
    survey.record_drive(np.array([[2.0, 0.0], [4.0, 0.0]]))
    assert survey.current_state().driven == 3.0 and survey.budget.metres == 3.0
    survey.pause()
    survey.record_drive(np.array([[4.0, 2.0]]))
    survey.start()
    state = survey.current_state()
    assert state.driven == 3.0 and state.metres_left == 3.0
    survey.stop()
    survey.start()
    assert survey.current_state().metres_left == 6.0


def test_a_survey_without_a_plan_says_what_it_waits_for():
    survey = Survey(settings(plan_budget=6.0))
    survey.start()
    empty = MapSession(MapSettings())
    assert not survey.step(empty, None, None, "", None)
    assert survey.current_state().reason.startswith("nothing has been measured yet")
    survey.stop()
    survey.start()
    state = survey.current_state()
    assert (state.phase, state.reason) == ("running", ""), "what ended the one before is no reason"
    assert survey.start().startswith("the survey has begun anew, with the whole budget: 0.0 m")


def test_on_the_way_home_a_map_that_leaves_no_room_for_a_moment_is_no_end():
    robot = Robot(settings(plan_budget=9.0, plan_home="start", target_stddev=1.0))
    survey = robot.survey
    survey.start()
    robot.at = np.array([3.0, 3.5])
    survey.record_drive(np.array([[1.0, 1.0], [2.0, 2.2], [3.0, 3.5]]))
    robot.think()
    assert "this is the way home" in survey.plan.reason

    blank = floor()
    blank.data = type(blank.data)("b", [-1] * len(blank.data))
    robot.think(message=blank)
    assert not survey.plan and phase(survey) == "running"
    assert "leaves no place" in survey.plan.reason

    survey.close(9.0, 9.0)  # news: it tries again at once
    robot.go_on()
    assert phase(survey) == "done" and np.hypot(*(robot.at - 1.0)) < 0.3


def test_a_survey_that_is_done_goes_on_in_a_region_that_comes():
    robot = Robot(settings(plan_budget=0.2, plan_home="start"))
    robot.survey.start()
    robot.think()
    assert phase(robot.survey) == "done" and robot.survey.state.reason
    assert robot.survey.set_region(REGION, "map", "map") == "" and phase(robot.survey) == "running"
    assert robot.survey.set_keep_out([(0, 0), (1, 1)], "map", "map") == robot.survey.note != ""
    assert phase(robot.survey) == "running"


def test_a_plan_on_demand_needs_a_place_and_a_map():
    robot = Robot(settings(plan_budget=6.0))
    empty = MapSession(MapSettings())
    for session, position in ((robot.session, None), (empty, (1.0, 1.0))):
        survey = Survey(settings())
        future = survey.ask()
        while survey.step(session, position, robot.message, "map", 1.0):
            pass
        plan = future.result(0)
        assert not plan and plan.reason.startswith("nothing has been measured yet")
    survey = Survey(settings())
    future = survey.ask(start=(1.0, 1.0), goal=(2.0, 1.0))
    while survey.step(robot.session, None, robot.message, "map", 1.0):
        pass
    plan = future.result(0)
    np.testing.assert_allclose(plan.line[-1], (2.0, 1.0), atol=0.11)
    np.testing.assert_allclose(plan.line[0], (1.0, 1.0), atol=0.11)
    assert phase(survey) == "idle" and not survey.plan


def test_a_map_in_another_frame_is_the_reason_and_a_failure_is_told_to_who_asked():
    robot = Robot(settings(plan_budget=6.0), floor("elsewhere"))
    survey = robot.survey
    survey.start()
    robot.think()
    assert not survey.plan and "is in frame 'elsewhere'" in survey.plan.reason
    asked = survey.ask()
    survey.drop(ValueError("two\nlines"))
    with pytest.raises(RuntimeError, match="the plan could not be made: two lines"):
        asked.result(0)
    survey.drop(ValueError("nobody"))
    waiting = survey.ask()
    survey.step(robot.session, tuple(robot.at), floor(), "map", robot.time)
    survey.forget()
    assert waiting.done() and waiting.result(0).reason == "the map has changed"


def test_suggestions_say_what_they_know_of_obstacles():
    robot = Robot(settings(), floor(wall=False))
    grid = robot.session.render()
    suggest = Suggester(settings(suggestion_count=2), rules=RulesNow())

    def found(message, frame="map"):
        return suggest(robot.session, grid, tuple(robot.at), message, frame)

    assert len(found(robot.message)) == 2 and suggest.note == ""
    assert suggest.obstacles == "from the free-space map" and not suggest.should_ask_again
    wrong = found(floor("elsewhere"))
    assert not len(wrong) and wrong.reason == suggest.note
    assert wrong.reason.endswith("; nothing is suggested meanwhile")
    assert suggest.obstacles == "not known: the free-space map cannot be used"
    found(None)
    assert suggest.obstacles.startswith("not known, there is no free-space map: suggestions stay")
    none = Suggester(settings(suggestion_count=2), rules=RulesNow())
    none(robot.session, grid, (90.0, 90.0), robot.message, "map")
    assert none.note.startswith("suggestions: ") and len(none.note) > 20


def test_a_new_plan_begins_where_the_robot_is_with_the_lead_that_it_drives_meanwhile():
    robot = Robot(settings(plan_budget=8.0), floor(wall=False))
    robot.survey.start()
    robot.think()
    robot.drive(0.5)
    robot.survey.start()  # another plan is due, while the old one leads on
    before = len(robot.plans)
    robot.think()
    assert len(robot.plans) > before and robot.survey.plan
    np.testing.assert_allclose(robot.survey.plan.line[0], robot.at, atol=0.03)


def test_seconds_count_while_it_runs_and_a_pause_takes_none():
    survey, session = Survey(settings(plan_budget_time=60.0)), MapSession(MapSettings())

    def left_at(stamp: float) -> float:
        survey.step(session, (0.0, 0.0), None, "map", stamp)
        return survey.current_state().seconds_left

    left_at(5.0)
    survey.start()
    assert left_at(8.0) == 57.0 and left_at(10.0) == 55.0
    survey.pause()
    assert left_at(20.0) == 55.0
    survey.start()
    assert left_at(21.0) == 54.0


def test_a_level_far_from_the_field_is_said_until_it_is_mended():
    """Most likely it was given in microtesla: every place counts alike, as without an objective."""
    robot = Robot(settings(plan_budget=4.0, plan_objective="level_set", plan_level=45.0))
    survey = robot.survey
    survey.start()
    robot.think()
    assert survey.plan and "level_set about the level 45 makes no place" in survey.state.reason
    survey.settings = replace(survey.settings, plan_level=45e-6)
    robot.think()
    assert survey.plan and not survey.state.reason

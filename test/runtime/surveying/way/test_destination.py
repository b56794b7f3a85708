"""A robot that is sent to one place goes there before another is chosen, and not for ever."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from survey_scene import Robot, floor, settings

import gp_mapping.runtime.surveying.decisions as decisions
from gp_mapping.planning import FreeSpace, PathValue, Travel
from gp_mapping.planning.plan import plan
from gp_mapping.runtime.surveying.way.course import Course
from gp_mapping.runtime.surveying.way.destination import destination

OFTEN = {"plan_kind": "gain_per_metre", "plan_interval": 0.4, "plan_slice": 1.0}


@pytest.mark.parametrize("kind", ["gain_per_metre", "integrated_variance"])
def test_a_place_is_driven_to_before_the_next_is_chosen(kind):
    """What is left of the way takes less variance than a plan has to: the survey goes on all the same."""
    robot = Robot(settings(**OFTEN | {"plan_kind": kind}, plan_budget=6.0))
    told = []
    robot.survey.on_plan = lambda plan: told.append((robot.at, plan))
    robot.survey.start()
    robot.go_on()
    plans = [(at, plan) for at, plan in told if plan]
    kept = 0
    for (_, old), (at, new) in pairwise(plans):
        same = math.dist(new.stops[0], old.stops[0]) < 1e-9
        kept += same
        assert same or math.dist(at, old.stops[0]) < 0.31, "it was under way"
        assert new.metres > 0.2, "where it is already it is not sent"
    assert kept >= 3 and len(plans) - kept >= 2


def test_the_rest_of_a_way_that_was_worth_it_does_not_end_the_survey():
    robot = Robot(settings(**OFTEN, plan_least_gain=0.2))
    robot.survey.start()
    robot.think()
    first = robot.survey.plan
    share = first.gains.sum() / robot.survey._questions.newest.value.total
    assert share > 0.2 and first.metres > 1.0
    robot.go_on()
    assert "less than 0.2 of the area's variance" in robot.survey.current_state().reason
    assert math.dist(robot.at, first.stops[0]) < 0.31


@pytest.fixture(scope="module")
def scene():
    """A survey with its first plan, and the question that it answers."""
    robot = Robot(settings(**OFTEN, plan_budget=9.0))
    robot.survey.start()
    robot.think()
    robot.survey.field = robot.session.map
    return robot.survey


def under_way(survey, metres: float, **more):
    """The course and the next problem after so many metres of the first plan."""
    course = Course(survey.plan, survey._course.basis)
    course.along = metres
    at = course.rest.line[0]
    return course, replace(
        survey._decisions.problem(survey.settings, at, survey.budget), _known={}, **more
    )


def test_a_robot_that_comes_nearer_goes_on(scene):
    course, problem = under_way(scene, 0.5)
    assert destination(course, problem, (), 0.0, 0.5, 0.4) == scene.plan.nodes
    assert destination(course, problem, (), 0.0, 0.9, 0.4) == scene.plan.nodes, "in a zigzag"
    # It begins a lead away: that is driven as well.
    course, problem = under_way(scene, 0.6)
    assert destination(course, problem, (), 0.1, 0.5, 0.4) == scene.plan.nodes


def test_a_robot_that_is_blocked_or_nearly_there_is_asked_anew(scene):
    course, problem = under_way(scene, 0.5)
    assert destination(course, problem, (), 0.0, 1.1, 0.4) == (), "it drives to and fro"
    course, problem = under_way(scene, 0.0)
    assert destination(course, problem, (), 0.0, 0.0, 0.4) == (), "it stands"
    course, problem = under_way(scene, 0.5)
    assert destination(course, problem, (), 0.45, 0.5, 0.4) == (), "round about"
    course, problem = under_way(scene, scene.plan.metres - 0.29)
    assert destination(course, problem, (), 0.0, 0.5, 0.4) == ()


def test_no_robot_goes_on_to_the_same_place_for_ever(scene):
    """However its way grows, as where door after door turns out to be shut."""
    course, problem = under_way(scene, 0.5)
    assert destination(course, problem, (), 0.0, 0.4, 0.4)
    # The next plan begins where this one did: nothing is gained by the metres driven since.
    again = next(decisions.steps_through(scene.plan.nodes, problem, "gain_per_metre"))
    course = Course(again, moved=0.4)
    assert destination(course, problem, (), 0.0, 0.8, 0.4) == ()


def test_a_place_that_another_robot_measures_is_not_gone_on_to(scene):
    course, problem = under_way(scene, 0.5)
    place, spacing = scene.plan.stops[0], problem.travel.spacing
    for away, kept in ((0.9, ()), (1.1, scene.plan.nodes)):
        line = place + np.array([[-1.0, away * spacing], [1.0, away * spacing]])
        assert destination(course, problem, (line[:1], line), 0.0, 0.5, 0.4) == kept


def test_a_place_that_cannot_be_had_is_not_gone_on_to(scene):
    closed = np.ones(len(scene._questions.newest.travel.nodes), dtype=bool)
    course, problem = under_way(scene, 0.5, closed=closed)
    assert destination(course, problem, (), 0.0, 0.5, 0.4) == (), "it was not reached before"
    course, problem = under_way(scene, 0.5, budget=replace(scene.budget, metres=0.4))
    assert destination(course, problem, (), 0.0, 0.5, 0.4) == (), "beyond the budget"
    course, problem = under_way(scene, 0.5)
    course.outdated = True
    assert destination(course, problem, (), 0.0, 0.5, 0.4) == (), "another question"
    seeks = replace(course.plan, kind="ucb")
    assert destination(Course(seeks), problem, (), 0.0, 0.5, 0.4) == (), "it has learned more"


@pytest.mark.parametrize("shut", [False, True])
def test_on_new_ground_the_place_is_found_again_unless_it_is_occupied(scene, shut):
    place = scene.plan.stops[0]
    message = floor()
    data = np.array(message.data).reshape(40, 50)
    data[5:9, 40:44] = 100
    if shut:
        row, column = (place[::-1] / 0.1).astype(int)
        data[row, column] = 100
    message.data = data.ravel().tolist()
    free = FreeSpace.from_occupancy_grid(message, 0.2).reachable_from((1.0, 1.0))
    travel = Travel(free, 0.31, max_places=120)
    course, problem = under_way(scene, 0.5)
    area = scene._questions.newest.area
    value = PathValue.from_map(scene.field, travel.xy, area.cells, area.areas)
    problem = replace(problem, travel=travel, value=value, _known={})
    found = destination(course, problem, (), 0.0, 0.5, 0.4)
    assert bool(found) != shut
    assert shut or math.dist(travel.nodes[found[0]], place) <= travel.spacing

    # another one that is farther away than places lie apart is not that place
    closed = np.zeros(len(travel.nodes), dtype=bool)
    closed[travel.places[np.hypot(*(travel.xy - place).T) <= travel.spacing]] = True
    along = scene.plan.metres - 0.35
    course, late = under_way(scene, along)
    problem = replace(problem, position=late.position, closed=closed, _known={})
    assert destination(course, problem, (), 0.0, along, 0.4) == ()


@pytest.mark.parametrize("change", ["kind", "region", "goal"])
def test_what_changes_on_the_way_has_another_place_chosen(change):
    robot = Robot(settings(**OFTEN))
    survey = robot.survey
    survey.start()
    robot.think()
    first, chosen = survey.plan, []
    robot.drive(0.3)
    survey.on_plan = chosen.append
    if change == "kind":
        survey.settings = replace(survey.settings, plan_kind="variance")
    elif change == "region":
        survey.set_region([(0.1, 0.1), (4.9, 0.1), (4.9, 3.9), (0.1, 3.9)], "map", "map")
    else:
        survey.close(*first.stops[0])
    kept = []
    steps, decisions.steps_through = (
        decisions.steps_through,
        lambda stops, *more: kept.append(stops) or steps(stops, *more),
    )
    try:
        robot.think()
    finally:
        decisions.steps_through = steps
    assert len(chosen) == 1 and kept == [()]
    problem = survey._questions.newest.problem(
        survey.settings, chosen[0].line[0], survey.budget, 0.0, 0
    )
    if change == "kind":
        assert chosen[0].stops[0].tolist() == plan(problem, "variance").stops[0].tolist()


def test_a_way_that_is_driven_while_the_next_is_made_counts_as_measured(monkeypatch):
    robot = Robot(settings(**OFTEN | {"plan_interval": 50.0}))
    robot.survey.start()
    robot.think()
    totals = []

    def record(course, problem, others, lead, *more):
        totals.append((lead, problem.value.total, robot.survey._questions.newest.value.total))
        return ()

    monkeypatch.setattr(decisions, "destination", record)
    robot.drive(robot.survey.plan.metres - 0.2)
    lead, total, before = totals[0]
    assert 0.15 < lead < 0.35 and total < 0.99 * before


def test_a_plan_that_is_all_behind_the_robot_is_made_anew_at_once():
    """An empty one without a reason would have it stand for two seconds."""
    robot = Robot(settings(**OFTEN))
    survey = robot.survey
    survey.start()
    robot.think()
    whole = survey.plan
    survey.record_drive(whole.poses(0.05)[0])
    survey._pace.lead, survey._stale = whole.metres, False
    count = len(robot.plans)
    survey._take(whole)
    assert survey._stale and bool(survey.plan) and len(robot.plans) == count

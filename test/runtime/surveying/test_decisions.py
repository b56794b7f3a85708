"""A robot that stands is given a first answer at once; the whole search goes on while it drives."""

from collections import Counter

import numpy as np
import pytest
from survey_scene import Robot, floor, settings

import gp_mapping.planning.planners.annealing as annealing
import gp_mapping.planning.worth.path_value as path_value
import gp_mapping.runtime.surveying.decisions as decisions
import gp_mapping.runtime.surveying.question as question
from gp_mapping.planning import plan
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.registry import anytime, find_planner, is_anytime, register
from gp_mapping.planning.worth.leg_exchange import LegExchange

QUICK = {"plan_budget": 9.0, "plan_home": "start", "plan_slice": 0.001}


def until_the_first_plan(robot, passes: float = 0.0) -> None:
    """passes: s of the robot's time in each slice."""
    robot.survey.start()
    while not robot.plans:
        robot.time += passes
        robot.survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)


def test_the_first_answer_rates_two_routes_and_the_whole_search_is_that_of_a_plan(monkeypatch):
    rated, asked = Counter(), []
    rate = Problem.rate_both

    def count(problem, routes):
        rated[problem.old] += len(routes)
        return rate(problem, routes)

    def note(stops, problem, kind, steps):
        asked.append(problem)
        return real(stops, problem, kind, steps)

    real = decisions.steps_through
    monkeypatch.setattr(Problem, "rate_both", count)
    monkeypatch.setattr(decisions, "steps_through", note)
    robot = Robot(settings(**QUICK))
    until_the_first_plan(robot)
    assert 1 <= rated[()] <= 2 and robot.survey.current_state().improving
    robot.think()
    first, improved = robot.plans
    assert (first.first, improved.first) == (True, False)
    assert not robot.survey.current_state().improving and asked[1].old == first.nodes
    assert improved.nodes == plan(asked[1], "route").nodes
    assert improved.stddev_then < first.stddev_then


def test_between_two_slices_at_most_one_dear_thing_is_done(monkeypatch):
    """Each of them lasts tens of milliseconds in a large hall, and the map waits for a slice."""
    robot = Robot(settings(**QUICK))
    until_the_first_plan(robot)
    done, seen = [], Counter()

    def noted(name, real):
        def call(*args):
            done.extend([name] if len(args) < 2 or len(args[1]) else [])  # not for nothing
            return real(*args)

        return call

    for of, name in (
        (path_value, "_fill_above"),
        (path_value.PathValue, "after_measuring"),
        (path_value.PathValue, "gains"),
        (LegExchange, "move_to"),
        (annealing._Search, "learn"),
    ):
        monkeypatch.setattr(of, name, noted(name, getattr(of, name)))

    assert robot.survey._next_job(robot.session, tuple(robot.at))
    robot.survey._questions._held.forget()  # it is made anew
    for _ in robot.survey._job:
        assert len(done) <= 1, done
        seen += Counter(done)
        done.clear()
    assert set(seen) == {"_fill_above", "after_measuring", "gains", "move_to", "learn"}


def test_a_robot_that_drives_while_its_plan_is_improved_keeps_its_budget_and_ends_at_home():
    """However far it is by then: what is published leads from where it is, home within what is left."""
    robot = Robot(settings(**QUICK | {"plan_budget": 6.0}, plan_interval=1.0))
    until_the_first_plan(robot)
    home, improved = robot.at, []
    robot.survey.on_plan = improved.append
    for _ in range(3000):
        robot.drive(0.1)
        if improved:
            now = improved.pop(0)
            assert not now or np.hypot(*(now.line_ahead(0.0)[0] - robot.at)) < 0.31
            assert now.metres <= robot.survey.budget.metres + 1e-6
        if not robot.survey.plan and robot.survey.current_state().phase == "done":
            break
    assert robot.survey.current_state().phase == "done"
    assert robot.metres <= 6.0 and np.hypot(*(robot.at - home)) < 0.3


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "being prepared"])
def test_a_plan_that_comes_late_is_compared_from_where_the_robot_is(asked):
    """It has driven two metres past where the new plan begins: nobody drives there and back."""
    robot = Robot(settings(**QUICK), message=floor(wall=False))
    until_the_first_plan(robot)
    survey, first = robot.survey, robot.survey.plan
    before = survey._questions.newest
    while survey._questions.newest is before or (asked and survey._pace.lead == 0.0):
        survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    line = first.poses(0.05)[0]
    x = line[: int(2.0 / 0.05)]
    robot.at = x[-1]
    survey.record_drive(x)
    robot.think()
    assert len(robot.plans) == 2
    new = survey.plan
    assert np.hypot(*(new.line[0] - robot.at)) < 0.05
    assert new.metres <= survey.budget.metres and new.stddev_then < first.stddev_then


def test_what_is_driven_while_the_question_is_prepared_is_no_delay(monkeypatch):
    """The plan begins where the robot is when it is asked for, and is not compared once more."""
    again, real = [], decisions.plan_best_of
    monkeypatch.setattr(decisions, "plan_best_of", lambda *of: again.append(1) or real(*of))
    robot = Robot(settings(**QUICK), message=floor(wall=False))
    until_the_first_plan(robot)
    assert robot.survey._next_job(robot.session, tuple(robot.at))
    next(robot.survey._job)
    x = robot.survey.plan.poses(0.05)[0][:10]
    robot.at = x[-1]
    robot.survey.record_drive(x)
    robot.think()
    assert len(robot.plans) == 2 and not again
    assert np.hypot(*(robot.survey.plan.line[0] - robot.at)) < 0.05


def test_a_robot_that_is_moved_while_its_first_plan_is_prepared_begins_where_it_is():
    """By a person, since there is no plan yet."""
    robot = Robot(settings(**QUICK), message=floor(wall=False))
    robot.survey.start()
    robot.survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    assert not robot.plans
    x = robot.at + np.stack([0.1 * np.arange(11), np.zeros(11)], 1)
    robot.at = x[-1]
    robot.survey.record_drive(x)
    robot.survey.step(robot.session, (1.0, 1.0), robot.message, "map", robot.time)
    until_the_first_plan(robot)
    assert np.hypot(*(robot.plans[0].line[0] - robot.at)) < 0.05


@pytest.mark.parametrize("passes, first", [(0.0, True), (1.0, False)])
def test_where_much_would_be_driven_until_the_whole_search_ends_it_is_waited_for(passes, first):
    """A simulation faster than time, or a slow computer."""
    robot = Robot(settings(**QUICK), message=floor(wall=False))
    until_the_first_plan(robot, passes)
    assert [p.first for p in robot.plans] == [first] and robot.survey.plan
    assert robot.survey.current_state().improving == first


def test_planners_that_do_not_say_so_are_waited_for():
    route = find_planner("route")

    def patient(problem):
        yield from route(problem)

    register("patient", patient)
    assert is_anytime(route) and not is_anytime(patient)
    robot = Robot(settings(**QUICK | {"plan_kind": "patient"}))
    robot.survey.start()
    robot.think()
    assert len(robot.plans) == 1 and not robot.survey.plan.first


def test_a_planner_that_has_no_stops_yet_has_not_answered():
    def hesitant(problem):
        yield ()
        yield from route(problem)

    route = find_planner("route")
    register("hesitant", anytime(hesitant))
    robot = Robot(settings(**QUICK | {"plan_kind": "hesitant"}))
    until_the_first_plan(robot)
    assert robot.survey.plan.first and robot.survey.plan.nodes


def test_the_first_answer_on_large_ground_knows_fewer_places(monkeypatch):
    monkeypatch.setattr(question, "_FIRST_PLACES", 30)
    monkeypatch.setattr(question, "_FIRST_CELLS", 100)
    robot = Robot(settings(**QUICK))
    until_the_first_plan(robot)
    first = robot.survey._questions.newest
    assert len(first.travel) <= 30 and robot.survey._questions._held.made == 0
    robot.think()
    whole = robot.survey._questions.newest
    assert 60 < len(whole.travel) and whole.travel.nodes is first.travel.nodes
    assert first.value.mass == pytest.approx(whole.value.mass)
    assert first.value.total == pytest.approx(whole.value.total, rel=0.1)

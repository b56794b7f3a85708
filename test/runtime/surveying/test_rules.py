"""What is said of where plans may lead and end, while one is made and while one is driven."""

from array import array

import numpy as np
import pytest
from survey_scene import Robot, floor, settings

from gp_mapping.planning.plan import Plan
from gp_mapping.runtime.surveying.rules import Rules, RulesNow

QUICK = settings(plan_budget=6.0, plan_places=40, plan_effort=4, plan_slice=0.001, robot_radius=0.1)


def square(x: float, y: float, half: float = 0.25) -> list[tuple[float, float]]:
    return [(x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)]


def enters(plan, corners) -> bool:
    low, high = np.min(corners, 0) - 0.09, np.max(corners, 0) + 0.09
    x = plan.poses(0.02)[0]
    return bool(((x > low) & (x < high)).all(1).any())


@pytest.fixture
def robot() -> Robot:
    return Robot(QUICK, floor(wall=False))


@pytest.fixture(scope="module")
def way():
    """The plan that this robot makes where nothing comes between."""
    twin = Robot(QUICK, floor(wall=False))
    twin.survey.start()
    twin.think()
    return twin.survey.plan


def begin(robot) -> None:
    """Have a plan begun, with its ground and its question, and not made yet.

    Of the first answer all is one step: the plan is the one that is looked for after it.
    """
    survey = robot.survey
    survey.start()
    while len(robot.plans) < 1:
        assert survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    question = survey.gain
    while survey.gain is question:
        assert survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    robot.plans.clear()


def test_a_plan_that_was_begun_before_a_keep_out_area_came_is_not_published(robot, way):
    begin(robot)
    area = square(*way.stops[-1])
    assert robot.survey.set_keep_out(area, "map", "map") == "" and enters(way, area)
    robot.think()
    assert robot.survey.plan and not any(enters(plan, area) for plan in robot.plans)
    made = [plan for plan in robot.plans if plan]
    assert robot.survey.current_state().plans == 1 + len(made), "the one that was dropped is none"


def test_a_plan_that_was_begun_before_a_region_came_keeps_to_it_or_is_not_published(robot, way):
    begin(robot)
    region = square(1.0, 1.0, 0.7)
    assert np.abs(way.line - 1.0).max() > 0.7
    assert robot.survey.set_region(region, "map", "map") == ""
    robot.think()
    assert not robot.plans[0] and robot.plans[-1], "the first answer is withdrawn"
    assert all(np.abs(plan.line - 1.0).max() <= 0.7 for plan in robot.plans if plan)


def test_a_plan_that_was_begun_before_its_goal_was_reported_is_not_published(robot, way):
    begin(robot)
    robot.survey.close(*way.stops[0].tolist())
    robot.think()
    away = np.hypot(*(robot.plans[0].stops - way.stops[0]).T)
    assert away.min() > QUICK.plan_avoid


def test_a_plan_on_demand_that_was_begun_before_is_made_again(robot, way):
    asked = robot.survey.ask()
    while not robot.survey.gain:
        assert robot.survey.step(robot.session, tuple(robot.at), robot.message, "map", robot.time)
    area = square(*way.stops[-1])
    robot.survey.set_keep_out(area, "map", "map")
    assert not asked.done()
    while not asked.done():
        robot.think()
    assert asked.result() and not enters(asked.result(), area)


def test_a_plan_on_its_way_is_withdrawn_where_it_leads_through_what_is_new_and_only_there(robot):
    survey = robot.survey
    survey.start()
    robot.think()
    plan = survey.plan
    beside = next(
        area
        for area in (square(x, y, 0.05) for x in (0.3, 4.6) for y in (0.3, 3.6))
        if not enters(plan, area)
    )
    assert survey.set_keep_out(beside, "map", "map") == "" and survey.plan is plan
    area = square(*plan.line[-1], 0.1)
    assert survey.set_keep_out(area, "map", "map") == ""
    assert not survey.plan and robot.plans[-1] is survey.plan, "it was driven on"
    assert "withdrawn" in survey.plan.reason and "keep-out" in survey.plan.reason
    robot.think()
    assert survey.plan and not enters(survey.plan, area), "another one is made"


def test_what_lies_behind_the_robot_withdraws_nothing(robot):
    robot.survey.start()
    robot.think()
    behind = robot.at.copy()
    robot.drive(1.0)
    plan = robot.survey.plan
    rest = plan.line_ahead(plan.progress(robot.at, ahead=1.5))
    assert np.hypot(*(rest - behind).T).min() > 0.3
    robot.survey.set_keep_out(square(*behind, 0.1), "map", "map")
    assert robot.survey.plan is plan


def test_what_is_published_once_more_is_nothing_new():
    rules, names = RulesNow(), ("region", "keep_out")
    for name in names:
        assert rules.restrict(name, square(1.0, 1.0), "", "map") == ""
    before = rules.now()
    for name in names:
        assert rules.restrict(name, square(1.0, 1.0), "", "map") == ""
    assert rules.now().since(before) == ((), (), ())
    rules.restrict("keep_out", square(2.0, 1.0), "", "map")
    assert len(rules.now().since(before).keep_out) == 1 and len(rules.now().keep_out) == 2
    rules.restrict("region", [], "", "map")
    assert rules.now().since(before).region == ()


def walled(x: float, y: float):
    """The room of the robot with a pillar of 0.5 m in it that has come up at a place."""
    room = floor(wall=False)
    data = np.frombuffer(room.data, dtype=np.int8).reshape(40, 50).copy()
    row, column = int(y / 0.1), int(x / 0.1)
    data[max(row - 2, 0) : row + 3, max(column - 2, 0) : column + 3] = 100
    room.data = array("b", data.tobytes())
    return room


def test_a_free_space_map_withdraws_the_plan_that_it_leaves_no_room_and_no_other(robot):
    survey = robot.survey
    survey.start()
    robot.think()
    plan, slices = survey.plan, len(robot.plans)
    beside = next(
        (x, y)
        for x in (0.4, 4.6)
        for y in (0.4, 3.6)
        if np.hypot(*(plan.poses(0.02)[0] - (x, y)).T).min() > 0.6
    )
    assert robot.think(walled(*beside)) == 0 and survey.plan is plan, "it is planned again"
    assert len(robot.plans) == slices

    wall = walled(*plan.line[-1])
    assert survey.step(robot.session, tuple(robot.at), wall, "map", robot.time), "nothing is due"
    assert not robot.plans[-1] and "free-space map leaves no room" in robot.plans[-1].reason
    robot.think(wall)
    assert survey.plan and not enters(survey.plan, square(*plan.line[-1], 0.2))


def test_a_plan_that_was_begun_before_a_wall_came_up_is_not_published(robot, way):
    begin(robot)
    robot.think(walled(*way.stops[-1]))
    wall = square(*way.stops[-1], 0.2)
    assert robot.survey.plan and enters(way, wall)
    assert not any(enters(plan, wall) for plan in robot.plans)


def test_a_robot_that_stands_too_near_to_a_wall_keeps_its_plan_under_the_next_map(robot):
    robot.at = np.array([0.15, 1.0])
    robot.survey.start()
    robot.think()
    plan = robot.survey.plan
    assert plan
    far = next(
        (x, y)
        for x in (4.6, 2.5)
        for y in (0.4, 3.6)
        if np.hypot(*(plan.poses(0.02)[0] - (x, y)).T).min() > 0.6
    )
    robot.think(walled(*far))
    assert robot.survey.plan is plan


def of(*corners, name="keep_out"):
    rules = RulesNow()
    for each in corners:
        assert rules.restrict(name, each, "", "map") == ""
    return rules.now()


ALONG = Plan("x", np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]]), metres=7.0, seconds=20.0)


@pytest.mark.parametrize(
    "rules, radius, said",
    [
        (Rules(), 9.0, ""),
        (of(square(2.0, 0.7)), 0.449, ""),
        (of(square(2.0, 0.7)), 0.451, "it leads through a keep-out area"),
        (of(square(0.0, 9.0), square(4.0, 2.0)), 0.0, "it leads through a keep-out area"),
        (of(square(2.0, 1.4, 1.9), name="region"), 0.2, "it leaves the region"),
        (of(square(2.0, 1.4, 3.1), name="region"), 9.0, ""),
        (of(square(2.05, 0.0, 0.02)), 0.0, "it leads through a keep-out area"),
    ],
)
def test_a_plan_breaks_what_it_leads_through_or_out_of(rules, radius, said):
    assert rules.broken_on(ALONG, radius) == said
    assert rules.broken_on(Plan("x"), radius) == "", "it leads nowhere"


def test_a_region_is_all_of_its_polygons_together():
    parts = tuple(of(square(*at, 2.1), name="region").region[0] for at in ((1.0, 1.0), (3.0, 1.0)))
    assert Rules(region=parts).broken_on(ALONG, 0.0) == ""
    assert Rules(region=parts[:1]).broken_on(ALONG, 0.0) == "it leaves the region"


def test_a_goal_is_left_out_with_what_lies_within_the_radius_and_until_its_time_is_over():
    rules = RulesNow()
    for x, seconds in ((1.0, -1.0), (2.0, 99.0), (3.0, -1.0), (4.0, 99.0)):
        rules.close(x, 0.0, seconds)
    assert [goal[:2] for goal in rules.now().closed] == [(2.0, 0.0), (4.0, 0.0)]
    assert rules.closed_goals == 3, "of those that are over the oldest are dropped"
    x = np.array([[2.0, 0.3], [2.0, 0.31], [3.9, 0.0], [1.0, 0.0]])
    assert rules.now().closes(x, 0.3).tolist() == [True, False, True, False]
    assert not Rules().closes(x, 9.0).any()
    assert rules.now().since(Rules(closed=rules.now().closed[:1])).closed[0][:2] == (4.0, 0.0)


def test_a_hundred_areas_and_two_hundred_goals_are_kept_and_no_more():
    rules = RulesNow()
    for i in range(100):
        assert rules.restrict("keep_out", square(i, 0.0), "", "map") == ""
    said = rules.restrict("keep_out", square(200.0, 0.0), "", "map")
    assert "100 polygons are kept out of already" in said and said.endswith("it is not used")
    assert len(rules.now().keep_out) == 100
    assert rules.restrict("keep_out", square(7.0, 0.0), "", "map") == "", "that is one of them"
    assert rules.restrict("keep_out", [], "", "map") == "" and rules.now().keep_out == ()
    for i in range(201):
        rules.close(i, 0.0, 99.0)
    assert rules.closed_goals == 200 and rules.now().closed[0][0] == 1


@pytest.mark.parametrize("what", ["region", "keep_out", "goal"])
def test_another_frame_ends_what_was_said_in_the_one_before(what):
    rules = RulesNow()
    assert not rules.enter("") and not rules.enter("/map") and not rules.enter("map")
    if what == "goal":
        rules.close(1.0, 1.0, 99.0)
    else:
        assert "in frame 'odom' and the map" in rules.restrict(what, square(1, 1), "odom", "/map")
        assert rules.restrict(what, square(1.0, 1.0), "/map", "map") == ""
    assert not rules.enter("") and any(rules.now()), "the frame of a moment is not known"
    assert rules.enter("odom") and not any(rules.now()) and rules.closed_goals == 0
    assert "now in frame 'odom'" in rules.problem and "were in 'map'" in rules.problem
    assert not rules.enter("other"), "there is nothing to drop"
    assert rules.restrict("region", square(1.0, 1.0), "", "other") == rules.problem == ""

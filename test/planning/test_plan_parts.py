"""Plans and their parts: what is left of them, what they take off, what others have driven."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from floor_scene import node, problem_in, travel_in, worth

from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.plan import Plan, after_driving, allot, plan, plan_through, way_home
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.worth.path_value import Visits
from gp_mapping.planning.worth.weights import cell_weights


@pytest.fixture(scope="module")
def travel():
    return travel_in()


# ---- plans -------------------------------------------------------------------------------------

LINE = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 2.0]])
PLAN = Plan(
    "x",
    LINE,
    LINE[1:],
    np.array([3.0, 5.0]),
    (7, 9),
    np.array([[1.0, 0.0], [3.0, 1.0]]),
    np.array([1.0, 4.0]),
    np.array([0.5, 0.25]),
    5.0,
    10.0,
)


def test_the_rest_of_a_plan_is_as_if_it_had_been_planned_there():
    rest = PLAN.plan_ahead(2.0)
    np.testing.assert_allclose(rest.line, [[2.0, 0.0], [3.0, 0.0], [3.0, 2.0]])
    assert rest.nodes == (7, 9) and rest.metres == 3.0 and rest.seconds == pytest.approx(6.0)
    np.testing.assert_allclose(rest.stop_marks, [1.0, 3.0])
    assert rest.marks.tolist() == [2.0] and rest.gains.tolist() == [0.25]
    assert rest.visits.tolist() == [[3.0, 1.0]] and len(rest.stops) == 2
    assert PLAN.plan_ahead(3.0).nodes == (9,) and len(PLAN.plan_ahead(3.0).line) == 2
    assert not PLAN.plan_ahead(5.0) and not PLAN.plan_ahead(9.0) and PLAN.plan_ahead(4.9)
    assert PLAN.stops_ahead(0.0) == (7, 9) and PLAN.stops_ahead(3.0) == (9,)
    np.testing.assert_allclose(PLAN.line_ahead(-1.0), LINE)
    np.testing.assert_allclose(PLAN.line_ahead(9.0), [[3.0, 2.0]])
    assert Plan("x").line_ahead(1.0).shape == (0, 2) and not Plan("x", LINE[:1])
    over = Plan("x", reason="none").plan_ahead(1.0)
    assert over.reason == "none" and over.kind == "x"


def test_a_lead_comes_before_a_plan():
    lead = np.array([[-1.0, 0.0], [-1.0, 2.0], [0.0, 0.0]])
    both = PLAN.with_lead(lead, 3.0)
    np.testing.assert_allclose(both.line, np.vstack([lead, LINE[1:]]))
    metres = 2.0 + math.sqrt(5.0)
    assert both.metres == pytest.approx(5.0 + metres) and both.seconds == 13.0
    np.testing.assert_allclose(both.marks, PLAN.marks + metres)
    np.testing.assert_allclose(both.stop_marks, PLAN.stop_marks + metres)
    assert PLAN.with_lead(lead[:1], 3.0) is PLAN and not Plan("x").with_lead(lead, 3.0)


def test_poses_keep_corners_and_look_ahead():
    x, heading = PLAN.poses(0.8)
    np.testing.assert_allclose(
        x, [[0, 0], [0.75, 0], [1.5, 0], [2.25, 0], [3, 0], [3, 2 / 3], [3, 4 / 3], [3, 2]]
    )
    np.testing.assert_allclose(heading, [0.0] * 4 + [math.pi / 2] * 4)
    assert len(PLAN.poses(1.0)[0]) == 6, "pieces of just the spacing"
    assert len(PLAN.poses(99.0)[0]) == 3
    empty = Plan("x").poses(1.0)
    assert empty[0].shape == (0, 2) and empty[1].shape == (0,)


def test_progress_is_the_nearest_point_ahead_and_of_equal_ones_the_expected():
    assert PLAN.progress((1.2, 0.3)) == pytest.approx(1.2, abs=0.011)
    assert PLAN.progress((3.1, 1.0), before=3.0) == pytest.approx(4.0, abs=0.011)
    assert PLAN.progress((3.1, 1.0)) == pytest.approx(2.0, abs=0.011), "no short cut"
    assert PLAN.progress((3.0, 9.0), before=4.5) == pytest.approx(5.0)
    assert PLAN.progress((0.0, 0.0), before=2.0) == 2.0
    there = Plan("x", np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]))
    for expected, found in ((1.4, 1.5), (2.6, 2.5), (1.9, 1.5), (2.1, 2.5)):
        assert there.progress((1.5, 0.1), 1.0, 2.0, expected) == pytest.approx(found, abs=0.021)
    assert Plan("x").progress((1.0, 1.0)) == 0.0


def test_a_plan_says_what_it_takes_off(travel):
    a, b = node(travel, 2.45, 0.45), node(travel, 2.45, 1.45)
    problem = problem_in(travel, budget=Budget(20.0, home=(0.45, 0.45)))
    found = plan_through(problem, "x", (a, b, problem.home))
    assert found.nodes == (a, b) and found.kind == "x" and not found.reason
    drive = problem.drive((a, b))
    assert found.metres == drive.metres and found.seconds == drive.seconds
    np.testing.assert_allclose(found.stops, [[2.45, 0.45], [2.45, 1.45], [0.45, 0.45]])
    np.testing.assert_allclose(found.stop_marks, [2.0, 3.0, drive.metres])
    value = problem.value
    after = value.after_measuring(drive.visits).total
    assert found.stddev_now == pytest.approx(math.sqrt(value.total / value.mass))
    assert found.stddev_then == pytest.approx(math.sqrt(after / value.mass))
    assert found.gains.sum() == pytest.approx(value.total - after)
    # where the robot is at home already
    nothing = plan_through(problem, "x", ())
    assert not nothing and nothing.reason == "nothing is left to measure within the budget"
    assert not plan_through(problem_in(travel), "x", ()) and (
        plan_through(problem_in(travel), "x", ()).reason == "no place is worth a way any more"
    )
    away = replace(problem, position=np.array([2.45, 0.45]), _known={})
    assert plan_through(away, "x", ()).reason.endswith("this is the way home")


def test_the_way_home_is_a_plan_unless_the_robot_is_there(travel):
    problem = problem_in(travel, budget=Budget(20.0, home=(2.45, 0.45)))
    home = way_home(problem, "x", "it is late")
    assert home.metres == pytest.approx(2.0) and home.reason == "it is late: this is the way home"
    for there in (Budget(20.0), Budget(20.0, home=(0.46, 0.45))):
        stays = way_home(problem_in(travel, budget=there), "x", "it is late")
        assert not stays and stays.reason == "it is late"
        value = problem.value
        assert stays.stddev_now == stays.stddev_then
        assert stays.stddev_now == pytest.approx(math.sqrt(value.total / value.mass))


def test_where_no_way_leads_home_that_is_the_reason(travel):
    far = problem_in(travel, budget=Budget(20.0, home=(90.0, 0.45)))
    stuck = way_home(far, "x", "it is late")
    assert not stuck and stuck.reason.startswith("it is late, and no way leads from the robot")


def test_what_others_drive_is_measured_already(travel):
    value = worth(travel)
    line = np.array([[0.45, 0.45], [3.45, 0.45]])
    visits, _, _ = travel.visits([travel.leg_along(line)])
    after = after_driving(value, travel, [line, line[:1]])
    assert after.total == pytest.approx(value.after_measuring(visits).total)
    both = after_driving(value, travel, [line, line + np.array([0.0, 1.0])])
    assert both.total < after.total < value.total
    # what lies beyond the area says nothing of it
    outside = after_driving(value, travel, [line + np.array([0.0, 40.0])])
    assert outside.total == pytest.approx(value.total)
    leaves = after_driving(value, travel, [np.array([[0.45, 0.45], [0.45, -30.0]])])
    assert value.total > leaves.total > value.total - 4.0


def test_robots_that_share_an_area_measure_nothing_twice(travel):
    ends = [
        Problem(worth(travel), travel, np.array(p), budget=Budget(3.0), effort=5)
        for p in ((0.45, 0.45), (0.45, 0.65))
    ]
    alone = [plan(each, "gain_per_metre") for each in ends]
    both = allot(ends, "gain_per_metre")
    assert both[0].nodes == alone[0].nodes
    left = after_driving(ends[0].value, travel, [both[0].line])
    assert both[1].nodes == plan(replace(ends[1], value=left, _known={}), "gain_per_metre").nodes
    assert allot([]) == []
    other = Travel(travel.free, 0.41)
    with pytest.raises(ValueError, match="build one Travel"):
        allot([ends[0], Problem(worth(other), other, np.array([0.45, 0.45]))])


# ---- worth -------------------------------------------------------------------------------------


def test_measurements_are_selected_with_all_that_is_theirs():
    visits = Visits(torch.tensor([[0], [1], [2]]), torch.ones(3, 1), torch.tensor([1.0, 2.0, 3.0]))
    chosen = visits.select(torch.tensor([True, False, True]))
    assert chosen.places.tolist() == [[0], [2]] and chosen.scale.tolist() == [1.0, 3.0]
    assert Visits.from_path([3, 4]).select(torch.tensor([False, True])).scale is None
    assert Visits.from_path(visits) is visits and len(chosen) == len(chosen.weights) == 2


def test_a_measurement_that_stands_for_more_has_less_noise(travel):
    value = worth(travel)
    for scale in (0.5, 2.0):
        visits = Visits(
            torch.tensor([[4]]), torch.ones(1, 1).double(), torch.tensor([scale]).double()
        )
        gain = float(value.S[4, 4] / (value.C[4, 4] + 0.1 * scale))
        assert float(value.gains([visits])[0]) == pytest.approx(gain)
        assert value.after_measuring(visits).total == pytest.approx(value.total - gain)
    assert value.after_measuring([]) is value


def test_a_level_is_looked_for_in_a_band():
    areas = torch.tensor([2.0, 2.0]).double()
    mean, stddev = torch.tensor([1.0, 3.0]).double(), torch.tensor([1.0, 2.0]).double()

    def band(width):
        z = (mean - 1.5) / stddev
        return 2.0 * (
            torch.special.ndtr(width / stddev - z) - torch.special.ndtr(-width / stddev - z)
        )

    for given, width in ((0.7, 0.7), (None, 1.5)):
        found = cell_weights("level_set", areas, mean, stddev, level=1.5, band=given)
        torch.testing.assert_close(found, band(width))
    assert cell_weights("local_scale", areas, mean, stddev) is areas
    for wrong in ({"band": 0.0}, {"band": math.inf}, {"level": math.inf}):
        with pytest.raises(ValueError, match="a band above 0"):
            cell_weights("level_set", areas, mean, stddev, **wrong)

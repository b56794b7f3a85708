"""What a survey has spent, what plans may cost, and when nothing more is worth a plan."""

import math

import numpy as np
import pytest

from gp_mapping.planning.budget import Budget
from gp_mapping.planning.plan import Plan
from gp_mapping.runtime.surveying.spending import (
    Spending,
    ending,
    is_spent,
    reserves_of,
    whole_budget,
)
from gp_mapping.settings.node import NodeSettings


def settings(**given):
    return NodeSettings(
        **{"plan_budget": 40.0, "plan_speed": 0.5, "plan_turn_rate": 0.8, "plan_home": "start"}
        | given
    )


def driven(*places, running=True):
    spending = Spending()
    said = [spending.count_metres(np.array(place, float), running) for place in places]
    return spending, said


@pytest.mark.parametrize("metres", [4.999, 5.0, 5.001])
def test_whatever_is_no_leap_is_driven_and_spent(metres):
    """To the bound of both, 5 m: no metres are moved and not spent, or spent and not moved."""
    spending, (_, (counted, leapt)) = driven((0, 0), (metres, 0))
    assert counted == metres and leapt == (metres > 5.0)
    assert spending.driven == spending.moved == (0.0 if leapt else metres)


def test_metres_count_but_jitter_and_a_robot_that_is_carried():
    spending, said = driven((1, 1), (1, 1.01), (1, 1.5), (1.019, 1.5), (9, 1.5), (9, 2.5))
    assert said == [
        None,
        None,
        (pytest.approx(0.5), False),
        None,
        (pytest.approx(8.0), True),
        (pytest.approx(1.0), False),
    ]
    assert spending.driven == spending.moved == pytest.approx(1.5)
    assert spending.start.tolist() == [1, 1] and spending.last.tolist() == [9, 2.5]
    # where it does not run, it has moved, and nothing is spent
    idle, _ = driven((0, 0), (0, 3), running=False)
    assert (idle.driven, idle.moved, idle.start) == (0.0, 3.0, None)
    assert driven((0, 0), (0, 5.0))[0].driven == 5.0 and driven((0, 0), (0, 5.1))[0].driven == 0.0
    exact, said = driven((0, 0), (0, 0.02))
    assert exact.driven == 0.02 and said[1] == (0.02, False)


def test_a_position_is_new_where_it_may_be_beyond_jitter():
    spending = Spending()
    assert spending.is_new((0.0, 0.0))
    spending.count_metres(np.zeros(2), True)
    assert not spending.is_new((0.01, 0.0)) and not spending.is_new((0.005, -0.01))
    assert spending.is_new((0.015, -0.015)) and spending.is_new((-0.03, 0.0))
    spending.count_metres(np.array([2.0, 1.0]), True)
    assert not spending.is_new((2.0, 1.01)) and spending.is_new((1.97, 1.0))
    assert spending.is_new((2.0, 0.97))


def test_seconds_count_while_it_runs_and_never_backwards():
    spending = Spending()
    for stamp, running in ((10, True), (13, True), (20, False), (24, True), (5, True), (6, True)):
        spending.count_seconds(stamp, running)
    assert spending.spent == 3 + 4 + 1
    spending.count_seconds(None, True)
    spending.count_seconds(100, True)
    assert spending.spent == 8 and spending.clock == 100


def test_a_clock_that_is_set_takes_nothing_of_the_budget():
    """A robot that learns the time while it drives would be years late; so would one that waits be."""
    spending = Spending()
    for stamp, now in ((10.0, 0.0), (12.0, 2.0), (1.8e9, 2.1), (1.8e9 + 3.0, 5.0)):
        spending.count_seconds(stamp, True, now)
    assert spending.spent == 5.0 and spending.leaps == 1.8e9 - 12.0
    assert spending.clock == 15.0 and spending.passed_since(0.0, 12.0) == 3.0
    # a simulation that is a hundred times as fast, and a sensor that was silent for an hour
    spending.count_seconds(1.8e9 + 103.0, True, 6.0)
    spending.count_seconds(1.8e9 + 3703.0, True, 3606.0)
    assert spending.spent == 3705.0
    spending.count_seconds(5.0, True, 3607.0)
    assert spending.spent == 3705.0 and spending.clock == 3715.0


def test_what_is_left_is_of_metres_and_seconds_and_ends_at_home():
    spending, _ = driven((1, 2), (1, 6), (1, 10), (1, 12))
    spending.spent = 30.0
    both = settings(plan_budget_time=120.0)
    assert spending.fraction(both) == pytest.approx(0.25)
    spending.spent = 90.0
    assert spending.fraction(both) == pytest.approx(0.75)
    assert spending.fraction(settings()) == pytest.approx(0.25)
    assert spending.fraction(settings(plan_budget=0.0)) == 0.0
    assert spending.remaining(both) == Budget(30.0, 30.0, 0.5, 0.8, (1.0, 2.0))
    assert spending.remaining(settings(plan_home="none")) == Budget(30.0, math.inf, 0.5, 0.8)
    assert spending.remaining(settings(plan_home="3, 4", plan_budget=5.0)) == Budget(
        0.0, math.inf, 0.5, 0.8, (3.0, 4.0)
    )
    over = settings(plan_budget=0.0, plan_budget_time=60.0, plan_home="none")
    assert spending.remaining(over) == Budget(math.inf, 0.0, 0.5, 0.8)
    here = np.array([7.0, 8.0])
    assert whole_budget(both, here) == Budget(40.0, 120.0, 0.5, 0.8, (7.0, 8.0))
    nowhere = settings(plan_budget=0.0, plan_home="none")
    assert whole_budget(nowhere, here) == Budget(speed=0.5, turn_rate=0.8)
    spending.begin()
    assert spending.remaining(both) == Budget(40.0, 120.0, 0.5, 0.8)
    assert spending.start is None and spending.last.tolist() == [1, 12]


def test_a_robot_that_drives_more_than_is_planned_is_planned_less():
    s, spending = settings(plan_budget_time=60.0), Spending()
    assert spending.plannable(s) == spending.remaining(s)
    spending.learn(10.0, 8.0)  # less than planned is no credit
    assert spending.plannable(s) == spending.remaining(s)
    spending.learn(5.0, 11.0)
    # 15 m planned and 19 driven, each with 1 m for which it drove as planned
    assert spending.plannable(s).metres == pytest.approx(40.0 * 16.0 / 20.0)
    assert spending.plannable(s).seconds == pytest.approx(60.0 * 16.0 / 20.0)
    spending.learn(10.0, 90.0)
    assert spending.plannable(s).metres == pytest.approx(40.0 / 1.5)
    spending.begin()
    assert spending.plannable(s) == spending.remaining(s)


@pytest.mark.parametrize(
    "given, metres, seconds, fits",
    [
        ({}, 37.0, 1.0, True),  # 3 m to its beginning
        ({}, 37.1, 1.0, False),
        ({"plan_budget": 0.0, "plan_budget_time": 20.0}, 99.0, 14.0, True),  # 6 s to it
        ({"plan_budget": 0.0, "plan_budget_time": 20.0}, 99.0, 14.1, False),
    ],
)
def test_a_plan_that_begins_ahead_costs_the_way_to_it_too(given, metres, seconds, fits):
    spending, _ = driven((0, 0))
    plan = Plan("x", np.array([[3.0, 0.0], [9.0, 0.0]]), metres=metres, seconds=seconds)
    assert spending.fits(settings(**given), plan) == fits
    if given == {}:
        assert Spending().fits(settings(), plan), "nobody knows where the robot is"


def test_a_plan_leaves_a_reserve_for_corners_and_for_what_is_driven_while_it_is_made():
    def reserves(metres, seconds, thinking):
        return reserves_of(settings(), Budget(metres, seconds), thinking)

    assert reserves(100.0, math.inf, 0.0) == [pytest.approx(3.0), 0.0]
    assert reserves(2.0, 100.0, 0.0) == [pytest.approx(0.2), pytest.approx(3.0)]
    assert reserves(0.0, 10.0, 0.0) == [0.0, pytest.approx(0.4)]
    # there and back, at half a metre a second; of what is left a fifth at most
    assert reserves(100.0, 300.0, 8.0) == [pytest.approx(8.0), pytest.approx(16.0)]
    assert reserves(100.0, 300.0, 90.0) == [pytest.approx(20.0), pytest.approx(60.0)]


def test_a_budget_is_spent_where_the_robot_would_only_turn_round():
    def spent(left, whole=40.0, reserve=0.0, metres=0.0, home=None):
        budget = Budget(left, math.inf, 0.5, 0.8, home)
        return is_spent(settings(plan_budget=whole), budget, [reserve, 0.0], metres)

    assert not spent(0.25) and spent(0.15)
    assert spent(1.0, reserve=0.85) and not spent(1.0, reserve=0.75)
    assert spent(10.0, metres=9.85) and not spent(10.0, metres=9.75)
    half_a_circle = math.pi * 0.5 / 0.8
    assert spent(half_a_circle - 0.05, home=(0.0, 0.0))
    assert not spent(half_a_circle + 0.05, home=(0.0, 0.0))
    # a small budget is used all the same: a fifth of it is the most that turning keeps
    assert spent(0.95, whole=5.0, home=(0.0, 0.0)) and not spent(1.05, whole=5.0, home=(0.0, 0.0))

    def late(left, metres=0.0, home=None, whole=40.0):
        budget = Budget(math.inf, left, 0.5, 0.8, home)
        given = settings(plan_budget=0.0, plan_budget_time=whole)
        return is_spent(given, budget, [0.0, 1.0], metres)

    assert late(1.35) and not late(1.45)  # 0.2 m are 0.4 s
    assert late(9.35, metres=4.0) and not late(9.45, metres=4.0)
    turn = math.pi / 0.8
    assert late(0.95 + turn, home=(0.0, 0.0)) and not late(1.05 + turn, home=(0.0, 0.0))
    assert late(2.95, home=(0, 0), whole=10.0) and not late(3.05, home=(0, 0), whole=10.0)


def plan_of(gain: float, metres: float = 5.0, nodes: tuple[int, ...] = (1,)) -> Plan:
    """A plan that takes so much off the area."""
    line = np.array([[0.0, 0.0], [metres, 0.0]])
    return Plan("any", line=line, nodes=nodes, gains=np.array([gain]), metres=metres)


def test_a_survey_ends_where_no_plan_is_worth_its_way():
    s, limited = settings(plan_least_gain=0.1), Budget(metres=8.0)
    assert ending(s, plan_of(1.1), limited, 1.0, 10.0) == ""
    assert "less than 0.1 of the area's variance" in ending(s, plan_of(0.9), limited, 1.0, 10.0)
    assert ending(s, plan_of(0.9), limited, 1.0, 0.0) == "", "any gain is enough"

    nothing = "nothing is left to measure within the budget"
    assert ending(s, plan_of(5.0, nodes=()), Budget(), 1.0, 10.0) == nothing
    assert ending(s, plan_of(5.0, metres=0.09), limited, 1.0, 10.0) == nothing
    assert ending(s, plan_of(5.0, metres=0.09), Budget(), 1.0, 10.0) == ""


def test_without_a_plan_it_ends_only_where_the_budget_is_limited():
    s, empty = settings(), Plan("any", reason="too far")
    assert ending(s, empty, Budget(), 1.0, 10.0) == ""
    assert ending(s, empty, Budget(metres=8.0), 0.0, 10.0) == "the budget is spent (too far)"
    assert ending(s, empty, Budget(metres=8.0), 1.25, 10.0) == (
        "the budget is spent (too far; 1.2 m are kept for the corners of it)"
    )

"""How far along its plan a robot is, and when it needs another one."""

import numpy as np
import pytest

from gp_mapping.planning.plan import Plan
from gp_mapping.runtime.surveying.way.course import Course

LINE = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]])
PLAN = Plan("x", LINE, metres=7.0, seconds=20.0)
THERE_AND_BACK = Plan("x", np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 0.0]]), metres=6.0, seconds=9.0)


def test_what_is_driven_is_behind_and_never_ahead_again():
    course = Course(PLAN)
    assert course.follow(np.array([1.5, 0.2]), 1.5) == pytest.approx(1.5, abs=0.02)
    assert course.follow(np.array([1.0, 0.0]), 0.5) == 0.0, "back a bit"
    assert course.along == pytest.approx(1.5, abs=0.02)
    assert course.rest.metres == pytest.approx(5.5, abs=0.02)
    np.testing.assert_allclose(course.rest.line[1:], LINE[1:])
    assert course.next_pose(0.5) == pytest.approx((4.0, 0.0, 0.0))
    assert not course.nearly_driven
    course.follow(np.array([3.4, 0.0]), 1.9)
    course.follow(np.array([4.0, 1.1]), 1.7)
    course.follow(np.array([4.0, 2.65]), 1.6)
    assert not course.nearly_driven
    course.follow(np.array([4.0, 2.75]), 0.1)
    assert course.nearly_driven and Course(Plan("x")).nearly_driven
    assert Course(Plan("x")).next_pose(0.5) is None


def test_a_line_that_comes_by_again_later_is_no_short_cut():
    """The robot is nearer to where it will be in 2.5 m than to where it is on its line."""
    line = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 0.5], [0.0, 0.5]])
    course = Course(Plan("x", line, metres=4.5, seconds=9.0))
    assert course.follow(np.array([1.0, 0.35]), 1.0) == pytest.approx(1.0, abs=0.02)
    # once it is there, it is
    course.follow(np.array([2.0, 0.25]), 1.25)
    assert course.follow(np.array([1.0, 0.35]), 1.25) == pytest.approx(1.25, abs=0.04)


def test_on_the_way_out_of_a_dead_end_it_is_on_the_way_out():
    course = Course(THERE_AND_BACK)
    course.follow(np.array([1.5, 0.0]), 1.5)
    course.follow(np.array([2.8, 0.0]), 1.3)
    course.follow(np.array([2.4, 0.0]), 1.0)
    assert course.along == pytest.approx(3.6, abs=0.05)


@pytest.mark.parametrize(
    "along, moved, stamp, due",
    [
        (1.9, 11.9, 100.0, False),
        (2.1, 10.0, 100.0, True),  # metres of the plan
        (0.0, 12.1, 100.0, True),  # metres that are none of the plan
        (0.0, 10.0, 124.9, False),  # five seconds after its end
        (0.0, 10.0, 125.1, True),
        (0.0, 10.0, None, False),
    ],
)
def test_another_plan_is_due_after_metres_or_where_this_one_should_be_driven(
    along, moved, stamp, due
):
    course = Course(PLAN, moved=10.0, stamp=100.0)
    course.along = along
    assert course.due(2.0, moved, stamp) == due
    assert Course(Plan("x")).due(2.0, 0.0, None)


def test_a_plan_shorter_than_the_interval_is_due_near_its_end():
    course = Course(PLAN)
    course.along = 6.6
    assert not course.due(50.0, 0.0, 1.0)
    course.along = 6.75
    assert course.due(50.0, 0.0, 1.0)


class Free:
    """Sees along x alone."""

    def __init__(self):
        self.asked = []

    def sees(self, start, end):
        self.asked.append((start, end))
        return np.abs(start[:, 1] - end[:, 1]) < 1e-9


def test_what_comes_after_the_last_stop_is_the_way_home():
    """A robot that had to drive the interval before it is asked anew would be on its way home by then."""
    stops = {"nodes": (7,), "stops": LINE[1:], "stop_marks": np.array([4.0, 7.0])}
    course = Course(Plan("variance", LINE, metres=7.0, seconds=20.0, **stops))
    assert course.place_mark == 4.0 and course.destination.tolist() == [4.0, 0.0]
    course.along = 3.6
    assert not course.due(50.0, 0.0, 1.0) and course.arriving((3.6, 0.0)) == 0.0
    course.along = 3.8
    assert course.due(50.0, 0.0, 1.0) and course.destination is None
    assert course.arriving((3.6, 0.0)) == pytest.approx(0.4), "from where the robot is"
    assert course.lead((3.6, 0.0), 0.4, Free())[-1] == pytest.approx((4.0, 0.0))
    course.along = 7.0
    assert course.lead((4.0, 2.9), 0.4, Free()).tolist() == []
    assert Course(Plan("route", LINE, metres=7.0, **stops)).destination is None


def test_the_line_that_is_driven_next_ends_with_the_plan_and_with_free_space():
    course, free = Course(PLAN), Free()
    course.along = 1.0
    lead = course.lead((0.9, 0.1), 2.0, free)
    assert len(lead) == 0, "the robot stands beside it"
    np.testing.assert_allclose(course.lead((0.5, 0.0), 2.0, free), [[0.5, 0], [1, 0], [2.5, 0]])
    assert len(course.lead((1.0, 0.0), 3.5, free)) == 0 and not course.keeps_to(free)
    straight = Course(Plan("x", LINE[:2], metres=4.0, seconds=8.0))
    straight.along = 3.0
    assert straight.keeps_to(free)
    np.testing.assert_allclose(straight.lead((3.0, 0.0), 9.0, free)[-1], [4.0, 0.0])
    straight.along = 5.0
    np.testing.assert_allclose(straight.lead((3.5, 0.0), 9.0, free), [[3.5, 0.0]])

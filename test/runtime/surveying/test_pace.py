"""Where the next plan begins, by how long plans took."""

from types import SimpleNamespace

import pytest

from gp_mapping.runtime.surveying.pace import Pace

SLACK = 0.05  # m


def spending(seconds: float = 0.0, moved: float = 0.0):
    """What a survey has spent: so many seconds since a plan was begun, and metres in all."""
    return SimpleNamespace(clock=None, moved=moved, passed_since=lambda began, then: seconds)


def planned(pace: Pace, seconds: float, driving: bool = True, first: bool = False) -> None:
    pace.begin(spending(), driving)
    pace.end(spending(seconds), first)


def test_a_robot_that_drives_is_given_the_mean_of_what_plans_took():
    """A robot that stands waits for its plan: how long that takes says nothing of the others."""
    pace = Pace()
    planned(pace, 2.0)
    planned(pace, 4.0)
    planned(pace, 9.0, driving=False)
    assert pace.mean == pytest.approx(0.6 + 0.3 * (4.0 - 0.6))
    assert pace.ahead(0.5) == pytest.approx(0.5 * pace.mean + SLACK)


@pytest.mark.parametrize(("first", "expected"), [(0.1, 1.0), (0.01, 0.6)])
def test_a_whole_search_takes_ten_times_as_long_as_the_first_answer_or_as_the_others(
    first, expected
):
    pace = Pace()
    planned(pace, 2.0)
    planned(pace, first, driving=False, first=True)
    planned(pace, 50.0, driving=False)
    assert pace.ahead(0.5) == pytest.approx(0.5 * 0.6 + SLACK)
    pace.improving = True
    assert pace.ahead(0.5) == pytest.approx(0.5 * expected + SLACK)
    assert pace.metres_while_searching(0.5, spending(0.2)) == pytest.approx(0.5 * 2.0 + SLACK)


def test_late_is_who_has_driven_on_beyond_the_beginning_of_the_plan():
    pace = Pace()
    pace.begin(spending(moved=7.0), True)
    pace.lead = 0.5
    assert pace.late(spending(moved=8.2)) == pytest.approx(0.7)

"""Steps that no robot drives, told by the steps before and after them alone."""

import numpy as np
import pytest

from gp_mapping.intake.poses.leaps import PoseLeaps


def noted(*leaps: float, seconds: float = 0.1) -> PoseLeaps:
    """Of a robot at .5 m/s that leaps by so many metres along its way, ten steps apart."""
    told, stamp = PoseLeaps(), 100.0
    for metres in (*leaps, 0.0):
        for step in [*[0.5 * seconds] * 10, metres]:
            stamp += seconds
            told.note(np.array([step, 0.0]), seconds, stamp, 0.0)
    return told


@pytest.mark.parametrize("metres", [0.4, 0.9, 2.0])
def test_the_farthest_leap_is_told_however_short_it_is(metres):
    """In steps of a tenth of a second, in which .4 m are far."""
    told = noted(0.3, metres)
    assert told.stays == 2 and told.returns == 0
    assert told.farthest == (pytest.approx(metres), pytest.approx(0.1), pytest.approx(102.2))
    (text,) = told.notes(0.0)
    assert text.startswith(
        f"poses leap 2 times, at stamp 102.2 by {metres:.3g} m in 0.1 s, and stay"
    )


def test_what_is_forgotten_is_not_told_again():
    told = noted(2.0)
    told.forget()
    assert told.notes(0.0) == [] and told.driven == pytest.approx(0.5)
    told.note(np.array([0.05, 0.0]), 0.1, 110.0, 0.0)
    assert told.notes(0.0) == []


def test_how_far_places_usually_lie_aside_is_their_mean_and_later_that_of_the_newest_fifty():
    """Five times as far is what comes back; nobody asks for the mean itself."""
    for steps, usual in ((10, 0.1), (100, 0.1)):
        for aside, times in ((4.9 * usual, 0), (5.1 * usual, 1)):
            told = PoseLeaps()
            for k in range(steps):  # none, and twice as much
                told.note(np.array([0.05, 0.0]), 0.1, 100.0 + 0.1 * k, 2.0 * usual * (k % 2))
            told.note(np.array([0.05, 0.0]), 0.1, 200.0, aside)
            assert told.returns == times, (steps, aside)

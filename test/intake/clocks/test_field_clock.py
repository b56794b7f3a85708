"""The time of the measurements: jumps back, pauses, and many stamps at once as one by one."""

import pytest

from gp_mapping.intake.clocks.field_clock import PERIODS, RECENT_STEPS, FieldClock

BACK, GAP = 500, 100  # ns


def clock_at(*stamps):
    clock = FieldClock(BACK, GAP)
    for stamp in stamps:
        clock.move_to(stamp)
    return clock


def test_before_the_first_measurement_no_stamp_is_late():
    clock = clock_at()
    assert not clock.jumps_back(0) and not clock.is_past(0)
    assert clock.longest_pause() == (GAP, False)


def test_a_stamp_jumps_back_beyond_the_bound_only_and_is_past_at_the_newest():
    clock = clock_at(1000)
    assert not clock.jumps_back(1000 - BACK) and clock.jumps_back(1000 - BACK - 1)
    assert clock.is_past(1000) and not clock.is_past(1001)


def test_it_is_in_the_time_of_another_stream_up_to_the_bound_ahead_of_it():
    clock = clock_at()
    assert clock.is_in_time_of(BACK + 7, 7) and not clock.is_in_time_of(BACK + 8, 7)
    assert not clock.is_in_time_of(0, None)


def test_it_advances_by_what_stamps_go_on_and_never_by_jumps_back():
    clock = clock_at(1000, 1030, 200, 210)
    assert clock.advance == 40 and list(clock.steps) == [30, 10] and clock.newest == 210
    clock.restart(3)
    clock.move_to(5000)
    assert (clock.epoch, clock.advance, clock.newest) == (3, 40, 5000)


@pytest.mark.parametrize("n", [1, RECENT_STEPS, RECENT_STEPS + 1, 100])
def test_many_stamps_at_once_are_as_one_by_one(n):
    stamps = [1000 + 20 * i + i % 3 for i in range(n)]
    together, alone = clock_at(10, 40), clock_at(10, 40, *stamps)
    together.move_through(stamps)
    assert (together.newest, together.advance) == (alone.newest, alone.advance)
    assert list(together.steps) == list(alone.steps)


def test_a_slow_sensor_may_pause_for_some_of_its_periods():
    slow = clock_at(*range(0, 10 * 150, 150))
    assert slow.longest_pause() == (PERIODS * 150, False)
    assert clock_at(*range(0, 20 * 150, 150)).longest_pause() == (PERIODS * 150, True)

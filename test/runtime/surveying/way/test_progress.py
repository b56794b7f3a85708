"""When a robot that is to drive counts as stuck."""

from gp_mapping.runtime.surveying.way.progress import ProgressWatch


def test_a_robot_is_stuck_where_it_does_not_move():
    watch = ProgressWatch(10.0, by_another=False)
    assert not watch.is_stuck(0.0, (0.0, 0.0, 0.0)) and not watch.is_stuck(9.0, (0.2, 0.0, 0.0))
    assert not watch.is_stuck(19.0, (0.25, 0.0, 0.0))
    assert watch.is_stuck(19.1, (0.25, 0.0, 3.0))  # its own turns lead nowhere
    assert not watch.is_stuck(20.0, (0.25, 0.0, 0.0)) and watch.is_stuck(29.2, (0.25, 0.0, 0.0))
    watch.restart()
    assert not watch.is_stuck(99.0, (0.25, 0.0, 0.0))


def test_what_another_program_drives_is_not_stuck_while_it_turns_or_tries_again():
    """A goal that Nav2 accepts and never ends was waited for."""
    watch = ProgressWatch(10.0, by_another=True)
    assert not watch.is_stuck(0.0, (0.0, 0.0, 3.1)) and not watch.is_stuck(9.0, (0.0, 0.0, -2.6))
    assert not watch.is_stuck(18.0, (0.0, 0.0, -2.6), (1, 0))
    assert not watch.is_stuck(27.0, (0.0, 0.0, -2.6), (1, 1))
    assert not watch.is_stuck(37.0, (0.0, 0.0, -2.6), (1, 1))
    assert watch.is_stuck(37.1, (0.0, 0.0, -2.6), (1, 1))

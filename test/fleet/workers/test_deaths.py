"""Deaths over a step are counted by the step: of workers that died in the middle of it, and while it got no farther."""

import os
import signal

import pytest

from gp_mapping.fleet.workers.deaths import StepLost, advanced, run_counted
from gp_mapping.fleet.workers.step_progress import StepProgress


def die(before=lambda: None):
    before()
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_life(mark, call, *arguments):
    """A step with two deaths at the most, in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            run_counted(mark, 2, call, *arguments)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


def test_a_step_over_which_workers_die_is_given_up_and_each_time_it_is_asked_tried_once_more(
    tmp_path,
):
    mark = tmp_path / "mark"
    assert [in_a_life(mark, die) for _ in range(2)] == [9, 9]
    with pytest.raises(StepLost, match="2 workers died over it"):
        run_counted(mark, 2, int)
    assert in_a_life(mark, die) == 9
    with pytest.raises(StepLost, match="3 workers died over it"):
        run_counted(mark, 2, int)
    assert run_counted(mark, 2, int, "5") == 5 and not mark.exists()


def test_a_step_that_ends_by_itself_is_no_death(tmp_path):
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            run_counted(tmp_path / "mark", 2, divmod, 1, 0)
    assert not list(tmp_path.iterdir())


def test_deaths_before_the_last_progress_do_not_count(tmp_path):
    mark, kept = tmp_path / "mark", StepProgress(tmp_path / "halfway")
    assert [in_a_life(mark, die, lambda: kept.save(1)) for _ in range(5)] == [9] * 5
    assert in_a_life(mark, die) == 9
    with pytest.raises(StepLost, match="2 workers died over it"):
        run_counted(mark, 2, int)


def test_a_mark_that_cannot_be_written_or_read_costs_the_count_alone(tmp_path):
    assert run_counted(tmp_path / "no such folder" / "mark", 2, int, "5") == 5
    (tmp_path / "mark").write_bytes(b"\0 junk and more")
    assert run_counted(tmp_path / "mark", 2, int, "5") == 5
    advanced()  # outside of any step

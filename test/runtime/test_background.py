"""Work in other threads: each job once and in order, its result or its error to who wants it."""

import subprocess
import sys
import threading
import time

import pytest

from gp_mapping.runtime.background import BackgroundJob
from gp_mapping.runtime.file_thread import ClosingError, FileThread, QueueFullError
from gp_mapping.runtime.timing import Durations


def done(condition):
    end = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_one_job_in_the_background_whose_result_is_fetched_once():
    job, gate = BackgroundJob("ground"), threading.Event()
    assert job.idle and not job.running and job.fetch() is None
    names = []

    def work():
        thread = threading.current_thread()
        names.append((thread.name, thread.daemon))
        assert gate.wait(10)
        return 7

    job.start(work)
    assert not job.idle and job.running and job.fetch() is None
    with pytest.raises(RuntimeError, match="ground: a job runs already"):
        job.start(work)
    gate.set()
    done(lambda: not job.running)
    assert not job.idle, "its result waits"
    with pytest.raises(RuntimeError, match="runs already"):
        job.start(work)
    assert job.fetch() == 7 and job.idle and job.fetch() is None
    assert names == [("ground", True)]


def test_what_a_background_job_raises_comes_where_it_is_fetched():
    job = BackgroundJob("ground")
    job.start(lambda: 1 / 0)
    done(lambda: not job.running)
    with pytest.raises(ZeroDivisionError):
        job.fetch()
    assert job.idle and job.fetch() is None
    job.start(lambda: 2)
    done(lambda: not job.running)
    assert job.fetch() == 2


def test_files_are_written_in_order_and_so_many_wait():
    files, gate, order = FileThread(size=2), threading.Event(), []
    assert not files.busy
    first = files.submit(lambda: gate.wait(10) and order.append(0))
    done(lambda: first.running())
    assert files.busy
    others = [files.submit(lambda i=i: order.append(i) or i) for i in (1, 2)]
    with pytest.raises(QueueFullError, match="2 jobs wait"):
        files.submit(lambda: order.append(3))
    broken = threading.Event()
    gate.set()
    assert [future.result(10) for future in others] == [1, 2] and order == [0, 1, 2]

    def fail():
        broken.set()
        raise OSError("no space")

    failed = files.submit(fail)
    with pytest.raises(OSError, match="no space"):
        failed.result(10)
    done(lambda: not files.busy)
    assert files.submit(lambda: 5).result(10) == 5
    assert files.close(10.0), "nothing runs"
    with pytest.raises(ClosingError, match="being stopped"):
        files.submit(lambda: 6)


def test_what_has_begun_is_waited_for_and_what_has_not_is_refused():
    files, gate = FileThread(), threading.Event()
    runs = files.submit(lambda: gate.wait(10))
    done(lambda: runs.running())
    waits, cancelled = files.submit(lambda: 1), files.submit(lambda: 2)
    assert cancelled.cancel()
    assert not files.close(0.01)
    with pytest.raises(ClosingError, match="had not begun"):
        waits.result(0)
    gate.set()
    assert files.close(10.0) and runs.result(0) is True


def test_durations_are_the_last_ones_and_counted_for_ever():
    durations = Durations(size=100)
    assert durations.summary() == {}
    for i in range(1, 251):
        durations.add(1e-3 * i)
    # of the last hundred, 151 to 250 ms
    assert durations.summary() == pytest.approx(
        {"count": 250, "p50_ms": 200.0, "p99_ms": 249.0, "max_ms": 250.0}
    )


def test_a_job_in_native_code_does_not_abort_a_process_that_ends():
    """The interpreter's own end of a daemon thread unwinds C++ that cannot be: SIGABRT."""
    code = """
import threading, torch
from gp_mapping.runtime.background import BackgroundJob
begun, a = threading.Event(), torch.eye(200, dtype=torch.float64)
def work():
    while True:
        torch.linalg.cholesky(a)
        begun.set()
BackgroundJob("team").start(work)
begun.wait()
"""
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")

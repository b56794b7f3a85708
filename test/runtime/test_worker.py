"""The worker with a real session and a real intake, without ROS: order, bounds, failures, the end."""

import ctypes
import math
import platform
import threading
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace as Namespace

import numpy as np
import pytest
import torch

from gp_mapping.intake import DropReason, Intake
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime import worker as worker_module
from gp_mapping.runtime.health import resident_megabytes
from gp_mapping.runtime.slices import FIRST
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.runtime.worker_results import Status
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings

SETTINGS = MapSettings(
    max_inducing=60,
    resolution=0.1,
    learn_hyperparameters=False,
    lengthscale=0.6,
    signal_stddev=6e-6,
    noise_stddev=3e-7,
    constant_stddev=2e-5,
)
EPOCH = 1_700_000_000  # s


def header(t: float, frame: str) -> Namespace:
    """t: s since EPOCH."""
    seconds, ns = divmod(round(t * 1e9), 10**9)
    return Namespace(stamp=Namespace(sec=EPOCH + seconds, nanosec=ns), frame_id=frame)


def odometry(t: float, x: float, y: float) -> Namespace:
    """As nav_msgs has it."""
    pose = Namespace(
        position=Namespace(x=x, y=y, z=0.0), orientation=Namespace(x=0.0, y=0.0, z=0.0, w=1.0)
    )
    return Namespace(
        header=header(t, "odom"),
        child_frame_id="base_link",
        pose=Namespace(pose=pose, covariance=np.zeros(36)),
    )


def magnetic_field(t: float, value: float) -> Namespace:
    """As sensor_msgs has it: value tesla along z."""
    return Namespace(
        header=header(t, "magnetometer"),
        magnetic_field=Namespace(x=0.0, y=0.0, z=value),
        magnetic_field_covariance=np.zeros(9),
    )


def messages(start: float, seconds: float, rate: int = 50):
    """(kind, message) as a robot sends them: .5 m/s up and down lanes of 2 m, .3 m apart."""
    for i in range(round(seconds * rate) + 1):
        t = start + i / rate
        lane, along = divmod(0.5 * t, 2.0)
        x, y = (along if lane % 2 == 0 else 2.0 - along), 0.3 * lane
        yield "pose", odometry(t, x, y)
        yield "measurement", magnetic_field(t, 45e-6 + 6e-6 * math.sin(1.5 * x) * math.cos(1.1 * y))


@pytest.fixture
def make_worker():
    """Workers that are always stopped."""
    made = []

    def make(session=None, queue_size=100_000, **options):
        errors = []
        worker = MapWorker(
            session or MapSession(SETTINGS),
            Intake(IntakeSettings()),
            queue_size=queue_size,
            on_error=errors.append,
            **options,
        )
        worker.errors = errors
        made.append(worker)
        return worker

    yield make
    for worker in made:
        if worker._thread.is_alive():
            worker.stop(abandon=True, timeout=10)


def until(condition, timeout: float = 10.0):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def reference(parts) -> MapSession:
    """The same messages without a thread."""
    session, intake = MapSession(SETTINGS), Intake(IntakeSettings())
    for part in parts:
        for kind, message in part:
            (intake.add_odometry if kind == "pose" else intake.add_field)(message)
            for new_pass, samples in intake.batches():
                if new_pass:
                    session.break_pass()
                session.ingest(samples)
    for _, samples in intake.batches(finish=True):
        session.ingest(samples)
    session.flush()
    return session


def assert_same_map(a: MapSession, b: MapSession):
    x = torch.rand(50, 2, dtype=torch.float64) * 2
    p, q = a.predict(x), b.predict(x)
    assert torch.equal(p.mean, q.mean) and torch.equal(p.variance, q.variance)
    assert a.report() == b.report()


def test_same_map_as_without_a_thread_and_nothing_lost(make_worker):
    session = MapSession(SETTINGS)
    worker = make_worker(session)
    worker.start()
    for kind, message in messages(0.0, 10.0):
        assert worker.put(kind, message)
    assert worker.stop(timeout=60)
    assert_same_map(session, reference([messages(0.0, 10.0)]))
    assert worker.status.received == {"magnetic_field": 501, "odometry": 501}
    assert worker.status.report["samples"] == 501 and not worker.status.drops and not worker.errors
    assert worker.status.used == 501 and worker.status.lag[1] == 0.0
    assert worker.status.timings["latency"]["count"] == 501


def test_what_a_saved_map_holds_is_named_where_it_comes_again(make_worker):
    """A bag that a node with `resume` gets once more counted twice, unsaid; a cleared map holds nothing."""
    session = MapSession(SETTINGS)
    for times, expected in enumerate((False, True, False)):
        worker = make_worker(session)
        worker.start()
        if times == 2:
            worker.clear().result()
        for kind, message in messages(0.0, 4.0):
            worker.put(kind, message)
        assert worker.stop(timeout=60)
        said = any("that the map holds already" in text for text in worker.status.warnings)
        assert said == expected
        session = MapSession.from_state_dict(session.state_dict())


def test_a_time_jump_of_stamps_keeps_the_map_and_begins_a_new_pass(make_worker):
    session = MapSession(SETTINGS)
    worker = make_worker(session)
    worker.start()
    for kind, message in (*messages(0.0, 4.0), *messages(0.0, 4.0)):
        worker.put(kind, message)
    assert worker.stop(timeout=60)
    assert session.report()["passes"] == 2
    assert_same_map(session, reference([messages(0.0, 4.0), messages(0.0, 4.0)]))


def test_a_full_queue_drops_and_counts_and_calls_still_get_through(make_worker):
    worker = make_worker(queue_size=10)
    put = [worker.put(kind, message) for kind, message in messages(0.0, 1.0)]
    assert sum(put) == 10
    future = worker.call(lambda session: session.report()["samples"])
    worker.start()
    assert future.result(10) == 5
    assert worker.stop(timeout=10)
    counts, sent = worker.status.counts, Counter(kind for kind, _ in messages(0.0, 1.0))
    assert counts["queue_full"] + counts["pose_queue_full"] == len(put) - 10
    assert counts["queue_full"] == sent["measurement"] - 5, "poses are counted apart"


def test_a_call_that_must_not_wait_comes_before_what_is_queued(make_worker, monkeypatch):
    """An autosave behind minutes of messages would come minutes late."""
    monkeypatch.setattr("gp_mapping.runtime.worker.CHUNK", 5)
    worker = make_worker(queue_size=2000)
    for kind, message in messages(0.0, 4.0):
        worker.put(kind, message)
    late = worker.call(lambda session: session.raw_count)
    soon = worker.call(lambda session: session.raw_count, soon=True)
    worker.start()
    assert soon.result(10) < late.result(10)
    assert worker.stop(timeout=10)
    assert worker.call(lambda session: session.raw_count, soon=True).result(0) >= late.result()


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_failure_is_logged_with_its_traceback_counted_and_survived(make_worker, failure):
    """Also what ends a process: in the map's thread no signal raises it, but a model's exit() does."""
    session = MapSession(SETTINGS)
    worker = make_worker(session)
    broken = threading.Event()
    ingest = session.ingest

    def fail_once(samples):
        if not broken.is_set():
            broken.set()
            raise failure("a broken factor")
        return ingest(samples)

    session.ingest = fail_once
    worker.start()
    for kind, message in messages(0.0, 2.0):
        worker.put(kind, message)
    until(lambda: broken.is_set() and not worker.queued)
    for kind, message in messages(2.02, 2.0):
        worker.put(kind, message)
    assert worker.stop(timeout=30)
    assert worker.status.counts["error_update"] == 1 and worker.status.counts["lost_by_error"] >= 1
    assert "a broken factor" in worker.errors[0] and "Traceback" in worker.errors[0]
    assert isinstance(worker.status, Status)
    assert (
        worker.status.used
        == worker.status.report["samples"]
        == 202 - worker.status.counts["lost_by_error"]
    )


def test_a_failing_call_gives_its_error_to_the_caller(make_worker):
    worker = make_worker()
    worker.start()
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda session: 1 / 0).result(10)
    assert worker.stop(timeout=10)


def test_a_call_that_is_cancelled_is_left_out_and_what_came_with_it_is_not(make_worker):
    worker, called = make_worker(), []
    cancelled = worker.call(lambda session: called.append(1))
    whole, other = worker.whole_map(), worker.call(lambda session: 2)
    assert cancelled.cancel() and whole.cancel()
    worker.start()
    assert other.result(10) == 2 and not called
    assert worker.whole_map().result(10) is None, "the next drawing has its turn"
    assert worker.stop(timeout=10) and not worker.errors and not worker.status.counts


def test_results_are_frozen_and_come_on_request_only(make_worker):
    done = threading.Event()
    worker = make_worker(
        on_result=done.set, suggest=lambda session, grid, position, free, frame: (frame, position)
    )
    worker.start()
    for kind, message in messages(0.0, 5.0):
        worker.put(kind, message)
    until(lambda: worker.revision > 0 and not worker.queued)
    assert worker.results is None and not done.is_set()
    worker.request({"grid"})
    assert done.wait(10)
    first = worker.results
    assert (
        first.grid.known.any() and first.inducing is None and first.revision == first.grid.revision
    )
    before = first.grid.mean.clone(), first.grid.known.clone()
    done.clear()
    for kind, message in messages(5.02, 5.0):
        worker.put(kind, message)
    until(lambda: worker.revision > first.revision and not worker.queued)
    worker.request({"markers", "suggestions"})
    assert done.wait(10)
    assert torch.equal(before[0], first.grid.mean) and torch.equal(before[1], first.grid.known)
    second = worker.results
    assert (
        len(second.inducing)
        and len(second.path)
        and second.suggestions == ("odom", second.position)
    )
    assert worker.stop(timeout=10)
    worker.draw_last({"grid"})
    assert worker.results.revision >= second.revision


def test_the_status_says_how_far_drawings_lag(make_worker):
    worker = make_worker(MapSession(replace(SETTINGS, resolution=0.05)), draw_budget=1)
    for kind, message in messages(0.0, 10.0):
        worker.put(kind, message)
    worker.start()
    until(lambda: worker.revision > 0 and not worker.queued)
    worker.request({"grid"})
    until(lambda: worker.status.lag[0] > 0.5)


def test_abandoning_counts_what_was_not_used(make_worker):
    worker = make_worker()
    for kind, message in messages(0.0, 60.0):
        worker.put(kind, message)
    worker.start()
    assert worker.stop(abandon=True, timeout=30)
    status, counts = worker.status, worker.status.counts
    assert counts["pose_abandoned"] == 3001 - status.received["odometry"] > 0
    assert counts["abandoned"] + status.used + sum(status.drops.values()) == 3001


def test_an_end_that_is_late_waits_for_a_part_of_a_batch_however_slow_the_map(make_worker):
    """A model that needs a second for an update: the whole batch would have taken a minute, and every end with it."""
    session = MapSession(SETTINGS)
    worker, taken, ingest = make_worker(session), [], session.ingest
    go_on = threading.Event()

    def slow(samples):
        taken.append(len(samples))
        assert go_on.wait(10.0)
        return ingest(samples)

    session.ingest = slow
    for kind, message in messages(0.0, 5.0):
        worker.put(kind, message)
    worker.start()
    until(lambda: taken)
    assert not worker.stop(abandon=True, timeout=0.0)
    go_on.set()
    assert worker.stop(timeout=10.0)
    status = worker.status
    assert taken == [FIRST] and status.used == status.report["samples"] == FIRST
    assert status.counts["abandoned"] + status.used + sum(status.drops.values()) == 251


def test_a_whole_map_is_drawn_while_the_worker_runs_and_of_an_empty_one_there_is_none(make_worker):
    worker = make_worker(MapSession(replace(SETTINGS, margin=0.5)))
    worker.start()
    assert worker.whole_map().result(10) is None
    for kind, message in messages(0.0, 1.0):
        worker.put(kind, message)
    drawn = worker.call(lambda session: session.render().mean.clone())
    grid, _ = worker.whole_map().result(10)
    np.testing.assert_allclose(grid.mean, drawn.result(10), rtol=0.0, atol=1e-9)
    assert worker.stop(timeout=10)


def test_what_is_used_is_what_was_placed_and_neither_refused_nor_lost():
    intake = Intake(IntakeSettings())
    for kind, message in messages(0.0, 1.0):
        (intake.add_odometry if kind == "pose" else intake.add_field)(message)
    assert len(intake.take()) == 51
    intake.drops.count(DropReason.REFUSED, 3)
    status = Status.gather(MapSession(SETTINGS), intake, 7, {"lost_by_error": 2, "paused": 0}, {})
    assert (status.used, status.queue, status.counts) == (46, 7, {"lost_by_error": 2})
    assert status.lag == (0.0, 0.0) and status.last_stamp == pytest.approx(EPOCH + 1.0)
    assert Status.gather(MapSession(SETTINGS), intake, 0, {}, {}).used == 48


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries do not keep what is freed"
)
def test_memory_that_the_map_no_longer_needs_goes_back_to_the_system(make_worker, monkeypatch):
    """Holes between what stays, in the heap of the map's thread: a node grew by 10 MB a minute."""

    def leave_holes(_):
        parts = [b"1" * 60_000 for _ in range(2_000)]
        return parts[::50]

    monkeypatch.setattr(worker_module, "PAGES_PERIOD", math.inf)
    ctypes.CDLL(None).malloc_trim(0)  # what other tests have left
    worker, before = make_worker(), resident_megabytes()
    worker.start()
    kept = worker.call(leave_holes).result(10)
    assert resident_megabytes() - before > 80
    monkeypatch.setattr(worker_module, "PAGES_PERIOD", 0.0)
    until(lambda: resident_megabytes() - before < 40)
    assert all(part[-1:] == b"1" for part in kept)
    assert worker.stop(timeout=10) and worker.status.timings["pages"]["count"] > 0


def test_the_end_of_a_stream_comes_in_steps_and_a_map_that_is_stopped_early_leaves_them(
    make_worker, monkeypatch
):
    """A search that takes seconds at the end let a launch file kill the node before it had saved."""
    steps = []

    def finishing(session):
        for i in range(1000):
            steps.append(i)
            yield

    monkeypatch.setattr(MapSession, "finishing", finishing)
    worker = make_worker()
    worker.start()
    for kind, message in messages(0.0, 2.0):
        worker.put(kind, message)
    assert worker.stop(timeout=30, finish=False) and not steps
    assert worker.status.used == 101  # though nothing of what may be left out is done
    worker.finish(lambda: len(steps) == 3)
    assert steps == [0, 1, 2]

    again = make_worker()
    again.start()
    assert again.stop(abandon=True, timeout=30) and len(steps) == 4

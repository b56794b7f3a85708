"""What is asked of a worker from outside: calls, drawings, sessions, counts; and what it tells."""

import threading
import time
from contextlib import suppress
from types import SimpleNamespace as Namespace

import numpy as np
import pytest
import torch
from test_worker import SETTINGS, magnetic_field, messages, odometry, until

from gp_mapping import Samples
from gp_mapping.intake import Intake
from gp_mapping.intake.sensors.setup import SETUP
from gp_mapping.intake.sensors.sketch import MEASURED, hashes_in
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.runtime.worker_results import Status
from gp_mapping.settings.intake import IntakeSettings


@pytest.fixture
def make_worker():
    made = []

    def make(session=None, intake=None, queue_size=100_000, start=True, **options):
        errors = []
        worker = MapWorker(
            session or MapSession(SETTINGS),
            intake or Intake(IntakeSettings()),
            queue_size=queue_size,
            on_error=errors.append,
            **options,
        )
        worker.errors = errors
        if start:
            worker.start()
        made.append(worker)
        return worker

    yield make
    for worker in made:
        with suppress(RuntimeError):  # it was never started
            worker.stop(abandon=True, timeout=10)


def driven(seconds=2.0, about=None, **given) -> MapSession:
    session, intake = MapSession(SETTINGS), Intake(IntakeSettings(**given))
    for kind, message in messages(0.0, seconds):
        (intake.add_odometry if kind == "pose" else intake.add_field)(message)
    for _, samples in intake.batches(finish=True):
        session.ingest(samples)
    session.flush()
    session.about = intake.about if about is None else about
    return session


def put_all(worker, parts):
    for kind, message in parts:
        worker.put(kind, message)


def test_each_kind_of_message_is_counted_under_its_own_name(make_worker):
    worker = make_worker(queue_size=2, start=False)
    message = magnetic_field(0.0, 45e-6)
    assert not worker.full and worker.queued == 0
    assert worker.put("measurement", message) and not worker.full
    assert worker.put("measurement", message) and worker.full and worker.queued == 2
    for role in ("measurement", "pose", "tf", "tf_static", "fix"):
        assert not worker.put(role, message)
        worker.count("paused", 2, role)
    worker.count("paused")
    assert worker.enqueued == 2
    worker.start()
    assert worker.stop(abandon=True, timeout=10)
    assert worker.enqueued == worker.status.received["magnetic_field"]
    assert not worker.put("measurement", message)
    counts = worker.status.counts
    assert counts["queue_full"] == 1 and counts["pose_queue_full"] == 3
    assert counts["fix_queue_full"] == 1
    assert (counts["paused"], counts["pose_paused"], counts["fix_paused"]) == (3, 6, 2)
    used = worker.status.received["magnetic_field"]
    assert counts.get("abandoned", 0) == 2 - used


def test_after_the_end_a_question_is_answered_at_once(make_worker):
    worker = make_worker()
    put_all(worker, messages(0.0, 1.0))
    assert worker.stop(timeout=30)
    here = threading.current_thread()
    assert worker.call(lambda _: threading.current_thread()).result(0) is here
    assert worker.ask(lambda session: session.cell_count).result(0) > 0
    grid, limits = worker.whole_map().result(0)
    assert grid.known.any() and limits is not None
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda _: 1 / 0).result(0)
    assert worker.revision > 0
    worker.draw_last({"markers"})
    assert worker.results.inducing is not None and worker.results.suggestions is None


def test_who_asks_for_the_session_finds_which_measurements_it_holds(make_worker):
    """While it runs, with what came last, and after the end."""
    worker, seen = make_worker(), []
    for seconds in (1.0, 2.0):
        put_all(worker, messages(seconds - 1.0, seconds))
        seen.append(worker.call(lambda session: session.about[MEASURED]).result(10))
    assert 0 < len(hashes_in(seen[0])) < len(hashes_in(seen[1]))
    session = worker.call(lambda session: session).result(10)
    put_all(worker, messages(2.0, 3.0))
    assert worker.stop(timeout=30)
    assert len(hashes_in(session.about[MEASURED])) > len(hashes_in(seen[1]))


def test_each_request_for_results_is_answered_once_also_where_it_fails(make_worker):
    worker = make_worker()
    put_all(worker, messages(0.0, 1.0))
    worker.request({"grid"})
    until(lambda: worker.answered == 1 and worker.results is not None)
    worker.call(lambda session: setattr(session, "render", None)).result(10)
    worker.request({"grid"})
    until(lambda: worker.answered == 2)
    assert worker.errors


def test_what_waits_at_the_end_is_cancelled_where_it_is_abandoned(make_worker):
    worker, gate = make_worker(), threading.Event()
    running = worker.call(lambda _: gate.wait(10))
    until(running.running)
    waiting, whole = worker.call(lambda _: 1), worker.whole_map()
    assert not worker.stop(abandon=True, timeout=0.01), "it has not ended"
    gate.set()
    assert worker.stop(timeout=10) and running.result(0)
    assert waiting.cancelled() or waiting.result(0) == 1
    assert whole.done()


def test_what_was_never_begun_is_cancelled_at_an_end_that_abandons(make_worker):
    """Whoever waits for it would wait for ever."""
    worker = make_worker(driven(), start=False)
    waiting, whole = worker.call(lambda _: 1), worker.whole_map()
    with pytest.raises(RuntimeError, match="thread"):
        worker.stop(abandon=True)  # told to end before it begins
    worker.start()
    assert worker.stop(timeout=10) and waiting.cancelled() and whole.cancelled()


def test_requests_before_a_drawing_begins_share_it(make_worker):
    worker = make_worker(start=False)
    first, second = worker.whole_map(), worker.whole_map()
    assert first is second
    worker.start()
    assert first.result(10) is None
    third = worker.whole_map()
    assert third is not first and third.result(10) is None


def test_another_session_has_another_number_and_its_frame_stays(make_worker):
    worker = make_worker()
    put_all(worker, messages(0.0, 1.0))
    worker.request({"grid"})
    until(lambda: worker.results is not None)
    assert worker.session_number == 0 and worker.key[0] == 0
    loaded = driven(2.0, {"frame": "elsewhere", SETUP: {"sensor_yaw": 1.0}})
    before = loaded.cell_count
    assert worker.replace_session(loaded).result(10) == 1
    assert worker.results is None and worker.frame == "elsewhere"
    assert worker.key == (1, loaded.revision, loaded.raw_count) and worker.revision > 0
    put_all(worker, messages(5.0, 1.0))  # in odom
    assert worker.call(lambda session: session.cell_count).result(10) == before
    assert worker.stop(timeout=10)
    assert worker.status.drops["pose_unexpected_frame"] == 51
    assert loaded.about[SETUP] == {"sensor_yaw": 1.0}, "nothing new came"


def test_a_map_that_is_cleared_is_empty_and_learns_its_frame_anew(make_worker):
    worker = make_worker(driven(2.0))
    assert worker.frame == "odom" and worker.revision > 0
    team = driven(1.0)
    worker.show(team).result(10)
    assert worker.ask(lambda session: session).result(10) is team
    assert worker.call(lambda session: session).result(10) is not team
    worker.clear().result(10)
    assert worker.revision == 0 and worker.ask(lambda session: session.cell_count).result(10) == 0
    worker.request({"grid"})
    worker.call(lambda _: None).result(10)
    time.sleep(0.1)
    assert worker.results is None and not worker.errors


def test_what_is_said_of_a_map_is_kept_but_for_the_setup_of_what_comes(make_worker):
    session = driven(1.0, {"frame": "odom", "mine": 1, SETUP: {"sensor_yaw": 1.0}})
    worker = make_worker(session, Intake(IntakeSettings(sensor_offset_x=0.5)))
    put_all(worker, messages(5.0, 1.0))
    assert worker.stop(timeout=30)
    assert session.about["mine"] == 1 and session.about[SETUP] == {"sensor_offset_x": 0.5}
    assert session.about["sensor"] == "magnetic_field"


def test_a_pass_ends_when_it_is_told_to(make_worker):
    session = MapSession(SETTINGS)
    worker = make_worker(session, start=False)
    put_all(worker, messages(0.0, 1.0))
    worker.end_pass()
    put_all(worker, messages(1.02, 1.0))
    worker.start()
    assert worker.stop(timeout=30)
    assert session.report()["passes"] == 2 and worker.status.drops == {}


def test_an_equal_free_space_map_is_no_news(make_worker):
    worker = make_worker(start=False)

    def grid(frame="map", width=2, data=(0, 1)):
        return Namespace(
            header=Namespace(frame_id=frame),
            info=Namespace(width=width),
            data=np.array(data, np.int8),
        )

    first = grid()
    assert worker.free is None and worker.set_free(first) and worker.free is first
    assert not worker.set_free(grid()) and worker.free is first
    for other in (grid(frame="odom"), grid(width=3), grid(data=(0, 2))):
        assert worker.set_free(other) and worker.free is other
        assert worker.set_free(first)


def test_times_are_taken_of_what_was_done(make_worker):
    def suggest(session, grid, position, free, frame):
        time.sleep(0.02)
        return position, free, frame

    worker = make_worker(suggest=suggest, published_frame=lambda: "map")
    put_all(worker, messages(0.0, 2.0))
    until(lambda: not worker.queued and worker.position is not None)
    worker.set_free(Namespace(header=Namespace(frame_id="map")))
    worker.request({"suggestions"})
    until(lambda: worker.results is not None)
    assert worker.results.suggestions == (worker.position, worker.free, "map")
    assert worker.results.position == worker.position and worker.published_frame == "map"
    assert worker.results.inducing is None
    assert worker.call(lambda _: worker.timed("snapshot", time.sleep, 0.03)).result(10) is None
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda _: worker.timed("snapshot", lambda: 1 / 0)).result(10)
    assert worker.stop(timeout=10)
    times = worker.status.timings
    assert times["snapshot"]["count"] == 2 and 30.0 <= times["snapshot"]["max_ms"] < 5000.0
    suggested, rendered = (times[name]["max_ms"] / 1e3 for name in ("suggest", "render"))
    assert 0.02 <= suggested < 60.0 and times["render"]["count"] == times["suggest"]["count"] == 1
    # running means begin at 0
    assert worker.suggesting_time == pytest.approx(0.5 * suggested)
    assert worker.drawing_time == pytest.approx(0.2 * rendered)
    assert times["latency"]["count"] == 101 and times["update"]["count"] >= 1
    x, y = worker.position
    assert (x, y) == pytest.approx((1.0, 0.0), abs=1e-6)


def test_a_message_without_a_stamp_counts_from_when_it_was_received(make_worker):
    session = MapSession(SETTINGS)
    worker = make_worker(session, Intake(IntakeSettings(sensor="scalar")), start=False)
    for i in range(21):
        t = 0.05 * i
        worker.put("pose", odometry(t, t, 0.0))
        received = 1_700_000_000 * 10**9 + round(1e9 * t)
        worker.put("measurement", Namespace(data=45e-6 + 1e-7 * i), received)
        worker.put("pose", odometry(t + 0.02, t + 0.02, 0.0))
    worker.start()
    assert worker.stop(timeout=30)
    assert session.raw_count == 21 and worker.status.timings["latency"]["count"] == 21


def test_how_long_a_measurement_took_is_known_when_it_is_in_the_map(make_worker):
    worker = make_worker(start=False)
    for i in range(20):
        worker.put("measurement", magnetic_field(0.05 * i, 45e-6))
    worker.put("pose", odometry(0.0, 0.0, 0.0))
    worker.put("pose", odometry(0.47, 0.2, 0.0))
    worker.start()
    until(lambda: worker.status.used > 0)
    assert worker.status.used == 10 == worker.status.timings["latency"]["count"]
    assert worker.status.waiting == 10 and worker.stop(timeout=10)


def test_the_mean_of_drawing_times_follows_a_fifth_of_the_way(make_worker):
    worker = make_worker(driven(2.0))
    for _ in range(2):
        before = worker.results
        worker.request({"grid"})
        until(lambda b=before: worker.results is not b)
    assert worker.stop(timeout=10)
    times = worker.status.timings["render"]
    low, high = times["p50_ms"] / 1e3, times["max_ms"] / 1e3
    either = [0.2 * a + 0.2 * (b - 0.2 * a) for a, b in ((low, high), (high, low))]
    assert times["count"] == 2
    assert min(abs(worker.drawing_time - mean) for mean in either) < 1e-9


class Survey:
    """Plans in three slices, and then fails for ever."""

    def __init__(self):
        self.asked, self.driven, self.dropped = [], [], []

    def step(self, *arguments):
        self.asked.append(arguments)
        if len(self.asked) > 3:
            raise RuntimeError("no plan")
        return len(self.asked) < 3

    def record_drive(self, x):
        self.driven.append(x)

    def drop(self, error):
        self.dropped.append(str(error))


def test_a_survey_is_told_of_the_drive_and_its_failures_are_logged_once_in_a_while(make_worker):
    survey = Survey()
    session = MapSession(SETTINGS)
    worker = make_worker(session, survey=survey, start=False)
    worker.set_free(Namespace(header=Namespace(frame_id="map")))
    put_all(worker, messages(0.0, 1.0))
    worker.start()
    until(lambda: len(survey.dropped) >= 3)
    asked = survey.asked[3]
    assert asked[:4] == (session, worker.position, worker.free, "odom")
    assert asked[4] == pytest.approx(1_700_000_001.0)
    assert worker.stop(timeout=10)
    assert len(np.vstack(survey.driven)) == 51
    assert set(survey.dropped) == {"no plan"}
    assert worker.status.counts["error_plan"] == len(survey.dropped)
    (text,) = worker.errors
    assert text.startswith("plan failed (1 times so far); the map goes on without it:")
    # the last slice planned nothing, and took no time worth counting
    assert worker.status.timings["plan"]["count"] == 2


def test_the_same_failure_is_logged_again_after_five_seconds(make_worker, monkeypatch):
    now, script = [100.0], [(100.0, "a"), (104.9, "a"), (105.1, "a"), (105.2, "b"), (105.3, "a")]
    clock = Namespace(monotonic=lambda: now[0])
    monkeypatch.setattr("gp_mapping.runtime.failures.time", clock)

    class Failing(Survey):
        def step(self, *arguments):
            if script:
                now[0], what = script.pop(0)
                raise RuntimeError(what)
            return False

    worker = make_worker(survey=Failing())
    until(lambda: not script)
    assert worker.stop(timeout=10)
    assert [text.split()[-1] for text in worker.errors] == ["a", "a", "b", "a"]
    assert "(3 times so far)" in worker.errors[1]


def test_a_status_is_made_anew_twice_a_second(make_worker):
    worker = make_worker()
    first = worker.status
    put_all(worker, messages(0.0, 1.0))
    until(lambda: worker.status is not first)
    assert worker.status.made - first.made > 0.5
    assert worker.status.received["magnetic_field"] == 51


def test_a_drawing_that_left_points_for_later_is_older_than_the_map(make_worker):
    worker = make_worker(draw_budget=1)
    put_all(worker, messages(0.0, 4.0))
    until(lambda: not worker.queued and worker.revision > 0)
    worker.request({"grid"})
    until(lambda: worker.results is not None)
    revision, stale = worker.call(
        lambda session: (session.revision, session.renderer.points_stale)
    ).result(10)
    assert stale and worker.results.revision == revision - 1
    worker.call(lambda session: session.draw_ahead(10**9)).result(10)
    assert worker.stop(timeout=10)


def test_a_team_is_shown_and_drawn_anew_only_where_it_differs(make_worker):
    worker = make_worker(driven(1.0))
    one, two, three = (driven(4.0) for _ in range(3))

    def drawn():
        return worker.ask(lambda s: (s, s.render() and s.renderer.points_drawn)).result(10)

    worker.show(one).result(10)
    shown, whole = drawn()
    assert shown is one and whole > 100 and worker.revision == one.revision
    worker.show(two).result(10)
    assert two.renderer is one.renderer and drawn() == (two, 0)
    worker.show(three, [torch.tensor([[0.5, 0.0]]).double()]).result(10)
    assert three.renderer is one.renderer
    shown, some = drawn()
    assert shown is three and 0 < some < whole
    worker.show(None).result(10)
    assert drawn()[0] not in (one, two, three)


def test_what_a_status_says_is_used_is_placed_and_neither_lost_nor_refused():
    session = MapSession(SETTINGS)
    session.ingest(Samples([[0.0, 0.0]], [[45e-6]], stamp=[0.0]))
    status = Status.gather(session, Intake(IntakeSettings()), 0, {}, {}, (0.25, 3.0))
    assert status.lag == (0.25, 3.0) and status.last_stamp is None and status.used == 0

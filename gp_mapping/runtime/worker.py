"""The one thread that touches the map: takes messages from a bounded queue, gives frozen results.

No rclpy.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future

from gp_mapping.garbage import give_back_pages
from gp_mapping.intake.fixes import ROLE as FIX
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.intake.messages import has_header, stamp_ns
from gp_mapping.intake.topics import feed
from gp_mapping.mapping.drawing.levels import field_limits
from gp_mapping.runtime.drawing_lag import DrawingLag
from gp_mapping.runtime.failures import Failures
from gp_mapping.runtime.origin import Origin
from gp_mapping.runtime.slices import Slices
from gp_mapping.runtime.timing import Durations, Latency
from gp_mapping.runtime.whole_map import WholeMaps
from gp_mapping.runtime.worker_results import Results, Status

__all__ = ["MapWorker"]

# whose times are in Status.timings
STAGES = ("latency", "update", "render", "suggest", "plan", "snapshot", "totals", "pages")
ROLES = ("measurement", "pose", "tf", "tf_static", FIX)
POLL = 0.05  # s; messages are taken in groups: one wake-up for each would cost more than the map
CHUNK = 500  # messages between two checks for other requests
STATUS_PERIOD = 0.5  # s
PAGES_PERIOD = 30.0  # s after which free memory goes back to the system
# names under which messages of other roles than measurements are counted, by reason
_OF_POSES = {
    "queue_full": "pose_queue_full",
    "paused": "pose_paused",
    "abandoned": "pose_abandoned",
}
_OF_FIXES = {"queue_full": "fix_queue_full", "paused": "fix_paused", "abandoned": "fix_abandoned"}


class MapWorker:
    """Runs intake and session in a thread of its own.

    An exception in the worker is counted by stage and logged with its traceback; the thread goes
    on.

    Its methods are for the executor's thread. Those that return a Future may be called from any
    thread; `timed` is for the worker's own.

    Args:
        session: MapSession.
        intake: Intake.
        queue_size: most entries that wait.
        draw_budget: of MapSession.render, for drawings on request.
        suggest: callable(session, grid, position, free message, frame) -> planning.Suggestions.
        survey: runtime.surveying.survey.Survey, which plans in slices between messages, or None.
        published_frame: returns the frame in which the map is published, which settings may name
            otherwise than that of the poses; None: that of the poses. Places and free-space maps
            are compared with it.
        on_result: called in the worker's thread after a request was processed, by new Results or by
            an error.
        on_error: called with a text for the log.

    Attributes:
        session_number: of the session; a loaded map is another one.
        revision: of the map that is shown; 0 while nothing can be drawn.
        results: the newest Results, or None.
        answered: number of requests for Results that were carried out, or have failed.
        status: the newest Status.
        enqueued: measurements that were put and not dropped before their turn.
        suggesting_time: of suggestions, running mean, s.
        drawing_time: of a drawing, running mean, s.
    """

    def __init__(
        self,
        session,
        intake,
        *,
        queue_size: int,
        draw_budget: int | None = None,
        suggest=None,
        survey=None,
        published_frame: Callable[[], str] | None = None,
        on_result=lambda: None,
        on_error=print,
    ):
        self._session, self._intake = session, intake
        self._queue: deque = deque()
        self._soon: deque = deque()  # calls that do not wait for the queue
        self._queue_size, self._draw_budget = queue_size, draw_budget
        self._suggest, self._on_result = suggest, on_result
        self._survey, self._planning = survey, False
        self._published_frame = published_frame
        self._wake, self._lock = threading.Event(), threading.Lock()
        # held by callers that use the session after the thread has ended, and by its last step
        self._after = threading.RLock()
        self._wanted: set[str] = set()
        # ended: the thread takes no more entries from the queue
        self._stopping = self._abandon = self._ended = False
        self._finishes = True  # the thread itself does what the map has put off
        self._slices = Slices(lambda: self._stopping and self._abandon)

        self._counts: Counter = Counter()
        self.enqueued = 0
        self._failures = Failures(self._counts, on_error)
        self._timings = {name: Durations() for name in STAGES}
        self._latency = Latency(self._timings["latency"])
        self._position: tuple[float, float] | None = None  # of the newest sample, m
        self._free = None
        # a session of several robots' maps, which is shown in place of this robot's
        self._team = None
        self._wholes = WholeMaps()

        self.session_number = 0
        self.suggesting_time = 0.0
        # a mean: one full redraw among small ones must not slow the pace for long
        self.drawing_time = 0.0
        self._origin = Origin(intake)
        self._origin.expect(session)
        self.revision = self._drawable_revision()
        self.results: Results | None = None
        self.answered = 0
        self._lag, self._gave_back = DrawingLag(), time.monotonic()
        self.status = self._make_status()
        self._thread = threading.Thread(target=self._run, name="map", daemon=True)

    # ---- called by the executor's thread ----

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(
        self, role: str, message, received_ns: int | None = None, posed: int | None = None
    ) -> bool:
        """Queue a message.

        Args:
            role: of its input: measurement, pose, tf, tf_static or fix.
            message: as it was received.
            received_ns: the node's time, for a message without a stamp; else None.
            posed: as in Intake.add_measurement.

        Returns:
            False, and the message is counted, where the queue is full or the thread has ended.
        """
        with self._lock:
            refused = "abandoned" if self._ended else "queue_full" if self.full else ""
            if refused:
                self._counts[_reason(role, refused)] += 1
            else:
                self._queue.append((role, (message, received_ns, posed), time.monotonic()))
                self.enqueued += role == "measurement"
        return not refused

    @property
    def frame(self) -> str:
        """Frame of the map; empty until a pose has named it."""
        return self._intake.frame

    @property
    def published_frame(self) -> str:
        """Frame in which the map is published; empty while it is not known."""
        return self.frame if self._published_frame is None else self._published_frame()

    @property
    def queued(self) -> int:
        """Number of entries that wait."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether the next message would be dropped."""
        return len(self._queue) >= self._queue_size

    def count(self, what: str, n: int = 1, role: str = "measurement") -> None:
        """Count messages that were kept from the queue.

        Args:
            what: the reason, such as paused.
            n: how many messages.
            role: of the messages.
        """
        self._counts[_reason(role, what)] += n

    def call(self, function, soon: bool = False) -> Future:
        """Have the worker call function(session) after all that is queued now.

        After stop() the worker's thread has ended, and the function runs at once, in this thread.

        Args:
            function: what is called.
            soon: before what is queued, which may be minutes of work on a busy machine.

        Returns:
            The Future of its result; a call that is cancelled before it has begun is left out.
        """
        future: Future = Future()
        with self._lock:
            ended = self._ended
            if not ended:
                line = self._soon if soon else self._queue
                line.append(("call", (function, future), time.monotonic()))
        if ended:
            with self._after:
                self._command("call", (function, future))
        self._wake.set()
        return future

    def ask(self, function, soon: bool = False) -> Future:
        """As `call`, with the session that is shown: the team's, if any. It must not be changed."""
        return self.call(lambda _: function(self._shown), soon)

    def show(self, session, touched=()) -> Future:
        """Show a session of several robots' maps from now on.

        Args:
            session: it belongs to the worker's thread from now on; None: show this robot's own.
            touched: arrays of places (K, 2) m along which it differs from what was shown; only
                there it is drawn anew.
        """

        def put(_):
            """Draw this session from now on, in the worker's thread."""
            # the drawing goes on where the map has not changed
            if session is not None and self._team is not None:
                session.shown.renderer = self._team.renderer
                for places in touched:
                    session.renderer.touch(places, session.cell_count)
            self._team = session

        return self.call(put)

    @property
    def _shown(self):
        """The session that is drawn, queried and planned with."""
        return self._session if self._team is None else self._team

    def replace_session(self, session) -> Future:
        """Go on with another session, which belongs to the worker's thread from now on.

        Returns:
            The Future of its number.
        """

        def put(_):
            """Go on with the other session, in the worker's thread."""
            self._session, self.results, self._team = session, None, None
            self.session_number += 1
            self._origin.expect(session)
            return self.session_number

        return self.call(put)

    def clear(self) -> Future:
        """Empty the map, and forget its frames."""

        def empty(session):
            """Empty the session, in the worker's thread."""
            session.clear()
            self._team = None
            self._intake.forget_frames()

        return self.call(empty)

    def timed(self, stage: str, function, *arguments):
        """Call a function, in the worker's thread, and record the time it takes.

        Args:
            stage: under which name its time is reported.
            function: what is called.
            arguments: with which.

        Returns:
            What it returns.
        """
        start = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self._timings[stage].add(time.monotonic() - start)

    def whole_map(self) -> Future:
        """Draw all that is known, in slices between which the map absorbs new measurements.

        Requests that come before the drawing begins share it.

        Returns:
            The Future of (FieldGrid, Limits), or of None for an empty map.
        """
        with self._lock:
            future, ended = self._wholes.request(), self._ended
        if ended:
            with self._after:
                self._wholes.finish(self._shown)
        self._wake.set()
        return future

    @property
    def key(self) -> tuple[int, int, int]:
        """Identifies the map's content: number of the session, revision, raw count."""
        return self.session_number, self._session.revision, self._session.raw_count

    @property
    def position(self) -> tuple[float, float] | None:
        """Newest position of the robot, metres; None before the first sample."""
        return self._position

    @property
    def free(self):
        """The newest free-space map, as it was received."""
        return self._free

    def end_pass(self) -> None:
        """Begin a new pass with the next measurement, after a gap that stamps do not show."""
        self._queue.append(("break", None, time.monotonic()))

    def set_free(self, message) -> bool:
        """Take the newest free-space map (nav_msgs/OccupancyGrid).

        An equal one is ignored: the one that is here has been read already.

        Returns:
            Whether it differs from the one before.
        """
        before = self._free
        if (
            before is not None
            and before.header.frame_id == message.header.frame_id
            and before.info == message.info
            and bytes(before.data) == bytes(message.data)
        ):
            return False
        self._free = message
        return True

    def request(self, wanted) -> None:
        """Request Results, with 'markers' or 'suggestions' where `wanted` names them."""
        with self._lock:
            self._wanted |= set(wanted)
        self._wake.set()

    def stop(
        self, abandon: bool = False, timeout: float | None = None, finish: bool = True
    ) -> bool:
        """Process the queue, place what can be placed, finish the map, and end the thread.

        Args:
            abandon: drop what is queued, and count it; do no search that can be left out.
            timeout: seconds to wait for the end; None: without bound.
            finish: do what the map has put off, too; False: `finish` does it.

        Returns:
            Whether the thread has ended.
        """
        self._abandon |= abandon
        self._finishes = finish
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # ---- the worker's thread ----

    def _run(self) -> None:
        """Take messages, draw what is requested, plan: in turns, until the end."""
        while not (self._stopping and (self._abandon or not self._queue)):
            hurried = self._stopping or self._wholes or self._planning or len(self._queue) >= CHUNK
            self._wake.wait(0.0 if hurried else POLL)
            self._wake.clear()
            while self._soon:
                self._command(*self._soon.popleft()[:2])
            self._failures.guard("update", self._absorb)

            with self._lock:
                wanted, self._wanted = self._wanted, set()
            if wanted:
                self._failures.guard("render", self._draw, wanted, self._draw_budget)
                self.answered += 1
                self._on_result()  # also where it failed: the node may ask again

            if self._wholes:
                self._failures.guard("render", self._wholes.draw_slice, self._shown)
            if self._survey is not None and not self._stopping:
                self._failures.guard("plan", self._plan)
            if time.monotonic() - self.status.made > STATUS_PERIOD:
                self._failures.guard("status", lambda: setattr(self, "status", self._make_status()))
            if time.monotonic() - self._gave_back > PAGES_PERIOD:
                self._failures.guard("pages", self.timed, "pages", give_back_pages)
                self._gave_back = time.monotonic()

        # callers from now on run their functions themselves, after this
        with self._after:
            self._failures.guard("finish", self._end)
        if self._finishes:
            self.finish(lambda: self._abandon)

    def _drawable_revision(self) -> int:
        """Revision of the map; 0 while it holds nothing that could be drawn."""
        return self._shown.revision if self._shown.cell_count else 0

    def _absorb(self) -> None:
        """Process at most CHUNK entries of the queue.

        Samples go to the map in as few calls as passes allow.
        """
        try:
            for _ in range(min(CHUNK, len(self._queue))):
                kind, content, arrived = self._queue.popleft()
                if kind in ROLES:
                    message, received, posed = content
                    if kind == "measurement":
                        stamp = stamp_ns(message) if has_header(message) else received
                        stamp -= self._intake.stamp_offset  # of the robot's clock
                        self._latency.add_arrival(1e-9 * stamp, arrived)
                    feed(self._intake, kind, message, received, posed)
                else:
                    self._ingest()  # a command comes after the messages before it
                    self._command(kind, content)
        finally:
            self._ingest()

    def _command(self, kind: str, content) -> None:
        """Carry out an entry that is no message: the end of a pass, or a function to call."""
        if kind == "break":
            self._session.break_pass()
        else:
            function, future = content
            try:
                # who has cancelled it before it has begun does not want it any more
                if future.set_running_or_notify_cancel():
                    self._origin.note_measured(self._session)
                    future.set_result(function(self._session))
            except BaseException as error:
                future.set_exception(error)
            self.revision = self._drawable_revision()

    def _ingest(self, finish: bool = False) -> None:
        """Give the map all samples that the intake can place; finish: all that it ever will."""
        # the map was in a frame of few messages, and is made again from the same messages
        if self._intake.take_restart():
            self._session.clear()

        start = time.monotonic()
        parts = self._slices.cut(self._intake.batches(finish))
        for samples in ingest_batches(parts, self._session, self._intake.drops, self._lost):
            self.revision = self._drawable_revision()
            self._origin.add_samples(self._session)

            now = time.monotonic()
            self._timings["update"].add(now - start)
            self._position = float(samples.x[-1, 0]), float(samples.x[-1, 1])
            if self._survey is not None:
                self._survey.record_drive(samples.x.numpy())

            newest = math.inf if samples.stamp is None else float(samples.stamp[-1])
            self._latency.reach(newest, now)
            start = time.monotonic()

        self._session.fixes.add(self._intake.fixes.take(finish))

    def _lost(self, error: BaseException, count: int) -> None:
        """Count and log samples lost by an error in the map; the rest of their batch goes on."""
        self._counts["lost_by_error"] += count
        self._failures.record("update")

    def draw_last(self, wanted, whole: bool = True) -> None:
        """Make Results of the finished map, after stop().

        Args:
            wanted: as of `request`.
            whole: draw all that is not drawn yet.
        """
        budget = None if whole else self._draw_budget
        self.call(lambda _: self._draw(set(wanted), budget)).result()
        self.answered += 1

    def _draw(self, wanted: set[str], budget: int | None) -> None:
        """Make new Results of what is shown."""
        start, session = time.monotonic(), self._shown
        if not session.cell_count:
            return  # cleared since the request

        grid = session.render(budget)
        middle = time.monotonic()
        self._timings["render"].add(middle - start)
        self.drawing_time += 0.2 * (middle - start - self.drawing_time)
        self._lag.look(session, grid, middle)

        parts = {}
        if "markers" in wanted:
            parts = {
                name: getattr(session, name).detach().cpu().clone()
                for name in ("inducing", "memory", "path", "path_starts")
            }
        if "suggestions" in wanted and self._suggest is not None:
            parts["suggestions"] = self._suggest(
                session, grid, self._position, self._free, self.published_frame
            )
            took = time.monotonic() - middle
            self._timings["suggest"].add(took)
            self.suggesting_time += 0.5 * (took - self.suggesting_time)

        # a drawing that left points for later is older than this revision: the next tick requests
        # another one
        revision = session.revision - (1 if session.renderer.points_stale else 0)
        self.results = Results(revision, grid, field_limits(grid), position=self._position, **parts)

    def _plan(self) -> None:
        """Plan a slice, where there is something to plan."""
        start, self._planning = time.monotonic(), False
        try:
            self._planning = self._survey.step(
                self._shown,
                self._position,
                self._free,
                self.published_frame,
                self._intake.last_stamp,
            )
        except Exception as error:
            self._survey.drop(error)
            raise
        if self._planning:
            self._timings["plan"].add(time.monotonic() - start)

    def finish(self, late: Callable[[], bool]) -> None:
        """Take in what the map holds open or has put off, with the last searches, in this thread.

        It is for any thread after the worker has stopped. What is not done stays put off.

        Args:
            late: asked between steps of some hundredths of a second; True ends it.
        """
        with self._after:
            self._failures.guard("finish", self._finish, late)

    def _finish(self, late: Callable[[], bool]) -> None:
        ingest_remaining(self._session, self._intake.drops, late)
        self._note_end()

    def _end(self) -> None:
        """End: place everything that can still be placed, and count everything else."""
        # under the lock: whatever is put or requested later sees that the thread has ended
        with self._lock:
            self._ended = True
            remaining, wholes = [*self._soon, *self._queue], self._wholes.take_all()
            self._soon.clear()
            self._queue.clear()
            self._counts.update(
                _reason(kind, "abandoned") for kind, *_ in remaining if kind in ROLES
            )
            self.enqueued -= sum(kind == "measurement" for kind, *_ in remaining)

        for kind, content, _ in remaining:
            if kind == "call":
                content[1].cancel()
        for whole in wholes:
            whole.future.cancel()

        self._ingest(finish=True)
        self._note_end()

    def _note_end(self) -> None:
        """Note what the map is at the end."""
        self._origin.note_measured(self._session)
        self.revision = self._drawable_revision()
        self.status = self._make_status()

    def _make_status(self) -> Status:
        """The status now."""
        return Status.gather(
            self._session,
            self._intake,
            len(self._queue),
            self._counts,
            self._timings,
            self._lag.state(time.monotonic()),
            self._slices.abandoned,
        )


def _reason(role: str, why: str) -> str:
    """The name under which a message is counted: each kind of message has its own."""
    return why if role == "measurement" else (_OF_FIXES if role == FIX else _OF_POSES)[why]

"""The one thread that touches the map: messages in through a bounded queue, frozen results out. No rclpy."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from gp_mapping.intake.messages import has_header, stamp_ns
from gp_mapping.intake.topics import feed
from gp_mapping.mapping.drawing.levels import field_limits
from gp_mapping.runtime.timing import Durations

__all__ = ["MapWorker", "Results", "Status"]

ROLES = ("measurement", "pose", "tf", "tf_static")
POLL = 0.05  # s; messages are taken in groups: one wake-up for each would cost more than the map
CHUNK = 500  # messages between two looks at what else is wanted
STATUS_PERIOD = 0.5  # s


@dataclass(frozen=True)
class Results:
    """What was asked for, as it was at one revision of the map. Tensors are copies that nobody changes any more."""

    revision: int
    grid: object  # FieldGrid
    limits: object = None  # Limits; None where nothing is known
    inducing: object = None  # (M, 2)
    memory: object = None  # (m, 2)
    path: object = None  # (K, 2)
    path_starts: object = None  # (K,) bool
    suggestions: object = None  # planning.Suggestions
    position: tuple[float, float] | None = None  # newest position of the robot


@dataclass(frozen=True)
class Status:
    """Plain numbers about the worker, for diagnostics; `made` is time.monotonic()."""

    made: float
    report: dict
    received: dict[str, int]
    drops: dict[str, int]
    explanations: list[str]
    warnings: list[str]
    waiting: int
    last_stamp: float | None
    queue: int
    counts: dict[str, int]  # queue_full, paused, errors by stage
    timings: dict[str, dict[str, float]] = field(default_factory=dict)


class MapWorker:
    """Runs intake and session in a thread of its own.

    session: MapSession.  intake: Intake.
    suggest: callable(session, grid, position, free message, frame) -> planning.Suggestions.
    on_result: called in the worker's thread when a request was worked on (new Results, or an error).
    on_error: called with a text for the log.
    An exception in the worker is counted by stage and logged with its traceback; the thread lives on.
    """

    def __init__(self, session, intake, *, queue_size: int, draw_budget: int | None = None, suggest=None,
                 on_result=lambda: None, on_error=print):
        self._session, self._intake = session, intake
        self._queue: deque = deque()
        self._queue_size, self._draw_budget = queue_size, draw_budget
        self._suggest, self._on_result, self._on_error = suggest, on_result, on_error
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._wanted: set[str] = set()
        self._stopping = self._abandon = False
        self._counts: Counter = Counter()
        self._arrivals: deque[tuple[float, float]] = deque(maxlen=100_000)  # of measurements: stamp, monotonic time
        self._timings = {name: Durations() for name in ("latency", "update", "render", "suggest")}
        self._last_error = ("", 0.0)
        self._position = None
        self._free = None
        self.drawing_time = 0.0  # s, running mean: one full redraw among small ones must not slow the pace for long
        self.revision = self._drawable_revision()
        self.results: Results | None = None
        self.status = self._make_status()
        self._thread = threading.Thread(target=self._run, name="map", daemon=True)

    # ---- called by the executor's thread -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, role: str, message, received_ns: int | None = None) -> bool:
        """Queue a message by the role of its input; False, and counted, where the queue is full.

        role: measurement, pose, tf, tf_static.  received_ns: the node's time, for messages without a stamp.
        """
        if len(self._queue) >= self._queue_size:
            self._counts["queue_full"] += 1
            return False
        self._queue.append((role, (message, received_ns), time.monotonic()))
        return True

    @property
    def frame(self) -> str:
        """Frame of the map; empty until a pose has said it."""
        return self._intake.frame

    @property
    def queued(self) -> int:
        """Entries that wait."""
        return len(self._queue)

    def count(self, what: str, n: int = 1) -> None:
        """Count something that kept a message from the queue (the node is paused, say)."""
        self._counts[what] += n

    def call(self, function) -> Future:
        """Have function(session) run by the worker after all that is queued now; the Future carries its result.

        After stop() there is no other thread any more, and it runs at once.
        """
        future: Future = Future()
        if self._stopping and not self._thread.is_alive():
            self._command("call", (function, future))
        else:
            self._queue.append(("call", (function, future), time.monotonic()))
            self._wake.set()
        return future

    def replace_session(self, make) -> Future:
        """Go on with the session that make() returns; where it raises, the Future does, and the map is as it was."""
        def put(_):
            self._session, self.results = make(), None
            return self._session
        return self.call(put)

    def suggestions(self, session, grid):
        """In a call(): the places to measure next, as the node's settings choose them; None where nothing chooses."""
        if self._suggest is None or not session.cell_count:
            return None
        return self._suggest(session, grid, self._position, self._free, self.frame)

    def end_pass(self) -> None:
        """A gap that stamps do not show (pause): the next measurement begins a new pass."""
        self._queue.append(("break", None, time.monotonic()))

    def set_free(self, message) -> None:
        """The newest free-space map (nav_msgs/OccupancyGrid)."""
        self._free = message

    def request(self, wanted) -> None:
        """Ask for Results with 'grid', and with 'markers' or 'suggestions' where named."""
        with self._lock:
            self._wanted |= set(wanted)
        self._wake.set()

    def stop(self, abandon: bool = False, timeout: float | None = None) -> bool:
        """Work off the queue (abandon: drop and count it), place what is left, flush the map; True when it is done."""
        self._abandon |= abandon
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # ---- the worker's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not (self._stopping and (self._abandon or not self._queue)):
            self._wake.wait(0.0 if self._stopping or len(self._queue) >= CHUNK else POLL)
            self._wake.clear()
            self._guard("update", self._absorb)
            with self._lock:
                wanted, self._wanted = self._wanted, set()
            if wanted:
                self._guard("render", self._draw, wanted, self._draw_budget)
                self._on_result()  # also where it failed: the node may ask again
            if time.monotonic() - self.status.made > STATUS_PERIOD:
                self._guard("status", self._refresh_status)
        self._guard("finish", self._finish)

    def _drawable_revision(self) -> int:
        """Revision of the map; 0 while it holds nothing that could be drawn."""
        return self._session.revision if self._session.cell_count else 0

    def _guard(self, stage: str, function, *arguments) -> None:
        """Run it; an exception is counted under its stage and logged, the same one every 5 s at most."""
        try:
            function(*arguments)
        except Exception:  # whatever it is, a robot's map must go on; nothing is hidden, it is logged and counted
            self._counts[f"error_{stage}"] += 1
            text, now = traceback.format_exc(), time.monotonic()
            if text != self._last_error[0] or now - self._last_error[1] > 5.0:
                self._last_error = (text, now)
                self._on_error(f"{stage} failed ({self._counts[f'error_{stage}']} times so far); the map goes on "
                               f"without it:\n{text}")

    def _absorb(self) -> None:
        """At most CHUNK entries of the queue; samples go to the map in as few calls as passes allow."""
        try:
            for _ in range(min(CHUNK, len(self._queue))):
                kind, content, arrived = self._queue.popleft()
                if kind in ROLES:
                    message, received = content
                    if kind == "measurement":
                        stamp = stamp_ns(message) if has_header(message) else received
                        self._arrivals.append((1e-9 * stamp, arrived))
                    feed(self._intake, kind, message, received)
                else:
                    self._ingest()
                    self._command(kind, content)
        finally:
            self._ingest()

    def _command(self, kind: str, content) -> None:
        if kind == "break":
            self._session.break_pass()
        else:
            function, future = content
            try:
                future.set_result(function(self._session))
            except BaseException as error:
                future.set_exception(error)
            self.revision = self._drawable_revision()

    def _ingest(self, finish: bool = False) -> None:
        for new_pass, samples in self._intake.batches(finish):
            start = time.monotonic()
            if new_pass:
                self._session.break_pass()
            try:
                self._session.ingest(samples)
            except Exception:
                self._counts["lost_by_error"] += len(samples)
                raise
            finally:
                self.revision = self._drawable_revision()
            now = time.monotonic()
            self._timings["update"].add(now - start)
            self._position = tuple(samples.x[-1].tolist())
            newest = float(samples.stamp[-1])
            while self._arrivals and (self._arrivals[0][0] <= newest + 1e-6 or now - self._arrivals[0][1] > 60.0):
                stamp, arrived = self._arrivals.popleft()
                if stamp <= newest + 1e-6:
                    self._timings["latency"].add(now - arrived)

    def draw_last(self, wanted) -> None:
        """After stop(): Results of the finished map."""
        self.call(lambda _: self._draw(set(wanted), None)).result()

    def _draw(self, wanted: set[str], budget: int | None) -> None:
        start, session = time.monotonic(), self._session
        if not session.cell_count:
            return  # cleared since it was asked for
        grid = session.render(budget)
        middle = time.monotonic()
        self._timings["render"].add(middle - start)
        self.drawing_time += 0.2 * (middle - start - self.drawing_time)
        parts = {}
        if "markers" in wanted:
            parts = {name: getattr(session, name).detach().cpu().clone()
                     for name in ("inducing", "memory", "path", "path_starts")}
        if "suggestions" in wanted and self._suggest is not None:
            parts["suggestions"] = self.suggestions(session, grid)
            self._timings["suggest"].add(time.monotonic() - middle)
        # a drawing that left points for later is not yet of this revision: the next tick asks for another
        revision = session.revision - (1 if session.renderer.points_stale else 0)
        self.results = Results(revision, grid, field_limits(grid), position=self._position, **parts)

    def _finish(self) -> None:
        """The end: everything that can still be placed is in the map, everything else is counted."""
        self._counts["abandoned"] += sum(kind in ROLES for kind, *_ in self._queue)
        for kind, content, _ in self._queue:
            if kind == "call":
                content[1].cancel()
        self._queue.clear()
        self._ingest(finish=True)
        self._session.flush()
        self.revision = self._drawable_revision()
        self.status = self._make_status()

    def _refresh_status(self) -> None:
        self.status = self._make_status()

    def _make_status(self) -> Status:
        intake = self._intake
        return Status(made=time.monotonic(), report=dict(self._session.report()), received=dict(intake.received),
                      drops=intake.drops.as_dict(), explanations=intake.drops.explain(), warnings=list(intake.warnings),
                      waiting=intake.waiting, last_stamp=intake.last_stamp, queue=len(self._queue),
                      counts={name: n for name, n in list(self._counts.items()) if n},
                      timings={name: timing.summary() for name, timing in self._timings.items()})

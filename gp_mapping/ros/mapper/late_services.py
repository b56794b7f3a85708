"""Services whose callbacks never wait: long work is a Future, answered when it is done.

rclpy answers a request when its callback returns. A coroutine may suspend, but rclpy then holds the
callback's group, resumes it in each turn of the executor, and cannot answer it once the executor
has stopped. So a callback here may return a promise in place of a response. The header of the
request is kept, and the response is sent from the executor's thread, woken by a guard condition, or
by refuse_waiting() and close(), which leave no call without an answer.

Destroying a service loses the requests that are on the way to it. So services live as long as the
node: while it is not configured, or not active, calls are refused with that reason.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import InvalidHandle
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy

from gp_mapping.runtime.file_thread import QueueFullError

__all__ = ["LateServices", "PendingAnswer"]

# answers of one service sent at once: a client keeps 10 unread ones and loses the rest
BURST = 8
PAUSE = 0.4  # s in which a client is expected to read them
LAST_PAUSE = 0.1  # s, the same at the end, when the node waits for it
# s for which calls that keep coming are answered at the end: no client may keep the node alive
LAST_CALLS = 2.0


class PendingAnswer(NamedTuple):
    """The rest of an answer that is not known yet.

    Attributes:
        future: The work.
        finish: Fills in the response from (response, result), in the executor's thread.
    """

    future: Future
    finish: Callable[[object, object], None]


class _Entry(NamedTuple):
    """One service.

    Attributes:
        name: Of the service, without ~/.
        start: Fills in the response to (request, response), or returns a PendingAnswer.
        refuse: Fills in a response from (response, error).
        send: Sends (response, header): the service's own send_response.
    """

    name: str
    start: Callable[[object, object], PendingAnswer | None]
    refuse: Callable[[object, BaseException], None]
    send: Callable[[object, object], None]


@dataclass(eq=False)
class _Promise:
    """Stands where rclpy expects a response; header is that of the request."""

    entry: _Entry
    response: object
    later: PendingAnswer
    header: object = None


class LateServices:
    """A node's services in a callback group of their own.

    Args:
        node: The node that offers the services.
        size: Number of calls that may wait for an answer; more are refused at once.
    """

    def __init__(self, node, size: int):
        self._node, self._size, self._on_refused = node, size, lambda n: None
        self._group = ReentrantCallbackGroup()
        # by name: the entry, the ROS service, and whether close() destroys it
        self._services: dict[str, tuple[_Entry, object, bool]] = {}
        self._waiting: list[_Promise] = []
        self._ending: BaseException | None = None

        # by name of the service: monotonic s at which its newest BURST answers were sent
        self._sent: dict[str, deque[float]] = {}
        # answers held back until their client has read earlier ones
        self._outgoing: deque[tuple[_Entry, object, object]] = deque()
        self._pace = node.create_timer(
            PAUSE / BURST,
            self._send_outgoing,
            callback_group=self._group,
            clock=Clock(clock_type=ClockType.STEADY_TIME),
        )
        self._pace.cancel()

        self._guard = node.create_guard_condition(self._answer_done, callback_group=self._group)
        # requests wait in the middleware while the executor is busy: rclpy's default of 10 is few
        self._qos = QoSProfile(
            history=HistoryPolicy.KEEP_LAST,
            depth=max(10, size),
            reliability=ReliabilityPolicy.RELIABLE,
        )

    @property
    def size(self) -> int:
        """Number of calls that may wait for an answer."""
        return self._size

    @property
    def waiting(self) -> int:
        """Number of calls that have no answer yet."""
        return len(self._waiting)

    def begin(self, on_refused: Callable[[int], None] = lambda n: None) -> None:
        """Accept calls, also after refuse() or refuse_waiting().

        Args:
            on_refused: Called with a number of calls that were refused because too many wait.
        """
        self._ending, self._on_refused = None, on_refused

    def add(self, kind: type, name: str, start, refuse) -> None:
        """Offer the service ~/name, or serve an existing one in this way from now on.

        Args:
            kind: The ROS service type.
            name: Of the service, without ~/.
            start: As in _Entry.
            refuse: As in _Entry.
        """
        existing = self._services.get(name)
        if existing is not None:
            self._serve(existing[0]._replace(start=start, refuse=refuse), existing[1], own=True)
            return

        service = self._node.create_service(
            kind, f"~/{name}", lambda *_: None, qos_profile=self._qos, callback_group=self._group
        )
        self._serve(_Entry(name, start, refuse, service.send_response), service, own=True)

    def adopt(self, name: str, service, start, refuse) -> None:
        """Serve a service that exists already in this way; close() leaves it to its owner.

        Args:
            name: As in add.
            service: The rclpy service.
            start: As in _Entry.
            refuse: As in add.
        """
        self._serve(_Entry(name, start, refuse, service.send_response), service, own=False)

    def _serve(self, entry: _Entry, service, own: bool) -> None:
        """Replace the callback of a service and the function by which rclpy sends its answer."""
        service.callback = partial(self._on_request, entry)
        service.send_response = partial(self._send, entry)  # called with what the callback returned
        self._services[entry.name] = entry, service, own

    def refuse(self, reason: BaseException) -> None:
        """Refuse new calls with this reason; calls that wait go on."""
        self._ending = reason

    def refuse_waiting(self, reason: BaseException) -> None:
        """Answer all waiting calls: finished ones with their result, others with the reason.

        New calls are refused with the reason until begin().
        """
        self._ending = reason
        self._answer_done()
        for promise in self._waiting:
            self._refuse(promise.entry, promise.response, promise.header, reason)
        self._waiting = []
        self._refuse_untaken(reason)

    def close(self, reason: BaseException) -> None:
        """Answer all calls at once and remove the services."""
        if not self._services:
            return
        self.refuse_waiting(reason)

        end = time.monotonic() + LAST_CALLS
        self._send_outgoing(everything=True)
        while self._refuse_untaken(reason) and time.monotonic() < end:
            self._send_outgoing(everything=True)

        for entry, service, own in self._services.values():
            # calls that came while others were answered
            self._refuse_untaken_of(entry, service, reason)
            self._send_outgoing(everything=True)
            if own:
                self._node.destroy_service(service)

        self._services = {}
        self._node.destroy_timer(self._pace)
        self._node.destroy_guard_condition(self._guard)

    def _refuse_untaken(self, reason: BaseException) -> int:
        """Refuse the calls that the middleware holds for all services; returns their number."""
        return sum(
            self._refuse_untaken_of(entry, service, reason)
            for entry, service, _ in self._services.values()
        )

    def _refuse_untaken_of(self, entry: _Entry, service, reason: BaseException) -> int:
        """Refuse the calls of one service that the executor has not taken; returns their number."""
        for n in range(10 * self._size):  # bounded: a client may send faster than this refuses
            try:
                with service.handle:
                    request, header = service.handle.service_take_request(service.srv_type.Request)
            except (rclpy_implementation.RCLError, InvalidHandle):  # ROS was shut down meanwhile
                return n
            if header is None:
                return n
            self._refuse(entry, service.srv_type.Response(), header, reason)
        return 10 * self._size

    def _on_request(self, entry: _Entry, request, response):
        """The callback of a service, in the executor: a response, or a promise of one."""
        if self._ending is not None:
            entry.refuse(response, self._ending)
            return response

        if len(self._waiting) >= self._size:
            self._on_refused(1)
            entry.refuse(
                response,
                QueueFullError(f"{self._size} calls wait for an answer already; ask again later"),
            )
            return response

        try:
            later = entry.start(request, response)
        except Exception as error:  # whatever it is, the caller gets the reason
            entry.refuse(response, error)
            return response
        return response if later is None else _Promise(entry, response, later)

    def _send(self, entry: _Entry, answer, header) -> None:
        """In place of Service.send_response: send a response, or note whose promise this is."""
        if not isinstance(answer, _Promise):
            return self._deliver(entry, answer, header)
        answer.header = header
        self._waiting.append(answer)
        answer.later.future.add_done_callback(self._on_done)

    def _on_done(self, _) -> None:
        """Wake the executor; called in the thread that did the work."""
        with suppress(InvalidHandle):  # closed at this moment, and close() answers all
            self._guard.trigger()

    def _answer_done(self) -> None:
        """Answer the calls whose work is done."""
        done = [promise for promise in self._waiting if promise.later.future.done()]
        self._waiting = [promise for promise in self._waiting if promise not in done]

        for promise in done:
            try:
                promise.later.finish(promise.response, promise.later.future.result())
            except Exception as error:  # of the work, or of filling in its response
                self._refuse(promise.entry, promise.response, promise.header, error)
            else:
                self._deliver(promise.entry, promise.response, promise.header)

    def _refuse(self, entry: _Entry, response, header, error: BaseException) -> None:
        entry.refuse(response, error)
        self._deliver(entry, response, header)

    def _deliver(self, entry: _Entry, response, header) -> None:
        """Send an answer, or hold it back while its client has BURST unread ones."""
        self._outgoing.append((entry, response, header))
        self._send_outgoing()

    def _send_outgoing(self, everything: bool = False) -> None:
        """Send answers that were held back, at most BURST of each service in PAUSE.

        Args:
            everything: Send all of them, with the shorter LAST_PAUSE, sleeping in between.
        """
        kept: deque[tuple[_Entry, object, object]] = deque()
        while self._outgoing:
            entry, response, header = self._outgoing.popleft()
            sent = self._sent.setdefault(entry.name, deque(maxlen=BURST))
            now = time.monotonic()
            pause = LAST_PAUSE if everything else PAUSE
            if len(sent) == BURST and now - sent[0] < pause:
                if not everything:
                    kept.append((entry, response, header))
                    continue
                time.sleep(pause - (now - sent[0]))
            sent.append(time.monotonic())
            self._put(entry, response, header)

        self._outgoing = kept
        if kept and not everything:
            self._pace.reset()
        else:
            self._pace.cancel()

    def _put(self, entry: _Entry, response, header) -> None:
        """Send one answer; a client that has gone is only worth a warning."""
        try:
            entry.send(response, header)
        except (rclpy_implementation.RCLError, InvalidHandle) as error:  # the client has gone
            self._node.get_logger().warning(
                f"the answer of ~/{entry.name} could not be sent: {str(error).splitlines()[0]}"
            )

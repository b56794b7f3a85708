"""Services whose callbacks never wait: what takes long is a Future, and its answer is sent when it is done.

rclpy answers a request when its callback returns. A coroutine may suspend, but rclpy then holds the callback's group,
resumes it in each turn of the executor, and cannot answer it once the executor has stopped. So a callback here may
return a promise in place of a response; the header of the request is kept, and the response goes out from the
executor's thread, woken by a guard condition, or from rest() and close(), which leave nobody without an answer.

A service that goes takes with it what is on the way to it. So services stay as long as the node: while it is not
configured, or not active, who calls is told so.
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

from gp_mapping.runtime.file_thread import TooBusy

__all__ = ["LateServices", "Later"]

BURST = 8  # answers of one service at once: a client keeps 10 that it has not looked at, and loses the rest
PAUSE = 0.4  # s in which it looks at them
LAST_PAUSE = 0.1  # s, at the end, for which somebody waits
LAST_CALLS = 2.0  # s for which calls that keep coming are answered at the end: nobody may keep the node alive by asking


class Later(NamedTuple):
    """The rest of an answer. finish(response, result) fills the response in; it runs in the executor's thread."""

    future: Future
    finish: Callable[[object, object], None]


class _Entry(NamedTuple):
    """One service. start(request, response) fills the response in, or returns a Later. refuse(response, error)."""

    name: str
    start: Callable[[object, object], Later | None]
    refuse: Callable[[object, BaseException], None]
    send: Callable[[object, object], None]


@dataclass(eq=False)
class _Promise:
    """Stands where rclpy expects a response."""

    entry: _Entry
    response: object
    later: Later
    header: object = None


class LateServices:
    """A node's services in a callback group of their own. At most `size` calls wait; more are refused at once."""

    def __init__(self, node, size: int):
        self._node, self._size, self._on_refused = node, size, lambda n: None
        self._group = ReentrantCallbackGroup()
        self._services: dict[
            str, tuple[_Entry, object, bool]
        ] = {}  # with whether it is destroyed here
        self._waiting: list[_Promise] = []
        self._ending: BaseException | None = None
        self._sent: dict[
            str, deque[float]
        ] = {}  # of each service, when its newest BURST answers went out
        self._outgoing: deque[tuple[_Entry, object, object]] = (
            deque()
        )  # answers that wait for their client
        self._pace = node.create_timer(
            PAUSE / BURST,
            self._send_outgoing,
            callback_group=self._group,
            clock=Clock(clock_type=ClockType.STEADY_TIME),
        )
        self._pace.cancel()
        self._guard = node.create_guard_condition(self._answer_done, callback_group=self._group)
        # requests that come while the executor is busy wait in the middleware: rclpy's own 10 are few
        self._qos = QoSProfile(
            history=HistoryPolicy.KEEP_LAST,
            depth=max(10, size),
            reliability=ReliabilityPolicy.RELIABLE,
        )

    @property
    def size(self) -> int:
        """Calls that may wait."""
        return self._size

    @property
    def waiting(self) -> int:
        """Calls that have no answer yet."""
        return len(self._waiting)

    def begin(self, on_refused: Callable[[int], None] = lambda n: None) -> None:
        """Calls are worked on, also after a rest(). on_refused: called with a number when too many wait."""
        self._ending, self._on_refused = None, on_refused

    def add(self, kind: type, name: str, start, refuse) -> None:
        """Offer the service ~/name; one that is there already is served in this way from now on."""
        known = self._services.get(name)
        if known is not None:
            self._serve(known[0]._replace(start=start, refuse=refuse), known[1], own=True)
            return
        service = self._node.create_service(
            kind, f"~/{name}", lambda *_: None, qos_profile=self._qos, callback_group=self._group
        )
        self._serve(_Entry(name, start, refuse, service.send_response), service, own=True)

    def adopt(self, name: str, service, start, refuse) -> None:
        """Serve one that is there already in this way; close() leaves it to its owner."""
        self._serve(_Entry(name, start, refuse, service.send_response), service, own=False)

    def _serve(self, entry: _Entry, service, own: bool) -> None:
        service.callback = partial(self._on_request, entry)
        service.send_response = partial(self._send, entry)  # called with what the callback returned
        self._services[entry.name] = entry, service, own

    def refuse(self, reason: BaseException) -> None:
        """From now on calls are answered by the reason; those that wait go on."""
        self._ending = reason

    def refuse_waiting(self, reason: BaseException) -> None:
        """Answer everybody: what is done by its result, what is not by the reason, and so what comes until begin()."""
        self._ending = reason
        self._answer_done()
        for promise in self._waiting:
            self._refuse(promise.entry, promise.response, promise.header, reason)
        self._waiting = []
        self._come(reason)

    def close(self, reason: BaseException) -> None:
        """The end: everybody is answered, here and now, and the services go."""
        if not self._services:
            return
        self.refuse_waiting(reason)
        end = time.monotonic() + LAST_CALLS
        self._send_outgoing(everything=True)
        while self._come(reason) and time.monotonic() < end:
            self._send_outgoing(everything=True)

        for entry, service, own in self._services.values():
            self._refuse_come(entry, service, reason)  # what came while others were answered
            self._send_outgoing(everything=True)
            if own:
                self._node.destroy_service(service)
        self._services = {}
        self._node.destroy_timer(self._pace)
        self._node.destroy_guard_condition(self._guard)

    def _come(self, reason: BaseException) -> int:
        """Refuse what the middleware holds of all services; how many calls that were."""
        return sum(
            self._refuse_come(entry, service, reason)
            for entry, service, _ in self._services.values()
        )

    def _refuse_come(self, entry: _Entry, service, reason: BaseException) -> int:
        """Refuse the calls of one service that the executor has not taken yet; how many they were."""
        for n in range(10 * self._size):
            try:
                with service.handle:
                    request, header = service.handle.service_take_request(service.srv_type.Request)
            except (rclpy_implementation.RCLError, InvalidHandle):  # ROS was shut down under it
                return n
            if header is None:
                return n
            self._refuse(entry, service.srv_type.Response(), header, reason)
        return 10 * self._size

    def _on_request(self, entry: _Entry, request, response):
        if self._ending is not None:
            entry.refuse(response, self._ending)
            return response
        if len(self._waiting) >= self._size:
            self._on_refused(1)
            entry.refuse(
                response, TooBusy(f"{self._size} calls wait for an answer already; ask again later")
            )
            return response
        try:
            later = entry.start(request, response)
        except Exception as error:  # the caller gets the reason, whatever it is
            entry.refuse(response, error)
            return response
        return response if later is None else _Promise(entry, response, later)

    def _send(self, entry: _Entry, answer, header) -> None:
        """In place of Service.send_response: an answer goes out, a promise is kept with the header of its request."""
        if not isinstance(answer, _Promise):
            return self._deliver(entry, answer, header)
        answer.header = header
        self._waiting.append(answer)
        answer.later.future.add_done_callback(self._on_done)

    def _on_done(self, _) -> None:
        """In whatever thread the work was done."""
        with suppress(InvalidHandle):  # closed at this moment, which answers all
            self._guard.trigger()

    def _answer_done(self) -> None:
        done = [promise for promise in self._waiting if promise.later.future.done()]
        self._waiting = [promise for promise in self._waiting if promise not in done]
        for promise in done:
            try:
                promise.later.finish(promise.response, promise.later.future.result())
            except Exception as error:  # of the work, or of what was to be said of it
                self._refuse(promise.entry, promise.response, promise.header, error)
            else:
                self._deliver(promise.entry, promise.response, promise.header)

    def _refuse(self, entry: _Entry, response, header, error: BaseException) -> None:
        entry.refuse(response, error)
        self._deliver(entry, response, header)

    def _deliver(self, entry: _Entry, response, header) -> None:
        """Send an answer, or keep it while as many as the client holds may wait there."""
        self._outgoing.append((entry, response, header))
        self._send_outgoing()

    def _send_outgoing(self, everything: bool = False) -> None:
        """BURST answers of each service in PAUSE; everything: all that is left, in somewhat more haste."""
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
        try:
            entry.send(response, header)
        except (rclpy_implementation.RCLError, InvalidHandle) as error:  # whoever asked has gone
            self._node.get_logger().warning(
                f"the answer of ~/{entry.name} could not be sent: {str(error).splitlines()[0]}"
            )

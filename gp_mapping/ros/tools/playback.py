"""What simulator and bag player share: grouped parameters, pacing, waiting, exit."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import fields

import rclpy
from builtin_interfaces.msg import Time
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock

from gp_mapping.errors import one_line
from gp_mapping.garbage import leave_out_what_is_loaded
from gp_mapping.ros.mapper.descriptors import ParameterError, describe
from gp_mapping.ros.tools.process import ending_signals
from gp_mapping.settings.groups import build_groups, is_foreign, nearest

__all__ = [
    "QUIET",
    "ClockPublisher",
    "NoSubscriber",
    "Pacer",
    "declare_groups",
    "lossless",
    "run_node",
    "time_message",
    "wait_for_any_subscriber",
    "wait_for_subscribers",
]

SETTLED = 1.0  # s without a further subscriber, after which the present ones are taken for all
# s of wall time; after a longer stall (suspend, debugger) the schedule moves, and no burst is sent
LATEST_STALL = 1.0
# s between looks at callbacks while there are none: a look takes half a millisecond of the
# processor, as long as the messages between which it is made
QUIET = 0.02


class NoSubscriber(RuntimeError):
    """No subscriber came in time."""


def lossless(depth: int = 20000) -> QoSProfile:
    """Reliable and volatile, with a queue that outlasts the pauses of a busy reader.

    With "keep last", a writer whose queue is full drops what a slow reader has not fetched: at 20
    times real time 1000 messages are gone within a second. "Keep all" would block the writer and
    with it the clock.
    """
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.VOLATILE,
    )


def time_message(stamp_ns: int) -> Time:
    """Nanoseconds as builtin_interfaces/Time."""
    return Time(sec=int(stamp_ns // 1_000_000_000), nanosec=int(stamp_ns % 1_000_000_000))


def declare_groups(node: Node, groups: dict[str, type]) -> dict[str, object]:
    """Declare the fields of settings classes as parameters `<prefix><name>`.

    All values of a class are checked together, since one may be right only with another.

    Args:
        node: Made with automatically_declare_parameters_from_overrides=True, so that a wrong type
            can be explained here.
        groups: Prefix -> settings class.

    Returns:
        The settings by prefix.

    Raises:
        ParameterError: With a line for every wrong value and every unknown name.
    """
    values = {name: p.value for name, p in node.get_parameters_by_prefix("").items()}
    known = {prefix + f.name: (prefix, f) for prefix, kind in groups.items() for f in fields(kind)}
    settings, problems = build_groups(values, groups)

    problems = [f"parameter {text}" for text in problems]

    for name in values:
        if name not in known and not is_foreign(name):
            suggestion = nearest(name, known)
            problems.append(
                f"parameter {name!r} is not known; "
                + (
                    f"did you mean {suggestion!r}?"
                    if suggestion
                    else f"known are {', '.join(sorted(known))}"
                )
            )

    if problems:
        raise ParameterError("\n".join(problems))

    for name, (prefix, f) in known.items():
        if name in values:
            # it was declared from the override, without range or description
            node.undeclare_parameter(name)
        descriptor = describe(f)
        descriptor.name, descriptor.read_only = name, True
        node.declare_parameter(
            name, getattr(settings[prefix], f.name), descriptor, ignore_override=True
        )
    return settings


class Pacer:
    """Waits for the wall time of recorded or simulated stamps.

        wall = start + (stamp − first stamp) / rate

    Deadlines are absolute, so errors do not add up.

    Args:
        rate: Stamped seconds per second of wall time.
        executor: Serves the node's callbacks while waiting.
        stop: Set when asked to stop.
        quiet: s of wall time after a look at the callbacks that found nothing to do, before the
            next one.

    Attributes:
        stalls: How often the schedule was late by more than LATEST_STALL.
    """

    def __init__(
        self,
        rate: float,
        executor: SingleThreadedExecutor,
        stop: threading.Event,
        quiet: float = QUIET,
    ):
        self.rate, self.executor, self.stop, self.quiet = rate, executor, stop, quiet
        # wall time (monotonic s) and stamp (ns) at which the schedule begins
        self._origin: tuple[float, int] | None = None
        self._served = time.monotonic()  # when callbacks were last served
        self.stalls = 0

    def restart(self) -> None:
        """Begin the schedule anew: the next stamp is due at once, as when a bag begins again."""
        self._origin = None

    def wait(self, stamp_ns: int) -> bool:
        """Wait for the time of a stamp while serving callbacks; False when asked to stop."""
        now = time.monotonic()
        if self._origin is None:
            self._origin = (now, stamp_ns)
        deadline = self._origin[0] + (stamp_ns - self._origin[1]) * 1e-9 / self.rate
        if now - deadline > LATEST_STALL:  # the schedule begins anew at this stamp
            self._origin, self.stalls = (now, stamp_ns), self.stalls + 1
        # callbacks are served even where there is no time to spare
        if now - self._served > 0.1:
            self.executor.spin_once(timeout_sec=0.0)
            self._served = now

        while not self.stop.is_set():
            now = time.monotonic()
            remaining = deadline - now
            if remaining <= 0.0:
                return True
            # callbacks while there is time for them; the last milliseconds are slept exactly
            if remaining > 2e-3 and now - self._served > self.quiet:
                self.executor.spin_once(timeout_sec=min(remaining - 1e-3, 0.1))
                # one that was served may not have been the only one
                if time.monotonic() - now >= min(remaining - 1e-3, 0.1):
                    self._served = time.monotonic()
            else:
                time.sleep(min(remaining, QUIET))
        return False


class ClockPublisher:
    """Publishes /clock, at most `rate` messages per second of simulated time.

    Time runs backwards only where the stamps do.

    Args:
        node: The node that publishes.
        rate: Hz, of simulated time.
    """

    def __init__(self, node: Node, rate: float):
        # reliable serves best-effort readers too; only the newest time is of any use
        self._publisher = node.create_publisher(Clock, "/clock", lossless(1))
        self._period_ns = round(1e9 / rate)
        self._next_ns: int | None = None

    def tick(self, stamp_ns: int) -> None:
        """Publish a stamp (ns) if the last one is a period old, or the time has jumped back."""
        jumped = self._next_ns is not None and stamp_ns < self._next_ns - self._period_ns
        if jumped or self._next_ns is None or stamp_ns >= self._next_ns:
            self._publisher.publish(Clock(clock=time_message(stamp_ns)))
            self._next_ns = stamp_ns + self._period_ns

    def until(self, stamp_ns: int, pacer: Pacer) -> bool:
        """Tick at regular times up to a stamp, as time goes on between messages.

        Args:
            stamp_ns: The stamp, ns.
            pacer: Waits for each tick's time.

        Returns:
            False when asked to stop.
        """
        while self._next_ns is not None and self._next_ns < stamp_ns:
            due = self._next_ns
            if not pacer.wait(due):
                return False
            self.tick(due)
        return True


def wait_for_subscribers(
    publishers, timeout: float, executor: SingleThreadedExecutor, stop: threading.Event
) -> bool:
    """Wait until each publisher has a subscriber.

    Args:
        publishers: All of them must have one.
        timeout: s.
        executor: Serves the node's callbacks while waiting.
        stop: Set when asked to stop.

    Returns:
        False when asked to stop.

    Raises:
        NoSubscriber: A publisher had none in time.
    """
    deadline = time.monotonic() + timeout
    while not stop.is_set():
        unheard = [p.topic_name for p in publishers if p.get_subscription_count() == 0]
        if not unheard:
            # this side has seen the match; the other side needs a moment before data is sent
            return not stop.wait(0.5)
        if time.monotonic() > deadline:
            raise NoSubscriber(
                f"nobody subscribed to {', '.join(unheard)} within {timeout:g} s; start the subscriber "
                "first, check ROS_DOMAIN_ID and topic names, or set wait_for_subscribers:=0.0"
            )
        executor.spin_once(timeout_sec=0.05)
    return False


def wait_for_any_subscriber(
    publishers, timeout: float, executor: SingleThreadedExecutor, stop: threading.Event
) -> bool:
    """Wait for a subscriber of any publisher, and until no further one comes for SETTLED seconds.

    A node that listens to several topics is not seen on all of them at once.

    Args:
        publishers: One of them must have a subscriber.
        timeout: s until the first one.
        executor: Serves the node's callbacks while waiting.
        stop: Set when asked to stop.

    Returns:
        False when asked to stop.

    Raises:
        NoSubscriber: None came in time.
    """
    deadline, subscribed, since = time.monotonic() + timeout, set(), 0.0
    while not stop.is_set():
        now, subscribed_now = (
            time.monotonic(),
            {p.topic_name for p in publishers if p.get_subscription_count()},
        )

        if subscribed_now != subscribed:
            subscribed, since = subscribed_now, now
        if subscribed and now - since > SETTLED:
            return True
        if not subscribed and now > deadline:
            raise NoSubscriber(
                f"nobody subscribed to any of {', '.join(sorted(p.topic_name for p in publishers))} "
                f"within {timeout:g} s; start the subscriber first, check ROS_DOMAIN_ID and topic "
                "names, or set wait_for_subscribers:=0.0"
            )
        executor.spin_once(timeout_sec=0.05)
    return False


def run_node(make: Callable[[], Node], args=None) -> int:
    """Create a node, run it, and return its exit code; the text of errors goes to stderr.

    rclpy's own signal handlers would shut the context down before the last messages are sent, so
    this installs others.

    Args:
        make: Creates the node, which has a method run(executor, stop) -> exit code.
        args: Of rclpy.init.

    Returns:
        0: done, or stopped by SIGINT or SIGTERM (as launch ends a node) or SIGHUP (of a terminal
        that was closed); 1: failed; 2: wrong parameter; 3: no subscriber came.
    """
    stop = threading.Event()

    def handler(_number, _frame):
        """Ask the node to stop."""
        stop.set()

    previous = {number: signal.signal(number, handler) for number in ending_signals()}
    leave_out_what_is_loaded()

    node = None
    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
        node = make()
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        return node.run(executor, stop)
    except ParameterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except NoSubscriber as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    # of a bag, of the disk, or of rcl, whose errors for wrong arguments have no common base
    except Exception as error:
        known = isinstance(error, OSError | ValueError | RuntimeError)
        print(
            f"error: {one_line(error)}"
            if known
            else f"error: {type(error).__name__}: {one_line(error)}",
            file=sys.stderr,
        )
        return 1
    finally:
        if node is not None:
            node.destroy_node()
        rclpy.try_shutdown()
        for number, old in previous.items():
            signal.signal(number, old)

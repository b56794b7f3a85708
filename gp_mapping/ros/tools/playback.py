"""What simulator and bag player share: parameters in groups, pacing by absolute deadlines, waiting, and the exit."""

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
from gp_mapping.ros.mapper.descriptors import ParameterError, describe
from gp_mapping.settings.groups import build_groups, is_foreign, nearest

__all__ = [
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

SETTLED = 1.0  # s without another subscriber, after which those that are there are taken for all
LATEST_STALL = 1.0  # s of wall time; after a longer stall (suspend, debugger) the schedule moves: no burst is sent


class NoSubscriber(RuntimeError):
    """Nobody subscribed in time."""


def lossless(depth: int = 20000) -> QoSProfile:
    """Reliable and volatile, with a queue that outlasts the pauses of a busy reader.

    With "keep last", a writer drops what a slow reader has not fetched yet as soon as its queue is full: at 20 times
    real time 1000 messages are gone within a second. "Keep all" would block the writer and with it the clock.
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
    """Declare the fields of settings classes as parameters `<prefix><name>`; returns the settings by prefix.

    All values of a class count together, in whatever order they came: one may be right only with another.

    node: made with automatically_declare_parameters_from_overrides=True, so that a wrong type can be explained here.
    Raises ParameterError with a line for every wrong value and every name that nobody knows.
    """
    given = {name: p.value for name, p in node.get_parameters_by_prefix("").items()}
    known = {prefix + f.name: (prefix, f) for prefix, kind in groups.items() for f in fields(kind)}
    settings, problems = build_groups(given, groups)
    problems = [f"parameter {text}" for text in problems]
    for name in given:
        if name not in known and not is_foreign(name):
            near = nearest(name, known)
            problems.append(
                f"parameter {name!r} is not known; "
                + (f"did you mean {near!r}?" if near else f"known are {', '.join(sorted(known))}")
            )
    if problems:
        raise ParameterError("\n".join(problems))
    for name, (prefix, f) in known.items():
        if name in given:
            node.undeclare_parameter(
                name
            )  # it was declared from the override, without range or meaning
        descriptor = describe(f)
        descriptor.name, descriptor.read_only = name, True
        node.declare_parameter(
            name, getattr(settings[prefix], f.name), descriptor, ignore_override=True
        )
    return settings


class Pacer:
    """Sleeps until wall = start + (stamp - first stamp) / rate; deadlines are absolute, so errors do not add up."""

    def __init__(self, rate: float, executor: SingleThreadedExecutor, stop: threading.Event):
        self.rate, self.executor, self.stop = rate, executor, stop
        self._origin: tuple[float, int] | None = None
        self._served = time.monotonic()
        self.stalls = 0

    def restart(self) -> None:
        """The next stamp is due now, whatever it is: a bag begins again."""
        self._origin = None

    def wait(self, stamp_ns: int) -> bool:
        """Wait for the moment of stamp_ns while serving the node's callbacks; False when asked to stop."""
        now = time.monotonic()
        if self._origin is None:
            self._origin = (now, stamp_ns)
        deadline = self._origin[0] + (stamp_ns - self._origin[1]) * 1e-9 / self.rate
        if now - deadline > LATEST_STALL:
            self._origin, self.stalls = (now, stamp_ns), self.stalls + 1
        if now - self._served > 0.1:  # services answer even where there is no time to spare
            self.executor.spin_once(timeout_sec=0.0)
            self._served = now
        while not self.stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0.0:
                return True
            if left > 2e-3:
                self.executor.spin_once(timeout_sec=min(left - 1e-3, 0.1))
                self._served = time.monotonic()
            else:
                time.sleep(left)
        return False


class ClockPublisher:
    """/clock at no more than `rate` messages per second of simulated time, and never running backwards by itself."""

    def __init__(self, node: Node, rate: float):
        # reliable serves best-effort readers too; only the newest time is of any use
        self._publisher = node.create_publisher(Clock, "/clock", lossless(1))
        self._period_ns = round(1e9 / rate)
        self._next_ns: int | None = None

    def tick(self, stamp_ns: int) -> None:
        """Publish stamp_ns if the last one is a period old, or the time has jumped back."""
        jumped = self._next_ns is not None and stamp_ns < self._next_ns - self._period_ns
        if jumped or self._next_ns is None or stamp_ns >= self._next_ns:
            self._publisher.publish(Clock(clock=time_message(stamp_ns)))
            self._next_ns = stamp_ns + self._period_ns

    def until(self, stamp_ns: int, pacer: Pacer) -> bool:
        """Ticks at their times until stamp_ns: time goes on where no message is due; False when asked to stop."""
        while self._next_ns is not None and self._next_ns < stamp_ns:
            due = self._next_ns
            if not pacer.wait(due):
                return False
            self.tick(due)
        return True


def wait_for_subscribers(
    publishers, timeout: float, executor: SingleThreadedExecutor, stop: threading.Event
) -> bool:
    """Wait until each of publishers has a subscriber; False when asked to stop. NoSubscriber after timeout seconds."""
    deadline = time.monotonic() + timeout
    while not stop.is_set():
        lonely = [p.topic_name for p in publishers if p.get_subscription_count() == 0]
        if not lonely:
            # the match was seen from this side; give the other side the moment it needs before data is sent
            return not stop.wait(0.5)
        if time.monotonic() > deadline:
            raise NoSubscriber(
                f"nobody subscribed to {', '.join(lonely)} within {timeout:g} s; start the subscriber "
                "first, check ROS_DOMAIN_ID and topic names, or set wait_for_subscribers:=0.0"
            )
        executor.spin_once(timeout_sec=0.05)
    return False


def wait_for_any_subscriber(
    publishers, timeout: float, executor: SingleThreadedExecutor, stop: threading.Event
) -> bool:
    """Wait for the first subscriber of any, and on until a second brings no more; as wait_for_subscribers.

    A node that listens to several topics is not seen on all of them at once.
    """
    deadline, heard, since = time.monotonic() + timeout, set(), 0.0
    while not stop.is_set():
        now, found = (
            time.monotonic(),
            {p.topic_name for p in publishers if p.get_subscription_count()},
        )
        if found != heard:
            heard, since = found, now
        if heard and now - since > SETTLED:
            return True
        if not heard and now > deadline:
            raise NoSubscriber(
                f"nobody subscribed to any of {', '.join(sorted(p.topic_name for p in publishers))} "
                f"within {timeout:g} s; start the subscriber first, check ROS_DOMAIN_ID and topic "
                "names, or set wait_for_subscribers:=0.0"
            )
        executor.spin_once(timeout_sec=0.05)
    return False


def run_node(make: Callable[[], Node], args=None) -> int:
    """Create a node with `run(executor, stop) -> int`, run it, and return its exit code.

    0: done, or stopped by SIGINT or SIGTERM (what launch does to end a node); 1: failed; 2: wrong parameter; 3: nobody
    subscribed. rclpy's own handlers would shut the context down under the last messages, so this installs its own; the
    text of errors goes to stderr.
    """
    stop = threading.Event()

    def handler(_number, _frame):
        stop.set()

    previous = {
        number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)
    }
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
    except Exception as error:  # of a bag, of the disk, or of rcl, whose errors for wrong arguments have no common base
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

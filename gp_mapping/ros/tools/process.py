"""How a process ends in order: signals that leave ROS running for its last messages."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future

from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

from gp_mapping.garbage import leave_out_what_is_loaded

__all__ = ["Stopper", "ending_signals", "run_lifecycle", "spin"]

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# s in which signals count as one: a launch file and the terminal, or systemd and a launch file,
# each pass on the same one
ONE_PRESS = 1.0


def ending_signals() -> list[int]:
    """Signals that ask this process to end: of a terminal that was closed, too, but for nohup."""
    return [n for n in ENDINGS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]


class Stopper:
    """Counts SIGINT, SIGTERM, and SIGHUP of a terminal that was closed (but under nohup).

    rclpy's own handlers shut ROS down at once, so nothing could be published or saved. Here the
    first signal asks for an orderly end, the second for a quick one (the queue is dropped), and the
    third ends the process. Signals within ONE_PRESS of one that counted are the same one.

    Attributes:
        count: Number of signals.
    """

    def __init__(self):
        self.count, self._counted = 0, -ONE_PRESS
        self._numbers = ending_signals()

        for number in self._numbers:
            signal.signal(number, self._on_signal)
        leave_out_what_is_loaded()

    def _on_signal(self, number, frame) -> None:
        """Count a signal; after the second the next one ends the process."""
        now = time.monotonic()
        if now - self._counted < ONE_PRESS:
            return

        self.count, self._counted = self.count + 1, now
        if self.count >= 2:
            for each in self._numbers:  # the next one ends the process
                signal.signal(each, signal.SIG_DFL)

    def __bool__(self) -> bool:
        return self.count > 0


def spin(node, over: Callable[[], object], moment: Callable[[], float] = lambda: 0.0) -> None:
    """Run the node's callbacks in this thread until over() or ROS is shut down.

    Single-threaded on purpose: this rclpy's MultiThreadedExecutor loses messages (#1223, #1452).
    Its experimental EventsExecutor (rclpy 7.1.5) is not used: it refuses guard conditions, takes no
    notice of callback groups, and never calls a callback that asks for a message's info.
    An exception in a callback comes out of spin_once: it is logged (the same one every 5 s at
    most), and the node goes on.

    Args:
        node: The node.
        over: Asked after each callback; True ends.
        moment: Asked after each callback for a time (s) to sleep, so that messages which come
            meanwhile are taken together.
    """
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    last_text, logged_at = "", 0.0

    # shut down within a callback, ROS lets each look raise another error than this exception
    while node.context.ok() and not over():
        try:
            executor.spin_once(timeout_sec=0.1)
        except ExternalShutdownException:
            break
        except Exception:  # one bad message or a full disk must not end a robot's map
            text = traceback.format_exc()
            if text != last_text or time.monotonic() - logged_at > 5.0:
                last_text, logged_at = text, time.monotonic()
                node.get_logger().error(f"a callback failed; mapping goes on without it:\n{text}")
        if (pause := moment()) > 0.0:
            time.sleep(pause)
    executor.remove_node(node)
    executor.shutdown()


def run_lifecycle(node, stopper: Stopper) -> int:
    """Run a node from its start to the end that a signal asks for.

    Args:
        node: MappingNode; with autostart it is configured and activated.
        stopper: asks for the end.

    Returns:
        The exit code: 2 where the node could not be started, 1 where its end failed, else the
        node's own.
    """
    # a wrong value of autostart, too, fails in configure
    started = None if node.parameters.peek("autostart") is False else node.start()
    ending: Future | None = None

    def failed() -> bool:
        """Whether the node could not be configured or activated."""
        return started is not None and started.done() and not started.result()

    def over() -> bool:
        """Whether the end is over, which begins with a signal or where the start has failed."""
        nonlocal ending
        if ending is None and (stopper or failed()):
            ending = node.end()
        return ending is not None and ending.done()

    spin(node, over, node.batching_pause)
    # where ROS was shut down no caller is left to answer, but there is a map to save
    ending = ending or node.end()
    node.work_off()
    return 2 if failed() else node.exit_code or int(not ending.result())

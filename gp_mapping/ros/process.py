"""A process that ends well: signals that leave ROS alive for the last words; waiting that lets others work."""

from __future__ import annotations

import signal
import time

from rclpy.executors import SingleThreadedExecutor

__all__ = ["Stopper", "spin", "wait_for"]


class Stopper:
    """Counts SIGINT and SIGTERM. rclpy's own handlers shut ROS down at once, and nothing could be published or saved.

    The first asks for an orderly end, the second for a quick one (the queue is dropped), the third ends the process.
    """

    def __init__(self):
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number, frame) -> None:
        self.count += 1
        if self.count >= 2:
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)

    def __bool__(self) -> bool:
        return self.count > 0


def spin(node, stopper: Stopper) -> None:
    """Run the node's callbacks in this thread until a signal comes.

    Single-threaded on purpose: this rclpy's MultiThreadedExecutor loses messages (rclpy #1223, #1452).
    """
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    while not stopper:
        executor.spin_once(timeout_sec=0.1)
    executor.remove_node(node)
    executor.shutdown()


class _Pause:
    """Gives the executor a turn. It comes back at once where nothing else waits, hence the sleep."""

    def __await__(self):
        time.sleep(0.002)
        yield


async def wait_for(future):
    """The result of a concurrent.futures.Future inside a callback, while other callbacks go on."""
    while not future.done():
        await _Pause()
    return future.result()

"""Real processes over real DDS for the tests of simulator, player and demo: nothing here is simulated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import rclpy
from pictures import draw_small
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy

from benchmark import warm

os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")  # for this process, too

ROOT = Path(__file__).resolve().parents[2]
DEEP = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=20000, reliability=ReliabilityPolicy.RELIABLE
)


def environment(domain: int, log_dir) -> dict[str, str]:
    """For a child: its own DDS domain on this host, field checks on."""
    return {
        **os.environ,
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_LOG_DIR": str(log_dir),
        "ROS_PYTHON_CHECK_FIELDS": "1",
        "OMP_NUM_THREADS": "1",
    }


class Process:
    """`python -m module args`, ended with the with-block whatever happens.

    Its pictures are small.

    start: subprocess.Popen loads everything itself, and what it starts does, too: it has the command line of its own.
    """

    def __init__(self, module: str, *arguments: str, domain: int, log_dir, start=warm.Popen):
        self._out = open(
            Path(log_dir) / f"{module}.{time.monotonic_ns()}.txt", "w+", encoding="utf-8"
        )
        how, env = {}, environment(domain, log_dir)
        if start is warm.Popen:
            how["preexec_fn"] = draw_small  # for what it starts, too
            paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path]))
            env |= {"PYTHONPATH": paths}  # what this process finds the tests' modules by
        self.popen = start(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env=env,
            **how,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self._out.close()

    def wait(self, timeout: float = 30.0) -> int:
        return self.popen.wait(timeout)

    def interrupt(self):
        self.popen.send_signal(signal.SIGINT)

    @property
    def output(self) -> str:
        self._out.flush()
        return Path(self._out.name).read_text(encoding="utf-8")


def ros_run(module: str, *parameters: str, domain: int, log_dir, remap=()) -> Process:
    """A node started from source with `-p name:=value` for each parameter."""
    arguments = [word for p in parameters for word in ("-p", p)] + [
        word for r in remap for word in ("-r", r)
    ]
    return Process(module, "--ros-args", *arguments, domain=domain, log_dir=log_dir)


class Listener:
    """Subscribes in this process and keeps every message, in order of arrival, by topic."""

    def __init__(self, domain: int, topics: dict[str, tuple[type, QoSProfile]]):
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = Node("listener", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.got: dict[str, list] = {topic: [] for topic in topics}
        for topic, (kind, qos) in topics.items():
            self.node.create_subscription(kind, topic, self.got[topic].append, qos)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def spin_until(self, condition, timeout: float = 30.0) -> bool:
        """Serve callbacks until condition() or the time-out; then a moment more for what is on its way."""
        deadline = time.monotonic() + timeout
        while not condition() and time.monotonic() < deadline:
            self.executor.spin_once(timeout_sec=0.05)
        reached, settle = condition(), time.monotonic() + 0.2
        while time.monotonic() < settle:
            self.executor.spin_once(timeout_sec=0.05)
        return reached

    def spin_through(self, process: Process, timeout: float = 30.0) -> int:
        """Serve callbacks until the process ends; its exit code."""
        assert self.spin_until(lambda: process.popen.poll() is not None, timeout), process.output
        # all is acknowledged, but a busy machine may hold hundreds of messages that nobody has taken yet
        before = -1
        while before != (count := sum(map(len, self.got.values()))):
            before, settle = count, time.monotonic() + 0.3
            while time.monotonic() < settle:
                self.executor.spin_once(timeout_sec=0.05)
        return process.popen.returncode


def stamp_ns(time_message) -> int:
    return time_message.sec * 10**9 + time_message.nanosec

"""A peer of mapping_node over real DDS, messages as a robot would send them, and nodes as processes of their own."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import rclpy
import yaml
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from pictures import draw_small
from rcl_interfaces.srv import DescribeParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import MagneticField

from benchmark import warm
from gp_mapping.ros.wire.qos import LATCHED, sensor_data

ROOT = Path(__file__).resolve().parent.parent.parent
NS = 1_000_000_000
MAPPER = "gp_mapping.ros.mapping_node"
COUNTS = (" received", "used", "waiting for a pose", "samples", "cells")
REPORTS = 0.25  # s from one report in /diagnostics to the next: tests wait for them
QUICK = {
    "max_inducing": 80,
    "resolution": 0.1,
    "learn_hyperparameters": False,
    "lengthscale": 0.6,
    "diagnostics_period": REPORTS,
}
# Starts of the magnetic field below: to find them a map takes its first cells in again and again, which is for
# mapping/beginning/test_start.py
STARTS = {"signal_stddev": 6e-6, "noise_stddev": 3e-7, "constant_stddev": 2e-5}


def field_at(x: float, y: float) -> float:
    """The true field in tesla: about 45 µT with bumps of some µT over a metre."""
    return 45e-6 + 6e-6 * math.sin(1.5 * x) * math.cos(1.1 * y)


def place_at(t: float) -> tuple[float, float]:
    """Where the robot is after t seconds: 0.5 m/s up and down lanes of 2 m, 0.3 m apart."""
    lane, along = divmod(0.5 * t, 2.0)
    return (along if lane % 2 == 0 else 2.0 - along), 0.3 * lane


def magnetic_field(stamp_ns: int, value: float, frame: str = "magnetometer") -> MagneticField:
    """A field of `value` tesla along z, covariance unknown."""
    out = MagneticField()
    out.header.frame_id = frame
    out.header.stamp.sec, out.header.stamp.nanosec = divmod(stamp_ns, NS)
    out.magnetic_field.z = float(value)
    return out


def odometry(stamp_ns: int, x: float, y: float, frame: str = "odom", w: float = 1.0) -> Odometry:
    """A pose; w = 0 makes the quaternion a zero one."""
    out = Odometry()
    out.header.frame_id, out.child_frame_id = frame, "base_link"
    out.header.stamp.sec, out.header.stamp.nanosec = divmod(stamp_ns, NS)
    out.pose.pose.position.x, out.pose.pose.position.y = float(x), float(y)
    out.pose.pose.orientation.w = w
    return out


def parameter_file(folder: Path, **parameters) -> Path:
    """A parameter file for any node."""
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
    return path


class NodeProcess:
    """`python -m MODULE --ros-args --params-file …` with its log in a file; always ended at the end of the block.

    start: what starts it; subprocess.Popen where its very start and end are the question.
    pictures: what decides how it draws them, where it begins loaded; None where they are to take a user's time.
    """

    def __init__(
        self,
        folder: Path,
        module: str = MAPPER,
        arguments=(),
        start=warm.Popen,
        pictures=draw_small,
        **parameters,
    ):
        how = {"preexec_fn": pictures} if start is warm.Popen else {}
        # what a test has added for its children, and what this process finds the tests' modules by
        paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path]))
        self.log_path = folder / f"{module.rsplit('.', 1)[-1]}.log"
        command = [sys.executable, "-m", module, "--ros-args"]
        if parameters:
            parameters.setdefault("autosave_period", 0.0)  # no files but those that a test asks for
            if module == MAPPER:
                parameters.setdefault("diagnostics_period", REPORTS)
            command += ["--params-file", str(parameter_file(folder, **parameters))]
        with self.log_path.open("w") as log:
            self.process = start(
                [*command, *arguments],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": paths},
                **how,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def stop(self, number=signal.SIGINT, timeout: float = 60.0) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout)

    def __enter__(self) -> "NodeProcess":
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is not None:
            print(f"---- {self.log_path.name}, exit code {self.process.poll()}\n{self.log}")
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


class Peer:
    """Publishes inputs, collects outputs and diagnostics; spins in the caller's thread."""

    def __init__(self, name: str = "peer", namespace: str = "/", mapper: str = ""):
        """Listen to every mapper's diagnostics, or to those of `mapper` alone, without its first slash."""
        self.context = Context()
        rclpy.init(context=self.context)
        self.node = Node(name, context=self.context, namespace=namespace)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self.field_publisher = self.node.create_publisher(
            MagneticField, "magnetic_field", sensor_data(1000, True)
        )
        self.odometry_publisher = self.node.create_publisher(
            Odometry, "odometry", sensor_data(1000, True)
        )
        self.clients: dict[str, object] = {}
        self.got: dict[str, list] = {}
        self.values: dict[str, str] = {}
        self.messages: list[str] = []
        self.statuses, self.mapper = 0, mapper
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    @property
    def executor(self) -> SingleThreadedExecutor:
        """Of this peer alone; look() may have served it together with a node meanwhile."""
        if self.node.executor is not self._executor:
            self._executor.add_node(self.node)
        return self._executor

    def _on_diagnostics(self, array: DiagnosticArray) -> None:
        for status in array.status:
            name, _, part = status.name.partition(": ")
            if self.mapper not in ("", name) or not name.endswith("mapping"):
                continue
            if part in ("input", "map", "timing", "team"):
                self.statuses += 1
                self.messages.append(status.message)
                self.values.update({v.key: v.value for v in status.values})

    def listen(self, kind, topic: str, qos=LATCHED) -> list:
        """Subscribe; the list grows with what comes."""
        into = self.got.setdefault(topic, [])
        self.node.create_subscription(kind, topic, into.append, qos)
        return into

    def spin(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.executor.spin_once(timeout_sec=max(0.0, min(0.05, end - time.monotonic())))

    def until(self, condition, timeout: float = 60.0, what: str = "") -> None:
        """Spin until condition() holds; fails with `what` and the last diagnostics."""
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, (
                f"{what or 'nothing'} after {timeout} s; {self.messages[-3:]} {self.values}"
            )
            self.executor.spin_once(timeout_sec=0.05)

    def wait_for_node(self) -> None:
        """Until the mapper hears both inputs."""
        self.until(
            lambda: (
                self.field_publisher.get_subscription_count()
                and self.odometry_publisher.get_subscription_count()
            ),
            what="mapping_node did not subscribe",
        )
        self.spin(0.3)  # the other direction of discovery

    def drive(
        self,
        start: float,
        seconds: float,
        rate: int = 50,
        speed: float = 1.0,
        epoch: int = 1_700_000_000 * NS,
        before=None,
        place=place_at,
    ) -> None:
        """Publish odometry and field at `rate` Hz of robot time from start on; `speed` times as fast as the wall.

        before: called with each stamp (ns) first.  place: where the robot is after t seconds.
        """
        begin = time.monotonic()
        for i in range(round(seconds * rate) + 1):
            t = start + i / rate
            stamp, (x, y) = epoch + round(t * NS), place(t)
            if before is not None:
                before(stamp)
            self.odometry_publisher.publish(odometry(stamp, x, y))
            self.field_publisher.publish(magnetic_field(stamp, field_at(x, y)))
            while (left := begin + i / rate / speed - time.monotonic()) > 0:
                self.executor.spin_once(timeout_sec=left)

    def be_known(self, service: str) -> None:
        """Until the node of a service has heard of this peer's clients: before that its answers to them are lost.

        A node hears of clients in the order in which they were made, so one that is made now, and asks what may be
        asked any number of times, gets no answer before those before it would.
        """
        end, asked, last, answers = time.monotonic() + 60.0, 0.0, None, []
        while not any(answer.done() for answer in answers):
            assert time.monotonic() < end, f"the node of {service} does not answer"
            last = last or self._asks_the_node_of(service)
            if last is not None and time.monotonic() > asked + 0.1 and last.service_is_ready():
                asked = time.monotonic()
                answers.append(last.call_async(DescribeParameters.Request()))
            self.executor.spin_once(timeout_sec=0.02)
        self.node.destroy_client(last)

    def _asks_the_node_of(self, service: str):
        """A client of what every node answers; None while the node is not seen."""
        nodes = [
            name.removesuffix("describe_parameters")
            for name, _ in self.node.get_service_names_and_types()
            if name.endswith("/describe_parameters")
        ]
        mine = max((node for node in nodes if service.startswith(node)), key=len, default=None)
        return mine and self.node.create_client(DescribeParameters, f"{mine}describe_parameters")

    def number(self, key: str) -> float:
        """A diagnostics value as a number; 0 where it has not been said."""
        return float(self.values.get(key, 0.0))

    def settle(self) -> None:
        """Until all that was sent is taken in: nothing waits, and two reports in a row count the same.

        The first report may be of a status that the worker made before now. What a node has received is counted at
        once, what became of it only when the worker is through with it.
        """
        counts: list[dict] = []
        end = time.monotonic() + 60.0
        while len(counts) < 3 or counts[-1] != counts[-2] or not self._is_taken_in():
            assert time.monotonic() < end, f"it does not settle; {self.messages[-3:]} {self.values}"
            self.until(lambda seen=self.statuses: self.statuses >= seen + 3, what="no diagnostics")
            counts.append({key: n for key, n in self.values.items() if key.endswith(COUNTS)})

    def _is_taken_in(self) -> bool:
        """Whether nothing is queued, and each measurement that was received is used, dropped, or waits for a pose."""
        dropped = sum(float(n) for key, n in self.values.items() if key.startswith("dropped: "))
        known = dropped + self.number("measurements used") + self.number("waiting for a pose")
        received = self.values.get("magnetic_field received")
        return not self.number("queue") and (received is None or known >= float(received))

    def call(self, kind, name: str, request, timeout: float = 60.0, again: float | None = None):
        """Call a service; ask again every so many seconds, if the question may be asked twice.

        A node of an earlier test that was killed is still announced for some seconds, and would be asked in vain.
        """
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = self.node.create_client(kind, name)
            assert client.wait_for_service(timeout_sec=60.0), f"no service {name}"
            self.be_known(name)
        futures, asked, every = [client.call_async(request)], time.monotonic(), again or timeout
        end = asked + timeout
        while not any(f.done() for f in futures):
            assert time.monotonic() < end, (
                f"service {name} did not answer in {timeout} s; {self.messages[-3:]}"
            )
            self.executor.spin_once(timeout_sec=0.1)
            if time.monotonic() - asked > every:
                asked = time.monotonic()
                futures.append(client.call_async(request))
        return next(f for f in futures if f.done()).result()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)


def cloud_array(message, names=("x", "y", "z", "intensity", "mean", "stddev")) -> np.ndarray:
    """A cloud with just these fields as (N, F); of ~/field, unless other names are given."""
    assert [f.name for f in message.fields] == list(names)
    kind = "<f8" if message.fields[0].datatype == 8 else "<f4"
    return np.frombuffer(bytes(message.data), kind).reshape(message.width, len(names))


def grid_array(message) -> np.ndarray:
    """An OccupancyGrid's values as (H, W) int."""
    return np.array(message.data, dtype=int).reshape(message.info.height, message.info.width)


def look(node, peer, seconds: float = 0.05):
    """One callback of a node of this process (fixture node_of) or of its peer; a moment, where there is none.

    They wait together: to look at each of them in turn takes a millisecond of the processor each time.
    """
    if peer.node.executor is not node.executor_:
        node.executor_.add_node(peer.node)
    node.executor_.spin_once(timeout_sec=seconds)


def spin(node, peer, seconds: float):
    """Serve a node of this process (fixture node_of) and its peer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        look(node, peer, min(0.1, seconds))


def spin_until(node, peer, condition, timeout: float = 60.0):
    """spin() until condition() holds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, node.inputs.problems
        look(node, peer)


def ask(node, peer, kind, name: str, request=None):
    """Call a service of a node of this process (fixture node_of)."""
    client = peer.clients.get(name)
    if client is None:
        client = peer.clients[name] = peer.node.create_client(kind, name)
        spin_until(node, peer, client.service_is_ready)
        spin(node, peer, 0.3)  # the other direction of discovery
    future = client.call_async(kind.Request() if request is None else request)
    spin_until(node, peer, future.done)
    return future.result()


def fill(node, seconds: float, start: float = 0.0, rate: int = 50) -> None:
    """Messages of a drive straight into a node of this process, as its subscriptions would hand them on."""
    ports = {port.role: port for port in node.inputs.ports}
    for i in range(round(seconds * rate) + 1):
        t = start + i / rate
        stamp, (x, y) = 1_700_000_000 * NS + round(t * NS), place_at(t)
        node._on_input(ports["measurement"], magnetic_field(stamp, field_at(x, y)))
        node._on_input(ports["pose"], odometry(stamp, x, y))


def settle(node, peer):
    """Until the node's worker has nothing to do and has said so."""
    since = (
        math.inf
    )  # when it was first seen to have nothing more; a status of later is made when that is done

    def said():
        nonlocal since
        since = math.inf if node.worker.queued else min(since, time.monotonic())
        return node.worker.status.made > since

    spin_until(node, peer, said)


class Stream:
    """Field and odometry at `rate` Hz from a thread of its own, whatever the peer is at; ends with the block.

    Stamps go on from start s; sent counts the measurements.
    """

    def __init__(
        self, peer: Peer, rate: int = 400, start: float = 0.0, epoch: int = 1_700_000_000 * NS
    ):
        self._peer, self._rate, self._start, self._epoch = peer, rate, start, epoch
        self.sent, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._ended.is_set():
            t = self._start + self.sent / self._rate
            stamp, (x, y) = self._epoch + round(t * NS), place_at(t)
            self._peer.odometry_publisher.publish(odometry(stamp, x, y))
            self._peer.field_publisher.publish(magnetic_field(stamp, field_at(x, y)))
            self.sent += 1
            self._ended.wait(max(0.0, begin + self.sent / self._rate - time.monotonic()))

    def __enter__(self) -> "Stream":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._thread.join()

"""A mapper as a robot has it, for the sections of the fault benchmark: a process of its own over DDS, and its peer."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from benchmark import warm
from gp_mapping.commands.processes import NodeProcess, ros_arguments

__all__ = [
    "COUNTS",
    "LABELS",
    "LIGHT",
    "MAGNETIC",
    "NS",
    "SMALL",
    "LiveMapper",
    "Sensor",
    "field_at",
    "place_at",
]

NS = 1_000_000_000
EPOCH = 1_700_000_000 * NS
# a drive is sent as fast as it is taken, and the middleware may hand over one topic long before the other: nothing of
# it is to be lost for want of patience
SMALL = {
    "max_inducing": 60,
    "resolution": 0.1,
    "memory_size": 200,
    "reliable_inputs": True,
    "input_queue_depth": 20000,
    "max_wait": 60.0,
}
START = 90.0  # s for a node to come up on a busy machine


def field_at(x: float, y: float) -> float:
    """Tesla: about 45 µT with bumps of some µT over a metre."""
    return 45e-6 + 6e-6 * math.sin(1.5 * x) * math.cos(1.1 * y)


def place_at(t: float, width: float = 4.0, lanes: int = 10) -> tuple[float, float]:
    """Metres, after t seconds at .5 m/s: lanes of `width`, .3 m apart, up the room and down again."""
    lane, along = divmod(0.5 * t, width)
    row = int(lane) % (2 * lanes - 2)
    row = row if row < lanes else 2 * lanes - 2 - row
    return (along if int(lane) % 2 == 0 else width - along), 0.3 * row


@dataclass(frozen=True)
class Sensor:
    """What a robot measures with.

    name: of the setting `sensor`, so of its topic.  message: type in sensor_msgs.msg.  number: dotted path to
    its value.  truth: what it tells at x, y.  parameters: of the node besides `sensor`.
    """

    name: str
    message: str
    number: str
    truth: Callable[[float, float], float]
    parameters: dict = field(default_factory=dict)

    def measurement(self, t: float, value: float):
        """A message of `value`, t seconds into the drive."""
        import sensor_msgs.msg

        out = getattr(sensor_msgs.msg, self.message)()
        out.header.frame_id = "magnetometer"
        out.header.stamp.sec, out.header.stamp.nanosec = divmod(EPOCH + round(t * NS), NS)
        *path, last = self.number.split(".")
        target = out
        for step in path:
            target = getattr(target, step)
        setattr(target, last, float(value))
        return out

    def settings(self) -> dict:
        """Parameters of a node that maps it."""
        return {"sensor": self.name} | self.parameters


def _bumps(x: float, y: float) -> float:
    return math.sin(1.5 * x) * math.cos(1.1 * y)


MAGNETIC = Sensor("magnetic_field", "MagneticField", "magnetic_field.z", field_at)
LIGHT = Sensor(
    "illuminance", "Illuminance", "illuminance", lambda x, y: 300.0 + 80.0 * _bumps(x, y)
)
COUNTS = Sensor(
    "fluid_pressure",
    "FluidPressure",
    "fluid_pressure",
    lambda x, y: float(round(9.0 + 6.0 * _bumps(x, y))),
    {"likelihood": "poisson", "count_duration": 0.02},
)
LABELS = Sensor(
    "fluid_pressure",
    "FluidPressure",
    "fluid_pressure",
    lambda x, y: float(round(1.0 + _bumps(x, y))),
    {"likelihood": "softmax", "classes": 3},
)


class LiveMapper:
    """mapping_node in a process of its own and a peer in this one; a context manager.

    Args:
        folder: for its log and, as save_directory, its maps.
        domain: of DDS; one of its own for each process where None.
        confined: without root's right to write into any folder.
        forked: of a process that has loaded everything (benchmark.warm), so that it starts in a second.
        sensor: of the robot.
        parameters: of the node.
    """

    def __init__(
        self,
        folder: Path,
        domain: int | None = None,
        confined: bool = False,
        forked: bool = False,
        sensor: Sensor = MAGNETIC,
        **parameters,
    ):
        import rclpy
        import sensor_msgs.msg
        from diagnostic_msgs.msg import DiagnosticArray
        from nav_msgs.msg import Odometry
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node

        from gp_mapping.ros.tools.playback import lossless

        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        self.domain = 1 + os.getpid() % 100 if domain is None else domain
        self.folder = Path(folder)
        self.sensor = sensor
        self.parameters = SMALL | {"save_directory": str(folder)} | sensor.settings() | parameters
        self.environment = {
            "ROS_DOMAIN_ID": str(self.domain),
            "OMP_NUM_THREADS": "1",
            "ROS_LOG_DIR": tempfile.gettempdir(),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        self.context = Context()
        rclpy.init(context=self.context, domain_id=self.domain)
        self.node = Node("faults", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.field = self.node.create_publisher(
            getattr(sensor_msgs.msg, sensor.message), sensor.name, lossless()
        )
        self.odometry = self.node.create_publisher(Odometry, "odometry", lossless())
        self.values: dict[str, str] = {}
        self.texts: list[str] = []
        self.reports: list[float] = []  # when diagnostics came, s
        self.clients: dict[str, object] = {}
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        self.process: NodeProcess | None = None
        self.confined, self.forked = confined, forked

    def __enter__(self) -> LiveMapper:
        self.start()
        return self

    def __exit__(self, *_) -> None:
        import rclpy

        if self.process is not None:
            self.process.__exit__()
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def start(self, **changes) -> None:
        """A node process, which is waited for until it hears both inputs."""
        self.parameters |= changes
        self.values, self.texts, before = {}, [], self._listeners()
        module, words = "gp_mapping.ros.mapping_node", ros_arguments(**self.parameters)
        log = self.folder / "mapper.log"
        if self.confined:
            module, words = "benchmark.faults.confined", [module, *words]
        with warm.everywhere() if self.forked else nullcontext():
            self.process = NodeProcess("mapper", module, words, log, self.environment)
        if self.parameters.get("autostart", True):
            # one that was killed is still announced for a while: what counts is who was not there before
            self.until(
                lambda: (
                    "samples" in self.values
                    and all(now - then for now, then in zip(self._listeners(), before, strict=True))
                ),
                START,
            )
            self.spin(1.0)  # the other direction of discovery

    def _listeners(self) -> list[set]:
        """Who is known to listen to measurements, and to poses."""
        return [
            {
                tuple(found.endpoint_gid)
                for found in self.node.get_subscriptions_info_by_topic(publisher.topic_name)
            }
            for publisher in (self.field, self.odometry)
        ]

    def kill(self) -> None:
        """SIGKILL: no last words."""
        os.kill(self.process.pid, 9)
        self.process.__exit__()
        self.process = None

    def spin(self, seconds: float) -> None:
        """Serve callbacks for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.executor.spin_once(timeout_sec=min(0.05, left))

    def until(self, condition: Callable[[], object], timeout: float = 60.0) -> float:
        """Serve callbacks until condition(); seconds that it took. RuntimeError in vain, with the node's last words."""
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > timeout or (
                self.process is not None and self.process.code is not None
            ):
                raise RuntimeError(
                    f"in vain for {timeout:g} s, exit code "
                    f"{None if self.process is None else self.process.code}:\n"
                    f"{'' if self.process is None else self.process.last_lines()}\n{self.texts[-3:]}"
                )
            self.executor.spin_once(timeout_sec=0.02)
        return time.monotonic() - begin

    def number(self, key: str) -> float:
        """A value of the diagnostics; 0 before it was said."""
        return float(self.values.get(key, 0.0))

    def dropped(self) -> int:
        """All measurements that the node says it dropped."""
        return sum(
            int(float(value)) for key, value in self.values.items() if key.startswith("dropped: ")
        )

    def received(self) -> int:
        """Measurements that its callbacks have seen."""
        return int(self.number(f"{self.sensor.name} received"))

    def unaccounted(self, sent: int) -> int:
        """Measurements of so many that are neither used nor dropped nor waiting, or that are counted twice."""
        used, waiting = (
            int(self.number(key)) for key in ("measurements used", "waiting for a pose")
        )
        return abs(sent - used - self.dropped() - waiting)

    def settle(self, sent: int, timeout: float = 300.0) -> None:
        """Until it has seen `sent` measurements, or no more come, and nothing waits any longer."""
        seen, since = -1, time.monotonic()

        def done() -> bool:
            nonlocal seen, since
            now = (self.received(), self.number("queue"), self.number("samples"), self.dropped())
            if now != seen:
                seen, since = now, time.monotonic()
            quiet = time.monotonic() - since > (2.5 if self.received() >= sent else 8.0)
            return quiet and not self.number("queue")

        self.until(done, timeout)

    def publish(self, t: float, value: float | None = None, pose: bool = True) -> None:
        """The measurement and the pose of t seconds into the drive."""
        x, y = place_at(t)
        if pose:
            self.odometry.publish(self.pose(t, x, y))
        self.field.publish(self.measurement(t, self.sensor.truth(x, y) if value is None else value))

    def measurement(self, t: float, value: float):
        """A message of the sensor, t seconds into the drive."""
        return self.sensor.measurement(t, value)

    @staticmethod
    def pose(t: float, x: float, y: float):
        """Odometry at x, y metres, t seconds into the drive."""
        from nav_msgs.msg import Odometry

        out = Odometry()
        out.header.frame_id, out.child_frame_id = "odom", "base_link"
        out.header.stamp.sec, out.header.stamp.nanosec = divmod(EPOCH + round(t * NS), NS)
        out.pose.pose.position.x, out.pose.pose.position.y = float(x), float(y)
        out.pose.pose.orientation.w = 1.0
        return out

    def drive(
        self,
        start: float,
        seconds: float,
        rate: float = 50.0,
        speed: float = 1.0,
        value: Callable[[float], float] | None = None,
    ) -> int:
        """Publish a drive, `speed` times as fast as it is; how many measurements. value: T, at a time of the drive."""
        begin, n = time.monotonic(), round(seconds * rate)
        for i in range(n):
            t = start + i / rate
            self.publish(t, None if value is None else value(t))
            while (left := begin + i / rate / speed - time.monotonic()) > 0:
                self.executor.spin_once(timeout_sec=left)
        return n

    def until_heard(self, t: float) -> float:
        """Publish, from t seconds into the drive on, until something has arrived and is in the map; where it stopped.

        DDS may know of a listener some time before what is published reaches it.
        """
        end, sent = time.monotonic() + START, 0
        while not self.received():
            if time.monotonic() > end:
                raise RuntimeError(f"nothing of {sent} measurements arrived in {START:g} s")
            sent += self.drive(t, 0.2)
            t += 0.2
        self.settle(sent)
        return t

    def client(self, kind, name: str):
        """A client of a service, ready."""
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = self.node.create_client(kind, name)
        self.until(client.service_is_ready, START)
        return client

    def call(self, kind, name: str, request=None, timeout: float = 120.0):
        """(answer, seconds); RuntimeError where none came."""
        future = self.client(kind, name).call_async(kind.Request() if request is None else request)
        waited = self.until(future.done, timeout)
        return future.result(), waited

    def _on_diagnostics(self, array) -> None:
        for status in array.status:
            if "mapping" in status.name:
                self.reports.append(time.monotonic())
                self.texts.append(status.message)
                self.values.update({v.key: v.value for v in status.values})
        del self.texts[:-1000], self.reports[:-1000]

"""What a user's own node would do beside a mapper: hears its diagnostics, calls its services, says the region."""

from __future__ import annotations

import time

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Point32, PolygonStamped
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

__all__ = ["SurveyWatcher"]


class SurveyWatcher:
    """Diagnostics of everybody, ~/save and ~/survey/start of the node `mapping`, and its ~/region.

    `spin(seconds)` serves the callbacks; nothing happens between calls. domain: ROS_DOMAIN_ID of the session.
    """

    def __init__(self, domain: int, name: str = "survey_watcher"):
        rclpy.init(args=[], domain_id=domain, signal_handler_options=SignalHandlerOptions.NO)
        self.node = Node(name)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self.diagnostics: dict[str, dict[str, str]] = {}  # status name -> values
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 100)
        self._clients = {
            name: self.node.create_client(Trigger, f"mapping/{name}")
            for name in ("save", "survey/start")
        }
        self._region = self.node.create_publisher(PolygonStamped, "mapping/region", 1)

    def close(self) -> None:
        """Leave the ROS graph."""
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown()

    def spin(self, seconds: float) -> None:
        """Serve callbacks for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=left)

    def wait(self, check, deadline: float, failure: str) -> None:
        """Serve callbacks for a moment; RuntimeError with that text after the deadline (monotonic s)."""
        check()
        if time.monotonic() > deadline:
            raise RuntimeError(failure)
        self._executor.spin_once(timeout_sec=0.1)

    def save(self, timeout: float, check=lambda: None) -> str:
        """Have the mapper save its map; the text of its answer.

        check: called several times a second while waiting; it may raise.

        Raises:
            RuntimeError: it fails or does not answer.
        """
        return self._call("save", timeout, check)

    def start_survey(self, timeout: float, check=lambda: None) -> str:
        """Have the mapper begin its survey; as save."""
        return self._call("survey/start", timeout, check)

    def _call(self, name: str, timeout: float, check) -> str:
        client, deadline = self._clients[name], time.monotonic() + timeout
        while not client.service_is_ready():
            self.wait(check, deadline, f"the service {client.srv_name} did not appear")
        future = client.call_async(Trigger.Request())
        while not future.done():
            self.wait(check, deadline, f"the service {client.srv_name} did not answer in time")
        if not future.result().success:
            raise RuntimeError(f"{client.srv_name}: {future.result().message}")
        return future.result().message

    def say_region(self, corners, timeout: float, check=lambda: None) -> None:
        """Publish the corners (x, y) m of the area to survey, once the mapper listens. RuntimeError where it does not."""
        deadline = time.monotonic() + timeout
        while self._region.get_subscription_count() == 0:
            self.wait(check, deadline, f"nobody listens to {self._region.topic_name}")
        message = PolygonStamped()
        message.polygon.points = [Point32(x=float(x), y=float(y)) for x, y in corners]
        self._region.publish(message)

    def values(self, status: str) -> dict[str, str]:
        """Newest values of a diagnostic status; empty before the first."""
        return self.diagnostics.get(status, {})

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics[status.name] = {v.key: v.value for v in status.values}

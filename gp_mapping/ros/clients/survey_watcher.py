"""A client, as a user's own node would be, of a mapper's diagnostics, services and region."""

from __future__ import annotations

import math
import time

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Point32, PolygonStamped
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

__all__ = ["SurveyWatcher"]

_ANSWER = 5.0  # s after which the answer to a start counts as lost
_SURVEY = "mapping: survey"  # name in /diagnostics


class SurveyWatcher:
    """Diagnostics of all nodes; ~/save, ~/survey/start and ~/region of the node `mapping`.

    `spin(seconds)` serves the callbacks; nothing happens between calls.

    Args:
        domain: ROS_DOMAIN_ID of the session.
        name: Of this node.

    Attributes:
        diagnostics: Name of a status -> its newest values.
    """

    def __init__(self, domain: int, name: str = "survey_watcher"):
        rclpy.init(args=[], domain_id=domain, signal_handler_options=SignalHandlerOptions.NO)
        self.node = Node(name)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)

        self.diagnostics: dict[str, dict[str, str]] = {}
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
        """Serve callbacks for that many seconds."""
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=remaining)

    def wait(self, check, deadline: float, failure: str) -> None:
        """Serve callbacks for a moment, once, as the body of a loop that waits.

        Args:
            check: Called first; it may raise.
            deadline: Monotonic s.
            failure: Text of the error.

        Raises:
            RuntimeError: The deadline is over.
        """
        check()
        if time.monotonic() > deadline:
            raise RuntimeError(failure)
        self._executor.spin_once(timeout_sec=0.1)

    def save(self, timeout: float, check=lambda: None) -> str:
        """Have the mapper save its map; returns the text of its answer.

        Args:
            timeout: s.
            check: Called several times a second while waiting; it may raise.

        Raises:
            RuntimeError: The mapper fails or does not answer.
        """
        return self._call("save", timeout, check)

    def start_survey(self, timeout: float, check=lambda: None) -> str:
        """Have the mapper begin its survey; returns the text of its answer.

        A service may be called before the way back is there, and its answer is then lost. So
        diagnostics count as an answer, too, and without either the mapper is asked again.

        Args:
            timeout: s.
            check: Called several times a second while waiting; it may raise.

        Raises:
            RuntimeError: The mapper fails or does not answer.
        """
        return self._call("survey/start", timeout, check, _ANSWER)

    def _call(self, name: str, timeout: float, check, again: float = math.inf) -> str:
        """Call a std_srvs/Trigger service of the mapper; returns the text of its answer.

        again: s after which it is called once more, if it is not seen to have been heard.
        """
        client, deadline = self._clients[name], time.monotonic() + timeout
        while not client.service_is_ready():
            self.wait(check, deadline, f"the service {client.srv_name} did not appear")

        future, asked = client.call_async(Trigger.Request()), time.monotonic()
        while not future.done():
            self.wait(check, deadline, f"the service {client.srv_name} did not answer in time")
            if time.monotonic() - asked > again and not future.done():
                if self.values(_SURVEY).get("phase") == "running":
                    return "the survey has begun"
                client.remove_pending_request(future)
                future, asked = client.call_async(Trigger.Request()), time.monotonic()

        if not future.result().success:
            raise RuntimeError(f"{client.srv_name}: {future.result().message}")
        return future.result().message

    def publish_region(self, corners, timeout: float, check=lambda: None) -> None:
        """Publish the area to survey, once the mapper listens.

        Args:
            corners: (x, y), m, in the map's frame.
            timeout: s.
            check: As in save.

        Raises:
            RuntimeError: The mapper does not listen in time.
        """
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

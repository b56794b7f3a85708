"""The action SurveyArea: a goal sets the survey up and begins it, feedback tells how far it is, cancelling ends it."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any

from geometry_msgs.msg import PolygonStamped
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from std_srvs.srv import Trigger

from gp_mapping.errors import named, one_line
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.ros.mapper.descriptors import ParameterError
from gp_mapping.ros.wire.messages import message_class

__all__ = ["KIND", "SurveyAction"]

KIND = "gp_mapping_interfaces/action/SurveyArea"
_FEEDBACK = 1.0  # s between two words of it
_ANSWER = 10.0  # s in which the mapper answers a call
_MISSING = (
    "serve_action needs gp_mapping_interfaces, which is not installed here; build it beside gp_mapping "
    "(interfaces/gp_mapping_interfaces), or leave serve_action false"
)


class SurveyAction:
    """Serves ~/survey_area of an explorer, one goal at a time; `tell` carries it on.

    node: the explorer.  mapping: name of the mapper.  Raises ParameterError where the action is not installed.
    """

    def __init__(self, node, mapping: str):
        self._type = message_class(KIND)
        if self._type is None:
            raise ParameterError(_MISSING)
        self._node, self._said_at = node, -math.inf
        self._goal = self._handle = self._steps = self._call = None
        self._until = -math.inf  # monotonic s up to which the mapper's answer is waited for
        self._region = node.create_publisher(PolygonStamped, f"{mapping}/region", 10)
        self._set = node.create_client(SetParameters, f"{mapping}/set_parameters")
        self._start, self._stop = (
            node.create_client(Trigger, f"{mapping}/survey/{name}") for name in ("start", "stop")
        )
        self._server = ActionServer(
            node,
            self._type,
            "~/survey_area",
            lambda handle: self._type.Result(),
            goal_callback=self._look_at,
            handle_accepted_callback=self._take,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
        )

    def destroy(self) -> None:
        """Take the server away."""
        self._server.destroy()

    def _look_at(self, goal) -> GoalResponse:
        wrong = (
            "another goal is being carried out"
            if self._goal is not None
            else _wrong(goal, self._node.frame)
        )
        if wrong:
            self._node.get_logger().warning(f"the goal is refused: {wrong}")
            return GoalResponse.REJECT
        self._goal = goal
        return GoalResponse.ACCEPT

    def _take(self, handle) -> None:
        """Not executed before its end: what has to be waited for would hold up everything else in this thread."""
        self._handle, self._steps, self._call, self._said_at = (
            handle,
            self._beginning(handle.request),
            None,
            -math.inf,
        )

    def _beginning(self, goal) -> Generator[tuple, Any, str]:
        """Client and request of each call to the mapper, for its answer, None where there is none; why it cannot be."""
        values = {
            "plan_budget": goal.budget_metres,
            "plan_budget_time": goal.budget_seconds,
            "target_stddev": goal.target_stddev,
        }
        values |= {"target_share": goal.target_share} if goal.target_stddev else {}
        request = SetParameters.Request(
            parameters=[
                Parameter(
                    name=name,
                    value=ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=value),
                )
                for name, value in values.items()
            ]
        )

        yield self._stop, Trigger.Request()
        if not self._region.get_subscription_count():
            return f"nobody listens to {self._region.topic_name}"
        self._region.publish(
            goal.region
        )  # before the next two calls: what is planned first is inside it
        answer = yield self._set, request
        if answer is None:
            return f"{self._set.srv_name} does not answer"
        if wrong := [result.reason for result in answer.results if not result.successful]:
            return one_line(wrong[0], 300)
        if (yield self._start, Trigger.Request()) is None:
            return f"{self._start.srv_name} does not answer"
        self._node.begun()
        return ""

    def tell(self, phase: str, told: dict[str, str], plan, state: str, silent: str = "") -> None:
        """What the mapper and the explorer say now; called again and again.

        phase: of the survey.  told: of the survey's diagnostics.  plan: nav_msgs/Path.  state: of the explorer.
        silent: why nothing more is to be expected of the mapper; '' where something is.
        """
        handle = self._handle
        if handle is None:
            return
        if handle.is_cancel_requested:
            self._stop.call_async(Trigger.Request())
            self._end("canceled", "it was cancelled", told)
        elif self._steps is not None:
            self._go_on()
        elif phase in ("done", "idle"):
            self._end(
                "succeed" if phase == "done" else "abort",
                told.get("reason", f"the survey is {phase}"),
                told,
            )
        elif silent:
            self._end("abort", silent, told)
        elif told and time.monotonic() - self._said_at > _FEEDBACK:
            self._said_at = time.monotonic()
            handle.publish_feedback(
                self._type.Feedback(
                    state=state,
                    plan=plan,
                    driven=_number(told, "driven (m)"),
                    metres_left=_number(told, "budget left (m)", math.inf),
                    seconds_left=_number(told, "budget left (s)", math.inf),
                    stddev_now=_number(told, "stddev now"),
                    stddev_then=_number(told, "stddev at the plan's end"),
                    share_done=_number(told, "share at target_stddev"),
                )
            )

    def _go_on(self) -> None:
        """The next step of beginning, where the one before is answered or nobody waits for it any longer."""
        call, self._call = self._call, None
        if call is not None and not call.done() and time.monotonic() < self._until:
            self._call = call
            return
        try:
            client, request = self._steps.send(
                call.result() if call is not None and call.done() else None
            )
        except StopIteration as over:
            self._steps = None
            if over.value:
                self._end("abort", over.value, {})
            return
        self._until = time.monotonic() + _ANSWER
        self._call = client.call_async(request) if client.service_is_ready() else None

    def _end(self, how: str, reason: str, told: dict[str, str]) -> None:
        """how: the goal's last transition."""
        handle, self._handle, self._goal, self._steps = self._handle, None, None, None
        result = self._result(reason, told)

        def over(handle):
            getattr(handle, how)()
            return result

        handle.execute(over)

    def _result(self, reason: str, told: dict[str, str]):
        self._node.get_logger().info(f"the goal is over: {reason}")
        return self._type.Result(
            reason=reason,
            driven=_number(told, "driven (m)"),
            stddev=_number(told, "stddev now"),
            share_done=_number(told, "share at target_stddev"),
        )


def _number(told: dict[str, str], key: str, otherwise: float = math.nan) -> float:
    try:
        return float(told.get(key, otherwise))
    except ValueError:
        return otherwise


def _wrong(goal, frame: str) -> str:
    """What is wrong with a goal, in words; empty where nothing is. frame: of the robot's poses, "" before the first."""
    for name in ("budget_metres", "budget_seconds", "target_stddev", "target_share"):
        if not (math.isfinite(value := getattr(goal, name)) and value >= 0.0):
            return f"{name} is {value}, expected 0 or more"
    if goal.target_stddev and not 0.0 < goal.target_share <= 1.0:
        return f"target_share is {goal.target_share}, expected above 0 and at most 1"
    given = goal.region.header.frame_id.lstrip("/")
    if given and given != frame.lstrip("/"):
        return f"region is in frame {named(given)} and the robot's poses in {frame!r}"
    corners = [(point.x, point.y) for point in goal.region.polygon.points]
    try:
        if corners:
            Polygon.of(corners, "", "region")
    except ValueError as error:
        return one_line(error, 300)
    return ""

"""The action SurveyArea: a goal sets a survey up and starts it, cancelling stops it."""

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
_FEEDBACK = 1.0  # s between two feedback messages
_ANSWER = 10.0  # s within which the mapper must answer a call
_MISSING = (
    "serve_action needs gp_mapping_interfaces, which is not installed here; build it beside gp_mapping "
    "(interfaces/gp_mapping_interfaces), or leave serve_action false"
)


class SurveyAction:
    """Serves ~/survey_area of an explorer, one goal at a time; calls of `advance` advance it.

    Args:
        node: The explorer.
        mapping: Name of the mapper.

    Raises:
        ParameterError: The action's package is not installed.
    """

    def __init__(self, node, mapping: str):
        self._type = message_class(KIND)
        if self._type is None:
            raise ParameterError(_MISSING)
        self._node, self._feedback_at = node, -math.inf
        # of the goal being carried out: request, handle, remaining start-up steps, open call
        self._goal = self._handle = self._steps = self._call = None
        self._answer_deadline = -math.inf  # monotonic s
        # of the survey of a goal that is over, while the mapper has not said that it is stopped
        self._to_be_stopped, self._stop_call = False, None

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
            goal_callback=self._on_goal,
            handle_accepted_callback=self._on_accepted,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
        )

    @property
    def under_way(self) -> bool:
        """Whether a goal is being carried out: nothing else is driven."""
        return self._handle is not None and self._steps is None

    def destroy(self) -> None:
        """Remove the action server."""
        self._server.destroy()

    def _on_goal(self, goal) -> GoalResponse:
        """Accept a goal, or log what is wrong with it and reject it."""
        fault = (
            "another goal is being carried out"
            if self._goal is not None
            else _fault_of(goal, self._node.frame)
        )

        if fault:
            self._node.get_logger().warning(f"the goal is refused: {fault}")
            return GoalResponse.REJECT

        self._goal = goal
        return GoalResponse.ACCEPT

    def _on_accepted(self, handle) -> None:
        """Begin an accepted goal; `execute` is called only at its end.

        Executing means to wait, which would block all other callbacks in this thread.
        """
        self._handle, self._steps, self._call, self._feedback_at = (
            handle,
            self._start_steps(handle.request),
            None,
            -math.inf,
        )
        self._to_be_stopped = False  # which is the first step

    def _start_steps(self, goal) -> Generator[tuple, Any, str]:
        """Set a survey up and start it, as a generator of calls to the mapper.

        Yields:
            Client and request of a call; it is sent the answer, or None where there was none.

        Returns:
            Why the survey cannot be started; '' where it has been.
        """
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
        # before the next two calls, so that the first plan lies inside the region
        self._region.publish(goal.region)

        answer = yield self._set, request
        if answer is None:
            return f"{self._set.srv_name} does not answer"
        if reasons := [result.reason for result in answer.results if not result.successful]:
            return one_line(reasons[0], 300)

        answer = yield self._start, Trigger.Request()
        if answer is None:
            return f"{self._start.srv_name} does not answer"
        if not answer.success:
            return one_line(answer.message or f"{self._start.srv_name} refuses", 300)
        self._node.begun()
        return ""

    def advance(
        self, phase: str, survey_values: dict[str, str], plan, state: str, silent: str = ""
    ) -> None:
        """Advance the goal by the newest state of mapper and explorer; called again and again.

        Args:
            phase: Of the survey.
            survey_values: Of the survey's diagnostics.
            plan: nav_msgs/Path.
            state: Of the explorer.
            silent: Why nothing more is to be expected of the mapper; '' where something is.
        """
        handle = self._handle
        if handle is None:
            self._have_it_stopped()
            return

        if handle.is_cancel_requested:
            self._end("canceled", "it was cancelled", survey_values)
        elif self._steps is not None:
            self._continue_start()
        elif phase in ("done", "idle"):
            self._end(
                "succeed" if phase == "done" else "abort",
                survey_values.get("reason")
                or "the mapper has no survey any more: was it started anew?",
                survey_values,
            )
        elif silent:
            self._end("abort", silent, survey_values)
        elif survey_values and time.monotonic() - self._feedback_at > _FEEDBACK:
            self._feedback_at = time.monotonic()
            handle.publish_feedback(
                self._type.Feedback(
                    state=state,
                    plan=plan,
                    driven=_number(survey_values, "driven (m)"),
                    metres_left=_number(survey_values, "budget left (m)", math.inf),
                    seconds_left=_number(survey_values, "budget left (s)", math.inf),
                    stddev_now=_number(survey_values, "stddev now"),
                    stddev_then=_number(survey_values, "stddev at the plan's end"),
                    share_done=_number(survey_values, "share at target_stddev"),
                )
            )

    def _continue_start(self) -> None:
        """Take the next start-up step, once the call before is answered or has timed out."""
        call, self._call = self._call, None
        if call is not None and not call.done() and time.monotonic() < self._answer_deadline:
            self._call = call
            return

        try:
            client, request = self._steps.send(
                call.result() if call is not None and call.done() else None
            )
        except StopIteration as end:
            self._steps = None
            if end.value:
                self._end("abort", end.value, {})
            return

        self._answer_deadline = time.monotonic() + _ANSWER
        self._call = client.call_async(request) if client.service_is_ready() else None

    def _end(self, transition: str, reason: str, survey_values: dict[str, str]) -> None:
        """End the goal; transition: method of its handle (succeed, abort, canceled)."""
        handle, self._handle, self._goal, self._steps = self._handle, None, None, None
        self._to_be_stopped, self._stop_call = transition != "succeed", None
        self._have_it_stopped()
        result = self._result(reason, survey_values)

        def end(handle):
            """Make the transition of the goal; its result goes to the client."""
            getattr(handle, transition)()
            return result

        handle.execute(end)

    def _have_it_stopped(self) -> None:
        """Have the mapper stop a survey that nobody wants any more.

        It is asked again until it has answered: it may be out of reach, and come back.
        """
        call, now = self._stop_call, time.monotonic()
        if call is not None and call.done():
            self._to_be_stopped, self._stop_call = False, None
        if not self._to_be_stopped or (call is not None and now < self._answer_deadline):
            return
        if call is not None:
            self._stop.remove_pending_request(call)
        ready = self._stop.service_is_ready()
        self._stop_call = self._stop.call_async(Trigger.Request()) if ready else None
        self._answer_deadline = now + _ANSWER

    def _result(self, reason: str, survey_values: dict[str, str]):
        """Log why the goal is over, and make its result."""
        self._node.get_logger().info(f"the goal is over: {reason}")
        return self._type.Result(
            reason=reason,
            driven=_number(survey_values, "driven (m)"),
            stddev=_number(survey_values, "stddev now"),
            share_done=_number(survey_values, "share at target_stddev"),
        )


def _number(survey_values: dict[str, str], key: str, otherwise: float = math.nan) -> float:
    """A diagnostic value as a number."""
    try:
        return float(survey_values.get(key, otherwise))
    except ValueError:
        return otherwise


def _fault_of(goal, frame: str) -> str:
    """What is wrong with a goal, in words; '' where nothing is.

    Args:
        goal: Of the action.
        frame: Of the robot's poses; '' before the first.
    """
    for name in ("budget_metres", "budget_seconds", "target_stddev", "target_share"):
        if not (math.isfinite(value := getattr(goal, name)) and value >= 0.0):
            return f"{name} is {value}, expected 0 or more"
    if goal.target_stddev and not 0.0 < goal.target_share <= 1.0:
        return f"target_share is {goal.target_share}, expected above 0 and at most 1"

    region_frame = goal.region.header.frame_id.lstrip("/")
    if region_frame and region_frame != frame.lstrip("/"):
        return f"region is in frame {named(region_frame)} and the robot's poses in {frame!r}"

    corners = [(point.x, point.y) for point in goal.region.polygon.points]
    try:
        if corners:
            Polygon.from_corners(corners, "", "region")
    except ValueError as error:
        return one_line(error, 300)
    return ""

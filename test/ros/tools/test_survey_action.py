"""The action SurveyArea, where gp_mapping_interfaces is built: a goal is surveyed, refused, cancelled."""

import math
import os
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy")

from dds_helpers import Listener, ros_run
from geometry_msgs.msg import Point32, PolygonStamped
from rclpy.action import ActionClient
from rclpy.node import Node
from std_srvs.srv import Trigger
from test_explore import MAPPER, SIMULATOR, TOPICS

from gp_mapping.ros.explorer_node import main
from gp_mapping.ros.tools import survey_action
from gp_mapping.ros.wire.messages import message_class

DOMAIN, REFUSED = (93 + (os.getpid() + i) % 8 for i in range(2))
SurveyArea = message_class("gp_mapping_interfaces/action/SurveyArea")
needs = pytest.mark.skipif(SurveyArea is None, reason="gp_mapping_interfaces is not installed")


@pytest.mark.skipif(SurveyArea is not None, reason="gp_mapping_interfaces is installed")
def test_without_the_interfaces_it_says_what_is_missing(capsys):
    assert main(["--ros-args", "-p", "serve_action:=true"]) == 2
    assert "build it beside gp_mapping" in capsys.readouterr().err


class Client:
    """A service of a mapper that answers when it is told to."""

    def __init__(self, name: str, calls: list):
        self.srv_name, self._calls = name, calls

    def service_is_ready(self) -> bool:
        return True

    def call_async(self, request) -> Future:
        future = Future()
        self._calls.append((self.srv_name.rsplit("/", 1)[-1], future))
        return future

    def remove_pending_request(self, future) -> None:
        future.cancel()


@pytest.mark.parametrize("end", ["cancelled", "silent"])
def test_a_survey_that_nobody_wants_any_more_is_not_driven_and_is_stopped(monkeypatch, end):
    """Without an answer the mapper is out of reach: it is asked again, until it hears."""
    record = lambda **values: SimpleNamespace(**values)  # noqa: E731
    kind = SimpleNamespace(Result=record, Feedback=record)
    monkeypatch.setattr(survey_action, "message_class", lambda _: kind)
    monkeypatch.setattr(survey_action, "ActionServer", lambda *args, **more: served.update(more))
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(survey_action, "time", clock)
    now, calls, told, served = [100.0], [], [], {}
    region = SimpleNamespace(get_subscription_count=lambda: 1, publish=lambda _: None)
    node = SimpleNamespace(
        frame="odom",
        create_publisher=lambda *args: region,
        create_client=lambda kind, name: Client(name, calls),
        get_logger=lambda: SimpleNamespace(info=told.append, warning=told.append),
        begun=lambda: None,
    )
    action = survey_action.SurveyAction(node, "mapping")
    goal = SimpleNamespace(
        region=PolygonStamped(),
        budget_metres=4.0,
        budget_seconds=0.0,
        target_stddev=0.0,
        target_share=0.0,
    )
    ended = []
    handle = SimpleNamespace(
        request=goal,
        is_cancel_requested=False,
        execute=lambda transition: ended.append(transition(handle)),
        publish_feedback=lambda _: None,
        **{name: lambda: None for name in ("succeed", "abort", "canceled")},
    )

    def advance(silent: str = "") -> None:
        action.advance("running", {"driven (m)": "1.0"}, None, "driving", silent)

    served["goal_callback"](goal)
    served["handle_accepted_callback"](handle)
    for answer in (Trigger.Response(), SimpleNamespace(results=[]), Trigger.Response(success=True)):
        advance()
        assert not action.under_way
        calls[-1][1].set_result(answer)
    advance()
    assert action.under_way and [name for name, _ in calls] == ["stop", "set_parameters", "start"]

    calls.clear()
    handle.is_cancel_requested = end == "cancelled"
    advance("the mapper has said nothing for 10 s" if end == "silent" else "")
    assert not action.under_way and len(ended) == 1 and ended[0].driven == 1.0
    for later, count in ((5.0, 1), (11.0, 2), (12.0, 2), (30.0, 3)):
        now[0] = 100.0 + later
        advance()
        assert [name for name, _ in calls] == ["stop"] * count
    assert calls[0][1].cancelled()
    calls[-1][1].set_result(Trigger.Response(success=True))
    now[0] = 200.0
    advance()
    assert len(calls) == 3


def corners(*xy) -> list[Point32]:
    return [Point32(x=float(x), y=float(y)) for x, y in xy]


@needs
def test_a_goal_is_surveyed_with_feedback_others_are_refused_and_a_cancelled_one_stands_still(
    tmp_path,
):
    run = {"domain": DOMAIN, "log_dir": tmp_path}
    with (
        Listener(DOMAIN, TOPICS) as listener,
        ros_run(
            "gp_mapping.ros.mapping_node", *MAPPER, f"save_directory:={tmp_path}", **run
        ) as mapper,
        ros_run("gp_mapping.ros.simulator_node", *SIMULATOR, **run) as simulator,
        ros_run(
            "gp_mapping.ros.explorer_node",
            "serve_action:=true",
            "drive:=cmd_vel",
            "speed:=0.4",
            "turn_rate:=1.8",
            "acceleration:=0.7",
            "stale_after:=3.0",
            "give_up_after:=10.0",
            **run,
        ) as explorer,
    ):
        client = ActionClient(listener.node, SurveyArea, "/explorer/survey_area")
        told = []

        def send(**changes):
            goal = SurveyArea.Goal(budget_metres=4.0)
            goal.region.polygon.points = changes.pop(
                "corners", corners((0.2, 0.2), (1.8, 0.2), (1.8, 2.0), (0.2, 2.0))
            )
            goal.region.header.frame_id = changes.pop("frame", "odom")
            for name, value in changes.items():
                setattr(goal, name, value)
            future = client.send_goal_async(goal, lambda message: told.append(message.feedback))
            assert listener.spin_until(future.done, 30.0), explorer.output
            return future.result()

        said = lambda: explorer.output + mapper.output + simulator.output  # noqa: E731
        assert listener.spin_until(
            lambda: client.server_is_ready() and len(listener.got["/odometry"]) > 100, 90.0
        ), said()
        assert not send(corners=corners((0, 0), (1, 1), (1, 0), (0, 1))).accepted, (
            "it crosses itself"
        )
        assert not send(frame="moon").accepted and not send(budget_metres=-1.0).accepted
        handle = send()
        assert handle.accepted and not send().accepted, "one at a time"
        ended = handle.get_result_async()
        assert listener.spin_until(ended.done, 150.0), said()
        answer = ended.result()
        assert answer.status == 4 and "budget" in answer.result.reason, said()
        assert 2.0 < answer.result.driven < 1.05 * 4.0 and answer.result.stddev > 0.0
        assert any(len(t.plan.poses) > 2 for t in told) and any(t.state == "driving" for t in told)
        assert all(t.driven <= 4.2 for t in told) and math.isinf(told[-1].seconds_left)
        track = [
            (m.pose.pose.position.x, m.pose.pose.position.y) for m in listener.got["/odometry"]
        ]
        assert max(x for x, _ in track) < 1.9 and max(y for _, y in track) < 2.1, (
            "it kept to its region"
        )

        handle = send()
        count = len(told)
        assert handle.accepted and listener.spin_until(
            lambda: any(t.driven > 0.3 for t in told[count:]), 60.0
        ), said()
        cancelled, ended = handle.cancel_goal_async(), handle.get_result_async()
        assert listener.spin_until(lambda: cancelled.done() and ended.done(), 30.0), said()
        assert ended.result().status == 5 and "cancelled" in ended.result().result.reason
        listener.spin_until(lambda: False, 2.0)
        before = listener.got["/odometry"][-1].pose.pose.position
        listener.spin_until(lambda: False, 1.0)
        after = listener.got["/odometry"][-1].pose.pose.position
        assert math.dist((before.x, before.y), (after.x, after.y)) < 0.01, "it stands still"

        count, handle = len(told), send()
        assert handle.accepted and listener.spin_until(
            lambda: any(t.driven > 0.1 for t in told[count:]), 60.0
        ), said()
        mapper.popen.kill()  # nobody tells any more how far it is
        ended = handle.get_result_async()
        assert listener.spin_until(ended.done, 60.0), said()
        assert ended.result().status == 6 and "has said nothing" in ended.result().result.reason
        assert "Traceback" not in said()
        for process in (explorer, simulator):
            process.interrupt()
        listener.spin_through(explorer, 60.0)


@needs
def test_a_start_that_the_mapper_refuses_ends_the_goal_with_its_reason(tmp_path):
    """The mapper is a node that takes everything but the start, as one does whose calls are too many."""

    def answer(request, response, success: bool):
        response.success, response.message = success, "" if success else "7 calls wait already"
        return response

    explorer = ros_run(
        "gp_mapping.ros.explorer_node", "serve_action:=true", domain=REFUSED, log_dir=tmp_path
    )
    with Listener(REFUSED, {}) as listener, explorer:
        mapper = Node("mapping", context=listener.context, allow_undeclared_parameters=True)
        listener.executor.add_node(mapper)
        mapper.create_subscription(PolygonStamped, "mapping/region", lambda _: None, 10)
        for name, success in (("stop", True), ("start", False)):
            mapper.create_service(
                Trigger, f"mapping/survey/{name}", partial(answer, success=success)
            )
        client = ActionClient(listener.node, SurveyArea, "/explorer/survey_area")
        assert listener.spin_until(client.server_is_ready, 60.0), explorer.output
        sent = client.send_goal_async(SurveyArea.Goal(budget_metres=4.0))
        assert listener.spin_until(sent.done, 30.0), explorer.output
        ended = sent.result().get_result_async()
        assert listener.spin_until(ended.done, 30.0), explorer.output
        assert ended.result().status == 6 and ended.result().result.reason == "7 calls wait already"
        explorer.interrupt()
        assert listener.spin_through(explorer, 30.0) == 0
        mapper.destroy_node()

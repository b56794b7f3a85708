"""A start whose answer is lost: diagnostics tell that it was heard, or the mapper is asked again."""

import os
import time

import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node
from ros_helpers import Peer
from std_srvs.srv import Trigger

from gp_mapping.ros.clients import survey_watcher
from gp_mapping.ros.clients.survey_watcher import SurveyWatcher


@pytest.fixture
def watcher(monkeypatch):
    monkeypatch.setattr(survey_watcher, "_ANSWER", 0.3, raising=False)
    made = SurveyWatcher(int(os.environ["ROS_DOMAIN_ID"]))
    yield made
    made.close()


def status(phase):
    values = [KeyValue(key="phase", value=phase)]
    return DiagnosticArray(status=[DiagnosticStatus(name="mapping: survey", values=values)])


@pytest.mark.parametrize("heard", [True, False])
def test_a_start_whose_answer_is_lost_is_no_failure(watcher, heard):
    with Peer() as peer:
        # a node that no executor serves: it gets the question and never answers
        silent = Node("silent", context=peer.node.context)
        silent.create_service(Trigger, "mapping/survey/start", lambda *_: None)
        diagnostics = peer.node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        begun, answering = time.monotonic(), []

        def answer(request, response):
            response.success, response.message = True, "asked again"
            return response

        def meanwhile():
            """What else goes on: the silent node goes with the question, and the next one answers."""
            peer.executor.spin_once(timeout_sec=0.0)
            diagnostics.publish(status("running" if heard else "idle"))
            if not heard and not answering and time.monotonic() > begun + 1.0:
                silent.destroy_node()
                answering.append(peer.node.create_service(Trigger, "mapping/survey/start", answer))

        said = watcher.start_survey(15.0, meanwhile)
        if heard:
            silent.destroy_node()
    assert said == ("the survey has begun" if heard else "asked again")

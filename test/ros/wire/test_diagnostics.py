"""Diagnostics as a message: every value is text, and each warning stands by itself."""

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node
from rclpy.serialization import serialize_message
from ros_helpers import spin_until
from std_msgs.msg import Header

from gp_mapping.ros.mapper import namesakes
from gp_mapping.ros.wire.diagnostics import to_array
from gp_mapping.ros.wire.outbound import Limits
from gp_mapping.runtime.health import Area, Health
from gp_mapping.runtime.worker_results import Status


def test_as_a_diagnostic_array_every_value_is_text():
    status = Status(
        report={"samples": 10, "hyperparameters": {"lengthscale": 0.5}},
        received={},
        used=10,
        drops={},
        explanations={},
        warnings=[],
        waiting=0,
        last_stamp=None,
        queue=0,
        counts={},
        timings={},
        made=100.0,
    )
    areas = Health(2.0).areas(
        now=100.0,
        status=status,
        watches=[],
        paused=False,
        notes=[],
        published=0,
        queue=0,
        limits=Limits(1e-6, 2e-6, 0.0, 1e-6),
        stamp_age=None,
    )
    array = to_array(areas, "/robot/mapping", Header().stamp)
    serialize_message(array)
    assert [s.name for s in array.status] == [
        "robot/mapping: input",
        "robot/mapping: map",
        "robot/mapping: timing",
    ]
    values = {v.key: v.value for s in array.status for v in s.values}
    assert values["hyperparameters.lengthscale"] == "0.5" and values["mean_high (SI)"] == "2e-06"
    assert array.status[0].level == DiagnosticStatus.OK and float(values["memory (MB)"]) > 10


def test_warnings_are_listed_one_by_one():
    area = Area("input", warnings=["a; with b", "c"], values={"n": 3})
    values = {v.key: v.value for v in to_array([area], "/mapping", Header().stamp).status[0].values}
    assert values == {"n": "3", "warning 1": "a; with b", "warning 2": "c"}


def test_another_node_of_the_same_name_is_said_once_it_stays(node_of, monkeypatch):
    """They answer each other's services and write over each other's files."""
    monkeypatch.setattr(namesakes, "_LASTS", 0.2)
    node, peer = node_of(namespace="/twin")  # no test before has left such a node behind
    assert namesakes.Namesakes(node).note(0.0) == ""
    other = Node("mapping", context=peer.context, namespace="/twin")
    said = "another node is named /twin/mapping, too"
    spin_until(node, peer, lambda: any(said in text for text in peer.messages))
    other.destroy_node()
    spin_until(node, peer, lambda: namesakes.Namesakes(node).count == 1)
    peer.messages.clear()
    spin_until(node, peer, lambda: peer.messages)
    assert said not in "".join(peer.messages)


def test_reports_come_as_often_as_is_asked_for(node_of):
    node, _ = node_of(diagnostics_period=0.5)
    periods = [t.timer_period_ns for t in node.timers if t.callback == node.publish_health]
    assert periods == [500_000_000]

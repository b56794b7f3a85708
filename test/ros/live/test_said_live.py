"""What a node says of its inputs and of its first map, and that live rates count from now on."""

import pytest
from nav_msgs.msg import OccupancyGrid
from rclpy.parameter import Parameter
from ros_helpers import ask, fill, settle, spin, spin_until
from std_srvs.srv import Trigger

from gp_mapping.ros.mapper.inputs import InputPort


def warnings(node, peer) -> list[str]:
    """The warnings of the node's next report, not of another node that has not ended yet."""
    peer.mapper = node.get_fully_qualified_name().lstrip("/")
    before = peer.statuses
    node.publish_health()
    spin_until(node, peer, lambda: peer.statuses >= before + 3)
    return peer.messages[-3:]


def test_a_rate_that_is_raised_counts_at_once(node_of):
    """Not only when the period of before is over, which may be a hundred seconds."""
    node, peer = node_of(publish_rate=0.01)
    means = peer.listen(OccupancyGrid, "/mapping/mean")
    spin_until(node, peer, lambda: node.count_subscribers("/mapping/mean"))
    fill(node, 2.0)
    spin_until(node, peer, lambda: means)
    fill(node, 1.0, start=2.1)
    settle(node, peer)
    spin(node, peer, 0.3)
    assert len(means) == 1
    assert node.set_parameters([Parameter("publish_rate", value=20.0)])[0].successful
    spin_until(node, peer, lambda: len(means) > 1, 10.0)


def test_a_saved_map_that_is_not_resumed_is_said_until_the_map_is_cleared(node_of, tmp_path):
    where = {"save_directory": str(tmp_path), "resume": True}
    before, peer = node_of(namespace="/before", save_on_exit=True, **where)
    fill(before, 2.0)
    before.cleanup()
    again, _ = node_of(kernel="matern32", **where)
    (said,) = [text for text in warnings(again, peer) if "not resumed" in text]
    assert "write kernel: matern52" in said
    assert ask(again, peer, Trigger, "/mapping/clear").success
    assert not any("not resumed" in text for text in warnings(again, peer))


def test_an_inactive_node_is_not_called_paused_and_what_it_did_not_hear_is_no_silence(node_of):
    node, peer = node_of(silence_warning=0.5)
    fill(node, 0.2)
    node.deactivate()
    spin(node, peer, 0.7)
    assert not any("paused" in text or "no odometry" in text for text in warnings(node, peer))
    node.activate()
    assert not any("no odometry" in text for text in warnings(node, peer))
    spin(node, peer, 0.7)
    assert any("no odometry for" in text for text in warnings(node, peer))


@pytest.mark.parametrize("alone", [False, True])
def test_a_second_type_on_a_topic_is_named_or_taken_where_it_is_the_only_one(
    node_of, monkeypatch, alone
):
    """DDS connects publishers of the subscribed type, and says nothing of others."""
    node, _ = node_of(sensor="scalar", field_unit="ppm")
    port = next(port for port in node.inputs.ports if port.role == "measurement")
    kinds = ["std_msgs/msg/Float32"]
    monkeypatch.setattr(
        type(node.inputs), "_published_types", lambda self, of: kinds if of is port else []
    )
    node.inputs.look()
    assert port.type == kinds[0] and isinstance(port, InputPort)
    kinds[:] = ["std_msgs/msg/Float64"] if alone else [*kinds, "std_msgs/msg/Float64"]
    node.inputs.check_publishers()
    node.inputs.look()
    if alone:
        assert port.type == kinds[0] and port.subscription is not None and not port.wrong_type
    else:
        assert port.type == kinds[0] and "as std_msgs/msg/Float64, too" in port.wrong_type

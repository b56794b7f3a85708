"""The life of a managed node, each path of it: by a manager's services, and where a step fails."""

import os

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import OccupancyGrid
from rclpy.lifecycle import TransitionCallbackReturn as Result
from rclpy.parameter import Parameter
from ros_helpers import QUICK, STARTS, NodeProcess, Peer
from std_srvs.srv import Trigger

from gp_mapping.mapping.session import MapSession
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint

LABELS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
    "shutdown": Transition.TRANSITION_ACTIVE_SHUTDOWN,
}


def test_every_path_of_a_life_by_services(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "ROS_DOMAIN_ID", str(101 + os.getpid() % 100)
    )  # apart from what earlier tests have killed
    folder = tmp_path / "saved"
    with (
        NodeProcess(
            tmp_path,
            **QUICK,
            **STARTS,
            autostart=False,
            reliable_inputs=True,
            save_on_exit=True,
            save_directory=str(folder),
        ) as node,
        Peer() as peer,
    ):

        def change(label):
            return peer.call(
                ChangeState,
                "/mapping/change_state",
                ChangeState.Request(transition=Transition(id=LABELS[label])),
            ).success

        def state():
            return peer.call(
                GetState, "/mapping/get_state", GetState.Request(), again=2.0
            ).current_state.label

        assert state() == "unconfigured" and not change("activate") and state() == "unconfigured"
        assert change("configure") and state() == "inactive"
        assert not change("configure") and not change("deactivate") and state() == "inactive"
        peer.until(
            lambda: any("inactive" in text for text in peer.messages),
            what="nobody says that it is inactive",
        )
        assert peer.field_publisher.get_subscription_count() == 0
        assert change("activate") and state() == "active"
        peer.wait_for_node()
        peer.drive(0.0, 2.0, speed=4.0)
        peer.settle()
        assert peer.number("samples") >= 100

        assert change("deactivate")
        peer.until(
            lambda: peer.field_publisher.get_subscription_count() == 0, what="it still listens"
        )
        peer.drive(2.0, 0.5, speed=4.0)
        peer.settle()
        assert (
            peer.number("samples") == 101
        )  # the last one found its pose, or was given up, with the end of the pass
        assert peer.call(Trigger, "/mapping/save", Trigger.Request()).success  # the map is there

        assert change("activate")
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        peer.until(lambda: mean, what="no map after it was active again")
        peer.wait_for_node()
        peer.drive(3.0, 1.0, speed=4.0)
        peer.settle()
        assert peer.number("samples") >= 150 and peer.number("passes") == 2

        assert change("deactivate") and change("cleanup") and state() == "unconfigured"
        assert change("configure") and change("activate")
        peer.wait_for_node()
        peer.settle()
        assert peer.number("samples") == 0
        peer.drive(0.0, 1.0, speed=4.0)
        peer.settle()
        assert change("shutdown") and state() == "finalized" and not change("configure")
        session = MapSession.from_state_dict(load_checkpoint(folder / "map.gpm"))
        assert session.report()["samples"] == 51  # what the last life has seen, to its end
        assert "is not possible in state 'inactive'" in node.log and "Traceback" not in node.log
        assert node.stop() == 0


def test_a_step_that_fails_is_said_and_can_be_tried_again(node_of, tmp_path, capfd):
    node, _ = node_of(started=False, load_checkpoint=str(tmp_path / "map.gpm"))
    assert node.trigger_configure() == Result.FAILURE and node.state == "unconfigured"
    assert (
        "configure failed" in (said := capfd.readouterr().err)
        and "map.gpm" in said
        and "Traceback" not in said
    )
    save_checkpoint(tmp_path / "map.gpm", MapSession(node.map_settings).state_dict())
    assert node.trigger_configure() == Result.SUCCESS and node.state == "inactive"
    opened = node.inputs.open
    node.inputs.open = lambda: 1 / 0
    assert (
        node.trigger_activate() == Result.FAILURE and node.state == "inactive" and not node.active
    )
    assert "activate failed" in (said := capfd.readouterr().err) and "ZeroDivisionError" in said
    node.inputs.open = opened
    assert node.trigger_activate() == Result.SUCCESS and node.state == "active"
    assert (
        node.trigger_shutdown() == Result.SUCCESS
        and node.state == "finalized"
        and node.exit_code == 0
    )


def test_a_wrong_parameter_fails_configure_and_can_be_set_right(node_of, capfd):
    node, _ = node_of(started=False, resolution="fine", suggestion_kind="best")
    assert node.trigger_configure() == Result.FAILURE and node.state == "unconfigured"
    said = capfd.readouterr().err
    assert (
        "resolution: 'fine' is str, expected float, for example 0.05" in said
        and "'best' is not one of" in said
    )
    assert "Traceback" not in said
    right = [Parameter("resolution", value=0.25), Parameter("suggestion_kind", value="variance")]
    assert all(done.successful for done in node.set_parameters(right))
    assert node.trigger_configure() == Result.SUCCESS and node.map_settings.resolution == 0.25
    assert not node.set_parameters([Parameter("resolution", value=0.5)])[0].successful
    assert node.trigger_cleanup() == Result.SUCCESS
    assert node.set_parameters([Parameter("resolution", value=0.5)])[0].successful
    assert node.trigger_configure() == Result.SUCCESS and node.map_settings.resolution == 0.5


POSSIBLE = {
    "unconfigured": ({"configure", "shutdown"}, ()),
    "inactive": ({"activate", "cleanup", "shutdown"}, ("configure",)),
    "active": ({"deactivate", "shutdown"}, ("configure", "activate")),
    "finalized": (set(), ("configure", "shutdown")),
}


@pytest.mark.parametrize("state", POSSIBLE)
def test_every_transition_that_is_not_possible_is_refused_and_changes_nothing(node_of, state):
    possible, path = POSSIBLE[state]
    node, _ = node_of(started=False)
    for name in path:
        assert getattr(node, f"trigger_{name}")() == Result.SUCCESS
    for name in {"configure", "activate", "deactivate", "cleanup", "shutdown"} - possible:
        assert getattr(node, f"trigger_{name}")() == Result.FAILURE and node.state == state
    for name in sorted(possible):
        assert getattr(node, f"trigger_{name}")() == Result.SUCCESS
        break
    assert (node.state != state) == bool(possible)


@pytest.mark.parametrize("before", [[], ["configure"], ["configure", "activate"]])
def test_it_can_be_shut_down_in_every_state_and_ends_well(node_of, before):
    node, _ = node_of(started=False)
    for name in before:
        assert getattr(node, f"trigger_{name}")() == Result.SUCCESS
    assert node.trigger_shutdown() == Result.SUCCESS and node.state == "finalized"
    assert node.trigger_configure() == Result.FAILURE
    assert node.finish() == 0

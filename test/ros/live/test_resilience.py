"""What happens to a robot, with processes of their own over DDS: a killed node, a flood, two robots, a manager."""

import signal
import time

import pytest
from domains import domain_of
from lifecycle_manager import LifecycleManager
from nav_msgs.msg import OccupancyGrid
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from ros_helpers import (
    NS,
    STARTS,
    NodeProcess,
    Peer,
    field_at,
    grid_array,
    magnetic_field,
    odometry,
    place_at,
    spin_until,
)
from states import differences
from std_srvs.srv import Trigger
from tf_messages import transforms, with_tf

from gp_mapping.store.checkpoint import load_checkpoint

PARAMETERS = {"max_inducing": 60, "resolution": 0.1, "memory_size": 200, "reliable_inputs": True}
EPOCH = 1_700_000_000 * NS


@pytest.fixture(autouse=True)
def domain(monkeypatch):
    """Apart from what other tests have killed, and from all that other processes run."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain_of("resilience")))


def drive_to_the_end(peer, start: float, seconds: float) -> None:
    """A drive whose last measurement has its pose, and the wait until all of it is in the map."""
    before = peer.number("samples")
    peer.drive(start, seconds, speed=8.0)
    after = start + seconds + 0.01
    peer.odometry_publisher.publish(odometry(EPOCH + round(after * NS), *place_at(after)))
    peer.until(
        lambda: peer.number("samples") == before + round(seconds * 50) + 1, what="not all arrived"
    )


def test_saved_killed_loaded_and_continued_is_the_map_of_an_uninterrupted_run(tmp_path):
    """θ, noise and time offset are learned: all of their state goes through the file."""
    folders = {name: tmp_path / name for name in ("interrupted", "whole")}
    for folder in folders.values():
        folder.mkdir()

    def node_in(name, **more):
        return NodeProcess(
            folders[name],
            **PARAMETERS,
            **STARTS,
            lengthscale=0.6,
            save_on_exit=True,
            save_directory=str(folders[name]),
            **more,
        )

    with node_in("interrupted") as node, Peer() as peer:
        peer.wait_for_node()
        drive_to_the_end(peer, 0.0, 5.0)
        assert peer.call(Trigger, "/mapping/save", Trigger.Request()).success
        assert node.stop(signal.SIGKILL) == -signal.SIGKILL
    with (
        node_in("interrupted", load_checkpoint=str(folders["interrupted"] / "map.gpm")) as node,
        Peer() as peer,
    ):
        peer.until(lambda: peer.number("samples") == 251, what="the saved map is not there")
        peer.wait_for_node()
        drive_to_the_end(peer, 9.0, 5.0)
        assert node.stop() == 0
    with node_in("whole") as node, Peer() as peer:
        peer.wait_for_node()
        drive_to_the_end(peer, 0.0, 5.0)
        drive_to_the_end(peer, 9.0, 5.0)
        assert node.stop() == 0
    states = [load_checkpoint(folder / "map.gpm") for folder in folders.values()]
    assert (
        states[0]["raw_count"] == 502
        and states[0]["passes"] == 2
        and states[0]["map"]["learner"] is not None
    )
    assert differences(*states) == []


def test_a_flood_of_5_khz_is_survived_and_what_it_costs_is_counted(tmp_path):
    with (
        NodeProcess(
            tmp_path, **(PARAMETERS | {"reliable_inputs": False}), worker_queue_size=30
        ) as node,
        Peer() as peer,
    ):
        peer.wait_for_node()
        begin = time.monotonic()
        for i in range(15000):  # 3 s; a pose every 20 ms
            stamp, (x, y) = EPOCH + i * NS // 5000, place_at(i / 5000)
            if i % 100 == 0:
                peer.odometry_publisher.publish(odometry(stamp, x, y))
            peer.field_publisher.publish(magnetic_field(stamp, field_at(x, y)))
            if i % 50 == 0 and (left := begin + i / 5000 - time.monotonic()) > 0:
                peer.executor.spin_once(timeout_sec=left)
        received = -1.0
        while received != peer.number("magnetic_field received") or peer.number("queue"):
            received = peer.number("magnetic_field received")
            peer.settle()
        full = peer.number("dropped: queue_full")
        dropped = sum(float(n) for key, n in peer.values.items() if key.startswith("dropped: "))
        assert 0 < received <= 15000
        assert received == peer.number("samples") + peer.number("waiting for a pose") + dropped, (
            "to the message"
        )
        assert peer.number("odometry received") >= peer.number("poses dropped: pose_queue_full")
        assert full > 0 and any(
            "queue_full: more than worker_queue_size" in text for text in peer.messages
        )
        before = peer.number("samples")
        peer.drive(10.0, 2.0)
        peer.settle()
        assert peer.number("samples") >= before + 50, "it does not go on as before"
        assert node.stop() == 0 and "ERROR" not in node.log


def test_a_time_jump_is_named_and_the_map_stays(tmp_path):
    with NodeProcess(tmp_path, **PARAMETERS) as node, Peer() as peer:
        peer.wait_for_node()
        drive_to_the_end(peer, 10.0, 3.0)
        for i in range(3):  # these wait for a pose when time goes back
            peer.field_publisher.publish(magnetic_field(EPOCH + round((13.1 + i / 50) * NS), 45e-6))
        peer.until(lambda: peer.number("waiting for a pose") == 3, what="they do not wait")
        drive_to_the_end(peer, 0.0, 3.0)
        peer.until(
            lambda: any("3 time_jump" in text for text in peer.messages),
            what="the jump is not named",
        )
        assert peer.number("dropped: time_jump") == 3 and peer.number("passes") == 2
        assert node.stop() == 0 and "ERROR" not in node.log


def test_missing_tf_is_named_in_diagnostics_and_its_end_too(node_of):
    """tf2_msgs is not among the wheels: another type stands in on the wire, messages are handed to the callback."""
    node, peer = node_of(find=with_tf, pose_source="tf", silence_warning=0.5)
    ports = {port.role: port for port in node.inputs.ports}
    node._on_input(ports["measurement"], magnetic_field(EPOCH, 45e-6))
    spin_until(node, peer, lambda: any("no tf since the start" in text for text in peer.messages))
    spin_until(
        node,
        peer,
        lambda: any("TF does not connect 'map' and 'base_link'" in text for text in peer.messages),
    )
    for i in range(100):
        stamp, (x, y) = EPOCH + i * NS // 50, place_at(i / 50)
        node._on_input(ports["tf"], transforms((stamp, "map", "base_link", x, y)))
        node._on_input(ports["measurement"], magnetic_field(stamp + 1, field_at(x, y)))
    seen = peer.statuses
    spin_until(node, peer, lambda: peer.statuses >= seen + 9 and peer.number("samples") > 90)
    # nor that it "has not come yet", which each measurement in turn waits for
    assert not any("TF " in text for text in peer.messages[-3:]), peer.messages[-3:]


def set_parameter(peer, node_name: str, name: str, value: float) -> bool:
    request = SetParameters.Request(
        parameters=[
            ParameterMessage(
                name=name,
                value=ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=value),
            )
        ]
    )
    return peer.call(SetParameters, f"{node_name}/set_parameters", request).results[0].successful


def test_two_robots_under_a_lifecycle_manager_as_nav2s(tmp_path):
    """One has a wrong parameter at first. Their maps, topics, files and diagnostics do not mix."""
    names = ("a", "b")
    for name in names:
        (tmp_path / name).mkdir()
    options = {
        name: {
            **PARAMETERS,
            "autostart": False,
            "learn_hyperparameters": False,
            "map_frame": f"map_{name}",
            "save_on_exit": True,
            "save_directory": str(tmp_path / name),
        }
        for name in names
    }
    options["a"]["resolution"] = "fine"
    with (
        NodeProcess(tmp_path / "a", arguments=("-r", "__ns:=/a"), **options["a"]) as node_a,
        NodeProcess(tmp_path / "b", arguments=("-r", "__ns:=/b"), **options["b"]) as node_b,
        Peer("peer_a", "/a") as peer_a,
        Peer("peer_b", "/b") as peer_b,
    ):
        peers = {"a": peer_a, "b": peer_b}
        manager = LifecycleManager(peer_a, [f"/{name}/mapping" for name in names])
        assert not manager.startup()
        assert "configure failed: parameter resolution: 'fine' is str, expected float" in node_a.log
        assert [manager.state(f"/{name}/mapping") for name in names] == [1, 1]  # both unconfigured
        assert set_parameter(peer_a, "/a/mapping", "resolution", 0.2)
        assert manager.startup() and [manager.state(f"/{name}/mapping") for name in names] == [3, 3]
        assert not set_parameter(peer_a, "/a/mapping", "resolution", 0.3)

        means = {name: peer.listen(OccupancyGrid, "mapping/mean") for name, peer in peers.items()}
        for peer in peers.values():
            peer.wait_for_node()
        for i in range(151):
            stamp, (x, y) = EPOCH + i * NS // 50, place_at(i / 50)
            for k, (name, peer) in enumerate(peers.items()):
                peer.odometry_publisher.publish(odometry(stamp, x + 100.0 * k, y, f"map_{name}"))
                peer.field_publisher.publish(magnetic_field(stamp, field_at(x, y)))
                peer.spin(0.005)
        for k, (name, peer) in enumerate(peers.items()):
            got = means[name]
            peer.until(
                lambda got=got: got and grid_array(got[-1]).max() > 0, what=f"no map of {name}"
            )
            info, frame = got[-1].info, got[-1].header.frame_id
            assert frame == f"map_{name}" and info.resolution == pytest.approx([0.2, 0.1][k])
            assert abs(info.origin.position.x - 100.0 * k) < 10.0
            assert peer.call(Trigger, f"/{name}/mapping/save", Trigger.Request()).success

        assert manager.pause() and manager.resume() and manager.reset()
        assert [manager.state(f"/{name}/mapping") for name in names] == [1, 1]
        assert manager.startup() and manager.shutdown()
        assert [manager.state(f"/{name}/mapping") for name in names] == [4, 4]  # finalized
        for node in (node_a, node_b):
            assert node.stop() == 0 and "Traceback" not in node.log
    for k, name in enumerate(names):
        state = load_checkpoint(
            tmp_path / name / "map.gpm"
        )  # an empty map at the end did not take its place
        assert state["raw_count"] >= 150 and abs(state["path"]["low"][0] - 100.0 * k) < 1.0

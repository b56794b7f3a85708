"""A map knows where it is: in another frame it is refused, taken when asked to, and warned of in an odometry's."""

import shutil

import pytest
from geometry_msgs.msg import PoseArray
from nav_msgs.msg import OccupancyGrid
from rclpy.parameter import Parameter
from ros_helpers import ask, field_at, fill, magnetic_field, odometry, place_at, settle, spin_until
from std_srvs.srv import Trigger

from gp_mapping.ros.simulator_node import floor_plan
from gp_mapping.ros.wire.qos import LATCHED

EPOCH = 1_700_000_000_000_000_000


def fill_in(node, frame: str, seconds: float = 1.0, start: float = 100.0) -> None:
    """As ros_helpers.fill, with poses in that frame."""
    ports = {port.role: port for port in node.inputs.ports}
    for i in range(round(seconds * 50) + 1):
        stamp, (x, y) = EPOCH + round((start + i / 50) * 1e9), place_at(i / 50)
        node._on_input(ports["measurement"], magnetic_field(stamp, field_at(x, y)))
        node._on_input(ports["pose"], odometry(stamp, x, y, frame))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the first test that needs it puts the map of `saved`."""
    return tmp_path_factory.mktemp("kept") / "map"


@pytest.fixture
def saved(node_of, kept, tmp_path):
    """A folder with a map in frame odom."""
    if not kept.exists():
        node, peer = node_of(save_directory=str(kept))
        fill(node, 2.0)
        settle(node, peer)
        assert ask(node, peer, Trigger, "/mapping/save").success
        node.cleanup()
    return shutil.copytree(kept, tmp_path / "map")


def test_a_map_in_another_frame_is_refused_or_taken(node_of, saved):
    node, peer = node_of(save_directory=str(saved))
    fill_in(node, "another_world")
    settle(node, peer)
    answer = ask(node, peer, Trigger, "/mapping/load")
    assert (
        not answer.success and "in frame 'odom', and poses are in 'another_world'" in answer.message
    )
    assert node.worker.key[2] == 51
    node.cleanup()

    taking, peer = node_of(save_directory=str(saved), allow_frame_change=True)
    fill_in(taking, "another_world")
    settle(taking, peer)
    assert ask(taking, peer, Trigger, "/mapping/load").success
    fill_in(taking, "another_world", start=200.0)
    settle(taking, peer)
    assert taking.worker.key[2] == 101 + 51 and taking.frame == "another_world"


def test_a_frame_that_a_parameter_names_is_compared_at_the_start(node_of, saved):
    node, _ = node_of(started=False, save_directory=str(saved), resume=True, map_frame="map")
    node.configure()  # what does not fit is named and left out
    assert node.worker.key[2] == 0
    node.cleanup()
    node.set_parameters(
        [
            Parameter("resume", value=False),
            Parameter("load_checkpoint", value=str(saved / "map.gpm")),
        ]
    )
    with pytest.raises(ValueError, match="allow_frame_change"):
        node.configure()


def test_a_loaded_map_waits_for_poses_in_its_frame_and_an_odometry_frame_is_warned_of(
    node_of, saved, capfd
):
    node, peer = node_of(save_directory=str(saved), resume=True)
    assert node.frame == "odom"  # it can be shown before the first pose
    assert "goes on in frame 'odom' of an odometry" in capfd.readouterr().err
    spin_until(
        node, peer, lambda: any("of an odometry, whose origin" in text for text in peer.messages)
    )
    fill_in(node, "another_world")
    settle(node, peer)
    assert node.worker.key[2] == 101 and node.worker.status.drops["pose_unexpected_frame"] == 51
    assert ask(node, peer, Trigger, "/mapping/clear").success
    fill_in(node, "another_world", start=300.0)
    settle(node, peer)
    assert node.frame == "another_world" and node.worker.key[2] > 30


def test_a_map_that_is_loaded_while_the_node_runs_is_warned_of_as_one_that_is_resumed(
    node_of, saved
):
    """Its place, if another run saved it, and how the sensor sat and was calibrated when it was measured."""
    node, peer = node_of(save_directory=str(saved), hard_iron_x=2e-5, sensor_offset_x=0.2)
    fill(node, 1.0)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/load").success
    measured = "measured with sensor_offset_x 0.0 (now 0.2), hard_iron_x 0.0 (now 2e-05)"
    for said in ("of an odometry, whose origin", measured):
        spin_until(node, peer, lambda said=said: any(said in text for text in peer.messages))

    # what was measured since names the setup that a saved map goes on with
    fill(node, 1.0, start=200.0)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    assert ask(node, peer, Trigger, "/mapping/load").success
    settle(node, peer)
    assert not any("measured with" in text for text in node.worker.status.warnings)

    assert ask(node, peer, Trigger, "/mapping/clear").success
    fill(node, 1.0, start=300.0)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/save").success
    assert ask(node, peer, Trigger, "/mapping/load").success
    assert node.place_warning == "" and node.worker.status.warnings == []


def test_a_stray_first_message_costs_nothing_live(node_of):
    node, peer = node_of()
    fill_in(node, "stray", 0.1, start=0.0)
    settle(node, peer)
    assert node.worker.key[2] == 6
    fill(node, 3.0, start=1.0)
    settle(node, peer)
    assert node.frame == "odom" and node.worker.key[2] == 151
    assert node.worker.status.report["samples"] == 151


def test_poses_with_an_empty_frame_are_said_to_be_why_nothing_is_shown(node_of):
    node, peer = node_of(autosave_period=0.0)
    fill_in(node, "", 2.0)
    said = "the poses have an empty frame_id, so the map is in no frame and cannot be shown"
    spin_until(node, peer, lambda: any(said in text for text in peer.messages))


def test_a_slash_before_map_frame_is_no_part_of_it(node_of):
    """tf2 knows none; with it no question on ~/query would be in the map's frame."""
    node, peer = node_of(map_frame="/odom")
    fill(node, 0.5)
    settle(node, peer)
    assert node.frame == "odom" and node.worker.key[2] == 26


def test_a_free_space_map_is_compared_with_the_frame_that_is_published(node_of, tmp_path):
    """map_frame and odometry_frame give one place two names: Nav2's map is then in the first."""
    node, peer = node_of(map_frame="map", odometry_frame="odom", save_directory=str(tmp_path))
    maps = peer.node.create_publisher(OccupancyGrid, "map", LATCHED)
    maps.publish(floor_plan(3.0, 3.0, "map"))
    spin_until(node, peer, lambda: node.worker.free is not None)
    suggested = peer.listen(PoseArray, "/mapping/suggestions")
    fill(node, 2.0)
    spin_until(node, peer, lambda: suggested and suggested[-1].poses)
    assert suggested[-1].header.frame_id == "map"
    assert node.suggester.obstacles == "from the free-space map"
    answer = node.survey.ask()
    spin_until(node, peer, answer.done)
    assert "frame" not in answer.result().reason

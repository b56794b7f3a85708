"""mapping_node over real DDS on a road that takes more tiles than it may have."""

from ros_helpers import STARTS, NodeProcess, Peer
from std_srvs.srv import Trigger

SETTINGS = {
    "learn_hyperparameters": False,
    "lengthscale": 0.6,
    "learn_time_offset": False,
    "resolution": 0.5,
    "max_inducing": 60,
    "memory_size": 300,
    "map_tile_side": 5.0,
    "tiles_in_memory": 9,
    "max_tiles": 9,
    "reliable_inputs": True,
    **STARTS,
}


def straight(t):
    return 2.0 * t, 0.0


def test_what_is_left_out_is_said_and_counted_to_the_message_and_a_resumed_map_is_as_full(tmp_path):
    folder = tmp_path / "map"
    with NodeProcess(tmp_path, **SETTINGS, save_directory=str(folder)) as node, Peer() as peer:
        peer.wait_for_node()
        peer.drive(0.0, 30.0, rate=25, speed=4.0, place=straight)
        peer.settle()
        dropped = sum(float(n) for key, n in peer.values.items() if key.startswith("dropped: "))
        assert (
            peer.number("tiles") == 9
            and peer.number("left_out") > 100
            and peer.number("dropped: refused") > 250
        )
        assert peer.number("magnetic_field received") == peer.number(
            "measurements used"
        ) + dropped + peer.number("waiting for a pose"), "to the message"
        assert any(
            "beyond its 9 tiles are left out; raise max_tiles" in text for text in peer.messages
        )
        assert any("all that max_tiles (9) allows" in text for text in peer.messages)
        left = peer.number("left_out")
        assert peer.call(Trigger, "/mapping/save", Trigger.Request()).success
        assert node.stop() == 0 and "Traceback" not in node.log, node.log
    with (
        NodeProcess(tmp_path, **SETTINGS, save_directory=str(folder), resume=True) as node,
        Peer() as peer,
    ):
        peer.wait_for_node()
        peer.settle()
        assert peer.number("tiles") == 9 and peer.number("left_out") >= left
        peer.drive(100.0, 5.0, speed=4.0, place=straight)
        peer.until(lambda: peer.number("left_out") > left + 20, what="nothing more was left out")
        assert peer.number("tiles") == 9 and node.stop() == 0 and "Traceback" not in node.log, (
            node.log
        )

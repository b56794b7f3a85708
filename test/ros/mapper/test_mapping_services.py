"""mapping_node over real DDS: services, suggestions, names, live parameters, simulated time, demand."""

import time

import numpy as np
from geometry_msgs.msg import PoseArray, PoseStamped
from nav_msgs.msg import OccupancyGrid
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from ros_helpers import STARTS, NodeProcess, Peer, grid_array, place_at
from sensor_msgs.msg import MagneticField
from std_srvs.srv import SetBool, Trigger

from gp_mapping.planning.hull import grown_hull, inside_convex
from gp_mapping.ros.wire.qos import LATCHED

QUICK = {
    "max_inducing": 80,
    "resolution": 0.1,
    "learn_hyperparameters": False,
    "lengthscale": 0.6,
    "reliable_inputs": True,
    **STARTS,
}


def test_services_pause_save_clear(tmp_path):
    folder = tmp_path / "saved"
    with NodeProcess(tmp_path, **QUICK, save_directory=str(folder)) as node, Peer() as peer:
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        peer.wait_for_node()
        peer.drive(0.0, 2.0, speed=2.0)
        answer = peer.call(Trigger, "/mapping/save", Trigger.Request())
        assert (
            answer.success
            and str(folder / "map.gpm") in answer.message
            and (folder / "map.gpm").is_file()
        )
        assert peer.call(SetBool, "/mapping/pause", SetBool.Request(data=True)).success
        peer.settle()
        samples = peer.number("samples")
        peer.call(
            SetParameters,
            "/mapping/set_parameters",
            SetParameters.Request(
                parameters=[
                    ParameterMessage(
                        name="map_name",
                        value=ParameterValue(
                            type=ParameterType.PARAMETER_STRING, string_value="map.gpm/below_a_file"
                        ),
                    )
                ]
            ),
        )
        refused = peer.call(Trigger, "/mapping/save", Trigger.Request())
        assert not refused.success and "below_a_file" in refused.message
        peer.drive(2.02, 1.0, speed=4.0)
        peer.settle()
        assert peer.number("samples") == samples and peer.number("dropped: paused") == 51
        assert peer.number("poses dropped: pose_paused") == 51
        assert any("paused" in text for text in peer.messages)
        assert peer.call(SetBool, "/mapping/pause", SetBool.Request(data=False)).success
        peer.drive(3.5, 1.0, speed=2.0)
        peer.settle()
        assert peer.number("samples") > samples and peer.number("passes") == 2
        assert grid_array(mean[-1]).max() > 0
        assert peer.call(Trigger, "/mapping/clear", Trigger.Request()).success
        peer.until(lambda: grid_array(mean[-1]).max() == -1, what="the cleared map is still shown")
        peer.settle()
        assert peer.number("samples") == 0
        peer.drive(5.0, 2.0, speed=2.0)
        peer.until(lambda: grid_array(mean[-1]).max() > 0, what="no map after clear")
        peer.settle()
        dropped = sum(float(n) for key, n in peer.values.items() if key.startswith("dropped: "))
        assert peer.number("samples") < peer.number("measurements used"), (
            "those before ~/clear were used, too"
        )
        assert peer.number("magnetic_field received") == peer.number(
            "measurements used"
        ) + dropped + peer.number("waiting for a pose"), "to the message"
        assert node.stop() == 0 and "Traceback" not in node.log, node.log


def _free_space(frame: str, y_above: float) -> OccupancyGrid:
    """Free above a line, occupied below."""
    out = OccupancyGrid()
    out.header.frame_id = frame
    out.info.resolution, out.info.width, out.info.height = 0.1, 60, 40
    out.info.origin.position.x = out.info.origin.position.y = -2.0
    out.info.origin.orientation.w = 1.0
    rows = -2.0 + 0.1 * (np.arange(40) + 0.5)
    cells = np.where(rows > y_above, 0, 100)[:, None].repeat(60, 1).astype(np.int8)
    out.data = cells.reshape(-1).tolist()
    return out


def test_suggestions_are_masked_by_the_free_space_map(tmp_path):
    with (
        NodeProcess(
            tmp_path,
            **QUICK,
            suggestion_rate=5.0,
            suggestion_count=3,
            robot_radius=0.05,
            suggestion_distance=0.3,
        ) as node,
        Peer() as peer,
    ):
        free = peer.node.create_publisher(OccupancyGrid, "map", LATCHED)
        many, one = (
            peer.listen(PoseArray, "/mapping/suggestions"),
            peer.listen(PoseStamped, "/mapping/suggestion"),
        )
        peer.wait_for_node()
        peer.drive(0.0, 9.0, speed=4.0)
        peer.until(lambda: many and len(many[-1].poses) == 3, what="no suggestions")
        unmasked = min(p.position.y for message in many for p in message.poses)
        driven = grown_hull([place_at(t) for t in np.linspace(0.0, 9.0, 500)], 0.15)
        assert all(
            inside_convex(driven, np.array([p.position.x]), np.array([p.position.y])).all()
            for message in many
            for p in message.poses
        ), "beyond the hull of the path, without a free-space map"
        peer.until(
            lambda: "hull of the path" in peer.values.get("obstacles", ""),
            what="obstacles are not mentioned",
        )
        free.publish(_free_space("odom", 0.2))
        peer.spin(0.3)
        many.clear()
        one.clear()
        peer.drive(9.02, 1.0, speed=2.0)
        peer.until(lambda: len(many) >= 2, what="no suggestions with the mask")
        assert all(p.position.y > 0.2 for p in many[-1].poses) and unmasked < 0.2
        peer.until(
            lambda: one and one[-1].pose.position == many[-1].poses[0].position,
            what="not the first of them",
        )
        assert one[-1].header.frame_id == "odom"
        free.publish(_free_space("map", 0.2))
        peer.spin(0.3)
        peer.drive(10.04, 1.0, speed=2.0)
        peer.until(
            lambda: any("not used" in text for text in peer.messages),
            what="the frame went unnoticed",
        )
        many.clear()
        peer.drive(11.06, 1.0, speed=2.0)
        peer.until(lambda: many, what="no empty suggestions")
        assert not any(message.poses for message in many), (
            "places were suggested that nobody compared with the map"
        )
        broken = _free_space("odom", 0.2)
        broken.data = broken.data[:-7]
        free.publish(broken)
        peer.until(
            lambda: any("cannot be read" in text for text in peer.messages),
            what="the wrong map went unnoticed",
        )
        many.clear()
        free.publish(_free_space("odom", 0.2))  # nothing is measured any more
        peer.until(lambda: many and many[-1].poses, what="a good map after a wrong one is not used")
        assert node.stop() == 0 and "Traceback" not in node.log


def test_namespace_remapping_and_live_parameters(tmp_path):
    arguments = ("-r", "__ns:=/robot", "-r", "magnetic_field:=/imu/mag")
    with (
        NodeProcess(tmp_path, arguments=arguments, **QUICK, resolutoin=0.1) as node,
        Peer(namespace="/robot") as peer,
    ):
        peer.until(
            lambda: (
                peer.node.count_subscribers("/imu/mag")
                and peer.odometry_publisher.get_subscription_count()
            ),
            what="no such names",
        )
        assert "'resolutoin' is not known" in node.log

        # publishers are counted under the name that the input has now
        peer.node.destroy_publisher(peer.field_publisher)
        compass = peer.node.create_publisher(MagneticField, "/imu/mag", 10)
        peer.until(
            lambda: any(
                "/imu/mag (magnetic_field) since the start" in text
                and "although it has a publisher" in text
                for text in peer.messages
            ),
            what="its publisher is not seen",
        )
        assert peer.number("magnetic_field publishers") == 1
        peer.node.destroy_publisher(compass)

        def set_double(name, value):
            request = SetParameters.Request(
                parameters=[
                    ParameterMessage(
                        name=name,
                        value=ParameterValue(
                            type=ParameterType.PARAMETER_DOUBLE, double_value=value
                        ),
                    )
                ]
            )
            return peer.call(SetParameters, "/robot/mapping/set_parameters", request).results[0]

        assert set_double("publish_rate", 2.0).successful
        refused = set_double("resolution", 0.2)
        assert not refused.successful and "clean up the node" in refused.reason
        assert not set_double("suggestion_rate", 1e9).successful
        assert "failed" not in node.log
        assert node.stop() == 0


def test_simulated_time_stands_still_and_diagnostics_say_so(tmp_path):
    from rosgraph_msgs.msg import Clock

    with NodeProcess(tmp_path, **QUICK, use_sim_time=True) as node, Peer() as peer:
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        clock = peer.node.create_publisher(Clock, "/clock", 10)
        peer.wait_for_node()
        peer.until(
            lambda: any("no /clock has come yet" in text for text in peer.messages),
            what="no word about /clock",
        )

        def tick(stamp):
            message = Clock()
            message.clock.sec, message.clock.nanosec = divmod(stamp, 1_000_000_000)
            clock.publish(message)

        peer.drive(0.0, 2.0, speed=2.0, before=tick)
        peer.until(lambda: mean, what="no map in simulated time")
        stamp = mean[-1].header.stamp.sec
        assert 1_700_000_000 <= stamp <= 1_700_000_002
        peer.drive(0.0, 2.0, speed=2.0, before=tick)  # the clock goes back with the stamps
        peer.settle()
        assert peer.number("passes") == 2 and peer.number("samples") >= 200
        assert "time went back by" in node.log
        # it stops, and the data go on
        begin = time.monotonic()
        while not any("/clock stands still at 170000000" in text for text in peer.messages):
            assert time.monotonic() - begin < 60.0
            peer.drive(2.0 + time.monotonic() - begin, 0.1)
        assert node.stop() == 0


def test_nothing_is_drawn_for_nobody(tmp_path):
    with NodeProcess(tmp_path, **QUICK) as node, Peer() as peer:
        peer.wait_for_node()
        peer.drive(0.0, 2.0, speed=4.0)
        peer.settle()
        assert peer.number("samples") > 90
        assert peer.number("published") == 0 and "render count" not in peer.values
        start = time.monotonic()
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        peer.until(lambda: mean, what="a late joiner got nothing")
        assert time.monotonic() - start < 3.0
        assert node.stop() == 0

"""mapping_node beside a satellite receiver, over real DDS: a saved map knows where on the earth it lies."""

import importlib.util
import math

import pytest
from ros_helpers import NS, QUICK, STARTS, NodeProcess, Peer, place_at
from sensor_msgs.msg import NavSatFix
from std_srvs.srv import Trigger

from gp_mapping import cli
from gp_mapping.ros.wire.qos import sensor_data

TRUE = (52.1, 4.5, 0.7)  # latitude, longitude, heading of the map's frame
EAST, NORTH = (
    111319.49,
    111132.95,
)  # m in a degree at the equator, and of latitude at 45 degrees; ± .3 % is enough here


def fix_at(stamp_ns, x, y, status=0):
    out = NavSatFix()
    out.header.stamp.sec, out.header.stamp.nanosec = divmod(stamp_ns, NS)
    out.status.status = status
    c, s = math.cos(TRUE[2]), math.sin(TRUE[2])
    out.latitude = TRUE[0] + (s * x + c * y) / NORTH
    out.longitude = TRUE[1] + (c * x - s * y) / (EAST * math.cos(math.radians(TRUE[0])))
    return out


def drive(peer, receiver, start, seconds, epoch=1_700_000_000 * NS):
    """With a fix at each fifth stamp, every tenth of them of a receiver that knows no position; how many were sent."""
    sent = [0]

    def fix(stamp):
        t = (stamp - epoch) / NS
        if round(50 * t) % 5 == 0:
            receiver.publish(fix_at(stamp, *place_at(t), status=-1 if sent[0] % 10 == 9 else 0))
            sent[0] += 1

    peer.drive(start, seconds, speed=4.0, epoch=epoch, before=fix)
    return sent[0]


def datum_of(text):
    return tuple(map(float, text.split("datum ")[1].split(" from")[0].split(",")))


def assert_true(found):
    assert abs(found[0] - TRUE[0]) * NORTH < 0.1 and abs(found[1] - TRUE[1]) * NORTH < 0.1
    assert found[2] == pytest.approx(TRUE[2], abs=0.01)


def test_a_saved_map_carries_its_datum_to_the_geotiff_and_a_resumed_one_goes_on(tmp_path, capfd):
    folder = tmp_path / "map"
    given = (
        QUICK | STARTS | {"reliable_inputs": True, "save_directory": str(folder), "max_fixes": 30}
    )
    with NodeProcess(tmp_path, **given, fix_topic="gps/fix") as node, Peer() as peer:
        receiver = peer.node.create_publisher(NavSatFix, "/gps/fix", sensor_data(1000, True))
        peer.wait_for_node()
        peer.until(
            receiver.get_subscription_count, what="mapping_node did not subscribe to the fixes"
        )
        sent = drive(peer, receiver, 0.0, 10.0)
        peer.settle()
        invalid = peer.number("fixes dropped: fix_invalid")
        assert peer.number("gps/fix received") == sent and invalid == sent // 10
        assert (
            peer.number("fixes") + invalid + peer.number("fixes dropped: fix_no_pose") >= sent - 1
        ), "one may wait"
        assert_true(datum_of(peer.values["datum"]))
        assert "(max_fixes)" in peer.values["datum"], "more than 30 came"
        assert peer.number("dropped: fix_invalid") == 0, "no measurement is lost with a fix"
        assert peer.call(Trigger, "/mapping/save", Trigger.Request()).success
        assert node.stop() == 0 and "Traceback" not in node.log, node.log

    code = cli.main(
        ["export", str(folder), "--output", str(tmp_path / "out"), "--format", "geotiff"]
    )
    told = capfd.readouterr()
    assert_true(datum_of(told.out))
    if (
        importlib.util.find_spec("rasterio") is None
    ):  # without it there is no file, and that is said
        assert code == 2 and "pip install rasterio" in told.err
    else:
        import rasterio

        with rasterio.open(tmp_path / "out" / "map.tif") as file:
            assert "52.1" in file.crs.to_wkt() and code == 0

    with NodeProcess(tmp_path, **given, fix_topic="gps/fix", resume=True) as node, Peer() as peer:
        peer.wait_for_node()
        peer.settle()
        before = peer.number("fixes")
        assert before > 30
        assert_true(datum_of(peer.values["datum"]))
        receiver = peer.node.create_publisher(NavSatFix, "/gps/fix", sensor_data(1000, True))
        peer.until(
            receiver.get_subscription_count, what="mapping_node did not subscribe to the fixes"
        )
        drive(peer, receiver, 20.0, 2.0)
        peer.until(lambda: peer.number("fixes") > before + 10, what="no more fixes")
        assert_true(datum_of(peer.values["datum"]))
        assert peer.call(Trigger, "/mapping/clear", Trigger.Request()).success
        peer.until(
            lambda: peer.number("fixes") == 0,
            what="the fixes of a map that was cleared are still there",
        )
        assert node.stop() == 0 and "Traceback" not in node.log, node.log


def test_without_a_fix_topic_nothing_listens(tmp_path):
    with NodeProcess(tmp_path, **QUICK, **STARTS, reliable_inputs=True) as node, Peer() as peer:
        receiver = peer.node.create_publisher(NavSatFix, "/fix", sensor_data(10, True))
        peer.wait_for_node()
        peer.drive(0.0, 1.0, speed=4.0)
        peer.settle()
        assert receiver.get_subscription_count() == 0 and peer.number("fixes") == 0
        assert node.stop() == 0 and "Traceback" not in node.log, node.log

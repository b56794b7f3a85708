"""What a node hears over DDS and cannot use is said, in bounded words, and costs nothing else: one node, many cases."""

import time
from array import array

import pytest
from geometry_msgs.msg import PoseArray
from nav_msgs.msg import OccupancyGrid, Odometry
from questions import POINTS, question
from rclpy.qos import QoSProfile
from ros_helpers import NS, fill, magnetic_field, odometry, settle, spin, spin_until
from sensor_msgs.msg import PointCloud2

from gp_mapping.ros.wire.qos import LATCHED, sensor_data

LONG = "f" * 10_000_000
EPOCH = 1_700_000_000 * NS
WORDS = 20_000  # characters that one report may have, with all its warnings


def free_space(**changes) -> OccupancyGrid:
    """All free, 7.5 × 7.5 m about the drive, in the map's frame."""
    out = OccupancyGrid()
    out.header.frame_id = "odom"
    out.info.resolution, out.info.width, out.info.height = 0.125, 60, 60  # exact in float32
    out.info.origin.position.x = out.info.origin.position.y = -2.0
    out.info.origin.orientation.w = 1.0
    out.data = array("b", bytes(3600))
    for name, value in changes.items():
        target = out
        *path, last = name.split("__")
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)
    return out


def same(a: OccupancyGrid, b: OccupancyGrid) -> bool:
    """By what they say; NaN is NaN."""
    return (
        repr(a.info) == repr(b.info)
        and a.header.frame_id == b.header.frame_id
        and len(a.data) == len(b.data)
    )


def test_what_a_driver_leaves_out_shows_in_the_stamps(node_of):
    """A steady 50 Hz of which a tenth is never sent: by the middleware's numbers none is lost."""
    node, peer = node_of(autosave_period=0.0, silence_warning=5.0)
    peer.wait_for_node()
    sent = 0
    for i in range(400):
        stamp = EPOCH + i * NS // 50
        peer.odometry_publisher.publish(odometry(stamp, 0.01 * i, 0.0))
        if i < 150 or i % 10:
            peer.field_publisher.publish(magnetic_field(stamp, 45e-6))
            sent += 1
        spin(node, peer, 0.005)
    settle(node, peer)
    spin_until(
        node,
        peer,
        lambda: 20 <= peer.number("magnetic_field left out by its publisher (about)") <= 30,
    )
    assert peer.number("magnetic_field lost before the node (about)") == 0
    spin_until(
        node,
        peer,
        lambda: any("messages are missing by its stamps" in text for text in peer.messages),
    )

    def unaccounted() -> float:
        dropped = sum(peer.number(key) for key in peer.values if key.startswith("dropped: "))
        return sent - peer.number("samples") - peer.number("waiting for a pose") - dropped

    spin_until(node, peer, lambda: unaccounted() == 0), "what did not come is no drop"


def test_what_was_sent_while_the_node_was_inactive_is_no_loss(node_of):
    node, peer = node_of(autosave_period=0.0, reliable_inputs=True)

    def send(begin: int, end: int) -> None:
        for i in range(begin, end):
            peer.field_publisher.publish(magnetic_field(EPOCH + i * NS // 50, 45e-6))
            spin(node, peer, 0.001)

    peer.wait_for_node()
    send(0, 100)
    settle(node, peer)
    node.deactivate()
    spin_until(node, peer, lambda: not peer.field_publisher.get_subscription_count())
    send(100, 150)
    node.activate()
    spin_until(node, peer, peer.field_publisher.get_subscription_count)
    send(150, 250)
    watch = node.inputs.watches[0]
    spin_until(node, peer, lambda: watch.count == 200)
    assert watch.stream.period == pytest.approx(0.02) and watch.stream.lost == 0


def test_names_of_ten_megabytes_cost_a_hundred_characters(node_of):
    node, peer = node_of(autosave_period=0.0, suggestion_rate=20.0)
    peer.wait_for_node()
    fill(node, 3.0)
    settle(node, peer)
    asked = peer.node.create_publisher(PointCloud2, "/mapping/query", QoSProfile(depth=10))
    maps = peer.node.create_publisher(OccupancyGrid, "/map", LATCHED)
    peer.listen(PoseArray, "/mapping/suggestions")
    spin_until(node, peer, lambda: asked.get_subscription_count() and maps.get_subscription_count())
    for i in range(3):
        peer.field_publisher.publish(magnetic_field(EPOCH + (4 + i) * NS, 45e-6, frame=LONG))
        peer.odometry_publisher.publish(odometry(EPOCH + (4 + i) * NS, 1.0, 0.0, frame=LONG))
        spin(node, peer, 0.3)
    asked.publish(question(POINTS, 1, frame=LONG))
    maps.publish(free_space(header__frame_id=LONG))
    spin_until(node, peer, lambda: node.worker.free is not None)
    fill(node, 1.0, start=8.0)  # places are chosen anew for a map that has changed

    wanted = {
        "dropped: unexpected_frame": 3,
        "poses dropped: pose_unexpected_frame": 3,
        "refused: query_frame": 1,
    }
    spin_until(
        node, peer, lambda: all(peer.number(name) >= count for name, count in wanted.items())
    )
    spin_until(
        node, peer, lambda: any("the free-space map is in frame" in text for text in peer.messages)
    )
    peer.messages.clear()
    spin_until(node, peer, lambda: len(peer.messages) >= 6)
    assert max(map(len, peer.messages)) < WORDS and sum(map(len, peer.values.values())) < WORDS
    before = peer.number("samples")
    fill(node, 2.0, start=10.0)
    spin_until(node, peer, lambda: peer.number("samples") >= before + 90), "it maps on"


@pytest.fixture(scope="module")
def unusable() -> list[OccupancyGrid]:
    return [
        free_space(data=array("b", bytes(3599))),
        free_space(info__width=0, info__height=0, data=array("b")),
        free_space(info__resolution=float("nan")),
        free_space(info__resolution=0.0),
        free_space(info__resolution=-1.0),
        free_space(info__resolution=2.0**100),
        free_space(info__origin__orientation__w=0.0),
        free_space(info__origin__position__x=float("inf")),
        free_space(info__origin__position__y=1e200),
        free_space(data=array("b", [-128] * 3600)),
        free_space(info__width=2**31, info__height=2**31),
        free_space(header__frame_id="elsewhere"),
    ]


def test_an_unusable_free_space_map_means_no_suggestion_and_a_sentence(node_of, unusable):
    """Each after a good one: what was known of obstacles before does not stand in, nor does nothing at all."""
    node, peer = node_of(autosave_period=0.0, suggestion_rate=20.0)
    peer.wait_for_node()
    maps = peer.node.create_publisher(OccupancyGrid, "/map", LATCHED)
    suggested = peer.listen(PoseArray, "/mapping/suggestions")
    fill(node, 5.0)
    settle(node, peer)

    def ask_again() -> None:
        """Something new in the map, so that places are chosen anew."""
        nonlocal start
        fill(node, 0.4, start=start)
        start += 0.5

    start = 10.0
    for i, bad in enumerate(unusable):
        maps.publish(free_space())
        spin_until(
            node,
            peer,
            lambda: (
                node.worker.free is not None
                and node.worker.free.header.frame_id == "odom"
                and len(node.worker.free.data) == 3600
                and node.worker.free.info.resolution > 0.05
            ),
        )
        ask_again()
        spin_until(node, peer, lambda: suggested and len(suggested[-1].poses) > 0)
        maps.publish(bad)
        spin_until(node, peer, lambda bad=bad: same(node.worker.free, bad))
        ask_again()
        spin_until(node, peer, lambda: "nothing is suggested meanwhile" in node.suggester.note)
        end = time.monotonic() + 0.2
        spin_until(node, peer, lambda end=end: time.monotonic() > end)
        assert len(suggested[-1].poses) == 0, f"unusable map {i}"
    spin_until(
        node, peer, lambda: any("nothing is suggested meanwhile" in text for text in peer.messages)
    )


def test_two_robots_on_one_topic_and_a_sensor_that_hangs_are_said(node_of):
    """Nothing is wrong with any single message."""
    node, peer = node_of(autosave_period=0.0)
    other = peer.node.create_publisher(Odometry, "odometry", sensor_data(1000, True))
    peer.wait_for_node()
    spin_until(node, peer, other.get_subscription_count)
    for i in range(200):
        stamp, x = EPOCH + i * NS // 50, 0.05 * i
        peer.odometry_publisher.publish(odometry(stamp, x, 0.0))
        peer.field_publisher.publish(magnetic_field(stamp, 47e-6))
        if 50 < i < 100:
            other.publish(odometry(stamp + NS // 100, 30.0 - x, 5.0))
        spin(node, peer, 0.001)
    settle(node, peer)
    for words in (
        "odometry: several publishers send on this topic",
        "the sensor has told exactly 47 uT for",
    ):
        spin_until(node, peer, lambda words=words: any(words in text for text in peer.messages))

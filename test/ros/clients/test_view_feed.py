"""What the view takes from topics that anybody may publish on: its page gets numbers, and nothing else."""

import json
import math

import pytest

pytest.importorskip("rclpy")

from geometry_msgs.msg import Point, Pose, PoseArray, PoseStamped
from nav_msgs.msg import Path
from ros_helpers import Peer
from visualization_msgs.msg import Marker, MarkerArray

from gp_mapping.ros.clients.view_feed import LiveFeed
from gp_mapping.ros.wire.qos import LATCHED

XY = [(0.0, 1.0), (math.nan, 2.0), (3.0, math.inf), (4.0, 5.0)]


def pose(x: float, y: float) -> Pose:
    out = Pose()
    out.position.x, out.position.y = x, y
    return out


def test_places_that_are_none_are_left_out():
    points = [Point(x=x, y=y) for x, y in XY]
    messages = {
        "suggestions": PoseArray(poses=[pose(*xy) for xy in XY]),
        "plan": Path(poses=[PoseStamped(pose=pose(*xy)) for xy in XY]),
        "markers": MarkerArray(
            markers=[Marker(ns=ns, points=points) for ns in ("path", "inducing")]
        ),
    }
    feed = LiveFeed(odometry="")
    try:
        with Peer() as peer:
            for name, message in messages.items():
                peer.node.create_publisher(type(message), f"mapping/{name}", LATCHED).publish(
                    message
                )
            feed.touch()

            def arrived() -> bool:
                feed.spin(0.02)
                said = feed.status()
                return bool(said["suggestions"] and said["plan"] and said["overlay"])

            peer.until(arrived, 20.0, "nothing arrives")
            said, overlay = feed.status(), feed.overlay()
    finally:
        feed.close()
    json.dumps([said, overlay], allow_nan=False)
    kept = [XY[0], XY[-1]]
    assert said["suggestions"] == overlay["path"] == overlay["inducing"] == kept
    assert set(said["plan"]) == set(kept)

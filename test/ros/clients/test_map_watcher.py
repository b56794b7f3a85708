"""Questions of the watcher: one at a time, and one whose answer is lost is not awaited for ever."""

import os

import pytest

pytest.importorskip("rclpy")

from ros_helpers import Peer
from sensor_msgs.msg import PointCloud2

from gp_mapping.ros.clients import map_watcher
from gp_mapping.ros.clients.map_watcher import MapWatcher


def test_an_answer_that_is_lost_does_not_end_the_asking(monkeypatch):
    monkeypatch.setattr(map_watcher, "ANSWER_TIMEOUT", 0.3, raising=False)
    watcher = MapWatcher(int(os.environ["ROS_DOMAIN_ID"]))
    try:
        with Peer() as peer:
            questions = peer.listen(PointCloud2, "mapping/query", 10)
            answers = peer.node.create_publisher(PointCloud2, "mapping/query_result", 10)

            def until(condition):
                peer.until(lambda: watcher.spin(0.01) or condition(), 10.0, "nothing comes")

            until(
                lambda: (
                    peer.node.count_publishers("mapping/query") and answers.get_subscription_count()
                )
            )
            peer.spin(0.2)  # the other direction of discovery
            assert watcher.ask([(0.0, 1.0)], "odom") and not watcher.ask([(0.0, 1.0)], "odom")
            until(lambda: len(questions) == 1)  # and is not answered
            until(lambda: watcher.ask([(2.0, 3.0)], "odom"))
            until(lambda: len(questions) == 2)
            for question in questions:  # the first one late
                answers.publish(question)
            until(lambda: watcher.answers)
            watcher.spin(0.1)
            (answer,) = watcher.answers
            assert answer[1]["x"] == [2.0] and watcher.ask([(0.0, 1.0)], "odom")
    finally:
        watcher.close()

"""What the worker's thread makes for a survey is published in the executor's, and after its end by nobody."""

import threading
import time

import numpy as np
import pytest
from geometry_msgs.msg import Point32, Polygon, PolygonStamped, PoseArray, PoseStamped
from nav_msgs.msg import OccupancyGrid, Path
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from ros_helpers import ask, cloud_array, fill, settle, spin, spin_until
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from std_srvs.srv import Trigger

from gp_mapping.ros.mapper import survey_port
from gp_mapping.ros.mapper.team_port import QOS as TILES
from gp_mapping.ros.simulator_node import floor_plan
from gp_mapping.ros.wire.outbound import cloud
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.runtime.surveying.rules import Rules


def test_the_gain_is_published_in_the_executors_thread_and_a_late_plan_by_none(node_of):
    node, peer = node_of(plan_places=20, plan_effort=1, plan_budget=4.0)
    gains, _ = peer.listen(OccupancyGrid, "/mapping/gain"), peer.listen(Path, "/mapping/plan")
    maps = peer.node.create_publisher(OccupancyGrid, "map", LATCHED)
    maps.publish(floor_plan(3.0, 3.0, "odom"))
    threads = []
    publisher = next(each for each in node.publishers if each.topic_name == "/mapping/gain")
    publish = publisher.publish

    def noting(message) -> None:
        threads.append(threading.current_thread())
        publish(message)

    publisher.publish = noting
    fill(node, 3.0)
    settle(node, peer)
    assert ask(node, peer, Trigger, "/mapping/survey/start").success
    spin_until(node, peer, lambda: gains)
    assert set(threads) == {threading.main_thread()} and max(gains[-1].data) == 98

    late = node.survey.on_plan  # the worker may have it in hand
    node.deactivate()
    late(node.survey.plan)


def test_what_a_robot_had_claimed_is_free_when_it_has_gone(node_of, monkeypatch):
    """And only then: a plan that is driven for long is not sent again."""
    monkeypatch.setattr(survey_port, "_GONE", 0.2)
    node, peer = node_of(other_plans="/other/plan, /third/plan")
    claims, set_others = {}, node.survey.set_others

    def noting(robot, line):
        claims[robot] = np.asarray(line).tolist()
        set_others(robot, line)

    monkeypatch.setattr(node.survey, "set_others", noting)
    plan = Path()
    plan.poses = [PoseStamped()]
    plan.poses[0].pose.position.x = 1.0

    def publish(topic):
        publisher = peer.node.create_publisher(Path, topic, LATCHED)
        publisher.publish(plan)
        return publisher

    goes, _stays = publish("/other/plan"), publish("/third/plan")
    spin_until(node, peer, lambda: len(claims) == 2)
    held = time.monotonic() + 1.0
    spin_until(node, peer, lambda: time.monotonic() > held)
    assert list(claims.values()) == [[[1.0, 0.0]]] * 2

    peer.node.destroy_publisher(goes)
    spin_until(node, peer, lambda: claims["/other/plan"] == [])
    assert claims["/third/plan"] == [[1.0, 0.0]]

    publish("/other/plan")
    spin_until(node, peer, lambda: claims["/other/plan"] == [[1.0, 0.0]])

    # one that was away without noticing it, as a computer that slept, sends nothing again by itself
    count, away = node.count_publishers, ["/third/plan"]
    monkeypatch.setattr(node, "count_publishers", lambda t: 0 if t in away else count(t))
    spin_until(node, peer, lambda: claims["/third/plan"] == [])
    away.clear()
    spin_until(node, peer, lambda: claims["/third/plan"] == [[1.0, 0.0]])


def test_a_plan_from_before_the_first_pose_is_taken_when_the_frame_is_known(node_of, monkeypatch):
    """It is latched: whoever sent it does not send it again. Of two the newer one counts."""
    came, take = [], vars(survey_port.SurveyPort)["_on_other_plan"]

    def noting(port, topic, transform, message):
        came.append(topic)
        take(port, topic, transform, message)

    monkeypatch.setattr(survey_port.SurveyPort, "_on_other_plan", noting)
    node, peer = node_of(other_plans="/other/plan, /elsewhere/plan")
    claims = {}
    monkeypatch.setattr(
        node.survey, "set_others", lambda robot, line: claims.update({robot: line.tolist()})
    )

    def publish(topic, frame, *places):
        publisher = peer.node.create_publisher(Path, topic, LATCHED)
        for x in places:
            plan = Path()
            plan.header.frame_id, plan.poses = frame, [PoseStamped()]
            plan.poses[0].pose.position.x = x
            before = len(came)
            publisher.publish(plan)
            spin_until(node, peer, lambda before=before: len(came) > before)

    publish("/other/plan", "odom", 1.0, 2.0)
    publish("/elsewhere/plan", "garage", 1.0)
    assert not claims and not node.frame

    fill(node, 0.1)
    spin_until(node, peer, lambda: claims)
    assert claims == {"/other/plan": [[2.0, 0.0]]}
    assert came == ["/other/plan"] * 2 + ["/elsewhere/plan", "/other/plan", "/elsewhere/plan"]


def test_a_region_from_before_the_first_pose_is_compared_with_the_frame_of_the_map(
    node_of, monkeypatch
):
    """One in another frame was taken as if it were in the map's; published once, it does not come again."""
    node, peer = node_of()
    corners = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0)]

    def polygon(topic, frame, shift=0.0):
        points = [Point32(x=x + shift, y=y) for x, y in corners]
        message = PolygonStamped(polygon=Polygon(points=points))
        message.header.frame_id = frame
        sender = peer.node.create_publisher(PolygonStamped, f"/mapping/{topic}", 10)
        spin_until(node, peer, lambda: sender.get_subscription_count())
        sender.publish(message)

    port, survey, came, said = node.survey_port, node.survey, [], []
    monkeypatch.setattr(node.get_logger(), "info", came.append)
    monkeypatch.setattr(node.get_logger(), "warning", said.append)
    for number, (topic, frame) in enumerate(
        [("region", "odom"), ("region", "elsewhere"), ("keep_out", "odom"), ("keep_out", "")]
    ):
        polygon(topic, frame, 10.0 * number)
        spin_until(node, peer, lambda number=number: len(came) > number)
    port.tick()  # nothing is known yet
    assert survey.rules.now() == Rules() and all(
        "waits for the first pose" in text for text in came
    )

    fill(node, 0.1)
    spin_until(node, peer, lambda: len(survey.rules.now().keep_out) == 2)
    rules = survey.rules.now()
    assert [float(p.corners.min()) for p in rules.region] == [0.0]  # not that of `elsewhere`
    # a publisher that repeats itself fills no log
    for _ in range(3):
        polygon("region", "elsewhere", 40.0)
    spin_until(node, peer, lambda: node.worker.status.counts.get("polygon_refused") == 4)
    assert "'elsewhere'" in survey.note and survey.rules.now() == rules
    assert len(said) == 1 and "'elsewhere'" in said[0]
    what_was_latched_is_heard_once(node, peer, monkeypatch)


def what_was_latched_is_heard_once(node, peer, monkeypatch):
    """A mapper that was started anew knew nothing of areas to keep out of, however they were published."""
    latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    sender, heard = peer.node.create_publisher(PolygonStamped, "/mapping/keep_out", latched), []

    def send(shift):
        corners = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)]
        points = [Point32(x=x + shift, y=y) for x, y in corners]
        sender.publish(PolygonStamped(polygon=Polygon(points=points)))

    node.deactivate()
    monkeypatch.setattr(node.survey, "set_keep_out", lambda xy, *_: heard.append(xy[0][0]) or "")
    send(5.0)
    send(6.0)
    node.activate()
    spin_until(node, peer, lambda: node.survey_port.tick() or len(heard) == 2)
    spin_until(node, peer, lambda: sender.get_subscription_count() == 2)
    send(7.0)
    spin_until(node, peer, lambda: len(heard) >= 3)
    spin(node, peer, 0.3)
    assert heard == [5.0, 6.0, 7.0]


def test_a_goal_in_another_frame_is_not_left_out_here(node_of):
    node, peer = node_of()
    fill(node, 0.1)
    spin_until(node, peer, lambda: node.frame)
    goals = peer.node.create_publisher(PoseStamped, "/mapping/unreachable", 10)
    spin_until(node, peer, goals.get_subscription_count)
    for x, frame in enumerate(("base_link", "", "/odom")):
        goal = PoseStamped()
        goal.header.frame_id, goal.pose.position.x = frame, float(x)
        goals.publish(goal)
    spin_until(node, peer, lambda: len(node.survey.rules.now().closed) == 2)
    assert [x for x, *_ in node.survey.rules.now().closed] == [1.0, 2.0]
    spin_until(node, peer, lambda: node.worker.status.counts.get("place_refused") == 1)


@pytest.mark.parametrize("reliability", [ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT])
def test_a_free_space_map_that_is_not_latched_is_heard(node_of, reliability):
    node, peer = node_of()
    qos = QoSProfile(depth=1, reliability=reliability, durability=DurabilityPolicy.VOLATILE)
    maps = peer.node.create_publisher(OccupancyGrid, "map", qos)
    spin_until(node, peer, lambda: maps.get_subscription_count())
    maps.publish(floor_plan(3.0, 3.0, "odom"))
    spin_until(node, peer, lambda: node.worker.free is not None)


def test_what_is_suggested_is_announced_and_what_others_announce_is_left_to_them(node_of):
    """On ~/claims, where somebody listens to the suggestions; rubbish and other frames are counted."""
    node, peer = node_of(
        namespace="/robot1", merge_from="robot1,robot2", merge_transforms="", suggestion_rate=20.0
    )
    announced = peer.listen(PointCloud2, "/robot1/mapping/claims", TILES)
    others = peer.node.create_publisher(PointCloud2, "/robot2/mapping/claims", TILES)
    claims = node.suggester.claims
    fill(node, 3.0)
    spin_until(node, peer, lambda: others.get_subscription_count() and node.frame)
    assert not announced, "nobody listens to the suggestions"

    suggested = peer.listen(PoseArray, "/robot1/mapping/suggestions")

    def claimed() -> list[tuple[float, float]]:
        points = cloud_array(announced[-1], ("x", "y", "choice"))
        return points[np.flatnonzero(np.diff(points[:, 2], append=-1.0)), :2].tolist()

    def places() -> list[tuple[float, float]]:
        return [(p.position.x, p.position.y) for p in suggested[-1].poses]

    # what is announced does not wait until the suggestions are published with the map
    def agree() -> bool:
        a, b = claimed(), places()
        return len(a) == len(b) > 0 and np.allclose(a, b)

    spin_until(node, peer, lambda: announced and suggested and agree())

    def announce(frame, points, columns=("x", "y", "choice")):
        others.publish(cloud(np.array(points), columns, Header(frame_id=frame)))

    seen = len(suggested)
    announce("odom", [(1.0, 1.0, 0.0), (2.0, 1.0, 0.0), (3.0, 1.0, 1.0)])
    spin_until(node, peer, lambda: claims.places == 2 and len(suggested) > seen)
    # robot1 comes first: robot2's first place counts before its second choice
    before_first, (place,) = claims.others(2).turns
    assert before_first == () and place.tolist() == [[1.0, 1.0], [2.0, 1.0]]

    for number, (frame, points, columns) in enumerate(
        [
            ("elsewhere", [(1.0, 1.0, 0.0)], ("x", "y", "choice")),
            ("odom", [(np.nan, 1.0, 0.0)], ("x", "y", "choice")),
            ("odom", [(1.0, 1.0, 0.0)], ("a", "b", "choice")),
            ("odom", [(1.0, 1.0, 0.0)] * 1001, ("x", "y", "choice")),
        ]
    ):
        announce(frame, points, columns)
        spin_until(
            node,
            peer,
            lambda number=number: node.worker.status.counts.get("place_refused") == number + 1,
        )
    assert claims.places == 2

    # an emptied map claims nothing
    seen = len(announced)
    assert ask(node, peer, Trigger, "/robot1/mapping/clear").success
    spin_until(node, peer, lambda: len(announced) > seen and announced[-1].width == 0)

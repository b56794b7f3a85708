"""A robot explores by itself: simulator, mapper and explorer as processes of their own over real DDS."""

import math

import numpy as np
import pytest

pytest.importorskip("rclpy")

import torch
from dds_helpers import DEEP, Listener, Process, ros_run
from diagnostic_msgs.msg import DiagnosticArray
from domains import domain_of
from geometry_msgs.msg import Point32, PolygonStamped, PoseStamped
from nav_msgs.msg import OccupancyGrid, Odometry, Path
from nav_msgs.srv import GetPlan
from visualization_msgs.msg import MarkerArray

from gp_mapping.cli import main
from gp_mapping.commands.saved import open_session
from gp_mapping.planning import FreeSpace
from gp_mapping.ros.simulator_node import floor_plan
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.sim.walls import parse_walls

DOMAIN = domain_of("explore")
WALLS = "1.9 0 2.0 1.7, 0.9 2.3 1.5 2.6"
BUDGET = 7.0
SIMULATOR = (
    "commanded:=true",
    "waypoints:='0.6 0.6, 1 0.6'",
    f"walls:='{WALLS}'",
    "world.width:=4.0",
    "world.depth:=3.2",
    "sim.duration:=240.0",
    "reliable:=true",
    "wait_for_subscribers:=60.0",
    "sim.field_rate:=10.0",
    "sim.odometry_rate:=10.0",
    "robot.max_speed:=0.6",
    "robot.max_turn_rate:=2.5",
)
MAPPER = (
    "reliable_inputs:=true",
    "publish_rate:=1.0",
    "suggestion_rate:=1.0",
    "plan_speed:=0.4",
    "plan_turn_rate:=1.8",
    f"plan_budget:={BUDGET}",
    "plan_home:=start",
    "plan_places:=100",
    "plan_effort:=32",
    "max_inducing:=150",
    "robot_radius:=0.2",
    "autosave_period:=0.0",
)
TOPICS = {
    "/mapping/plan": (Path, LATCHED),
    "/odometry": (Odometry, DEEP),
    "/diagnostics": (DiagnosticArray, DEEP),
    "/mapping/suggestion": (PoseStamped, LATCHED),
    "/mapping/plan_markers": (MarkerArray, LATCHED),
    "/mapping/gain": (OccupancyGrid, LATCHED),
}


def line_of(path: Path) -> np.ndarray:
    return np.array([(p.pose.position.x, p.pose.position.y) for p in path.poses]).reshape(-1, 2)


def survey(listener: Listener) -> dict:
    for message in reversed(listener.got["/diagnostics"]):
        for status in message.status:
            if status.name == "mapping: survey":
                return {v.key: v.value for v in status.values}
    return {}


def test_the_robot_drives_its_plan_among_walls_and_ends_at_home_within_the_budget(tmp_path):
    run = {"domain": DOMAIN, "log_dir": tmp_path}
    with (
        Listener(DOMAIN, TOPICS) as listener,
        ros_run(
            "gp_mapping.ros.mapping_node", *MAPPER, f"save_directory:={tmp_path}", **run
        ) as mapper,
        ros_run("gp_mapping.ros.simulator_node", *SIMULATOR, **run) as simulator,
        ros_run(
            "gp_mapping.ros.explorer_node",
            "drive:=cmd_vel",
            "speed:=0.4",
            "turn_rate:=1.8",
            "acceleration:=0.7",
            "stale_after:=3.0",
            **run,
        ) as explorer,
    ):
        ended = listener.spin_until(lambda: explorer.popen.poll() is not None, 240.0)
        said = explorer.output + mapper.output
        assert ended and explorer.popen.returncode == 0, said
        state = survey(listener)
        assert state["phase"] == "done" and "budget" in state["reason"], said
        simulator.interrupt()
        mapper.interrupt()
        listener.spin_through(mapper, 60.0)
        assert "Traceback" not in mapper.output + explorer.output

    track = np.array(
        [(m.pose.pose.position.x, m.pose.pose.position.y) for m in listener.got["/odometry"]]
    )
    free = FreeSpace.from_occupancy_grid(
        floor_plan(4.0, 3.2, "odom", walls=parse_walls(WALLS)), 0.1
    )
    assert bool(free.allows(torch.from_numpy(track)).all()), "a wall was driven through"
    driven = np.hypot(*np.diff(track, axis=0).T).sum()
    assert 4.0 < driven < 1.05 * BUDGET
    assert math.dist(track[-1], (0.6, 0.6)) < 0.4, "home"

    plans = [line_of(path) for path in listener.got["/mapping/plan"]]
    assert len(plans[-1]) == 0 and sum(len(plan) > 1 for plan in plans) >= 2
    wide = FreeSpace.from_occupancy_grid(
        floor_plan(4.0, 3.2, "odom", walls=parse_walls(WALLS)), 0.2
    )
    for plan in plans:
        assert wide.sees(plan[1:-1], plan[2:]).all() if len(plan) > 2 else True
    assert np.ptp(track[:, 0]) > 1.8, "it went around the wall"
    markers = {m.ns for message in listener.got["/mapping/plan_markers"] for m in message.markers}
    assert markers == {"plan", "plan_gain", "plan_stops", "plan_score"}
    gain = listener.got["/mapping/gain"][-1]
    values = np.array(gain.data).reshape(gain.info.height, gain.info.width)
    assert values.max() == 98 and (values == -1).any()
    goals = listener.got["/mapping/suggestion"]
    assert goals and all(
        abs(np.hypot(g.pose.orientation.z, g.pose.orientation.w) - 1) < 1e-6 for g in goals
    )


@pytest.fixture
def mapped(tmp_path):
    """A mapper that has seen a standing robot in the room."""
    run = {"domain": DOMAIN + 1, "log_dir": tmp_path}
    with (
        Listener(DOMAIN + 1, TOPICS) as listener,
        ros_run(
            "gp_mapping.ros.mapping_node", *MAPPER, f"save_directory:={tmp_path}", **run
        ) as mapper,
        ros_run(
            "gp_mapping.ros.simulator_node", *SIMULATOR, "sim.duration:=11.5", **run
        ) as simulator,
    ):
        assert listener.spin_through(simulator, 90.0) == 0, simulator.output
        yield listener, mapper
        mapper.interrupt()
        listener.spin_through(mapper, 60.0)


def call(listener: Listener, kind, name: str, request, timeout: float = 60.0):
    client = listener.node.create_client(kind, name)
    assert listener.spin_until(client.service_is_ready, timeout)
    future = client.call_async(request)
    assert listener.spin_until(future.done, timeout)
    return future.result()


def pose(x: float, y: float, frame: str = "odom") -> PoseStamped:
    out = PoseStamped()
    out.header.frame_id, out.pose.position.x, out.pose.position.y = frame, x, y
    out.pose.orientation.w = 1.0
    return out


def test_plans_on_demand_and_wrong_questions(mapped):
    listener, mapper = mapped
    found = call(listener, GetPlan, "/mapping/make_plan", GetPlan.Request(goal=pose(3.2, 0.8)))
    line = line_of(found.plan)
    assert found.plan.header.frame_id == "odom"
    assert (
        len(line) > 5
        and math.dist(line[-1], (3.2, 0.8)) < 0.15
        and math.dist(line[0], (0.6, 0.6)) < 0.1
    )
    gaps = np.hypot(*np.diff(line, axis=0).T)
    assert gaps.max() <= 0.25 + 1e-6 and gaps.sum() <= BUDGET + 1e-6
    refused = call(
        listener, GetPlan, "/mapping/make_plan", GetPlan.Request(goal=pose(3.2, 0.8, "earth"))
    )
    assert not refused.plan.poses
    outside = call(listener, GetPlan, "/mapping/make_plan", GetPlan.Request(start=pose(30.0, 0.8)))
    assert not outside.plan.poses

    region = listener.node.create_publisher(PolygonStamped, "/mapping/region", 10)
    assert listener.spin_until(lambda: region.get_subscription_count() == 1)
    crossed = PolygonStamped()
    crossed.header.frame_id = "odom"
    crossed.polygon.points = [
        Point32(x=x, y=y) for x, y in ((0.0, 0.0), (2.0, 2.0), (2.0, 0.0), (0.0, 2.0))
    ]
    region.publish(crossed)
    assert listener.spin_until(lambda: "crosses or touches" in mapper.output)
    small = PolygonStamped()
    small.header.frame_id = "odom"
    small.polygon.points = [
        Point32(x=x, y=y) for x, y in ((0.2, 0.2), (1.5, 0.2), (1.5, 1.5), (0.2, 1.5))
    ]
    region.publish(small)
    listener.spin_until(lambda: False, 1.0)
    inside = line_of(call(listener, GetPlan, "/mapping/make_plan", GetPlan.Request()).plan)
    assert len(inside) > 2 and inside.max() < 1.5 and inside.min() > 0.2
    words = mapper.output
    assert "earth" in words and "leaves it no room" in words and "Traceback" not in words


def explore(tmp_path, *arguments):
    return Process(
        "gp_mapping.cli",
        "explore",
        "--output",
        str(tmp_path / "out"),
        "--domain-id",
        str(DOMAIN + 2),
        *arguments,
        domain=DOMAIN + 2,
        log_dir=tmp_path,
    )


def test_the_command_surveys_a_region_within_the_files_budget_and_saves_the_map(tmp_path):
    params = tmp_path / "small.yaml"
    params.write_text(
        "/**:\n  ros__parameters:\n    plan_places: 80\n    plan_effort: 16\n    max_inducing: 100\n"
        "    plan_budget: 2.5\n    publish_rate: 2.0\n    resolution: 0.1\n    map_name: hall\n"
        "    diagnostics_period: 0.25\n"
    )
    with explore(
        tmp_path,
        "--simulate",
        "--params",
        str(params),
        "--region",
        "0.1 0.1, 2.5 0.1, 2.5 2.2, 0.1 2.2",
        "--speed",
        "0.5",
    ) as process:
        assert process.wait(150.0) == 0, process.output
        said, map_file = process.output, tmp_path / "out" / "hall" / "map.gpm"
    assert (
        str(map_file) in said and "done: " in said and "budget" in said and "Traceback" not in said
    )
    log = (tmp_path / "out" / "mapper.log").read_text()
    assert log.count("saved checkpoint") == 1 and "was not saved" not in log, "once, with all of it"
    path = open_session(map_file).path.numpy()
    assert (path > 0.1).all() and path[:, 0].max() < 2.5 and path[:, 1].max() < 2.2, (
        "it left the region"
    )
    assert (
        1.0 < np.hypot(*np.diff(path, axis=0).T).sum() < 2.7
        and math.dist(path[-1], (0.6, 0.6)) < 0.4
    )


def test_a_command_that_cannot_explore_says_why(tmp_path):
    """Nobody drives and nothing is measured: no plan, code 1; a node that dies is named."""
    with explore(tmp_path, "--patience", "4") as process:
        assert process.wait(60.0) == 1
        assert (
            "gp-mapping explore: no plan for 4 s" in process.output
            and "Traceback" not in process.output
        )
    with explore(tmp_path, "--drive", "nav2") as process:
        code = process.wait(60.0)
        assert code == 1 and "the explorer ended early with code 2" in process.output
        assert "needs nav2_msgs" in process.output


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--budget", "-1"], "--budget -1.0: expected 0 or more"),
        (["--home", "there"], "--home: 'there' is not a place"),
        (["--region", "0 0, 1 1"], "--region"),
        (["--region", "0 0, 2 2, 2 0, 0 2"], "crosses or touches"),
        (["--kind", "nobody"], "--kind nobody: expected one of"),
        (["--remap", "odometry=/odom"], "--remap odometry=/odom: expected FROM:=TO"),
        (["--simulate", "--drive", "nav2"], "driven by cmd_vel"),
        (["--output", "/dev/null/x"], "--output /dev/null/x"),
        (["--speed", "50"], "--speed: 50.0 m/s is outside [0.01, 5.0]"),
        (["--speed", "0"], "--speed: 0.0 m/s is outside [0.01, 5.0]"),
        (["--speed", "0.005", "--simulate"], "--speed: 0.005 m/s is outside [0.01, 5.0]"),
    ],
)
def test_wrong_usage_of_explore_is_one_line(capsys, arguments, words):
    assert main(["explore", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.mark.parametrize("domain", ["233", "-1", "one", "1e1"])
def test_a_domain_of_the_environment_that_is_none_is_one_line(
    capsys, monkeypatch, tmp_path, domain
):
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    assert main(["explore", "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"ROS_DOMAIN_ID is {domain!r}, expected a number from 0 to 232" in error
    assert error.count("\n") == 1 and not (tmp_path / "out").exists()

"""The launch files, run for real where launch_ros is installed (any ROS installation; not on PyPI)."""

import ast
import re

import pytest
import yaml
from any_bag import NS, header, make, transform, write_bag
from launched import Launch, ended
from lifecycle_msgs.srv import GetState
from nav_msgs.msg import OccupancyGrid
from rcl_interfaces.srv import GetParameters
from ros_helpers import QUICK, ROOT, STARTS, Peer, grid_array, parameter_file
from rosgraph_msgs.msg import Clock
from small_drive import lanes, write_drive
from std_srvs.srv import Trigger

from gp_mapping.recording.bag import STORE
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.settings.plan import of_a_whole_survey

FILES = sorted((ROOT / "launch").glob("*.launch.py"))
EVERYWHERE = {
    "params",
    "model",
    "autostart",
    "rviz",
    "magnetic_field_topic",
    "odometry_topic",
    "map_topic",
    "sensor",
    "sensor_topic",
    "pose_source",
    "pose_topic",
    "map_frame",
    "base_frame",
    "namespaced_tf",
    "save_directory",
    "save_on_exit",
    "load_checkpoint",
    "resume",
    "respawn",
}
EXPECTED = {
    "mapping": {"namespace", "use_sim_time"},
    "replay": {"bag", "rate", "loop", "namespace"},
    "demo": {"namespace", "speed", "seed", "frame_prefix"},
    "explore": {
        "simulate",
        "drive",
        "budget",
        "budget_time",
        "home",
        "kind",
        "speed",
        "cmd_vel_topic",
    },
    "robots": {"robots", "simulate", "use_sim_time", "team", "merge_transforms"},
}
SHARED = ROOT / "gp_mapping" / "ros" / "tools" / "launch_arguments.py"
PROCESSES = SHARED.with_name("launching.py")


def calls_of(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_launch_files_start_nodes_of_ours_and_explain_their_arguments(path):
    calls = calls_of(path)
    for call in calls:
        if call.func.id == "our_node":
            assert (ROOT / "gp_mapping" / "ros" / f"{call.args[0].value}.py").is_file()
        if call.func.id == "argument":
            assert len(call.args) in (3, 4) and len(call.args[2].value) > 5
    declared = declared_in(path)
    assert declared >= EVERYWHERE | EXPECTED[path.name.partition(".")[0]]
    read = {
        call.args[1].value
        for call in calls
        if call.func.id in ("value", "flag", "names", "number", "existing_path")
    }
    assert read <= declared, f"{sorted(read - declared)} is read and not declared"


def declared_in(path):
    """Names of the arguments of a launch file: its own, and those of all."""

    def own(tree):
        return {call.args[0].value for call in calls_of(tree) if call.func.id == "argument"}

    assert any(call.func.id == "common_arguments" for call in calls_of(path))
    several = any(k.arg == "several" for call in calls_of(path) for k in call.keywords)
    return own(path) | (own(SHARED) - ({"namespace"} if several else set()))


def test_shared_code_reads_arguments_that_some_launch_file_has():
    declared = set.union(*map(declared_in, FILES))
    text = PROCESSES.read_text()
    assert set(re.findall(r'(?:value|flag)\(\s*context,\s*"(\w+)"', text)) <= declared
    assert set(re.findall(r'"(\w+_topic)"', text)) <= declared
    trees = [ast.parse(path.read_text()) for path in (SHARED, PROCESSES)]
    top = {n.module for tree in trees for n in tree.body if isinstance(n, ast.ImportFrom)}
    ours = {module for module in top if module.startswith("gp_mapping")}
    assert ours == {"gp_mapping.ros.tools.launch_arguments"}, "a launch would wait for torch"


def test_rviz_shows_latched_topics_of_ours_with_fixed_bounds():
    from gp_mapping.ros.mapper.outputs import OUTPUTS

    manager = yaml.safe_load((ROOT / "rviz" / "mapping.rviz").read_text())["Visualization Manager"]
    shown = {d["Topic"]["Value"]: d for d in manager["Displays"] if "Topic" in d}
    ours = {topic: d for topic, d in shown.items() if topic.startswith("/mapping/")}
    assert {t.removeprefix("/mapping/") for t in ours} <= {one.name for one in OUTPUTS}
    assert {
        f"/mapping/{name}" for name in ("field", "mean", "stddev", "markers", "suggestion")
    } <= set(ours)
    for display in ours.values():
        assert display["Topic"]["Durability Policy"] == "Transient Local"
        assert display["Topic"]["Reliability Policy"] == "Reliable"
    assert {d["Class"].split("/")[1] for d in manager["Displays"]} >= {
        "Odometry",
        "TF",
        "Grid",
        "Pose",
        "MarkerArray",
    }
    assert manager["Views"]["Current"]["Class"].endswith("TopDownOrtho")
    clouds = [d for d in manager["Displays"] if d["Class"].endswith("PointCloud2")]
    assert {d["Channel Name"] for d in clouds} == {"mean", "stddev"}
    assert all(
        not d["Autocompute Intensity Bounds"]
        and 0 <= d["Min Intensity"] < d["Max Intensity"] < 1e-3
        for d in clouds
    )


def test_demo_launch_maps_the_simulated_room(tmp_path):
    params = parameter_file(tmp_path, **QUICK, **STARTS)
    with (
        Launch(
            tmp_path, "demo", "speed:=5.0", "namespace:=robot", "rviz:=false", f"params:={params}"
        ) as run,
        Peer() as peer,
    ):
        mean = peer.listen(OccupancyGrid, "/robot/mapping/mean")
        peer.until(
            lambda: mean and (grid_array(mean[-1]) > 0).sum() > 200,
            40,
            "no map from the launch file",
        )
        run.interrupt()


def test_two_robots_from_one_launch_do_not_mix(tmp_path):
    """Each hears its own simulator, publishes in its own namespace, and saves into its own folder."""
    robots, params = ("a", "fleet/b"), parameter_file(tmp_path, **QUICK, **STARTS)
    with (
        Launch(
            tmp_path,
            "robots",
            "robots:=a,fleet/b",
            "simulate:=true",
            "rviz:=auto",
            f"params:={params}",
        ) as run,
        Peer() as peer,
    ):
        maps = {name: peer.listen(OccupancyGrid, f"/{name}/mapping/mean") for name in robots}
        peer.until(
            lambda: all(seen and (grid_array(seen[-1]) > 0).any() for seen in maps.values()),
            60,
            "no two maps",
        )
        for name in robots:
            for topic, who in (
                (f"/{name}/magnetic_field", "mapping"),
                (f"/{name}/odometry", "mapping"),
            ):
                heard = peer.node.get_subscriptions_info_by_topic(topic)
                assert [(i.node_namespace, i.node_name) for i in heard] == [(f"/{name}", who)]
            said = peer.node.get_publishers_info_by_topic(f"/{name}/mapping/mean")
            assert [i.node_namespace for i in said] == [f"/{name}"]
            answer = peer.call(Trigger, f"/{name}/mapping/save", Trigger.Request(), timeout=60.0)
            assert (
                answer.success and (tmp_path / "gp_mapping_output" / name / "map.gpm").is_file()
            ), answer.message
        assert peer.node.count_publishers("/mapping/mean") == 0
        run.interrupt()
        assert (
            "rviz2 is not installed" not in run.output
            or "gp-mapping view --namespace fleet/b" in run.output
        )


@pytest.mark.parametrize("given, information", [({}, 0.1), ({"inducing_information": 0.5}, 0.5)])
def test_a_team_of_simulated_robots_shows_one_map(tmp_path, given, information):
    """One command: the base station's map has what both have driven."""
    params = parameter_file(
        tmp_path, **QUICK, **STARTS, **given, tiles_period=0.5, tiles_round=3.0, merge_period=0.5
    )
    with (
        Launch(tmp_path, "robots", "simulate:=true", "team:=true", f"params:={params}") as run,
        Peer() as peer,
    ):
        shown = {
            name: peer.listen(OccupancyGrid, f"/{name}/mean")
            for name in ("robot1/mapping", "robot2/mapping", "fusion")
        }

        def height(name):
            rows = (grid_array(shown[name][-1]) > 0).any(1).nonzero()[0] if shown[name] else []
            return (rows[-1] - rows[0]) * 0.1 if len(rows) else 0.0

        # each drives a strip of 2 m of its own
        peer.until(lambda: min(map(height, shown)) > 2.2, 90, "no map of both")
        for name in shown:  # a sum knows a robot's data only through its inputs: closer ones
            request = GetParameters.Request(names=["inducing_information"])
            answer = peer.call(GetParameters, f"/{name}/get_parameters", request, again=3.0)
            assert answer.values[0].double_value == information
        run.interrupt()


def test_sensor_pose_and_model_arguments_reach_the_node(tmp_path):
    """Other inputs are listened to, under other names; the model's own file counts; params win over it."""
    params = tmp_path / "own.yaml"
    params.write_text("/**:\n  ros__parameters:\n    resolution: 0.3\n")
    with (
        Launch(
            tmp_path,
            "mapping",
            "namespace:=r",
            "sensor:=temperature",
            "sensor_topic:=/air/t",
            "pose_source:=pose",
            "pose_topic:=/mocap",
            "map_topic:=/map",
            "model:=exact",
            f"params:={params}",
        ) as run,
        Peer() as peer,
    ):
        for topic in ("/air/t", "/mocap", "/map"):
            peer.until(
                lambda topic=topic: peer.node.count_subscribers(topic),
                30,
                f"nobody listens to {topic}",
            )
        wanted = {"model": "exact", "sensor": "temperature", "cell_length": 0.2, "resolution": 0.3}
        request = GetParameters.Request(names=list(wanted))
        answer = peer.call(GetParameters, "/r/mapping/get_parameters", request, again=3.0)
        assert [v.string_value or v.double_value for v in answer.values] == list(wanted.values())
        run.interrupt()


def test_replay_launch_plays_a_bag_into_the_node(tmp_path):
    write_drive(tmp_path / "drive", lanes(count=2))
    with (
        Launch(
            tmp_path,
            "replay",
            f"bag:={tmp_path / 'drive'}",
            "rate:=10.0",
            "rviz:=false",
            f"params:={parameter_file(tmp_path, **QUICK, **STARTS)}",
        ) as run,
        Peer() as peer,
    ):
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        peer.until(
            lambda: mean and (grid_array(mean[-1]) > 0).sum() > 50, 40, "no map from the bag"
        )
        run.interrupt()


def test_without_autostart_the_node_waits_for_a_manager(tmp_path):
    with Launch(tmp_path, "mapping", "autostart:=false") as run, Peer() as peer:
        state = peer.call(GetState, "/mapping/get_state", GetState.Request(), again=3.0)
        assert state.current_state.label == "unconfigured"
        run.interrupt()


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (("wait",), 3, "nobody subscribed"),
        (("cut",), 1, "no message is left"),
        (("topic",), 1, "there is no topic /mag"),
    ],
)
def test_a_player_that_fails_ends_the_launch_with_its_exit_code(tmp_path, arguments, code, said):
    """Nobody sits before a mapper that waits for ever; and a script that started the launch is told."""
    write_drive(tmp_path / "drive", lanes(count=2))
    more = []
    if arguments == ("wait",):  # the mapper listens to another node's topics only
        more = ["autostart:=false"]
    elif arguments == ("cut",):
        stored = next((tmp_path / "drive").glob("*.mcap"))
        stored.write_bytes(stored.read_bytes()[:1000])
    else:
        more = ["magnetic_field_topic:=/mag"]
    with Launch(
        tmp_path, "replay", f"bag:={tmp_path / 'drive'}", "rate:=20.0", "rviz:=false", *more
    ) as run:
        assert ended(run) == code, run.output
        assert (
            said in run.output
            and f"the player of the bag ended with exit code {code}" in run.output
        )


def test_a_mapper_that_fails_ends_demo_and_replay(tmp_path):
    with Launch(
        tmp_path, "demo", f"load_checkpoint:={tmp_path / 'nowhere.gpm'}", "rviz:=false"
    ) as run:
        assert ended(run) not in (0, None) and "the mapper ended with exit code" in run.output


def test_a_bag_must_be_named(tmp_path):
    with Launch(tmp_path, "replay", "rate:=2.0") as run:
        assert ended(run) != 0 and "'bag'" in run.output and "process started" not in run.output


def other_topics(path, kind="field"):
    """A drive with a second magnetometer, a status topic that nobody reads, and a recorded /clock."""
    store = STORE
    entries, stamp = [], 1_700_000_000 * NS
    for i in range(300):
        stamp += NS // 50
        x, y = 0.02 * i % 2.0, 0.3 * (i // 100)
        h = header(stamp, "odom")
        entries.append(
            (
                "/odometry",
                "nav_msgs/msg/Odometry",
                stamp,
                make(
                    "nav_msgs/msg/Odometry",
                    header=h,
                    child_frame_id="base_link",
                    pose={"pose": {"position": {"x": x, "y": y}, "orientation": {"w": 1.0}}},
                ),
            )
        )
        for topic in ("/magnetic_field", "/imu2/mag"):
            entries.append(
                (
                    topic,
                    "sensor_msgs/msg/MagneticField",
                    stamp,
                    make(
                        "sensor_msgs/msg/MagneticField",
                        header=header(stamp, "imu"),
                        magnetic_field={"x": 0.0, "y": 0.0, "z": 45e-6 + 1e-6 * x},
                    ),
                )
            )
        entries.append(
            (
                "/tf",
                "tf2_msgs/msg/TFMessage",
                stamp,
                make(
                    "tf2_msgs/msg/TFMessage",
                    transforms=[transform(stamp, "map", "base_link", (x, y, 0.0))],
                ),
            )
        )
        if i % 10 == 0:
            entries.append(
                (
                    "/robot/status",
                    "std_msgs/msg/String",
                    stamp,
                    make("std_msgs/msg/String", data="well"),
                )
            )
            entries.append(
                (
                    "/clock",
                    "rosgraph_msgs/msg/Clock",
                    stamp,
                    make("rosgraph_msgs/msg/Clock", clock={"sec": i, "nanosec": 0}),
                )
            )
    return write_bag(path, entries, store)


def test_topics_that_nobody_chose_are_not_waited_for(tmp_path):
    """A second magnetometer, a status and TF, which an ordinary recording holds as well; and its clock is left out."""
    params = parameter_file(tmp_path, **QUICK, **STARTS)
    with (
        Launch(
            tmp_path,
            "replay",
            f"bag:={other_topics(tmp_path / 'bag')}",
            "rate:=10.0",
            "rviz:=false",
            f"params:={params}",
        ) as run,
        Peer() as peer,
    ):
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        ticks = peer.listen(Clock, "/clock", 10)
        peer.until(
            lambda: mean and (grid_array(mean[-1]) > 0).sum() > 50, 60, "no map from the bag"
        )
        peer.until(lambda: "played" in run.output, 60, "the player did not end")
        times = [m.clock.sec for m in ticks]
        assert times == sorted(times) and min(times) > 1_600_000_000, "one clock only"
        assert "the recorded /clock is not played" in run.output
        assert "nobody listens to" in run.output and "/imu2/mag" in run.output
        answer = peer.call(
            GetParameters, "/mapping/get_parameters", GetParameters.Request(names=["max_wait"])
        )
        assert answer.values[0].double_value == 20.0, (
            "2 s of wall time are 20 s of a recording at ten times its speed"
        )
        run.interrupt()


def test_saving_loading_and_frames_are_arguments(tmp_path):
    write_drive(tmp_path / "drive", lanes(count=2))
    params = parameter_file(tmp_path, **QUICK, **STARTS)
    with (
        Launch(
            tmp_path,
            "replay",
            f"bag:={tmp_path / 'drive'}",
            "rate:=20.0",
            "rviz:=false",
            f"params:={params}",
            f"save_directory:={tmp_path / 'kept'}",
            "save_on_exit:=true",
            "map_frame:=odom",
            "base_frame:=base",
        ) as run,
        Peer() as peer,
    ):
        request = GetParameters.Request(names=["map_frame", "base_frame", "save_on_exit"])
        answer = peer.call(GetParameters, "/mapping/get_parameters", request, again=3.0)
        assert [v.string_value or v.bool_value for v in answer.values] == ["odom", "base", True]
        peer.until(lambda: "played" in run.output, 60, "the player did not end")
        run.interrupt()
    assert (tmp_path / "kept" / "map.gpm").is_file()
    with (
        Launch(
            tmp_path,
            "mapping",
            f"load_checkpoint:={tmp_path / 'kept' / 'map.gpm'}",
            "map_frame:=odom",
        ) as run,
        Peer() as peer,
    ):
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        peer.until(
            lambda: mean and (grid_array(mean[-1]) > 0).sum() > 50, 60, "the saved map is not there"
        )
        run.interrupt()


@pytest.mark.parametrize("namespaced", [False, True])
def test_simulated_robots_have_a_tf_of_their_own(tmp_path, namespaced):
    message = pytest.importorskip(
        "tf2_msgs.msg", reason="tf2_msgs is not installed (it comes with ROS)"
    )
    with (
        Launch(
            tmp_path,
            "robots",
            "robots:=a,b",
            "simulate:=true",
            f"namespaced_tf:={str(namespaced).lower()}",
            f"params:={parameter_file(tmp_path, **QUICK, **STARTS)}",
        ) as run,
        Peer() as peer,
    ):
        heard = {t: peer.listen(message.TFMessage, t, 100) for t in ("/tf", "/a/tf", "/b/tf")}
        fixed = peer.listen(
            message.TFMessage, "/a/tf_static" if namespaced else "/tf_static", LATCHED
        )
        where = ("/a/tf", "/b/tf") if namespaced else ("/tf",)
        peer.until(lambda: all(len(heard[t]) > 20 for t in where) and fixed, 60, "no TF")
        peer.until(
            lambda: (
                len(
                    {
                        link.child_frame_id
                        for all_of in heard.values()
                        for m in all_of
                        for link in m.transforms
                    }
                )
                == (1 if namespaced else 2)
            ),
            60,
            "only one of the two robots",
        )
        links = {
            t: {
                (link.header.frame_id, link.child_frame_id)
                for m in heard[t]
                for link in m.transforms
            }
            for t in heard
        }
        if namespaced:
            assert links == {
                "/tf": set(),
                "/a/tf": {("odom", "base_link")},
                "/b/tf": {("odom", "base_link")},
            }
        else:
            assert (
                links["/tf"] == {("a/odom", "a/base_link"), ("b/odom", "b/base_link")}
                and not links["/a/tf"]
            )
        run.interrupt()


@pytest.mark.parametrize(
    "name, argument, said",
    [
        ("mapping", "use_sim_time:=yes", "neither true nor false"),
        ("mapping", "rviz:=maybe", "true, false, auto"),
        ("mapping", "params:=nowhere.yaml", "no such file"),
        ("demo", "speed:=abc", "speed:=abc is not a number"),
        ("demo", "speed:=0", "speed:=0 is not a number from"),
        ("demo", "seed:=x", "seed:=x"),
        ("replay", "bag:=nowhere", "bag:=nowhere: there is no such"),
        ("mapping", "model:=magic", "dual_svgp"),
        ("mapping", "sensor:=nose", "temperature"),
        ("mapping", "pose_source:=gps", "odometry"),
        ("mapping", "respawn:=perhaps", "respawn"),
        ("robots", "robots:=a,a", "expected different names"),
        ("robots", "robots:=a,1b", "expected different names"),
    ],
)
def test_wrong_arguments_start_nothing(tmp_path, name, argument, said):
    with Launch(tmp_path, name, argument) as run:
        assert run.process.wait(20) != 0
        assert said in run.output and "process started" not in run.output


def test_explore_launch_ends_with_the_budget_of_the_file_and_keeps_the_map(tmp_path):
    small = {"plan_places": 80, "plan_effort": 16, "max_inducing": 100}
    params = parameter_file(tmp_path, plan_budget=2.5, plan_speed=0.35, **small)
    with (
        Launch(
            tmp_path,
            "explore",
            "simulate:=true",
            "budget_time:=300.0",
            f"save_directory:={tmp_path / 'kept'}",
            f"params:={params}",
        ) as run,
        Peer() as peer,
    ):
        wanted = {"plan_budget": 2.5, "plan_budget_time": 300.0, "plan_speed": 0.35}
        wanted |= {"plan_home": "start", "plan_kind": "route"}
        request = GetParameters.Request(names=list(wanted))
        answer = peer.call(GetParameters, "/mapping/get_parameters", request, again=3.0)
        assert [v.string_value or v.double_value for v in answer.values] == list(wanted.values())
        request = GetParameters.Request(names=["speed"])
        answer = peer.call(GetParameters, "/explorer/get_parameters", request, again=3.0)
        assert answer.values[0].double_value == 0.35
        assert ended(run, 150) == 0, run.output
        assert "the survey is done" in run.output
        assert (tmp_path / "kept" / "map.gpm").is_file()


@pytest.mark.parametrize(
    "file, argument, saved", [(False, None, False), (True, "false", False), (False, "true", True)]
)
def test_explore_launch_saves_the_map_only_where_nobody_says_otherwise(
    tmp_path, file, argument, saved
):
    params = parameter_file(tmp_path, save_on_exit=file)
    words = [f"save_on_exit:={argument}"] if argument else []
    with Launch(tmp_path, "explore", f"params:={params}", *words), Peer() as peer:
        request = GetParameters.Request(names=["save_on_exit"])
        answer = peer.call(GetParameters, "/mapping/get_parameters", request, again=3.0)
        assert answer.values[0].bool_value is saved


def test_a_whole_survey_ends_at_its_start_and_is_saved_where_nobody_says_otherwise():
    """What explore.launch.py and gp-mapping explore ask, where no launch is installed, too."""
    assert of_a_whole_survey(lambda name: False) == {"plan_home": "start", "save_on_exit": True}
    assert of_a_whole_survey(lambda name: name == "save_on_exit") == {"plan_home": "start"}
    text = (ROOT / "launch" / "explore.launch.py").read_text(encoding="utf-8")
    assert '"save_on_exit"] =' not in text and "of_a_whole_survey(" in text

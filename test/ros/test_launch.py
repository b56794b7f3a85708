"""The launch files, run for real where launch_ros is installed (any ROS installation; not on PyPI)."""

import ast
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml
from lifecycle_msgs.srv import GetState
from nav_msgs.msg import OccupancyGrid
from rcl_interfaces.srv import GetParameters
from ros_helpers import QUICK, ROOT, Peer, grid_array, parameter_file
from small_drive import lanes, write_drive
from std_srvs.srv import Trigger

FILES = sorted((ROOT / "launch").glob("*.launch.py"))
# `ros2 launch FILE name:=value` without ros2cli
RUN = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
service = LaunchService()
service.include_launch_description(LaunchDescription([IncludeLaunchDescription(PythonLaunchDescriptionSource(sys.argv[1]),
    launch_arguments=[tuple(a.split(":=", 1)) for a in sys.argv[2:]])]))
sys.exit(service.run())
"""


EVERYWHERE = {"params", "model", "autostart", "rviz", "magnetic_field_topic", "odometry_topic", "map_topic"}
OTHER_INPUTS = {"sensor", "sensor_topic", "pose_source", "pose_topic"}
EXPECTED = {"mapping": {"namespace", "use_sim_time"} | OTHER_INPUTS, "replay": {"bag", "rate", "loop", "namespace"} |
            OTHER_INPUTS, "demo": {"namespace", "speed", "seed"}, "robots": {"robots", "use_sim_time"} | OTHER_INPUTS}


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
            assert len(call.args) == 3 and len(call.args[2].value) > 5
    declared = {call.args[0].value for call in calls if call.func.id == "argument"}
    assert declared >= EVERYWHERE | EXPECTED[path.name.partition(".")[0]]
    read = {call.args[1].value for call in calls if call.func.id in ("value", "flag", "names")}
    assert read <= declared, f"{sorted(read - declared)} is read and not declared"


def test_shared_code_reads_arguments_that_some_launch_file_has():
    declared = {call.args[0].value for path in FILES for call in calls_of(path) if call.func.id == "argument"}
    text = (ROOT / "gp_mapping" / "ros" / "tools" / "launching.py").read_text()
    assert set(re.findall(r'(?:value|flag)\(context, "(\w+)"\)', text)) <= declared
    assert set(re.findall(r'"(\w+_topic)"', text)) <= declared
    tree = ast.parse(text)
    top = {n.module for n in tree.body if isinstance(n, ast.ImportFrom)}
    assert not any(module.startswith("gp_mapping") for module in top), "a launch would wait for torch"


def test_rviz_shows_latched_topics_of_ours_with_fixed_bounds():
    from gp_mapping.ros.mapper.outputs import TOPICS

    manager = yaml.safe_load((ROOT / "rviz" / "mapping.rviz").read_text())["Visualization Manager"]
    shown = {d["Topic"]["Value"]: d for d in manager["Displays"] if "Topic" in d}
    ours = {topic: d for topic, d in shown.items() if topic.startswith("/mapping/")}
    assert {t.removeprefix("/mapping/") for t in ours} <= set(TOPICS)
    assert {f"/mapping/{name}" for name in ("field", "mean", "stddev", "markers", "suggestion")} <= set(ours)
    for display in ours.values():
        assert display["Topic"]["Durability Policy"] == "Transient Local"
        assert display["Topic"]["Reliability Policy"] == "Reliable"
    assert {d["Class"].split("/")[1] for d in manager["Displays"]} >= {"Odometry", "TF", "Grid", "Pose", "MarkerArray"}
    assert manager["Views"]["Current"]["Class"].endswith("TopDownOrtho")
    clouds = [d for d in manager["Displays"] if d["Class"].endswith("PointCloud2")]
    assert {d["Channel Name"] for d in clouds} == {"mean", "stddev"}
    assert all(not d["Autocompute Intensity Bounds"] and 0 <= d["Min Intensity"] < d["Max Intensity"] < 1e-3
               for d in clouds)


class Launch:
    """`ros2 launch gp_mapping NAME.launch.py name:=value …` as a process; its output; Ctrl-C at the end."""

    def __init__(self, folder, name, *arguments):
        pytest.importorskip("launch_ros", reason="launch_ros is not installed (it comes with ROS, not from PyPI)")
        self._log = (folder / f"{name}.log").open("w+")
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(ROOT / "launch" / f"{name}.launch.py"), *arguments], cwd=folder,
            stdout=self._log, stderr=self._log, start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})

    @property
    def output(self):
        self._log.flush()
        return open(self._log.name).read()

    def interrupt(self):
        """Ctrl-C as a terminal sends it, to the whole group: launch counts on that. All nodes end by themselves."""
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.wait(40) == 0
        time.sleep(0.1)
        ended = self.output.count("process has finished cleanly")
        assert ended == self.output.count("process started with pid"), self.output

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        if kind is not None:
            print(self.output)
        self._log.close()


def test_demo_launch_maps_the_simulated_room(tmp_path):
    params = parameter_file(tmp_path, **QUICK)
    with Launch(tmp_path, "demo", "speed:=5.0", "namespace:=robot", "rviz:=false", f"params:={params}") as run, \
            Peer() as peer:
        mean = peer.listen(OccupancyGrid, "/robot/mapping/mean")
        peer.until(lambda: mean and (grid_array(mean[-1]) > 0).sum() > 200, 40, "no map from the launch file")
        run.interrupt()


def test_two_robots_from_one_launch_do_not_mix(tmp_path):
    """Each hears its own simulator, publishes in its own namespace, and saves into its own folder."""
    robots, params = ("a", "fleet/b"), parameter_file(tmp_path, **QUICK)
    with Launch(tmp_path, "robots", "robots:=a,fleet/b", "simulate:=true", "rviz:=auto",
                f"params:={params}") as run, Peer() as peer:
        maps = {name: peer.listen(OccupancyGrid, f"/{name}/mapping/mean") for name in robots}
        peer.until(lambda: all(seen and (grid_array(seen[-1]) > 0).any() for seen in maps.values()), 60, "no two maps")
        for name in robots:
            for topic, who in ((f"/{name}/magnetic_field", "mapping"), (f"/{name}/odometry", "mapping")):
                heard = peer.node.get_subscriptions_info_by_topic(topic)
                assert [(i.node_namespace, i.node_name) for i in heard] == [(f"/{name}", who)]
            said = peer.node.get_publishers_info_by_topic(f"/{name}/mapping/mean")
            assert [i.node_namespace for i in said] == [f"/{name}"]
            answer = peer.call(Trigger, f"/{name}/mapping/save", Trigger.Request(), timeout=60.0)
            assert answer.success and (tmp_path / "gp_mapping_output" / name / "map.gpm").is_file(), answer.message
        assert peer.node.count_publishers("/mapping/mean") == 0
        run.interrupt()
        assert "rviz2 is not installed" not in run.output or "gp-mapping view --namespace fleet/b" in run.output


def test_sensor_pose_and_model_arguments_reach_the_node(tmp_path):
    """Other inputs are listened to, under other names; the model's own file counts; params win over it."""
    params = tmp_path / "own.yaml"
    params.write_text("/**:\n  ros__parameters:\n    resolution: 0.3\n")
    with Launch(tmp_path, "mapping", "namespace:=r", "sensor:=temperature", "sensor_topic:=/air/t",
                "pose_source:=pose", "pose_topic:=/mocap", "map_topic:=/map", "model:=exact",
                f"params:={params}") as run, Peer() as peer:
        for topic in ("/air/t", "/mocap", "/map"):
            peer.until(lambda topic=topic: peer.node.count_subscribers(topic), 30, f"nobody listens to {topic}")
        wanted = {"model": "exact", "sensor": "temperature", "cell_length": 0.2, "resolution": 0.3}
        request = GetParameters.Request(names=list(wanted))
        answer = peer.call(GetParameters, "/r/mapping/get_parameters", request, again=3.0)
        assert [v.string_value or v.double_value for v in answer.values] == list(wanted.values())
        run.interrupt()


def test_replay_launch_plays_a_bag_into_the_node(tmp_path):
    write_drive(tmp_path / "drive", lanes(count=2))
    with Launch(tmp_path, "replay", f"bag:={tmp_path / 'drive'}", "rate:=10.0", "rviz:=false",
                f"params:={parameter_file(tmp_path, **QUICK)}") as run, Peer() as peer:
        mean = peer.listen(OccupancyGrid, "/mapping/mean")
        peer.until(lambda: mean and (grid_array(mean[-1]) > 0).sum() > 50, 40, "no map from the bag")
        run.interrupt()


def test_without_autostart_the_node_waits_for_a_manager(tmp_path):
    with Launch(tmp_path, "mapping", "autostart:=false") as run, Peer() as peer:
        state = peer.call(GetState, "/mapping/get_state", GetState.Request(), again=3.0)
        assert state.current_state.label == "unconfigured"
        run.interrupt()


@pytest.mark.parametrize("name, argument, said", [
    ("mapping", "use_sim_time:=yes", "neither true nor false"), ("mapping", "rviz:=maybe", "true, false, auto"),
    ("mapping", "params:=nowhere.yaml", "no such file"), ("robots", "robots:=a,a", "expected different names"),
    ("robots", "robots:=a,1b", "expected different names")])
def test_wrong_arguments_start_nothing(tmp_path, name, argument, said):
    with Launch(tmp_path, name, argument) as run:
        assert run.process.wait(20) != 0
        assert said in run.output and "process started" not in run.output

"""The launch files, run for real where launch_ros is installed (any ROS installation; not on PyPI)."""

import ast
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml
from nav_msgs.msg import OccupancyGrid
from ros_helpers import ROOT, Peer, grid_array

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


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_launch_files_start_nodes_of_ours_and_explain_their_arguments(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    for call in calls:
        if call.func.id == "our_node":
            assert (ROOT / "gp_mapping" / "ros" / f"{call.args[0].value}.py").is_file()
        if call.func.id == "argument":
            assert len(call.args) == 3 and len(call.args[2].value) > 5
    names = {call.args[0].value for call in calls if call.func.id == "argument"}
    assert {"params", "model", "namespace", "rviz", "magnetic_field_topic", "odometry_topic"} <= names


def test_rviz_shows_latched_topics_of_ours_with_fixed_bounds():
    from gp_mapping.ros.publishers import TOPICS

    manager = yaml.safe_load((ROOT / "rviz" / "mapping.rviz").read_text())["Visualization Manager"]
    shown = {d["Topic"]["Value"]: d for d in manager["Displays"] if "Topic" in d}
    ours = {topic: d for topic, d in shown.items() if topic.startswith("/mapping/")}
    assert {t.removeprefix("/mapping/") for t in ours} <= set(TOPICS)
    assert {f"/mapping/{name}" for name in ("field", "mean", "stddev", "markers", "suggestion")} <= set(ours)
    for display in ours.values():
        assert display["Topic"]["Durability Policy"] == "Transient Local"
        assert display["Topic"]["Reliability Policy"] == "Reliable"
    clouds = [d for d in manager["Displays"] if d["Class"].endswith("PointCloud2")]
    assert {d["Channel Name"] for d in clouds} == {"mean", "stddev"}
    assert all(not d["Autocompute Intensity Bounds"] and 0 <= d["Min Intensity"] < d["Max Intensity"] < 1e-3
               for d in clouds)


def test_demo_launch_maps_the_simulated_room(tmp_path):
    pytest.importorskip("launch_ros", reason="launch_ros is not installed (it comes with ROS, not from PyPI)")
    log = (tmp_path / "launch.log").open("w+")
    process = subprocess.Popen([sys.executable, "-c", RUN, str(ROOT / "launch" / "demo.launch.py"), "speed:=5.0",
                                "namespace:=robot", "rviz:=false"], cwd=tmp_path, stdout=log, stderr=log,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [
                                   os.environ.get("PYTHONPATH")])])})
    try:
        with Peer() as peer:
            mean = peer.listen(OccupancyGrid, "/robot/mapping/mean")
            peer.until(lambda: mean and (grid_array(mean[-1]) > 0).sum() > 200, 40, "no map from the launch file")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        time.sleep(0.1)
        assert "finished cleanly" in (tmp_path / "launch.log").read_text()
    finally:
        if process.poll() is None:
            process.kill()
        log.close()

"""A simulated robot and the mapper, nothing else needed: ros2 launch gp_mapping demo.launch.py speed:=2.0"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launching import argument, mapping_actions, our_node, value

SHARE = Path(__file__).resolve().parent.parent
LOSSLESS = {"reliable_inputs": True, "input_queue_depth": 20000}  # also faster than real time


def _setup(context):
    simulator = our_node("simulator_node", name="simulator", namespace=value(context, "namespace"), parameters=[{
        "publish_clock": True, "real_time_factor": float(value(context, "speed")), "reliable": True,
        "wait_for_subscribers": 30.0, "world.seed": int(value(context, "seed"))}])
    return [simulator, *mapping_actions(context, SHARE, use_sim_time=True, extra=LOSSLESS)]


def generate_launch_description():
    return LaunchDescription([
        argument("speed", "1.0", "simulated seconds per second; the simulator gives the time (/clock)"),
        argument("seed", "0", "seed of the simulated world"),
        argument("params", "", "parameter file of the mapper; empty: config/mapping.yaml of this package"),
        argument("model", "", "the map's model, over what params says; its file in config/models comes before params"),
        argument("namespace", "", "namespace of robot and mapper"),
        argument("magnetic_field_topic", "", "where the mapper listens; empty: magnetic_field"),
        argument("odometry_topic", "", "where the mapper listens; empty: odometry"),
        argument("map_topic", "", "topic with the free space, for suggestions; empty: map"),
        argument("autostart", "", "false leaves configure and activate to a lifecycle manager; empty: as in params"),
        argument("rviz", "auto", "start RViz: true, false, auto (where it is installed)"),
        OpaqueFunction(function=_setup),
    ])

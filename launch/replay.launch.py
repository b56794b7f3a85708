"""A recording into the live node: ros2 launch gp_mapping replay.launch.py bag:=/data/drive odometry_topic:=/odom"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.launching import argument, mapping_actions, our_node, value

SHARE = Path(__file__).resolve().parent.parent
LOSSLESS = {"reliable_inputs": True, "input_queue_depth": 20000}  # also faster than real time


def _setup(context):
    player = our_node("bag_player_node", parameters=[{
        "path": value(context, "bag"), "rate": float(value(context, "rate")),
        "loop": value(context, "loop").lower() == "true", "publish_clock": True, "wait_for_subscribers": 30.0}])
    return [player, *mapping_actions(context, SHARE, use_sim_time=True, extra=LOSSLESS)]


def generate_launch_description():
    return LaunchDescription([
        argument("bag", "", "rosbag2 folder, .mcap or .db3 file"),
        argument("rate", "1.0", "recorded seconds per second"),
        argument("loop", "false", "begin again at the end; the map stays and grows surer"),
        argument("params", "", "parameter file; empty: config/mapping.yaml of this package"),
        argument("autostart", "", "false leaves configure and activate to a lifecycle manager; empty: as in params"),
        argument("model", "", "the map's model, over what params says: dual_svgp, exact"),
        argument("namespace", "", "namespace of the mapper"),
        argument("magnetic_field_topic", "/magnetic_field", "topic of the bag with the magnetic field"),
        argument("odometry_topic", "/odometry", "topic of the bag with the robot's pose"),
        argument("map_topic", "", "topic with the free space, for suggestions; empty: map"),
        argument("rviz", "auto", "start RViz: true, false, auto (where it is installed)"),
        OpaqueFunction(function=_setup),
    ])

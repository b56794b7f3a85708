"""A recording into the live node: ros2 launch gp_mapping replay.launch.py bag:=/data/drive odometry_topic:=/odom"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launching import argument, flag, mapping_actions, our_node, value

SHARE = Path(__file__).resolve().parent.parent
LOSSLESS = {"reliable_inputs": True, "input_queue_depth": 20000}  # also faster than real time


def _setup(context):
    player = our_node("bag_player_node", parameters=[{
        "path": value(context, "bag"), "rate": float(value(context, "rate")), "loop": flag(context, "loop"),
        "publish_clock": True, "wait_for_subscribers": 30.0}])
    return [player, *mapping_actions(context, SHARE, use_sim_time=True, extra=LOSSLESS)]


def generate_launch_description():
    return LaunchDescription([
        argument("bag", "", "rosbag2 folder, .mcap or .db3 file; it gives the time (/clock)"),
        argument("rate", "1.0", "recorded seconds per second"),
        argument("loop", "false", "begin again at the end; the map stays and grows surer"),
        argument("params", "", "parameter file; empty: config/mapping.yaml of this package"),
        argument("model", "", "the map's model, over what params says; its file in config/models comes before params"),
        argument("namespace", "", "namespace of the mapper"),
        argument("sensor", "", "what is mapped (magnetic_field, temperature, range, scalar, ...); empty: as in params"),
        argument("sensor_topic", "", "topic of the bag with that sensor; empty: the sensor's name"),
        argument("magnetic_field_topic", "/magnetic_field", "topic of the bag with the magnetic field"),
        argument("pose_source", "", "odometry, pose, pose_with_covariance or tf; empty: as in params"),
        argument("pose_topic", "", "topic of the bag with the poses; empty: pose"),
        argument("odometry_topic", "/odometry", "topic of the bag with the odometry"),
        argument("map_topic", "", "topic with the free space, for suggestions; empty: map"),
        argument("autostart", "", "false leaves configure and activate to a lifecycle manager; empty: as in params"),
        argument("rviz", "auto", "start RViz: true, false, auto (where it is installed)"),
        OpaqueFunction(function=_setup),
    ])

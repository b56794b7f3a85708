"""mapping_node on a robot: ros2 launch gp_mapping mapping.launch.py magnetic_field_topic:=/mag odometry_topic:=/odom"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.launching import argument, mapping_actions, value

SHARE = Path(__file__).resolve().parent.parent


def _setup(context):
    return mapping_actions(context, SHARE, use_sim_time=value(context, "use_sim_time").lower() == "true")


def generate_launch_description():
    return LaunchDescription([
        argument("params", "", "parameter file; empty: config/mapping.yaml of this package"),
        argument("autostart", "", "false leaves configure and activate to a lifecycle manager; empty: as in params"),
        argument("model", "", "the map's model, over what params says: dual_svgp, exact"),
        argument("namespace", "", "namespace of the node and of its relative topics"),
        argument("magnetic_field_topic", "", "sensor_msgs/MagneticField to map; empty: magnetic_field"),
        argument("odometry_topic", "", "nav_msgs/Odometry with the robot's pose; empty: odometry"),
        argument("map_topic", "", "nav_msgs/OccupancyGrid with the free space, for suggestions; empty: map"),
        argument("use_sim_time", "false", "take time from /clock"),
        argument("rviz", "false", "start RViz: true, false, auto (where it is installed)"),
        OpaqueFunction(function=_setup),
    ])

"""mapping_node on a robot: ros2 launch gp_mapping mapping.launch.py magnetic_field_topic:=/mag odometry_topic:=/odom"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launching import argument, flag, mapping_actions

SHARE = Path(__file__).resolve().parent.parent


def _setup(context):
    return mapping_actions(context, SHARE, use_sim_time=flag(context, "use_sim_time"))


def generate_launch_description():
    return LaunchDescription([
        argument("params", "", "parameter file; empty: config/mapping.yaml of this package"),
        argument("model", "", "the map's model, over what params says; its file in config/models comes before params"),
        argument("namespace", "", "namespace of the node and of its relative topics"),
        argument("sensor", "", "what is mapped (magnetic_field, temperature, range, scalar, ...); empty: as in params"),
        argument("sensor_topic", "", "where that sensor's messages are; empty: the sensor's name"),
        argument("magnetic_field_topic", "", "the same for sensor_msgs/MagneticField; empty: magnetic_field"),
        argument("pose_source", "", "odometry, pose, pose_with_covariance or tf; empty: as in params"),
        argument("pose_topic", "", "PoseStamped or PoseWithCovarianceStamped; empty: pose"),
        argument("odometry_topic", "", "nav_msgs/Odometry with the robot's pose; empty: odometry"),
        argument("map_topic", "", "nav_msgs/OccupancyGrid with the free space, for suggestions; empty: map"),
        argument("autostart", "", "false leaves configure and activate to a lifecycle manager; empty: as in params"),
        argument("use_sim_time", "false", "take time from /clock"),
        argument("resume", "", "true goes on from the newest saved map or autosave; empty: as in params"),
        argument("respawn", "false", "start a node that has crashed again, to go on from its autosave (resume)"),
        argument("rviz", "false", "start RViz: true, false, auto (where it is installed)"),
        OpaqueFunction(function=_setup),
    ])

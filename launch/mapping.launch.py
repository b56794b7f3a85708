"""mapping_node on a robot.

ros2 launch gp_mapping mapping.launch.py magnetic_field_topic:=/mag odometry_topic:=/odom
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launch_arguments import argument, common_arguments, flag
from gp_mapping.ros.tools.launching import mapping_actions

SHARE = Path(__file__).resolve().parent.parent


def _setup(context):
    """The mapper from the launch arguments."""
    return mapping_actions(context, SHARE, use_sim_time=flag(context, "use_sim_time"))


def generate_launch_description():
    return LaunchDescription(
        [
            *common_arguments(SHARE),
            argument(
                "magnetic_field_topic",
                "",
                "sensor_topic for sensor_msgs/MagneticField; empty: magnetic_field",
            ),
            argument(
                "odometry_topic", "", "nav_msgs/Odometry with the robot's pose; empty: odometry"
            ),
            argument("save_directory", "", "folder of saved maps; empty: as in params"),
            argument("use_sim_time", "false", "take time from /clock"),
            argument("rviz", "false", "start RViz: true, false, auto (where it is installed)"),
            OpaqueFunction(function=_setup),
        ]
    )

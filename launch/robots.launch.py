"""Several robots, a mapper in the namespace of each: ros2 launch gp_mapping robots.launch.py robots:=robot1,robot2

Topics are relative: robot1 is mapped from /robot1/magnetic_field and /robot1/odometry into /robot1/mapping/mean, and
magnetic_field_topic:=imu/mag means /robot1/imu/mag. Every robot saves into a folder of its own. The frames of simulated
robots carry their names, robot1/odom and robot1/base_link, unless each has a TF of its own (namespaced_tf).
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launching import (
    argument,
    common_arguments,
    ends_the_launch,
    flag,
    mapping_actions,
    names,
    our_node,
    tf_remappings,
    value,
)

SHARE = Path(__file__).resolve().parent.parent


def _setup(context):
    actions, use_sim_time, simulated = [], flag(context, "use_sim_time"), flag(context, "simulate")
    if simulated and use_sim_time:
        raise RuntimeError("simulate:=true runs in real time; leave use_sim_time:=false")
    for seed, robot in enumerate(names(context, "robots")):
        prefix = "" if flag(context, "namespaced_tf") else f"{robot}/"
        if simulated:  # one world, each drive with its own noise; in real time, since two clocks would not agree
            simulator = our_node("simulator_node", name="simulator", namespace=robot,
                                 remappings=tf_remappings(context), parameters=[{
                                     "sim.seed": seed, "wait_for_subscribers": 30.0, "frame_prefix": prefix}])
            actions += ends_the_launch(simulator, f"the simulator of {robot}")
        folder = str(Path(value(context, "save_directory")) / robot)
        actions += mapping_actions(context, SHARE, use_sim_time=use_sim_time, namespace=robot,
                                   extra={"save_directory": folder}, frame=f"{prefix}odom" if simulated else "")
    return actions


def generate_launch_description():
    return LaunchDescription([
        argument("robots", "robot1,robot2", "namespaces, separated by commas"),
        argument("simulate", "false", "a simulated robot in each namespace, all in the same room", ("true", "false")),
        argument("save_directory", "gp_mapping_output", "~/save of robot1 goes into its subfolder robot1, and so on"),
        *common_arguments(SHARE, several=True),
        argument("magnetic_field_topic", "", "sensor_topic for sensor_msgs/MagneticField; empty: magnetic_field"),
        argument("odometry_topic", "", "nav_msgs/Odometry of each; empty: odometry"),
        argument("use_sim_time", "false", "take time from /clock"),
        argument("rviz", "false", "start RViz for each: true, false, auto (where it is installed)"),
        OpaqueFunction(function=_setup),
    ])

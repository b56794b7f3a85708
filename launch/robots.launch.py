"""Several robots, a mapper in the namespace of each: ros2 launch gp_mapping robots.launch.py robots:=robot1,robot2

Topics are relative: robot1 is mapped from /robot1/magnetic_field and /robot1/odometry into /robot1/mapping/mean, and
magnetic_field_topic:=imu/mag means /robot1/imu/mag. Every robot saves into a folder of its own.
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launching import argument, flag, mapping_actions, names, our_node, value

SHARE = Path(__file__).resolve().parent.parent


def _setup(context):
    actions, use_sim_time, simulated = [], flag(context, "use_sim_time"), flag(context, "simulate")
    if simulated and use_sim_time:
        raise RuntimeError("simulate:=true runs in real time; leave use_sim_time:=false")
    for number, robot in enumerate(names(context, "robots")):
        if simulated:  # one world, each drive with its own noise; in real time, since two clocks would not agree
            actions.append(our_node("simulator_node", name="simulator", namespace=robot, parameters=[{
                "sim.seed": number, "wait_for_subscribers": 30.0}]))
        folder = str(Path(value(context, "save_directory")) / robot)
        actions += mapping_actions(context, SHARE, use_sim_time=use_sim_time, namespace=robot,
                                   extra={"save_directory": folder})
    return actions


def generate_launch_description():
    return LaunchDescription([
        argument("robots", "robot1,robot2", "namespaces, separated by commas"),
        argument("simulate", "false", "a simulated robot in each namespace, all in the same room"),
        argument("save_directory", "gp_mapping_output", "~/save of robot1 goes into its subfolder robot1, and so on"),
        argument("params", "", "parameter file of all of them; empty: config/mapping.yaml of this package"),
        argument("model", "", "the maps' model, over what params says; its file in config/models comes before params"),
        argument("sensor", "", "what is mapped (magnetic_field, temperature, range, scalar, ...); empty: as in params"),
        argument("sensor_topic", "", "where that sensor's messages are; empty: the sensor's name"),
        argument("magnetic_field_topic", "", "the same for sensor_msgs/MagneticField; empty: magnetic_field"),
        argument("pose_source", "", "odometry, pose, pose_with_covariance or tf; empty: as in params"),
        argument("pose_topic", "", "PoseStamped or PoseWithCovarianceStamped; empty: pose"),
        argument("odometry_topic", "", "nav_msgs/Odometry of each; empty: odometry"),
        argument("map_topic", "", "nav_msgs/OccupancyGrid with the free space, for suggestions; /map: one for all"),
        argument("autostart", "", "false leaves configure and activate to a lifecycle manager; empty: as in params"),
        argument("use_sim_time", "false", "take time from /clock"),
        argument("resume", "", "true goes on from the newest saved map or autosave; empty: as in params"),
        argument("respawn", "false", "start a node that has crashed again, to go on from its autosave (resume)"),
        argument("rviz", "false", "start RViz for each: true, false, auto (where it is installed)"),
        OpaqueFunction(function=_setup),
    ])

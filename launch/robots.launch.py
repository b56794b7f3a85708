"""Several robots, with a mapper in the namespace of each.

ros2 launch gp_mapping robots.launch.py robots:=robot1,robot2

Topics are relative: robot1 is mapped from /robot1/magnetic_field and /robot1/odometry into
/robot1/mapping/mean, and magnetic_field_topic:=imu/mag means /robot1/imu/mag. Every robot saves
into a folder of its own. The frames of simulated robots carry their names, robot1/odom and
robot1/base_link, unless each has a TF of its own (namespaced_tf).

team:=true: every robot sends its map's totals and shows the map of all (/robot1/mapping/mean), and
so does a base station, /fusion/mean. Where their frames differ, merge_transforms:='robot2=x y yaw'
gives the place of robot2's origin.
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launch_arguments import argument, common_arguments, flag, names, value
from gp_mapping.ros.tools.launching import (
    ends_the_launch,
    mapping_actions,
    our_node,
    tf_remappings,
    value_in_files,
)
from gp_mapping.settings.team import TEAM_INDUCING_INFORMATION
from gp_mapping.sim.robot import lawnmower

SHARE = Path(__file__).resolve().parent.parent


def _lanes(number, robots):
    """Waypoints of one robot of a team: lanes along x in its strip of the 6 × 5 m room."""
    low, high = 0.5 + 4.0 * number / robots, 0.5 + 4.0 * (number + 1) / robots
    return ", ".join(f"{x:.3f} {y:.3f}" for x, y in lawnmower(0.5, low, 5.5, high, 0.4).tolist())


def _setup(context):
    """Mappers and, if asked, simulators and a base station from the launch arguments."""
    actions, use_sim_time, simulated = [], flag(context, "use_sim_time"), flag(context, "simulate")
    robots, team = names(context, "robots"), flag(context, "team")
    moved = value(context, "merge_transforms")
    if simulated and not moved:  # all odometries begin at one origin
        moved = ", ".join(f"{robot}=0 0 0" for robot in robots)
    merging = {"merge_from": ",".join(robots), "merge_transforms": moved}
    if value_in_files(context, SHARE, "inducing_information") is None:
        merging["inducing_information"] = TEAM_INDUCING_INFORMATION
    if simulated and use_sim_time:
        raise RuntimeError("simulate:=true runs in real time; leave use_sim_time:=false")

    for seed, robot in enumerate(robots):
        prefix = "" if flag(context, "namespaced_tf") else f"{robot}/"
        # one world, each drive with its own noise; in real time, since two clocks would not agree
        if simulated:
            simulator = our_node(
                "simulator_node",
                name="simulator",
                namespace=robot,
                remappings=tf_remappings(context),
                parameters=[
                    {
                        "sim.seed": seed,
                        "wait_for_subscribers": 30.0,
                        "frame_prefix": prefix,
                        **({"waypoints": _lanes(seed, len(robots))} if team else {}),
                    }
                ],
            )
            actions += ends_the_launch(simulator, f"the simulator of {robot}")

        folder = str(Path(value(context, "save_directory")) / robot)
        actions += mapping_actions(
            context,
            SHARE,
            use_sim_time=use_sim_time,
            namespace=robot,
            extra={"save_directory": folder, **({"publish_tiles": True} | merging if team else {})},
            frame=f"{prefix}odom" if simulated else "",
        )
    # the base station's map is in the frame of the first robot, unless map_frame gives another
    if team:
        folder = str(Path(value(context, "save_directory")) / "fusion")
        first = (
            f"{'' if flag(context, 'namespaced_tf') else f'{robots[0]}/'}odom" if simulated else ""
        )
        frame = {"map_frame": first} if simulated and not value(context, "map_frame") else {}
        actions += mapping_actions(
            context,
            SHARE,
            use_sim_time=use_sim_time,
            namespace="",
            executable="fusion_node",
            extra={"save_directory": folder, "resume": False} | merging | frame,
            frame=first,
        )

    return actions


def generate_launch_description():
    return LaunchDescription(
        [
            argument("robots", "robot1,robot2", "namespaces, separated by commas"),
            argument(
                "team",
                "false",
                "the robots make one map together, and a base station shows it, /fusion/mean",
                ("true", "false"),
            ),
            argument(
                "merge_transforms",
                "",
                "with team: where other robots' frames lie, robot=x y yaw, separated by "
                "commas; empty: all in one frame",
            ),
            argument(
                "simulate",
                "false",
                "a simulated robot in each namespace, all in the same room",
                ("true", "false"),
            ),
            argument(
                "save_directory",
                "gp_mapping_output",
                "~/save of robot1 goes into its subfolder robot1, and so on",
            ),
            *common_arguments(SHARE, several=True),
            argument(
                "magnetic_field_topic",
                "",
                "sensor_topic for sensor_msgs/MagneticField; empty: magnetic_field",
            ),
            argument("odometry_topic", "", "nav_msgs/Odometry of each; empty: odometry"),
            argument("use_sim_time", "false", "take time from /clock"),
            argument(
                "rviz", "false", "start RViz for each: true, false, auto (where it is installed)"
            ),
            OpaqueFunction(function=_setup),
        ]
    )

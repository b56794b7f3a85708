"""A simulated robot and the mapper, which need nothing else.

ros2 launch gp_mapping demo.launch.py speed:=2.0
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launch_arguments import argument, common_arguments, number, value
from gp_mapping.ros.tools.launching import (
    ends_the_launch,
    mapping_actions,
    our_node,
    scaled_max_wait,
    tf_remappings,
)

SHARE = Path(__file__).resolve().parent.parent
LOSSLESS = {"reliable_inputs": True, "input_queue_depth": 20000}  # also faster than real time


def _setup(context):
    """Simulator and mapper from the launch arguments."""
    speed = number(context, "speed", 1e-3, 1000.0)
    simulator = our_node(
        "simulator_node",
        name="simulator",
        namespace=value(context, "namespace"),
        remappings=tf_remappings(context),
        parameters=[
            {
                "publish_clock": True,
                "real_time_factor": speed,
                "reliable": True,
                "wait_for_subscribers": 30.0,
                "world.seed": int(number(context, "seed", 0, 2**31 - 1)),
                "frame_prefix": value(context, "frame_prefix"),
            }
        ],
    )

    extra = LOSSLESS | scaled_max_wait(context, SHARE, speed)
    return [
        *ends_the_launch(simulator, "the simulator"),
        *mapping_actions(
            context,
            SHARE,
            use_sim_time=True,
            extra=extra,
            required=True,
            frame=value(context, "frame_prefix") + "odom",
        ),
    ]


def generate_launch_description():
    return LaunchDescription(
        [
            argument(
                "speed",
                "1.0",
                "simulated seconds per second; the simulator gives the time (/clock)",
            ),
            argument("seed", "0", "seed of the simulated world"),
            argument(
                "frame_prefix",
                "",
                "in front of the robot's frames odom, base_link and magnetometer: robot1/",
            ),
            *common_arguments(SHARE),
            argument("magnetic_field_topic", "", "where the mapper listens; empty: magnetic_field"),
            argument("odometry_topic", "", "where the mapper listens; empty: odometry"),
            argument("save_directory", "", "folder of saved maps; empty: as in params"),
            argument("rviz", "auto", "start RViz: true, false, auto (where it is installed)"),
            OpaqueFunction(function=_setup),
        ]
    )

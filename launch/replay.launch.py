"""A recording played into the live node.

ros2 launch gp_mapping replay.launch.py bag:=/data/drive odometry_topic:=/odom

The player waits until the mapper listens to the sensor and the poses that were chosen; all else in
the bag is played, too.
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from gp_mapping.ros.tools.launch_arguments import (
    argument,
    common_arguments,
    existing_path,
    flag,
    number,
)
from gp_mapping.ros.tools.launching import (
    ends_the_launch,
    input_topics,
    mapping_actions,
    our_node,
    scaled_max_wait,
    tf_remappings,
)

SHARE = Path(__file__).resolve().parent.parent
LOSSLESS = {"reliable_inputs": True, "input_queue_depth": 20000}  # also faster than real time


def _setup(context):
    """Player and mapper from the launch arguments."""
    rate = number(context, "rate", 1e-3, 1000.0)
    player = our_node(
        "bag_player_node",
        remappings=tf_remappings(context),
        parameters=[
            {
                "path": existing_path(context, "bag"),
                "rate": rate,
                "loop": flag(context, "loop"),
                "publish_clock": True,
                "wait_for_subscribers": 30.0,
                "wait_for": ",".join(input_topics(context, SHARE)),
            }
        ],
    )

    return [
        *ends_the_launch(player, "the player of the bag"),
        *mapping_actions(
            context,
            SHARE,
            use_sim_time=True,
            extra=LOSSLESS | scaled_max_wait(context, SHARE, rate),
            required=True,
        ),
    ]


def generate_launch_description():
    return LaunchDescription(
        [
            argument("bag", None, "rosbag2 folder, .mcap or .db3 file; it gives the time (/clock)"),
            argument("rate", "1.0", "recorded seconds per second"),
            argument(
                "loop",
                "false",
                "begin again at the end; the map stays and grows surer",
                ("true", "false"),
            ),
            *common_arguments(SHARE),
            argument(
                "magnetic_field_topic",
                "/magnetic_field",
                "topic of the bag with the magnetic field",
            ),
            argument("odometry_topic", "/odometry", "topic of the bag with the odometry"),
            argument("save_directory", "", "folder of saved maps; empty: as in params"),
            argument("rviz", "auto", "start RViz: true, false, auto (where it is installed)"),
            OpaqueFunction(function=_setup),
        ]
    )

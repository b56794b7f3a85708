"""A survey: the mapper plans, the explorer drives.

ros2 launch gp_mapping explore.launch.py drive:=nav2 budget:=60.0

The launch ends when the survey does, and the map is saved then, unless save_on_exit is false.
simulate:=true shows it with a simulated robot among walls.
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown

from gp_mapping.ros.tools.launch_arguments import argument, common_arguments, flag, number, value
from gp_mapping.ros.tools.launching import (
    effective_value,
    ends_the_launch,
    mapping_actions,
    our_node,
    tf_remappings,
    value_in_files,
)
from gp_mapping.settings.plan import of_a_whole_survey
from gp_mapping.sim.room import WALLS, WAYPOINTS

SHARE = Path(__file__).resolve().parent.parent


def _survey(context) -> dict:
    """The survey's parameters that take precedence over the files: those given as arguments.

    Home is where it began, and the map is saved, where neither a file nor an argument says
    otherwise.
    """
    given = {
        "plan_budget": value(context, "budget") and number(context, "budget", 0.0, 1e6),
        "plan_budget_time": value(context, "budget_time")
        and number(context, "budget_time", 0.0, 1e7),
        "plan_speed": value(context, "speed") and number(context, "speed", 0.01, 5.0),
        "plan_home": value(context, "home"),
        "plan_kind": value(context, "kind"),
    }
    survey = {name: wanted for name, wanted in given.items() if wanted != ""}

    stated = {"plan_home": value(context, "home"), "save_on_exit": value(context, "save_on_exit")}
    return survey | of_a_whole_survey(
        lambda name: bool(stated[name]) or value_in_files(context, SHARE, name) is not None
    )


def _setup(context):
    """Mapper, explorer and, if asked, simulator from the launch arguments."""
    simulated, namespace = flag(context, "simulate"), value(context, "namespace")
    if simulated and flag(context, "use_sim_time"):
        raise RuntimeError("simulate:=true runs in real time; leave use_sim_time:=false")

    survey = _survey(context)
    speed = float(survey.get("plan_speed", effective_value(context, SHARE, "plan_speed")))
    drive = "cmd_vel" if simulated else value(context, "drive")

    given = {
        "odometry": value(context, "odometry_topic"),
        "map": value(context, "map_topic"),
        "cmd_vel": value(context, "cmd_vel_topic"),
    }
    explorer = our_node(
        "explorer_node",
        name="explorer",
        namespace=namespace,
        parameters=[{"drive": drive, "speed": speed}],
        remappings=[(name, topic) for name, topic in given.items() if topic],
    )
    # an explorer that is done ends the launch in order; ends_the_launch is for one that fails
    over = RegisterEventHandler(
        OnProcessExit(
            target_action=explorer,
            on_exit=lambda event, _: (
                [EmitEvent(event=Shutdown(reason="the survey is over"))]
                if event.returncode == 0
                else None
            ),
        )
    )

    simulator = []
    if simulated:
        simulator = ends_the_launch(
            our_node(
                "simulator_node",
                name="simulator",
                namespace=namespace,
                remappings=tf_remappings(context),
                parameters=[
                    {
                        "commanded": True,
                        "waypoints": WAYPOINTS,
                        "walls": WALLS,
                        "wait_for_subscribers": 30.0,
                    }
                ],
            ),
            "the simulator",
        )

    return [
        *simulator,
        *mapping_actions(
            context,
            SHARE,
            use_sim_time=flag(context, "use_sim_time"),
            extra=survey,
            required=True,
            frame="odom" if simulated else "",
        ),
        over,
        *ends_the_launch(explorer, "the explorer"),
    ]


def generate_launch_description():
    return LaunchDescription(
        [
            argument(
                "simulate",
                "false",
                "a simulated robot among walls, which is driven",
                ("true", "false"),
            ),
            argument(
                "drive",
                "none",
                "who drives: none, nav2 (needs nav2_msgs), or cmd_vel, in places without people",
                ("none", "nav2", "cmd_vel"),
            ),
            argument(
                "budget", "", "metres that the survey may drive; 0: no limit; empty: as in params"
            ),
            argument(
                "budget_time", "", "seconds that it may take; 0: no limit; empty: as in params"
            ),
            argument(
                "home",
                "",
                "where the robot must be able to end: start, none, or 'x y' in metres; empty: as "
                "in params, else start",
            ),
            argument(
                "kind",
                "",
                "planner: route, lanes, gain_per_metre, or one of another package; empty: as in "
                "params",
            ),
            argument("speed", "", "of the robot, m/s; empty: plan_speed as in params"),
            argument("cmd_vel_topic", "", "where commands go with drive:=cmd_vel; empty: cmd_vel"),
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

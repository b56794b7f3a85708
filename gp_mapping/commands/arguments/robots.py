"""Options of the commands that run with a robot, a simulated robot or a played bag."""

from __future__ import annotations

import argparse
from pathlib import Path

from gp_mapping.commands.demo.limits import FULL, LANES_SPEED, NEAR, PLAN_SPEED, PLANNED

__all__ = ["demo_arguments", "explore_arguments", "play_arguments", "view_arguments"]


def demo_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping demo`, and what its exit code means."""
    parser.description = (
        "A simulated robot in a room with magnets under its floor: mapping_node maps the field while the robot "
        "drives, and plans its way among the walls, so that the map is as good as it can be when the robot is home "
        "again within its budget. Both run as processes of their own and talk over ROS 2 (DDS), faster than real time "
        "on /clock. The picture holds the plan against the best lanes of that length, chosen with the walls known."
    )
    parser.epilog = (
        f"Exit code 0 when the map is right within {NEAR} m of the path: RMSE at most {PLANNED.error:.0%} of the "
        f"field's own standard deviation there ({FULL.error:.0%} with all of --lanes), at least {PLANNED.coverage:.0%} "
        f"({FULL.coverage:.0%}) of the truth inside the 95% interval, no measurement lost or dropped, and the robot "
        "home within its budget and never in a wall. 1 when it is not, when a process dies, or on time-out; 130 after "
        "Ctrl-C."
    )

    parser.add_argument(
        "--output",
        type=Path,
        default=Path("out/demo"),
        metavar="DIR",
        help="folder for the picture, the map and the logs (default: out/demo)",
    )

    # the map
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the map's model, with what its file in config/models says (default: dual_svgp)",
    )
    parser.add_argument(
        "--params", metavar="FILE", help="a parameter file of mapping_node, on top of the model's"
    )

    # the simulation and the drive
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of world and noise (default: 0)"
    )
    parser.add_argument(
        "--speed",
        type=float,
        metavar="FACTOR",
        help="simulated seconds per second (default: "
        f"{PLAN_SPEED:g}; with --lanes {LANES_SPEED:g})",
    )
    parser.add_argument(
        "--duration",
        type=float,
        default=0.0,
        metavar="S",
        help="drive only so many simulated seconds (default: all of the route)",
    )
    parser.add_argument("--fast", action="store_true", help="half the route, a rougher map")
    parser.add_argument(
        "--lanes", action="store_true", help="no plans and no walls: lanes up and down and across"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME:=VALUE",
        dest="parameters",
        help="parameters of simulator_node, for example magnetometer.spike_probability:=0.01",
    )

    # the run
    parser.add_argument(
        "--domain-id",
        type=int,
        metavar="N",
        help="ROS_DOMAIN_ID to use (default: one of its own, so that nothing else listens in)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="give up after so many seconds (default: 600)",
    )


def explore_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping explore`, and what its exit code means."""
    parser.description = (
        "Starts mapping_node and explorer_node on the topics of a robot, has the area surveyed, and saves the map. "
        "Nothing is driven unless --drive says so: cmd_vel steers by itself and is for places without people."
    )
    parser.epilog = (
        "Exit code 0 when the survey came to its end and the map is saved; 1 when there was no plan for --patience "
        "seconds, a process died, time was up or the map could not be saved; 2 for wrong usage; 130 after Ctrl-C. "
        "However it ends, the robot is told to stand still, and what was mapped is saved."
    )

    _explore_robot(parser)
    _explore_survey(parser)
    _explore_mapper(parser)
    _explore_run(parser)


def _explore_robot(parser: argparse.ArgumentParser) -> None:
    """Add the robot, and who drives it."""
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="a simulated robot among walls, which is driven "
        "(--drive cmd_vel) in real time, in a ROS_DOMAIN_ID of its own",
    )
    parser.add_argument(
        "--drive", choices=("none", "cmd_vel", "nav2"), help="who drives (default: none)"
    )


def _explore_survey(parser: argparse.ArgumentParser) -> None:
    """Add what may be driven, where, until when, and how it is planned."""
    parser.add_argument(
        "--budget", type=float, metavar="M", help="metres to drive (default: --params, or no limit)"
    )
    parser.add_argument(
        "--budget-time", type=float, metavar="S", help="seconds (default: --params, or no limit)"
    )
    parser.add_argument(
        "--home",
        metavar="PLACE",
        help="where to end: start, none, or 'X Y' in metres (default: --params, or start)",
    )
    parser.add_argument(
        "--region",
        default="",
        metavar="'X Y, X Y, …'",
        help="corners in metres of the area in the map's frame (default: all that can be reached)",
    )
    parser.add_argument(
        "--target-stddev",
        type=float,
        metavar="SI",
        help="end where most of the area is known so well (default: --params, or no such end)",
    )

    parser.add_argument(
        "--speed", type=float, metavar="M/S", help="of the robot (default: --params, or 0.3)"
    )
    parser.add_argument("--kind", metavar="NAME", help="planner (default: --params, or route)")


def _explore_mapper(parser: argparse.ArgumentParser) -> None:
    """Add the mapper, and the topics of the robot."""
    parser.add_argument(
        "--model", metavar="NAME", help="the map's model, with what its file in config/models says"
    )
    parser.add_argument(
        "--params",
        metavar="FILE",
        help="a parameter file of mapping_node; options above win over it",
    )
    parser.add_argument(
        "--remap",
        nargs="+",
        default=[],
        metavar="FROM:=TO",
        help="topics of the nodes, for example "
        "odometry:=/odom magnetic_field:=/imu/mag map:=/map cmd_vel:=/cmd_vel",
    )


def _explore_run(parser: argparse.ArgumentParser) -> None:
    """Add where the results go, and when the survey is given up."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("out/explore"),
        metavar="DIR",
        help="folder for the map and the logs (default: out/explore)",
    )
    parser.add_argument(
        "--domain-id",
        type=int,
        metavar="N",
        help="ROS_DOMAIN_ID (default: that of the environment)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="S",
        help="give up after so long without a plan (default: 60)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=0.0,
        metavar="S",
        help="give up after so long (default: never)",
    )


def play_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping play`."""
    parser.epilog = "Exit code 0 at the end of the bag; 1 where it cannot be read to its end; 3 when nobody subscribed."

    parser.add_argument(
        "bag", type=Path, metavar="BAG", help="rosbag2 folder, or a .mcap or .db3 file"
    )

    # how it is played
    parser.add_argument(
        "--rate", type=float, default=1.0, metavar="FACTOR", help="speed (default: 1)"
    )
    parser.add_argument("--loop", action="store_true", help="begin again at the end")
    parser.add_argument("--no-clock", action="store_true", help="do not publish /clock")

    # what is played
    parser.add_argument("--topics", nargs="+", default=[], metavar="TOPIC", help="only these")
    parser.add_argument(
        "--remap", nargs="+", default=[], metavar="OLD:=NEW", help="play topics under other names"
    )

    # when it begins
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="S",
        help="wait at most so long for a subscriber before starting (default: start at once)",
    )
    parser.add_argument(
        "--wait-for",
        nargs="+",
        default=[],
        metavar="TOPIC",
        help="with --wait: until each of these has one (default: any topic of the bag)",
    )


def view_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping view`."""
    parser.epilog = "Ctrl-C ends it. The mapper draws for the page only while somebody looks at it."

    # whom it listens to
    parser.add_argument(
        "--namespace", default="", metavar="NAME", help="of the mapper and the robot"
    )
    parser.add_argument(
        "--node", default="mapping", metavar="NAME", help="of the mapper (default: mapping)"
    )
    parser.add_argument(
        "--odometry-topic",
        default="odometry",
        metavar="NAME",
        help="for the robot's place; '' shows "
        "the newest place of the path instead (default: odometry, in the namespace)",
    )

    # where it serves
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="to serve on; 0.0.0.0 lets other "
        "machines look, without a password (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--port", type=int, default=8765, metavar="N", help="0 takes any free one (default: 8765)"
    )

    parser.add_argument(
        "--domain-id",
        type=int,
        metavar="N",
        help="ROS_DOMAIN_ID (default: that of the environment)",
    )

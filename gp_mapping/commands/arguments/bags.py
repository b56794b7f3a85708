"""Options of the commands that read bags."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = [
    "calibrate_arguments",
    "check_arguments",
    "fit_arguments",
    "map_arguments",
    "report_arguments",
]

_CELLS = 1000  # of each bag, in a map of its own
_ITERATIONS, _TOLERANCE = 60, 0.05  # of a fit: iterations of a step at most; nats


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `map` and `fit` share."""
    parser.add_argument(
        "bags",
        nargs="+",
        metavar="BAG",
        help="rosbag2 folder, .mcap or .db3; several in this order",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder for the map, its exports and the report",
    )

    # shorthands of two parameters
    parser.add_argument("--model", metavar="NAME", help="as the parameter `model`")
    parser.add_argument("--seed", type=int, metavar="N", help="as the parameter `seed`")

    parser.add_argument(
        "--test", nargs="+", default=[], metavar="BAG", help="bags to test the finished map on"
    )
    _parameters(parser)

    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on stdout and nothing else there"
    )


def _parameters(parser: argparse.ArgumentParser) -> None:
    """Add the settings by which bags are read, and which topics of theirs."""
    parser.add_argument(
        "--params", metavar="FILE", help="the parameter file of mapping_node (ROS 2 YAML)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any parameter"
    )

    parser.add_argument(
        "--field-topic", metavar="NAME", help="where a bag has several measurements of the sensor"
    )
    parser.add_argument(
        "--odometry-topic",
        "--pose-topic",
        metavar="NAME",
        help="where a bag has several odometries (or poses, as pose_source says)",
    )


def _test_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a map and its test, which `check` and `report` share."""
    parser.add_argument(
        "--against",
        nargs="+",
        default=[],
        metavar="BAG",
        help="bags to test on; without it the last 30 %% of the bags test and the rest maps",
    )
    _parameters(parser)
    parser.add_argument(
        "--no-refits",
        action="store_true",
        help="do not map again to say what each correction gains",
    )


def _workers(parser: argparse.ArgumentParser) -> Any:
    """Add --workers, --scheduler, --calibration-cells; returns their group, for further options."""
    group = parser.add_argument_group(
        "many bags side by side",
        "Each bag by itself, then all of them as one map. "
        "A bag that cannot be mapped is named and left out; the exit code is 0 where at "
        "least one was mapped, and 2 where none was.",
    )

    group.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="so many processes of this machine; more than one need "
        "pip install 'gp_mapping[fleet]'",
    )
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="a Dask cluster that is there, as tcp://host:8786; its "
        "workers see the bags under the same paths",
    )

    group.add_argument(
        "--calibration-cells",
        type=int,
        default=_CELLS,
        metavar="N",
        help="cells of each bag from "
        f"which its robot is calibrated, and hyper-parameters are learned (default: {_CELLS})",
    )
    return group


def map_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping map`."""
    _run_arguments(parser)
    _workers(parser).add_argument(
        "--blocks",
        action="store_true",
        help="also draw all of the map at full "
        "resolution, on the workers, as `gp-mapping export` does, into blocks below "
        "--output",
    )

    parser.add_argument(
        "--resume", "--load", metavar="CHECKPOINT", help="go on from this map (map.gpm)"
    )
    parser.add_argument(
        "--suggest", type=int, default=5, metavar="K", help="places to measure next (default: 5)"
    )


def fit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping fit`."""
    _run_arguments(parser)
    _workers(parser)

    parser.add_argument(
        "--iterations",
        type=int,
        default=_ITERATIONS,
        metavar="N",
        help=f"at most so many iterations, or epochs, of each step (default: {_ITERATIONS})",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=_TOLERANCE,
        metavar="NATS",
        help=f"stop where an iteration gains less (default: {_TOLERANCE:g})",
    )


def check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping check`."""
    parser.add_argument(
        "bags",
        nargs="+",
        metavar="BAG",
        help="rosbag2 folder, .mcap or .db3; several in this order",
    )
    parser.add_argument(
        "--output",
        default="check",
        metavar="DIR",
        help="for report.json and check.png (default: %(default)s)",
    )
    _test_arguments(parser)
    _workers(parser)

    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on stdout and nothing else there"
    )


def report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping report`."""
    parser.epilog = (
        "The page needs no network and no other file. From bags it holds the map of all of them, and what "
        "`gp-mapping check` finds; from a saved map what was saved with it, since the measurements are "
        "not there any more."
    )

    parser.add_argument(
        "source",
        nargs="+",
        metavar="BAG_or_saved_map",
        help="bags, or one folder of `gp-mapping map` or ~/save, or one map.gpm",
    )
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE", help="default: %(default)s"
    )
    _test_arguments(parser)
    _workers(parser)

    parser.add_argument(
        "--suggest", type=int, default=5, metavar="K", help="places to measure next (default: 5)"
    )
    parser.add_argument(
        "--title", metavar="TEXT", help="heading of the page (default: the name of the source)"
    )


def calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping calibrate`."""
    parser.add_argument(
        "bags",
        nargs="+",
        metavar="BAG",
        help="bags in which the robot turns on the spot, away from "
        "steel: two full turns, and about other axes, too, where it can",
    )

    parser.add_argument(
        "--output", metavar="FILE", help="parameter file to write, for --params (default: stdout)"
    )
    parser.add_argument(
        "--field-topic", metavar="NAME", help="where a bag has several magnetic fields"
    )

"""The subcommands of `gp-mapping`: one module each, imported only when that command runs.

Each module has `run(args) -> int`, which returns the exit code. The options stand apart, in
`arguments`, which needs no torch. A user's mistake is a UserError: one line on stderr and exit
code 2, never a traceback; cli.py sees to it, and to every unexpected error.
"""

import importlib
from argparse import ArgumentParser

from gp_mapping import __version__

__all__ = ["COMMANDS", "VERSION", "add_arguments"]

VERSION = __version__  # of the package

# name -> (module, file in `arguments` that defines NAME_arguments(parser), one line of help)
COMMANDS = {
    "demo": (
        "demo.command",
        "robots",
        "a simulated robot maps a magnetic field over real ROS 2, ends with a picture",
    ),
    "explore": (
        "explore",
        "robots",
        "have an area surveyed: the mapper plans, explorer_node drives, the map is saved",
    ),
    "map": ("map", "bags", "draw a map from recorded bags, and test it on others"),
    "fit": (
        "fit.command",
        "bags",
        "hyper-parameters from all of some bags at once, and a map for the robot to start from",
    ),
    "check": (
        "check.command",
        "bags",
        "say how far a map of a recording may be trusted, and what to mend on the robot first",
    ),
    "play": ("play", "robots", "play a bag into running nodes, where `ros2 bag` is absent"),
    "import": ("import_data", "others", "write a bag from recordings in another format"),
    "merge": (
        "merge.command",
        "saved",
        "one map of what several robots, or several days, have measured",
    ),
    "plot": ("plot", "saved", "draw a saved map"),
    "export": (
        "export",
        "saved",
        "all of a saved map at full resolution, for map_server or as a GeoTIFF",
    ),
    "plan": (
        "plan.command",
        "saved",
        "a way to measure next on a saved map: CSV, GeoJSON or a picture",
    ),
    "calibrate": (
        "calibrate",
        "bags",
        "hard and soft iron of a magnetometer, from a bag in which the robot turns",
    ),
    "report": (
        "report.command",
        "bags",
        "a run as one HTML page: maps, how far to trust them, calibration, what was left out",
    ),
    "view": ("view.command", "robots", "the live map in a browser, for people without RViz"),
    "bench": ("bench", "others", "accuracy and cost tables"),
}


def add_arguments(command: str, parser: ArgumentParser) -> None:
    """Add the options of a subcommand to its parser, and what its exit code means.

    Args:
        command: a key of COMMANDS.
        parser: of that command.
    """
    file = importlib.import_module(f"gp_mapping.commands.arguments.{COMMANDS[command][1]}")
    getattr(file, f"{command}_arguments")(parser)

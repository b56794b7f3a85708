"""One module per subcommand of `gp-mapping`, imported only when it is asked for.

Each has `add_arguments(parser)` and `run(args) -> int` (the exit code). What the user got wrong is a UserError:
one line on stderr and exit code 2, never a traceback; cli.py sees to it, and to everything that nobody expected.
"""

__all__ = ["COMMANDS"]

COMMANDS = {  # name -> (module, what it does)
    "demo": ("demo.command", "a simulated robot maps a magnetic field over real ROS 2, ends with a picture"),
    "explore": ("explore", "have an area surveyed: the mapper plans, explorer_node drives, the map is saved"),
    "map": ("map", "draw a map from recorded bags, and test it on others"),
    "fit": ("fit.command", "hyper-parameters from all of some bags at once, and a map for the robot to start from"),
    "check": ("check.command", "say how far a map of a recording may be trusted, and what to mend on the robot first"),
    "play": ("play", "play a bag into running nodes, where `ros2 bag` is absent"),
    "import": ("import_data", "write a bag from recordings in another format"),
    "merge": ("merge", "one map of what several robots, or several days, have measured"),
    "plot": ("plot", "draw a saved map"),
    "export": ("export", "all of a saved map at full resolution, for map_server or as a GeoTIFF"),
    "plan": ("plan", "a way to measure next on a saved map: CSV, GeoJSON or a picture"),
    "calibrate": ("calibrate", "hard and soft iron of a magnetometer, from a bag in which the robot turns"),
    "report": ("report.command", "a run as one HTML page: maps, how far to trust them, calibration, what was left out"),
    "view": ("view.command", "the live map in a browser, for people without RViz"),
    "bench": ("bench", "accuracy and cost tables"),
}

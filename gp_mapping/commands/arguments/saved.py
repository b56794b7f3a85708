"""Options of the commands on saved maps."""

from __future__ import annotations

import argparse

__all__ = [
    "EXPORTS",
    "ROUTES",
    "export_arguments",
    "merge_arguments",
    "plan_arguments",
    "plot_arguments",
]

EXPORTS = ("map_server", "geotiff")  # formats of `gp-mapping export`
ROUTES = (".csv", ".geojson", ".png", ".pdf", ".svg")  # endings that `gp-mapping plan` writes


def merge_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping merge`."""
    parser.add_argument(
        "maps",
        nargs="+",
        metavar="DIR_or_checkpoint",
        help="two or more: folders that `gp-mapping map` or a node wrote, or map.gpm files",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder for the map, its exports and the report",
    )

    # how the maps' frames lie to each other
    parser.add_argument(
        "--transform",
        action="append",
        default=[],
        metavar="MAP=x,y,yaw",
        help="where the origin of a map's frame lies in that of the others (metres, radians), for one "
        "that is in another frame; MAP as it stands among the maps",
    )
    parser.add_argument(
        "--allow-frame-change",
        action="store_true",
        help="the maps' frames are the same place, whatever their names say",
    )

    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on stdout and nothing else there"
    )


def plot_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping plot`."""
    parser.add_argument(
        "map", metavar="DIR_or_checkpoint", help="folder that `gp-mapping map` wrote, or a map.gpm"
    )

    parser.add_argument(
        "--output", metavar="FILE", help=".png, .pdf or .svg (default: map.png beside the map)"
    )
    parser.add_argument(
        "--resolution", type=float, metavar="METRES", help="side of a grid cell (default: as saved)"
    )
    parser.add_argument(
        "--suggest", type=int, default=5, metavar="K", help="places to measure next (default: 5)"
    )


def export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping export`."""
    parser.add_argument(
        "map", metavar="DIR_or_checkpoint", help="folder that `gp-mapping map` wrote, or a map.gpm"
    )

    parser.add_argument(
        "--output", metavar="DIR", default="export", help="folder to write into (default: export)"
    )
    parser.add_argument(
        "--format",
        choices=EXPORTS,
        default="map_server",
        help="map_server: yaml and pgm for each block; geotiff: one file, map.tif (needs rasterio)",
    )
    parser.add_argument(
        "--resolution", type=float, metavar="METRES", help="side of a grid cell (default: as saved)"
    )

    # where a GeoTIFF lies on the earth
    parser.add_argument(
        "--datum",
        metavar="LAT,LON,HEADING_or_BAG",
        help="where the map's origin lies, in degrees, "
        "and the direction of its x axis in rad from east (geotiff), or a bag with NavSatFix beside "
        "the map's poses, which tells it; none: coordinates are the map's (default: what the map's own "
        "fixes tell)",
    )
    parser.add_argument(
        "--fix-topic", metavar="NAME", help="of NavSatFix in that bag (default: the only one)"
    )
    parser.add_argument(
        "--odometry-topic",
        "--pose-topic",
        metavar="NAME",
        help="of the map's poses in that bag (default: the only one)",
    )


def plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gp-mapping plan`."""
    parser.add_argument(
        "map", metavar="DIR_or_checkpoint", help="folder that `gp-mapping map` wrote, or a map.gpm"
    )

    # the area
    parser.add_argument(
        "--free-space",
        metavar="FILE",
        help="obstacles, as map_server has them: a yaml with its pgm or png, in the map's frame "
        "(default: none are known, and the area is taken to be free)",
    )
    parser.add_argument(
        "--robot-radius",
        type=float,
        metavar="M",
        help="metres that the route keeps from what is not free (default: --params, or 0.2)",
    )
    parser.add_argument(
        "--region",
        metavar="'X Y, X Y, …'",
        help="corners in metres of the area (default: all free ground that can be reached; without "
        "--free-space the hull of the path, grown by --margin)",
    )
    parser.add_argument(
        "--keep-out",
        action="append",
        default=[],
        metavar="'X Y, X Y, …'",
        help="corners in metres of an area that the robot stays out of; may be repeated",
    )
    parser.add_argument(
        "--margin", type=float, metavar="M", help="metres the hull grows (default: --params, or 1)"
    )

    # what is to become known
    parser.add_argument(
        "--objective",
        metavar="NAME",
        help="area, level_set, hotspot or local_scale: all of the area alike, where the field is "
        "near --level, where it is above, or where the map has been wrong more often than it said "
        "(default: --params, or area)",
    )
    parser.add_argument(
        "--level", type=float, metavar="SI", help="of these objectives (default: --params, or 0)"
    )

    # the drive
    parser.add_argument(
        "--budget",
        type=float,
        metavar="M",
        help="metres to drive; 0 is no limit, as without it: 16 at most where time is none either",
    )
    parser.add_argument(
        "--budget-time", type=float, metavar="S", help="seconds, at --speed; 0 is no limit"
    )
    parser.add_argument(
        "--speed", type=float, metavar="M/S", help="of the robot (default: --params, or 0.3)"
    )
    parser.add_argument(
        "--start", metavar="'X Y'", help="where to begin (default: the end of the path)"
    )
    parser.add_argument(
        "--home",
        metavar="PLACE",
        help="where to end: start, none, or 'X Y' in metres (default: --params, or none)",
    )
    parser.add_argument("--kind", metavar="NAME", help="planner (default: --params, or route)")

    # the same parameters as a node's
    parser.add_argument(
        "--params", metavar="FILE", help="the parameter file of mapping_node (ROS 2 YAML)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter that plans depend on, for example plan_turn_rate=0.5",
    )

    parser.add_argument(
        "--output",
        default="route.csv",
        metavar="FILE",
        help=f"what to write, by its ending: {', '.join(ROUTES)} (default: route.csv)",
    )

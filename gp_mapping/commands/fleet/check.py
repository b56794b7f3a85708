"""`gp-mapping check BAG… --workers N`: table of a fleet, and which robot to mend first."""

from __future__ import annotations

import argparse
import json
import math

from gp_mapping.commands.fleet.arguments import connected_engine
from gp_mapping.commands.fleet.map import about_fleet, print_left_out, warnings_of
from gp_mapping.commands.output import folder_to_write
from gp_mapping.errors import UsageError
from gp_mapping.fleet.bags import Bags, agreed_by, read_bags
from gp_mapping.fleet.cells import counted
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.mapping import FleetMap, check_fleet, compare_robots, map_bags
from gp_mapping.fleet.table import FIGURES, find_outliers, medians_of, row_of
from gp_mapping.settings.build import Parameters
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.wording import unit_text

__all__ = ["run", "table_of", "text_of"]

_SHOWN = 10  # faults that are listed one by one


def run(args: argparse.Namespace, parameters: Parameters) -> int:
    """Read the bags, map them, compare each robot with the others; returns the exit code.

    Args:
        args: of the command.
        parameters: checked settings.

    Raises:
        UsageError: an option does not go with a fleet, or the report cannot be written.
    """
    check_fleet(parameters.map)
    if args.against:
        raise UsageError(
            "--against tests one map on other bags; among many bags each is compared with the map of all "
            "others: leave --against out, or --workers and --scheduler"
        )

    output = folder_to_write(args.output)
    topics = {"measurement": args.field_topic, "pose": args.odometry_topic}
    with connected_engine(args, output) as (engine, keep):
        bags = read_bags(engine, args.bags, parameters, topics, keep, args.calibration_cells)
        print_left_out(bags)
        fleet_map = map_bags(engine, bags, agreed_by(bags, parameters.map), parameters.map)
        table = table_of(engine, bags, fleet_map)
        about = engine.about

    result = table | {
        "fleet": about_fleet(bags, fleet_map.agreed, about),
        "warnings": warnings_of(bags),
        "hyperparameters": fleet_map.session.map.hyperparameters(),
        "dropped": counted(bags.reports, "dropped"),
        "bags": [str(b) for b in args.bags],
    }

    try:
        output.mkdir(parents=True, exist_ok=True)
        write_atomic(
            output / "report.json", (json.dumps(result, indent=2, allow_nan=False) + "\n").encode()
        )
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error

    print(
        json.dumps(result, allow_nan=False)
        if args.json
        else "\n".join([*text_of(result), f"written: {output / 'report.json'}"])
    )
    return 0


def table_of(engine: Engine, bags: Bags, fleet_map: FleetMap) -> dict:
    """Compare each robot with the map of all others.

    Args:
        engine: where the cells are.
        bags: that were read.
        fleet_map: their map.

    Returns:
        `unit` of the field, `table` (a row for each robot), `usual` (the fleet's values) and `mend`
        (bags that failed, then robots far from the others).
    """
    settings = fleet_map.session.settings
    unit, scale = unit_text(settings.field_unit), settings.field_scale
    noise = math.sqrt(fleet_map.session.noise_variance)
    rows = [
        row_of(report, robot, comparison, scale)
        for report, robot, comparison in zip(
            bags.reports, bags.robots, compare_robots(engine, bags, fleet_map, noise)
        )
    ]

    # a bag that failed has no figures, and is the first thing to mend
    mend = [
        {"bag": bag, "figure": "failed", "value": None, "usual": None, "far": None, "text": why}
        for bag, why in bags.failed.items()
    ]
    return {
        "unit": unit,
        "table": rows,
        "usual": medians_of(rows),
        "mend": mend + find_outliers(rows, unit),
    }


def text_of(result: dict) -> list[str]:
    """Return the lines of the table, with units, and what to mend first."""
    unit, rows = result["unit"], result["table"]
    units = {figure.name: unit if figure.unit == "field" else figure.unit for figure in FIGURES}
    width = max(len(row["bag"]) for row in rows)
    flagged = {(fault["bag"], fault["figure"]) for fault in result["mend"]}

    lines = [
        f"{'':{width}}  cells" + "".join(f"{figure.head:>10}" for figure in FIGURES),
        f"{'':{width}}       " + "".join(f"{units[figure.name]:>10}" for figure in FIGURES),
    ]

    def cells(row: dict, name: str) -> str:
        """Return the figures of a row.

        Args:
            row: value by name of the figure.
            name: of the robot; "" for the usual values.
        """
        parts = []
        for figure in FIGURES:
            value = row[figure.name]
            mark = "*" if (name, figure.name) in flagged else " "
            parts.append(f"{'–' if value is None else format(value, figure.digits):>9}{mark}")
        return "".join(parts)

    lines += [
        f"{row['bag']:{width}} {row['cells']:6d}{cells(row, row['bag'])}".rstrip() for row in rows
    ]
    lines.append(f"{'usual':{width}}       {cells(result['usual'], '')}".rstrip())

    if not result["mend"]:
        return [*lines, f"no robot of these {len(rows)} lies far from the others"]

    lines.append("mend first:")
    lines += [
        f"  {fault['text']}"
        if fault["figure"] == "failed"
        else f"  {fault['bag']}: {fault['text']}"
        for fault in result["mend"][:_SHOWN]
    ]
    remaining = len(result["mend"]) - _SHOWN
    return lines + ([f"  and {remaining} more in report.json"] if remaining > 0 else [])

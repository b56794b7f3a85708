"""`gp-mapping check BAG… --workers N`: table of a fleet, and which robot to mend first."""

from __future__ import annotations

import argparse
import json

from gp_mapping.commands.fleet.arguments import connected_engine
from gp_mapping.commands.fleet.map import about_fleet, print_left_out, warnings_of
from gp_mapping.commands.fleet.table import table_of, text_of
from gp_mapping.commands.output import folder_to_write
from gp_mapping.errors import UsageError
from gp_mapping.fleet.bags import agreed_by, read_bags
from gp_mapping.fleet.cells import counted
from gp_mapping.fleet.mapping import check_fleet, map_bags
from gp_mapping.settings.build import Parameters
from gp_mapping.store.atomic import write_atomic

__all__ = ["run"]


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

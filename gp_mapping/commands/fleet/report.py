"""`gp-mapping report BAG… --workers N`: page of a fleet's map, with the table of its robots."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from gp_mapping.commands.fleet.arguments import connected_engine
from gp_mapping.commands.fleet.map import about_fleet, print_left_out, warnings_of
from gp_mapping.commands.fleet.table import table_of
from gp_mapping.commands.report.names import short_names, without_folders
from gp_mapping.errors import UsageError
from gp_mapping.fleet.bags import agreed_by, read_bags
from gp_mapping.fleet.cells import counted
from gp_mapping.fleet.mapping import check_fleet, map_bags
from gp_mapping.settings.build import Parameters

__all__ = ["facts_of"]


def facts_of(args: argparse.Namespace, parameters: Parameters, topics: dict, output: Path) -> dict:
    """Return what the page states: the map of all bags, and each robot against all others.

    Args:
        args: of the command; its sources are the bags.
        parameters: checked settings.
        topics: which topics to read, where a bag has several.
        output: the page; cells are kept next to it while the run lasts.

    Raises:
        UsageError: an option does not go with a fleet.
    """
    check_fleet(parameters.map)
    args.bags = args.source  # the name that connected_engine expects
    if args.against:
        raise UsageError(
            "--against tests one map on other bags; among many bags each is compared with the map of all "
            "others: leave --against out, or --workers and --scheduler"
        )

    with connected_engine(args, output.parent) as (engine, keep):
        bags = read_bags(engine, args.bags, parameters, topics, keep, args.calibration_cells)
        print_left_out(bags)
        fleet_map = map_bags(engine, bags, agreed_by(bags, parameters.map), parameters.map)
        table = table_of(engine, bags, fleet_map)
        about = about_fleet(bags, fleet_map.agreed, engine.about)

    # the page goes to other people: folders of this machine stay out of it
    names = short_names(args.bags)
    for row in [*table["table"], *table["mend"]]:
        row["bag"] = names[row["bag"]]

    report = fleet_map.session.report()
    plain = [
        about["agreed"]
        + "; time offset, lever arm and what turns with a robot are each robot's own"
    ]
    if about["without_a_say"]:
        plain.append(
            "without a say in that, being far from the others: "
            + ", ".join(names[bag] for bag in about["without_a_say"])
        )

    return {
        "session": fleet_map.session,
        "figures": {},
        "fleet": table,
        "part": False,
        "test": None,
        "refits": {},
        "how": None,
        "plain": plain,
        "dropped": counted(bags.reports, "dropped"),
        "mend": [
            without_folders(fault["text"], names)
            if fault["figure"] == "failed"
            else f"{fault['bag']}: {fault['text']}"
            for fault in table["mend"]
        ],
        "explained": [without_folders(text, names) for text in warnings_of(bags)],
        "changes": [],
        "changes_in_test": [],
        "events": {name: report[name] for name in ("gross_errors", "weakened_cells")},
        "settings": asdict(fleet_map.session.settings) | asdict(parameters.intake),
    }

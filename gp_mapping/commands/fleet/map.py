"""`gp-mapping map BAG… --workers N`: one map of many bags, each read by itself."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from gp_mapping.commands.export import BLOCK_CELLS, write_blocks
from gp_mapping.commands.fleet.arguments import connected_engine
from gp_mapping.commands.map import (
    about_map,
    score_on_tests,
    summary,
    unpaired_fix_warning,
    write_results,
)
from gp_mapping.commands.output import folder_to_write
from gp_mapping.commands.saved import check_suggest, next_places
from gp_mapping.core.registry import AUTO, device_of
from gp_mapping.errors import UsageError
from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.bags import Bags, agreed_by, read_bags
from gp_mapping.fleet.cells import counted
from gp_mapping.fleet.drawing import fleet_blocks
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.mapping import FleetMap, check_fleet, map_bags
from gp_mapping.mapping.notes.settings import not_looked_note
from gp_mapping.recording.replay import plan_bags
from gp_mapping.settings.build import Parameters

__all__ = ["about_fleet", "print_left_out", "run", "warnings_of"]


def run(args: argparse.Namespace, parameters: Parameters) -> int:
    """Read the bags, agree on θ, add them up, draw, test, export; returns the exit code.

    Args:
        args: of the command.
        parameters: checked settings.

    Raises:
        UsageError: an option does not go with a fleet, or the output cannot be written.
    """
    started = time.perf_counter()
    check_fleet(parameters.map)
    # chosen once: workers that chose for themselves could make parts that differ by rounding
    device = device_of(parameters.map)
    if parameters.map.device == AUTO:
        print(f"fleet: device auto is {device.name}: {device.reason}", file=sys.stderr, flush=True)
    parameters = replace(parameters, map=replace(parameters.map, device=device.name))
    if args.resume:
        raise UsageError(
            "--resume goes on with a map, bag after bag; leave --workers and --scheduler out, or merge "
            "the maps afterwards (gp-mapping merge)"
        )

    topics = {"measurement": args.field_topic, "pose": args.odometry_topic}
    test_plans = plan_bags(args.test, parameters.intake, topics)
    output = folder_to_write(args.output)
    check_suggest(args.suggest)

    with connected_engine(args, output) as (engine, keep):
        bags = read_bags(engine, args.bags, parameters, topics, keep, args.calibration_cells)
        print_left_out(bags)
        fleet_map = map_bags(engine, bags, agreed_by(bags, parameters.map), parameters.map, output)
        about = engine.about
        # inside the `with`: the workers draw, and hold the sums of the tiles
        count = _blocks(engine, fleet_map, output / "blocks") if args.blocks else None

    session = fleet_map.session
    result = {
        "samples": session.raw_count,
        "dropped": counted(bags.reports, "dropped"),
        "seconds": time.perf_counter() - started,
        "rmse_ut": None,
        "nlpd": None,
        "coverage": None,
        "bands": None,
    }

    if args.test:
        result.update(score_on_tests(test_plans, parameters, session, session.path.numpy()))

    suggestions = next_places(session, session.render(), args.suggest, parameters.node)
    result.update(
        {
            "received": counted(bags.reports, "received"),
            "dropped_measurements": sum(report.dropped_measurements for report in bags.reports),
            **about_map(
                args,
                parameters,
                session,
                suggestions,
                warnings_of(bags)
                + unpaired_fix_warning(parameters, session, counted(bags.reports, "received"))
                + not_looked_note(parameters.map)
                + result.get("test_warnings", []),
            ),
            "fleet": about_fleet(bags, fleet_map.agreed, about) | {"blocks": count},
        }
    )

    paths = write_results(output, session, suggestions, result, started)
    print(
        json.dumps(result, allow_nan=False)
        if args.json
        else "\n".join([_first_line(result), summary(result, session, paths)])
    )
    return 0


def _blocks(engine: Engine, fleet_map: FleetMap, folder: Path) -> int:
    """Draw all of the map at full resolution, on the workers; returns how many blocks."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write_blocks(fleet_map.session, fleet_blocks(engine, fleet_map, BLOCK_CELLS), folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror or error})") from error


def print_left_out(bags: Bags) -> None:
    """Print which bags are left out, and why, as soon as it is known."""
    for why in bags.failed.values():
        print(f"fleet: left out: {why}", file=sys.stderr, flush=True)


def warnings_of(bags: Bags) -> list[str]:
    """Return the warnings of all bags: each text once, with its first bag and how many more."""
    bags_of: dict[str, list[str]] = {}
    for report in bags.reports:
        for text in [*report.warnings, *report.faults]:
            bags_of.setdefault(text, []).append(report.bag)
    texts = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {text}"
        for text, names in bags_of.items()
    ]
    return [*[f"left out: {why}" for why in bags.failed.values()], *bags.warnings, *texts]


def about_fleet(bags: Bags, agreed: Agreed, engine: str) -> dict:
    """Return which bags were mapped and how they agreed on θ, as plain numbers.

    Args:
        bags: that were read.
        agreed: by them.
        engine: one line about where the steps ran.
    """
    rows = [
        {
            "bag": report.bag,
            "samples": report.samples,
            "cells": report.cells,
            "passes": report.passes,
            "time_offset": robot.theta.time_offset,
            "calibration_cells": robot.cells,
        }
        for report, robot in zip(bags.reports, bags.robots)
    ]
    return {
        "engine": engine,
        "mapped": len(bags.reports),
        "failed": bags.failed,
        "bags": rows,
        "agreed": "hyper-parameters are the product of what the bags have learned, by the Fisher information of "
        "their cells"
        if agreed.information.any()
        else "hyper-parameters are those that were given",
        "without_a_say": [bags.reports[i].bag for i in agreed.silent],
    }


def _first_line(result: dict) -> str:
    """Return how many bags make the map, how they agreed, and which had no say in that."""
    fleet = result["fleet"]
    left_out = f", {len(fleet['failed'])} left out" if fleet["failed"] else ""
    silent = (
        f"; without a say in them, being far from the others: {', '.join(fleet['without_a_say'])}"
        if fleet["without_a_say"]
        else ""
    )
    return f"{fleet['mapped']} bags as one map{left_out}; {fleet['agreed']}{silent}"

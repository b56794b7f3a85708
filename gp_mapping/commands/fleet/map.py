"""`gp-mapping map BAG… --workers N`: one map of many bags, each read by itself."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from gp_mapping.commands.export import BLOCK_CELLS, write_blocks
from gp_mapping.commands.fleet.arguments import at_work
from gp_mapping.commands.map import about_map, lonely, parameters_of, scored, summary, written
from gp_mapping.commands.output import folder_to_write
from gp_mapping.commands.saved import check_suggest, next_places
from gp_mapping.errors import UsageError
from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.cells import counted
from gp_mapping.fleet.drawing import fleet_blocks
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.mapping import Bags, FleetMap, agreed_by, check_fleet, map_bags, read_bags
from gp_mapping.recording.replay import plan_bags

__all__ = ["about_fleet", "run", "said", "warnings_of"]


def run(args: argparse.Namespace) -> int:
    """Read, agree, sum, draw, test, export, report."""
    started = time.perf_counter()
    parameters = parameters_of(args)
    check_fleet(parameters.map)
    if args.resume:
        raise UsageError(
            "--resume goes on with a map, bag after bag; leave --workers and --scheduler out, or merge "
            "the maps afterwards (gp-mapping merge)"
        )
    topics = {"measurement": args.field_topic, "pose": args.odometry_topic}
    test_plans = plan_bags(args.test, parameters.intake, topics)
    output = folder_to_write(args.output)
    check_suggest(args.suggest)
    with at_work(args, output) as (engine, keep):
        bags = read_bags(engine, args.bags, parameters, topics, keep, args.calibration_cells)
        said(bags)
        made = map_bags(engine, bags, agreed_by(bags, parameters.map), parameters.map, output)
        about = engine.about
        count = _blocks(engine, made, output / "blocks") if args.blocks else None
    session = made.session
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
        result.update(scored(test_plans, parameters, session, session.path.numpy()))
    suggestions = next_places(session, session.render(), args.suggest, parameters.node)
    result.update(
        {
            "received": counted(bags.reports, "received"),
            "dropped_measurements": sum(t.dropped_measurements for t in bags.reports),
            **about_map(
                args,
                parameters,
                session,
                suggestions,
                warnings_of(bags) + lonely(parameters, session),
            ),
            "fleet": about_fleet(bags, made.agreed, about) | {"blocks": count},
        }
    )
    paths = written(output, session, suggestions, result, started)
    print(
        json.dumps(result, allow_nan=False)
        if args.json
        else "\n".join([_first_line(result), summary(result, session, paths)])
    )
    return 0


def _blocks(engine: Engine, made: FleetMap, folder: Path) -> int:
    """All of the map at full resolution, drawn by the workers; how many blocks."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write_blocks(made.session, fleet_blocks(engine, made, BLOCK_CELLS), folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror or error})") from error


def said(bags: Bags) -> None:
    """Who is left out, as soon as it is known."""
    for why in bags.failed.values():
        print(f"fleet: left out: {why}", file=sys.stderr, flush=True)


def warnings_of(bags: Bags) -> list[str]:
    """Of all bags, each once, with the bag that it is of where it is of one."""
    heard: dict[str, list[str]] = {}
    for report in bags.reports:
        for text in [*report.warnings, *report.faults]:
            heard.setdefault(text, []).append(report.bag)
    of_bags = [
        f"{named[0]}{f' and {len(named) - 1} more' if len(named) > 1 else ''}: {text}"
        for text, named in heard.items()
    ]
    return [*[f"left out: {why}" for why in bags.failed.values()], *bags.warnings, *of_bags]


def about_fleet(bags: Bags, agreed: Agreed, engine: str) -> dict:
    """Which bags, and how they agreed, in plain numbers."""
    rows = [
        {
            "bag": t.bag,
            "samples": t.samples,
            "cells": t.cells,
            "passes": t.passes,
            "time_offset": r.theta.time_offset,
            "calibration_cells": r.cells,
        }
        for t, r in zip(bags.reports, bags.robots)
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
    fleet = result["fleet"]
    left = f", {len(fleet['failed'])} left out" if fleet["failed"] else ""
    silent = (
        f"; without a say in them, being far from the others: {', '.join(fleet['without_a_say'])}"
        if fleet["without_a_say"]
        else ""
    )
    return f"{fleet['mapped']} bags as one map{left}; {fleet['agreed']}{silent}"

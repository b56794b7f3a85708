"""`gp-mapping fit BAG… --workers N`: fit hyper-parameters to many bags, and map them at these."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from gp_mapping.analysis.digits import decimals
from gp_mapping.commands.fit.progress import Progress
from gp_mapping.commands.fleet.arguments import connected_engine
from gp_mapping.commands.fleet.map import about_fleet, print_left_out, warnings_of
from gp_mapping.commands.fleet.table import table_of, text_of
from gp_mapping.commands.map import UNITS, about_map, dropped_lines, score_on_tests, write_results
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.fleet.bags import agreed_by, read_bags
from gp_mapping.fleet.cells import counted
from gp_mapping.fleet.evidence import EvidenceAscent, maximise_evidence
from gp_mapping.fleet.mapping import check_fleet, map_bags
from gp_mapping.recording.replay import plan_bags
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.wording import unit_text

__all__ = ["run"]

_FITTED = (
    "lengthscale",
    "signal_stddev",
    "noise_stddev",
    "heading_stddev",
    "time_offset",
    "bias_stddev",
)


def run(args: argparse.Namespace, parameters: Parameters, output: Path) -> int:
    """Read the bags, agree on θ, fit it, map, compare the robots, test, export and report.

    Args:
        args: of the command.
        parameters: checked settings.
        output: folder of the files.

    Returns:
        The exit code.
    """
    started = time.perf_counter()
    check_fleet(parameters.map)
    topics = {"measurement": args.field_topic, "pose": args.odometry_topic}
    test_plans = plan_bags(args.test, parameters.intake, topics)
    with connected_engine(args, output) as (engine, keep):
        bags = read_bags(engine, args.bags, parameters, topics, keep, args.calibration_cells)
        print_left_out(bags)

        agreed, progress = agreed_by(bags, parameters.map), Progress(args.iterations)

        began = time.perf_counter()
        fitted = maximise_evidence(engine, bags, agreed, args.iterations, args.tolerance, progress)
        progress.close()
        seconds = time.perf_counter() - began

        # mapping settles the stddev of the biases as well: what is reported is of this θ
        fleet_map = map_bags(engine, bags, fitted.agreed, parameters.map, output)
        table = table_of(engine, bags, fleet_map)
        about = engine.about

    session, scale = fleet_map.session, parameters.map.field_scale
    fit = {
        "objective": fitted.objective,
        "nats_before": fitted.before,
        "nats_after": fitted.after,
        "before": _in_si(agreed.theta, scale),
        "after": _in_si(fleet_map.agreed.theta, scale),
        "cells": session.cell_count,
        "iterations": fitted.iterations,
        "converged": fitted.converged,
        "seconds": seconds,
    }

    result = {
        "fit": fit,
        "received": counted(bags.reports, "received"),
        "dropped": counted(bags.reports, "dropped"),
        **table,
        **about_map(args, parameters, session, (), warnings_of(bags)),
        "test": None,
        "fleet": about_fleet(bags, fleet_map.agreed, about),
    }

    if args.test:
        result["test"] = score_on_tests(test_plans, parameters, session, session.path.numpy())
        result["warnings"] += result["test"]["test_warnings"]

    paths = write_results(output, session, (), result, started)
    print(
        json.dumps(result, allow_nan=False)
        if args.json
        else _text(result, fitted, parameters.map, paths)
    )
    return 0


def _in_si(theta: Theta, scale: float) -> dict[str, float]:
    """Return θ (inner units) by name, in SI."""
    return {
        name: getattr(theta, name) * (scale if name.endswith("stddev") else 1.0) for name in _FITTED
    }


def _text(
    result: dict, fitted: EvidenceAscent, settings: MapSettings, paths: dict[str, Path]
) -> str:
    """Return the report as text, with units."""
    fit, unit, scale = result["fit"], unit_text(settings.field_unit), settings.field_scale
    stopped = (
        "it stopped by itself"
        if fitted.converged
        else "it stopped short of a maximum, after --iterations or where no step gained: more may gain more"
    )

    lines = [
        f"{fit['cells']} cells of {result['fleet']['mapped']} bags, fitted in {fit['seconds']:.1f} s with "
        f"{fit['iterations']} iterations of L-BFGS; {stopped}",
        *dropped_lines(result["dropped"]),
        f"{'':38} {'agreed':>10} {'fitted':>10}",
        f"{fit['objective'] + ', nats':38} {fit['nats_before']:10.1f} {fit['nats_after']:10.1f}",
    ]

    for name in _FITTED:
        size, unit_of_value = (
            (scale, unit) if name.endswith("stddev") else (1.0, UNITS.get(name, ""))
        )
        lines.append(
            f"{f'{name} {unit_of_value}'.rstrip():38} {decimals(fit['before'][name] / size):>10} "
            f"{decimals(fit['after'][name] / size):>10}"
        )

    if result["test"]:
        lines += [
            f"{label:38} {'':10} {decimals(result['test'][key]):>10}"
            for label, key in (
                (f"test RMSE {unit}", "rmse_ut"),
                ("test NLPD", "nlpd"),
                ("test in 95 %", "coverage"),
            )
        ]
    lines += [
        "",
        *text_of(result | {"unit": unit}),
        *(f"  warning: {text}" for text in result["warnings"]),
    ]
    return "\n".join([*lines, "written: " + ", ".join(map(str, paths.values()))])

"""`gp-mapping fit BAG… --output DIR`: hyper-parameters from all cells at once, and the map at them.

The bags are read twice: first as `gp-mapping map` reads them, which gives the cells and the
hyper-parameters that a robot would have learned on the way; then, after the fit to all cells
together, with the fitted ones from the beginning.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict

import numpy as np
import torch

from gp_mapping.commands.fit.fitting import Refit, fit_and_map
from gp_mapping.commands.fit.progress import Progress
from gp_mapping.commands.fit.text import summary
from gp_mapping.commands.fleet.arguments import uses_workers
from gp_mapping.commands.map import drop_reasons, parameters_of, score_on_tests, write_results
from gp_mapping.commands.output import folder_to_write
from gp_mapping.core.likelihoods.outcomes import make_judge
from gp_mapping.errors import UsageError
from gp_mapping.intake import Intake
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.mapping.notes.fullness import fullness_notes
from gp_mapping.mapping.session import MapSession
from gp_mapping.offline.fit import check_fits
from gp_mapping.recording.mapped import note_mapped, require_distinct
from gp_mapping.recording.replay import plan_bags, samples_of
from gp_mapping.settings.build import Parameters
from gp_mapping.store.sessions import new_session

__all__ = ["run"]

_LARGEST = 10_000  # iterations


def run(args: argparse.Namespace) -> int:
    """Stream the bags, fit, map again, test, export and report; returns the exit code.

    Raises:
        UsageError: an option is out of range, the model cannot be fitted, no measurement can be
            used, or the output cannot be written.
    """
    started = time.perf_counter()
    parameters = parameters_of(args)
    torch.set_num_threads(parameters.node.torch_threads)  # as the node, so that both round alike
    output = folder_to_write(args.output)

    _check(args, parameters)

    if uses_workers(args):
        from gp_mapping.commands.fleet.fit import run as run_fleet

        return run_fleet(args, parameters, output)

    topics = {"measurement": args.field_topic, "pose": args.odometry_topic}
    plans, test_plans = (
        plan_bags(bags, parameters.intake, topics) for bags in (args.bags, args.test)
    )
    require_distinct(plans)

    # first time: as a robot would map them
    new = new_session(parameters.map)
    new.taken = []  # makes the session keep its cells
    streamed, intake, positions = _through(plans, parameters, new, "stream")
    if intake.samples == 0 or not streamed.cell_count:
        raise UsageError(f"no measurement could be used: {drop_reasons(intake, streamed)}")

    progress, again = Progress(args.iterations), {}

    def repeat(session: MapSession) -> None:
        """Read the bags a second time; called when the fit is over."""
        progress.close()
        again["about"] = _through(plans, parameters, session, "map")[0].about

    refit = fit_and_map(
        streamed, repeat, output, most=args.iterations, tolerance=args.tolerance, progress=progress
    )
    session = refit.session
    session.about = {**again["about"], **session.about}
    note_mapped(plans, session.about)

    result = _result(args, parameters, refit, intake)
    if args.test:
        # both maps saw the same samples, so that one set of positions serves both scores
        trained = np.vstack(positions)
        result["test"] = {
            name: score_on_tests(test_plans, parameters, tested, trained)
            for name, tested in (("streamed", streamed), ("fitted", session))
        }
        result["warnings"] += result["test"]["fitted"]["test_warnings"]

    paths = write_results(output, session, (), result, started)
    print(
        json.dumps(result, allow_nan=False)
        if args.json
        else summary(result, session.settings, paths)
    )
    return 0


def _check(args: argparse.Namespace, parameters: Parameters) -> None:
    """Check the options and the model.

    Raises:
        UsageError: an option is out of range, or the model cannot be fitted.
    """
    if not 1 <= args.iterations <= _LARGEST:
        raise UsageError(f"--iterations is {args.iterations}, expected 1 to {_LARGEST}")
    if not 0.0 < args.tolerance < float("inf"):
        raise UsageError(f"--tolerance is {args.tolerance}, expected a number of nats above 0")
    try:
        check_fits(parameters.map)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _result(args: argparse.Namespace, parameters: Parameters, refit: Refit, intake: Intake) -> dict:
    """Return the report in plain numbers, without a test.

    Args:
        args: of the command.
        parameters: checked settings.
        refit: the fit, and the map at its θ.
        intake: of the first time that the bags were read.
    """
    session = refit.session
    return {
        "fit": _plain(refit),
        "received": dict(intake.received),
        "dropped": intake.drops.as_dict(),
        "warnings": [
            *intake.warnings,
            *session.warnings,
            *fullness_notes(session.report()),
            *refit.fit.notes,
        ],
        "bags": [str(b) for b in args.bags],
        "test_bags": [str(b) for b in args.test],
        "sensor": parameters.intake.sensor,
        "unit": session.settings.field_unit,
        "map": session.report(),
        "hyperparameters": refit.after,
        "noise_stddev": session.report()["noise_stddev"],
        "test": None,
        "settings": asdict(session.settings) | asdict(parameters.intake),
    }


def _through(
    plans, parameters: Parameters, session: MapSession, label: str
) -> tuple[MapSession, Intake, list[np.ndarray]]:
    """Take the bags in; returns the session, their intake, and the positions, (n, 2) m a batch."""
    positions: list[np.ndarray] = []
    intake = Intake(parameters.intake, judge=make_judge(parameters.map), as_received=True)
    for samples in ingest_batches(samples_of(plans, intake, label), session, intake.drops):
        positions.append(samples.x.numpy())
    ingest_remaining(session, intake.drops)
    session.about = {**intake.about, **session.about}
    return session, intake, positions


def _plain(refit: Refit) -> dict:
    """Return the fit as plain numbers, for the report."""
    fit = refit.fit
    return {
        "objective": fit.objective,
        "nats_before": fit.before,
        "nats_after": fit.after,
        "evidence_before": fit.evidence_before,
        "evidence_after": fit.evidence_after,
        "before": refit.before,
        "after": refit.after,
        "cells": fit.cells,
        "blocks": fit.blocks,
        "iterations": fit.iterations,
        "steps": fit.steps,
        "converged": fit.converged,
        "seconds": refit.seconds,
        "anytime": refit.limit,
    }

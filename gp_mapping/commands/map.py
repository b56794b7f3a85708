"""`gp-mapping map BAG… --output DIR`: map recorded bags, and test the map on others.

The messages pass through the same intake and session as in the live node, as fast as the machine
allows.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import torch

from gp_mapping.analysis.changed import APART, ChangeFollower, changes_since, list_changes
from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.metrics import BANDS, PredictionScores
from gp_mapping.commands.fleet.arguments import uses_workers
from gp_mapping.commands.output import folder_to_write
from gp_mapping.commands.saved import check_suggest, checkpoint_in, next_places, open_session
from gp_mapping.core.likelihoods.outcomes import make_judge
from gp_mapping.core.registry import AUTO
from gp_mapping.errors import UsageError, named
from gp_mapping.intake import DropReason, Intake
from gp_mapping.intake.fixes import FIX as FIX_TYPE
from gp_mapping.intake.fixes import ROLE as FIX
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.intake.sensors.setup import SETUP, as_saved
from gp_mapping.intake.sensors.sketch import MEASURED
from gp_mapping.mapping.notes.fullness import fullness_notes, inputs_line
from gp_mapping.mapping.session import MapSession
from gp_mapping.recording.mapped import no_test, note_mapped, require_distinct, require_new
from gp_mapping.recording.replay import BagPlan, plan_bags, samples_of
from gp_mapping.settings.build import Parameters, parse_assignment, read_parameter_file
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import SENSOR_TYPES
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.checkpoint import about_checkpoint, save_checkpoint
from gp_mapping.store.exports.export import export_all
from gp_mapping.store.holdings import holdings_of, map_in, note_holdings, replaced
from gp_mapping.store.sessions import new_session, quantity_of
from gp_mapping.store.trial import errors_about
from gp_mapping.store.wording import passes_text, unit_text

__all__ = [
    "UNITS",
    "about_map",
    "drop_reasons",
    "parameters_of",
    "run",
    "score_on_tests",
    "stay_in_frame",
    "summary",
    "unpaired_fix_warning",
    "write_results",
]

# of hyper-parameters; a stddev is in the field's unit
UNITS = {
    "lengthscale": "m",
    "time_offset": "s",
    "lever_arm_along": "m",
    "lever_arm_across": "m",
}


def parameters_of(args: argparse.Namespace) -> Parameters:
    """Return the parameters: --params, then --model and --seed, then --set; the later ones win."""
    values = read_parameter_file(args.params) if args.params else {}
    values.update({k: v for k, v in (("model", args.model), ("seed", args.seed)) if v is not None})
    values.update(map(parse_assignment, args.set))
    return Parameters.build(values)


def _session(args: argparse.Namespace, parameters: Parameters) -> MapSession:
    """Return a new map, or with --resume the saved one, with its settings but for those given now.

    Raises:
        UsageError: the saved map is of another sensor or quantity.
    """
    if not args.resume:
        return new_session(parameters.map, Path(args.output))
    names = {f.name for f in fields(MapSettings)} & set(parameters.given)
    session = open_session(
        args.resume, Path(args.output), **{name: getattr(parameters.map, name) for name in names}
    )

    # a unit that no sensor type has, such as that of a count, says nothing about the sensor
    unit, sensor = session.settings.field_unit, parameters.intake.sensor
    fitting = [name for name, kind in SENSOR_TYPES.items() if kind.shown == unit]
    if fitting and sensor not in fitting:
        raise UsageError(
            f"{args.resume} is a map in {unit}, as sensor {fitting[0]!r} makes it, and this is sensor "
            f"{sensor!r}; write --set sensor={fitting[0]}, or begin a new map without --resume"
        )

    quantity, saved_quantity = parameters.intake.quantity, quantity_of(session.about)
    if saved_quantity and saved_quantity != quantity and "field_unit" not in names:
        raise UsageError(
            f"{args.resume} is a map of {named(saved_quantity)}, and this is {named(quantity)}; "
            "write --set sensor=… and --set field_component=… (or value_field=…) as they were, or begin a new map "
            "without --resume"
        )

    # what is saved from now on holds that map's measurements, too
    note_holdings(session.about, holdings_of(checkpoint_in(args.resume), session.about))
    session.break_pass()  # the next sample does not continue the pass of the last one saved
    return session


def run(args: argparse.Namespace) -> int:
    """Map the bags, test, export and report; returns the exit code.

    Raises:
        UsageError: a bag or an option cannot be used, no measurement can, or the output cannot be
            written.
    """
    started = time.perf_counter()
    parameters = parameters_of(args)
    torch.set_num_threads(parameters.node.torch_threads)  # as the node, so that both round alike
    if uses_workers(args):
        # not above: that module imports this one
        from gp_mapping.commands.fleet.map import run as run_fleet

        return run_fleet(args, parameters)

    session = _session(args, parameters)
    intake_settings, taken = as_saved(parameters.intake, parameters.given, session.about)
    parameters = replace(parameters, intake=intake_settings)
    plans, test_plans = _plans(args, parameters, session)
    output = folder_to_write(args.output)
    check_suggest(args.suggest)

    before, changed = session.report()["samples"], session.scores.change_count
    intake, positions = _mapped(args, parameters, session, plans)

    result = {
        "samples": session.report()["samples"] - before,
        "dropped": intake.drops.as_dict(),
        "seconds": time.perf_counter() - started,
        "as_saved": taken,
        "changes": changes_since(session, changed),
        "rmse_ut": None,
        "nlpd": None,
        "coverage": None,
        "bands": None,
    }

    if args.test:
        trained = np.vstack([session.path.numpy(), *positions] if args.resume else positions)
        result.update(score_on_tests(test_plans, parameters, session, trained))

    with errors_about(args.resume) if args.resume else nullcontext():
        grid = session.render()
    suggestions = next_places(session, grid, args.suggest, parameters.node)
    result.update(
        {
            "received": dict(intake.received),
            "dropped_measurements": intake.drops.measurements,
            **about_map(
                args,
                parameters,
                session,
                suggestions,
                intake.warnings
                + unpaired_fix_warning(parameters, session, intake.received)
                + result.get("test_warnings", []),
            ),
        }
    )

    paths = write_results(output, session, suggestions, result, started)
    print(json.dumps(result, allow_nan=False) if args.json else summary(result, session, paths))
    return 0


def _plans(
    args: argparse.Namespace, parameters: Parameters, session: MapSession
) -> tuple[list[BagPlan], list[BagPlan]]:
    """Return what is read of the bags and of the test bags.

    A fault of any bag, also of a test bag, is reported before the work, not after it.

    Args:
        args: of the command.
        parameters: as the map has them.
        session: of the map, new or saved.

    Raises:
        UsageError: a bag cannot be used, or is in the map already.
    """
    topics = {"measurement": args.field_topic, "pose": args.odometry_topic}
    plans = plan_bags(args.bags, parameters.intake, topics, fixes=True)
    test_plans = plan_bags(args.test, parameters.intake, topics)

    require_distinct(plans)
    if args.resume:
        require_new(plans, session.about, args.resume)
    return plans, test_plans


def _mapped(
    args: argparse.Namespace, parameters: Parameters, session: MapSession, plans: list[BagPlan]
) -> tuple[Intake, list[np.ndarray]]:
    """Map the bags.

    Args:
        args: of the command.
        parameters: as the map has them.
        session: of the map, which takes the samples in.
        plans: what is read of the bags.

    Returns:
        The intake, and the places of all samples, (N, 2) m a batch, where they are tested.

    Raises:
        UsageError: no measurement could be used.
    """
    intake = Intake(parameters.intake, judge=make_judge(parameters.map), as_received=True)
    stay_in_frame(intake, session, session.about.get("sensor_frame", ""))
    intake.expect_none_of(session.about.get(MEASURED, ""))

    # what the map raises here costs a sample, and is counted; anything else is not the saved map's
    stored, positions = samples_of(plans, intake, "map", goes_on=bool(args.resume)), []
    for samples in ingest_batches(stored, session, intake.drops):
        session.fixes.add(intake.fixes.take())
        # only the test needs every position, and a recording may be long
        if args.test:
            positions.append(samples.x.numpy())
    with errors_about(args.resume) if args.resume else nullcontext():
        ingest_remaining(session, intake.drops)
        session.fixes.add(intake.fixes.take(finish=True))

    session.about = {
        **intake.about,
        **session.about,
        **{name: intake.about[name] for name in (SETUP, MEASURED)},
    }
    note_mapped(plans, session.about)
    if intake.samples == 0 or not session.cell_count:
        raise UsageError(f"no measurement could be used: {drop_reasons(intake, session)}")
    return intake, positions


def about_map(
    args: argparse.Namespace,
    parameters: Parameters,
    session: MapSession,
    suggestions,
    warnings: list[str],
) -> dict:
    """Return what a report states about a map, whichever command made it.

    Args:
        args: of the command.
        parameters: checked settings.
        session: the map.
        suggestions: places to measure next, best first.
        warnings: of reading the bags; those of the map follow them.
    """
    report = session.report()
    return {
        "warnings": [*warnings, *session.warnings, *fullness_notes(report)],
        "passes": report["passes"],
        "hyperparameters": report["hyperparameters"],
        "noise_stddev": report["noise_stddev"],
        "suggestions": [{"x": s.x, "y": s.y, "score": s.score} for s in suggestions],
        "map": report,
        "sensor": parameters.intake.sensor,
        "unit": session.settings.field_unit,
        "bags": [str(b) for b in args.bags],
        "test_bags": [str(b) for b in args.test],
        "settings": asdict(session.settings) | asdict(parameters.intake),
    }


def unpaired_fix_warning(
    parameters: Parameters, session: MapSession, received: dict[str, int]
) -> list[str]:
    """Return a warning where a fix_topic is set and no fix could be paired with a pose.

    Args:
        parameters: checked settings.
        session: of which all bags are read.
        received: messages that came, by the name of their input.

    Returns:
        One sentence, or none.
    """
    topic, came = parameters.intake.fix_topic, received.get(FIX, 0)
    if not topic or session.fixes.count:
        return []

    if not came:
        return [f"there is no {FIX_TYPE} on {topic}: the map carries no datum"]
    return [
        f"none of the {came} fixes on {topic} has both a position and a pose at its stamp: the map "
        "carries no datum"
    ]


def drop_reasons(intake: Intake, session: MapSession | None = None) -> str:
    """Return why measurements were dropped, for the error that none could be used.

    Args:
        intake: what read them.
        session: the map that refused them; None: none did.
    """
    notes = [] if session is None else session.value_notes
    return "; ".join([*intake.drops.explain(), *intake.warnings, *notes]) or "there was none"


def dropped_lines(dropped: dict[str, int]) -> list[str]:
    """Return a line for each reason for which messages were dropped, or used in part."""
    return [
        f"  {'used in part' if reason.is_used else 'dropped'} {dropped[reason.value]}: "
        f"{reason.explanation} [{reason.value}]"
        for reason in DropReason
        if dropped.get(reason.value)
    ]


def stay_in_frame(intake: Intake, session: MapSession, sensor_frame: str = "") -> None:
    """Take poses in the map's frame alone, where it has one.

    In another frame the same numbers are other places.

    Args:
        intake: which has taken nothing yet.
        session: the map.
        sensor_frame: that its measurements had, where what comes goes into it.

    Raises:
        UsageError: the settings name another frame.
    """
    frame = session.about.get("frame")
    if not frame:
        return
    if intake.frame not in ("", frame):
        raise UsageError(
            f"the map is in frame {named(frame)}, and poses are to be read in frame {named(intake.frame)}; "
            f"write --set odometry_frame={frame}, or begin a new map"
        )
    intake.expect(frame, sensor_frame)


def score_on_tests(plans, parameters: Parameters, session: MapSession, trained: np.ndarray) -> dict:
    """Score a finished map on every measurement of the test bags.

    Args:
        plans: of the test bags.
        parameters: by which they are read.
        session: the map; it learns nothing from them. Its `about` says which bags are in it.
        trained: (N, 2) m, all positions it was trained at, for the scores by distance.

    Returns:
        The scores by name, how many measurements counted and were dropped, and warnings.

    Raises:
        UsageError: no measurement could be used.
    """
    intake = Intake(parameters.intake, judge=make_judge(parameters.map), as_received=True)
    stay_in_frame(intake, session)
    scores = PredictionScores(session, trained, session.settings.field_scale)

    started, follower = time.perf_counter(), ChangeFollower(session)
    for new_pass, samples in samples_of(plans, intake, "test"):
        scores.add(samples, new_pass)
        follower.add(samples, new_pass)

    changes = follower.changes()
    result = scores.result(changes) | {"changes_in_test": changes}
    if result["n"] == 0:
        raise UsageError(f"no measurement of --test could be used: {drop_reasons(intake)}")

    return {
        **{k: v for k, v in result.items() if k != "n"},
        "test_samples": result["n"],
        "test_dropped": intake.drops.as_dict(),
        "test_warnings": [
            *(f"--test: {text}" for text in intake.warnings),
            *no_test("--test", plans, intake.sketch, session.about),
        ],
        "test_seconds": time.perf_counter() - started,
    }


def write_results(
    output: Path, session: MapSession, suggestions, result: dict, started: float
) -> dict[str, Path]:
    """Write the checkpoint, the exports and report.json.

    Args:
        output: folder of the files.
        session: the map.
        suggestions: places to measure next.
        result: the report; `files` and `total_seconds` are added to it.
        started: perf_counter at the start of the command, s.

    Returns:
        Path of each file by name.

    Raises:
        UsageError: a file cannot be written.
    """
    before = map_in(output / "map.gpm")
    try:
        paths = {"checkpoint": save_checkpoint(output / "map.gpm", session.state_dict())}
        result["warnings"] += replaced(paths["checkpoint"], before, session.about)
        map_id = about_checkpoint(paths["checkpoint"])["id"]
        paths.update(export_all(session, output, suggestions=suggestions, map_id=map_id))

        # last, so that the report names all files and the whole time
        paths["report"] = output / "report.json"
        result["files"] = {name: str(path) for name, path in paths.items()}
        result["total_seconds"] = time.perf_counter() - started
        write_atomic(
            paths["report"], (json.dumps(result, indent=2, allow_nan=False) + "\n").encode()
        )
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error
    return paths


def summary(result: dict, session: MapSession, written: dict[str, Path]) -> str:
    """Return the report as text, with units.

    Args:
        result: what report.json states.
        session: the map.
        written: paths of the files.
    """
    scale, unit = session.settings.field_scale, unit_text(session.settings.field_unit)
    report = result["map"]
    received = result["received"].get(result["sensor"], 0)
    driven = f"{passes_text(result['passes'])} and {report['path_length']:.1f} m"
    seconds = f"mapped in {result['seconds']:.1f} s"
    new, all_of_it = result["samples"], report["samples"]
    # of a map that goes on, passes and path are those of the days before, too
    lines = (
        [f"{new} measurements of {received} in {driven}, {seconds}"]
        if new == all_of_it
        else [
            f"{new} measurements of {received}, {seconds}; the map has {all_of_it} in {driven} now"
        ]
    )
    if taken := result.get("as_saved"):
        values = ", ".join(f"{name} {value}" for name, value in taken.items())
        lines.append(f"the sensor's setup as in the saved map: {values}")

    if session.settings.device == AUTO:
        lines.append(f"device: auto is {report['device']}: {report['device_reason']}")

    lines += dropped_lines(result["dropped"])
    lines += [f"  warning: {text}" for text in result["warnings"]]

    if found := result.get("changes"):
        lines.append(f"field changed while mapping: {list_changes(found, unit)}")

    inputs = inputs_line(report)
    lines += [inputs] if inputs else []
    lines += [report["datum"]] if report["datum"] else []
    lines += ["hyper-parameters", f"  {'kernel':18} {report['kernel']:>8}"]
    metric = session.settings.metric  # of classes and counts the latent field has no unit
    for name, value in report["hyperparameters"].items():
        if name.endswith("stddev") and metric:
            lines.append(f"  {name:18} {decimals(value / scale):>8} {unit}")
        else:
            lines.append(f"  {name:18} {value:8.3f} {UNITS.get(name, '')}".rstrip())
    if metric:
        lines.append(
            f"  {'predictive noise':18} {decimals(result['noise_stddev'] / scale):>8} {unit}"
        )

    if result["rmse_ut"] is not None:
        error = unit if metric else "counts" if session.settings.likelihood == "poisson" else ""
        lines += [f"test                   n {f'RMSE {error}':>9}    NLPD   in 95 %"]
        rows = {
            "all": {**result, "n": result["test_samples"]},
            **{f"{b} m of path": result["bands"][b] for b in BANDS},
        }
        rows |= {label: result[key] for key, label in APART.items() if key in result}
        for name, row in rows.items():
            covered = "        –" if row["coverage"] is None else f"{row['coverage']:9.3f}"
            numbers = (
                f"{decimals(row['rmse_ut']):>9} {row['nlpd']:7.3f} {covered}" if row["n"] else ""
            )
            lines.append(f"  {name:16} {row['n']:6d} {numbers}")
        if result["changes_in_test"]:
            lines.append(
                f"  field changed on the test: {list_changes(result['changes_in_test'], error)}"
            )

    if result["suggestions"]:
        places = ", ".join(f"({s['x']:.2f}, {s['y']:.2f})" for s in result["suggestions"])
        lines.append(f"measure next at {places} m")
    lines.append("written: " + ", ".join(map(str, written.values())))
    return "\n".join(lines)

"""`gp-mapping check BAG [--against BAG]`: how far a map of this recording may be trusted.

It also lists what to mend on the robot first.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import torch

from gp_mapping.analysis.advice import Advice, advise
from gp_mapping.analysis.calibration import Calibration, calibration_report
from gp_mapping.analysis.components import component_scores, learned_sentences
from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.expected import expected_errors
from gp_mapping.analysis.pass_biases import any_differs, found_drift, pass_biases
from gp_mapping.analysis.refits import (
    changes_along,
    changes_of,
    fit,
    positions,
    quality,
    split,
    split_passes,
    ways_to_refit,
)
from gp_mapping.analysis.residuals import Residuals, residuals
from gp_mapping.analysis.sensor_faults import SensorFault, sensor_faults
from gp_mapping.analysis.unlike.parts import Unlike, unlike_parts
from gp_mapping.commands.check.crossings import crossings, lasting_text
from gp_mapping.commands.check.frames import frame_breaks
from gp_mapping.commands.check.picture import draw_check
from gp_mapping.commands.check.refits import refits
from gp_mapping.commands.check.text import text_of
from gp_mapping.commands.fleet.arguments import uses_workers
from gp_mapping.commands.output import folder_to_write
from gp_mapping.core.likelihoods.outcomes import make_judge
from gp_mapping.core.types import Samples
from gp_mapping.errors import UsageError
from gp_mapping.intake import Intake
from gp_mapping.intake.sensors.sketch import MEASURED
from gp_mapping.mapping.frames.search import Break
from gp_mapping.mapping.notes.fullness import fullness_notes
from gp_mapping.mapping.session import MapSession
from gp_mapping.recording.mapped import no_test, note_mapped, require_distinct
from gp_mapping.recording.replay import plan_bags, samples_of
from gp_mapping.settings.build import Parameters, parse_assignment, read_parameter_file
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.wording import unit_text

__all__ = ["Assessment", "assess", "calibrates", "parameters_of", "run", "topics_of"]

_STANDS = 0.1  # m across; a robot that stays within has not moved: poses tremble


class Assessment(NamedTuple):
    """What `check` found.

    Attributes:
        result: all numbers, plain.
        calibration: what the map has learned of the robot; None where it remembers no samples.
        found: residuals of the test.
        session: the map that was tested.
        passes: of the bags that map, before a part of them was kept to test.
        title: of the figure.
    """

    result: dict
    calibration: Calibration | None
    found: Residuals
    session: MapSession
    passes: list[Samples]
    title: str

    def draw(self):
        """Draw the figure."""
        result = self.result
        return draw_check(
            self.found,
            result["test"],
            self.session.path.numpy(),
            result["changes"] + result["changes_in_test"],
            result["unit"],
            self.title,
        )


def parameters_of(args: argparse.Namespace) -> dict:
    """Return the values of --params, then of --set, by name."""
    values = read_parameter_file(args.params) if args.params else {}
    return values | dict(map(parse_assignment, args.set))


def topics_of(args: argparse.Namespace) -> dict:
    """Return which topics to read, where a bag has several."""
    return {"measurement": args.field_topic, "pose": args.odometry_topic}


def _report_progress(text: str) -> None:
    """Print a line of progress."""
    print(f"check: {text}", file=sys.stderr, flush=True)


def _read(
    bags, parameters: Parameters, topics: dict, label: str, frame: str = ""
) -> tuple[list[Samples], Intake]:
    """Read some bags.

    Args:
        bags: paths.
        parameters: checked settings.
        topics: of topics_of.
        label: of the progress bar.
        frame: of the poses, whatever most of them are in; "" leaves it to them.

    Returns:
        Their passes, and the intake with its counts.

    Raises:
        UsageError: no measurement could be used.
    """
    plans = plan_bags(bags, parameters.intake, topics)
    require_distinct(plans)
    intake = Intake(parameters.intake, judge=make_judge(parameters.map), as_received=True)
    if frame:
        intake.expect(frame)
    passes = split_passes(samples_of(plans, intake, label))

    if not passes:
        why = "; ".join(intake.drops.explain() + intake.warnings) or "there was none"
        raise UsageError(f"no measurement of {', '.join(map(str, bags))} could be used: {why}")
    return passes, intake


def run(args: argparse.Namespace) -> int:
    """Map, test, calibrate, map again, report; returns the exit code."""
    parameters = Parameters.build(parameters_of(args))
    torch.set_num_threads(parameters.node.torch_threads)
    if uses_workers(args):
        from gp_mapping.commands.fleet.check import run as run_fleet

        return run_fleet(args, parameters)

    output = folder_to_write(args.output)
    assessment = assess(
        args.bags, args.against, parameters, topics_of(args), tries=not args.no_refits
    )
    written = _write(output, assessment.result, assessment.draw())
    print(
        json.dumps(assessment.result, allow_nan=False)
        if args.json
        else text_of(assessment.result, assessment.calibration) + f"\nwritten: {written}"
    )
    return 0


def calibrates(session: MapSession) -> bool:
    """Return whether the map remembers samples with velocities, as a calibration needs them."""
    return session.map.calibration_data() is not None


def assess(bags, against, parameters: Parameters, topics: dict, tries: bool = True) -> Assessment:
    """Map, test, calibrate, and map again without each correction.

    Args:
        bags: bags that map; without `against` the last part of them tests.
        against: bags that test; may be empty.
        parameters: checked settings.
        topics: of topics_of.
        tries: whether to map again, to find what each correction gains.

    Raises:
        UsageError: the bags do not suffice, or classes or counts are mapped.
    """
    if not parameters.map.metric:
        raise UsageError(
            f"likelihood {parameters.map.likelihood} maps classes or counts, which have no error in the "
            "field's unit to judge; test it with: gp-mapping map --test"
        )

    passes, intake = _read(bags, parameters, topics, "map")
    intakes, notes = [intake], []
    if against:
        train, (test, test_intake) = (
            passes,
            _read(against, parameters, topics, "test", intake.frame),
        )
        intakes.append(test_intake)
        plans = [plan_bags(b, parameters.intake, topics) for b in (bags, against)]
        mapped = {MEASURED: intake.sketch.as_text()}
        note_mapped(plans[0], mapped)
        notes = no_test("--against", plans[1], test_intake.sketch, mapped)
        how = f"maps {', '.join(map(str, bags))}, tests on {', '.join(map(str, against))}"
    else:
        train, test, how = split(passes, intake.drops.explain() + intake.warnings)

    _report_progress(f"{sum(map(len, train))} measurements map, {sum(map(len, test))} test")
    began = time.perf_counter()
    session = fit(train, parameters.map)
    seconds = time.perf_counter() - began
    if not session.map.started:
        raise UsageError(
            "the part that maps is too short for a single cell; give a longer recording"
        )

    test_residuals = residuals(session, test, positions(train))
    # what the map knows of the robot itself: delay, lever arm, body-fixed field
    calibration = None
    if calibrates(session):
        try:
            calibration = calibration_report(session.map, session.noise_variance)
        except RuntimeError as error:
            # why there are too few samples: a robot that stands, poses in the wrong unit
            raise UsageError("; ".join([str(error), *intake.warnings])) from error

    # the time of the first map tells whether processes side by side are worth their start
    ways = ways_to_refit(parameters.map, _biased(session)) if tries else {}
    tried = refits(
        train,
        test,
        ways,
        seconds,
        lambda name: _report_progress("maps again, " + name.replace("_", " ")),
    )

    together = [*passes, *test] if against else passes
    result = _result(
        session,
        test_residuals,
        expected_errors(session, test),
        calibration,
        tried,
        intakes,
        changes_along(session, test),
        unlike_parts(session, test),
        parameters,
        sensor_faults(passes, session.settings.field_scale, unit_text(session.settings.field_unit)),
        frame_breaks(session, together),
        notes,
    )
    result |= {"components": component_scores(session, test_residuals, test, positions(train))}
    result |= {
        "how": how,
        "unseen": lasting_text(crossings(train, session.map.hyperparameters()["lengthscale"])),
        "bags": [str(b) for b in bags],
        "against": [str(b) for b in against],
        "mapped": sum(map(len, train)),
        "tested": sum(map(len, test)),
    }

    tested = result["test"]
    title = (
        f"RMSE {decimals(tested['rmse_ut'], 2)} {result['unit']}, NLPD {tested['nlpd']:.2f}, 95 % intervals hold "
        f"{100 * tested['coverage']:.0f} %: {how}"
    )
    return Assessment(result, calibration, test_residuals, session, passes, title)


def _biased(session: MapSession) -> bool:
    """Return whether the sensor drifts, or constants differ by more than their uncertainty."""
    return found_drift(session) is not None or any_differs(
        pass_biases(session), session.noise_variance**0.5 / session.settings.field_scale
    )


def _result(
    session: MapSession,
    test_residuals: Residuals,
    expected: dict,
    c: Calibration | None,
    tried: dict,
    intakes: list[Intake],
    later: list[dict],
    unlike: list[Unlike],
    parameters: Parameters,
    faults: list[SensorFault],
    frames: list[Break],
    notes: list[str],
) -> dict:
    """Return the report in plain numbers.

    Args:
        session: the map that was tested.
        test_residuals: of the test.
        expected: what the map expects of them (`expected_errors`).
        c: calibration of the robot, or None.
        tried: RMSE of the maps without each correction, by name.
        intakes: of the bags that map, and of those that test.
        later: changes of the field that the test found.
        unlike: what of the test is unlike the map.
        parameters: checked settings.
        faults: of the sensor itself.
        frames: where passes of all bags are in another frame.
        notes: more warnings.
    """
    report, changes = session.report(), changes_of(session)
    tested = quality(test_residuals, later) | {"expected": expected}
    biases = pass_biases(session)

    drops: dict[str, int] = {}
    for intake in intakes:
        for name, count in intake.drops.as_dict().items():
            drops[name] = drops.get(name, 0) + count
    # each warning once, in the order in which they came
    said = session.gathered.frames.notes() if frames else []
    warnings = list(
        dict.fromkeys(
            [
                *(w for intake in intakes for w in intake.warnings),
                *(w for w in session.warnings if w not in said),
                *fullness_notes(session.report()),
                *notes,
            ]
        )
    )

    unit, sensor = unit_text(session.settings.field_unit), parameters.intake.sensor
    sensor_name = "magnetometer" if sensor == "magnetic_field" else "sensor"
    context = {
        "unit": unit,
        "sensor": sensor_name,
        "sensor_faults": faults,
        "frames": frames,
        "gross": report["gross_errors"],
        "measurements": report["samples"],
        "dropped": sum(intake.drops.measurements for intake in intakes),
        "changes": changes + later,
        "explained": intakes[0].drops.explain() + warnings,
        "biases": biases,
        "drift": found_drift(session),
        "turning": session.drift.turning_notes(),
        "place": session.drift.place_notes(),
        "noise": report["noise_stddev"] / session.settings.field_scale,
        "scale": session.settings.field_scale,
        "unlike": unlike,
        "standing": _stands(session),
    }

    mend: list[Advice] = advise(c, tested, tried, context)
    return {
        "unit": unit,
        "sensor": sensor_name,
        "test": tested,
        "calibration": None if c is None else c.as_dict(),
        "plain": learned_sentences(session, sensor_name, unit)
        if c is None
        else c.sentences(sensor_name, unit),
        "refits": tried,
        "gross_errors": report["gross_errors"],
        "weakened_cells": report["weakened_cells"],
        "change_count": report["changes"],
        "changes": changes,
        "changes_in_test": later,
        "dropped": drops,
        "warnings": warnings,
        "explained": context["explained"],
        "biases": biases,
        "drift": context["drift"],
        "unlike": [part._asdict() for part in unlike],
        "bias_stddev": report["hyperparameters"].get("bias_stddev", 0.0)
        / session.settings.field_scale,
        "path_length": report["path_length"],
        "passes": report["passes"],
        "mend": [{"text": a.text, "gain": a.gain} for a in mend],
    }


def _stands(session: MapSession) -> bool:
    """Return whether all of a map was measured in one place."""
    path = session.path
    return float((path.amax(0) - path.amin(0)).max()) <= _STANDS


def _write(output: Path, result: dict, figure) -> str:
    """Write report.json and check.png; returns their paths as text."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=120)
        write_atomic(output / "check.png", buffer.getvalue())
        write_atomic(
            output / "report.json", (json.dumps(result, indent=2, allow_nan=False) + "\n").encode()
        )
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error
    return f"{output / 'report.json'}, {output / 'check.png'}"

"""`gp-mapping calibrate BAG [--output FILE]`: the iron of a magnetometer, as parameters."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from gp_mapping.commands.output import file_to_write
from gp_mapping.errors import UsageError
from gp_mapping.intake.sensors.iron import Calibration, CalibrationError, calibrate
from gp_mapping.recording.bag import MAGNETIC_FIELD, Loss, read_messages
from gp_mapping.store.atomic import write_atomic

__all__ = ["run"]

_VAGUE = 0.05  # of the field: hard iron that is known less well


def run(args: argparse.Namespace) -> int:
    """Read the bags, fit the iron, write the parameters and a summary; returns the exit code.

    Raises:
        UsageError: no message can be read, the iron cannot be told from these, or the file cannot
            be written.
    """
    output = file_to_write(args.output) if args.output else None
    left_out, first = 0, ""

    def leave_out(_, why: str) -> None:
        """Count a message that cannot be read; keep the first reason."""
        nonlocal left_out, first
        left_out, first = left_out + 1, first or why

    def say_lost(loss: Loss) -> None:
        """Say what could not be read of a bag."""
        print(f"warning: {loss.path}: {loss.words}", file=sys.stderr)

    topics = {MAGNETIC_FIELD: args.field_topic}
    readings = [
        (v.x, v.y, v.z)
        for _, _, message in read_messages(args.bags, topics, leave_out, say_lost)
        for v in (message.magnetic_field,)
    ]

    if left_out:
        print(f"warning: messages left out: {left_out}, the first because {first}", file=sys.stderr)
    if not readings:
        raise UsageError(
            f"{', '.join(map(str, args.bags))}: no message can be read; the bag is damaged, or recorded "
            "in another format than CDR"
        )

    try:
        fit = calibrate(np.array(readings))
    except CalibrationError as error:
        raise UsageError(f"{', '.join(map(str, args.bags))}: {error}") from error

    text = _file(fit, args.bags)

    if output is None:
        print(text, end="")
        # stdout holds the parameter file alone, so that it can be redirected
        print(_summary(fit), file=sys.stderr)
        return 0
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, text.encode())
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error
    print(_summary(fit) + f"\nwritten: {output}; use it with --params {output}")
    return 0


def _number(value: float) -> str:
    """Format a float so that ROS and PyYAML both read it back as one: with a decimal point."""
    text = f"{value:.6e}" if abs(value) < 1e-3 else f"{value:.8g}"
    return text if "." in text else f"{text}.0"


def _summary(fit: Calibration) -> str:
    """Return what was found, in µT and %, and what these readings leave unknown."""
    hard, known = (
        ", ".join(f"{1e6 * v:.2f}" for v in each) for each in (fit.hard, fit.hard_stddev)
    )
    what = "of its part in the plane" if fit.planar else "of the field"
    lines = [
        f"{fit.readings} readings ({fit.used} after thinning), {100 * fit.turned:.0f} % of "
        f"{'the circle' if fit.planar else 'all directions'} seen",
        f"hard iron ({hard}) ± ({known}) µT",
        "soft iron "
        + "\n          ".join(" ".join(f"{v:8.4f}" for v in row) for row in fit.soft)
        + f"  ± {fit.soft_stddev.max():.4f} at the most",
        f"strength {what} {1e6 * fit.field:.2f} µT; it varied by {100 * fit.before:.1f} % and varies by "
        f"{100 * fit.after:.1f} % now",
    ]

    lines += _limits(fit)
    if fit.after > 0.05:
        lines.append(
            "warning: more than 5 % is left: was the robot near steel, or did it drive while it turned?"
        )
    return "\n".join(lines)


def _limits(fit: Calibration) -> list[str]:
    """Return lines that say what these readings cannot determine."""
    if not fit.planar:
        vague = bool(fit.hard_stddev.max() > _VAGUE * fit.field)
        return [
            "not observable, and left alone: a common factor of all axes, and a rotation of the sensor",
            *["a further tilt while it turns would tell the hard iron more exactly"] * vague,
        ]
    axis = ", ".join(f"{v:.2f}" for v in fit.normal)
    return [
        f"planar: the sensor turned about one axis only, ({axis}) in its own axes. Found is what lies across that "
        "axis.",
        "not observable, and left alone: the hard iron along the axis, the soft iron that involves it, a "
        "common factor;",
        "  a norm keeps the unknown offset along the axis. Tilt the robot by 0.1 rad or more while "
        "it turns to find the rest.",
    ]


def _file(fit: Calibration, bags) -> str:
    """Return the parameter file (ROS 2 YAML), with the summary as its comments."""
    lines = [
        f"# Hard and soft iron, by `gp-mapping calibrate {' '.join(Path(b).name for b in bags)}`."
    ]
    lines += [f"# {line}" for line in _summary(fit).splitlines()]

    lines += ["/**:", "  ros__parameters:"]
    lines += [f"    hard_iron_{a}: {_number(v)}" for a, v in zip("xyz", fit.hard)]
    lines += [
        f"    soft_iron_{a}{b}: {_number(fit.soft[i, j])}"
        for i, a in enumerate("xyz")
        for j, b in enumerate("xyz")
    ]
    return "\n".join(lines) + "\n"

"""The table of a fleet, and which robot to mend: one whose figures lie far from the others'.

    far:  |v − median| > 5 · max(1.4826 MAD, own standard deviation), and more than what would
        matter

v is a figure of one robot, the median that over all robots; of noise and scatter the logarithms are
compared, since they are scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from gp_mapping.fleet.cells import BagReport
from gp_mapping.fleet.held_out import RobotComparison
from gp_mapping.fleet.robot import Robot

__all__ = ["FIGURES", "Figure", "find_outliers", "row_of"]

# MAD to standard deviation; robust standard deviations that are far; robots that can be compared
_NORMAL, _FAR, _FEWEST = 1.4826, 5.0, 3


@dataclass(frozen=True)
class Figure:
    """One number of each robot.

    Attributes:
        name: in a row; its standard deviation, where there is one, is name_stddev.
        head: of a column.
        unit: '' none, 'field': the field's.
        matters: difference below which nothing needs mending; as a fraction of the fleet's scatter
            where unit is 'field', as a factor where it is a scale.
        scale: whether logarithms are compared.
        more: whether only a larger value is wrong.
        said: sentence with a value and the fleet's usual one.
        digits: format of the value.
    """

    name: str
    head: str
    unit: str
    matters: float
    scale: bool
    more: bool
    said: str
    digits: str


FIGURES = (
    Figure(
        "delay",
        "delay",
        "s",
        0.03,
        False,
        False,
        "its sensor's stamps are {value} s later than the pose's, the fleet's {usual} s: synchronise its clocks",
        "+.3f",
    ),
    Figure(
        "gain",
        "gain",
        "",
        0.03,
        False,
        False,
        "it shows {value} of the field's differences that the others show, the fleet {usual}: the scale of its "
        "sensor is wrong, or one of its axes (soft iron, a dead axis)",
        ".3f",
    ),
    Figure(
        "bias",
        "bias",
        "field",
        2.0,
        False,
        False,
        "it reads {value} beside the map of the others, the fleet {usual}: calibrate its sensor (hard iron), and "
        "look at what it carries",
        "+.2f",
    ),
    Figure(
        "noise",
        "noise",
        "field",
        1.5,
        True,
        True,
        "a new measurement scatters by {value} about its own map, the fleet's by {usual}: look at its sensor, "
        "cable, and motors near it",
        ".2f",
    ),
    Figure(
        "white",
        "white",
        "field",
        1.5,
        True,
        True,
        "one measurement differs from those beside it by {value} of white noise, the fleet's by {usual}: look at "
        "its sensor, cable, and motors near it",
        ".2f",
    ),
    Figure(
        "scatter",
        "scatter",
        "field",
        1.5,
        True,
        True,
        "its cells scatter by {value} about the map of the others, the fleet's by {usual}: its poses, clocks or "
        "sensor are worse than theirs",
        ".2f",
    ),
    Figure(
        "turning",
        "turns",
        "field",
        2.0,
        False,
        True,
        "{value} turn with it, the fleet's usual is {usual}: calibrate (hard iron), or mount the sensor further "
        "from motors and steel",
        ".2f",
    ),
    Figure(
        "gross",
        "gross",
        "%",
        1.0,
        False,
        True,
        "{value} % of its measurements are gross errors, the fleet's usual is {usual} %: look for a loose cable, a "
        "switching motor",
        ".2f",
    ),
    Figure(
        "dropped",
        "dropped",
        "%",
        2.0,
        False,
        True,
        "{value} % of its measurements could not be used, the fleet's usual is {usual} %: report.json says why",
        ".1f",
    ),
)


def row_of(report: BagReport, robot: Robot, found: RobotComparison | None, scale: float) -> dict:
    """A robot's row of plain numbers, in the display unit; a value is None where it is not known.

    Args:
        report: of its bag.
        robot: of its calibration.
        found: how it compares with the other robots; None where they know too few of its places.
        scale: SI value of the display unit.
    """
    measured = report.samples + report.dropped_measurements
    row = {
        "bag": report.bag,
        "measurements": report.samples,
        "cells": report.cells,
        "passes": report.passes,
        "path_length": report.path_length,
        "delay": robot.offset if math.isfinite(robot.offset_stddev) else None,
        "delay_stddev": robot.offset_stddev if math.isfinite(robot.offset_stddev) else None,
        "noise": robot.noise / scale,
        "white": robot.white / scale or None,
        "turning": robot.turning / scale,
        "gross": 100.0 * report.gross / max(1, report.samples),
        "dropped": 100.0 * report.dropped_measurements / max(1, measured),
        "faults": report.faults,
        "compared_cells": 0 if found is None else found.count,
    }

    names = ("bias", "bias_stddev", "scatter", "rmse")
    row |= {name: None if found is None else getattr(found, name) / scale for name in names}

    return row | {
        name: None if found is None else getattr(found, name)
        for name in ("gain", "gain_stddev", "inside")
    }


def medians_of(rows: list[dict]) -> dict[str, float | None]:
    """The fleet's median of each figure."""
    return {
        f.name: median(known)
        if (known := [r[f.name] for r in rows if r[f.name] is not None])
        else None
        for f in FIGURES
    }


def find_outliers(rows: list[dict], unit: str) -> list[dict]:
    """What lies far from the others, the farthest first.

    Args:
        rows: of all robots.
        unit: of the field, for sentences.

    Returns:
        bag, figure, value, usual, far (robust standard deviations; None for a fault) and text (a
        sentence) of each finding.
    """
    findings = [
        {
            "bag": row["bag"],
            "figure": "faults",
            "value": None,
            "usual": None,
            "far": math.inf,
            "text": text,
        }
        for row in rows
        for text in row["faults"]
    ]

    usual = medians_of(rows)
    for figure in FIGURES:
        known = [row for row in rows if row[figure.name] is not None]
        if len(known) >= _FEWEST:
            findings += _far(figure, known, usual, unit)

    # a wrong scale shows as a bias as well
    scaled = {finding["bag"] for finding in findings if finding["figure"] == "gain"}
    findings = [
        finding
        for finding in findings
        if finding["figure"] != "bias" or finding["bag"] not in scaled
    ]
    findings.sort(key=lambda finding: -finding["far"])
    return [
        finding | {"far": None if math.isinf(finding["far"]) else finding["far"]}
        for finding in findings
    ]


def _far(figure: Figure, rows: list[dict], usual: dict, unit: str) -> list[dict]:
    """Findings of one figure.

    Args:
        figure: the figure.
        rows: of at least _FEWEST robots that have it.
        usual: the fleet's medians.
        unit: of the field, for sentences.
    """

    def compared(value: float) -> float:
        """The value as it is compared."""
        return math.log(max(value, 1e-12)) if figure.scale else value

    values = [compared(row[figure.name]) for row in rows]
    centre = median(values)
    spread = _NORMAL * median(abs(v - centre) for v in values)
    least = math.log(figure.matters) if figure.scale else figure.matters
    if figure.unit == "field" and not figure.scale:
        least *= usual["scatter"] or usual["noise"]

    findings = []

    for row, value in zip(rows, values):
        own = 0.0 if figure.scale else row.get(f"{figure.name}_stddev") or 0.0
        excess = value - centre if figure.more else abs(value - centre)
        # a difference that would not matter is not far, however alike the others are
        size = max(spread, own, least / _FAR)
        if excess > _FAR * size:
            report = {
                name: f"{v:{figure.digits}}{f' {unit}' if figure.unit == 'field' else ''}"
                for name, v in (("value", row[figure.name]), ("usual", usual[figure.name]))
            }
            findings.append(
                {
                    "bag": row["bag"],
                    "figure": figure.name,
                    "value": row[figure.name],
                    "usual": usual[figure.name],
                    "far": excess / size,
                    "text": figure.said.format(**report),
                }
            )
    return findings

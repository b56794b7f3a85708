"""The table of a fleet: the figures of each robot, in plain numbers, and what is usual."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from gp_mapping.fleet.cells import BagReport
from gp_mapping.fleet.comparison.held_out import RobotComparison
from gp_mapping.fleet.robot import Robot

__all__ = ["COMPARED", "FIGURES", "Figure", "about_comparison", "marked_of", "medians_of", "row_of"]

COMPARED = (
    "gain",
    "bias",
    "scatter",
)  # with the map of the others, in which a wrong robot shows too
_NAMED = 10  # robots that are named in one sentence


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
        "scale",
        "",
        0.03,
        False,
        False,
        "it shows {value} of the field's differences that the others show, the fleet {usual}, and neither one scale "
        "nor a constant explains what it reads: look at its axes (soft iron, a dead axis) and poses",
        ".3f",
    ),
    Figure(
        "bias",
        "bias",
        "field",
        2.0,
        False,
        False,
        "it reads {value} relative to the map of the others, the fleet {usual}: calibrate its sensor (hard iron), and "
        "look at what it carries",
        "+.2f",
    ),
    Figure(
        "noise",
        "noise",
        "field",
        2.0,  # from drive to drive, what a map does not know of the field makes half of that
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
        "one measurement differs from its neighbours by {value} of white noise, the fleet's by {usual}: look at "
        "its sensor, cable, and motors near it",
        ".2f",
    ),
    Figure(
        "scatter",
        "scatter",
        "field",
        2.0,
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

    `left_out` says that its cells are not in the map with which the others are compared.

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
        "left_out": False,
        "compared_cells": 0 if found is None else found.count,
    }

    names = ("bias", "bias_stddev", "level", "field_stddev", "scatter", "rmse")
    row |= {name: None if found is None else getattr(found, name) / scale for name in names}

    return row | {
        name: None if found is None else getattr(found, name)
        for name in ("gain", "gain_stddev", "inside")
    }


def medians_of(rows: list[dict]) -> dict[str, float | None]:
    """The median of each figure over the robots that are not left out."""
    usual: dict[str, float | None] = {}
    for figure in FIGURES:
        known = [r[figure.name] for r in rows if r[figure.name] is not None and not r["left_out"]]
        usual[figure.name] = median(known) if known else None
    return usual


def marked_of(mend: list[dict]) -> set[tuple[str, str]]:
    """Return the (bag, figure) that get an asterisk; a wrong scale is marked at its own figure."""
    return {(one["bag"], "gain" if one["figure"] == "scale" else one["figure"]) for one in mend}


def about_comparison(table: dict) -> list[str]:
    """Return what the comparison cannot tell, and without whose cells it was made.

    Args:
        table: `table` and `notes`.
    """
    without = [row["bag"] for row in table["table"] if row["left_out"]]
    if not without:
        return list(table["notes"])
    more = f" and {len(without) - _NAMED} more" if len(without) > _NAMED else ""
    return [
        *table["notes"],
        f"compared with the map of the others without the cells of {', '.join(without[:_NAMED])}{more}",
    ]

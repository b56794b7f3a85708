"""Which robot to mend: one whose figures lie far from the others'.

    far:  |v − median| > 5 s,   s = max(1.4826 k MAD, own standard deviation, least / 5)

v is a figure of one robot, median and MAD those of the others that are not left out, k makes the
MAD of few of them unbiased, least is the difference that would matter. Of noise and scatter the
logarithms are compared, since they are scales. Bias and gain are judged together (scales.py).

Reference:
    Croux and Rousseeuw, Time-efficient algorithms for two highly robust estimators of scale,
    COMPSTAT 1992 (k).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from gp_mapping.fleet.comparison.scales import Explanation, explain, explanation_text
from gp_mapping.fleet.comparison.table import COMPARED, FIGURES, Figure, medians_of

__all__ = [
    "BY_MAP",
    "FAR",
    "MIN_ROBOTS",
    "find_outliers",
    "relevant_difference",
    "robots_to_leave_out",
    "size_of",
    "wide_figures",
]

FAR = 5.0  # robust standard deviations
MIN_ROBOTS = 4  # robots among which one can be told wrong that disagrees with the others
_NORMAL = 1.4826  # MAD to standard deviation
_OF_FEW = (1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)  # k by count
_FEW = 50  # robots, of which one changes the median of all
_WIDE = 3.0  # times what matters: a spread in which hardly anybody stands out
_TINY = 1e-12  # of which there is a logarithm
_RANGE = 4.0  # standard deviations of a field that are about its range
_FEWEST = 3  # robots with a figure of their own
_REMAINING = 3  # robots that stay in the map, at least
_LEVEL = ("gain", "bias", "scale")  # of which a robot has one finding
BY_MAP = (*_LEVEL, "scatter")  # findings by comparison with the map of the others


@dataclass(frozen=True)
class _Usual:
    """A figure among the robots that are not left out, as it is compared.

    Attributes:
        centre: median.
        spread: 1.4826 k MAD.
        least: difference that matters.
        floor: of the values; a robot that is better than that is not better.
    """

    centre: float
    spread: float
    least: float
    floor: float


def find_outliers(rows: list[dict], unit: str) -> list[dict]:
    """What lies far from the others, the farthest first.

    Args:
        rows: of all robots; those that are `left_out` do not decide what is usual.
        unit: of the field, for sentences.

    Returns:
        bag, figure, value, usual, far (robust standard deviations; None for a fault) and text (a
        sentence) of each finding.
    """
    findings = [_finding(row, "faults", math.inf, text) for row in rows for text in row["faults"]]

    usual = medians_of(rows)
    comparable = [
        figure
        for figure in FIGURES
        if sum(row[figure.name] is not None for row in rows)
        >= (MIN_ROBOTS if figure.name in COMPARED else _FEWEST)
    ]
    fleet, inside = _usual_of_all(comparable, rows), sum(not row["left_out"] for row in rows)
    for row in rows:
        # among few, a wrong robot would hide behind the spread that it makes itself; of three
        # others the spread is hardly known
        known = fleet
        if len(rows) <= _FEW and inside - (not row["left_out"]) >= MIN_ROBOTS:
            known = _usual_of_all(comparable, [other for other in rows if other is not row])
        findings += _of_robot(row, known, usual, unit)

    findings.sort(key=lambda finding: -finding["far"])
    return [
        finding | {"far": None if math.isinf(finding["far"]) else finding["far"]}
        for finding in findings
    ]


def robots_to_leave_out(rows: list[dict], findings: list[dict]) -> set[str]:
    """Bags that are to leave the map with which all are compared, as far as a majority stays.

    Those that lie farthest off, down to half as far: a robot that is nearer may only seem far since
    the map has a wrong one in it.

    Args:
        rows: of all robots.
        findings: of these rows.
    """
    inside = {row["bag"] for row in rows if row["bias"] is not None and not row["left_out"]}
    far: dict[str, float] = {}
    for finding in findings:
        if finding["figure"] in BY_MAP and finding["bag"] in inside:
            far[finding["bag"]] = max(far.get(finding["bag"], 0.0), finding["far"])

    compared = sum(row["bias"] is not None for row in rows)
    most = len(inside) - max(_REMAINING, compared // 2 + 1)
    order = sorted(far, key=lambda bag: -far[bag])[: max(0, most)]
    return {bag for bag in order if far[bag] >= 0.5 * far[order[0]]}


def wide_figures(rows: list[dict]) -> dict[str, float]:
    """Spread of gain and bias, where it hides a robot that differs by far more than matters.

    Args:
        rows: of all robots.

    Returns:
        Robust standard deviation over the robots that are not left out, by name of the figure.
    """
    figures = [figure for figure in FIGURES if figure.name in ("gain", "bias")]
    fleet = _usual_of_all(figures, rows)
    return {name: one.spread for name, one in fleet.items() if one.spread > _WIDE * one.least}


def size_of(figure: Figure, row: dict, spread: float, least: float) -> float:
    """One standard deviation of a robot's figure; a difference that would not matter is not far.

    Args:
        figure: the figure.
        row: of the robot.
        spread: 1.4826 k MAD of the fleet.
        least: difference that matters.
    """
    own = 0.0 if figure.scale else row.get(f"{figure.name}_stddev") or 0.0
    return max(spread, own, least / FAR)


def relevant_difference(figure: Figure, rows: list[dict]) -> float:
    """The difference of a figure that matters, as it is compared.

    What adds to the field matters from the same fraction of its range on as a wrong gain does.

    Args:
        figure: the figure.
        rows: of all robots.
    """
    if figure.scale:
        return math.log(figure.matters)
    if figure.unit != "field":
        return figure.matters

    usual = medians_of(rows)
    return max(
        figure.matters * (usual["scatter"] or usual["noise"]),
        _relevant_gain() * _RANGE * _field_stddev(rows),
    )


def _relevant_gain() -> float:
    """Difference of a gain that matters."""
    return next(figure.matters for figure in FIGURES if figure.name == "gain")


def _field_stddev(rows: list[dict]) -> float:
    """Median of the field's standard deviation over the ground of each robot; 0: not known."""
    spreads = [row["field_stddev"] for row in rows if row["field_stddev"] is not None]
    return median(spreads) if spreads else 0.0


def _finding(row: dict, figure: str, far: float, text: str, usual: float | None = None) -> dict:
    """A finding, in plain numbers."""
    value = row.get(figure)
    return {
        "bag": row["bag"],
        "figure": figure,
        "value": None if figure == "faults" else value,
        "usual": usual,
        "far": far,
        "text": text,
    }


def _compared(figure: Figure, value: float, floor: float) -> float:
    """A value as it is compared; of a scale the logarithm, from a floor on."""
    return math.log(max(value, floor)) if figure.scale else value


def _usual_of_all(figures: list[Figure], rows: list[dict]) -> dict[str, _Usual]:
    """Of each figure that two robots and more have that are not left out, what is usual.

    Args:
        figures: the figures.
        rows: of robots.
    """
    inside = [row for row in rows if not row["left_out"]]
    return {
        figure.name: _usual_of(figure, inside)
        for figure in figures
        if sum(row[figure.name] is not None for row in inside) > 1
    }


def _usual_of(figure: Figure, rows: list[dict]) -> _Usual:
    """A figure among robots.

    Args:
        figure: the figure.
        rows: of robots that are not left out.
    """
    # less than the usual noise about a map, or than the errors of a gain that does not matter, is
    # no difference to the others
    floor = _TINY
    if figure.name == "scatter":
        floor = max(floor, medians_of(rows)["noise"], _relevant_gain() * _field_stddev(rows))
    values = [
        _compared(figure, row[figure.name], floor) for row in rows if row[figure.name] is not None
    ]
    centre = median(values)
    few = _OF_FEW[len(values)] if len(values) < len(_OF_FEW) else len(values) / (len(values) - 0.8)
    spread = _NORMAL * few * median(abs(value - centre) for value in values)
    return _Usual(centre, spread, relevant_difference(figure, rows), floor)


def _of_robot(row: dict, known: dict[str, _Usual], usual: dict, unit: str) -> list[dict]:
    """Findings of one robot.

    Args:
        row: of the robot.
        known: figures that can be compared.
        usual: the fleet's medians.
        unit: of the field, for sentences.
    """
    findings = []
    far: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for figure in FIGURES:
        if figure.name not in known or row[figure.name] is None:
            continue
        fleet = known[figure.name]
        away = _compared(figure, row[figure.name], fleet.floor) - fleet.centre
        sizes[figure.name] = size_of(figure, row, fleet.spread, fleet.least)
        far[figure.name] = (away if figure.more else abs(away)) / sizes[figure.name]
        if far[figure.name] > FAR and figure.name not in _LEVEL:
            said = figure.said.format(**_texts(figure, row, usual, unit))
            found = _finding(row, figure.name, far[figure.name], said, usual[figure.name])
            findings.append(found)

    if "bias" in far and "gain" in far:
        why = explain(row, known["bias"].centre, known["gain"].centre, sizes)
        of_scale = abs(why.scale - 1.0) / max(why.stddev, known["gain"].least / FAR)
        farthest = max(far["bias"], far["gain"], of_scale)
        if farthest > FAR:
            findings.append(_of_level(row, why, farthest, usual, unit))
    return findings


def _of_level(row: dict, why: Explanation, far: float, usual: dict, unit: str) -> dict:
    """The one finding of a robot that reads another level, or other differences.

    Args:
        row: of the robot.
        why: what explains it.
        far: robust standard deviations.
        usual: the fleet's medians.
        unit: of the field.
    """
    figure = next(f for f in FIGURES if f.name == ("gain" if why.kind == "gain" else "bias"))
    if why.kind in ("gain", "bias"):
        said = figure.said.format(**_texts(figure, row, usual, unit))
    else:
        said = explanation_text(why, _texts(figure, row, usual, unit))

    name = "scale" if why.kind == "scale" else figure.name
    found = _finding(row, name, far, said, usual.get(name, usual["gain"]))
    return found | ({"value": why.scale} if name == "scale" else {})


def _texts(figure: Figure, row: dict, usual: dict, unit: str) -> dict[str, str]:
    """`value` and `usual` of a figure, for a sentence.

    Args:
        figure: the figure.
        row: of the robot.
        usual: the fleet's medians.
        unit: of the field.
    """
    after = f" {unit}" if figure.unit == "field" else ""
    return {
        name: f"{value:{figure.digits}}{after}"
        for name, value in (("value", row[figure.name]), ("usual", usual[figure.name]))
    }

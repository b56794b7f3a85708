"""The run report as one HTML page, without scripts and network; its figures are inside."""

from __future__ import annotations

import base64
import math
from dataclasses import fields
from html import escape

from gp_mapping.analysis.changed import APART
from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.pass_biases import biases_text
from gp_mapping.analysis.refits import REFITS
from gp_mapping.commands.report.style import STYLE
from gp_mapping.fleet.comparison.table import FIGURES, Figure, about_comparison, marked_of
from gp_mapping.intake import DropReason
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.wording import passes_text

__all__ = ["page"]

_LEVELS = ("50", "80", "95", "99")
_MEANING = {
    "lengthscale": "over how many metres the field changes",
    "signal_stddev": "how much it varies about its mean",
    "noise_stddev": "how much two passes of one place differ",
    "constant_stddev": "prior of the mean itself",
    "bias_stddev": "how much the constants of passes differ",
    "heading_stddev": "prior of the part that turns with the robot; not in the map",
    "time_offset": "how much later the sensor's stamps are than the pose's, as the map applies it",
    "lever_arm_along": "the sensor's place ahead of the pose",
    "lever_arm_across": "the sensor's place to its left",
}
_UNITS = {"lengthscale": "m", "time_offset": "s", "lever_arm_along": "m", "lever_arm_across": "m"}


def page(facts: dict, figures: dict[str, bytes]) -> str:
    """Return the page.

    Args:
        facts: of report.command; numbers and plain text, which are escaped here.
        figures: name -> PNG: `map` always, `quality` where something was tested.
    """
    sections = [
        ("Map", _map(facts, figures)),
        ("The fleet", _fleet(facts)),
        ("How far to trust it", _trust(facts, figures)),
        ("What to mend first", _repairs(facts)),
        ("What the map has learned of the robot", _robot(facts)),
        ("Hyper-parameters", _hyper(facts)),
        ("Measurements that were left out", _drops(facts)),
        ("Changes of the field", _changes(facts)),
        ("Settings", _settings(facts)),
    ]
    # a section without content is left out, also of the links
    sections = [(title, body) for title, body in sections if body]
    links = "".join(
        f'<li><a href="#{_slug(title)}">{escape(title)}</a></li>' for title, _ in sections
    )
    parts = [
        f'<section id="{_slug(title)}"><h2>{escape(title)}</h2>\n{body}\n</section>'
        for title, body in sections
    ]

    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(facts['title'])}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n"
        f"<h1>{escape(facts['title'])}</h1>\n{_headline(facts)}\n</header>\n<nav><ul>{links}</ul></nav>\n<main>\n"
        + "\n".join(parts)
        + f"\n</main>\n<footer><p>gp_mapping {escape(facts['version'])}, model "
        f"<code>{escape(facts['model'])}</code>, from {_list(facts['sources'])}</p></footer>\n</body>\n</html>\n"
    )


def _slug(title: str) -> str:
    """Return the anchor of a heading."""
    return title.lower().replace(" ", "-")


def _list(words) -> str:
    """Return words as code, separated by commas."""
    return ", ".join(f"<code>{escape(str(word))}</code>" for word in words)


def _number(value, digits: int = 3) -> str:
    """Return a number as text; a dash for None, NaN and infinity."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _table(head, rows, kind: str = "") -> str:
    """Return a table.

    Args:
        head: names of the columns.
        rows: of text or numbers; the first cell names its row.
        kind: class of the table; "words" for one that holds sentences.
    """
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{escape(str(cell))}</th>'
            if i == 0
            else f"<td>{escape(str(cell))}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    # chr(34) is a double quote, which these nested f-strings cannot hold
    return (
        f"<table{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>\n<thead><tr>{top}</tr></thead>\n"
        f"<tbody>\n{body}</tbody>\n</table>"
    )


def _points(lines, ordered: bool = False) -> str:
    """Return lines as a list."""
    tag = "ol" if ordered else "ul"
    return f"<{tag}>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + f"</{tag}>"


def _figure(data: bytes, alt: str, caption: str) -> str:
    """Return a PNG inside the page, as a data URL."""
    return (
        f'<figure><img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _headline(facts: dict) -> str:
    """Return the sentence below the title: how much was measured, and the RMSE."""
    map_report, test, unit = facts["map"], facts["test"], facts["unit"]
    words = (
        f"{map_report['samples']} measurements in {passes_text(map_report['passes'])} and "
        f"{map_report['path_length']:.0f} m; the map covers {facts['extent'][0]:.1f} m × {facts['extent'][1]:.1f} m"
    )
    if test and test["n"]:
        words += f". Measurements that it had not seen: RMSE {decimals(test['rmse_ut'], 2)} {unit}"
        if test["coverage"] is not None:  # classes and counts have no interval
            words += f", {100 * test['coverage']:.0f} % of them inside the 95 % intervals"
    return f"<p>{escape(words)}.</p>"


def _map(facts: dict, figures: dict[str, bytes]) -> str:
    """Return the picture of the map, how well it is known, and where to measure next."""
    # the limits are SI; all that is shown is in the display unit
    unit, (usual, most) = facts["unit"], (v / facts["scale"] for v in facts["stddev_limits"])
    text = _figure(
        figures["map"],
        "The field's mean and its standard deviation, with the robot's path",
        "Left (or above): the field. Right (or below): its standard deviation, by the square root of its "
        "value; green dots are the inducing inputs that carry the map. Grey: nothing is known.",
    )
    words = f"Half of the known cells have a standard deviation below {usual:.2g} {unit}, none above {most:.2g} {unit}."
    if facts["suggestions"]:
        places = ", ".join(f"({x:.2f}, {y:.2f})" for x, y in facts["suggestions"])
        words += f" Measure next, in this order, at {places} m."
    return text + f"<p>{escape(words)}</p>"


def _fleet(facts: dict) -> str:
    """Return the table of all robots; empty where there is only one."""
    if "fleet" not in facts:
        return ""
    rows, unit = facts["fleet"]["table"], facts["unit"]
    marked = marked_of(facts["fleet"]["mend"])

    def text(row: dict, name: str, figure: Figure) -> str:
        """Return one figure of a robot, with an asterisk where it lies far from the fleet's.

        Args:
            row: value by name of the figure.
            name: of the robot.
            figure: which one.
        """
        value = row[figure.name]
        return (
            "–"
            if value is None
            else f"{value:{figure.digits}}" + " *" * ((name, figure.name) in marked)
        )

    head = [
        "robot",
        "cells",
        *(
            f"{f.head} ({unit if f.unit == 'field' else f.unit})" if f.unit else f.head
            for f in FIGURES
        ),
    ]
    shown = [
        [row["bag"], row["cells"], *(text(row, row["bag"], f) for f in FIGURES)] for row in rows
    ]
    # the last row: what is usual in the fleet, by which the asterisks are set
    shown.append(["usual", "", *(text(facts["fleet"]["usual"], "", f) for f in FIGURES)])
    return (
        _table(head, shown)
        + _points(about_comparison(facts["fleet"]))
        + (
            "<p>Scale (of the field's differences), bias and scatter are of a robot relative to the map of the others. "
            "An asterisk: far from the fleet's median by a robust rule, and by more than matters.</p>"
        )
    )


def _against_others(facts: dict) -> str:
    """Return how well the map of all others predicted each robot's cells."""
    rows = [
        [
            row["bag"],
            row["compared_cells"],
            *("–" if row[name] is None else decimals(row[name]) for name in ("rmse", "inside")),
        ]
        for row in facts["fleet"]["table"]
    ]
    return (
        "<p>Each robot's cells compared with the map of all others, which has not seen them, where that knows the "
        "field."
        "</p>" + _table(["robot", "n", f"RMSE ({facts['unit']})", "in 95 %"], rows)
    )


def _trust(facts: dict, figures: dict[str, bytes]) -> str:
    """Return the scores of the test, by distance and component, and the maps compared with."""
    test, unit = facts["test"], facts["unit"]
    if "fleet" in facts:
        return _against_others(facts)
    if not test or not test["n"]:
        return (
            "<p>Nothing was tested: a saved map has no measurements any more. <code>gp-mapping report BAG</code> "
            "with the recording itself tests, too.</p>"
        )

    # the test as a whole, by distance from the path, where the field has changed, by component
    rows = {
        "all": test,
        **{f"{name} m from the path": band for name, band in test["bands"].items()},
    }
    rows |= {label: test[key] for key, label in APART.items() if key in test}
    rows |= {
        name if name == "norm" else f"component {name}": part
        for name, part in facts.get("components", {}).items()
    }

    # a saved report has only the 95 % intervals
    levels = "coverage_levels" in test
    head = [
        "distance",
        "n",
        f"RMSE ({unit})",
        "NLPD",
        *([f"in {level} %" for level in _LEVELS] if levels else ["in 95 %"]),
    ]

    def row(name: str, part: dict) -> list:
        """A row of the table: samples, RMSE, NLPD and coverage of one part of the test.

        Args:
            name: of the part.
            part: its numbers.
        """
        if not part["n"]:
            return [name, 0, *["–"] * (len(head) - 2)]
        coverages = (
            [part["coverage_levels"][level] for level in _LEVELS] if levels else [part["coverage"]]
        )
        columns = [
            "–" if v is None else decimals(v) for v in (part["rmse_ut"], part["nlpd"], *coverages)
        ]
        return [name, part["n"], *columns]

    how = facts["how"][0].upper() + facts["how"][1:] + "."
    if facts.get("part"):
        how += " The pictures above are of a map of everything."

    text = f"<p>{escape(how)}</p>"
    text += _table(head, [row(name, part) for name, part in rows.items()])
    text += (
        "<p>“In 95 %” is the fraction of the measurements that lay inside the map's own 95 % intervals: .95 is "
        "right, less means that the map trusts itself too much. NLPD: smaller is better.</p>"
    )

    if "quality" in figures:
        text += _figure(
            figures["quality"],
            "PIT histogram, coverage by level, autocorrelation, and errors on a map",
            "Reliability: flat bars, points on the line and a correlation that falls quickly are right.",
        )

    if facts["refits"]:
        text += _table(
            ["map", f"RMSE ({unit})"],
            [
                ["this one", decimals(test["rmse_ut"])],
                *([REFITS.get(k, k), decimals(v)] for k, v in facts["refits"].items()),
            ],
        )
    return text


def _repairs(facts: dict) -> str:
    """Return what to mend on the robot; empty where nothing was tested."""
    if facts["mend"] is None:
        return ""
    return (
        _points(facts["mend"], ordered=True)
        if facts["mend"]
        else "<p>Nothing: no fault is seen.</p>"
    )


def _robot(facts: dict) -> str:
    """Return what the map has learned of the robot, in sentences."""
    lines, biases = list(facts["plain"]), facts.get("biases", [])
    if len(biases) > 1:
        lines.append(
            f"passes compared (their constants' standard deviation {decimals(facts['bias_stddev'], 2)} "
            f"{facts['unit']}): {biases_text(biases, facts['unit'])}"
        )
    return _points(lines)


def _hyper(facts: dict) -> str:
    """Return the hyper-parameters with their meaning, in the display unit."""
    scale, unit, rows = facts["scale"], facts["unit"], []
    for name, value in facts["map"]["hyperparameters"].items():
        # standard deviations are in the field's unit; a model may have several of one kind
        field = name.endswith("stddev")
        numbers = value if isinstance(value, list | tuple) else [value]
        shown = ", ".join(_number(float(v) / scale if field else float(v)) for v in numbers)
        rows.append(
            [
                name,
                f"{shown} {unit if field else _UNITS.get(name, '')}".strip(),
                _MEANING.get(name, ""),
            ]
        )

    if facts["noise_stddev"] is not None:
        rows.append(
            [
                "predictive noise",
                f"{_number(facts['noise_stddev'] / scale)} {unit}",
                "how much a new measurement scatters about the map where it knows the field",
            ]
        )
    return _table(["name", "value", "meaning"], rows, "words")


def _drops(facts: dict) -> str:
    """Return what was left out of the map or dropped before it, and why."""
    why = {reason.value: reason.explanation for reason in DropReason}
    events = facts["events"]
    text = (
        f"<p>Gross errors that were left out of their cells: {events['gross_errors']}. Cells that count for less "
        f"because most of what is in them disagrees with the map: {events['weakened_cells']}.</p>"
    )

    if facts["dropped"] is None:
        return text + "<p>What was dropped before the map was not saved with it.</p>"

    dropped = {name: n for name, n in facts["dropped"].items() if n}
    if dropped:
        text += _table(
            ["reason", "count", "what it means"],
            [[name, n, why.get(name, "")] for name, n in dropped.items()],
            "words",
        )
    else:
        text += "<p>No measurement and no pose was dropped.</p>"

    # what the table above already explains is not repeated
    unexplained = [
        line
        for line in facts["explained"]
        if not any(f" {name}:" in line or f"[{name}]" in line for name in dropped)
    ]
    return text + (_points(unexplained) if unexplained else "")


def _changes(facts: dict) -> str:
    """Return where and when the field changed."""
    unit = facts["unit"]
    rows = [
        [when, f"({c['x']:.2f}, {c['y']:.2f})", decimals(c["error"], 2, "+"), f"{c['stamp']:.1f}"]
        for when, key in (("while mapping", "changes"), ("on the test", "changes_in_test"))
        for c in facts[key]
    ]
    if not rows:
        return "<p>None was seen: where the robot came again, the field was as before.</p>"
    return _table(["seen", "place (m)", f"by ({unit})", "stamp (s)"], rows)


def _settings(facts: dict) -> str:
    """Return the settings that are not defaults, and all of them, folded."""
    meta = {f.name: f for kind in (MapSettings, IntakeSettings) for f in fields(kind)}
    rows = []
    for name, value in facts["settings"].items():
        # a saved map may have a setting that this version does not know
        f = meta.get(name)
        changed = f is not None and value != f.default
        rows.append(
            (
                not changed,
                [
                    name,
                    value,
                    "" if f is None or not changed else f"default {f.default}",
                    f.metadata.get("unit", "") if f is not None else "",
                    f.metadata.get("doc", "") if f is not None else "",
                ],
            )
        )

    head = ["setting", "value", "", "unit", "meaning"]
    changed_rows = [row for same, row in rows if not same]
    text = (
        _table(head, changed_rows, "words")
        if changed_rows
        else "<p>All settings have their defaults.</p>"
    )
    return (
        text + f"<details><summary>All {len(rows)} settings</summary>\n"
        f"{_table(head, [row for _, row in rows], 'words')}</details>"
    )

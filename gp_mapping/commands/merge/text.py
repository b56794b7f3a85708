"""What `gp-mapping merge` prints: what was added, what differed, and what the sum has."""

from __future__ import annotations

from pathlib import Path

from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.pass_biases import pass_biases
from gp_mapping.commands.map import UNITS
from gp_mapping.errors import named
from gp_mapping.mapping.session import MapSession
from gp_mapping.store.wording import passes_text, unit_text

__all__ = ["summary"]

_BESIDE = 4  # maps that have a column each; of more, the least and the greatest value are printed
_PASSES = 6  # passes that are listed one by one
_TURNS = "turns with the robot"
_READS = "offset from those before"


def summary(result: dict, session: MapSession) -> str:
    """Return the report as text, with units.

    Args:
        result: what report.json states.
        session: the sum.
    """
    report, rows = result["map"], result["maps"]
    lines = [
        f"{row['file']}: {row['samples']} measurements, {row['cells']} cells, "
        f"{passes_text(row['passes'])}; {_frame_text(row)}"
        for row in rows
    ]
    lines.append(
        f"together {report['samples']} measurements, {report['cells']} cells, "
        f"{passes_text(report['passes'])}, {report['path_length']:.1f} m; hyper-parameters are "
        f"those of {result['hyperparameters_of']}, which has learned from most cells"
    )
    lines += _table(rows, result, session)

    lines += _constants(rows, session)
    lines += [f"  warning: {text}" for text in result["warnings"]]
    lines.append("written: " + ", ".join(result["files"].values()))
    return "\n".join(lines)


def _frame_text(row: dict) -> str:
    """Return the frame of a map, and how it was moved into that of the others."""
    moved = row["moved"]
    if moved is None:
        return f"frame {named(row['frame'])}" if row["frame"] else "no frame is named"
    own = f"frame {named(row['frame'])}, " if row["frame"] else ""
    return f"{own}moved by {moved[0]:g}, {moved[1]:g} m and {moved[2]:g} rad"


def _table(rows: list[dict], result: dict, session: MapSession) -> list[str]:
    """Return a line for each value that a map has, with that of the sum.

    Args:
        rows: of the maps.
        result: what report.json states.
        session: the sum.
    """
    unit, scale = unit_text(session.settings.field_unit), session.settings.field_scale
    several = len(rows) > _BESIDE
    heads = ["least", "greatest"] if several else _short_names([row["file"] for row in rows])
    width = max(11, *(len(head) + 2 for head in heads))
    lines = [f"{'':32}" + "".join(f"{head:>{width}}" for head in [*heads, "the sum"])]

    def line(label: str, values: list[float | None], total: float | None) -> str:
        """Return a line of the table.

        Args:
            label: with the unit.
            values: of the maps; None where there is none.
            total: of the sum.
        """
        known = [value for value in values if value is not None]
        shown = [min(known), max(known)] if several and known else values
        texts = ["–" if value is None else decimals(value) for value in [*shown, total]]
        return f"{label:32}" + "".join(f"{text:>{width}}" for text in texts)

    for name, total in result["hyperparameters"].items():
        values = [row["hyperparameters"].get(name) for row in rows]
        # what is left out, such as a heading of 0, is 0 everywhere
        if not any(values) and not total:
            continue
        of_field = name.endswith("stddev") and session.settings.metric
        size = scale if of_field else 1.0
        of_value = unit if of_field else UNITS.get(name, "m" if name.startswith("lever") else "")
        known = [None if value is None else value / size for value in values]
        lines.append(line(f"{name} {of_value}".rstrip(), known, total / size))

    for label, key, total in ((_TURNS, "turning", result["turning"]), (_READS, "reads", None)):
        values = [row[key] for row in rows]
        if any(value is not None for value in [*values, total]):
            inner = [None if value is None else value / scale for value in values]
            lines.append(line(f"{label} {unit}", inner, None if total is None else total / scale))
    return lines


def _constants(rows: list[dict], session: MapSession) -> list[str]:
    """Return a line with the constants of the passes in the sum, those that differ most of many.

    Args:
        rows: of the maps.
        session: the sum.
    """
    biases = session.map.biases() if session.map.started else []
    if len(biases) < 2:
        return []

    # the passes of each map have the numbers after those of the map that was added before it
    names = _short_names([row["file"] for row in rows])
    added = sorted(zip([row["newest_pass"] for row in rows], names))
    unit, texts = unit_text(session.settings.field_unit), []
    for bias, record in zip(biases, pass_biases(session), strict=True):
        name = next((name for newest, name in added if bias.number < newest + 1.0), added[-1][1])
        text = f"{name} {decimals(record['mean'], 2, '+')} ± {decimals(record['stddev'], 2)} {unit}"
        texts.append((abs(record["mean"]), len(texts), text))
    shown = sorted(sorted(texts, reverse=True)[:_PASSES], key=lambda each: each[1])
    more = f", and {len(texts) - len(shown)} that differ less" if len(texts) > len(shown) else ""
    return [
        "constants of the passes in the sum, which the field is free of: "
        + ", ".join(text for _, _, text in shown)
        + more
    ]


def _short_names(files: list[str]) -> list[str]:
    """Return the folders of the maps, or the files where two folders have one name."""
    names = [Path(file).parent.name or Path(file).name for file in files]
    return names if len(set(names)) == len(names) else files

"""The table of a fleet, and which robot to mend first: of `check`, `report` and `fit`."""

from __future__ import annotations

import math

from gp_mapping.fleet.bags import Bags
from gp_mapping.fleet.comparison.notes import notes_of
from gp_mapping.fleet.comparison.rounds import compare_fleet
from gp_mapping.fleet.comparison.table import FIGURES, about_comparison, marked_of, medians_of
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.mapping import FleetMap
from gp_mapping.store.wording import unit_text

__all__ = ["mend_lines", "table_of", "text_of"]

_SHOWN = 10  # faults that are listed one by one


def table_of(engine: Engine, bags: Bags, fleet_map: FleetMap) -> dict:
    """Compare each robot with the map of the others.

    Args:
        engine: where the cells are.
        bags: that were read.
        fleet_map: their map.

    Returns:
        `unit` of the field, `table` (a row for each robot), `usual` (the fleet's values), `mend`
        (bags that failed, then robots far from the others) and `notes` (what cannot be told).
    """
    settings = fleet_map.session.settings
    unit, scale = unit_text(settings.field_unit), settings.field_scale
    noise = math.sqrt(fleet_map.session.noise_variance)
    compared = compare_fleet(engine, bags, fleet_map, noise, scale, unit)

    # a bag that failed has no figures, and is the first thing to mend
    mend = [
        {"bag": bag, "figure": "failed", "value": None, "usual": None, "far": None, "text": why}
        for bag, why in bags.failed.items()
    ]
    return {
        "unit": unit,
        "table": compared.rows,
        "usual": medians_of(compared.rows),
        "mend": mend + compared.findings,
        "notes": notes_of(compared.rows, unit, compared.unsettled),
    }


def text_of(result: dict) -> list[str]:
    """Return the lines of the table, with units, and what to mend first."""
    unit, rows = result["unit"], result["table"]
    units = {figure.name: unit if figure.unit == "field" else figure.unit for figure in FIGURES}
    width = max(len(row["bag"]) for row in rows)
    flagged = marked_of(result["mend"])

    lines = [
        f"{'':{width}}  cells" + "".join(f"{figure.head:>10}" for figure in FIGURES),
        f"{'':{width}}       " + "".join(f"{units[figure.name]:>10}" for figure in FIGURES),
    ]

    def cells(row: dict, name: str) -> str:
        """Return the figures of a row.

        Args:
            row: value by name of the figure.
            name: of the robot; "" for the usual values.
        """
        parts = []
        for figure in FIGURES:
            value = row[figure.name]
            mark = "*" if (name, figure.name) in flagged else " "
            parts.append(f"{'–' if value is None else format(value, figure.digits):>9}{mark}")
        return "".join(parts)

    lines += [
        f"{row['bag']:{width}} {row['cells']:6d}{cells(row, row['bag'])}".rstrip() for row in rows
    ]
    lines.append(f"{'usual':{width}}       {cells(result['usual'], '')}".rstrip())
    return lines + mend_lines(result)


def mend_lines(result: dict) -> list[str]:
    """Return which robots to mend, the farthest off first, and what cannot be told."""
    lines = about_comparison(result)
    if not result["mend"]:
        count = len(result["table"])
        return lines + (
            [] if result["notes"] else [f"no robot of these {count} lies far from the others"]
        )

    lines.append("mend first:")
    lines += [
        f"  {fault['text']}"
        if fault["figure"] == "failed"
        else f"  {fault['bag']}: {fault['text']}"
        for fault in result["mend"][:_SHOWN]
    ]
    remaining = len(result["mend"]) - _SHOWN
    return lines + ([f"  and {remaining} more in report.json"] if remaining > 0 else [])

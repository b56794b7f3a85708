"""What the table of a fleet cannot tell: of few robots, of those that never met, of many wrong."""

from __future__ import annotations

from gp_mapping.fleet.comparison.outliers import (
    FAR,
    MIN_ROBOTS,
    relevant_difference,
    size_of,
    wide_figures,
)
from gp_mapping.fleet.comparison.table import FIGURES

__all__ = ["notes_of"]

_AGREED = {"gain": 1.0, "bias": 0.0}  # of robots that read alike


def notes_of(rows: list[dict], unit: str, unsettled: bool) -> list[str]:
    """Sentences on what the comparison of the robots cannot tell.

    Args:
        rows: of all robots.
        unit: of the field.
        unsettled: whether robots in the map still stand out, since no more may leave it.
    """
    compared = [row for row in rows if row["bias"] is not None]
    if len(rows) == 1:
        return ["one robot: there is no other to compare it with"]
    if not compared:
        return [
            "the robots know too few of each other's places to be compared: let them drive over some ground in "
            "common"
        ]
    if len(compared) < MIN_ROBOTS:
        return [_few_agree(compared, unit)]

    notes = []
    if unsettled:
        notes.append(
            "robots still lie apart, and a majority of the fleet must stay to compare them with: so nobody can tell "
            "for certain which of them are wrong; compare them with a sensor that is known to be right"
        )
    wide = wide_figures(rows)
    if wide:
        heads = {figure.name: figure for figure in FIGURES}
        spreads = ", ".join(
            f"{heads[name].head} ± {spread:{heads[name].digits.lstrip('+')}}"
            + (f" {unit}" if heads[name].unit == "field" else "")
            for name, spread in wide.items()
        )
        notes.append(
            f"the robots differ among each other by far more than matters ({spreads}), in which hardly one of them "
            "can stand out: compare them with a sensor that is known to be right"
        )
    missing = [row["bag"] for row in rows if row["bias"] is None]
    if missing:
        notes.append(
            f"not compared, since the others know too few of their places: {', '.join(missing[:5])}"
            + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        )
    return notes


def _few_agree(rows: list[dict], unit: str) -> str:
    """Whether fewer robots than a majority needs read alike; which one is wrong nobody can tell.

    Args:
        rows: of two or three robots.
        unit: of the field.
    """
    apart = []
    for figure in FIGURES:
        if figure.name in _AGREED and any(
            abs(row[figure.name] - _AGREED[figure.name])
            > FAR * size_of(figure, row, 0.0, relevant_difference(figure, rows))
            for row in rows
        ):
            after = f" {unit}" if figure.unit == "field" else ""
            values = ", ".join(f"{row[figure.name]:{figure.digits}}" for row in rows)
            apart.append(f"{figure.head} {values}{after}")

    count = f"{len(rows)} robot{'s' * (len(rows) > 1)} with ground in common"
    if not apart:
        return (
            f"{count}, where they read alike; were one wrong, nobody could tell which: that takes "
            f"{MIN_ROBOTS}"
        )
    return (
        f"{count}, where they do not read alike ({'; '.join(apart)}, each relative to the others): with fewer than "
        f"{MIN_ROBOTS} nobody can tell which one is wrong; compare them with a sensor that is known to be right, "
        "or add robots"
    )

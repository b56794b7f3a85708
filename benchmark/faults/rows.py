"""What a section of the fault benchmark found: rows, their file and their table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmark.tables import Table
from gp_mapping.store.marks import with_nulls

__all__ = ["Row", "store", "stored", "table"]

FOLDER = Path("out/benchmark/faults")


@dataclass(frozen=True)
class Row:
    """One kind of fault.

    tried: how often.  survived: how often the map was afterwards what it should be (what that is, the
    section's docstring says).  lost: good measurements that are not in the map.  uncounted: those of
    them, and of the bad ones, that no counter of the node or the tool names.  worst: longest time that
    anything had to wait for an answer, seconds; None where nobody waited.
    """

    case: str
    tried: int
    survived: int
    lost: int = 0
    uncounted: int = 0
    worst: float | None = None
    remark: str = ""


def store(section: str, rows: list[Row], where: dict, folder: Path = FOLDER) -> None:
    """Keep the rows of one section as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"where": where, "rows": [asdict(row) for row in rows]}
    (folder / f"{section}.json").write_text(
        json.dumps(with_nulls(content), indent=1, default=str, allow_nan=False), encoding="utf-8"
    )


def stored(folder: Path = FOLDER) -> dict[str, list[Row]]:
    """All sections that were kept."""
    return {
        path.stem: [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
        for path in sorted(folder.glob("*.json"))
    }


def table(sections: dict[str, list[Row]]) -> Table:
    """One table of all sections."""
    new = Table(
        "Faults",
        [
            ("section", ""),
            ("case", ""),
            ("tried", "d"),
            ("survived", "d"),
            ("lost", "d"),
            ("uncounted", "d"),
            ("worst wait, s", ".2f"),
            ("", ""),
        ],
    )
    for name, rows in sections.items():
        for row in rows:
            new.add(
                name,
                row.case,
                row.tried,
                row.survived,
                row.lost,
                row.uncounted,
                row.worst,
                row.remark,
            )
    new.notes = [
        "survived: the map was afterwards what the good messages alone make of it, and the node or the tool "
        "went on or ended with one line. lost: good measurements that are not in the map; uncounted: those "
        "that nothing names."
    ]
    return new

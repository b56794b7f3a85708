"""`python -m benchmark faults`: what comes from outside and should not, and what it cost.

Each section is a module of this package with `run(quick) -> list[Row]`; `--only messages,kill` runs
some of them. Rows are stored by section, so that a long run may be made in parts, and the table goes
into docs/reliability.md between its marks.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from benchmark.faults.rows import Row, store, stored, table
from benchmark.tables import Goal, Part

__all__ = ["TABLES", "run"]

TABLES = ("messages", "files", "services", "lifecycle", "kill", "disk", "soak")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
MARKS = ("<!-- python -m benchmark faults: begin -->", "<!-- python -m benchmark faults: end -->")


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """Measure the sections `only`; the table holds those that were measured earlier, too.

    Args:
        quick: short forms, which show that it runs; they are not stored and not written into the page.
        where: the machine, as benchmark.timing.environment says it.
        only: names of TABLES.

    Returns:
        Part with one row for each case, and the goal of no uncounted message in any of them.
    """
    rows: dict[str, list[Row]] = {} if quick else stored()
    for name in only:
        begin = time.perf_counter()
        print(f"faults: {name}", file=sys.stderr, flush=True)
        rows[name] = importlib.import_module(f"benchmark.faults.{name}").run(quick)
        print(
            f"faults: {name} took {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True
        )
        if not quick:
            store(name, rows[name], where)

    every = [row for name in TABLES for row in rows.get(name, [])]
    shown = table({name: rows[name] for name in TABLES if name in rows})
    if not quick:
        write_page(shown.markdown())
    goals = [
        Goal(
            "faults: messages that nobody counted",
            float(sum(row.uncounted for row in every)),
            high=0.0,
        ),
        Goal(
            "faults: cases that did not survive",
            float(sum(row.tried - row.survived for row in every)),
            high=0.0,
        ),
    ]
    return Part("faults", goals, [shown], where)


def write_page(text: str, page: Path = PAGE) -> None:
    """Put the table between the marks of the page; ValueError where the page has no marks.

    Rows of sections that the table lacks stay: who measures one of them elsewhere does not lose the others.
    """
    old = page.read_text(encoding="utf-8")
    head, begin, rest = old.partition(MARKS[0])
    _, end, tail = rest.partition(MARKS[1])
    if not begin or not end:
        raise ValueError(f"{page} has no {MARKS[0]} … {MARKS[1]}")
    there = [*_rows(old).items(), *_rows(text).items()]  # the new ones replace
    first, *others = [row for rows in _rows(text).values() for row in rows]
    rows = [row for name in TABLES for row in dict(there).get(name, ())]
    lines = [line for line in text.strip().splitlines() if line not in others]
    at = lines.index(first)
    lines[at : at + 1] = rows
    page.write_text(f"{head}{begin}\n" + "\n".join(lines) + f"\n{end}{tail}", encoding="utf-8")


def _rows(text: str) -> dict[str, list[str]]:
    """Lines of a table by section."""
    out: dict[str, list[str]] = {}
    for line in text.splitlines():
        section = line.removeprefix("| ").split(" |")[0]
        if line.startswith("| ") and section in TABLES:
            out.setdefault(section, []).append(line)
    return out

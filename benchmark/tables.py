"""Tables with goals, as JSON and as Markdown: what a run measured, and nothing that it did not."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["Goal", "Part", "Table", "document", "goals_table", "load_parts", "save_part"]

ORDER = ("accuracy", "cost", "render", "live", "honesty", "wiski")


@dataclass
class Goal:
    """A number to reach: low ≤ value ≤ high, either may be absent."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    unit: str = ""

    @property
    def met(self) -> bool:
        return (self.low is None or self.value >= self.low) and (
            self.high is None or self.value <= self.high
        )

    @property
    def text(self) -> str:
        """The bound in words."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g} {self.unit}".strip()
        return (
            f"≤ {self.high:g} {self.unit}" if self.low is None else f"≥ {self.low:g} {self.unit}"
        ).strip()


@dataclass
class Table:
    """columns: (heading, format) each, the format as in format(); rows: values, None for a dash."""

    title: str
    columns: list[tuple[str, str]]
    rows: list[list] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *row) -> None:
        """One row; ValueError where it does not fit the columns."""
        if len(row) != len(self.columns):
            raise ValueError(
                f"{len(row)} values for the {len(self.columns)} columns of {self.title!r}"
            )
        self.rows.append(list(row))

    def markdown(self) -> str:
        """A heading, the table, the notes."""
        head = [name for name, _ in self.columns]
        align = ["---:" if spec else "---" for _, spec in self.columns]
        body = [[_cell(v, spec) for v, (_, spec) in zip(row, self.columns)] for row in self.rows]
        lines = [
            f"### {self.title}",
            "",
            *("| " + " | ".join(r) + " |" for r in (head, align, *body)),
            "",
        ]
        return "\n".join(lines + [line for note in self.notes for line in (note, "")])


def _cell(value, spec: str) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, str) or not spec else format(value, spec)


@dataclass
class Part:
    """One of the benchmark's parts: its goals, its tables, and where and how it was run."""

    name: str
    goals: list[Goal]
    tables: list[Table]
    environment: dict

    def markdown(self) -> str:
        e = self.environment
        where = (
            f"{e['processor']}, {e['cores']} cores, torch {e['torch']}, {e['threads']} thread(s), load average "
            f"{e['load_before']:.1f} before and {e['load_after']:.1f} after, {e['seconds']:.0f} s "
            f"({e['processor_seconds']:.0f} s of the processor), "
            f"commit {e['commit']}, {e['date']}"
            + (", quick: sizes too small to judge by" if e["quick"] else "")
        )
        return "\n".join(
            [
                f"## {self.name.capitalize()}",
                "",
                where + ".",
                "",
                *(t.markdown() for t in self.tables),
            ]
        )


def save_part(part: Part, folder: Path) -> Path:
    """DIR/<name>.json; numbers that are not finite are an error, not a dash."""
    path = Path(folder) / f"{part.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(asdict(part), indent=1, allow_nan=False, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )
    return path


def load_parts(folder: Path) -> list[Part]:
    """Every part that was stored in the folder."""
    parts = []
    for name in ORDER:
        path = Path(folder) / f"{name}.json"
        if path.exists():
            raw = json.loads(path.read_text(encoding="utf-8"))
            tables = [
                Table(t["title"], [tuple(c) for c in t["columns"]], t["rows"], t["notes"])
                for t in raw["tables"]
            ]
            parts.append(
                Part(raw["name"], [Goal(**g) for g in raw["goals"]], tables, raw["environment"])
            )
    return parts


def goals_table(parts: list[Part]) -> Table:
    """The goals of all parts that were not quick."""
    goals = Table("Numbers to reach", [("", ""), ("measured", ""), ("goal", ""), ("met", "")])
    for goal in (g for part in parts if not part.environment["quick"] for g in part.goals):
        digits = 3 if goal.value == 0 else max(0, 2 - math.floor(math.log10(abs(goal.value))))
        measured = f"{goal.value:.{digits}f} {goal.unit}".strip()
        goals.add(goal.name, measured, goal.text, "yes" if goal.met else "**no**")
    return goals


def document(parts: list[Part], page: str = "") -> str:
    """All parts in Markdown, the goals first.

    Args:
        parts: What was measured.
        page: Text of the page that they are for. What stands between its marks is replaced, and the
            remainder stays; without marks the parts are all of the page.
    """
    goals = goals_table(parts)
    name, file = (
        ("honesty", "honesty") if [p.name for p in parts] == ["honesty"] else ("all", "benchmarks")
    )
    written = (
        f"Written by `python -m benchmark {name} --document docs/{file}.md` (or `gp-mapping bench {name} …`) from "
        "what it measured; edit the benchmark, not this part."
    )
    parts_text = ([goals.markdown()] if goals.rows else []) + [part.markdown() for part in parts]
    body = "\n".join([written, "", *parts_text]).rstrip() + "\n"

    begin, end = (f"<!-- python -m benchmark {name}: {word} -->" for word in ("begin", "end"))
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if begun and ended:
        return f"{before}{begin}\n{body}{end}{after}"

    title = "# Honest intervals" if name == "honesty" else "# Benchmarks"
    return f"{title}\n\n{body}"

"""The code itself: files per folder, lengths, layout, and who reaches into whom, beside an earlier commit.

Everything is read from syntax trees; nothing is imported. Of the earlier commit the files are taken from git.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmark.tables import Part, Table

__all__ = ["PACKAGE", "SAME_AS", "TABLES", "House", "measured", "run"]

TABLES = ("package", "rooms")
BEFORE = "8d0ea74"  # version 0.1.0 as it was first tried in the field
PACKAGE = "gp_mapping"
_PROBES = {"hasattr", "getattr", "isinstance"}
_MAPS = {"DualSVGP", "ExactGP", "Wiski", "CurlFree", "TiledMap", "Posterior", "Snapshot"}
_LONG = 100  # characters of a line
# What an override says in place of a section: "As FieldMap.predict.", of which a test asks that it is true.
SAME_AS = re.compile(r"\bAs (?:`?([A-Z]\w*)\.(\w+)|`(\w+)`)")


@dataclass(frozen=True)
class House:
    """What is counted of one tree of Python files.

    Attributes:
        lines: of each room (folder directly in the package), and of files that lie in no room.
        folders: files of each folder.
        files: lines of each file.
        functions: lines of each function.
        classes: lines of each class.
        documented: fraction of functions with a docstring.
        sections: public functions of three arguments and more whose docstring has `Args:`, or names
            the function whose arguments they are.
        wide: those functions in all.
        blank: fraction of blank lines inside functions, docstrings apart.
        comments: fraction of lines that are comments.
        long: fraction of lines of more than 100 characters.
        characters: mean length of the lines that are not blank.
        tuples: fraction of assignments of several values to several names at once.
        reaches: accesses to a private attribute of an object other than self, cls or super().
        probes: isinstance of a map's class, and hasattr or getattr of a map, outside core/models.
    """

    lines: Counter
    folders: Counter
    files: list[int]
    functions: list[int]
    classes: list[int]
    documented: float
    sections: int
    wide: int
    blank: float
    comments: float
    long: float
    characters: float
    tuples: float
    reaches: int
    probes: int


def measured(root: Path) -> House:
    """The house that stands at root, a folder with Python files."""
    count: Counter = Counter()
    lines, folders = Counter(), Counter()
    files, functions, classes = [], [], []

    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        rows, parts = text.splitlines(), path.relative_to(root).parts
        tree = ast.parse(text)
        lines[parts[0] if len(parts) > 1 else "(top)"] += len(rows)
        folders["/".join(parts[:-1]) or "(top)"] += path.name != "__init__.py"
        files.append(len(rows))

        count["rows"] += len(rows)
        count["comments"] += sum(row.lstrip().startswith("#") for row in rows)
        count["long"] += sum(len(row) > _LONG for row in rows)
        count["filled"] += sum(bool(row.strip()) for row in rows)
        count["characters"] += sum(len(row) for row in rows if row.strip())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(_length(node))
                count.update(_function(node, rows))
            elif isinstance(node, ast.ClassDef):
                classes.append(_length(node))
            elif isinstance(node, ast.Assign):
                several = isinstance(node.targets[0], ast.Tuple) and isinstance(
                    node.value, ast.Tuple
                )
                count.update(assignments=1, tuples=several)
            elif isinstance(node, ast.Attribute):
                count["reaches"] += _reaches(node)
            elif isinstance(node, ast.Call) and parts[:2] != ("core", "models"):
                count["probes"] += _probes(node)

    return House(
        lines,
        folders,
        files,
        functions,
        classes,
        count["documented"] / len(functions),
        count["sections"],
        count["wide"],
        count["blank"] / count["inside"],
        count["comments"] / count["rows"],
        count["long"] / count["rows"],
        count["characters"] / count["filled"],
        count["tuples"] / count["assignments"],
        count["reaches"],
        count["probes"],
    )


def _length(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, rows: list[str]) -> dict[str, int]:
    """What one function adds to the counts."""
    words = ast.get_docstring(node)
    first = node.body[0]
    start = first.lineno - 1 if words is None else first.end_lineno
    body = rows[start : node.end_lineno]
    wide = not node.name.startswith("_") and len(node.args.args) + len(node.args.kwonlyargs) > 2
    return {
        "documented": words is not None,
        "wide": wide,
        "sections": wide and bool(re.search(rf"Args:|{SAME_AS.pattern}", words or "")),
        "inside": len(body),
        "blank": sum(not row.strip() for row in body),
    }


def _reaches(node: ast.Attribute) -> bool:
    """Whether somebody else's private attribute is asked for."""
    private = node.attr.startswith("_") and not node.attr.endswith("__")
    owner = node.value
    own = (isinstance(owner, ast.Name) and owner.id in ("self", "cls")) or (
        isinstance(owner, ast.Call)
        and isinstance(owner.func, ast.Name)
        and owner.func.id == "super"
    )
    return private and not own


def _probes(node: ast.Call) -> bool:
    """Whether a call asks a map what it is."""
    if not isinstance(node.func, ast.Name) or node.func.id not in _PROBES or len(node.args) < 2:
        return False
    if node.func.id == "isinstance":
        return any(isinstance(n, ast.Name) and n.id in _MAPS for n in ast.walk(node.args[1]))
    asked = ast.unparse(node.args[0]).lower()
    return any(word in asked.split(".")[-1] for word in ("map", "field", "posterior", "snapshot"))


def _earlier(home: Path, commit: str) -> Iterator[Path]:
    """The package as it was at a commit, in a folder that goes when it has been looked at."""
    done = subprocess.run(["git", "archive", commit, PACKAGE], cwd=home, capture_output=True)
    if done.returncode:
        return
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder) / PACKAGE


_ROWS = (
    ("lines", lambda h: sum(h.lines.values()), "d"),
    ("of them core", lambda h: h.lines["core"], "d"),
    ("files", lambda h: len(h.files), "d"),
    ("files of a folder, most", lambda h: max(h.folders.values()), "d"),
    ("lines of a file, median", lambda h: median(h.files), ".0f"),
    ("lines of a file, most", lambda h: max(h.files), "d"),
    ("lines of a class, most", lambda h: max(h.classes), "d"),
    ("lines of a function, median", lambda h: median(h.functions), ".0f"),
    ("lines of a function, most", lambda h: max(h.functions), "d"),
    ("functions with a docstring", lambda h: h.documented, ".1%"),
    ("public functions of 3 arguments and more", lambda h: h.wide, "d"),
    ("of them with Args", lambda h: h.sections / h.wide, ".1%"),
    ("blank lines inside functions", lambda h: h.blank, ".1%"),
    ("lines that are comments", lambda h: h.comments, ".1%"),
    (f"lines of more than {_LONG} characters", lambda h: h.long, ".1%"),
    ("characters of a line", lambda h: h.characters, ".1f"),
    ("assignments of several at once", lambda h: h.tuples, ".1%"),
    ("accesses to private attributes of others", lambda h: h.reaches, "d"),
    ("probes of maps outside core/models", lambda h: h.probes, "d"),
)


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """The package as it stands beside the one of BEFORE, where git has it."""
    home = Path(__file__).resolve().parents[2]
    now = measured(home / PACKAGE)
    before = [] if quick else [measured(root) for root in _earlier(home, BEFORE)]

    table = Table("The package", [("", ""), *(((BEFORE, ""),) if before else ()), ("now", "")])
    for name, value, spec in _ROWS:
        table.add(name, *(format(value(house), spec) for house in (*before, now)))

    rooms = Table(
        "Lines by room", [("room", ""), *(((BEFORE, "d"),) if before else ()), ("now", "d")]
    )
    for room in sorted({room for house in (*before, now) for room in house.lines}):
        rooms.add(room, *(house.lines[room] for house in (*before, now)))
    tables = {"package": table, "rooms": rooms}
    return Part("house", [], [tables[name] for name in only], where)

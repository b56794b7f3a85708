"""Small faults put into the package, one at a time by a seed: which of them do the mirrored tests notice?

A fault changes one place of one module: a comparison, an operator, a number, a truth value, a condition, a call that is
left out. Its mirrored tests are those of the room's folder in test/ that name the module, and then the others of the
folder that mirrors its own, or of the nearest one above that. A fault that they do not notice is a line that may be
wrong.

What is no fault of a program is left out: `return None` as it is, a number of at most 1e-8, which guards against
rounding and of which any other of that size does the same, and what speaks to a programmer or saves time alone:
`__repr__`, imports for a type checker, and what a decorator is given (frozen classes, the length of a cache).
So is what gives the same to whoever looks:

- `<=` for `<` where a guard is compared with: no computed number is exactly 1e-12;
- nothing for `return False`: both are false, and the fault that returns True is tried;
- another negative number than -1 in `reshape` and `view`: numpy takes each for what is left over, torch none;
- how long a statement waits (`wait`, `sleep`, `join`), for it waits for nothing but time or what is told it;
- a number in the definition of a constant whose comment says `time and memory alone`: so many rows are computed
  together, and each row's result is its own.
"""

from __future__ import annotations

import ast
import compileall
import copy
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from benchmark import warm
from benchmark.tables import Goal, Part, Table

__all__ = ["Fault", "faults_in", "judged", "mirrored_tests", "mutated", "run"]

TABLES = ("core", "mapping", "intake", "planning", "store", "runtime")
_ROOT = Path(__file__).resolve().parents[2]
_HANGS = 120  # s of one test; a fault that makes it hang is noticed
_LONGEST = 1800  # s that the tests of one fault may take
_GUARD = 1e-8  # and less: a guard against rounding
_COST = "time and memory alone"  # in the comment of a constant that no result depends on
_WAITS = ("wait", "sleep", "join")
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Fault(NamedTuple):
    """file, line, column: where.  number: of the node, in the order of ast.walk.  what: what is done to it."""

    file: Path
    line: int
    column: int
    number: int
    what: str


def _kinds(node: ast.AST) -> Iterator[str]:
    """What can be done to a node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SWAPS:
        if not (isinstance(node.ops[0], _ORDERS) and any(map(_guards, _sides(node)))):
            yield "compare otherwise"
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _SWAPS:
        yield "another operator"
    elif isinstance(node, ast.BoolOp):
        yield "and for or"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if not _guards(node):
            yield "another number"
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "the other truth value"
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "the condition turned round"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "a call left out"
    elif isinstance(node, ast.Return) and not _is_nothing(node.value):
        yield "nothing returned"


def _is_nothing(value: ast.expr | None) -> bool:
    """Whether a return gives nothing as it is, or False, which is the same to who asks."""
    return value is None or (
        isinstance(value, ast.Constant) and (value.value is None or value.value is False)
    )


def _sides(node: ast.Compare) -> list[ast.expr]:
    """Both sides of a comparison, and of a product its factors."""
    sides = [node.left, *node.comparators]
    for side in sides:
        if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult):
            sides += [side.left, side.right]
    return sides


def _guards(node: ast.AST) -> bool:
    """Whether it is a number so small that it guards against rounding."""
    return (
        isinstance(node, ast.Constant) and type(node.value) is float and 0.0 < node.value <= _GUARD
    )


def _spared(node: ast.AST, lines: list[str]) -> Iterator[ast.AST | None]:
    """Its parts that are no program, or that no result depends on.

    lines: of the file.
    """
    yield getattr(node, "annotation", None)
    yield getattr(node, "returns", None)
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
        yield node
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        yield node if node.test.id == "TYPE_CHECKING" else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in _WAITS:
            yield from call.args
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("reshape", "view"):
            yield from (size for size in node.args if isinstance(size, ast.UnaryOp))
    if isinstance(node, ast.Assign) and _COST in lines[node.lineno - 1]:
        yield node.value


def faults_in(file: Path) -> list[Fault]:
    """Every fault that can be put into a file; what is no program is let alone."""
    text = file.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    spared = {
        id(inner)
        for node in ast.walk(tree)
        for part in _spared(node, lines)
        if part is not None
        for inner in ast.walk(part)
    }
    return [
        Fault(file, node.lineno, node.col_offset, number, what)
        for number, node in enumerate(ast.walk(tree))
        if id(node) not in spared
        for what in _kinds(node)
    ]


def mutated(fault: Fault) -> str:
    """The file's text with the fault in it."""
    tree = ast.parse(fault.file.read_text(encoding="utf-8"))
    target = list(ast.walk(tree))[fault.number]
    _put(target, fault.what)
    return ast.unparse(ast.fix_missing_locations(tree))


def _put(node, what: str) -> None:
    if what == "compare otherwise":
        node.ops = [_SWAPS[type(node.ops[0])]()]
    elif what in ("another operator", "and for or"):
        node.op = _SWAPS[type(node.op)]()
    elif what == "another number":
        node.value = (
            node.value * 2 if isinstance(node.value, float) and node.value else node.value + 1
        )
    elif what == "the other truth value":
        node.value = not node.value
    elif what == "the condition turned round":
        node.test = ast.UnaryOp(ast.Not(), copy.deepcopy(node.test))
    elif what == "a call left out":
        node.value = ast.Constant(None)
    else:
        node.value = ast.Constant(None)


def mirrored_tests(file: Path, root: Path = _ROOT) -> list[Path]:
    """The tests of the same room that name the module, then the others of the nearest folder."""
    inside = file.relative_to(root / "gp_mapping")
    module = ".".join(("gp_mapping", *inside.with_suffix("").parts))
    room = root / "test" / inside.parts[0]
    naming = [
        path
        for path in sorted(room.rglob("test_*.py"))
        if module in path.read_text(encoding="utf-8")
    ]
    folder = root / "test" / inside.parent
    while not any(folder.glob("test_*.py")) and folder != room:
        folder = folder.parent
    return naming + sorted(path for path in folder.glob("test_*.py") if path not in naming)


def run(
    quick: bool, where: dict, only: tuple[str, ...] = TABLES, sample: int = 300, seed: int = 0
) -> Part:
    """A sample of the faults in the rooms `only`, by a seed. quick: two faults."""
    files = [path for room in only for path in sorted((_ROOT / "gp_mapping" / room).rglob("*.py"))]
    faults = [fault for path in files for fault in faults_in(path)]
    chosen = random.Random(seed).sample(faults, min(2 if quick else sample, len(faults)))

    noticed = dict.fromkeys(only, 0)
    count = dict.fromkeys(only, 0)
    left = Table("Faults that were not noticed", [("place", ""), ("fault", "")])
    with tempfile.TemporaryDirectory() as folder:
        for i, (fault, seen) in enumerate(judged(chosen, Path(folder))):
            room = fault.file.relative_to(_ROOT).parts[1]
            count[room] += 1
            noticed[room] += seen
            place = f"{fault.file.relative_to(_ROOT)}:{fault.line}:{fault.column}"
            print(
                f"{i + 1} of {len(chosen)}: {place}, {fault.what}: {'noticed' if seen else 'NOT NOTICED'}",
                file=sys.stderr,
                flush=True,
            )
            if not seen:
                left.add(place, fault.what)

    table = Table(
        "Small faults that the mirrored tests notice",
        [("room", ""), ("faults", "d"), ("noticed", "d")],
        notes=[f"A sample of {len(chosen)} of {len(faults)} places, seed {seed}."],
    )
    for room in only:
        table.add(room, count[room], noticed[room])
    share = 100.0 * sum(noticed.values()) / len(chosen)
    return Part(
        "mutants", [Goal("faults noticed", share, low=90.0, unit="%")], [table, left], where
    )


def judged(faults: list[Fault], folder: Path) -> Iterator[tuple[Fault, bool]]:
    """Each fault as it is done, and whether a mirrored test fails with it; in copies of the tree, in an empty folder.

    One copy for each core that this process may use.
    """
    trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
    jobs = min(len(faults), len(os.sched_getaffinity(0)))
    first = folder / "tree0"
    shutil.copytree(
        _ROOT,
        first,
        symlinks=True,
        # *.pyc.*: bytecode that another process is writing
        ignore=shutil.ignore_patterns(".git", ".venv", "out", "build", "*.pyc.*"),
    )
    compileall.compile_dir(first / "gp_mapping", quiet=1)  # what has no bytecode that is its own
    trees.put(first)
    for i in range(1, jobs):
        trees.put(shutil.copytree(first, folder / f"tree{i}", symlinks=True))
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_noticed, fault, trees) for fault in faults]):
            yield done.result()


def _noticed(fault: Fault, trees: queue.SimpleQueue[Path]) -> tuple[Fault, bool]:
    """The fault, and whether a mirrored test fails with it, in one of the trees."""
    tree = trees.get()
    try:
        return fault, _fails(fault, tree)
    finally:
        trees.put(tree)


def _fails(fault: Fault, tree: Path) -> bool:
    """Whether a mirrored test fails with it in that copy, which is afterwards as it was."""
    file = tree / fault.file.relative_to(_ROOT)
    before = file.read_text(encoding="utf-8")
    tests = [tree / path.relative_to(_ROOT) for path in mirrored_tests(fault.file)]
    _write(file, mutated(fault))
    try:
        limits = [f"faulthandler_timeout={_HANGS}", "faulthandler_exit_on_timeout=true"]
        done = warm.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                *(word for limit in limits for word in ("-o", limit)),
                *map(str, tests),
            ],
            cwd=tree,
            timeout=_LONGEST,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(tree)},
        )
        return done.returncode not in (0, 5)  # 5: there was no test
    except subprocess.TimeoutExpired:
        return True
    finally:
        _write(file, before)


def _write(file: Path, text: str) -> None:
    """Text in place of a module; by time and size its bytecode may pass for that of another text, so it goes."""
    for bytecode in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        bytecode.unlink()
    file.write_text(text, encoding="utf-8")

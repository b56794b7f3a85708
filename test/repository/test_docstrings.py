"""Docstrings that tools read: all arguments of public functions of three and more, and all errors."""

import ast
import functools
import re
from pathlib import Path

import pytest

from benchmark.repository.house import PACKAGE, SAME_AS

ROOT = Path(__file__).resolve().parents[2] / PACKAGE
# Rooms that are complete; a room that is not here may be behind.
ROOMS = [
    "analysis",
    "commands",
    "core",
    "fleet",
    "intake",
    "mapping",
    "offline",
    "planning",
    "recording",
    "ros",
    "runtime",
    "settings",
    "sim",
    "store",
]
_ENTRY = re.compile(r"^(?: {4})\*{0,2}(\w+)(?: \([^)]*\))?:", re.MULTILINE)


def functions(path: Path) -> list[tuple[str, ast.FunctionDef, str]]:
    """Each function of a file as (its class or "", its node, its docstring or "")."""
    return _functions(path, path.stat().st_mtime_ns)


@functools.cache
def _functions(path: Path, _changed: int) -> list[tuple[str, ast.FunctionDef, str]]:
    """As `functions`: several checks read each file."""

    def inside(node, owner):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield owner, child
                yield from inside(child, "")
            else:
                yield from inside(child, child.name if isinstance(child, ast.ClassDef) else owner)

    found = inside(ast.parse(path.read_text(encoding="utf-8")), "")
    return [(owner, node, ast.get_docstring(node) or "") for owner, node in found]


def arguments(node) -> set[str]:
    return {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}


def entries(words: str) -> set[str]:
    """Names that a docstring's `Args:` explains."""
    found = re.search(r"^Args:\n((?:(?: {4}.*)?\n?)*)", words, re.MULTILINE)
    return set(_ENTRY.findall(found[1])) if found else set()


def told(files) -> dict[tuple[str, str], set[str]]:
    """(class, function) -> arguments that its docstring explains; of a file's own functions ""."""
    known = {}
    for path in files:
        for owner, node, words in functions(path):
            known.setdefault((owner, node.name), set()).update(entries(words))
    return known


def lacking(path: Path, known: dict) -> list[str]:
    """What the docstrings of a file leave out, as sentences."""
    here, faults = told([path]), []
    for owner, node, words in functions(path):
        explained = entries(words)
        where = f"{path.name}:{node.lineno} {node.name}"
        wanted = arguments(node)
        if gone := sorted(
            explained - wanted - {a.arg for a in (node.args.vararg, node.args.kwarg) if a}
        ):
            faults.append(f"{where}: no argument is called {', '.join(gone)}")

        for home, method, own in SAME_AS.findall(words):
            keys = [(home, method)] if home else [(owner, own), ("", own)]
            by = known if home else here
            found = [by[key] for key in keys if key in by]
            if not found and len(wanted) > 1:
                faults.append(f"{where}: there is no {home or owner}.{method or own}")
            explained |= set().union(*found)

        if node.name.startswith("_") or len(wanted) < 3:
            continue
        left = sorted(wanted - explained - {"self", "cls"})
        if left:
            faults.append(f"{where}: no word about {', '.join(left)}")
    return faults


def unsaid_errors(path: Path) -> list[str]:
    """What a public function raises itself and its docstring does not name, as sentences."""

    def raised(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
                yield ast.unparse(child.exc.func).rpartition(".")[2]
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from raised(child)

    faults = []
    for _, node, words in functions(path):
        if node.name.startswith("_"):
            continue
        left = sorted({name for name in raised(node) if name not in words})
        if left:
            faults.append(f"{path.name}:{node.lineno} {node.name}: no word about {', '.join(left)}")
    return faults


@pytest.fixture(scope="module")
def known():
    """Arguments that the docstrings of all rooms explain."""
    return told(sorted(ROOT.rglob("*.py")))


@pytest.mark.parametrize("room", ROOMS)
def test_arguments_and_errors_are_explained(room, known):
    """Under Args, or under those of the function that "As Class.function" names (an override)."""
    files = sorted((ROOT / room).rglob("*.py"))
    assert files, f"{room} is no room"
    faults = [line for path in files for line in (*lacking(path, known), *unsaid_errors(path))]
    assert not faults, f"{room}: " + "; ".join(faults)


def test_an_error_without_a_word_is_noticed(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(
        "def f(a):\n"
        '    """One.\n\n    Raises:\n        ValueError: a is 0.\n    """\n'
        "    if a:\n        raise ValueError(a)\n    raise\n"
        "def g(a):\n"
        '    """Two."""\n'
        "    with a:\n        raise KeyError('a')\n"
        "def h(a):\n"
        "    def i():\n"
        "        raise KeyError('a')\n"
        "    raise a\n"
    )
    assert unsaid_errors(path) == [
        "some.py:10 g: no word about KeyError",
        "some.py:15 i: no word about KeyError",
    ]


def test_what_is_left_out_is_noticed(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(
        "class A:\n"
        "    def f(self, a, b):\n"
        '        """One.\n\n        Args:\n            a: metres.\n            b: seconds,\n'
        '                c: not an entry.\n\n        Returns:\n            d: no argument.\n        """\n'
        "class B(A):\n"
        "    def f(self, a, b):\n"
        '        """As A.f."""\n'
        "    def g(self, a, b, c, d):\n"
        '        """As `f`, and more.\n\n        Args:\n            d: kelvin.\n        """\n'
        "    def h(self, a, b):\n"
        '        """As C.f."""\n'
        "    def i(self, a):\n"
        "        pass\n"
        "    def _j(self, b):\n"
        '        """Three.\n\n        Args:\n            a: metres.\n        """\n'
    )
    assert lacking(path, told([path])) == [
        "some.py:16 g: no word about a, b, c",
        "some.py:22 h: there is no C.f",
        "some.py:22 h: no word about a, b",
        "some.py:26 _j: no argument is called a",
    ]

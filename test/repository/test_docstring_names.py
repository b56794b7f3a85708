"""Docstrings name what is there: arguments, attributes and, in backticks, names of the code."""

import ast
import keyword
import re
from pathlib import Path

import pytest

from benchmark.repository.house import PACKAGE

ROOT = Path(__file__).resolve().parents[2] / PACKAGE
PATHS = sorted(ROOT.rglob("*.py"))
# Packages of other people, and a name that stands for one of a user's own.
_ELSEWHERE = {"rosbags", "my_models", "torch", "__msgtype__"}
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def words_of(tree) -> set[str]:
    """All names that the code of a file uses, and words in its strings, docstrings apart."""
    names: set[str] = set()
    texts = {id(node.body[0].value) for node in ast.walk(tree) if _has_words(node)}
    for node in ast.walk(tree):
        for field in ("name", "arg", "attr", "id", "asname"):
            names.add(getattr(node, field, None) or "")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            names.update(re.findall(r"\w+", node.value))
    return names


def _has_words(node) -> bool:
    return isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None


def entries(words: str, title: str) -> set[str]:
    """Names of the entries in a section of a docstring."""
    found = re.search(rf"^{title}:\n((?:(?: {{4}}.*)?\n?)*)", words, re.MULTILINE)
    return set(re.findall(r"^ {4}\*{0,2}(\w+):", found[1], re.MULTILINE)) if found else set()


def arguments(node) -> set[str]:
    """Names of a function's arguments; of a class those of __init__, or its fields."""
    if isinstance(node, ast.ClassDef):
        inits = [n for n in node.body if getattr(n, "name", "") == "__init__"]
        fields = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
        return fields.union(*map(arguments, inits))
    a = node.args
    rest = [each for each in (a.vararg, a.kwarg) if each is not None]
    return {each.arg for each in (*a.posonlyargs, *a.args, *a.kwonlyargs, *rest)}


def untrue(tree, here: set[str], known: set[str]) -> list[str]:
    """Names in the docstrings of a file that are not there, as sentences."""
    faults = []
    for node in ast.walk(tree):
        if not _has_words(node):
            continue
        words = ast.get_docstring(node)
        where = f"{getattr(node, 'name', 'module')}:{getattr(node, 'lineno', 1)}"
        for name in re.findall(r"`([A-Za-z_]\w*)`", words):
            if name not in known and name not in _ELSEWHERE:
                faults.append(f"{where}: no code knows `{name}`")
        if isinstance(node, ast.Module):
            continue
        bases = isinstance(node, ast.ClassDef) and node.bases
        for name in sorted(entries(words, "Args") - arguments(node)):
            # a class without __init__ has that of its base
            if not bases or "__init__" in {getattr(n, "name", "") for n in node.body}:
                faults.append(f"{where}: {name} is no argument")
        for name in sorted(entries(words, "Attributes") - here):
            if not bases or name not in known:
                faults.append(f"{where}: {name} is no attribute")
    return faults


@pytest.fixture(scope="module")
def trees():
    """Each file's code; every process of a run collects this file, and one of them asks for it."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in PATHS}


@pytest.fixture(scope="module")
def words(trees):
    """Names in the code of each file."""
    return {path: words_of(tree) for path, tree in trees.items()}


@pytest.fixture(scope="module")
def known(words):
    """Names in the code of all files, of files, and of Python itself."""
    return set().union(*words.values(), keyword.kwlist, (path.stem for path in PATHS))


@pytest.mark.parametrize("room", sorted({path.relative_to(ROOT).parts[0] for path in PATHS}))
def test_docstrings_name_what_is_there(room, trees, words, known):
    faults = [
        f"{path.name} {line}"
        for path, tree in trees.items()
        if path.relative_to(ROOT).parts[0] == room
        for line in untrue(tree, words[path], known)
    ]
    assert not faults, "; ".join(faults)


def test_what_is_not_there_is_noticed():
    tree = ast.parse(
        "class A:\n"
        '    """One.\n\n    Attributes:\n        here: m.\n        gone: s.\n    """\n'
        "    def __init__(self):\n        self.here = 1\n"
        "    def f(self, a):\n"
        '        """As `g`, unlike `here`.\n\n        Args:\n            a: m.\n            b: s.\n        """\n'
    )
    assert untrue(tree, words_of(tree), words_of(tree)) == [
        "A:1: gone is no attribute",
        "f:10: no code knows `g`",
        "f:10: b is no argument",
    ]

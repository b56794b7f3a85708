"""Imports go one way only, the core stays pure, files hold one idea: read from the syntax trees."""

import ast
import functools
import itertools
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gp_mapping"
FILES = sorted(PACKAGE.rglob("*.py"))
ROS = {
    "rclpy",
    "tf2_ros",
    "tf2_py",
    "tf2_geometry_msgs",
    "launch",
    "launch_ros",
    "ament_index_python",
    "rosidl_runtime_py",
    "builtin_interfaces",
    "rcl_interfaces",
    "lifecycle_msgs",
    "rosgraph_msgs",
    "std_msgs",
    "std_srvs",
    "geometry_msgs",
    "sensor_msgs",
    "nav_msgs",
    "visualization_msgs",
    "diagnostic_msgs",
    "grid_map_msgs",
    "tf2_msgs",
    "rosbag2_py",
}
# Which of our own rooms each may import besides itself, ground first. The package's __init__ is the public face.
GROUND = {"errors", "garbage", "gradients", "settings", "threads"}
MODELS = GROUND | {"core"}
MAPS = MODELS | {"mapping", "planning"}
DATA = GROUND | {"core", "intake", "recording"}
FINISHED = MAPS | DATA | {"analysis", "sim", "store"}
ROOMS = {
    "errors": set(),
    "garbage": set(),
    "gradients": set(),
    "threads": set(),
    "settings": {"errors"},
    "core": GROUND,
    "__init__": MODELS,
    "sim": MODELS | {"mapping"},
    "intake": MODELS,
    "mapping": MODELS,
    "planning": MODELS | {"mapping"},
    "recording": DATA,
    "analysis": MAPS | DATA,
    "store": MAPS,
    "offline": MODELS,
    "runtime": FINISHED,
    "fleet": FINISHED | {"offline"},
    "ros": FINISHED | {"runtime"},
    "commands": FINISHED | {"runtime", "ros", "offline", "fleet"},
    "cli": GROUND | {"commands"},
}
# The ground is plain: a launch file, tab completion and --help read it and start at once.
PLAIN = {
    "__future__",
    "collections",
    "dataclasses",
    "difflib",
    "importlib",
    "itertools",
    "math",
    "pathlib",
    "re",
    "textwrap",
    "typing",
    "yaml",
}
# The core's whole world. Not among them on purpose: os, io, pathlib, threading, datetime, logging, random, subprocess.
CORE = {
    "torch",
    "__future__",
    "abc",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "numbers",
    "operator",
    "types",
    "typing",
    "warnings",  # a word to who calls a map from Python; commands and nodes are silent about them
    "weakref",
}
# Bounded work needs a stopwatch; it is not a clock: nothing that comes out depends on what time it is.
STOPWATCH = {"time.perf_counter"}
# The one file of the core that hands numbers to another library; it says why.
ARRAYS = PACKAGE / "core" / "device" / "sparse_product.py"


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def imports_of(path: Path) -> set[str]:
    """Full names of what a file imports, at any depth: 'a.b' for `import a.b` and for `from a import b`."""
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{path}: relative import; write the full name, so that the layers can be read"
            )
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imports_in(files):
    """Each file with each name that it imports."""
    return ((path, name) for path in files for name in imports_of(path))


def nodes_in(files):
    """Each file with each node of its tree."""
    return ((path, node) for path in files for node in ast.walk(tree_of(path)))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def in_each_folder(paths):
    """A case for each folder, with its files: to begin a thousand cases takes longer than what they look at."""
    paths = sorted(paths, key=lambda path: path.parent)
    folders = {of: [*files] for of, files in itertools.groupby(paths, lambda path: path.parent)}
    return pytest.mark.parametrize("files", folders.values(), ids=map(shown, folders))


@in_each_folder(FILES)
def test_imports_keep_to_the_layers(files):
    for path, name in imports_in(files):
        room = room_of(path)
        assert room in ROOMS, (
            f"{shown(path)} is in no known room; docs/how_it_works.md and this test say where code lives"
        )
        allowed = ROOMS[room] | {room}
        parts = name.split(".")
        if parts[0] == "gp_mapping":
            target = parts[1] if len(parts) > 1 else ""
            if not target or not (
                (PACKAGE / target).is_dir() or (PACKAGE / f"{target}.py").is_file()
            ):
                target = "core"  # `from gp_mapping import Samples`: the public face, which re-exports the core
                assert room != "core", (
                    f"{shown(path)} imports {name}: inside the core, import from the module itself"
                )
            assert target in allowed, (
                f"{shown(path)} imports {name}; {room} may import {sorted(allowed)}"
            )
        assert parts[0] not in ROS or room == "ros", (
            f"{shown(path)} imports {name}; only gp_mapping/ros may"
        )


@in_each_folder(p for p in FILES if room_of(p) == "core")
def test_core_is_torch_and_harmless_modules(files):
    for path, name in imports_in(files):
        first = name.split(".")[0]
        assert first in CORE | {"gp_mapping"} or name in STOPWATCH or path == ARRAYS, (
            f"{shown(path)} imports {name}, expected {sorted(CORE | STOPWATCH)}"
        )
    for path, node in nodes_in(files):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "open", "input", "eval", "exec", "__import__"), (
                f"{shown(path)}:{node.lineno} calls {node.func.id}; the core prints, reads and writes nothing"
            )
        if isinstance(node, ast.Attribute):
            is_io = node.attr in ("numpy", "from_numpy", "save", "load") and _is_torch_io(node)
            assert not is_io or (path == ARRAYS and node.attr == "numpy"), (
                f"{shown(path)}:{node.lineno} uses {ast.unparse(node)}; the core is torch only, without files"
            )


def _is_torch_io(node: ast.Attribute) -> bool:
    return node.attr == "numpy" or (isinstance(node.value, ast.Name) and node.value.id == "torch")


PYTHON = [
    p
    for folder in ("gp_mapping", "test", "benchmark", "launch", "requirements")
    for p in sorted((ROOT / folder).rglob("*.py"))
]


LONG, TOO_LONG = 400, 600  # lines: one idea, or two?


@in_each_folder(PYTHON)
def test_a_file_holds_one_idea(files):
    """A class is never cut in pieces to meet a length; a file of 400 lines is looked at, one of 600 holds two ideas."""
    for path in files:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= TOO_LONG, (
            f"{shown(path)} has {lines} lines, expected at most {TOO_LONG}: split it by what it does"
        )
        if lines > LONG:
            warnings.warn(f"{shown(path)} has {lines} lines: one idea, or two?", stacklevel=1)


@in_each_folder(p for p in FILES if room_of(p) in ("errors", "settings"))
def test_the_ground_is_plain(files):
    for path, name in imports_in(files):
        assert name.split(".")[0] in PLAIN | {"gp_mapping"}, (
            f"{shown(path)} imports {name}; expected {sorted(PLAIN)}"
        )


def test_every_room_is_a_package():
    for path in FILES:
        assert (path.parent / "__init__.py").exists(), (
            f"{shown(path.parent)} needs an __init__.py to be installed"
        )


@pytest.mark.parametrize("folder", sorted({p.parent for p in PYTHON}), ids=shown)
def test_a_folder_is_found_through_at_a_glance(folder):
    files = [p.name for p in folder.glob("*.py") if p.name != "__init__.py"]
    assert len(files) <= 15, (
        f"{shown(folder)} holds {len(files)} files, expected 15 at the most: a room in a room"
    )


def test_all_json_is_json():
    """Python writes NaN and infinities as bare words, which nothing else reads: who writes says what comes instead."""
    for path in [*FILES, *sorted((ROOT / "benchmark").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "json.dump" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.dump", "json.dumps"):
                assert any(word.arg == "allow_nan" for word in node.keywords), (
                    f"{shown(path)}:{node.lineno}: expected allow_nan=False"
                )

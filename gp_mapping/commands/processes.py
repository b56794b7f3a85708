"""Child processes that end with their parent, whatever happens to it.

Each writes a log file, whose last lines an error message can show.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

from gp_mapping.errors import UsageError

__all__ = [
    "NodeProcess",
    "Signals",
    "check_domain",
    "die_with_parent",
    "domain_of_environment",
    "node_environment",
    "python_path",
    "ros_arguments",
    "ros_client",
]

_LAST_DOMAIN = 232  # beyond, DDS has no ports
_LAST_SAFE = 101  # beyond, its ports are among those that systems give to anybody


def ros_arguments(**parameters) -> list[str]:
    """Return `--ros-args -p name:=value …`; `__` in a name stands for the dot of a group."""

    def text(value):
        """A value as YAML: a string is quoted, so that '', '12' or 'a, b' stay strings."""
        if isinstance(value, float) and not math.isfinite(value):
            return ".nan" if math.isnan(value) else ".inf" if value > 0.0 else "-.inf"
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    words = [
        word
        for name, value in parameters.items()
        for word in ("-p", f"{name.replace('__', '.')}:={text(value)}")
    ]
    return ["--ros-args", *words]


def ros_client(module: str, name: str) -> type:
    """Import a class of gp_mapping.ros.clients, which needs ROS, only when a command asks for it.

    Args:
        module: module in gp_mapping.ros.clients.
        name: class in it.

    Raises:
        UsageError: ROS is not installed, or not sourced.
    """
    try:
        return getattr(importlib.import_module(f"gp_mapping.ros.clients.{module}"), name)
    except ImportError as error:
        raise UsageError(
            f"this needs rclpy and ROS 2 messages ({error}); `make demo` installs them from "
            "requirements/ros.txt, or source a ROS 2 installation"
        ) from error


def check_domain(number: int | None) -> None:
    """Check that a --domain-id, if one is given, has ports of its own.

    Raises:
        UsageError: it has none.
    """
    if number is not None and not 0 <= number <= _LAST_SAFE:
        raise UsageError(f"--domain-id {number}: expected 0 to {_LAST_SAFE}")


def domain_of_environment() -> int:
    """Return ROS_DOMAIN_ID of the environment, 0 where it has none.

    Raises:
        UsageError: it is no number, or none that DDS has ports for.
    """
    text = os.environ.get("ROS_DOMAIN_ID") or "0"
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if not 0 <= number <= _LAST_DOMAIN:
        raise UsageError(f"ROS_DOMAIN_ID is {text!r}, expected a number from 0 to {_LAST_DOMAIN}")
    return number


def node_environment(domain: int, folder: Path) -> dict[str, str]:
    """Return the environment variables of this package's nodes, installed or not.

    Args:
        domain: ROS_DOMAIN_ID.
        folder: parent of the folder of their ROS logs.
    """
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_LOG_DIR": str(folder / "ros_log"),
        "PYTHONUNBUFFERED": "1",
        # several processes share the machine; matrices of a few hundred rows gain nothing from more
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONPATH": python_path(),
    }


def python_path() -> str:
    """Return a PYTHONPATH with which a child finds this package, whether or not it is installed."""
    source = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))


class Signals:
    """Remember Ctrl-C and SIGTERM until `check` is called at a safe moment.

    Raised at once, inside rclpy's C++, they would be lost.
    """

    def __init__(self):
        self._number = None
        self._previous = {
            n: signal.signal(n, self._arrived) for n in (signal.SIGINT, signal.SIGTERM)
        }

    def _arrived(self, number, _frame) -> None:
        self._number = number

    def check(self) -> None:
        """Do what a signal that has come asks for: unwinding ends the children.

        Raises:
            KeyboardInterrupt: after SIGINT.
            SystemExit: after SIGTERM, with the shell's code.
        """
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number == signal.SIGTERM:
            raise SystemExit(143)  # 128 + SIGTERM, as a shell reports it

    def restore(self) -> None:
        """Put the previous signal handlers back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def die_with_parent() -> None:
    """Ask Linux to send this process SIGTERM when its parent is gone, even by SIGKILL.

    Elsewhere nothing is done: only an orderly end of the parent stops its children.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class NodeProcess:
    """`python -m module arguments` with its output in a log file; a context manager that ends it.

    Args:
        name: for messages and as prefix of its last lines.
        module: run as __main__.
        arguments: command-line words.
        log: file of its stdout and stderr.
        environment: variables in addition to this process's own.
        patience: s between SIGINT, SIGTERM and SIGKILL at the end.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: list[str],
        log: Path,
        environment: dict[str, str],
        patience: float = 5.0,
    ):
        self.name, self.log, self.patience = name, log, patience
        self._file = log.open("wb")
        # in its own session: Ctrl-C reaches the parent only, which then ends its children in order
        self._popen = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=self._file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **environment},
            preexec_fn=die_with_parent,
        )

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *_) -> None:
        self.stop()
        self._file.close()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def code(self) -> int | None:
        """Exit code; None while the process runs."""
        return self._popen.poll()

    def processor_seconds(self) -> float:
        """Return the processor time of all its threads so far, s.

        NaN where that cannot be read: not on Linux, or the process has ended.
        """
        try:
            # the name, in parentheses, may hold spaces: fields are counted after the last ")"
            fields = (
                Path(f"/proc/{self.pid}/stat")
                .read_text(encoding="utf-8")
                .rpartition(")")[2]
                .split()
            )
        except OSError:
            return float("nan")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime

    def stop(self) -> int:
        """Send SIGINT, SIGTERM, SIGKILL, `patience` apart, until it ends; returns the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self._popen.poll() is None:
                self._popen.send_signal(number)
                try:
                    self._popen.wait(self.patience)
                except subprocess.TimeoutExpired:
                    continue
        return self._popen.wait()

    def last_lines(self, count: int = 15) -> str:
        """Return the last `count` lines of its log, each with its name in front."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {self.name} | {line}" for line in lines[-count:])

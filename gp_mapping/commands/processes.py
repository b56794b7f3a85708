"""Child processes that end with their parent, whatever happens to it, and whose last words can be shown."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from gp_mapping.errors import UsageError

__all__ = [
    "NodeProcess",
    "Signals",
    "die_with_parent",
    "node_environment",
    "python_path",
    "ros_arguments",
    "ros_client",
]


def ros_arguments(**parameters) -> list[str]:
    """`--ros-args -p name:=value …`; `__` in a name stands for the dot of a group."""

    def text(value):  # as YAML: a string is quoted, so that '', '12' or 'a, b' stay strings
        return json.dumps(value, ensure_ascii=False)

    words = [
        word
        for name, value in parameters.items()
        for word in ("-p", f"{name.replace('__', '.')}:={text(value)}")
    ]
    return ["--ros-args", *words]


def ros_client(module: str, name: str) -> type:
    """A class of ros/clients, imported when it is needed: the command line works without ROS, and only parts need one.

    Raises:
        UsageError: ROS is not here.
    """
    try:
        return getattr(importlib.import_module(f"gp_mapping.ros.clients.{module}"), name)
    except ImportError as error:
        raise UsageError(
            f"this needs rclpy and ROS 2 messages ({error}); `make demo` installs them from "
            "requirements/ros.txt, or source a ROS 2 installation"
        ) from error


def node_environment(domain: int, folder: Path) -> dict[str, str]:
    """For nodes of ours in that ROS_DOMAIN_ID, with their logs in a folder; works without an installation, too."""
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_LOG_DIR": str(folder / "ros_log"),
        "PYTHONUNBUFFERED": "1",
        # several processes share the machine, and matrices of a few hundred rows gain nothing from more
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONPATH": python_path(),
    }


def python_path() -> str:
    """PYTHONPATH of a process that is to find this package, whether or not it is installed."""
    source = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))


class Signals:
    """Ctrl-C and SIGTERM as a question asked at safe moments: raised inside rclpy's C++ they would be lost."""

    def __init__(self):
        self._number = None
        self._previous = {
            n: signal.signal(n, self._arrived) for n in (signal.SIGINT, signal.SIGTERM)
        }

    def _arrived(self, number, _frame) -> None:
        self._number = number

    def check(self) -> None:
        """Raise what unwinds the stack, which ends the children."""
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number == signal.SIGTERM:
            raise SystemExit(143)

    def restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def die_with_parent() -> None:
    """Linux: SIGTERM when the parent is gone, even by SIGKILL. Elsewhere only an orderly end of the parent stops us."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class NodeProcess:
    """`python -m module arguments`, with its output in a log file; a context manager that always ends it.

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
        # a session of its own: Ctrl-C reaches the parent only, which then ends its children in order
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
        return self._popen.pid

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return self._popen.poll()

    def processor_seconds(self) -> float:
        """Processor time of all its threads so far (Linux, while it runs); NaN where that cannot be read."""
        try:
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
        """SIGINT, then SIGTERM, then SIGKILL, each after `patience` seconds; the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self._popen.poll() is None:
                self._popen.send_signal(number)
                try:
                    self._popen.wait(self.patience)
                except subprocess.TimeoutExpired:
                    continue
        return self._popen.wait()

    def last_lines(self, count: int = 15) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {self.name} | {line}" for line in lines[-count:])

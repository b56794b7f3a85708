"""Child processes that end with their parent, whatever happens to it, and whose last words can be shown."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["NodeProcess", "ros_arguments"]


def ros_arguments(**parameters) -> list[str]:
    """`--ros-args -p name:=value …`; `__` in a name stands for the dot of a group."""
    def text(value):  # as YAML: a string is quoted, so that '', '12' or 'a, b' stay strings
        return json.dumps(value, ensure_ascii=False)

    words = [word for name, value in parameters.items() for word in ("-p", f"{name.replace('__', '.')}:={text(value)}")]
    return ["--ros-args", *words]


def _die_with_parent() -> None:
    """Linux: SIGTERM when the parent is gone, even by SIGKILL. Elsewhere only an orderly end of the parent stops us."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class NodeProcess:
    """`python -m module arguments`, with its output in a log file; a context manager that always ends it."""

    def __init__(self, name: str, module: str, arguments: list[str], log: Path, environment: dict[str, str]):
        self.name, self.log = name, log
        self._file = log.open("wb")
        # a session of its own: Ctrl-C reaches the parent only, which then ends its children in order
        self._popen = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=self._file,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                       env={**os.environ, **environment}, preexec_fn=_die_with_parent)

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
            fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return float("nan")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime

    def stop(self, patience: float = 5.0) -> int:
        """SIGINT, then SIGTERM, then SIGKILL, each after `patience` seconds; the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self._popen.poll() is None:
                self._popen.send_signal(number)
                try:
                    self._popen.wait(patience)
                except subprocess.TimeoutExpired:
                    continue
        return self._popen.wait()

    def last_lines(self, count: int = 15) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {self.name} | {line}" for line in lines[-count:])

"""Node processes by fork of one that has imported everything: 200 starts cost seconds each, and not a minute.

A child is a process like any other: it is killed, it has its own memory, threads and DDS participant, and nothing of
ROS has begun where it is forked.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["ForkedProcess"]

MODULE = "gp_mapping.ros.mapping_node"
_server: list[subprocess.Popen] = []


def _ask(**question):
    """One line to the server, started at the first one, and its answer."""
    if not _server:
        _server.append(subprocess.Popen([sys.executable, "-m", "benchmark.faults.forked"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True))
    server = _server[0]
    server.stdin.write(json.dumps(question) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


class ForkedProcess:
    """mapping_node with these arguments; the interface of gp_mapping.commands.processes.NodeProcess."""

    def __init__(self, name: str, arguments: list[str], log: Path, environment: dict[str, str]):
        self.name, self.log = name, log
        self.pid: int = _ask(arguments=arguments, log=str(log), environment=environment)

    def __exit__(self, *_) -> None:
        for number in (signal.SIGINT, signal.SIGKILL):
            end = time.monotonic() + 10.0
            if self.code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            while self.code is None and time.monotonic() < end:
                time.sleep(0.01)

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return _ask(pid=self.pid)

    def last_lines(self, count: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])


def _become(arguments: list[str], log: str, environment: dict[str, str]) -> int:
    """In the child: a session, a log and an environment of its own, and then the node."""
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(environment)
    sys.argv = [MODULE, *arguments]
    return importlib.import_module(MODULE).main(sys.argv)


def _serve() -> None:
    """Fork a node for each question with arguments; of one with a pid, say how that ended, if it has."""
    importlib.import_module(MODULE)
    importlib.import_module("gp_mapping.store.export")
    for line in sys.stdin:
        question = json.loads(line)
        if "pid" in question:
            try:
                pid, status = os.waitpid(question["pid"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:  # asked again after its end
                answer = -signal.SIGKILL
        else:
            answer = os.fork()
            if not answer:
                try:
                    os._exit(_become(**question))
                finally:
                    os._exit(70)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()

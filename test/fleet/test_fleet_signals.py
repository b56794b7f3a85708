"""Ctrl-C and SIGTERM while workers come up: one line, the right code, nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace

import pytest
from fleet_bags import write_fleet

from benchmark import warm
from gp_mapping.commands.fleet.arguments import connected_engine

pytest.importorskip("distributed")


def _members(group: int) -> list[int]:
    """Processes of a process group."""
    found = subprocess.run(
        ["ps", "-eo", "pgid=,pid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in found.splitlines()]
    return [int(pid) for pgid, pid, stat in rows if int(pgid) == group and not stat.startswith("Z")]


@pytest.mark.parametrize(
    "number, code, said, folder",
    [
        (signal.SIGINT, 130, "gp-mapping map: interrupted", "t"),
        (signal.SIGTERM, 143, "gp-mapping map: ended by SIGTERM", "t" * 120),
    ],
    ids=["SIGINT", "SIGTERM, and a folder too long for the name of a socket"],
)
def test_an_end_while_workers_start(tmp_path, number, code, said, folder):
    """As a terminal sends it: to the command and all that it has begun."""
    bags, scratch = write_fleet(tmp_path, 2), tmp_path / folder
    # a run that was killed has left it: nobody holds its lock
    (scratch / ".gp_mapping_fleet.7-0.partial").mkdir(parents=True)
    (scratch / ".gp_mapping_fleet.7-0.partial" / ".lock").touch()
    words = [
        sys.executable,
        "-m",
        "gp_mapping.cli",
        "map",
        *bags,
        "--workers",
        "2",
        "--output",
        str(tmp_path / "out"),
    ]
    command = warm.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(scratch)},
    )
    try:
        end = time.monotonic() + 120.0
        while len(_members(command.pid)) < 3:  # the first worker is being started
            assert command.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        (os.killpg if number == signal.SIGINT else os.kill)(command.pid, number)
        text = command.communicate(timeout=120.0)[0]
        assert command.returncode == code and text.strip() == said
        assert not list(scratch.iterdir()) and not (tmp_path / "out").exists()
        while _members(command.pid):
            assert time.monotonic() < end, "workers are left"
            time.sleep(0.1)
    finally:
        if _members(command.pid):
            os.killpg(command.pid, signal.SIGKILL)


def test_cells_of_a_run_that_was_killed_go_with_the_next_one(tmp_path):
    left = tmp_path / ".cells.7-0.partial"
    left.mkdir()
    (left / ".lock").touch()
    args = Namespace(bags=["a"], workers=1, scheduler=None, calibration_cells=100_000)
    with connected_engine(args, tmp_path) as (_, keep):
        assert list(tmp_path.iterdir()) == [keep]
    assert not list(tmp_path.iterdir())

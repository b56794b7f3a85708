"""A folder of one process: others leave it alone while that is alive, and remove it afterwards."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from gp_mapping.store.scratch import own_folder
from gp_mapping.store.scratch.own_folder import OwnFolder, remove_left

HOLDER = """
import sys, time
from pathlib import Path
from gp_mapping.store.scratch.own_folder import OwnFolder
folder = OwnFolder(Path(sys.argv[1]), "cells")
(folder.path / "full").write_text("of something")
print("there", flush=True)
time.sleep(600)
"""


def test_it_goes_when_its_process_has_been_killed_and_not_before(tmp_path):
    held = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert held.stdout.readline() == "there\n"
        (there,) = tmp_path.iterdir()
        mine = OwnFolder(tmp_path, "cells")
        assert there.is_dir() and mine.path.is_dir()
    finally:
        os.kill(held.pid, signal.SIGKILL)
        held.wait()
        held.stdout.close()
    again, other = OwnFolder(tmp_path, "cells"), OwnFolder(tmp_path, "tiles")
    assert set(tmp_path.iterdir()) == {mine.path, again.path, other.path}
    again.remove()
    del other
    assert set(tmp_path.iterdir()) == {mine.path}


def test_one_that_is_being_made_is_not_one_that_was_left(tmp_path, monkeypatch):
    """Another process looks just before the lock is held."""
    looked, flock = [], fcntl.flock

    def look_first(lock, how):
        if not looked:
            looked.append(how)
            assert remove_left(tmp_path, "tiles") == []
        flock(lock, how)

    monkeypatch.setattr(own_folder.fcntl, "flock", look_first)
    made = OwnFolder(tmp_path, "tiles")
    assert looked == [fcntl.LOCK_EX] and made.path.is_dir()
    assert remove_left(tmp_path, "tiles") == []


@pytest.mark.parametrize("holds", [(), (".lock.new",)])
def test_one_whose_maker_was_killed_in_the_middle_goes_when_it_is_old(tmp_path, holds):
    """It has no lock that anybody could hold."""
    for name in (".tiles.7-0.partial", ".tiles.7-1.partial"):
        (tmp_path / name).mkdir()
        for file in holds:
            (tmp_path / name / file).touch()
    os.utime(tmp_path / ".tiles.7-1.partial", (0.0, time.time() - 7200.0))
    assert remove_left(tmp_path, "tiles") == [".tiles.7-1.partial"]
    assert [p.name for p in tmp_path.iterdir()] == [".tiles.7-0.partial"]

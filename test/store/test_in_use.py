"""Which process saves into a folder, and that only one does at a time."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from gp_mapping.store.in_use import Claim, alone_in

HOLD = """
import sys, time
from pathlib import Path
from gp_mapping.store.in_use import Claim
claim = Claim()
print(claim.holder(Path(sys.argv[1])), flush=True)
time.sleep(60)
"""


def test_a_claim_is_seen_and_ends_with_its_process_however_that_ends(tmp_path):
    path = tmp_path / "autosave.gpm"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "0\n"
        claim = Claim()
        assert claim.holder(path) == other.pid
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait(10)
        other.stdout.close()
    assert claim.holder(path) == 0 and Claim().holder(path) == os.getpid()
    claim.release()
    assert not list(tmp_path.iterdir()) and Claim().holder(path) == 0


def test_a_claim_follows_the_map_and_needs_no_folder(tmp_path):
    claim, here, there = Claim(), tmp_path / "here" / "autosave.gpm", tmp_path / "autosave.gpm"
    assert claim.holder(here) == 0 and not here.parent.exists()
    here.parent.mkdir()
    assert claim.holder(here) == 0 and Claim().holder(here) == os.getpid()
    assert claim.holder(there) == 0 and Claim().holder(here) == 0
    assert Claim().holder(there) == os.getpid()


@pytest.mark.parametrize("fault", [None, RuntimeError])
def test_one_save_waits_for_another_in_the_same_folder(tmp_path, fault):
    folder, order = tmp_path / "new", []

    def save():
        with alone_in(folder):
            order.append("second")

    second = threading.Thread(target=save)
    try:
        with alone_in(folder):
            second.start()
            second.join(0.1)
            order.append("first")
            if fault is not None:
                raise fault
    except RuntimeError:
        pass
    second.join(10.0)
    assert order == ["first", "second"]


def test_a_folder_that_cannot_be_made_is_left_to_who_saves(tmp_path):
    (tmp_path / "file").write_text("")
    with alone_in(tmp_path / "file" / "folder"):
        pass
    assert Claim().holder(tmp_path / "file" / "autosave.gpm") == 0

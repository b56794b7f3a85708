"""A file is there whole or not at all, and while it is written others can tell."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from gp_mapping.store import atomic
from gp_mapping.store.atomic import hold, is_held, open_atomic, sync_folder, write_atomic


def test_a_file_takes_its_name_when_all_of_it_is_there(tmp_path):
    path = tmp_path / "map"
    assert write_atomic(path, b"before") == path
    with open_atomic(path) as file:
        file.write(b"after")
        (partial,) = set(tmp_path.iterdir()) - {path}
        assert path.read_bytes() == b"before"
        assert partial.name.startswith(f".map.{os.getpid()}-") and partial.suffix == ".partial"
        assert is_held(partial, os.getpid())
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"after"
    assert not is_held(path, os.getpid())


def test_of_what_is_interrupted_nothing_is_left(tmp_path):
    path = write_atomic(tmp_path / "map", b"before")
    with pytest.raises(RuntimeError), open_atomic(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"before"


@pytest.mark.parametrize("lasting", [False, True])
def test_what_is_to_outlive_a_power_cut_is_on_the_disk_before_it_has_its_name(
    tmp_path, monkeypatch, lasting
):
    synced, path = [], tmp_path / "map"
    kept = os.fsync

    def fsync(handle):
        synced.append((os.readlink(f"/proc/self/fd/{handle}"), path.exists()))
        kept(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with open_atomic(path, lasting=lasting) as file:
        file.write(b"all of it")
        partial = file.name
    assert synced == ([(partial, False), (str(tmp_path), True)] if lasting else [])
    assert path.read_bytes() == b"all of it"


def test_a_folder_that_cannot_be_opened_is_no_error(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    sync_folder(tmp_path / "none")
    sync_folder(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_another_process_can_tell_who_holds_a_file(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        assert not is_held(path, os.getpid()), "its process lives, and does not hold it"
        hold(file.fileno())
        asked = (
            "import sys; from pathlib import Path; from gp_mapping.store.atomic import is_held; "
        )
        asked += "print(is_held(Path(sys.argv[1]), 1))"
        told = subprocess.run([sys.executable, "-c", asked, path], capture_output=True, text=True)
        assert told.stdout.strip() == "True", told.stderr
        before = len(os.listdir("/proc/self/fd"))
        assert is_held(path, os.getpid()) and len(os.listdir("/proc/self/fd")) == before
    assert not is_held(path, os.getpid())
    assert is_held(tmp_path / "none", os.getpid()), "what cannot be read may be written"


def test_where_there_are_no_locks_the_process_is_asked_for(tmp_path, monkeypatch):
    def no_locks(*arguments):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    path = write_atomic(tmp_path / "file", b"")  # the lock is left out
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    assert is_held(path, os.getpid()) and not is_held(path, gone.pid)

    def forbidden(pid, signal):
        assert signal == 0, "it is asked for, not ended"
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert is_held(path, gone.pid), "a process of somebody else lives"


def test_a_file_that_was_removed_before_it_was_held_is_made_once_more(tmp_path, monkeypatch):
    kept, removed = atomic.hold, []

    def late(handle):
        if not removed:  # somebody takes it for left, before it is held
            removed.append(handle)
            next(tmp_path.iterdir()).unlink()
        kept(handle)

    monkeypatch.setattr(atomic, "hold", late)
    before = len(os.listdir("/proc/self/fd"))
    path = write_atomic(tmp_path / "map", b"whole")
    assert removed and path.read_bytes() == b"whole" and list(tmp_path.iterdir()) == [path]
    assert len(os.listdir("/proc/self/fd")) == before

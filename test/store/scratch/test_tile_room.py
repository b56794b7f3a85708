"""What tiles that come and go leave in the C library's heap goes back to the system."""

import ctypes
import platform
import threading
import time
import weakref

import pytest
import torch

from benchmark.timing import resident_bytes
from gp_mapping.core.stored import StoredState
from gp_mapping.store.scratch import tile_room
from gp_mapping.store.scratch.tile_room import TileRoom

MB = 1_000_000


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries do not keep what is freed"
)
def test_freed_memory_goes_back_while_tiles_go_to_the_disk(tmp_path):
    """Holes of 60 kB between what stays, as factors and memories of tiles leave them; 50 tiles, and they are gone."""
    ctypes.CDLL(None).malloc_trim(0)  # what other tests have left
    room, kept = TileRoom(tmp_path), []
    before = resident_bytes()
    parts = [torch.ones(7_500, dtype=torch.float64) for _ in range(3_000)]
    kept = parts[::50]
    del parts
    held = resident_bytes() - before
    assert held > 120 * MB  # the C library keeps it
    states = [StoredState(f"{i} 0", {"x": torch.ones(3)}) for i in range(50)]
    for state in states[:49]:
        room.put(state)
    assert room.settle() and resident_bytes() - before > 0.8 * held
    room.put(states[49])
    assert room.settle() and resident_bytes() - before < 0.3 * held
    assert all(bool((part == 1.0).all()) for part in kept)


def test_a_tile_goes_to_a_file_of_its_own_and_the_file_goes_with_it(tmp_path):
    room, states = (
        TileRoom(tmp_path),
        [StoredState(f"{i} 0", {"x": torch.arange(3) + i}) for i in range(3)],
    )
    for state in states:
        room.put(state)
    assert room.settle() and room.problem() == "" and room.written == 3
    assert not any(state.in_memory for state in states)
    paths = [state.source.path for state in states]
    assert len(set(paths)) == 3 and [state.visible_fault() for state in states] == [""] * 3
    assert all(torch.equal(state.get()["x"], torch.arange(3) + i) for i, state in enumerate(states))
    paths[0].unlink()
    assert states[0].visible_fault() == f"{paths[0]}: the file is gone"
    del state, states[1]
    assert not paths[1].exists() and paths[2].exists()


@pytest.mark.parametrize(
    "spoilt, said",
    [
        (torch.empty(3, device="meta"), "NotImplementedError"),  # without numbers: torch says so
        (torch.ones(2, dtype=torch.complex64), "cannot be saved"),
    ],
)
def test_a_state_that_cannot_be_written_stays_in_memory_and_the_others_go_to_the_disk(
    tmp_path, monkeypatch, spoilt, said
):
    monkeypatch.setattr(tile_room, "_PATIENCE", 60.0)  # on a busy machine, too, nobody is that late
    room = TileRoom(tmp_path)
    bad = StoredState("0 0", {"x": spoilt})
    room.put(bad)
    states = [StoredState(f"{i} 1", {"x": torch.ones(3)}) for i in range(20)]
    start = time.monotonic()
    for state in states:
        room.put(state)
    while any(state.in_memory for state in states) or not room.problem().startswith("1 tiles "):
        assert time.monotonic() - start < 60.0, "the others wait for it"
        time.sleep(0.005)
    assert not room.settle(0.0)
    assert [state.in_memory for state in states] == [False] * 20 and bad.in_memory
    assert said in room.problem()
    assert "\n" not in room.problem()


def test_a_disk_that_refuses_keeps_no_state_that_nobody_needs(tmp_path, monkeypatch):
    """A robot that drives up and down while the disk is full leaves each tile again and again."""
    monkeypatch.setattr(tile_room, "_AGAIN", 0.01)
    (tmp_path / "file").touch()
    room, shelf, gone = TileRoom(tmp_path / "file" / "tiles"), {}, []
    for i in range(100):
        shelf[i % 3] = StoredState(f"{i % 3} 0", {"x": torch.ones(3)})  # the one before is gone
        gone.append(weakref.ref(shelf[i % 3]))
        room.put(shelf[i % 3])
    end = time.monotonic() + 60.0
    while sum(ref() is not None for ref in gone) > 3 or not room.problem().startswith("3 tiles "):
        assert time.monotonic() < end, room.problem()
        time.sleep(0.005)
    assert "Not a directory" in room.problem()
    (tmp_path / "file").unlink()
    assert room.settle() and room.written == 3 and room.problem() == ""
    assert not any(state.in_memory for state in shelf.values())


def test_where_no_thread_can_be_had_tiles_stay_in_memory_and_the_next_one_tries_again(
    tmp_path, monkeypatch
):
    def none_to_spare(self):
        raise RuntimeError("can't start new thread")

    room, states = TileRoom(tmp_path), [StoredState(f"{i} 0", {"x": torch.ones(3)}) for i in (0, 1)]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_to_spare)
        room.put(states[0])
    assert states[0].in_memory and "1 tiles" in room.problem() and "new thread" in room.problem()
    room.put(states[1])
    assert room.settle() and room.problem() == "" and not any(state.in_memory for state in states)

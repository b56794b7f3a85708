"""What tiles that come and go leave in the C library's heap goes back to the system."""

import ctypes
import platform

import pytest
import torch

from benchmark.timing import resident_bytes
from gp_mapping.core.stored import StoredState
from gp_mapping.store.tile_room import TileRoom

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
    for i in range(49):
        room.put(StoredState(f"{i} 0", {"x": torch.ones(3)}))
    assert room.settle() and resident_bytes() - before > 0.8 * held
    room.put(StoredState("49 0", {"x": torch.ones(3)}))
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
    assert not any(state.held for state in states)
    paths = [state.source.path for state in states]
    assert len(set(paths)) == 3 and [state.trouble() for state in states] == [""] * 3
    assert all(torch.equal(state.get()["x"], torch.arange(3) + i) for i, state in enumerate(states))
    paths[0].unlink()
    assert states[0].trouble() == f"{paths[0]}: the file is gone"
    del state, states[1]
    assert not paths[1].exists() and paths[2].exists()

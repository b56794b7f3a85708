"""What tiles that come and go leave in the C library's heap goes back to the system."""

import ctypes
import platform

import pytest
import torch

from benchmark.timing import resident_bytes
from gp_mapping.core.stored import StoredState
from gp_mapping.store.tile_room import TileRoom

MB = 1_000_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries do not keep what is freed")
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

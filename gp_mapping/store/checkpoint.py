"""Checkpoints: a map in a file, and its tiles, where it has several, in files of their own beside it (tile_files.py).

A save writes the tiles that have changed, then the checkpoint, which names them; a tile's file is never written again.
So a crash at any moment leaves the old map or the new one.
"""

from __future__ import annotations

from pathlib import Path

from gp_mapping.store.archive import (
    ID_LENGTH,
    VERSION,
    CheckpointError,
    manifest_of,
    read_state,
    write_state,
)
from gp_mapping.store.tile_files import TileFolder

__all__ = ["VERSION", "CheckpointError", "about_checkpoint", "load_checkpoint", "save_checkpoint"]


def save_checkpoint(path, state: dict, about: dict | None = None) -> Path:
    """Write state to path in one piece: a crash leaves the old file, or the new one, and never half of it.

    state: nested dicts (keys are str) and lists of tensors, int, float, str, bool, None, and StoredStates, which get
    files of their own beside it. Tensors come back on the CPU.
    about: what `about_checkpoint` shall say of the file beside its id, plain values; no part of the state.
    Raises CheckpointError for any other value, and where path cannot be written.
    """
    path = Path(path)
    tiles = TileFolder.of_checkpoint(path)
    with tiles.writing():
        write_state(path, state, about, tiles.keep, tiles.settle)
    tiles.sweep()
    return path


def load_checkpoint(path) -> dict:
    """The state that save_checkpoint got; its StoredStates are read when they are asked for.

    Raises CheckpointError: no such file; not a checkpoint, cut off or damaged; written by another version.
    """
    path = Path(path)
    return read_state(path, TileFolder.of_checkpoint(path).found)


def about_checkpoint(path) -> dict:
    """What a file says of itself, its arrays unread: 'id', the same for the same state, and what `about` was given.

    Raises CheckpointError as load_checkpoint.
    """
    manifest = manifest_of(Path(path))
    about = manifest.get("about")
    return {
        **(about if isinstance(about, dict) else {}),
        "id": str(manifest.get("id", ""))[:ID_LENGTH],
    }

"""Checkpoints: a map in a file.

Where it has several tiles, each has a file of its own next to it (tile_files.py). A save writes the
tiles that have changed, then the checkpoint, which names them; a tile's file is never written
again. So a crash at any moment leaves the old map or the new one.
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


def save_checkpoint(
    path, state: dict, about: dict | None = None, left_out: list[str] | None = None
) -> Path:
    """Write a state to a file, whole or not at all.

    After a crash there is the old file, or the new one, and never half of it.

    Args:
        path: of the file.
        state: nested dicts (keys are str) and lists of tensors, int, float, str, bool, None, and
            StoredStates, which get files of their own next to it. Tensors come back on the CPU.
        about: what `about_checkpoint` shall return in addition to the id, plain values; no part of
            the state.
        left_out: gets a sentence for each StoredState that cannot be read any more; the others are
            saved, and who loads the file is told, too.

    Raises:
        CheckpointError: there is any other value in it, or path cannot be written.
    """
    path = Path(path)
    said: list[str] = [] if left_out is None else left_out
    tiles = TileFolder.for_checkpoint(path)

    # what a save has left that did not come to its end, which may be what fills the disk
    tiles.sweep()
    with tiles.writing():
        write_state(path, state, about, lambda part: tiles.store(part, said), tiles.sync)

    # files that only the checkpoint before this one named
    tiles.sweep()
    return path


def load_checkpoint(path) -> dict:
    """Read the state that save_checkpoint got; its StoredStates are read when they are asked for.

    Raises:
        CheckpointError: there is no such file; it is not a checkpoint, cut off or damaged; or
            another version wrote it.
    """
    path = Path(path)
    return read_state(path, TileFolder.for_checkpoint(path).resolve)


def about_checkpoint(path) -> dict:
    """What a file says of itself; its arrays are not read.

    Returns:
        `id`, the same for the same state, and what save_checkpoint got as `about`.

    Raises:
        CheckpointError: as load_checkpoint.
    """
    manifest = manifest_of(Path(path))
    about = manifest.get("about")
    return {
        **(about if isinstance(about, dict) else {}),
        "id": str(manifest.get("id", ""))[:ID_LENGTH],
    }

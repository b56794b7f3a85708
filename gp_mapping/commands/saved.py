"""A saved map back in hand, and where to measure next in it."""

from __future__ import annotations

from pathlib import Path

from gp_mapping.errors import UsageError
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning.offer import offer
from gp_mapping.planning.suggest import Suggestions
from gp_mapping.store.checkpoint import load_checkpoint
from gp_mapping.store.trial import tried_session

__all__ = ["CHECKPOINT", "check_suggest", "checkpoint_in", "next_places", "open_session"]

CHECKPOINT = "map.gpm"
_MOST = 100  # suggestions, as in a node
_APART = 0.5  # m between two suggestions


def checkpoint_in(path) -> Path:
    """The checkpoint itself, or the one in the folder that `gp-mapping map` wrote."""
    path = Path(path)
    if path.is_dir():
        if not (path / CHECKPOINT).exists():
            raise UsageError(f"{path}: no {CHECKPOINT} in this folder; expected a folder that `gp-mapping map` wrote")
        return path / CHECKPOINT
    return path


def open_session(path, folder: Path | None = None, **overrides) -> MapSession:
    """The session in a checkpoint or a folder, with some settings changed; UserError where it does not fit.

    folder: in which its tiles are while nobody needs them; the system's temporary one if None.
    """
    path = checkpoint_in(path)
    return tried_session(load_checkpoint(path), path, folder, **overrides)


def check_suggest(count: int) -> None:
    """UsageError for a number of suggestions that is negative, or that nobody drives to."""
    if not 0 <= count <= _MOST:
        raise UsageError(f"--suggest is {count}, expected 0 to {_MOST}")


def next_places(session: MapSession, grid: FieldGrid, count: int, beyond: float = 0.0) -> Suggestions | tuple:
    """Up to count places with the largest variance, 0.5 m apart, as a node without a free-space map chooses them.

    beyond: how far outside the hull of the path they may lie, metres.
    """
    check_suggest(count)
    return offer(session, grid, count, min_distance=_APART, beyond=beyond) if count else ()

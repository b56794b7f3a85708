"""A saved map back in hand, and where to measure next in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gp_mapping.errors import UsageError
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning.area.ground import Ground
from gp_mapping.planning.offer import offer_as_set
from gp_mapping.planning.suggest import Suggestions
from gp_mapping.settings.node import NodeSettings
from gp_mapping.store.sessions import CHECKPOINT, saved_session

__all__ = ["CHECKPOINT", "check_suggest", "checkpoint_in", "next_places", "open_session"]

_MOST = 100  # suggestions, as in a node


def checkpoint_in(path) -> Path:
    """The checkpoint itself, or the one in the folder that `gp-mapping map` wrote."""
    path = Path(path)
    if path.is_dir():
        if not (path / CHECKPOINT).exists():
            raise UsageError(
                f"{path}: no {CHECKPOINT} in this folder; expected a folder that `gp-mapping map` wrote"
            )
        return path / CHECKPOINT
    return path


def open_session(path, folder: Path | None = None, **overrides) -> MapSession:
    """The session in a checkpoint or a folder, with some settings changed; UserError where it does not fit.

    folder: in which its tiles are while nobody needs them; the system's temporary one if None.
    """
    return saved_session(checkpoint_in(path), folder, **overrides)


def check_suggest(count: int) -> None:
    """UsageError for a number of suggestions that is negative, or that nobody drives to."""
    if not 0 <= count <= _MOST:
        raise UsageError(f"--suggest is {count}, expected 0 to {_MOST}")


def next_places(
    session: MapSession, grid: FieldGrid, count: int, settings: NodeSettings | None = None
) -> Suggestions | tuple:
    """Up to count places to measure next, as a node without a free-space map, at the end of the path, chooses them.

    settings: of the node; None: its defaults.
    """
    check_suggest(count)
    if not count:
        return ()
    return offer_as_set(
        session, grid, replace(settings or NodeSettings(), suggestion_count=count), Ground()
    )

"""Open a saved map, and choose where to measure next in it."""

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

_MOST = 100  # suggestions at most, as in a node


def checkpoint_in(path) -> Path:
    """Return the path of a checkpoint: `path` itself, or map.gpm in the folder `path`.

    Raises:
        UsageError: the folder holds no checkpoint.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / CHECKPOINT).exists():
            raise UsageError(
                f"{path}: no {CHECKPOINT} in this folder; expected a folder that `gp-mapping map` wrote"
            )
        return path / CHECKPOINT
    return path


def open_session(path, folder: Path | None = None, **overrides) -> MapSession:
    """Open the session that a checkpoint holds, with some settings changed.

    Args:
        path: a checkpoint, or a folder that `gp-mapping map` wrote.
        folder: where tiles are put that are not needed in memory; None: the system's temporary one.
        **overrides: settings by name that replace the saved ones.

    Raises:
        UserError: there is no checkpoint, or its content or the settings do not fit.
    """
    return saved_session(checkpoint_in(path), folder, **overrides)


def check_suggest(count: int) -> None:
    """Check that --suggest is between 0 and _MOST.

    Raises:
        UsageError: it is not.
    """
    if not 0 <= count <= _MOST:
        raise UsageError(f"--suggest is {count}, expected 0 to {_MOST}")


def next_places(
    session: MapSession, grid: FieldGrid, count: int, settings: NodeSettings | None = None
) -> Suggestions | tuple:
    """Choose up to `count` places to measure next.

    They are those that a node without a free-space map chooses while the robot stands at the end of
    the path.

    Args:
        session: the map.
        grid: the map as drawn, of which places are candidates.
        count: most suggestions; 0 gives none.
        settings: of the node; None: its defaults.
    """
    check_suggest(count)

    if not count:
        return ()

    return offer_as_set(
        session, grid, replace(settings or NodeSettings(), suggestion_count=count), Ground()
    )

"""Which saved maps' measurements a map holds, so that none of them is added to it again.

A checkpoint's id is the same for the same content, wherever its file lies.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gp_mapping.errors import UsageError
from gp_mapping.store.checkpoint import CheckpointError, about_checkpoint

__all__ = ["holdings_of", "map_in", "note_holdings", "replaced", "require_apart"]

_HOLDS = "holds"  # in `about` of a session


def holdings_of(path, about: dict) -> set[str]:
    """Ids of the saved maps whose measurements are in a checkpoint, its own among them.

    Args:
        path: of the checkpoint.
        about: of the session in it.
    """
    before = about.get(_HOLDS)
    known = {str(part) for part in before} if isinstance(before, list) else set()
    return known | {str(about_checkpoint(path)["id"])}


def note_holdings(about: dict, ids: Iterable[str]) -> None:
    """Note in `about` of a session that it holds the measurements of saved maps.

    Args:
        about: of the session, which is changed.
        ids: of the maps.
    """
    about[_HOLDS] = sorted(ids)


def map_in(path) -> str:
    """Id of the map in a checkpoint; '' where there is none that can be read."""
    try:
        return str(about_checkpoint(path)["id"])
    except CheckpointError:
        return ""


def replaced(path, before: str, about: dict) -> list[str]:
    """Say that a checkpoint was written over another map.

    Not where the new map holds that one's measurements, or is the same once more.

    Args:
        path: of the checkpoint, which is written.
        before: id of the map that was in it, of `map_in`.
        about: of the session in it now.
    """
    if not before or before in holdings_of(path, about):
        return []
    return [f"{path} held another map, which is replaced; write another --output to keep both"]


def require_apart(paths: list[Path], holdings: list[set[str]]) -> None:
    """Check that no two checkpoints hold the measurements of one saved map.

    Args:
        paths: of the checkpoints.
        holdings: of each, by `holdings_of`.

    Raises:
        UsageError: two do.
    """
    seen: dict[str, Path] = {}
    for path, ids in zip(paths, holdings):
        own = str(about_checkpoint(path)["id"])
        for part in sorted(ids, key=lambda part: part != own):
            first = seen.setdefault(part, path)
            if first is path:
                continue
            what = (
                "are copies of one map"
                if part == own == str(about_checkpoint(first)["id"])
                else "hold measurements of one saved map"
            )
            raise UsageError(f"{path} and {first} {what}; its measurements would count twice")

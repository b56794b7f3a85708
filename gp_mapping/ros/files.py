"""What the node reads and writes: a checkpoint to go on from, a folder to save into. No rclpy."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from gp_mapping.core.config import MapSettings
from gp_mapping.mapping.session import MapSession

__all__ = ["CHECKPOINT", "open_session", "save_session"]

CHECKPOINT = "map.gpm"


def open_session(settings: MapSettings, given: set[str], load: str) -> MapSession:
    """An empty session, or the one in the checkpoint `load`.

    A checkpoint brings its own settings; of `settings` those count that were given explicitly (names in `given`).
    Raises ValueError (CheckpointError is one) where the file is missing, damaged or does not fit.
    """
    if not load:
        return MapSession(settings)
    from gp_mapping.store.checkpoint import load_checkpoint

    overrides = {f.name: getattr(settings, f.name) for f in fields(MapSettings) if f.name in given}
    session = MapSession.from_state_dict(load_checkpoint(Path(load).expanduser()), **overrides)
    session.break_pass()  # whatever comes now does not go on from the last sample that was saved
    return session


def save_session(session: MapSession, directory: str, suggestions=None) -> dict[str, Path]:
    """Checkpoint and exports into a folder; what -> path. The map is flushed first: an open cell counts as finished."""
    from gp_mapping.store.checkpoint import save_checkpoint
    from gp_mapping.store.export import export_all  # imports matplotlib: not before somebody saves

    folder = Path(directory).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    session.flush()
    path = folder / CHECKPOINT
    save_checkpoint(path, session.state_dict())
    return {"checkpoint": path, **export_all(session, folder, suggestions=suggestions)}

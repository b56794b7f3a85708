"""What the node reads and writes: checkpoints to go on from, folders to save into. No rclpy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from gp_mapping.core.config import MapSettings
from gp_mapping.mapping.session import MapSession
from gp_mapping.ros.node_settings import check_map_name

__all__ = ["CHECKPOINT", "Wanted", "map_folder", "open_session", "save_session"]

CHECKPOINT = "map.gpm"


@dataclass(frozen=True)
class Wanted:
    """What a map must be for a node: its settings, those of them that were given explicitly, numbers in a sample."""

    settings: MapSettings
    given: frozenset[str] = frozenset()
    channels: int = 1

    def check(self, state: dict) -> None:
        """ValueError where a checkpoint's map is of something else than this node measures."""
        saved = state.get("settings")
        unit, mine = saved.get("field_unit") if isinstance(saved, dict) else None, self.settings.field_unit
        if unit not in (None, mine) and "field_unit" not in self.given:
            raise ValueError(f"this is a map in {unit!r}, and the node maps {mine!r}; set the sensor that made it")
        channels = state.get("channels")
        if channels not in (None, self.channels):
            raise ValueError(f"this map has {channels} numbers in a measurement, and the node maps {self.channels}; "
                             f"set field_component to {'xyz' if channels == 3 else 'norm, x, y or z'}")


def map_folder(directory: str, name: str) -> Path:
    """The folder of the map `name` inside directory; ValueError for a name, or a link, that leads out of it."""
    base = Path(directory).expanduser()
    folder = base / check_map_name(name)
    if not (folder / CHECKPOINT).resolve().is_relative_to(base.resolve()):
        raise ValueError(f"map_name: {name!r} leads out of {base} by a link; expected a folder inside it")
    return folder


def open_session(wanted: Wanted, path) -> MapSession:
    """An empty session, or the one in the checkpoint `path`, where that is not empty.

    A checkpoint brings its own settings; of those wanted the explicitly given ones count.
    Raises ValueError (CheckpointError is one) where the file is missing, damaged or does not fit.
    """
    if not path:
        return MapSession(wanted.settings)
    from gp_mapping.store.checkpoint import load_checkpoint
    from gp_mapping.store.sessions import session_of

    state = load_checkpoint(Path(path).expanduser())
    overrides = {f.name: getattr(wanted.settings, f.name) for f in fields(MapSettings) if f.name in wanted.given}
    try:
        wanted.check(state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    session = session_of(state, path, **overrides)
    session.break_pass()  # whatever comes now does not go on from the last sample that was saved
    return session


def save_session(session: MapSession, folder: Path, suggestions=None) -> dict[str, Path]:
    """Checkpoint and exports into a folder; what -> path. The map is flushed first: an open cell counts as finished.

    Raises ValueError for an empty map: what was saved before stays.
    """
    from gp_mapping.store.checkpoint import save_checkpoint
    from gp_mapping.store.export import export_all  # imports matplotlib: not before somebody saves

    session.flush()
    if not session.cell_count:
        raise ValueError("the map is empty, no measurement has reached it; what was saved before stays")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CHECKPOINT
    save_checkpoint(path, session.state_dict())
    return {"checkpoint": path, **export_all(session, folder, suggestions=suggestions)}

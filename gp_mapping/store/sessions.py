"""What a node reads and writes: checkpoints to go on from, folders to save into; no rclpy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path

from gp_mapping.errors import named
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import check_map_name
from gp_mapping.store.archive import CheckpointError
from gp_mapping.store.scratch.tile_room import TileRoom

__all__ = [
    "CHECKPOINT",
    "Requirements",
    "SaveResult",
    "Snapshot",
    "frame_of_map",
    "map_folder",
    "new_session",
    "odometry_frame_of",
    "open_session",
    "quantity_of",
    "saved_session",
    "take_snapshot",
    "write_snapshot",
]

CHECKPOINT = "map.gpm"
# what a map's numbers are in terms of: with another one they would mean another field
_OF_PRIOR = ("kernel", "anisotropy", "long_share", "long_ratio", "potential")


@dataclass(frozen=True)
class Requirements:
    """What a map must be for a node.

    Attributes:
        settings: the node's settings of the map.
        given: those of them that were given explicitly.
        channels: numbers in a sample.
        quantity: what is measured (IntakeSettings.quantity); '' for anything.
        frame: of the poses; '' while it is not known.
        any_frame: whether a map in another frame is taken as if it were in this one.
        notes: sentences on a saved map that fits, by its session.about.
    """

    settings: MapSettings
    given: frozenset[str] = frozenset()
    channels: int = 1
    quantity: str = ""
    frame: str = ""
    any_frame: bool = False
    notes: Callable[[dict], list[str]] = lambda about: []

    def check(self, state: dict) -> None:
        """Compare a checkpoint's map with what this node measures.

        Args:
            state: of the checkpoint.

        Raises:
            ValueError: it is a map of something else.
        """
        saved = state.get("settings")
        unit, own_unit = (
            saved.get("field_unit") if isinstance(saved, dict) else None,
            self.settings.field_unit,
        )
        if unit not in (None, own_unit) and "field_unit" not in self.given:
            raise ValueError(
                f"this is a map in {unit!r}, and the node maps {own_unit!r}; set the sensor that made it"
            )

        channels = state.get("channels")
        if channels not in (None, self.channels):
            raise ValueError(
                f"this map has {channels} numbers in a measurement, and the node maps {self.channels}; "
                f"set field_component to {'xyz' if channels == 3 else 'norm, x, y or z'}"
            )

        quantity = quantity_of(state.get("about"))
        if (
            self.quantity
            and quantity
            and quantity != self.quantity
            and "field_unit" not in self.given
        ):
            raise ValueError(
                f"this is a map of {named(quantity)}, and what comes is {named(self.quantity)}; set "
                "sensor and field_component as they were, or begin a new map"
            )

        frame = frame_of_map(state)
        if self.frame and frame and frame != self.frame and not self.any_frame:
            raise ValueError(
                f"this map is in frame {named(frame)}, and poses are in {named(self.frame)}; where both "
                "are the same place, set allow_frame_change: true"
            )


def frame_of_map(state: dict) -> str:
    """The frame that a checkpoint's map is in; '' where its state does not say."""
    about = state.get("about")
    return str(about.get("frame") or "") if isinstance(about, dict) else ""


def quantity_of(about) -> str:
    """The measured quantity of a map, from its session.about; '' where that does not say."""
    return str(about.get("quantity") or "") if isinstance(about, dict) else ""


def odometry_frame_of(about: dict) -> str:
    """The frame of a session.about, where it is that of an odometry; else ''.

    The origin of such a frame is new with each start.
    """
    frame = str(about.get("frame") or "")
    # the last part of a frame's name, without the robot's prefix
    name = frame.rpartition("/")[2].lower()
    fixed = name in ("map", "earth", "world", "utm") or about.get("pose_source") != "odometry"

    return frame if frame and ("odom" in name or not fixed) else ""


def map_folder(directory: str, name: str) -> Path:
    """The folder of the map `name` inside `directory`.

    Raises:
        ValueError: the name, or a link, leads out of it.
    """
    base = Path(directory).expanduser()
    folder = base / check_map_name(name)

    # links are followed: a name alone cannot show where they lead
    if not (folder / CHECKPOINT).resolve().is_relative_to(base.resolve()):
        raise ValueError(
            f"map_name: {name!r} leads out of {base} by a link; expected a folder inside it"
        )
    return folder


def new_session(settings: MapSettings, folder: Path | None = None) -> MapSession:
    """An empty session.

    Args:
        settings: of the map.
        folder: for tiles that are not in memory; None: the system's temporary folder.
    """
    return MapSession(settings, TileRoom(folder))


def saved_session(
    path, folder: Path | None = None, check: Callable[[dict], None] | None = None, **overrides
) -> MapSession:
    """The session in a checkpoint: the one way in which a saved map is opened.

    Args:
        path: the checkpoint.
        folder: for tiles that are not in memory; None: the system's temporary folder.
        check: raises ValueError where it is another map than is wanted.
        overrides: settings that replace the saved ones.

    Raises:
        ValueError: the file is missing, damaged or does not fit; CheckpointError is one.
    """
    from gp_mapping.store.checkpoint import load_checkpoint
    from gp_mapping.store.trial import tried_session

    state = load_checkpoint(Path(path).expanduser())

    if check is not None:
        try:
            check(state)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    _same_prior(path, state, overrides)

    return tried_session(state, path, folder, **overrides)


def _same_prior(path, state: dict, overrides: dict) -> None:
    """Raise CheckpointError where settings would give a saved map another prior.

    Args:
        path: the checkpoint.
        state: of it.
        overrides: settings that replace the saved ones.
    """
    saved = state.get("settings")
    for name in _OF_PRIOR if isinstance(saved, dict) else ():
        # absent in maps of a version that did not have it
        asked = overrides.get(name, saved.get(name))
        if name in saved and asked != saved[name]:
            raise CheckpointError(
                f"{path}: this map was made with {name} {saved[name]!r}, and what it has learned holds for "
                f"that alone, not for {asked!r}; write {name}: {saved[name]}, or begin a new map"
            )


def open_session(wanted: Requirements, path, folder: Path | None = None) -> MapSession:
    """The session in a checkpoint, or an empty one.

    A checkpoint brings its own settings; of those wanted the explicitly given ones replace them.

    Args:
        wanted: what the map must be.
        path: the checkpoint; None or empty: an empty session.
        folder: for tiles that are not in memory; None: the system's temporary folder.

    Raises:
        ValueError: the file is missing, damaged or does not fit; CheckpointError is one.
    """
    if not path:
        return new_session(wanted.settings, folder)

    overrides = {
        f.name: getattr(wanted.settings, f.name)
        for f in fields(MapSettings)
        if f.name in wanted.given
    }

    session = saved_session(path, folder, wanted.check, **overrides)
    session.resume_notes += wanted.notes(session.about)
    if wanted.any_frame:
        session.about.pop("frame", None)  # the poses to come decide

    # what comes now does not go on from the last sample that was saved
    session.break_pass()
    return session


@dataclass(frozen=True)
class Snapshot:
    """All of a map at one moment, in memory of its own: it is written while the map goes on.

    Attributes:
        state: of the session.
        key: which map it is and how far; two snapshots of the same key are the same.
        samples: how many it has.
        cells: how many it has.
        metres: length of its path.
    """

    state: dict
    key: tuple[int, int, int]
    samples: int
    cells: int
    metres: float


def take_snapshot(session: MapSession, key: tuple[int, int, int], flush: bool = False) -> Snapshot:
    """Take a snapshot, in the map's thread.

    What the map learns afterwards is not in it.

    Args:
        session: holds the map.
        key: which map it is, its revision, and its number of samples.
        flush: whether an open cell counts as finished.
    """
    if flush:
        session.flush()
        key = (key[0], session.revision, session.raw_count)

    state = session.state_dict()
    return Snapshot(
        state, key, session.raw_count, session.cell_count, float(state["path"]["length"])
    )


@dataclass(frozen=True)
class SaveResult:
    """What was written.

    Attributes:
        snapshot: of the map.
        paths: what -> absolute path.
        problem: why some of it was not written; '' where all was.
    """

    snapshot: Snapshot
    paths: dict[str, Path]
    problem: str = ""

    def __str__(self) -> str:
        text = "saved " + ", ".join(f"{what} {path}" for what, path in self.paths.items())
        return text + (f"; {self.problem}" if self.problem else "")


def write_snapshot(
    snapshot: Snapshot,
    folder: Path,
    about: Callable[[], dict] | dict,
    suggest=None,
    exports: bool = True,
    around: Callable[[list[str]], AbstractContextManager] = nullcontext,
) -> SaveResult:
    """Write checkpoint, then exports, into a folder.

    Where only the exports fail, or tiles cannot be read any more, the map is saved, and `problem`
    says so.

    Args:
        snapshot: of the map.
        folder: is made where it is missing.
        about: as of save_checkpoint, or a function that returns it, called just before.
        suggest: callable(session, grid) -> planning.Suggestions or None; it gets a session of its
            own.
        exports: whether to write exports.
        around: surrounds the writing of the checkpoint; it gets a list for sentences that belong to
            `problem`.

    Raises:
        ValueError: the map is empty; what was saved before stays.
    """
    from gp_mapping.store.checkpoint import about_checkpoint, save_checkpoint

    if not snapshot.cells:
        raise ValueError(
            "the map is empty, no measurement has reached it; what was saved before stays"
        )

    folder = folder.absolute()
    # the checkpoint first: it cannot be made again, exports can
    problems: list[str] = []
    with around(problems):
        known = about() if callable(about) else about
        paths = {
            "checkpoint": save_checkpoint(folder / CHECKPOINT, snapshot.state, known, problems)
        }
        map_id = about_checkpoint(paths["checkpoint"])["id"]

    try:
        paths |= _export(snapshot, folder, suggest, map_id) if exports else {}
    except Exception as error:  # the map is on the disk: pictures can be made from it at any time
        known = isinstance(error, ValueError | OSError | MemoryError) and str(error)
        reason = str(error) if known else repr(error)
        problems.append(f"pictures and exports were not written ({reason})")
    return SaveResult(snapshot, paths, "; ".join(problems))


def _export(snapshot: Snapshot, folder: Path, suggest, map_id: str) -> dict[str, Path]:
    """Write the exports of a snapshot, from a session of its own; name -> path."""
    from gp_mapping.store.exports.export import (
        export_all,  # imports matplotlib: not before somebody saves
    )

    session = MapSession.from_state_dict(snapshot.state)
    grid = session.render()
    suggestions = None if suggest is None else suggest(session, grid)
    return export_all(session, folder, suggestions=suggestions, map_id=map_id)

"""The map that a node begins with, of a file or an empty one; what runs before have left."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gp_mapping.core.registry import AUTO, device_of
from gp_mapping.errors import one_line
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.saving import keep_before
from gp_mapping.settings.node import NodeSettings
from gp_mapping.store.resume import MapFiles
from gp_mapping.store.sessions import Requirements, map_folder, new_session, open_session

__all__ = ["FirstSession", "first_session"]


class FirstSession(NamedTuple):
    """What a node begins with.

    Attributes:
        session: the map.
        path: the file that it is of; None: an empty map.
        own: the files that may be written over, as in Saver.
        warning: why files that `resume` found are not gone on from, a sentence; '' for none.
    """

    session: MapSession
    path: Path | None
    own: tuple[Path, ...]
    warning: str = ""


def first_session(settings: NodeSettings, wanted: Requirements, name: str, log) -> FirstSession:
    """Open the map to go on with, or an empty one; log what is found.

    Args:
        settings: of the node.
        wanted: what the map must be.
        name: fully qualified, of the node.
        log: a ROS logger.

    Raises:
        ValueError: load_checkpoint cannot be used.
    """
    warning = ""
    s, files = settings, MapFiles(map_folder(settings.save_directory, settings.map_name), name)
    if removed := files.remove_partials():
        log.info(
            f"removed {len(removed)} files that a run before had left half written in {files.folder}"
        )

    if s.resume:
        session, path, problems, refused = files.resume(wanted)
        for text in problems:
            log.warning(f"not resumed: {text}")
        if problems:
            warning = f"a saved map was not resumed: {one_line(problems[0], 500)}"
        for copy in files.keep_refused(refused):
            log.warning(f"what could not be resumed is kept as {copy}, for this run writes over it")
        if path is not None:
            resumed = f"resumed {path}: {session.raw_count} measurements"
            log.info("; ".join([resumed, *session.resume_notes]))
            _say_device(session, log)
            return FirstSession(session, path, (files.autosave, files.saved), warning)
        log.info(f"nothing to resume in {files.folder}")

    path = Path(s.load_checkpoint).expanduser().absolute() if s.load_checkpoint else None
    # opened before anything is set aside: it may be the autosave of the run before
    session = (
        open_session(wanted, path, files.folder)
        if path is not None
        else new_session(wanted.settings, files.folder)
    )
    _say_device(session, log)
    may_write = (
        s.resume
        or path == files.autosave
        or (s.autosave_period > 0 and keep_before(files, log.warning))
    )
    own = ((files.autosave,) if may_write else ()) + ((files.saved,) if s.resume else ())
    return FirstSession(session, path, own, warning)


def _say_device(session: MapSession, log) -> None:
    """Log which device `device: auto` has become, and why."""
    if session.settings.device == AUTO:
        device = device_of(session.settings)
        log.info(f"device: auto is {device.name}: {device.reason}")

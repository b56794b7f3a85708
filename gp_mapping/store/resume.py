"""Which file a map goes on from after a crash: the newest intact one of what was saved and what was saved by itself.

Each file of a folder carries a number that is one larger than the largest there when it was written. Clocks of robots
begin anew, numbers do not.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gp_mapping.mapping.session import MapSession
from gp_mapping.store.checkpoint import CheckpointError, about_checkpoint
from gp_mapping.store.sessions import CHECKPOINT, Wanted, open_session
from gp_mapping.store.tile_files import REFUSED

__all__ = ["MapFiles", "Resumed", "autosave_name", "strangers"]

_EXPORTS = ("mean.yaml", "stddev.yaml", "map.png", "map.npz")
_BELONGS = re.compile(rb"map: ([0-9a-f]{12})")
_PARTIAL = re.compile(r"\..+\.(\d+)(?:-\d+)?\.partial")


def autosave_name(node_name: str) -> str:
    """The name of a node's autosave, so that several nodes may share a folder: /mapping, /robot1/mapping -> robot1."""
    parts = [part for part in node_name.split("/") if part and part != "mapping"]
    return ".".join(["autosave", *parts, "gpm"])


def strangers(path: Path) -> list[str]:
    """Names of the exports beside a checkpoint that say they are of another map: an end came while they were written.

    An export that does not say of which map it is, as those of older versions, is passed over.
    """
    mine, out = about_checkpoint(path)["id"], []
    for name in _EXPORTS if mine else ():
        with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
            export = path.parent / name
            if name.endswith(".npz"):
                with np.load(export) as arrays:
                    theirs = str(arrays["map_id"])
            else:
                with export.open("rb") as file:
                    found = _BELONGS.search(file.read(4096))
                theirs = found[1].decode() if found else ""
            if theirs and theirs != mine:
                out.append(name)
    return out


class Resumed(NamedTuple):
    """A session to go on with, the file it was in (None: an empty one), what is wrong with newer files, and which."""

    session: MapSession
    path: Path | None
    problems: list[str]
    refused: list[Path]


class MapFiles:
    """The checkpoints of one map: map.gpm, the autosave, and the autosave of the run before."""

    def __init__(self, folder: Path, node_name: str = "mapping"):
        self.folder = folder.absolute()
        self.saved = self.folder / CHECKPOINT
        self.autosave = self.folder / autosave_name(node_name)
        self.before = self.autosave.with_name(f"{self.autosave.stem}.previous.gpm")

    def next_number(self) -> int:
        """One more than any of these files has."""
        return 1 + int(
            max((number for number, _, _ in self._known() if number < math.inf), default=0)
        )

    def newest_first(self) -> list[Path]:
        """Those that are there; of the same number, the one written last. Damaged ones come first, to be named."""
        return [path for *_, path in sorted(self._known(), reverse=True)]

    def _known(self) -> list[tuple[float, float, Path]]:
        out = []
        for path in (self.before, self.autosave, self.saved):
            with suppress(OSError):
                written = path.stat().st_mtime
                try:
                    number = int(about_checkpoint(path).get("number", 0))
                except (CheckpointError, ValueError, TypeError):
                    number = math.inf  # opening it will say what is wrong
                out.append((number, written, path))
        return out

    def resume(self, wanted: Wanted) -> Resumed:
        """The newest one that can be opened and fits; an empty session where there is none."""
        problems: list[str] = []
        refused: list[Path] = []
        for path in self.newest_first():
            try:
                return Resumed(open_session(wanted, path, self.folder), path, problems, refused)
            except ValueError as error:
                problems.append(str(error))
                refused.append(path)
        return Resumed(open_session(wanted, None, self.folder), None, problems, refused)

    def keep_refused(self, refused: list[Path]) -> list[Path]:
        """Second names for files that could not be gone on from, since this run writes over the first; the new ones.

        A map of other settings, or of a newer version, is somebody's day. Its tiles are kept as long as it is there;
        under this name a damaged one keeps no others from being removed (tile_files.py).
        """
        kept = []
        for path in refused:
            mine = path.with_name(f"{path.name}{REFUSED}")
            if path == self.before or path.is_symlink() or not path.is_file() or _same(path, mine):
                continue
            with suppress(OSError):
                mine.unlink(missing_ok=True)
                try:
                    os.link(path, mine)
                except OSError:  # a file system without second names
                    shutil.copyfile(path, mine)
                kept.append(mine)
        return kept

    def keep_before(self) -> Path | None:
        """A run that does not resume begins: an autosave that is newer than the saved map is set aside, not lost."""
        names = self.newest_first()
        if not names or names[0] != self.autosave:
            return None
        os.replace(self.autosave, self.before)
        return self.before

    def remove_partials(self) -> list[str]:
        """Names of what processes that are gone have left half written; it is removed."""
        removed = []
        with suppress(OSError):
            for path in sorted(self.folder.iterdir()):
                found = _PARTIAL.fullmatch(path.name)
                if found and not _lives(int(found[1])):
                    with suppress(OSError):
                        path.unlink()
                        removed.append(path.name)
        return removed


def _same(one: Path, other: Path) -> bool:
    """Whether two names are of one file."""
    try:
        a, b = one.stat(), other.stat()
    except OSError:
        return False
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def _lives(pid: int) -> bool:
    """Whether there is such a process; where that cannot be told, as if there were."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

"""Which file a map goes on from after a crash.

It is the newest intact file among the map that was saved on request and its autosaves. Each file of
a folder carries a number that is one larger than the largest number there when it was written:
clocks of robots start anew, numbers do not.
"""

from __future__ import annotations

import filecmp
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
from gp_mapping.store.atomic import remove_partials
from gp_mapping.store.checkpoint import CheckpointError, about_checkpoint
from gp_mapping.store.sessions import CHECKPOINT, Requirements, open_session
from gp_mapping.store.tile_files import REFUSED

__all__ = ["MapFiles", "Resumed", "autosave_name", "foreign_exports"]

_EXPORTS = ("mean.yaml", "stddev.yaml", "map.png", "map.npz")
_BELONGS = re.compile(rb"map: ([0-9a-f]{12})")
_PREVIOUS = 5  # autosaves of runs before that are kept at most


def autosave_name(node_name: str) -> str:
    """The name of a node's autosave, so that several nodes may share a folder.

    /mapping: autosave.gpm; /robot1/mapping: autosave.robot1.gpm.
    """
    parts = [part for part in node_name.split("/") if part and part != "mapping"]
    return ".".join(["autosave", *parts, "gpm"])


def foreign_exports(path: Path) -> list[str]:
    """Names of the exports next to a checkpoint that say that they belong to another map.

    The process ended while they were written. An export that does not say to which map it belongs,
    as those of older versions, is passed over.
    """
    map_id, out = about_checkpoint(path)["id"], []

    for name in _EXPORTS if map_id else ():
        # an export that is missing or damaged names no other map
        with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
            export = path.parent / name
            if name.endswith(".npz"):
                with np.load(export) as arrays:
                    export_id = str(arrays["map_id"])
            else:
                with export.open("rb") as file:
                    found = _BELONGS.search(file.read(4096))
                export_id = found[1].decode() if found else ""

            if export_id and export_id != map_id:
                out.append(name)
    return out


class Resumed(NamedTuple):
    """A session to go on with.

    Attributes:
        session: it may be empty.
        path: the file it was in; None: the session is empty.
        problems: what is wrong with newer files.
        refused: these files.
    """

    session: MapSession
    path: Path | None
    problems: list[str]
    refused: list[Path]


class MapFiles:
    """The checkpoints of one map: map.gpm, the autosave, and the autosave of the run before.

    Args:
        folder: of the map.
        node_name: of the node that writes the autosave.
    """

    def __init__(self, folder: Path, node_name: str = "mapping"):
        self.folder = folder.absolute()
        self.saved = self.folder / CHECKPOINT
        self.autosave = self.folder / autosave_name(node_name)
        self.before = self.autosave.with_name(f"{self.autosave.stem}.previous.gpm")
        self.saved_before = self.saved.with_name(f"{self.saved.stem}.previous.gpm")

    def next_number(self) -> int:
        """One more than the largest number of these files."""
        return 1 + int(
            max((number for number, _, _ in self._known() if number < math.inf), default=0)
        )

    def newest_first(self) -> list[Path]:
        """Files that are there, the newest first.

        Of the same number, the one that was written last comes first. Damaged files come before all
        others, so that they are named.
        """
        return [path for *_, path in sorted(self._known(), reverse=True)]

    def _known(self) -> list[tuple[float, float, Path]]:
        """Number, time of writing, and path of each file that is there."""
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

    def resume(self, wanted: Requirements) -> Resumed:
        """Open the newest file that can be opened and fits; an empty session where there is none.

        Args:
            wanted: what the map must be.
        """
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
        """Give second names to files that could not be resumed: this run writes over the first.

        A map of other settings, or of a newer version, may be a day's work. Its tiles are kept as
        long as it is there; under the second name a damaged file does not keep others from being
        removed (tile_files.py). One that has that name already gets a number, as in set_aside.

        Args:
            refused: as `resume` found them.

        Returns:
            The second names.
        """
        kept = []
        for path in refused:
            second = path.with_name(f"{path.name}{REFUSED}")
            numbered = _numbered(path, path.suffix + REFUSED)
            # the autosave of the run before is not written over
            if (
                path == self.before
                or path.is_symlink()
                or not path.is_file()
                or any(_same(path, each) for each in (second, *numbered))
            ):
                continue

            with suppress(OSError):
                _second_name(path, second, numbered)
                kept.append(second)
        return kept

    def keep_saved(self) -> Path:
        """Give the saved map a second name, since another map is to be saved in its place.

        The saved map stays as well, until the other one is on the disk. One that has the second
        name already gets a number, as in set_aside.

        Returns:
            A name under which it is kept.

        Raises:
            OSError: the disk is full, read-only, or gone.
        """
        numbered = _numbered(self.saved_before, ".gpm")
        for each in (self.saved_before, *numbered):
            if _same(self.saved, each):  # kept already, by a save that failed
                return each

        _second_name(self.saved, self.saved_before, numbered)
        return self.saved_before

    def keep_before(self, saved_since: bool = False) -> Path | None:
        """Set an autosave aside that is newer than the saved map, so that it is not lost.

        To be called where a run begins that does not resume, or first saves here by itself.

        Args:
            saved_since: the saved map is of this run, and none of the autosave is in it.

        Returns:
            Its new name; None where there is no such autosave.

        Raises:
            OSError: the disk is read-only, or gone.
        """
        names = self.newest_first()
        newest = names[:1] == [self.autosave] or (saved_since and self.autosave in names)
        return self.set_aside() if newest else None

    def set_aside(self, again: bool = False) -> Path:
        """Rename the autosave to that of the run before; return its new name, or raise OSError.

        One that is there already, of a run before that one, gets a number: the autosave of a run of
        seconds must not take the place of that of a day. Of more than _PREVIOUS the smallest goes.

        Args:
            again: the one that is there already is of the same run, and is replaced.
        """
        if not again:
            _make_way(self.before, _numbered(self.before, ".gpm"))

        os.replace(self.autosave, self.before)
        return self.before

    def remove_partials(self) -> list[str]:
        """Remove what was left half written and nobody writes any more; return the names."""
        return remove_partials(self.folder)


def _numbered(path: Path, ending: str) -> list[Path]:
    """Names of files that had a file's name before: NAME-2, NAME-3 and so on, with that ending."""
    return [path.with_name(f"{path.stem}-{n}{ending}") for n in range(2, _PREVIOUS + 1)]


def _make_way(path: Path, numbered: list[Path]) -> None:
    """Give a file that is there one of other names, of which the smallest file's is free.

    Args:
        path: of the file; the smallest of all of them is written over next.
        numbered: the other names.

    Raises:
        OSError: the disk is read-only, or gone.
    """
    if not path.exists():
        return
    least = min(numbered, key=lambda each: each.stat().st_size if each.exists() else -1)
    if not least.exists() or least.stat().st_size <= path.stat().st_size:
        os.replace(path, least)


def _second_name(path: Path, second: Path, numbered: list[Path]) -> None:
    """Give a file a second name; what has that name gets one of others, as in _make_way.

    Raises:
        OSError: the disk is full, read-only, or gone.
    """
    _make_way(second, numbered)
    second.unlink(missing_ok=True)
    try:
        os.link(path, second)
    except OSError:  # a file system without second names
        shutil.copyfile(path, second)


def _same(first: Path, second: Path) -> bool:
    """Whether two paths name one file, or two of the same content."""
    try:
        return filecmp.cmp(first, second, shallow=False)
    except OSError:
        return False

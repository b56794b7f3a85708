"""Check --output before the work, which may take minutes.

A disk may still refuse later, so that each command also handles the OSError of its writing.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from gp_mapping.errors import UsageError, named
from gp_mapping.store.atomic import remove_partials

__all__ = ["file_to_write", "folder_to_write", "make_folder"]


def folder_to_write(path) -> Path:
    """Return --output as a folder that exists or can be made.

    Raises:
        UsageError: it is a file, or a recording, or nothing can be written there.
    """
    folder = _path_of(path)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{named(folder)} is a file; --output takes a folder")
    if (folder / "metadata.yaml").exists():
        raise UsageError(f"{named(folder)} is a recording; --output takes another folder")
    _check(folder, folder)
    remove_partials(folder)  # of a command that was killed: as large as a map
    return folder


def file_to_write(path) -> Path:
    """Return --output as a file that exists or can be made; its folder may not exist yet.

    Raises:
        UsageError: it is a folder, or nothing can be written there.
    """
    file = _path_of(path)
    if file.is_dir():
        raise UsageError(f"{named(file)} is a folder; --output takes the name of a file")
    _check(file, file.parent)
    return file


def make_folder(folder: Path) -> None:
    """Make the folder of --output, where it does not exist.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--output {folder}: the folder cannot be made ({error.strerror})"
        ) from error


def _path_of(path) -> Path:
    """Return --output as a path; UsageError where it is empty, as a variable of a script may be."""
    if not str(path).strip():
        raise UsageError("--output is empty; write a name, or . for the folder where you are")
    return Path(path)


def _check(path: Path, folder: Path) -> None:
    """Raise UsageError unless a file can be made in the nearest existing folder above `path`."""
    while not folder.exists() and folder != folder.parent:
        # a dangling link does not exist, but mkdir would fail on it
        if folder.is_symlink():
            raise UsageError(
                f"--output {named(path)}: {named(folder)} is a link that leads nowhere"
            )
        folder = folder.parent

    if not folder.is_dir():
        raise UsageError(f"--output {named(path)}: {named(folder)} is a file, no folder")

    try:
        # permissions alone do not suffice: a disk may be read-only
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"--output {named(path)}: nothing can be written in {named(folder)} "
            f"({error.strerror or error})"
        ) from error

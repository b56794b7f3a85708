"""Where a command writes: looked at before the work, which may take minutes; the disk has the last word."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from gp_mapping.errors import UsageError, named

__all__ = ["file_to_write", "folder_to_write"]


def folder_to_write(path) -> Path:
    """A folder that is there, or that can be made.

    Raises:
        UsageError: it is a file, or nothing can be written there.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{named(folder)} is a file; --output takes a folder")
    _check(folder, folder)
    return folder


def file_to_write(path) -> Path:
    """A file that is there, or that can be made; its folder may still have to be.

    Raises:
        UsageError: it is a folder, or nothing can be written there.
    """
    file = Path(path)
    if file.is_dir():
        raise UsageError(f"{named(file)} is a folder; --output takes the name of a file")
    _check(file, file.parent)
    return file


def _check(path: Path, folder: Path) -> None:
    """UsageError where the nearest of the folders above that exists takes nothing new."""
    while not folder.exists() and folder != folder.parent:
        if folder.is_symlink():
            raise UsageError(
                f"--output {named(path)}: {named(folder)} is a link that leads nowhere"
            )
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"--output {named(path)}: {named(folder)} is a file, no folder")
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"--output {named(path)}: nothing can be written in {named(folder)} "
            f"({error.strerror or error})"
        ) from error

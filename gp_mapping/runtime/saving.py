"""Saves of a live map: a snapshot by the map's thread, written by the file thread, one at a time."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

from gp_mapping.runtime.file_thread import FileThread
from gp_mapping.runtime.suggester import Suggester
from gp_mapping.store.sessions import Saved, key_of, map_folder, take_snapshot, write_snapshot

__all__ = ["Saver"]


class Saver:
    """Saves the map of a worker into folders of save_directory.

    settings: callable, the NodeSettings now.  on_saved, on_error: called with a text for the log, in any thread.
    """

    def __init__(self, worker, files: FileThread, settings, on_saved=print, on_error=print):
        self._worker, self._files, self._settings = worker, files, settings
        self._on_saved, self._on_error = on_saved, on_error
        self._planned: dict[Path, Future] = {}  # saves that have not begun: all who ask now share them
        self._lock = threading.Lock()
        self._key: tuple[int, int, int] | None = None  # of the map that newest_path holds
        self.newest_path: Path | None = None

    def save(self, name: str) -> Future:
        """The Future of Saved for the map of that name.

        Raises ValueError for a name that leads out of save_directory, TooBusy and Ending as FileThread.
        """
        folder = map_folder(self._settings().save_directory, name)
        with self._lock:
            if folder not in self._planned:
                self._planned[folder] = self._files.submit(lambda: self._save(folder))
            return self._planned[folder]

    def _save(self, folder: Path) -> Saved:
        with self._lock:
            self._planned.pop(folder, None)  # from now on a call wants what comes after the snapshot, too
        return self.save_now(folder)

    def save_now(self, folder: Path, exports: bool = True) -> Saved:
        """Snapshot and files, in this thread: the file thread, or any one after the worker has stopped."""
        worker = self._worker
        snapshot = worker.call(lambda session: take_snapshot(session, worker.session_number, flush=True)).result()
        saved = write_snapshot(snapshot, folder, self._suggestions, exports)
        self.mark_saved(snapshot.key, saved.paths["checkpoint"])
        self._on_saved(str(saved))
        return saved

    def mark_saved(self, key: tuple[int, int, int], path: Path) -> None:
        """The map of that key (files.key_of) is in that file."""
        self._key, self.newest_path = key, path

    def is_saved(self) -> bool:
        """Whether the newest save, or the checkpoint that was loaded, holds all of the map. After worker.stop()."""
        worker = self._worker
        return self._key == worker.call(lambda session: key_of(session, worker.session_number)).result()

    def _suggestions(self, session, grid):
        """The places to measure next; a map is saved without them where that fails."""
        settings = self._settings()
        if not settings.suggestion_rate or not session.cell_count:
            return None
        try:
            return Suggester(settings)(session, grid, self._worker.position, self._worker.free, self._worker.frame)
        except Exception as error:  # whatever it is, the map must reach the disk
            self._on_error(f"saved without suggestions: {error!r}")
            return None

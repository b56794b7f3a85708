"""Saves a live map: the map's thread takes a snapshot, the file thread writes it, one at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from gp_mapping.runtime.file_thread import FileThread, QueueFullError
from gp_mapping.runtime.surveying.rules import RulesNow
from gp_mapping.runtime.surveying.suggester import Suggester
from gp_mapping.store.checkpoint import CheckpointError, about_checkpoint, save_checkpoint
from gp_mapping.store.in_use import Claim, alone_in
from gp_mapping.store.resume import MapFiles
from gp_mapping.store.sessions import SaveResult, map_folder, take_snapshot, write_snapshot

__all__ = ["Saver", "keep_before"]

# s by which an autosave begins early, so that a crash costs no more than the autosave's period
_MARGIN = 0.5


def keep_before(files: MapFiles, warn) -> bool:
    """Set an autosave of a run before aside, that is newer than the saved map, and say so.

    Args:
        files: of the map.
        warn: called with a text for the log.

    Returns:
        False where it should be, and the disk does not let it.
    """
    try:
        kept = files.keep_before()
    except OSError as error:
        warn(
            "a run before has saved a map by itself that is newer than the saved one, and it cannot be set "
            f"aside: {error}; until it can be, this run does not save by itself"
        )
        return False

    _say_kept(kept, warn)
    return True


def _say_kept(kept: Path | None, warn) -> None:
    """Say that an autosave of a run before was set aside, if one was."""
    if kept is not None:
        warn(
            "a run before has saved a map by itself that is newer than the saved one; it is kept as "
            f"{kept}; set resume: true to go on from it"
        )


class Saver:
    """Saves the map of a worker into folders of save_directory, on request and periodically.

    Args:
        worker: MapWorker.
        files: thread that writes.
        settings: function that returns the current NodeSettings.
        node_name: fully qualified.
        on_saved: called with a text for the log, in any thread.
        on_error: called with a text for the log, in any thread.
        shown: save what is shown, the map of several robots, and not this robot's own.
        own: files that may be written over, since this run goes on from them or has set them
            aside. Any other one is kept under another name before one is written there:
            autosave_period and map_name may be set live, and another process may save, too.
        rules: as in Suggester.
        claim: of the files; None: one that has claimed nothing yet.

    Attributes:
        newest_path: the checkpoint of the newest save; None before one.
        written: the checkpoints that this run has saved on request.
        autosaves: how many were written.
        problem: why the newest autosave was not written, or what it had to leave out; ''
            where all was written.
        shared: which other process of this machine saves into the same files, in words; ''
            where none is known.
    """

    def __init__(
        self,
        worker,
        files: FileThread,
        settings,
        node_name: str,
        on_saved=print,
        on_error=print,
        shown: bool = False,
        own: Sequence[Path] = (),
        rules: RulesNow | None = None,
        claim: Claim | None = None,
    ):
        self._rules, self._claim = rules, Claim() if claim is None else claim
        # the files that may be written over, and which map is in each; "": none
        self._own: dict[Path, str] = {path: _map_in(path) for path in own}
        self._shared: set[Path] = set()  # those that somebody else writes, too
        self._ask = worker.ask if shown else worker.call
        self._worker, self._files, self._settings = worker, files, settings
        self._node_name, self._on_saved, self._on_error = node_name, on_saved, on_error
        # saves that have not begun, by folder: all requests until then share one
        self._planned: dict[Path, Future] = {}
        self._lock = threading.Lock()
        self._key: tuple[int, int, int] | None = None  # of the map that newest_path holds
        self.newest_path: Path | None = None
        self.written: set[Path] = set()

        self._autosaving: Future | None = None
        self._begun, self._took = time.monotonic(), 0.0
        # a map that is as it was loaded has not changed
        self._autosaved: tuple[int, int, int] | None = worker.key
        self.autosaves, self.problem, self.shared = 0, "", ""
        self._look_for_others(self._files_now())

    # ---- on request ----

    def save(self, name: str) -> Future:
        """Save the map under a name.

        Args:
            name: of the map's folder in save_directory.

        Returns:
            The Future of a SaveResult.

        Raises:
            ValueError: the name leads out of save_directory.
            QueueFullError: as FileThread.submit.
            ClosingError: as FileThread.submit.
        """
        folder = map_folder(self._settings().save_directory, name)
        with self._lock:
            if folder not in self._planned:
                self._planned[folder] = self._files.submit(lambda: self._save(folder))
            return self._planned[folder]

    def _save(self, folder: Path) -> SaveResult:
        """Write a save that was planned, in the file thread."""
        # before the snapshot: a later request wants what comes after it, too
        with self._lock:
            self._planned.pop(folder, None)
        return self.save_now(folder)

    def save_now(self, folder: Path, exports: bool = True, flush: bool = True) -> SaveResult:
        """Take a snapshot and write it, in this thread.

        It is for the file thread, or for any thread after the worker has stopped.

        Args:
            folder: of the map.
            exports: write pictures and other files, in addition to the checkpoint.
            flush: take in what waits first; without, it waits in the checkpoint, too, and nothing
                is logged, since another save follows.
        """
        snapshot = self._snapshot(flush)
        files = MapFiles(folder, self._node_name)
        saved = write_snapshot(
            snapshot,
            folder,
            lambda: self._about(files),
            self._suggestions,
            exports,
            lambda said: self._alone(files, files.saved, said),
        )
        self._key, self.newest_path = snapshot.key, saved.paths["checkpoint"]
        self.written.add(self.newest_path)
        if flush:
            self._on_saved(str(saved))
        return saved

    def mark_saved(self, key: tuple[int, int, int], path: Path) -> None:
        """Note that a map is in a file.

        Args:
            key: of the map, as MapWorker.key.
            path: of the file.
        """
        self._key, self.newest_path = key, path
        self._own[path.absolute()] = _map_in(path)

    def is_saved(self) -> bool:
        """Whether the newest save, or the checkpoint that was loaded, has all of the map."""
        return self._key == self._worker.key

    def has_measurements(self) -> bool:
        """Whether that file has all measurements of the map, if not what it has learned since."""
        key = self._worker.key
        return self._key is not None and (self._key[0], self._key[2]) == (key[0], key[2])

    def _snapshot(self, flush: bool):
        """Have the worker take a snapshot, and wait for it.

        Args:
            flush: after all that is queued now; else at once, so that a queue of minutes does not
                make an autosave late by as much.
        """
        worker = self._worker
        return self._ask(
            lambda session: worker.timed("snapshot", take_snapshot, session, worker.key, flush),
            soon=not flush,
        ).result()

    def _about(self, files: MapFiles) -> dict:
        """Running number and time of a checkpoint."""
        written = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return {"number": files.next_number(), "written": written}

    def _suggestions(self, session, grid):
        """Places to measure next; None where there are none, or where planning them fails."""
        settings = self._settings()
        if not settings.suggestion_rate or not session.cell_count:
            return None

        try:
            return Suggester(settings, rules=self._rules)(
                session,
                grid,
                self._worker.position,
                self._worker.free,
                self._worker.published_frame,
            )
        except Exception as error:  # whatever it is, the map must reach the disk
            self._on_error(f"saved without suggestions: {error!r}")
            return None

    # ---- periodically ----

    @property
    def autosaved_path(self) -> Path | None:
        """The autosave that this run has written; None where it has not."""
        return self._files_now().autosave if self.autosaves else None

    def autosave(self, now: float) -> None:
        """Queue a checkpoint where one is due and the map has changed. Never waits.

        One is due when it would be on the disk a period after the last one began.

        Args:
            now: monotonic s.
        """
        period = self._settings().autosave_period
        if not period or (self._autosaving is not None and not self._autosaving.done()):
            return
        if now - self._begun < max(0.5 * period, period - self._took - _MARGIN):
            return

        if self._has_changed():
            self._queue_autosave(now)

    def _has_changed(self) -> bool:
        """Whether there is something that neither the autosave nor the saved map holds."""
        if self._worker.key in (self._autosaved, self._key):
            return False
        # nothing is in the map yet; a crash would bring one back that has a file and was cleared
        return bool(self._worker.revision or self.autosaves or self._key is not None)

    def autosave_last(self) -> None:
        """Bring the autosave up to date at the end, where `resume` goes on from it, or it is there.

        It is for any thread after the worker has stopped.
        """
        settings = self._settings()
        goes_on = settings.resume and settings.autosave_period
        if (self.autosaves or goes_on) and self._has_changed():
            self.autosave_now()

    def _queue_autosave(self, now: float) -> None:
        """Queue a checkpoint, or say that there is no room for it; now: monotonic s."""
        self._begun = now
        try:
            self._autosaving = self._files.submit(self.autosave_now)
        except QueueFullError as error:
            self.problem = f"the map could not be saved by itself: {error}"
            self._on_error(self.problem)

    def autosave_now(self) -> None:
        """Write an autosave, in this thread; an error is kept in `problem` and logged.

        It is for the file thread, or for any thread after the worker has stopped.
        """
        started = time.monotonic()
        try:
            files = self._files_now()
            said: list[str] = []
            snapshot = self._snapshot(flush=False)
            with self._alone(files, files.autosave, said):
                save_checkpoint(files.autosave, snapshot.state, self._about(files), said)
        except Exception as error:  # a full disk must not end a map, but has to be reported
            reason = str(error) if isinstance(error, ValueError | OSError) else repr(error)
            self.problem = f"the map could not be saved by itself: {reason}"
            self._on_error(self.problem)
            return

        self._autosaved, self._took = snapshot.key, time.monotonic() - started
        self.autosaves, before = self.autosaves + 1, self.problem
        self.problem = "; ".join(said)
        if self.problem not in ("", before):
            self._on_error(self.problem)

    @contextmanager
    def _alone(self, files: MapFiles, path: Path, said: list[str]) -> Iterator[None]:
        """Surround the writing of a file: no other process saves there meanwhile, nor loses a map.

        Args:
            files: of the map.
            path: one of them.
            said: gets sentences on what others have written there.
        """
        with alone_in(files.folder):
            self._look_for_others(files)
            (self._keep_autosave if path == files.autosave else self._keep_saved)(
                files, said.append
            )
            yield
            self._own[path] = _map_in(path)

    def _look_for_others(self, files: MapFiles) -> None:
        """Claim the files; say which other process has claimed them."""
        before, number = self.shared, self._claim.holder(files.autosave)
        self.shared = ""
        if number:
            who = f"process {number}" if number > 0 else "another process"
            self.shared = (
                f"{who} on this machine saves into {files.folder}, too, under the same names: was a "
                "node started twice? The map of neither is lost, for each keeps what the other has saved as "
                f"{files.saved_before.name} or {files.before.name}; end one, or give each a save_directory or a "
                "namespace of its own"
            )
        if self.shared not in ("", before):
            self._on_error(self.shared)

    def _keep_saved(self, files: MapFiles, warn) -> None:
        """Keep a saved map that is not this run's under another name.

        Args:
            files: of the map.
            warn: called with a sentence where there is one.
        """
        path = files.saved
        if _map_in(path) in ("", self._own.get(path)):
            return

        kept = files.keep_saved()
        whose = (
            "somebody else saves there, too"
            if path in self._own
            else "this run did not go on from it"
        )
        text = f"{path} was of another map ({whose}), which is kept as {kept}"
        warn(text)
        self._on_error(text)  # of the first save at the end nothing else is logged

    def _keep_autosave(self, files: MapFiles, warn) -> None:
        """Set an autosave aside that is not this run's.

        Args:
            files: of the map.
            warn: called with a sentence where somebody else still writes that file.
        """
        path = files.autosave
        if path not in self._own:
            with suppress(FileNotFoundError):  # somebody has moved it
                _say_kept(files.keep_before(self.newest_path == files.saved), self._on_error)
            self._own[path] = _map_in(path)
        elif _map_in(path) not in ("", self._own[path]):
            kept = files.set_aside(again=path in self._shared)
            self._shared.add(path)
            warn(
                f"somebody else saves by itself as {path}, too: a node of the same name on another machine or "
                f"ROS_DOMAIN_ID? Its map is kept as {kept}; give each node a save_directory or a namespace of its own"
            )

    @property
    def problems(self) -> list[str]:
        """What is wrong with the files, in sentences."""
        return [text for text in (self.problem, self.shared) if text]

    def release(self) -> None:
        """Let others save into the files of this map."""
        self._claim.release()

    def is_autosaved(self) -> bool:
        """Whether the newest autosave of this run has all of the map."""
        return bool(self.autosaves) and self._autosaved == self._worker.key

    def _files_now(self) -> MapFiles:
        """Files of the map that the settings name now."""
        settings = self._settings()
        return MapFiles(map_folder(settings.save_directory, settings.map_name), self._node_name)


def _map_in(path: Path) -> str:
    """The id of the map in a file; "" where there is none, or none that can be read."""
    try:
        return about_checkpoint(path)["id"]
    except CheckpointError:
        return ""

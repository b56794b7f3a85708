"""How a live map ends: delivered messages go in, the map is saved, the last map is published."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gp_mapping.ros.mapper.steps import Steps, in_thread
from gp_mapping.runtime.file_thread import ClosingError, QueueFullError
from gp_mapping.store.sessions import map_folder

__all__ = ["MapEnding"]

SLICE = 0.05  # s for which delivered messages are taken in before the executor gets its turn
_REASON = ClosingError("the node is being stopped or cleaned up; ask again when it is configured")
LONG = 1.0  # s of taking in after which the map is saved as it is, for all that may yet happen
GRACE = 2.0  # s granted to a save that has begun, and to the last map to reach its subscribers


class MapEnding:
    """Ends the map of a MappingNode within node.settings.exit_timeout (s).

    The work is done in steps (steps.py), so that calls are answered and diagnostics are published
    meanwhile.

    Args:
        node: The MappingNode.
        hurry: Returns True once a second signal has asked for a quick end: what still waits is then
            counted and dropped.
    """

    def __init__(self, node, hurry: Callable[[], bool] = lambda: False):
        self._node, self._hurry, self._code = node, hurry, 0
        self._saved: bool | None = None  # whether save_on_exit has; None: it was not tried yet
        self._began = time.monotonic()
        self._deadline = self._began + node.settings.exit_timeout
        self._kept_early = False

    def _late(self) -> bool:
        return self._hurry() or time.monotonic() > self._deadline

    def _room_for(self, seconds: float) -> Callable[[], bool]:
        """A function that returns True while the map's queue has room, for `seconds` at most."""
        end = time.monotonic() + seconds
        return lambda: not self._node.worker.full and time.monotonic() < end

    def take_in(self) -> Steps:
        """Hand on the messages that the middleware has delivered; count and log what is dropped."""
        node = self._node
        node.inputs.hold()

        may_have_more = True
        while may_have_more and not self._late():
            may_have_more = node.inputs.drain(self._room_for(SLICE))
            if may_have_more:  # else: what comes from now on was delivered after the end began
                yield

        # what has not been taken in by the deadline
        left = node.inputs.discard()
        if left:
            for role, count in left.items():
                node.worker.count("abandoned", count, role)
            node.get_logger().warning(
                f"{left.total()} messages that had been delivered were not taken in any more: "
                f"{self._why_unfinished()}"
            )

    def finish(self) -> Steps:
        """Take in what has come, save if asked, answer all calls and publish the last map.

        Who ends this process may kill it some seconds later. So the map is saved as it is where
        taking in what waits is a long work, again before the last, thorough searches, and once more
        after them, with pictures. A part that fails is logged and costs the exit code, not the
        parts after it.

        Returns:
            The exit code: 1 where saving or another part failed, else 0.
        """
        if self._node.active:
            yield from self._part("taking in what has been delivered", self._close_inputs())
        yield from self._part("taking in the queue", self._take_in_queue())
        yield from self._part("saving the map", self._keep())
        yield from self._part("the last searches", self._finish_map())
        yield from self._part("publishing the last map", self._publish())
        return self._code

    def _part(self, what: str, steps: Steps) -> Steps:
        """Run a part of the end; log where it fails, whatever the reason."""
        try:
            yield from steps
        except Exception:
            self._code = 1
            self._node.get_logger().error(
                f"{what} failed at the end; the rest goes on:\n{traceback.format_exc()}"
            )

    def _close_inputs(self) -> Steps:
        yield from self.take_in()
        self._node.inputs.close()

    def _take_in_queue(self) -> Steps:
        """Refuse new calls; take in the queue, and count and log what is dropped of it."""
        node = self._node
        node.map_services.refuse(_REASON)
        while not node.worker.stop(abandon=self._late(), timeout=0.0, finish=False):
            self._keep_early()
            yield

        counts = node.worker.status.counts
        left = sum(counts.get(name, 0) for name in ("abandoned", "pose_abandoned", "fix_abandoned"))
        if left:
            node.get_logger().warning(
                f"{left} messages are not in the map: {self._why_unfinished()}"
            )
        node.publish_health()

    def _keep_early(self) -> None:
        """Have the map saved as it is, once, where the end has taken LONG."""
        node, settings = self._node, self._node.settings
        if self._kept_early or time.monotonic() < self._began + LONG:
            return

        self._kept_early = True
        with suppress(ValueError, QueueFullError, ClosingError):  # the save at the end reports it
            if settings.save_on_exit:
                folder = map_folder(settings.save_directory, settings.map_name)
                node.files.submit(lambda: node.saver.save_now(folder, exports=False, flush=False))
            elif settings.resume and settings.autosave_period:
                node.files.submit(node.saver.autosave_now)

    def _keep(self) -> Steps:
        """Finish what is being saved, answer the calls that wait, and save the map if asked."""
        node, grace_end = self._node, time.monotonic() + GRACE
        while not node.files.close(0.0) and not (self._late() and time.monotonic() > grace_end):
            yield  # a save that has begun is granted GRACE even where there is no time left
        node.map_services.refuse_waiting(_REASON)

        if (yield from in_thread(self._save_or_report, True)):
            self._code = 1

    def _finish_map(self) -> Steps:
        """Do what the map has put off, save it once more, and log what is saved and what is not."""
        yield from in_thread(self._node.worker.finish, self._late)
        self._node.publish_health()
        if (yield from in_thread(self._save_or_report, False)):
            self._code = 1

    def _publish(self) -> Steps:
        """Publish the last map, and wait until it has reached its subscribers."""
        node = self._node
        if node.active:
            yield from node.publish_last(not self._late())

        end = time.monotonic() + GRACE
        while not node.publishers_.received() and time.monotonic() < end:
            yield

    def _why_unfinished(self) -> str:
        """Why messages are dropped at the end, in words."""
        return (
            "a second signal asked for a quick end"
            if self._hurry()
            else f"exit_timeout is {self._node.settings.exit_timeout:g} s"
        )

    def _save_or_report(self, first: bool) -> int:
        """Save the map if asked; log what is lost where no file holds the map.

        Args:
            first: save it as it is, and log nothing but what fails; it may be finished after this.

        Returns:
            The exit code: 1 where saving failed, else 0.
        """
        node, log, settings = self._node, self._node.get_logger(), self._node.settings
        # a base station has no map of its own: its map is the sum that it shows
        report = (
            node.worker.status.report
            if node.listens
            else node.worker.ask(lambda shown: shown.report()).result()
        )

        if not report["cells"]:
            node.saver.autosave_last()  # a map that was cleared must not come back
            if settings.save_on_exit and not first:
                log.info("nothing was measured, so nothing is saved")
            return 0
        early = settings.save_on_exit and self._kept_early  # it has no pictures
        if node.listens and node.saver.is_saved() and self._saved is None and not early:
            self._say(first, f"the map is saved already: {node.saver.newest_path}")
            return 0

        if node.listens and not settings.save_on_exit and node.saver.has_measurements():
            self._say(
                first,
                f"all measurements of the map are saved: {node.saver.newest_path}; what it has learned since is not",
            )
            return 0

        size = f"{report['samples']} measurements, {report['cells']} cells, {report['path_length']:.1f} m of path"
        if settings.save_on_exit:
            return self._save(size, first)
        if first:
            node.saver.autosave_last()
        else:
            self._autosave_or_report(size)
        return 0

    def _say(self, first: bool, text: str) -> None:
        """Log what holds the map, at the end."""
        if not first:
            self._node.get_logger().info(text)

    def _autosave_or_report(self, size: str) -> None:
        """Bring the autosave up to date, where there is one or resume is set; log what is lost.

        Args:
            size: Of the map, in words.
        """
        node, log, saver = self._node, self._node.get_logger(), self._node.saver
        saver.autosave_last()  # replaces an autosave of an earlier state of this map
        if not saver.is_autosaved():
            log.warning(
                f"a map that was not saved is dropped: {size}; call ~/save before, or set "
                "save_on_exit: true"
            )
        elif node.settings.resume:
            log.info(
                f"the next run goes on from {saver.autosaved_path}, which has all of the map: {size}"
            )
        else:
            log.warning(
                f"a map that was not saved is dropped: {size}; resume: true goes on from "
                f"{saver.autosaved_path}, and save_on_exit: true saves"
            )

    def _save(self, size: str, first: bool) -> int:
        """Save into save_directory, else into a temporary folder; the exit code.

        Args:
            size: Of the map, in words.
            first: As of _save_or_report.
        """
        node, log, directory = (
            self._node,
            self._node.get_logger(),
            self._node.settings.save_directory,
        )
        if self._saved is not None and (not self._saved or self._late()):
            if self._saved:
                log.warning(
                    f"saved {node.saver.newest_path} without pictures, and without what the last searches "
                    f"for faults of the sensor may have found: {self._why_unfinished()}"
                )
            return 0

        try:
            folder = map_folder(directory, node.settings.map_name)
            node.saver.save_now(folder, exports=not first, flush=not first)
            self._saved = True
            return 0
        except Exception as error:  # whatever the reason: it goes into the log and the exit code
            log.error(
                f"the map was not saved into {Path(directory).expanduser().absolute()}: {_reason(error)}"
            )

        self._saved = False
        try:
            folder = Path(tempfile.mkdtemp(prefix="gp_mapping_"))
            node.saver.save_now(folder, exports=False, flush=not first)
            log.error(
                f"the map was saved into {folder} instead: move all that is in it to where it shall stay"
            )
        except Exception as error:
            log.error(
                f"nor could it be saved into {tempfile.gettempdir()}: {_reason(error)}; lost are {size}"
            )
        return 1


def _reason(error: Exception) -> str:
    """The text of an expected error; of others also the type."""
    return str(error) if isinstance(error, ValueError | OSError) else repr(error)

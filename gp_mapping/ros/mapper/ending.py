"""How a live map ends: what was delivered goes in, then it is saved, or said to be lost; then the last map goes out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gp_mapping.ros.mapper.steps import Steps, aside
from gp_mapping.runtime.file_thread import Ending
from gp_mapping.store.sessions import map_folder

__all__ = ["MapEnding"]

SLICE = 0.05  # s of taking in what was delivered, between two looks at what else there is to do
LEAST = 2.0  # s for a save that has begun, and for the last map to arrive


class MapEnding:
    """Ends the map of a MappingNode; node.settings.exit_timeout bounds how long it goes on taking in.

    Its work is done in steps (steps.py), so that calls are answered and diagnostics go out meanwhile.

    hurry: callable; True where somebody has asked a second time: what still waits is then counted and left.
    """

    def __init__(self, node, hurry: Callable[[], bool] = lambda: False):
        self._node, self._hurry = node, hurry
        self._deadline = time.monotonic() + node.settings.exit_timeout

    def _late(self) -> bool:
        return self._hurry() or time.monotonic() > self._deadline

    def _room_for(self, seconds: float) -> Callable[[], bool]:
        """Says whether the map's queue has room, for so long."""
        end = time.monotonic() + seconds
        return lambda: not self._node.worker.full and time.monotonic() < end

    def take_in(self) -> Steps:
        """Hand on what the middleware has delivered and nobody has taken yet; count and say what is left."""
        node = self._node
        node.inputs.hold()
        found = True
        while found and not self._late():
            found = node.inputs.drain(self._room_for(SLICE))
            if found:  # else what comes from now on was delivered after the end began
                yield

        left = node.inputs.discard()
        if left:
            for role, count in left.items():
                node.worker.count("abandoned", count, role)
            node.get_logger().warning(
                f"{left.total()} messages that had been delivered were not taken in any more: "
                f"{self._why()}"
            )

    def finish(self) -> Steps:
        """Take in what is queued, save if asked, answer all calls, publish the last map. 1 where saving failed."""
        node, reason = (
            self._node,
            Ending("the node is being stopped or cleaned up; ask again when it is configured"),
        )
        node.map_services.refuse(reason)
        while not node.worker.stop(abandon=self._late(), timeout=0.0):
            yield
        counts = node.worker.status.counts
        left = sum(counts.get(name, 0) for name in ("abandoned", "pose_abandoned", "fix_abandoned"))
        if left:
            node.get_logger().warning(f"{left} messages are not in the map: {self._why()}")
        node.publish_health()

        least = time.monotonic() + LEAST
        while not node.files.close(0.0) and not (self._late() and time.monotonic() > least):
            yield  # a save that has begun is waited for
        node.map_services.refuse_waiting(reason)
        code = yield from aside(self._keep)
        if node.active:
            yield from node.publish_last()

        end = time.monotonic() + LEAST
        while not node.publishers_.received() and time.monotonic() < end:
            yield
        return code

    def _why(self) -> str:
        return (
            "a second signal asked for a quick end"
            if self._hurry()
            else f"exit_timeout is {self._node.settings.exit_timeout:g} s"
        )

    def _keep(self) -> int:
        """Save the map if asked, once; say what is lost where it is not on any disk."""
        node, log = self._node, self._node.get_logger()
        # a base station has no map of its own: what it shows is all there is
        report = (
            node.worker.status.report
            if node.listens
            else node.worker.ask(lambda shown: shown.report()).result()
        )
        if not report["cells"]:
            if node.settings.save_on_exit:
                log.info("nothing was measured, so nothing is saved")
            return 0
        if node.listens and node.saver.is_saved():
            log.info(f"the map is saved already: {node.saver.newest_path}")
            return 0
        size = f"{report['samples']} measurements, {report['cells']} cells, {report['path_length']:.1f} m of path"
        if not node.settings.save_on_exit:
            if node.saver.autosaves and not node.saver.is_autosaved():
                node.saver.autosave_now()  # the one that is there becomes this one
            if node.saver.is_autosaved():
                log.warning(
                    f"a map that was not saved is dropped: {size}; resume: true goes on from "
                    f"{node.saver.autosaved_path}, and save_on_exit: true saves"
                )
            else:
                log.warning(
                    f"a map that was not saved is dropped: {size}; call ~/save before, or set "
                    "save_on_exit: true"
                )
            return 0
        return self._save(size)

    def _save(self, size: str) -> int:
        node, log, where = self._node, self._node.get_logger(), self._node.settings.save_directory
        try:
            node.saver.save_now(map_folder(where, node.settings.map_name))
            return 0
        except (
            Exception
        ) as error:  # every reason why a map is not on disk ends in the log and in the exit code
            log.error(
                f"the map was not saved into {Path(where).expanduser().absolute()}: {_reason(error)}"
            )
        try:
            folder = Path(tempfile.mkdtemp(prefix="gp_mapping_"))
            node.saver.save_now(folder, exports=False)
            log.error(
                f"the map was saved into {folder} instead: move {folder}/map.gpm to where it shall stay"
            )
        except Exception as error:
            log.error(
                f"nor could it be saved into {tempfile.gettempdir()}: {_reason(error)}; lost are {size}"
            )
        return 1


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError | OSError) else repr(error)

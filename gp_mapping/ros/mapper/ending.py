"""How a live map ends: what was delivered goes in, then it is saved, or said to be lost; then the last map goes out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gp_mapping.store.sessions import map_folder

__all__ = ["MapEnding"]


class MapEnding:
    """Ends the map of a MappingNode; node.settings.exit_timeout bounds how long it goes on taking in.

    hurry: callable; True where somebody has asked a second time: what still waits is then counted and left.
    """

    def __init__(self, node, hurry: Callable[[], bool] = lambda: False):
        self._node, self._hurry = node, hurry
        self._deadline = time.monotonic() + node.settings.exit_timeout

    def _late(self) -> bool:
        return self._hurry() or time.monotonic() > self._deadline

    def take_in(self) -> None:
        """Hand on what the middleware has delivered and nobody has taken yet; count and say what is left."""
        node = self._node

        def wait_for_room() -> bool:
            while node.worker.full and not self._late():
                time.sleep(0.005)
            return not self._late()

        node.inputs.drain(wait_for_room)
        left = node.inputs.discard()
        if left:
            node.worker.count("abandoned", left)
            node.get_logger().warning(f"{left} messages that had been delivered were not taken in any more: "
                                      f"{self._why()}")

    def finish(self) -> int:
        """Take in what is queued, save if asked, answer all calls, publish the last map. 1 where saving failed."""
        node = self._node
        while not node.worker.stop(abandon=self._late(), timeout=0.1):
            pass
        left = node.worker.status.counts.get("abandoned", 0)
        if left:
            node.get_logger().warning(f"{left} messages are not in the map: {self._why()}")
        node.publish_health()

        node.files.close(max(1.0, self._deadline - time.monotonic()))  # a save that has begun is waited for
        node.map_services.close("the node is being stopped or cleaned up; ask again when it is configured")
        code = self._keep()
        if node.active:
            node.publish_last()
        node.publishers_.wait_until_received(2.0)
        return code

    def _why(self) -> str:
        return "a second signal asked for a quick end" if self._hurry() else \
            f"exit_timeout is {self._node.settings.exit_timeout:g} s"

    def _keep(self) -> int:
        """Save the map if asked, once; say what is lost where it is not on any disk."""
        node, log = self._node, self._node.get_logger()
        report = node.worker.status.report
        if not report["cells"]:
            if node.settings.save_on_exit:
                log.info("nothing was measured, so nothing is saved")
            return 0
        if node.saver.is_saved():
            log.info(f"the map is saved already: {node.saver.newest_path}")
            return 0
        size = (f"{report['samples']} measurements, {report['cells']} cells, {report['path_length']:.1f} m of path")
        if not node.settings.save_on_exit:
            if node.saver.autosaves and not node.saver.is_autosaved():
                node.saver.autosave_now()  # the one that is there becomes this one
            if node.saver.is_autosaved():
                log.warning(f"a map that was not saved is dropped: {size}; resume: true goes on from "
                            f"{node.saver.autosaved_path}, and save_on_exit: true saves")
            else:
                log.warning(f"a map that was not saved is dropped: {size}; call ~/save before, or set "
                            "save_on_exit: true")
            return 0
        return self._save(size)

    def _save(self, size: str) -> int:
        node, log, where = self._node, self._node.get_logger(), self._node.settings.save_directory
        try:
            node.saver.save_now(map_folder(where, node.settings.map_name))
            return 0
        except Exception as error:  # every reason why a map is not on disk ends in the log and in the exit code
            log.error(f"the map was not saved into {Path(where).expanduser().absolute()}: {_reason(error)}")
        try:
            folder = Path(tempfile.mkdtemp(prefix="gp_mapping_"))
            node.saver.save_now(folder, exports=False)
            log.error(f"the map was saved into {folder} instead: move {folder}/map.gpm to where it shall stay")
        except Exception as error:
            log.error(f"nor could it be saved into {tempfile.gettempdir()}: {_reason(error)}; lost are {size}")
        return 1


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError | OSError) else repr(error)

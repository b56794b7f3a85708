"""The node's services: save, load, clear, pause, maps on demand.

Names of maps lead into save_directory only. No callback waits: the map's thread takes a snapshot or
draws, the file thread reads and writes, and the answer is sent afterwards (late_services.py).
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from pathlib import Path

from nav_msgs.msg import OccupancyGrid
from nav_msgs.srv import GetMap
from std_srvs.srv import SetBool, Trigger

from gp_mapping.errors import named
from gp_mapping.ros.mapper.late_services import PendingAnswer
from gp_mapping.runtime.file_thread import ClosingError
from gp_mapping.runtime.saving import Saver
from gp_mapping.store.archive import MissingCheckpoint
from gp_mapping.store.sessions import CHECKPOINT, SaveResult, map_folder, open_session

__all__ = ["LOAD_MAP", "SAVE_MAP", "MapServices"]

LOAD_MAP = ("nav2_msgs/srv/LoadMap", "nav_msgs/srv/LoadMap")
"""Types of ~/load_map, the first that is installed: the same fields under two names."""
SAVE_MAP = "nav2_msgs/srv/SaveMap"


@dataclass(eq=False)
class _Load:
    """A saved map that takes the place of the current one; all who wait for it share it.

    Attributes:
        path: Of the checkpoint.
        drawn: Whether to draw it, too.
        future: Of (path, session, what whole_map() returns or None). It fails, and the current map
            stays, where the saved one cannot be used.
        text: For the log, once the node goes on with the map; '' before.
    """

    path: Path
    drawn: bool
    future: Future = field(default_factory=Future)
    text: str = ""


class MapServices:
    """Services of a MappingNode that is configured.

    Args:
        node: The MappingNode.
        files: FileThread, which loads maps.
        saver: Saves the map.
        find: ROS type name -> its class, or None where it is not installed.
    """

    def __init__(self, node, files, saver: Saver, find):
        self._node, self._files, self._saver = node, files, saver
        self._next_load: _Load | None = None  # the newest one, until it begins
        self._lock = threading.Lock()
        self._late = node.late_services(
            "map", node.settings.service_queue_size, lambda n: node.worker.count("service_busy", n)
        )

        load = next(found for name in LOAD_MAP if (found := find(name)) is not None)
        save = find(SAVE_MAP)
        services = [
            (Trigger, "save", self._on_save),
            (Trigger, "load", self._on_load),
            (Trigger, "clear", self._on_clear),
            (SetBool, "pause", self._on_pause),
            (GetMap, "get_mean", self._on_get_mean),
            (GetMap, "get_stddev", self._on_get_stddev),
            (load, "load_map", self._on_load_map),
        ]
        if save is not None:
            services.append((save, "save_map", self._on_save_map))
        # the other services have success and message, which _Refusal fills in
        refusals = {
            "load_map": self._refuse_load_map,
            "save_map": self._refuse_save_map,
            "get_mean": self._refuse_map,
            "get_stddev": self._refuse_map,
        }

        for kind, name, answer in services:
            self._late.add(
                kind, name, answer, refusals.get(name) or _Refusal(self, WHAT_FAILED[name])
            )

    @property
    def waiting(self) -> int:
        """Number of calls that have no answer yet."""
        return self._late.waiting

    def refuse(self, reason: ClosingError) -> None:
        """Refuse new calls with this reason; calls that wait go on."""
        self._late.refuse(reason)

    def refuse_waiting(self, reason: ClosingError) -> None:
        """Answer all waiting calls, by their result or this reason, and refuse new ones with it."""
        self._late.refuse_waiting(reason)

    def log_refusal(self, what: str, error: BaseException) -> str:
        """Log why something was not done, and return the text.

        Args:
            what: What was not done.
            error: Why; of unexpected kinds of errors the text shows the kind, too.
        """
        expected = isinstance(error, ValueError | OSError | RuntimeError)
        reason = (
            str(error)
            if expected and str(error)
            else "the node was stopped before its turn came"
            if isinstance(error, CancelledError)
            else repr(error)
        )
        text = f"{what}: {reason}"
        self._node.get_logger().error(text)
        return text

    # ---- save and load ---------------------------------------------------------------------------

    def _on_save(self, request, response) -> PendingAnswer:
        """Save under map_name (std_srvs/Trigger)."""
        return PendingAnswer(self._saver.save(self._node.settings.map_name), _fill_saved)

    def _on_save_map(self, request, response) -> PendingAnswer:
        """Save under the name that map_url gives (nav2_msgs/SaveMap).

        map_url is the name of a map, as map_name, or its path inside save_directory.

        Raises:
            ValueError: A field asks for a format in which maps are not written.
        """
        writable = {
            "image_format": ("", "pgm"),
            "map_mode": ("", "raw"),
            "free_thresh": (0.0, 0.25),
            "occupied_thresh": (0.0, 0.65),
        }
        for name, accepted in writable.items():
            value = getattr(request, name)
            if not any(
                value == choice or (isinstance(choice, float) and abs(value - choice) < 1e-6)
                for choice in accepted
            ):
                raise ValueError(
                    f"{name}: {named(value)} cannot be had: the values of a field are written as pgm of "
                    f"mode raw, which has no thresholds; write {accepted[1]!r} or leave it out"
                )

        return PendingAnswer(self._saver.save(self._inside(request.map_url)), _fill_result)

    def _inside(self, url: str) -> str:
        """The map's name from a map_url that is a name or a path inside save_directory."""
        base = Path(self._node.settings.save_directory).expanduser().absolute()
        path = Path(url.removeprefix("file://"))
        if not (path.is_absolute() and path.is_relative_to(base)):
            return _map_name(url)
        inside = path.relative_to(base)
        # save_directory itself is the map without a name
        return "" if inside == Path() else _map_name(str(inside))

    def _refuse_save_map(self, response, error: BaseException) -> None:
        response.result = False
        self.log_refusal("not saved", error)

    def _load(self, name: str, drawn: bool) -> _Load:
        """Begin to put a saved map in the place of the current one.

        Calls for one map share a load that has not begun, unless another map is to come after it.

        Args:
            name: Of the saved map.
            drawn: Whether to draw it, too.
        """
        folder = map_folder(self._node.settings.save_directory, name)
        path = (folder / CHECKPOINT).absolute()
        with self._lock:
            load = self._next_load
            if load is not None and load.path == path:
                load.drawn |= drawn
                return load
            load = _Load(path, drawn)
            load.future = self._files.submit(lambda: self._read(load))
            self._next_load = load
        return load

    def _read(self, load: _Load) -> tuple:
        """Open the file of a load and go on with its map, in the file thread."""
        with self._lock:  # who asks from now on wants what the file holds by then
            self._next_load = None if self._next_load is load else self._next_load

        node, path = self._node, load.path
        # the saved map must be in the frame of the poses that come now
        wanted = replace(node.wanted, frame=node.worker.frame or node.wanted.frame)
        session = open_session(wanted, path, path.parent)
        # of the map as it is in the file, before new samples change it
        revision, samples = session.revision, session.raw_count
        number = node.worker.replace_session(session).result()
        self._saver.mark_saved((number, revision, samples), path)
        return path, session, node.worker.whole_map().result() if load.drawn else None

    def _loaded(self, load: _Load) -> str:
        """Go on with a loaded map, once, in the executor's thread; returns the text for the log."""
        if load.text:
            return load.text
        path, session, _ = load.future.result()
        self._node.use_settings(session.settings)
        self._node.resume_warning = ""
        if not session.cell_count:
            self._node.publishers_.publish_cleared(self._node.frame)
        self._node.log_foreign_exports(path)
        # what this run has saved is in the place of its own poses
        if path not in self._saver.written:
            self._node.warn_of_place(session.about)

        text = f"loaded {path}: {session.raw_count} measurements"
        load.text = "; ".join([text, *session.resume_notes])
        self._node.get_logger().info(load.text)
        return load.text

    def _on_load(self, request, response) -> PendingAnswer:
        """Load the map of map_name (std_srvs/Trigger)."""
        load = self._load(self._node.settings.map_name, False)

        def finish(response, _) -> None:
            """Fill the answer."""
            response.message, response.success = self._loaded(load), True

        return PendingAnswer(load.future, finish)

    def _on_load_map(self, request, response) -> PendingAnswer:
        """Load the map that map_url names, as map_name does (LoadMap of nav_msgs or nav2_msgs)."""
        load = self._load(_map_name(request.map_url), True)

        def finish(response, result) -> None:
            """Fill the answer."""
            self._loaded(load)
            response.result = type(response).RESULT_SUCCESS
            response.map = self._node.publishers_.answer("mean", result[2], self._node.frame)

        return PendingAnswer(load.future, finish)

    def _refuse_load_map(self, response, error: BaseException) -> None:
        """Fill the answer to a LoadMap that fails: its result says which kind of failure it is."""
        kind, missing = type(response), isinstance(error, MissingCheckpoint)
        response.result = (
            kind.RESULT_MAP_DOES_NOT_EXIST
            if missing
            else kind.RESULT_INVALID_MAP_DATA
            if isinstance(error, ValueError)
            else kind.RESULT_UNDEFINED_FAILURE
        )
        self.log_refusal(WHAT_FAILED["load"], error)

    # ---- the map itself --------------------------------------------------------------------------

    def _on_get_mean(self, request, response) -> PendingAnswer:
        return self._map("mean")

    def _on_get_stddev(self, request, response) -> PendingAnswer:
        return self._map("stddev")

    def _map(self, layer: str) -> PendingAnswer:
        """Draw all of the map; a layer of it as an OccupancyGrid, its limits on ~/limits.

        An empty map has 0 × 0 cells.
        """

        def finish(response, drawn) -> None:
            """Fill the answer."""
            response.map = self._node.publishers_.answer(layer, drawn, self._node.frame)

        return PendingAnswer(self._node.worker.whole_map(), finish)

    def _refuse_map(self, response, error: BaseException) -> None:
        response.map = OccupancyGrid()
        response.map.header.frame_id = self._node.frame
        self.log_refusal("the map was asked for and not drawn", error)

    def _on_clear(self, request, response) -> PendingAnswer:
        """Empty the map (std_srvs/Trigger)."""

        def finish(response, _) -> None:
            """Drop what is known of the old map, and fill the answer."""
            self._node.survey.forget()
            self._node.place_warning = self._node.resume_warning = ""
            self._node.publishers_.publish_cleared(self._node.frame)
            response.success, response.message = True, "the map is empty"

        return PendingAnswer(self._node.worker.clear(), finish)

    def _on_pause(self, request, response) -> None:
        """Stop or resume using measurements (std_srvs/SetBool)."""
        node = self._node
        if request.data and not node.paused:
            node.worker.end_pass()
        node.paused = bool(request.data)
        response.success, response.message = (
            True,
            "paused: measurements are not used" if node.paused else "mapping",
        )


WHAT_FAILED = {
    "save": "not saved",
    "load": "not loaded, the map is as it was",
    "clear": "not cleared",
    "pause": "neither paused nor going on",
}


class _Refusal:
    """Fills in success and message of a refused call's response."""

    def __init__(self, services: MapServices, what: str):
        self._services, self._what = services, what

    def __call__(self, response, error: BaseException) -> None:
        response.success, response.message = False, self._services.log_refusal(self._what, error)


def _fill_saved(response, saved: SaveResult) -> None:
    response.success, response.message = True, str(saved)


def _fill_result(response, saved: SaveResult) -> None:
    response.result = True


def _map_name(url: str) -> str:
    """The name of a map from a map_url.

    'hall' and 'hall/map.gpm' are the same map; '' and 'map.gpm' are the map without a name.
    """
    return (
        url[: -len(CHECKPOINT)].removesuffix("/") if f"/{url}".endswith(f"/{CHECKPOINT}") else url
    )

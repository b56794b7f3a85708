"""The node's services: save, load, clear, pause, the maps on demand. Names of maps lead into save_directory only."""

from __future__ import annotations

from nav_msgs.srv import GetMap
from std_srvs.srv import SetBool, Trigger

from gp_mapping.mapping.drawing.levels import field_limits
from gp_mapping.ros.tools.process import wait_for
from gp_mapping.store.sessions import CHECKPOINT, map_folder, open_session, save_session

__all__ = ["LOAD_MAP", "SAVE_MAP", "MapServices"]

LOAD_MAP = ("nav2_msgs/srv/LoadMap", "nav_msgs/srv/LoadMap")
"""Types of ~/load_map, the first that is installed: the same fields under two names."""
SAVE_MAP = "nav2_msgs/srv/SaveMap"


def _drawn(session):
    """In the worker: the whole map and its limits; None for an empty map."""
    grid = session.render() if session.cell_count else None
    return None if grid is None else (grid, field_limits(grid))


class MapServices:
    """Services of a MappingNode that is configured.

    find: ROS type name -> its class, or None where it is not installed.
    """

    def __init__(self, node, find):
        self._node = node
        load = next(found for name in LOAD_MAP if (found := find(name)) is not None)
        save = find(SAVE_MAP)
        wanted = [(Trigger, "save", self._on_save), (Trigger, "load", self._on_load),
                  (Trigger, "clear", self._on_clear), (SetBool, "pause", self._on_pause),
                  (GetMap, "get_mean", self._on_get_mean), (GetMap, "get_stddev", self._on_get_stddev),
                  (load, "load_map", self._on_load_map)]
        if save is not None:
            wanted.append((save, "save_map", self._on_save_map))
        self._services = [node.create_service(kind, f"~/{name}", answer) for kind, name, answer in wanted]

    def destroy(self) -> None:
        """Take the services away (lifecycle clean-up)."""
        for service in self._services:
            self._node.destroy_service(service)
        self._services = []

    # ---- save and load -------------------------------------------------------------------------------------------

    def save(self, name: str):
        """Future of the files that were written for that map: what -> path. ValueError for a name that leads out."""
        folder = map_folder(self._node.settings.save_directory, name)
        return self._node.worker.call(lambda session: save_session(session, folder, self._suggestions(session)))

    def _suggestions(self, session):
        """In the worker: the newest places to measure next; a map is saved without them where that fails."""
        if not self._node.settings.suggestion_rate or not session.cell_count:
            return None
        try:
            return self._node.worker.suggestions(session, session.render())
        except Exception as error:  # whatever it is, the map must reach the disk
            self._node.get_logger().error(f"saved without suggestions: {error!r}")
            return None

    def log_saved(self, paths) -> str:
        """Say what was written, and return it."""
        text = "saved " + ", ".join(f"{what} {path}" for what, path in paths.items())
        self._node.get_logger().info(text)
        return text

    async def _try_save(self, name: str) -> tuple[bool, str]:
        try:
            return True, self.log_saved(await wait_for(self.save(name)))
        except Exception as error:  # the caller gets the reason, whatever it is
            return False, self._refused(f"not saved into {self._node.settings.save_directory!r}", error)

    async def _load(self, name: str):
        """Put the saved map in the place of this one; the map stays as it is where that one cannot be used."""
        node = self._node
        path = map_folder(node.settings.save_directory, name) / CHECKPOINT
        session = await wait_for(node.worker.replace_session(lambda: open_session(node.wanted, path)))
        node.use_settings(session.settings)
        if not session.cell_count:
            node.publishers_.publish_cleared(node.frame)
        text = f"loaded {path}: {session.raw_count} measurements"
        node.get_logger().info(text)
        return text

    def _refused(self, what: str, error: Exception) -> str:
        reason = str(error) if isinstance(error, ValueError | OSError) else repr(error)
        text = f"{what}: {reason}"
        self._node.get_logger().error(text)
        return text

    async def _on_save(self, request, response):
        response.success, response.message = await self._try_save(self._node.settings.map_name)
        return response

    async def _on_load(self, request, response):
        try:
            response.message, response.success = await self._load(self._node.settings.map_name), True
        except Exception as error:
            response.success, response.message = False, self._refused("not loaded, the map is as it was", error)
        return response

    async def _on_save_map(self, request, response):
        """nav2_msgs/SaveMap: map_url is the name of the map, as map_name; what is written is always the same."""
        if (request.image_format or "pgm", request.map_mode or "raw") != ("pgm", "raw"):
            self._node.get_logger().info("save_map writes pictures as pgm of mode raw, whatever is asked for")
        response.result = (await self._try_save(_name(request.map_url)))[0]
        return response

    async def _on_load_map(self, request, response):
        """nav_msgs/LoadMap (or nav2_msgs'): map_url is the name of the map, as map_name."""
        kind, name = type(response), _name(request.map_url)
        try:
            await self._load(name)
        except Exception as error:
            missing = "no such checkpoint" in str(error)
            response.result = (kind.RESULT_MAP_DOES_NOT_EXIST if missing else kind.RESULT_INVALID_MAP_DATA
                               if isinstance(error, ValueError) else kind.RESULT_UNDEFINED_FAILURE)
            self._refused("not loaded, the map is as it was", error)
            return response
        response.result = kind.RESULT_SUCCESS
        response.map = await self._map("mean")
        return response

    # ---- the map itself ------------------------------------------------------------------------------------------

    async def _map(self, layer: str):
        """The layer as an OccupancyGrid, all of it drawn, and its limits on ~/limits; 0 × 0 cells for an empty map."""
        drawn = await wait_for(self._node.worker.call(_drawn))
        return self._node.publishers_.answer(layer, drawn, self._node.frame)

    async def _on_get_mean(self, request, response):
        response.map = await self._map("mean")
        return response

    async def _on_get_stddev(self, request, response):
        response.map = await self._map("stddev")
        return response

    async def _on_clear(self, request, response):
        try:
            await wait_for(self._node.worker.call(lambda session: session.clear()))
            self._node.publishers_.publish_cleared(self._node.frame)
            response.success, response.message = True, "the map is empty"
        except Exception as error:
            response.success, response.message = False, self._refused("not cleared", error)
        return response

    def _on_pause(self, request, response):
        node = self._node
        if request.data and not node.paused:
            node.worker.end_pass()
        node.paused = bool(request.data)
        response.success, response.message = True, "paused: measurements are not used" if node.paused else "mapping"
        return response


def _name(url: str) -> str:
    """The name of a map from a map_url: 'hall' and 'hall/map.gpm' are the same one, '' and 'map.gpm' the nameless."""
    return url[: -len(CHECKPOINT)].removesuffix("/") if f"/{url}".endswith(f"/{CHECKPOINT}") else url

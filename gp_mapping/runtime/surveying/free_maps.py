"""The newest free-space map that has been read, and the ground made of it, without delays.

A large map takes seconds to read; the map's thread waits for none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gp_mapping.errors import named, one_line
from gp_mapping.planning.area.ground import Ground, GroundSettings
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.runtime.background import BackgroundJob

__all__ = ["FreeMaps", "GroundAside", "wrong_frame"]

_AT_ONCE = 160_000  # cells that are read in the calling thread: some milliseconds
_OPEN_AT_ONCE = 8000  # open cells of a ground that is made there: more of them take 50 to 200 ms
# cells times corners of polygons that are compared there, in a tenth of a second at most
_COMPARED = 20_000_000
_LOOKING = "the survey area and the ways through it are being looked at"
_READING = "the free-space map is being read"


class _Read(NamedTuple):
    """The free space of a message (nav_msgs/OccupancyGrid) for a robot of that radius.

    Attributes:
        message: the message.
        radius: of the robot, metres.
        free: the free space; None where there is none.
        wrong: why the message cannot be used.
    """

    message: object
    radius: float
    free: FreeSpace | None = None
    wrong: str = ""


class FreeMaps:
    """Reads free-space maps, large ones in a thread of their own; belongs to one thread.

    Args:
        aside: False reads every map in the calling thread, whatever it costs.
    """

    def __init__(self, aside: bool = False):
        self._aside = BackgroundJob("free-space map") if aside else None
        self._newest = _Read(None, 0.0)

    @property
    def reading(self) -> bool:
        """Whether a map is being read, or has been read and not been fetched since."""
        return self._aside is not None and not self._aside.idle

    @property
    def making(self) -> bool:
        """Whether a map is being read and not done yet."""
        return self._aside is not None and self._aside.running

    def free_space_of(self, message, radius: float) -> tuple[FreeSpace | None, str]:
        """Return the free space of a message, and why there is none.

        While a large message is read, the free space of the one before it is returned. A map for
        another radius, or none at all, does not stand in: then the reason says that the map is
        being read. The same map published again gives the same object.

        Args:
            message: the newest nav_msgs/OccupancyGrid, or None.
            radius: of the robot, metres.

        Returns:
            (free space or None, reason or "").
        """
        fetched = None if self._aside is None else self._aside.fetch()

        before = self._newest = self._newest if fetched is None else fetched

        if message is before.message and radius == before.radius:
            return before.free, before.wrong
        if message is None:
            self._newest = _Read(None, radius)
            return None, ""

        if self._aside is None or len(message.data) <= _AT_ONCE:
            self._newest = _read(message, radius, before.free)
            return self._newest.free, self._newest.wrong
        if self._aside.idle:
            self._aside.start(lambda: _read(message, radius, before.free, prepare=True))
        if before.message is None or radius != before.radius:
            return None, _READING
        return before.free, before.wrong


def _read(message, radius: float, before: FreeSpace | None, prepare: bool = False) -> _Read:
    """Return the free space of a message.

    A map equal to the one before it is that same object: what was made of it stays valid.
    """
    try:
        free = FreeSpace.from_occupancy_grid(message, radius=radius)
    except (ValueError, TypeError, OverflowError) as error:
        return _Read(
            message, radius, wrong=f"the free-space map cannot be read: {one_line(error, 300)}"
        )

    if before is not None and before.same_as(free):
        return _Read(message, radius, before)
    if prepare:
        free.prepare()
    return _Read(message, radius, free)


def wrong_frame(free: FreeSpace | None, frame: str) -> str:
    """Return in words that free space and map are in different frames; "" where they are not.

    A free-space map without a frame is in none that can be compared: obstacles must not be taken
    for some that lie elsewhere.

    Args:
        free: the free-space map; None: there is none.
        frame: of the field map.
    """
    if free is None or free.frame.lstrip("/") == frame.lstrip("/"):
        return ""
    return (
        f"the free-space map is in frame {named(free.frame)} and the field map in {frame!r}: it is not used; "
        "publish it in the same frame, or set map_frame and odometry_frame"
    )


def _soon_made(free: FreeSpace | None, settings: GroundSettings) -> bool:
    """Return whether a ground is sooner made than handed over to another thread."""
    if free is None or free.open.size > _AT_ONCE:
        return False
    if int(np.count_nonzero(free.open)) > _OPEN_AT_ONCE:
        return False
    corners = sum(len(polygon.corners) for polygon in (*settings.region, *settings.keep_out))
    return free.open.size * corners <= _COMPARED


class GroundAside:
    """A Ground that is made anew in another thread, while the one before still answers.

    A small one (a free-space map of up to `_AT_ONCE` cells, `_OPEN_AT_ONCE` of them open, and
    polygons of few corners) is made at once: sooner than it would be handed over.

    Args:
        aside: False makes every ground in the calling thread, whatever it costs.

    Attributes:
        waiting: whether the last answer was empty because the first ground for it is being made.
    """

    def __init__(self, aside: bool = False):
        self._ground, self._aside = Ground(), BackgroundJob("ground") if aside else None
        self.waiting = False

    @property
    def making(self) -> bool:
        """Whether a ground is being made and not done yet."""
        return self._aside is not None and self._aside.running

    @property
    def area(self) -> SurveyArea | None:
        """The survey area of the newest ground; None before the first."""
        return self._ground.area

    @property
    def made_count(self) -> int:
        """How often there was a new ground; plans of an earlier one refer to other nodes."""
        return self._ground.made

    def ground_at(
        self,
        position,
        free: FreeSpace | None,
        path,
        lengthscale: float,
        settings: GroundSettings,
    ) -> tuple:
        """Return what Ground.ground_at returns, for the same arguments.

        While the first ground for these is made it is SurveyArea.empty with a reason, and `waiting`
        is True. A ground that was made where the robot was before, or for a shorter path, stands
        in; one for another free-space map, region or reach does not.

        Args:
            position: (2,) m, the robot.
            free: map of obstacles, or None.
            path: (K, 2) m where the robot has been.
            lengthscale: m.
            settings: of the area.
        """
        self.waiting, ground, aside = False, self._ground, self._aside
        if aside is None:
            return ground.ground_at(position, free, path, lengthscale, settings)

        finished = aside.fetch()
        if finished is not None:
            ground = self._ground = finished
            if not ground.area and ground.is_of(free, settings):
                # nowhere to go, as of now: an empty one is made anew for each question
                return ground.area, ground.travel
        if ground.is_valid_for(position, free, path, lengthscale, settings):
            return ground.area, ground.travel

        if aside.idle and _soon_made(free, settings):
            return ground.ground_at(position, free, path, lengthscale, settings)

        # The path is copied: the map appends to it while the other thread reads.
        if aside.idle:
            successor, path = Ground(ground.made), np.array(path)

            def make() -> Ground:
                """Make the next ground in the other thread."""
                successor.ground_at(position, free, path, lengthscale, settings)
                return successor

            aside.start(make)

        if ground.can_stand_in(position, free, settings):
            return ground.area, ground.travel
        self.waiting = True
        return SurveyArea.empty(_LOOKING), None

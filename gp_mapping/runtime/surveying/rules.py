"""Where plans may lead and where they may end, as people and drivers say at any time. No rclpy."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import NamedTuple

import numpy as np

from gp_mapping.errors import named, one_line
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.plan import Plan

__all__ = ["Basis", "Rules", "RulesNow"]

_KEEP_OUT = 100  # polygons at most
_CLOSED = 200  # goals that are left out at the same time, at most
_BARRED = 20  # discs that are remembered, at most
_DOUBLED = 6  # times that the time of a disc is doubled, at most
_STEP = 0.05  # m between the places of a plan that are compared with polygons


class Rules(NamedTuple):
    """What plans keep to as of one moment.

    Attributes:
        region: polygons in which the robot stays; empty: anywhere.
        keep_out: polygons that the robot's body stays out of, barred ground included.
        closed: goals that are left out: x, y (m) and until when (monotonic s).
    """

    region: tuple[Polygon, ...] = ()
    keep_out: tuple[Polygon, ...] = ()
    closed: tuple[tuple[float, float, float], ...] = ()

    def since(self, known: Rules) -> Rules:
        """Return the rules of these that are not among those that were known."""
        return Rules(
            () if self.region is known.region else self.region,
            tuple(p for p in self.keep_out if not any(p is old for old in known.keep_out)),
            tuple(goal for goal in self.closed if goal not in known.closed),
        )

    def broken_on(self, plan: Plan, radius: float) -> str:
        """Say in words how a plan breaks them.

        Args:
            plan: the plan.
            radius: of the robot, m.

        Returns:
            "" if it does not.
        """
        if not plan or not (self.region or self.keep_out):
            return ""

        x = plan.poses(_STEP)[0]
        if self.region and not np.any([p.contains(x) for p in self.region], axis=0).all():
            return "it leaves the region"
        if any((p.contains(x) | p.is_near(x, radius)).any() for p in self.keep_out):
            return "it leads through a keep-out area"
        return ""

    def closes(self, x: np.ndarray, radius: float) -> np.ndarray:
        """Return which places lie near a goal that is left out.

        Args:
            x: (n, 2) m.
            radius: most distance of a place from such a goal, m.

        Returns:
            (n,) bool.
        """
        goals = np.array([goal[:2] for goal in self.closed]).reshape(-1, 1, 2)
        return (np.hypot(*np.moveaxis(x[None] - goals, 2, 0)) <= radius).any(0)


class Basis(NamedTuple):
    """What a plan was made on.

    Attributes:
        ground: number of the ground.
        rules: the rules that it keeps to.
        free: the free-space map; None: there was none.
        home: (x, y) m where it ends; None: anywhere.
    """

    ground: int = 0
    rules: Rules = Rules()
    free: FreeSpace | None = None
    home: tuple[float, float] | None = None


class RulesNow:
    """The rules that are in force; all methods may be called from any thread.

    Attributes:
        problem: what another frame of the map has ended, in words, until a polygon comes in that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._region: tuple[Polygon, ...] = ()
        self._keep_out: tuple[Polygon, ...] = ()
        self._closed: deque[tuple[float, float, float]] = deque(maxlen=_CLOSED)
        # disc as polygon, its centre and radius (m), and until when
        self._barred: deque[tuple[Polygon, tuple[float, float, float], float]]
        self._barred = deque(maxlen=_BARRED)
        self._kept_out: tuple[Polygon, ...] = ()  # the newest answer to what is kept out of
        self._frame = ""  # of all of them; "": not known
        self.problem = ""

    def enter(self, frame: str) -> bool:
        """Drop everything where the map is in another frame than before: it means other ground.

        Args:
            frame: of the map as of now; "": not known.

        Returns:
            Whether anything was dropped; `problem` says what.
        """
        frame = frame.lstrip("/")
        with self._lock:
            if not frame or frame == self._frame:
                return False
            old, self._frame = self._frame, frame
            if not old or not (self._region or self._keep_out or self._closed or self._barred):
                return False
            self._region = self._keep_out = ()
            self._closed.clear()
            self._barred.clear()
            self.problem = (
                f"the map is now in frame {named(frame)}, and region, keep-out areas and unreachable "
                f"goals were in {named(old)}: they are dropped; publish them again"
            )
        return True

    def restrict(self, name: str, corners, frame: str, map_frame: str) -> str:
        """Set the region, or add a polygon to keep out of; without a corner drop what there was.

        Args:
            name: 'region' or 'keep_out'.
            corners: (K, 2) m.
            frame: of the corners.
            map_frame: of the map.

        Returns:
            What is wrong with it, the text of a ValueError, or "". A wrong one is refused, and all
            stays as it was.
        """
        self.enter(map_frame)
        try:
            if frame.lstrip("/") and map_frame and frame.lstrip("/") != map_frame.lstrip("/"):
                raise ValueError(
                    f"{name} is in frame {named(frame)} and the map in {map_frame!r}; publish "
                    f"it in {map_frame!r}"
                )

            new: tuple[Polygon, ...] = (
                () if not len(corners) else (Polygon.from_corners(corners, "", name),)
            )
            with self._lock:
                self._put(name, new)
                self.problem = ""
        except ValueError as error:
            return f"{one_line(error, 300)}; it is not used"
        return ""

    def _put(self, name: str, new: tuple[Polygon, ...]) -> None:
        """Set the region, or add to the polygons to keep out of; ValueError for too many."""
        before = self._region if name == "region" else self._keep_out
        # published once more it is no new one, with which plans of before would be compared
        if new and any(np.array_equal(p.corners, new[0].corners) for p in before):
            return
        if name == "region":
            self._region = new
            return
        if len(before) >= _KEEP_OUT and new:
            raise ValueError(
                f"keep_out: {_KEEP_OUT} polygons are kept out of already; publish an empty one "
                "to begin anew"
            )
        self._keep_out = (*before, *new) if new else ()

    def close(self, x: float, y: float, seconds: float) -> None:
        """Leave out a goal, and what lies near it, for some time.

        Args:
            x: of the goal, m.
            y: of the goal, m.
            seconds: how long, by this machine's clock.
        """
        with self._lock:
            self._closed.append((x, y, time.monotonic() + seconds))

    def bar(self, polygon: Polygon, disc: tuple[float, float, float], seconds: float) -> None:
        """Have plans lead around a disc for some time.

        Twice as long for each disc remembered that it touches, over or not: what is still there
        when its time is over is met less and less often. No robot drives up and down for ever
        before a door that is shut for good.

        Args:
            polygon: the disc.
            disc: its centre x, y and its radius, m.
            seconds: how long the first time, by this machine's clock.
        """
        x, y, radius = disc
        with self._lock:
            met = sum(math.dist((x, y), (a, b)) <= radius + r for _, (a, b, r), _ in self._barred)
            seconds *= 2.0 ** min(met, _DOUBLED)
            self._barred.append((polygon, disc, time.monotonic() + seconds))

    @property
    def barred(self) -> list[tuple[float, float, float]]:
        """The discs that plans lead around now: x, y and radius, m."""
        now = time.monotonic()
        with self._lock:
            return [disc for _, disc, until in self._barred if until > now]

    @property
    def closed_goals(self) -> int:
        """How many goals are left out for now."""
        return len(self._closed)

    def now(self) -> Rules:
        """Return the rules in force; goals whose time is over are dropped."""
        now = time.monotonic()
        with self._lock:
            while self._closed and self._closed[0][2] <= now:
                self._closed.popleft()
            closed = tuple(goal for goal in self._closed if goal[2] > now)
            return Rules(self._region, self._all_kept_out(now), closed)

    def _all_kept_out(self, now: float) -> tuple[Polygon, ...]:
        """Return keep-out areas and barred discs; the same object as before while they are."""
        barred = tuple(polygon for polygon, _, until in self._barred if until > now)
        polygons = (*self._keep_out, *barred)
        before = self._kept_out
        if len(polygons) != len(before) or any(p is not q for p, q in zip(polygons, before)):
            self._kept_out = polygons
        return self._kept_out

"""The survey area and the ways through it, cached while their inputs do not change.

Making them is most of the work of a plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.free_space import FreeSpace

__all__ = ["Ground", "GroundSettings", "HasGround"]

_PER_LENGTHSCALE = 3.0  # places per lengthscale
_MOVED = 0.2  # fraction of the reach; a robot that moved farther gets a new area
_GROWN = 0.5  # m by which the bounds of the path may grow before its hull is made anew
_LEFT = 0.1  # m from where the area was made; nearer than that it is not made again for a robot outside it


@dataclass(frozen=True)
class GroundSettings:
    """Which area is wanted, and how many places in it.

    Attributes:
        region: as in SurveyArea.from_free_space.
        keep_out: as in SurveyArea.from_free_space.
        reach: m, as in SurveyArea.from_free_space.
        margin: m, `grow` of SurveyArea.from_free_space.
        robot_radius: m, as in SurveyArea.from_free_space.
        places: bound of the places.
        frame: of the map.
    """

    region: tuple[Polygon, ...] = ()
    keep_out: tuple[Polygon, ...] = ()
    reach: float = math.inf
    margin: float = 1.0
    robot_radius: float = 0.0
    places: int = 450
    frame: str = ""

    @property
    def key(self) -> tuple:
        """The same for settings of one area: polygons count by frame and corners.

        A polygon that was dropped lends its identity to the next one, which would then be taken for
        it.
        """
        polygons = tuple(
            tuple((polygon.frame, polygon.corners.tobytes()) for polygon in part)
            for part in (self.region, self.keep_out)
        )
        return (*polygons, self.reach, self.margin, self.robot_radius, self.places, self.frame)


@dataclass(frozen=True)
class _Key:
    """What the area depends on: its settings, and the map of obstacles by its identity.

    It holds the map of obstacles, so that no other one gets the same identity.
    """

    free: FreeSpace | None
    settings: tuple

    def same_as(self, other: _Key | None) -> bool:
        """Return whether both are of one area."""
        return other is not None and self.free is other.free and self.settings == other.settings


class HasGround(Protocol):
    """A Ground, or a stand-in for one that is made elsewhere."""

    @property
    def ground_at(self) -> Callable[..., tuple[SurveyArea, Travel | None]]:
        """Signature and result of Ground.ground_at."""


class Ground:
    """The survey area and its Travel, the same objects until their inputs have changed.

    Attributes:
        area: the survey area; None before the first question.
        travel: the ways in it; None where nothing is left of the area.
        made: how often they were made. A plan of an earlier ground refers to other nodes.
    """

    def __init__(self, made: int = 0):
        self.area: SurveyArea | None = None
        self.travel: Travel | None = None
        self.made = made
        self._key: _Key | None = None
        self._centre = np.zeros(2)
        self._bounds = np.zeros(4)
        self._spacing = 0.0

    def ground_at(
        self,
        position,
        free: FreeSpace | None,
        path: np.ndarray,
        lengthscale: float,
        settings: GroundSettings,
    ) -> tuple[SurveyArea, Travel | None]:
        """Return the area around a robot and the ways in it; no ways (None) where it is empty.

        Args:
            position: (2,) m, the robot.
            free: map of obstacles; None: there is none.
            path: (K, 2) m where the robot has been.
            lengthscale: m; places lie a third of it apart.
            settings: of the area.

        Raises:
            ValueError: frames that do not match.
        """
        if not self.is_valid_for(position, free, path, lengthscale, settings):
            position, s = np.asarray(position, dtype=np.float64), settings
            area = SurveyArea.from_free_space(
                free,
                position,
                path=path,
                region=s.region,
                keep_out=s.keep_out,
                reach=s.reach,
                grow=s.margin,
                robot_radius=s.robot_radius,
                frame=s.frame,
            )

            spacing = lengthscale / _PER_LENGTHSCALE
            travel = Travel(area.free, spacing, s.places) if area else None

            # All of it at once: where one of them cannot be made, the ground before stays whole.
            self.area, self.travel, self._spacing = area, travel, spacing
            self._key, self._centre = _Key(free, s.key), position
            self._bounds = _bounds(path)
            self.made += 1

        return self.area, self.travel

    def can_stand_in(self, position, free: FreeSpace | None, settings: GroundSettings) -> bool:
        """Return whether the cached area is of the same settings and holds the robot.

        It may have been made at another position or of a shorter path.

        Args:
            position: (2,) m, the robot.
            free: map of obstacles, or None.
            settings: as in `ground_at`.
        """
        position = np.asarray(position, dtype=np.float64)
        return bool(self.area) and self.is_of(free, settings) and not self._left(position, free)

    def is_of(self, free: FreeSpace | None, settings: GroundSettings) -> bool:
        """Return whether it was made of this map of obstacles, by these settings.

        Args:
            free: map of obstacles, or None.
            settings: as in `ground_at`.
        """
        return _Key(free, settings.key).same_as(self._key)

    def is_valid_for(
        self,
        position,
        free: FreeSpace | None,
        path: np.ndarray,
        lengthscale: float,
        settings: GroundSettings,
    ) -> bool:
        """Return whether `ground_at` would take the cached area for these arguments.

        Args:
            position: (2,) m, the robot.
            free: map of obstacles, or None.
            path: (K, 2) m.
            lengthscale: m.
            settings: as in `ground_at`.
        """
        position = np.asarray(position, dtype=np.float64)
        spacing = lengthscale / _PER_LENGTHSCALE

        moved = math.dist(position, self._centre) > _MOVED * settings.reach
        # Only the hull of a path depends on the path; the bounds are low x, low y, −high x, −high
        # y.
        without = free is None and not settings.region
        grown = without and (_bounds(path) < self._bounds - _GROWN).any()
        refined = not 0.7 < spacing / max(self._spacing, 1e-9) < 1.4

        return not (
            not _Key(free, settings.key).same_as(self._key)
            or moved
            or grown
            or refined
            or self._left(position, free)
            or not self.area
        )

    def _left(self, position: np.ndarray, free: FreeSpace | None) -> bool:
        """Return whether the robot has left the hull of its path that the area was made of.

        No way leads there yet. Where a map of obstacles is given, a new area would not help: False.
        """
        return (
            free is None
            and self.travel is not None
            and math.dist(position, self._centre) > _LEFT
            and self.travel.locate(position) is None
        )


def _bounds(path: np.ndarray) -> np.ndarray:
    """Return (4,) low x, low y, −high x, −high y of a path: a longer path has smaller numbers."""
    return np.concatenate([path.min(0), -path.max(0)]) if len(path) else np.zeros(4)

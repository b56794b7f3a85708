"""The survey area and the ways through it, kept while nothing about them changes: making them is most of the work."""

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

__all__ = ["Ground", "HasGround"]

_PER_LENGTHSCALE = 3.0  # places
_MOVED = 0.2  # of the reach: after that the area is looked at again
_GROWN = 0.5  # m that the hull of a path may grow before it is made anew
_LEFT = 0.1  # m from where the area was made, below which it is not made again for a robot that has left it


@dataclass(frozen=True)
class _Key:
    free: int
    region: tuple
    keep_out: tuple
    reach: float
    margin: float
    places: int
    frame: str


class HasGround(Protocol):
    """A Ground, or what stands for one while it is made elsewhere."""

    @property
    def at(self) -> Callable[..., tuple[SurveyArea, Travel | None]]:
        """As Ground.at."""


class Ground:
    """Answers with the same SurveyArea and Travel until what they were made from has changed.

    `made` counts how often they were made: plans of an earlier ground know other nodes.
    """

    def __init__(self, made: int = 0):
        self.area: SurveyArea | None = None
        self.travel: Travel | None = None
        self.made = made
        self._key: _Key | None = None
        self._free: FreeSpace | None = None  # held, so that its identity is its own
        self._centre = np.zeros(2)
        self._bounds = np.zeros(4)
        self._spacing = 0.0

    def at(
        self,
        position,
        free: FreeSpace | None,
        path: np.ndarray,
        lengthscale: float,
        *,
        region: tuple[Polygon, ...] = (),
        keep_out: tuple[Polygon, ...] = (),
        reach: float = math.inf,
        margin: float = 1.0,
        places: int = 450,
        frame: str = "",
    ) -> tuple[SurveyArea, Travel | None]:
        """The area about a robot at position (2,) m, and the ways in it; None where nothing is left of it.

        path: (K, 2) m where it has been.  lengthscale: m, places lie a third of it apart.  The rest: SurveyArea.of.

        Raises:
            ValueError: frames that do not fit.
        """
        given = {
            "region": region,
            "keep_out": keep_out,
            "reach": reach,
            "margin": margin,
            "places": places,
            "frame": frame,
        }
        if not self.suits(position, free, path, lengthscale, **given):
            position = np.asarray(position, dtype=np.float64)
            self.area = SurveyArea.of(
                free,
                position,
                path=path,
                region=region,
                keep_out=keep_out,
                reach=reach,
                grow=margin,
                frame=frame,
            )
            self._spacing = lengthscale / _PER_LENGTHSCALE
            self.travel = Travel(self.area.free, self._spacing, places) if self.area else None
            self._key, self._free, self._centre = _key(free, **given), free, position
            self._bounds = _bounds(path)
            self.made += 1
        return self.area, self.travel

    def stands_in(
        self,
        position,
        free: FreeSpace | None,
        *,
        region: tuple[Polygon, ...] = (),
        keep_out: tuple[Polygon, ...] = (),
        reach: float = math.inf,
        margin: float = 1.0,
        places: int = 450,
        frame: str = "",
    ) -> bool:
        """Whether it was made of these, though for another place or a shorter path, and holds the robot."""
        position = np.asarray(position, dtype=np.float64)
        same = self._key == _key(free, region, keep_out, reach, margin, places, frame)
        return bool(self.area) and same and not self._left(position, free)

    def suits(
        self,
        position,
        free: FreeSpace | None,
        path: np.ndarray,
        lengthscale: float,
        *,
        region: tuple[Polygon, ...] = (),
        keep_out: tuple[Polygon, ...] = (),
        reach: float = math.inf,
        margin: float = 1.0,
        places: int = 450,
        frame: str = "",
    ) -> bool:
        """Whether what is there answers for these; arguments as of `at`."""
        position = np.asarray(position, dtype=np.float64)
        key = _key(free, region, keep_out, reach, margin, places, frame)
        spacing = lengthscale / _PER_LENGTHSCALE
        moved = math.dist(position, self._centre) > _MOVED * reach
        grown = free is None and not region and (_bounds(path) < self._bounds - _GROWN).any()
        refined = not 0.7 < spacing / max(self._spacing, 1e-9) < 1.4
        return not (
            key != self._key
            or moved
            or grown
            or refined
            or self._left(position, free)
            or not self.area
        )

    def _left(self, position: np.ndarray, free: FreeSpace | None) -> bool:
        """Whether the robot has left what was its path's hull: nobody has looked for a way there yet."""
        return (
            free is None
            and self.travel is not None
            and math.dist(position, self._centre) > _LEFT
            and self.travel.locate(position) is None
        )


def _key(free, region, keep_out, reach, margin, places, frame) -> _Key:
    return _Key(
        id(free), tuple(map(id, region)), tuple(map(id, keep_out)), reach, margin, places, frame
    )


def _bounds(path: np.ndarray) -> np.ndarray:
    return np.concatenate([path.min(0), -path.max(0)]) if len(path) else np.zeros(4)

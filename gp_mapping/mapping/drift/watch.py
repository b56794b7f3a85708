"""When it is looked for a drift of the sensor, among which cells, and what the map does about it.

The cells are averaged along the way to blocks, a fifth of a lengthscale long. Whether their values
say that the sensor drifts (evidence.py) is looked for at so many blocks as `_CHECKS` says, and at
the end: a few steps with each cell. Where it does, each pass gets a constant for every
`_PART` of the time in which the sensor changes (mapping/bias_numbers.py), by as much alike as the
map finds, and the map begins again with all cells so far (beginning/renewing.py). These are kept
until then, and until about _MOST.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.search_watch import Schedule, SearchWatch
from gp_mapping.mapping.beginning.stepwise import PendingSearch
from gp_mapping.mapping.drift.alternatives import DriftTrack
from gp_mapping.mapping.drift.blocks import blocks_of, forward
from gp_mapping.mapping.drift.evidence import Drift, DriftSearch
from gp_mapping.mapping.drift.kept import KeptCells
from gp_mapping.mapping.drift.sensor_place import SensorPlace
from gp_mapping.mapping.notes.settings import (
    anisotropy_note,
    contradiction_note,
    drift_note,
    place_note,
    turning_note,
)
from gp_mapping.settings.mapping import MapSettings

__all__ = ["STEPS", "DriftWatch"]

_CHECKS = (100, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200)  # blocks at which it is looked
_BLOCKS = 400  # that one search takes: the newest, or at doublings some of all
_PARTS = 5.0  # blocks in a lengthscale
_SEGMENTS = 10.0  # constants in the time in which the sensor changes
_ROOM = 2.0  # times the drive so far that there are constants for
_FEWEST = 64  # blocks that can tell anything
_MOST = 6000  # cells that are kept at most
STEPS = 5  # of a search with each cell: up to 0.02 s


class DriftWatch(SearchWatch[KeptCells, "_PendingDrift"]):
    """Cells in; whether the map has to begin again, since the sensor drifts.

    Args:
        settings: of the map.
        looks: whether a drift is looked for, where the settings let it be.

    Attributes:
        drift: what was found, in SI units; None: nothing.
        anisotropy: as the setting should be, by the newest look, where a drift was not found.
        turning: standard deviation of the part that turns with the robot and that the map has not,
            by the newest look, SI; 0: none, or it has one.
        place: where the sensor sits, and how late it is, by the newest look; None: as said.
        contradicts: whether places that the robot passed twice differ, by the newest look, as where
            its poses wander.
        bias_time: after how many seconds a pass gets another constant; 0: never.
    """

    schedule = Schedule(_CHECKS, _FEWEST, _MOST, _PARTS, STEPS)

    def __init__(self, settings: MapSettings, looks: bool = False):
        super().__init__(KeptCells() if looks and _may_look(settings) else None)
        self.settings = settings
        self.drift: Drift | None = None
        self.bias_time, self.anisotropy = settings.bias_time, settings.anisotropy
        self.turning, self.contradicts = 0.0, False
        self.place: SensorPlace | None = None
        self._newest: tuple[list[float], int] | None = None  # place and pass of the newest row

    def stop_looking(self) -> None:
        """Keep what was found: the cells so far are not all that the map holds."""
        self._kept = self._search = None

    def add(self, cell: Samples, passes: int) -> None:
        """Keep a cell, as the map gets it.

        Args:
            cell: of one row, or of some.
            passes: number of its pass.
        """
        if self._kept is None:
            return
        if cell.y.shape[1] != 1 or cell.stamp is None:  # of a vector, or of raw samples by count
            self.stop_looking()
            return

        self._kept.add(cell, passes)
        for place in cell.x.tolist():
            if self._newest is not None and self._newest[1] == passes:
                self._way += math.dist(self._newest[0], place)
            self._newest = place, passes

    def _make_search(
        self, kept: KeptCells, length: float, whole: bool, final: bool
    ) -> _PendingDrift:
        return _PendingDrift(kept, length, self.settings, whole, final)

    def _is_whole(self, check: int) -> bool:
        return math.log2(check / _BLOCKS).is_integer()

    def _adopt(self, search: _PendingDrift, last: bool) -> bool:
        self.drift, self.anisotropy = search.found, search.anisotropy
        self.turning, self.contradicts = search.turning, search.contradicts
        self.place = search.place
        if self.drift is None:
            self._kept = None if search.final else self._kept
            return False
        # as many constants as can be kept apart are to last for twice this drive
        least = _ROOM * search.seconds / self.settings.max_biases
        self.bias_time = max(self.drift.shortest / _SEGMENTS, least)
        return True

    @property
    def kept(self) -> list[tuple[Samples, int]] | None:
        """All cells so far, each with the number of its pass; None where none are kept."""
        return None if self._kept is None else list(self._kept)

    def again(self) -> list[tuple[Samples, int]]:
        """All cells so far, each with the number of its pass: none is kept any more."""
        kept = list(self._kept or ())
        self._kept = None
        return kept

    def replace(self, cells: Iterable[tuple[Samples, int]]) -> None:
        """Keep other cells in place of those so far: the map begins again with them.

        What was found among those is forgotten: a slow sensor may have looked like one that drifts.
        """
        if self._kept is None and self.drift is None:
            return
        if self.drift is not None:
            self.drift, self.bias_time, self._looked = None, self.settings.bias_time, 0
        self._kept, self._way, self._newest, self._search = KeptCells(), 0.0, None, None
        for cell, passes in cells:
            self.add(cell, passes)

    def forget_before(self, stamp: float) -> None:
        """Forget cells of a sensor that had not begun to measure."""
        if self._kept is not None:
            self.replace([each for each in self._kept if float(each[0].stamp[0]) >= stamp])

    def notes(self) -> list[str]:
        """That the sensor drifts, turns with the robot, or the field is longer along one axis."""
        d, s = self.drift, self.settings
        if d is None:
            longer = self.anisotropy != s.anisotropy
            return [
                *self.turning_notes(),
                *self.place_notes(),
                *([contradiction_note()] if self.contradicts else []),
                *([anisotropy_note(self.anisotropy)] if longer else []),
            ]
        return [drift_note(d.stddev / s.field_scale, s.field_unit, d.seconds, self.bias_time)]

    def turning_notes(self) -> list[str]:
        """That the sensor turns with the robot, where the map takes that for the field."""
        s = self.settings
        return [turning_note(self.turning, s.field_scale, s.field_unit)] if self.turning else []

    def place_notes(self) -> list[str]:
        """That the sensor sits elsewhere on the robot than is said, or is late."""
        s, place = self.settings, self.place
        return [] if place is None else [place_note(place, s.time_offset, s.learn_time_offset)]

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "bias_time": self.bias_time,
            "anisotropy": self.anisotropy,
            "turning": self.turning,
            "place": self.place and self.place._asdict(),
            "contradicts": self.contradicts,
            "drift": self.drift and self.drift._asdict(),
            "kept": None if self._kept is None else self._kept.state_dict(),
            "checks": self._checks,
            "looked": self._looked,
            "way": self._way,
            "newest": self._newest and [list(self._newest[0]), self._newest[1]],
            "search": self._search and self._search.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.drift = None if state["drift"] is None else Drift(**state["drift"])
        self.bias_time = self.settings.bias_time or float(state["bias_time"])
        # absent in maps of a version that did not look for it
        self.anisotropy = float(state.get("anisotropy", self.settings.anisotropy))
        self.turning = float(state.get("turning", 0.0))
        self.contradicts = bool(state.get("contradicts", False))
        place = state.get("place")
        self.place = place and SensorPlace(**place | {"stddevs": tuple(place["stddevs"])})
        looks = state["kept"] is not None and _may_look(self.settings)
        self._kept = KeptCells.restored(state["kept"]) if looks else None
        self._checks, self._looked = int(state["checks"]), int(state["looked"])
        self._way, newest = float(state["way"]), state["newest"]
        self._newest = newest and (list(map(float, newest[0])), int(newest[1]))
        search = state["search"]
        if search is not None and self._kept is not None:
            self._search = _PendingDrift.restored(search, self._kept, self.settings)


def _may_look(settings: MapSettings) -> bool:
    """Whether the settings let a drift be looked for."""
    return settings.learn_bias_time and not settings.bias_time and settings.learns_bias


class _PendingDrift(PendingSearch[Drift]):
    """A search for a drift among the cells that there were when it began.

    Args:
        kept: all of them.
        length: lengthscale of the map, m.
        settings: of the map.
        all_of_them: whether blocks of the whole way are taken; else the newest.
        final: whether no other search comes after it.
        rows: how many of `kept`; None: all.

    Attributes:
        seconds: that the robot has driven.
    """

    def __init__(
        self,
        kept: KeptCells,
        length: float,
        settings: MapSettings,
        all_of_them: bool,
        final: bool,
        rows: int | None = None,
    ):
        self.final, self._given = final, settings.anisotropy
        self._rows, self._length, self._all = rows or kept.rows, length, all_of_them
        track = _track_of(kept, self._rows, length / _PARTS, settings.heading_stddev > 0)
        n = len(track.y)
        inside = track.passes.diff() == 0
        self.seconds = float(track.stamp.diff()[inside].sum())
        search = None
        if n >= _FEWEST:
            first = 0 if all_of_them else max(0, n - _BLOCKS)
            chosen = torch.linspace(first, n - 1, min(_BLOCKS, n), dtype=torch.float64)
            # as the map sees them, in units of the shorter lengthscale
            axes = track.x.new_tensor([max(1.0, 1.0 / self._given), max(1.0, self._given)])
            motion = track.velocity()
            places = track.x - settings.time_offset * motion
            track = track._replace(x=places / axes, motion=motion / axes)
            search = DriftSearch(
                DriftTrack(*(c if c is None else c[chosen.round().long()] for c in track)),
                length,
                settings.kernel,
                settings.learn_time_offset,
                axes,
            )
        super().__init__(search)

    @property
    def anisotropy(self) -> float:
        """As the setting should be."""
        found = 1.0 if self._search is None else self._search.anisotropy
        return self._given * found

    @property
    def turning(self) -> float:
        """Standard deviation of the part that turns with the robot and that the map has not, SI."""
        return 0.0 if self._search is None else self._search.turning

    @property
    def place(self) -> SensorPlace | None:
        """Where the sensor sits, and how late it is, where that is not as said."""
        return None if self._search is None else self._search.place

    @property
    def contradicts(self) -> bool:
        """Whether places that the robot passed twice differ as where its poses wander."""
        return self._search is not None and self._search.contradicts

    def state_dict(self) -> dict:
        """For an exact resume, with the cells."""
        return {
            "rows": self._rows,
            "length": self._length,
            "all": self._all,
            "final": self.final,
            "steps": self.steps,
        }

    @staticmethod
    def restored(state: dict, kept: KeptCells, settings: MapSettings) -> _PendingDrift:
        """Continue where state_dict was taken: the steps are done again now.

        Args:
            state: as of state_dict.
            kept: at least the cells that there were.
            settings: of the map.
        """
        search = _PendingDrift(
            kept,
            float(state["length"]),
            settings,
            bool(state["all"]),
            bool(state["final"]),
            int(state["rows"]),
        )
        search.advance(int(state["steps"]))
        return search


def _track_of(kept: KeptCells, rows: int, step: float, heading: bool) -> DriftTrack:
    """Cells averaged to blocks of that length, as columns.

    Args:
        kept: the cells.
        rows: how many of them, from the first.
        step: m.
        heading: whether the sensor may turn with the robot.
    """
    tables, passes = kept.tables()
    x, y, stamp = (
        torch.cat([getattr(table, name) for table in tables])[:rows] for name in ("x", "y", "stamp")
    )
    axes = torch.cat([forward(table) for table in tables])[:rows]
    turned, facing = (axes, None) if heading else (None, axes)
    motion = None
    if all(table.velocity is not None for table in tables):
        motion = torch.cat([table.velocity for table in tables])[:rows]
    return blocks_of(DriftTrack(x, y[:, 0], stamp, passes[:rows], turned, facing, motion), step)

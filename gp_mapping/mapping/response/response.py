"""What a slow sensor says of the field: its cells, taken back to what it would settle at.

A thermometer or gas sensor of first order tells y, where the field at its place is f:

    τ ẏ + y = f

Its cells are averaged along the way to blocks. From one block to the next, Δ later,

    f̂ = (y_i − a y_{i−1})/(1 − a),   a = exp(−Δ/τ)

is the field averaged over that way, with the variance (σ_i² + a² σ_{i−1}²)/(1 − a)². A map that
takes each f̂ for a measurement of its own counts this noise as independent, though it alternates
from one to the next: its intervals are a little too wide, never too narrow.

What a pump draws through a hose comes later by a delay d, too: a cell is then of the place where
the robot was so much earlier. Those of the first d seconds of a pass have none, and are left out.

τ is the setting `response_time`, or it is found (lag.py) when the way is so many fifths of a
lengthscale long as `_CHECKS` says, and at the end: a few steps with each cell. Then the map begins
again with all cells so far (beginning/renewing.py). These are kept until the last look, and until
about _MOST.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.search_watch import Schedule, SearchWatch
from gp_mapping.mapping.beginning.stepwise import PendingSearch
from gp_mapping.mapping.cells import CellAverager
from gp_mapping.mapping.notes.settings import slow_and_late_note, slow_sensor_note
from gp_mapping.mapping.response.blocks import (
    Row,
    as_samples,
    averaged,
    blocks_of,
    rows_of_cell,
    rows_of_table,
    settled,
    table_of,
    track_of,
    way_between,
)
from gp_mapping.mapping.response.delay_line import DelayLine, taken_in
from gp_mapping.mapping.response.lag import Lag, LagSearch
from gp_mapping.mapping.scoring.neighbouring_cells import NeighbouringCells
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Response"]

_CHECKS = (64, 96, 144, 216, 320, 400)  # blocks at which τ is looked for
_PART = 5.0  # blocks in a lengthscale
_FINER = 10.0  # at most, where τ is taken from them
_MOST = 6000  # cells that are kept at most
_FEWEST = 48  # blocks that can tell anything
_ANOTHER = 0.02  # change of log τ that is worth another beginning, and in what it is uncertain by
_SHARE, _SHARE_AT_LAST = 1.0, 0.5
_SHORT = 0.25  # of τ: a block, where the lengthscale is not known
STEPS = 4  # of a search with each cell: up to 0.04 s


class Response(SearchWatch[list[Row], "_PendingLag"]):
    """Cells in, measurements of the field out.

    Args:
        settings: of the map.
        looks: whether τ is looked for, where the settings let it be.

    Attributes:
        seconds: τ, s; 0: the sensor follows at once.
        step: length of a block, m.
        delay: by which values come late before that, s, beside what `time_offset` says.
        delay_stddev: of it, s.
        unplaced: cells that are left out, since they were taken in before their pass began.
        found: whether τ was found from the cells.
        variance: usual white variance of what comes out, squared SI.
        gain: usual factor of a sample's white variance in that, of samples alone in their cells.
        deviation: standard deviation of log τ; 0 where it was not found.
        length: lengthscale of the field that goes with τ, m.
        signal: variance of that field, squared SI.
        blur: variance of an average along the way, as of Lag.
    """

    schedule = Schedule(_CHECKS, _FEWEST, _MOST, _PART, STEPS)

    def __init__(self, settings: MapSettings, looks: bool = False):
        super().__init__([] if looks and settings.learns_response else None)
        self.settings = settings
        self.seconds, self.step = settings.response_time if settings.metric else 0.0, math.inf
        self.found, self.variance, self.deviation = False, 0.0, 0.0
        self.length = self.signal = self.blur = self.gain = 0.0
        self.delay = self.delay_stddev = 0.0
        self._line, self.unplaced = DelayLine(0.0), 0
        self._open: list[Row] = []  # cells of the open block
        self._last: Row | None = None  # the block before it

    @property
    def is_active(self) -> bool:
        """Whether what comes out is another thing than the cells."""
        return self.seconds > 0.0

    @property
    def uncertainty(self) -> tuple[float, float, float]:
        """Standard deviation of log τ; the field's lengthscale, m, and variance, squared SI."""
        return self.deviation, self.length, self.signal

    def white_noise(
        self, cells: CellAverager, neighbours: NeighbouringCells
    ) -> tuple[float, float]:
        """White variance of one measurement, and of what the map gets of it, squared SI.

        Args:
            cells: what cell mates tell.
            neighbours: what samples tell that are alone in their cells.
        """
        if self.is_active:
            # else cells have come with it
            unknown = 0.0 if cells.single_variance else neighbours.variance
            return (self.variance + self.gain * unknown,) * 2
        return neighbours.with_mates(cells.single_variance, cells.averaged_variance, cells.known_by)

    def stop_looking(self) -> None:
        """Keep τ: the cells so far are not all that the map holds, or not where it has them.

        A map that began again with them would lose what another one, or a saved one, has brought.
        """
        self._kept = self._search = None

    # --- cells in ---------------------------------------------------------------------------------
    def add(self, cell: Samples, passes: int, resolution: float) -> list[Samples]:
        """Take a cell; return what the map gets now.

        Args:
            cell: of one row, or of some.
            passes: how many passes have begun.
            resolution: smallest step of the sensor, SI; inf: not known.
        """
        if cell.y.shape[1] != 1 or cell.stamp is None:  # of a vector, or of raw samples by count
            self._kept, self._search, self.seconds = None, None, 0.0
        if not self.is_active and self._kept is None:
            return [cell]

        rounding = resolution**2 / 12.0 if math.isfinite(resolution) else 0.0
        for row in rows_of_cell(cell, passes, rounding):
            if self._kept is not None:
                newest = self._kept[-1] if self._kept else None
                way = way_between(newest, row)
                self._kept.append(row._replace(way=way))
                self._way += way
        if not self.is_active:
            return [cell]
        return [made for row in rows_of_cell(cell, passes, rounding) for made in self._take(row)]

    def _take(self, row: Row) -> list[Samples]:
        """Put a cell into the open block; return what the block before it says, if it closes."""
        placed = self._line.place(row)
        if placed is None:
            self.unplaced += 1
            return []
        out = []
        if self._open and self._is_full(placed):
            out = self.flush()
        self._open.append(placed)
        return out

    def _is_full(self, row: Row) -> bool:
        """Whether a cell begins another block."""
        first = self._open[0]
        if row.passes != first.passes or row.stamp <= self._open[-1].stamp:
            return True
        age = row.stamp - first.stamp
        if self.step == math.inf:
            return age >= _SHORT * self.seconds
        return math.dist(row.x, first.x) >= self.step * (1 - 1e-6) or age >= self.seconds

    def flush(self) -> list[Samples]:
        """Close the open block: what it says of the field, with the one before it in its pass."""
        if not self._open:
            return []
        block, before = averaged(self._open), self._last
        self._open, self._last = [], block
        if before is None or before.passes != block.passes or block.stamp <= before.stamp:
            return []

        made = settled(before, block, self.seconds, self.blur, self.deviation > 0.0)
        white = float(made.sensor_variance[0])
        self.variance = white if not self.variance else 0.98 * self.variance + 0.02 * white
        a = math.exp((before.stamp - block.stamp) / self.seconds)
        gain = (1.0 / block.count + a**2 / before.count) / (1.0 - a) ** 2
        self.gain = gain if not self.gain else 0.98 * self.gain + 0.02 * gain
        return [made]

    # --- the time constant ------------------------------------------------------------------------
    def _make_search(self, kept: list[Row], length: float, whole: bool, final: bool) -> _PendingLag:
        return _PendingLag(kept, length, self.settings.kernel, final)

    def _adopt(self, search: _PendingLag, last: bool) -> bool:
        changed = self._take_over(search, last or search.final)
        if search.final:
            self._kept = None if not changed else self._kept
            self._checks = len(_CHECKS)
        return changed

    def _take_over(self, search: _PendingLag, last: bool) -> bool:
        """Take over what a search has found; return whether τ is another one than before.

        Args:
            search: at its end.
            last: whether no other one comes after it.
        """
        if search.blocks < _FEWEST:
            return False
        lag = search.found
        if lag is None:
            was, self.seconds, self.found = self.seconds, 0.0, False
            self.deviation = self.delay = self.delay_stddev = 0.0
            return was > 0.0

        delay = lag.delay and lag.delay - self.settings.time_offset
        if self.seconds:
            apart = abs(math.log(lag.seconds / self.seconds))
            unsure = _SHARE_AT_LAST if last else _SHARE
            later = abs(delay - self.delay)
            if later <= unsure * lag.delay_stddev and apart < max(_ANOTHER, unsure * lag.deviation):
                if self.deviation:  # else of a version that did not know it
                    self.deviation = math.hypot(lag.deviation, apart)
                self.delay_stddev = math.hypot(lag.delay_stddev, later)
                return False
        self.seconds, self.step, self.deviation, self.found = (
            lag.seconds,
            lag.block,
            lag.deviation,
            True,
        )
        self.length, self.signal, self.blur = lag.lengthscale, lag.signal, lag.blur
        self.delay, self.delay_stddev = delay, lag.delay_stddev
        return True

    def again(self) -> list[tuple[Samples, int]]:
        """All cells so far as the map gets them now, each with the number of its pass."""
        self._open, self._last, self.variance, self.gain = [], None, 0.0, 0.0
        self._line, self.unplaced = DelayLine(self.delay), 0
        kept = self._kept or []
        if self._checks >= len(_CHECKS):
            self._kept = None
        out = []
        for i, row in enumerate(kept):
            made = self._take(row) if self.is_active else [as_samples(kept[max(i - 1, 0)], row)]
            # a block that a new pass closes is of the pass before
            out += [(each, (self._last or row).passes) for each in made]
        return out

    def forget_before(self, stamp: float) -> None:
        """Forget cells of a sensor that had not begun to measure."""
        if self._kept is not None:
            self._kept = [row for row in self._kept if row.stamp >= stamp]
            self._way, self._search = sum(row.way for row in self._kept), None
        self._open, self._last = [row for row in self._open if row.stamp >= stamp], None
        self._line.forget_before(stamp)

    def notes(self) -> list[str]:
        """That the sensor is slow, and late, in a sentence."""
        if not self.found:
            return []
        if not self.delay:
            return [slow_sensor_note(self.seconds)]
        unsure = self.seconds * self.deviation, self.delay_stddev
        return [slow_and_late_note(self.seconds, self.delay, unsure, self.unplaced)]

    def settled(self, samples: Samples) -> Samples:
        """Raw samples of one pass as the map takes them: each what the sensor would settle at.

        Over a way of a block before and after each sample, so that its noise is as that of the
        map's own.
        """
        if not self.is_active or len(samples) < 2 or samples.stamp is None:
            return samples
        samples = taken_in(samples, self.delay)
        y, stamp = samples.y - samples.y[:1], samples.stamp - samples.stamp[:1]
        elapsed = self._usual_time(samples)

        # averages over the time of a block before each sample, and after it
        sums = torch.cat(
            [y.new_zeros((1, 1 + y.shape[1])), torch.cat([stamp[:, None], y], 1).cumsum(0)]
        )
        early, late = (
            _averages(sums, stamp, (stamp + shift).clamp(0.0, float(stamp[-1])), elapsed)
            for shift in (-0.5 * elapsed, 0.5 * elapsed)
        )
        between = late[:, :1] - early[:, :1]
        a = torch.exp(-between.clamp_min(1e-9) / self.seconds)
        field = (late[:, 1:] - a * early[:, 1:]) / (1.0 - a)
        return replace(samples, y=samples.y[:1] + torch.where(between > 1e-6, field, y))

    def _usual_time(self, samples: Samples) -> float:
        """Usual time of a block on this drive, s; at least that from one sample to the next."""
        between = float(samples.stamp.diff().median())
        if self.step == math.inf:
            return max(between, _SHORT * self.seconds)
        way = float((samples.x[1:] - samples.x[:-1]).norm(dim=1).sum())
        seconds = float(samples.stamp[-1] - samples.stamp[0])
        return max(between, min(self.seconds, self.step * seconds / max(way, 1e-9)))

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "seconds": self.seconds,
            "step": self.step,
            "found": self.found,
            "variance": self.variance,
            "gain": self.gain,
            "sureness": [self.deviation, self.length, self.signal, self.blur],
            "delay": [self.delay, self.delay_stddev, self.unplaced],
            "line": table_of(self._line.rows),
            "kept": None if self._kept is None else table_of(self._kept),
            "checks": self._checks,
            "looked": self._looked,
            "way": self._way,
            "search": self._search and self._search.state_dict(),
            "open": table_of(self._open),
            "last": None if self._last is None else table_of([self._last]),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.seconds, self.step, self.variance, self._way = (
            float(state[name]) for name in ("seconds", "step", "variance", "way")
        )
        self.found, self.gain = bool(state["found"]), float(state.get("gain", 0.0))
        # absent in maps of a version that took τ for certain
        self.deviation, self.length, self.signal, self.blur = state.get("sureness", [0.0] * 4)
        # absent in maps of a version that knew of none
        self.delay, self.delay_stddev, self.unplaced = state.get("delay", [0.0, 0.0, 0])
        self._line = DelayLine(self.delay, rows_of_table(state["line"]) if self.delay else None)
        self._kept = None if state["kept"] is None else rows_of_table(state["kept"])
        self._checks, self._looked = int(state["checks"]), int(state["looked"])
        search = state.get("search")  # absent in maps that looked at once
        if search is not None and self._kept is not None:
            self._search = _PendingLag.restored(search, self._kept, self.settings.kernel)
        self._open = rows_of_table(state["open"])
        self._last = None if state["last"] is None else rows_of_table(state["last"])[0]


class _PendingLag(PendingSearch[Lag]):
    """A search for τ among the cells that there were when it began.

    Args:
        cells: all of them.
        length: lengthscale of the map, m.
        kernel: name of its covariance function.
        final: whether no other search comes after it.

    Attributes:
        blocks: that they make; with fewer than _FEWEST nothing is looked for.
    """

    def __init__(self, cells: list[Row], length: float, kernel: str, final: bool):
        self.final = final
        self._cells, self._length = len(cells), length
        most, step = _CHECKS[-1], length / _PART
        parts = blocks_of(cells, step, most)
        self.blocks = len(parts)
        search = None
        if self.blocks >= _FEWEST:
            way = sum(row.way for row in cells)
            finer = blocks_of(cells, min(step, max(way / most, length / _FINER)), most)
            search = LagSearch(track_of(parts), length, kernel, track_of(finer))
        super().__init__(search)

    def state_dict(self) -> dict:
        """For an exact resume, with the cells."""
        return {
            "cells": self._cells,
            "length": self._length,
            "final": self.final,
            "steps": self.steps,
        }

    @staticmethod
    def restored(state: dict, cells: list[Row], kernel: str) -> _PendingLag:
        """Continue where state_dict was taken: the steps are done again now.

        Args:
            state: as of state_dict.
            cells: at least those that there were.
            kernel: name of the covariance function.
        """
        search = _PendingLag(
            cells[: int(state["cells"])], float(state["length"]), kernel, bool(state["final"])
        )
        search.advance(int(state["steps"]))
        return search


def _averages(sums: torch.Tensor, stamp: torch.Tensor, centre: torch.Tensor, width: float):
    """Averages (N, C) of columns over `width` seconds about each centre (N,), of one row at least.

    Args:
        sums: of the rows before each, (N + 1, C).
        stamp: of the rows (N,), s.
        centre: (N,) s.
        width: s.
    """
    n = len(stamp)
    first = torch.searchsorted(stamp, centre - 0.5 * width).clamp(max=n - 1)
    end = torch.searchsorted(stamp, centre + 0.5 * width, right=True)
    end = torch.maximum(end, first + 1)
    return (sums[end] - sums[first]) / (end - first)[:, None]

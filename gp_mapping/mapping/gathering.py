"""From raw samples to the cells that a map takes in.

A live session and a reader of a fleet's bags do this alike:

    raw sample → can it be a value of this field? → heading, path → cell

Nothing here knows a map. The cells depend on the sequence of samples only, never on how it is cut
into calls. What becomes of them stands in growing/admission.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import fields, replace
from typing import Protocol

from gp_mapping.core.likelihoods.outcomes import OutcomeJudge
from gp_mapping.core.types import FARTHEST, Samples
from gp_mapping.mapping.cells import CellAverager, RawRows
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.mapping.frames.watch import FrameWatch
from gp_mapping.mapping.growing.counts import SampleCounts
from gp_mapping.mapping.motion.attitude import HeadingTrack
from gp_mapping.mapping.motion.path import Path
from gp_mapping.mapping.raw_batch import RAW_BATCH, join_raw, single_batch
from gp_mapping.mapping.repeated.on_change import OnChange
from gp_mapping.mapping.repeated.range_ends import RangeEnd, RangeEnds
from gp_mapping.mapping.repeated.recurring import Recurring, keys_of
from gp_mapping.mapping.response.response import Response
from gp_mapping.mapping.scoring.neighbouring_cells import NeighbouringCells
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Gathering", "SampleJudge"]

_MANY = 32  # samples of a call whose extremes are looked at first
_PERIOD = 0.02  # s between raw samples that have no stamps


class SampleJudge(Protocol):
    """Who judges raw samples before they enter their cells, and counts them."""

    @property
    def counts(self) -> SampleCounts:
        """Of the map that the samples are for."""

    def is_credible(self, values: list[float]) -> bool:
        """Whether a raw value (C,), SI, can be of this field."""

    def look(self, rows: RawRows, part: slice, rates: list[float], lengths: list[float]) -> None:
        """Look at raw samples before they enter their cell.

        Args:
            rows: raw samples as columns, which may be changed.
            part: which of them are new.
            rates: yaw rates of the new ones, rad/s.
            lengths: of the path up to each new one, m.
        """


class Gathering:
    """Raw samples in, their cells out, pass by pass; and what they tell of the sensor itself.

    Args:
        settings: of the map.
        looks_for_lag: whether it is looked for a sensor that is slow, or drifts: the map can begin
            again.

    Attributes:
        cells: the averager.
        neighbours: white noise of samples that are alone in their cells.
        recurring: finds measurements that are no new ones.
        range_ends: finds numbers that are the end of the sensor's range.
        on_change: finds a sensor that is published only on change.
        response: takes cells of a slow sensor back to what it would settle at.
        drift: looks whether the sensor drifts.
        frames: looks whether all passes are in one frame.
        passes: begun so far.
    """

    def __init__(self, settings: MapSettings, looks_for_lag: bool = False):
        s = self.settings = settings
        # these compare numbers with the field, which at an end of the range none of them is
        looks_for_lag = looks_for_lag and not s.censored
        self.cells = CellAverager(
            s.cell_length,
            s.cell_duration,
            s.robust,
            s.counts,
            s.threshold if s.labels else None,
            s.limits,
        )
        self.neighbours = NeighbouringCells()
        # least and largest values of the samples that come together, if no place is too far
        self._extremes: tuple[list[float], list[float]] | None = None
        # without cells: raw samples that wait for their batch
        self._raw: list[Samples] = []
        self._outcomes, self.recurring = OutcomeJudge(s), Recurring(s.limits)
        self.range_ends, self.on_change = RangeEnds(0.5 * s.cell_length), OnChange()
        self.response = Response(s, looks_for_lag)
        self.drift = DriftWatch(s, looks_for_lag)
        self.frames = FrameWatch(s)
        if not looks_for_lag:
            self.frames.stop_looking()
        self._path, self._track = Path(s.cell_length), HeadingTrack(s.axle_distance)

        self._pass_open = False
        self.passes = 0

    def use_kernel(self, name: str) -> None:
        """Let all that compares cells with the field use the kernel that the map has found.

        Args:
            name: one of KERNELS.
        """
        if name == self.settings.kernel:
            return
        self.settings = replace(self.settings, kernel=name)
        for each in (self.response, self.drift, self.frames):
            each.settings = replace(each.settings, kernel=name)

    # --- samples in -------------------------------------------------------------------------------
    def gather(self, samples: Samples, judge: SampleJudge) -> Iterator[Samples]:
        """Put raw samples into cells.

        Args:
            samples: in order of time.
            judge: of each of them; it may judge otherwise after it was given a cell.

        Yields:
            Each finished cell, before the next sample is seen.
        """
        n, i = len(samples), 0
        stamps = [] if samples.stamp is None else samples.stamp.tolist()
        # plain lists: cells look at samples one by one, which tensors are slow at
        rows = RawRows(
            samples.x.tolist(),
            samples.y.tolist(),
            stamps,
            *(
                [None] * n if column is None else column.tolist()
                for column in (samples.sensor_variance, samples.heading, samples.position_variance)
            ),
        )

        self._extremes = _extremes(samples) if n >= _MANY else None

        # labels and counts may well be the same everywhere
        watched = self.settings.robust and self.settings.metric
        keys = keys_of(samples.y) if watched else []
        while i < n:
            i = yield from self._gather_rows(samples, rows, keys, i, judge)

    def _gather_rows(
        self, samples: Samples, rows: RawRows, keys: list[float], i: int, judge: SampleJudge
    ) -> Generator[Samples, None, int]:
        """Take raw samples up to the one that closes a cell, is refused or left out.

        Args:
            samples: all that came in this call.
            rows: the same, as columns.
            keys: their numbers, where a repeated number may be left out.
            i: number of the first one that is not taken yet.
            judge: of each of them.

        Yields:
            The cell, where one is closed.

        Returns:
            Number of the next one.
        """
        n = len(rows.x)
        if samples.stamp is None:
            # the count of all samples so far is their clock, so cuts into calls do not matter
            rows.stamp[i:] = [_PERIOD * float(judge.counts.entered + k) for k in range(n - i)]

        if self.settings.cells:
            # `over`: the first row that begins a new cell; `reach`: of the rows before it, m
            over, reach = self.cells.find_cell_end(rows, i, n)
        else:
            over, reach = min(i + RAW_BATCH - len(self._raw) - 1, n), 0.0

        # the row that closes the cell belongs to the next one, but is looked at before that
        stop = min(over + 1, n)
        wrong = self._first_wrong(rows, i, stop, judge)
        void = self.recurring.first_void(keys, i, wrong) if keys else wrong
        refused, skipped = void == wrong < stop, void < stop
        if skipped:  # the cell must not be closed by a sample that the map does not get
            over = stop = void
            _, reach = self.cells.find_cell_end(rows, i, void) if i < void else (void, reach)

        self._see(rows, slice(i, stop), judge)
        if keys and samples.y.shape[1] == 1:
            looked = stop + (skipped and not refused)
            self.range_ends.add(keys[i:looked], rows.x[i:looked])

        closed = None
        if self.settings.cells:
            self.cells.add_rows(rows, i, over, reach)
            if over < stop:
                # a slow sensor's cell takes its velocity from the sample that comes after it, too
                closed = self.cells.flush((rows.x[over], rows.stamp[over], rows.y[over]))
                self.cells.add_rows(rows, over, stop, 0.0)
        else:
            self._raw += [
                single_batch(samples[k], rows.y[k], rows.heading[k]) for k in range(i, stop)
            ]
            closed = join_raw(self._raw) if len(self._raw) >= RAW_BATCH else None
        if closed is not None:
            self._raw = []
            yield self._with_steps(closed)

        if refused:
            x, y = rows.x[wrong], rows.y[wrong]
            judge.counts.refuse(
                1,
                f"a sample of {max(map(abs, y)):.3g} at ({x[0]:.3g}, {x[1]:.3g}) m is no value of this "
                "field, or at no place of this earth",
            )
        elif skipped:  # it is used up, as a gross error in a cell is
            judge.counts.used += 1
        return stop + skipped

    def _first_wrong(self, rows: RawRows, start: int, stop: int, judge: SampleJudge) -> int:
        """Number of the first of the rows start … stop − 1 that no map can take; stop if none."""
        # all at once first, since mostly all are good
        if not self._outcomes.accepts_all(rows.y[start:stop]):
            stop = next(
                k for k in range(start, stop) if not self._outcomes.accepts_all(rows.y[k : k + 1])
            )

        # then the values and places themselves: of many the extremes, which tell of all
        if self._extremes is not None and all(map(judge.is_credible, self._extremes)):
            return stop
        for k in range(start, stop):
            if not judge.is_credible(rows.y[k]) or max(map(abs, rows.x[k])) > FARTHEST:
                return k
        return stop

    def _see(self, rows: RawRows, part: slice, judge: SampleJudge) -> None:
        """Find headings, yaw rates and path lengths of raw samples, and count them."""
        if part.start == part.stop:
            return
        # a pass begins with its first sample, not with the break before
        if not self._pass_open:
            self._begin_pass()

        rows.heading[part], rates = self._track.steps(
            rows.x[part], rows.stamp[part], rows.heading[part]
        )

        single = self.settings.metric and len(rows.y[part.start]) == 1
        if self.settings.robust and single and not self.settings.censored:
            self.on_change.correct_all(rows.y, rows.x, part)

        lengths = self._path.extend(rows.x[part])
        judge.counts.used += part.stop - part.start
        judge.look(rows, part, rates, lengths)

    def _begin_pass(self) -> None:
        """Begin a new pass: no line, heading or velocity reaches into it from the last one."""
        self._pass_open, self.passes = True, self.passes + 1
        self._path.begin_pass()
        self._track.begin_pass()
        self.cells.begin_pass()
        self.on_change.begin_pass()

    def _with_steps(self, cell: Samples) -> Samples:
        """A cell with the variance that numbers at the edges of steps have, however many."""
        variance, sensor = self.on_change.variance, cell.sensor_variance
        if variance == 0.0 or sensor is None or cell.count is None:
            return cell
        return replace(cell, sensor_variance=sensor + cell.count * variance)

    def close(self) -> Samples | None:
        """Close the open cell, or the raw samples that wait for their batch; None: none is open."""
        pending = self.cells.flush()
        if pending is None and self._raw:
            pending, self._raw = join_raw(self._raw), []
        return None if pending is None else self._with_steps(pending)

    def end_pass(self) -> None:
        """Begin a new pass with the next sample; `close` comes first."""
        self._pass_open = False
        self.range_ends.begin_pass()

    def settle(self, cell: Samples) -> list[Samples]:
        """What a finished cell says of the field; of a slow sensor it may be nothing yet."""
        low, high = self.settings.limits
        if not self.settings.censored or bool(((cell.y > low) & (cell.y < high)).all()):
            self.neighbours.add(cell, self.passes)
        return self.response.add(cell, self.passes, self.cells.resolution)

    def forget_before(self, stamp: float | None) -> bool:
        """Forget what was measured of the sensor itself, which had not begun to measure.

        Args:
            stamp: of the first sample that it has measured, s; None where samples have none.

        Returns:
            Whether the white noise that cells have come with is void, too.
        """
        if stamp is not None:
            self.response.forget_before(stamp)
            self.drift.forget_before(stamp)
            self.frames.forget_before(stamp)
        unknown, self.neighbours = self.cells.forget_white_noise(), NeighbouringCells()
        return unknown

    # --- what is known of them --------------------------------------------------------------------
    @property
    def gross_errors(self) -> int:
        """Raw samples that were left out as gross errors before their cell was closed."""
        return self.cells.gross + self.recurring.hung + self.recurring.beyond

    @property
    def notes(self) -> list[str]:
        """What was left out, or is taken back, by the sensor's faults, in sentences."""
        scale, unit = self.settings.field_scale, self.settings.field_unit
        upper = any(not end.lower for end in self._unknown_ends)
        return [
            *self.recurring.notes(says_beyond=not upper),
            *(
                end.note(scale, unit, 0 if end.lower else self.recurring.beyond)
                for end in self._unknown_ends
            ),
            *self.range_ends.notes_beyond(self.settings.limits, scale, unit),
            *self.on_change.notes(scale, unit),
            *self.frames.notes(),
            *self.response.notes(),
            *self.drift.notes(),
        ]

    @property
    def _unknown_ends(self) -> list[RangeEnd]:
        """The ends of the sensor's range that it shows, and that the settings do not say."""
        low, high = self.settings.limits
        return [end for end in self.range_ends.found if low < end.value < high]

    @property
    def range_limits(self) -> tuple[float, float]:
        """Both ends of the sensor's range, SI, where its numbers show them; else infinite."""
        low, high = self.range_ends.limits
        return low, min(high, self.recurring.end)

    @property
    def path_trace(self) -> Path:
        """The path driven, not to be changed."""
        return self._path

    def stop_looking(self) -> None:
        """Keep what is known of the sensor's faults, and look for no more of them."""
        self.response.stop_looking()
        self.drift.stop_looking()
        self.frames.stop_looking()

    def join(self, other: Gathering) -> None:
        """Add another's path, white noise and passes; what either map began with is settled."""
        self.response.stop_looking()
        self.drift.stop_looking()
        self.frames.join(other.frames)
        self._path.join(other.path_trace)
        self.neighbours.join(other.neighbours)
        self.range_ends.join(other.range_ends)
        self.passes += other.passes

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Collect what an exact resume of the cells and their path needs."""
        return {
            "cells": self.cells.state_dict(),
            "neighbours": self.neighbours.state_dict(),
            "path": self._path.state_dict(),
            "track": self._track.state_dict(),
            "recurring": self.recurring.state_dict(),
            "range_ends": self.range_ends.state_dict(),
            "on_change": self.on_change.state_dict(),
            "response": self.response.state_dict(),
            "drift": self.drift.state_dict(),
            "frames": self.frames.state_dict(),
            "raw": [{f.name: getattr(s, f.name) for f in fields(s)} for s in self._raw],
            "pass_open": self._pass_open,
            "passes": self.passes,
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken; older maps begin with 0 of what they lack."""
        self.cells.load_state_dict(state["cells"])
        self._path.load_state_dict(state["path"])
        self._track.load_state_dict(state["track"])
        if "neighbours" in state:  # else of a version that asked cell mates alone
            self.neighbours.load_state_dict(state["neighbours"])
        if "recurring" in state:  # else of a version that left out no repeats
            self.recurring.load_state_dict(state["recurring"])
        if "range_ends" in state:  # else of a version that did not look
            self.range_ends.load_state_dict(state["range_ends"])
        if "on_change" in state:  # else of a version that took all numbers for what was measured
            self.on_change.load_state_dict(state["on_change"])
        if "response" in state:
            self.response.load_state_dict(state["response"])
        else:  # of a version that took each sensor for a fast one, and kept no cells
            self.response.stop_looking()
        if "drift" in state:
            self.drift.load_state_dict(state["drift"])
        else:  # of a version that looked for none, and kept no cells
            self.drift.stop_looking()
        if "frames" in state:
            self.frames.load_state_dict(state["frames"])
        else:  # of a version that did not look, and kept no cells
            self.frames.stop_looking()

        self._raw, self._pass_open = [Samples(**s) for s in state["raw"]], state["pass_open"]
        self.passes = state.get("passes", 0)


def _extremes(samples: Samples) -> tuple[list[float], list[float]] | None:
    """Least and largest values of each channel, SI; None where a place is at none of this earth."""
    if float(samples.x.abs().max()) > FARTHEST:
        return None
    return samples.y.amin(0).tolist(), samples.y.amax(0).tolist()

"""From raw samples to the cells that a map takes in.

A live session and a reader of a fleet's bags do this alike:

    raw sample → can it be a value of this field? → heading, path → cell → number of its pass
               → compared with the first cells

A subclass decides what becomes of a cell; nothing here knows a map. The cells depend on the
sequence of samples only, never on how it is cut into calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import fields, replace

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.outcomes import OutcomeJudge
from gp_mapping.core.types import FARTHEST, Samples
from gp_mapping.mapping.beginning.first_values import FirstValues
from gp_mapping.mapping.bias_numbers import BiasNumbers
from gp_mapping.mapping.cells import CellAverager, RawRows
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.mapping.motion.attitude import HeadingTrack
from gp_mapping.mapping.motion.path import Path
from gp_mapping.mapping.notes.settings import refusal_note
from gp_mapping.mapping.raw_batch import RAW_BATCH, join_raw, single_batch
from gp_mapping.mapping.repeated.recurring import Recurring, keys_of
from gp_mapping.mapping.response.response import Response
from gp_mapping.mapping.scoring.neighbouring_cells import NeighbouringCells
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Gathering"]

_PERIOD = 0.02  # s between raw samples that have no stamps


class Gathering(ABC):
    """Cells of raw samples, pass by pass, and what is counted on the way.

    Of n samples that came, raw_count (used) and refused grow by n together.

    Attributes:
        cells: the averager.
        neighbours: white noise of samples that are alone in their cells.
        recurring: finds measurements that are no new ones.
        response: takes cells of a slow sensor back to what it would settle at.
        drift: looks whether the sensor drifts.
        raw_count: raw samples that were used.
        refused: raw samples that were not.
        lost: of those refused, the ones that were counted as used until their cell was handed over.
        passes: begun so far.
        last_refusal: why the last refused sample was, in a sentence; '' before the first.
    """

    lost = 0
    looks_for_lag = False  # whether a subclass has a map, and may begin it again
    raw_count: int
    refused: int
    passes: int
    last_refusal: str

    def __init__(self, settings: MapSettings):
        self.settings = settings

    def _begin(self) -> None:
        """Start with nothing: no sample has come yet."""
        s = self.settings
        self.cells = CellAverager(
            s.cell_length, s.cell_duration, s.robust, s.counts, s.threshold if s.labels else None
        )
        self.neighbours = NeighbouringCells()
        # without cells: raw samples that wait for their batch
        self._raw: list[Samples] = []
        self._first, self._bias = FirstValues(s), BiasNumbers(s.bias_time)
        self._outcomes, self.recurring = OutcomeJudge(s), Recurring()
        self.response = Response(s, self.looks_for_lag)
        self.drift = DriftWatch(s, self.looks_for_lag)
        self._path, self._track = Path(s.cell_length), HeadingTrack(s.axle_distance)

        self._pass_open = False
        self.raw_count, self.passes, self.refused, self.last_refusal = 0, 0, 0, ""

    # --- what becomes of them ---------------------------------------------------------------------
    @abstractmethod
    def _open_with(self, first: Samples, cell: Samples) -> None:
        """Take one more of the first few cells.

        Args:
            first: all of the first cells so far that are not far from their median.
            cell: the new one.
        """

    @abstractmethod
    def _absorb(self, cell: Samples) -> None:
        """Take a cell that is none of the first."""

    @abstractmethod
    def _begin_over(self) -> None:
        """Drop all cells so far: those that were no warm-up of the sensor come once more."""

    def _settled(self) -> bool:
        """Whether there is a map that can judge cells by itself."""
        return True

    def _look(  # noqa: B027  nobody has to look
        self,
        rows: RawRows,
        part: slice,
        rates: list[float],
        lengths: list[float],
    ) -> None:
        """Look at raw samples before they enter their cell.

        Args:
            rows: raw samples as columns, which may be changed.
            part: which of them are new.
            rates: yaw rates of the new ones, rad/s.
            lengths: of the path up to each new one, m.
        """

    # --- samples in -------------------------------------------------------------------------------
    def _gather(self, samples: Samples) -> None:
        """Put raw samples into cells; each cell is handed over before the next sample is seen."""
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

        # labels and counts may well be the same everywhere
        watched = self.settings.robust and self.settings.metric
        keys = keys_of(samples.y) if watched else []
        while i < n:
            i = self._gather_rows(samples, rows, keys, i)

    def _gather_rows(self, samples: Samples, rows: RawRows, keys: list[float], i: int) -> int:
        """Take raw samples up to the one that closes a cell, is refused or left out.

        Args:
            samples: all that came in this call.
            rows: the same, as columns.
            keys: their numbers, where a number that is told again may be left out.
            i: number of the first one that is not taken yet.

        Returns:
            Number of the next one.
        """
        n = len(rows.x)
        if samples.stamp is None:
            # the count of all samples so far is their clock, so cuts into calls do not matter
            rows.stamp[i:] = [_PERIOD * float(self.raw_count + self.lost + k) for k in range(n - i)]

        if self.settings.cells:
            # `over`: the first row that begins a new cell; `reach`: of the rows before it, m
            over, reach = self.cells.find_cell_end(rows, i, n)
        else:
            over, reach = min(i + RAW_BATCH - len(self._raw) - 1, n), 0.0

        # the row that closes the cell belongs to the next one, but is looked at before that
        stop = min(over + 1, n)
        wrong = self._first_wrong(rows, i, stop)
        void = self.recurring.first_void(keys, i, wrong) if keys else wrong
        refused, skipped = void == wrong < stop, void < stop
        if skipped:  # the cell must not be closed by a sample that the map does not get
            over = stop = void
            _, reach = self.cells.find_cell_end(rows, i, void) if i < void else (void, reach)

        self._see(rows, slice(i, stop))

        closed = None
        if self.settings.cells:
            self.cells.add_rows(rows, i, over, reach)
            if over < stop:
                # a slow sensor's cell takes its velocity from the sample that comes after it, too
                closed = self.cells.flush((rows.x[over], rows.stamp[over]))
                self.cells.add_rows(rows, over, stop, 0.0)
        else:
            self._raw += [
                single_batch(samples[k], rows.y[k], rows.heading[k]) for k in range(i, stop)
            ]
            closed = join_raw(self._raw) if len(self._raw) >= RAW_BATCH else None
        if closed is not None:
            self._raw = []
            self._admit(closed)

        if refused:
            x, y = rows.x[wrong], rows.y[wrong]
            self._refuse(
                1,
                f"a sample of {max(map(abs, y)):.3g} at ({x[0]:.3g}, {x[1]:.3g}) m is no value of this "
                "field, or at no place of this earth",
            )
        elif skipped:  # it is used up, as a gross error in a cell is
            self.raw_count += 1
        return stop + skipped

    def _first_wrong(self, rows: RawRows, start: int, stop: int) -> int:
        """Number of the first of the rows start … stop − 1 that no map can take; stop if none."""
        # all at once first, since mostly all are good
        if not self._outcomes.accepts_all(rows.y[start:stop]):
            stop = next(
                k for k in range(start, stop) if not self._outcomes.accepts_all(rows.y[k : k + 1])
            )

        # then the values and places themselves
        for k in range(start, stop):
            if not self._first.is_credible(rows.y[k]) or max(map(abs, rows.x[k])) > FARTHEST:
                return k
        return stop

    def _see(self, rows: RawRows, part: slice) -> None:
        """Find headings, yaw rates and path lengths of raw samples, and count them."""
        if part.start == part.stop:
            return
        # a pass begins with its first sample, not with the break before
        if not self._pass_open:
            self._begin_pass()

        rows.heading[part], rates = self._track.steps(
            rows.x[part], rows.stamp[part], rows.heading[part]
        )

        lengths = self._path.extend(rows.x[part])
        self.raw_count += part.stop - part.start
        self._look(rows, part, rates, lengths)

    def _begin_pass(self) -> None:
        """Begin a new pass: no line, heading or velocity reaches into it from the last one."""
        self._pass_open, self.passes = True, self.passes + 1
        self._path.begin_pass()
        self._track.begin_pass()
        self.cells.begin_pass()

    def _refuse(self, count: int, why: str) -> None:
        """Count raw samples as refused, and keep the reason."""
        self.refused += count
        self.last_refusal = why

    def _close_cell(self) -> None:
        """Close the open cell, or the raw samples that wait for their batch, and the open block."""
        pending = self.cells.flush()
        if pending is None and self._raw:
            pending, self._raw = join_raw(self._raw), []
        if pending is not None:
            self._admit(pending)
        self._pass_on(self.response.flush())

    def flush(self) -> None:
        """Hand over the open cell, or the raw samples that wait for their batch."""
        self._close_cell()

    def finish(self) -> None:
        """Leave nothing pending: the stream has ended."""
        self.flush()

    def break_pass(self) -> None:
        """Close the open cell at a gap or a time jump: the next sample starts a new pass."""
        # the open cell must not reach into the next pass
        self._close_cell()
        self._first.drop_held()  # what comes now is elsewhere, or later: it confirms nothing
        self._pass_open = False

    def _admit(self, cell: Samples) -> None:
        """Hand over a finished cell, or what a slow sensor's cells say of the field."""
        self.neighbours.add(cell, self.passes)
        self._pass_on(self.response.add(cell, self.passes, self.cells.resolution))

    def _pass_on(self, cells: Iterable[Samples]) -> None:
        """Hand over cells, as a map is to get them, of the pass that is open."""
        for cell in cells:
            self._admit_block(cell, self.passes)

    def _admit_block(self, cell: Samples, passes: int) -> None:
        """Hand over what the map is to get, or all again where the sensor had not begun to measure.

        Args:
            cell: it.
            passes: number of its pass.
        """
        if self.settings.has_biases:
            cell = self._bias.with_numbers(cell, passes)

        again = self._first.check_warm_up(cell, self.cells.resolution)
        if again is None:
            self._hand_over(cell)
            return

        # the sensor's warm-up has spoiled what was measured of its white noise, too
        self._begin_over()
        if again[0].stamp is not None:
            self.response.forget_before(float(again[0].stamp[0]))
            self.drift.forget_before(float(again[0].stamp[0]))
        unknown, self.neighbours = self.cells.forget_white_noise(), NeighbouringCells()
        for early_cell in again:
            variance = early_cell.sensor_variance
            void = unknown and variance is not None
            self._hand_over(
                replace(early_cell, sensor_variance=torch.zeros_like(variance))
                if void
                else early_cell
            )

    def _hand_over(self, cell: Samples) -> None:
        """Give a cell to the map, unless it has to wait for the next ones (first_values.py)."""
        if self._first.is_open:
            self._open_with(self._first.add_first(cell), cell)
            return

        for admitted in self._first.admit(cell, self._settled()):
            self._absorb(admitted)

    # --- what is known of them --------------------------------------------------------------------
    @property
    def gross_errors(self) -> int:
        """Raw samples that were left out as gross errors."""
        return self.cells.gross + self._first.gross + self.recurring.hung + self.recurring.beyond

    @property
    def is_opening(self) -> bool:
        """Whether there are so few cells that what the first ones decide is still open."""
        return self._first.is_open

    @property
    def beginning_notes(self) -> list[str]:
        """That a sensor had not begun to measure, in sentences; of merged maps, too."""
        return self._first.notes

    @property
    def value_notes(self) -> list[str]:
        """What was left out by its value, in sentences."""
        return [
            *refusal_note(self.refused, self.left_out, self.last_refusal),
            *self._first.notes,
            *self.recurring.notes(),
            *self.response.notes(),
            *self.drift.notes(),
        ]

    @property
    def path_trace(self) -> Path:
        """The path driven, not to be changed."""
        return self._path

    @property
    def path(self) -> Tensor:
        """Thinned positions of the samples: (K, 2) metres."""
        return self._path.points()

    @property
    def driven(self) -> Tensor:
        """Points of the path on ground that was driven: (K, 2) m, without a pose's glitches."""
        return self._path.driven()

    @property
    def position(self) -> tuple[float, float] | None:
        """Where the newest sample was taken, metres; None before the first."""
        newest = self._path.newest
        return None if newest is None else (newest[0], newest[1])

    @property
    def path_starts(self) -> Tensor:
        """Points of the path to which no line leads (a new pass, a jump): (K,) bool."""
        return self._path.starts()

    @property
    def bias_numbers(self) -> BiasNumbers:
        """The numbers of passes that have a constant of their own, not to be changed."""
        return self._bias

    def _join_gathered(self, other: Gathering) -> None:
        """Add another's path, white noise and numbers of passes."""
        self._path.join(other.path_trace)
        self.neighbours.join(other.neighbours)
        self._bias.join(other.bias_numbers)

    # --- resume -----------------------------------------------------------------------------------
    def _gathered(self) -> dict:
        """Collect what an exact resume of the cells and their path needs."""
        return {
            "cells": self.cells.state_dict(),
            "neighbours": self.neighbours.state_dict(),
            "path": self._path.state_dict(),
            "track": self._track.state_dict(),
            "recurring": self.recurring.state_dict(),
            "response": self.response.state_dict(),
            "drift": self.drift.state_dict(),
            "raw": [{f.name: getattr(s, f.name) for f in fields(s)} for s in self._raw],
            "pass_open": self._pass_open,
            "passes": self.passes,
            **self._beginning_state(),
        }

    def _beginning_state(self) -> dict:
        """Collect what changes where all begins again."""
        return {
            "first_values": self._first.state_dict(),
            "bias": self._bias.state_dict(),
            "raw_count": self.raw_count,
            "refused": self.refused,
        }

    def _load_gathered(self, state: dict) -> None:
        """Continue where `_gathered` was taken; older maps begin with 0 of what they lack."""
        self.cells.load_state_dict(state["cells"])
        self._path.load_state_dict(state["path"])
        self._track.load_state_dict(state["track"])
        if "neighbours" in state:  # else of a version that asked cell mates alone
            self.neighbours.load_state_dict(state["neighbours"])
        if "recurring" in state:  # else of a version that left out no repeats
            self.recurring.load_state_dict(state["recurring"])
        if "response" in state:
            self.response.load_state_dict(state["response"])
        else:  # of a version that took each sensor for a fast one, and kept no cells
            self.response.stop_looking()
        if "drift" in state:
            self.drift.load_state_dict(state["drift"])
        else:  # of a version that looked for none, and kept no cells
            self.drift.stop_looking()
        if "bias" in state:  # else of a version in which no pass had a constant
            self._bias.load_state_dict(state["bias"])
        if "first_values" in state:  # in older maps the first cell has decided
            self._first.load_state_dict(state["first_values"])
        else:
            self._first.seen = state.get("cell_count", 0)

        self._raw, self._pass_open = [Samples(**s) for s in state["raw"]], state["pass_open"]
        self.raw_count, self.passes, self.refused = (
            state.get(n, 0) for n in ("raw_count", "passes", "refused")
        )

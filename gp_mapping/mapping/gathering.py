"""From raw samples to the cells that a map takes in: what a live session and a reader of a fleet's bags do alike.

    raw sample → can it be a value of this field? → heading, path → cell → number of its pass → held against the first

Whoever inherits says what becomes of a cell; nothing here knows a map. The cells depend on the sequence of samples
only, never on how it is cut into calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, replace

import torch

from gp_mapping.core.likelihoods.outcomes import Outcomes
from gp_mapping.core.types import FARTHEST, Samples
from gp_mapping.mapping.beginning.first_values import FirstValues
from gp_mapping.mapping.bias_numbers import BiasNumbers
from gp_mapping.mapping.cells import CellAverager, RawRows
from gp_mapping.mapping.motion.attitude import HeadingTrack
from gp_mapping.mapping.motion.path import Path
from gp_mapping.mapping.raw_batch import RAW_BATCH, joined, one_of
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Gathering"]

_PERIOD = 0.02  # s between raw samples that have no stamps


class Gathering(ABC):
    """Cells of raw samples, pass by pass, and what is counted on the way.

    Of n samples that came, raw_count (used) and refused grow by n together.  passes: begun so far.  trace: the path.
    lost: of those refused, the ones that were counted as used until their cell was handed over.
    """

    lost = 0
    raw_count: int
    refused: int
    passes: int
    last_refusal: str

    def __init__(self, settings: MapSettings):
        self.settings = settings

    def _begin(self) -> None:
        """Nothing has come yet."""
        s = self.settings
        self.cells = CellAverager(
            s.cell_length, s.cell_duration, s.robust, s.counts, s.threshold if s.labels else None
        )
        self._raw: list[Samples] = []  # without cells: those that wait for their batch
        self._first, self._bias = FirstValues(s), BiasNumbers(s.bias_time)
        self._outcomes = Outcomes(s)
        self._path, self._track = Path(s.cell_length), HeadingTrack(s.axle_distance)
        self._pass_open = False
        self.raw_count, self.passes, self.refused, self.last_refusal = 0, 0, 0, ""

    # --- what becomes of them -------------------------------------------------------------------------------------
    @abstractmethod
    def _open_with(self, first: Samples, cell: Samples) -> None:
        """One more of the first few cells has come. first: all of them so far that are not far from their median."""

    @abstractmethod
    def _absorb(self, cell: Samples) -> None:
        """A cell that is none of the first."""

    @abstractmethod
    def _begin_over(self) -> None:
        """All cells so far are void; those that were no warm-up of the sensor come once more."""

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
        """Raw samples before they enter their cell. rates: of turning, rad/s.  lengths: of the path up to each, m."""

    # --- samples in -----------------------------------------------------------------------------------------------
    def _gather(self, samples: Samples) -> None:
        """Raw samples into cells; each cell is handed over before the next sample is looked at."""
        n, i = len(samples), 0
        stamps = [] if samples.stamp is None else samples.stamp.tolist()
        rows = RawRows(
            samples.x.tolist(),
            samples.y.tolist(),
            stamps,
            *(
                [None] * n if column is None else column.tolist()
                for column in (samples.sensor_variance, samples.heading, samples.position_variance)
            ),
        )
        while i < n:
            i = self._gather_rows(samples, rows, i)

    def _gather_rows(self, samples: Samples, rows: RawRows, i: int) -> int:
        """Raw samples from number i on, up to the one that closes a cell, or is refused; the number of the next."""
        n = len(rows.x)
        if samples.stamp is None:
            rows.stamp[i:] = [_PERIOD * float(self.raw_count + self.lost + k) for k in range(n - i)]
        if self.settings.cells:
            over, reach = self.cells.until(rows, i, n)
        else:
            over, reach = min(i + RAW_BATCH - len(self._raw) - 1, n), 0.0

        stop = min(over + 1, n)  # the one that is over closes the cell, and is seen before that
        wrong = self._first_wrong(rows, i, stop)
        refused = wrong < stop
        if refused:
            over = stop = wrong
            _, reach = self.cells.until(rows, i, wrong) if i < wrong else (wrong, reach)
        self._see(rows, slice(i, stop))

        closed = None
        if self.settings.cells:
            self.cells.take(rows, i, over, reach)
            if over < stop:
                closed = self.cells.flush((rows.x[over], rows.stamp[over]))
                self.cells.take(rows, over, stop, 0.0)
        else:
            self._raw += [one_of(samples[k], rows.y[k], rows.heading[k]) for k in range(i, stop)]
            closed = joined(self._raw) if len(self._raw) >= RAW_BATCH else None
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
        return stop + refused

    def _first_wrong(self, rows: RawRows, start: int, stop: int) -> int:
        """The first of the rows start … stop − 1 that no map can take; stop: all are good."""
        if not self._outcomes.all_in(
            rows.y[start:stop]
        ):  # of many at once, which is the usual case
            stop = next(
                k for k in range(start, stop) if not self._outcomes.all_in(rows.y[k : k + 1])
            )
        for k in range(start, stop):
            if not self._first.credible(rows.y[k]) or max(map(abs, rows.x[k])) > FARTHEST:
                return k
        return stop

    def _see(self, rows: RawRows, part: slice) -> None:
        """What is to be known of raw samples beside their cell: pass, headings, the path."""
        if part.start == part.stop:
            return
        if not self._pass_open:
            self._begin_pass()

        rows.heading[part], rates = self._track.steps(
            rows.x[part], rows.stamp[part], rows.heading[part]
        )
        lengths = self._path.extend(rows.x[part])
        self.raw_count += part.stop - part.start
        self._look(rows, part, rates, lengths)

    def _begin_pass(self) -> None:
        self._pass_open, self.passes = True, self.passes + 1
        self._path.lift()
        self._track.lift()
        self.cells.lift()

    def _refuse(self, count: int, why: str) -> None:
        self.refused += count
        self.last_refusal = why

    def flush(self) -> None:
        """Hand over the open cell, and what else is pending."""
        rest = self.cells.flush()
        if rest is None and self._raw:
            rest, self._raw = joined(self._raw), []
        if rest is not None:
            self._admit(rest)

    def finish(self) -> None:
        """The end of what comes: nothing is pending any more."""
        self.flush()

    def break_pass(self) -> None:
        """A gap or a time jump: the open cell is closed, the next sample starts a new pass."""
        self.flush()
        self._first.drop_held()  # what comes now is elsewhere, or later: it confirms nothing
        self._pass_open = False

    def _admit(self, cell: Samples) -> None:
        """A finished cell: handed over, or first held against those before it (first_values.py)."""
        if self.settings.has_biases:
            cell = self._bias.numbered(cell, self.passes)
        again = self._first.begun(cell, self.cells.resolution)
        if again is None:
            self._hand_over(cell)
            return
        self._begin_over()
        unknown = self.cells.forget_white()
        for one in again:
            variance = one.sensor_variance
            void = unknown and variance is not None
            self._hand_over(
                replace(one, sensor_variance=torch.zeros_like(variance)) if void else one
            )

    def _hand_over(self, cell: Samples) -> None:
        if self._first.opening:
            self._open_with(self._first.first(cell), cell)
            return
        for one in self._first.admit(cell, self._settled()):
            self._absorb(one)

    # --- what is known of them ------------------------------------------------------------------------------------
    @property
    def gross(self) -> int:
        """Raw samples that were left out as gross errors."""
        return self.cells.gross + self._first.gross

    @property
    def opening(self) -> bool:
        """Whether there are so few cells that what the first ones decide is still open."""
        return self._first.opening

    @property
    def trace(self) -> Path:
        """The path driven, not to be changed."""
        return self._path

    @property
    def bias_numbers(self) -> BiasNumbers:
        """The numbers of passes that have a constant of their own, not to be changed."""
        return self._bias

    # --- resume ---------------------------------------------------------------------------------------------------
    def _gathered(self) -> dict:
        """Its part of what an exact resume needs."""
        return {
            "cells": self.cells.state_dict(),
            "first_values": self._first.state_dict(),
            "path": self._path.state_dict(),
            "bias": self._bias.state_dict(),
            "track": self._track.state_dict(),
            "raw": [{f.name: getattr(s, f.name) for f in fields(s)} for s in self._raw],
            "pass_open": self._pass_open,
            "raw_count": self.raw_count,
            "passes": self.passes,
            "refused": self.refused,
        }

    def _load_gathered(self, state: dict) -> None:
        """Continue where `_gathered` was taken; maps saved before something was counted begin with none of it."""
        self.cells.load_state_dict(state["cells"])
        self._path.load_state_dict(state["path"])
        self._track.load_state_dict(state["track"])
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

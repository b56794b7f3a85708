"""What the first cells decide, and how wild values among them are kept out.

Later a cell far from the map's prediction is weakened unless the next confirm it. In the beginning
there is no map to compare with, and a slow sensor, of which a cell is one sample, has no neighbours
within the cell either. So

1. the first nine cells enter the map together, once more with each of them: its centre and origin
   are their medians, and a cell that lies far from that median is left out; four of nine may be
   wild;
2. from then on until the map has settled, a cell far from the median of the last 32 waits: two more
   that agree with it make it part of the field (a source, a new room), another that does not makes
   it a gross error;
3. where the first hundred show that the sensor had not begun to measure, all begins again with
   those after (warm_up.py).

Far is beyond twelve robust standard deviations (1.4826 MAD), or twelve signal_stddev where that is
more. A value beyond a million of either is no field at any time. Of counts the levels are compared
(cells.py), whose standard deviation is 1; no cell of them waits, for a source is driven past
quickly; a count beyond ten thousand times the median is no field.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from statistics import median

import torch

from gp_mapping.core.hyper.first_guess import first_guess
from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.warm_up import WarmUp
from gp_mapping.mapping.cells import anscombe
from gp_mapping.mapping.notes.settings import warm_up_note
from gp_mapping.mapping.raw_batch import RAW_BATCH
from gp_mapping.settings.mapping import MapSettings

__all__ = ["FirstValues"]

FIRST = 9  # cells whose median is the centre
_TELLING = 3  # cells; fewer say too little of how much the field varies
_ROUNDS = 5  # of leaving out far cells and looking again
_WINDOW = 32  # cells whose median and spread the next one is compared with
_EARLY = 100  # cells before which no map is trusted to judge
_FAR = 12.0  # robust standard deviations
_AGREE = 3  # cells in a row, or batches of raw samples, that are far together are no error
_ABSURD = 1e6  # robust standard deviations that no field has
_STRONGEST = 1e4  # times the median of the last cells, and one more, that no source counts
_ROUNDING = 1e-12  # of a value; less is no step of the sensor
_MERGED = "of a map that was merged into this one: "
_NOTES = 10  # at most, of the beginnings of merged maps
_NORMAL = 1.4826  # standard deviations of a normal in its median absolute deviation


class FirstValues:
    """Holds the first cells, and later ones that are far until the next ones confirm them or not.

    Args:
        settings: of the map.

    Attributes:
        seen: cells so far.
        gross: raw samples of cells that were left out.
        notes: that the sensor had not begun to measure, in sentences; of merged maps, too.
    """

    def __init__(self, settings: MapSettings):
        self._settings, self._early = settings, WarmUp(settings)
        self.notes: list[str] = []

        self._counts = settings.robust and settings.counts
        self._enough = _AGREE if settings.cells else _AGREE * RAW_BATCH
        self._judges = settings.robust and settings.metric

        # The field's standard deviation: a guess until the first cells tell; of the levels of
        # counts it is known.
        self._signal = (
            1.0 if self._counts else settings.signal_stddev or 10.0 * settings.field_scale
        )

        self._first: list[Samples] = []  # the first cells, one row each
        self._recent: list[list[float]] = []  # values (C,) of the last cells
        self._held: list[Samples] = []  # cells that wait
        # median and spread of the last cells, each (C,), SI
        self._reference: tuple[list[float], list[float]] | None = None
        self._measured: float | None = None  # the spread itself, of the widest channel

        self._resolution = math.inf  # smallest step of the sensor so far, SI
        self._last: list[float] | None = None  # value of the last cell
        self.seen, self.gross = 0, 0

    @property
    def is_open(self) -> bool:
        """Whether the first cells are still coming."""
        return self.seen < FIRST

    @property
    def waiting_samples(self) -> int:
        """Raw samples of the cells that the next ones decide on."""
        return sum(cell.raw_count for cell in self._held)

    @property
    def spread(self) -> float | None:
        """Robust standard deviation of the last cells of the beginning, SI; None: not known.

        Of several channels the widest counts.
        """
        return self._measured

    def close(self) -> None:
        """End the beginning: the map is more than its first cells, and does not begin again."""
        self._early.close()

    def join(self, notes: Sequence[str]) -> None:
        """Take in what is noted of the beginning of a map that has been merged into this one."""
        self.close()
        theirs = [note if note.startswith(_MERGED) else f"{_MERGED}{note}" for note in notes]
        self.notes = list(dict.fromkeys([*self.notes, *theirs]))[:_NOTES]

    def check_warm_up(self, cell: Samples, resolution: float = math.inf) -> list[Samples] | None:
        """Look at one more cell, before all else: has the sensor just begun to measure?

        Args:
            cell: the new one; none is kept here.
            resolution: smallest step between two samples of a cell so far, SI; it shows how a
                sensor rounds.

        Returns:
            The cells with which all is to begin again; None where nothing does.
        """
        # only raw values show a sensor's step, means of several samples do not
        single = cell.raw_count == len(cell)
        values = cell.y.tolist()
        for before, after in (
            pairwise([*([] if self._last is None else [self._last]), *values]) if single else ()
        ):
            steps = [abs(a - b) for a, b in zip(before, after) if abs(a - b) > _ROUNDING * abs(a)]
            self._resolution = min(self._resolution, *steps, math.inf)

        self._last = values[-1] if single else None
        self._resolution = min(self._resolution, resolution)
        split = self._early.add(cell, self._step)
        if split is None:
            return None

        before, after = split
        # all that the warm-up has left here is void
        self._first, self._recent, self._held, self._reference, self.seen = [], [], [], None, 0
        self.gross = sum(cell.raw_count for cell in before)
        self.notes = [warm_up_note(self.gross, float(before[-1].y.abs().max()))]
        return after

    @property
    def _step(self) -> float:
        """Smallest step of the sensor, SI; 0 while it is not known."""
        return 0.0 if self._resolution == math.inf else self._resolution

    def _note_signal(self, rows: list[Samples]) -> None:
        """Learn from the first cells how much the field varies: no spread is taken for less."""
        s = self._settings
        if self._judges and not s.signal_stddev:
            x, y = torch.cat([row.x for row in rows]), torch.cat([row.y for row in rows])
            self._signal = first_guess(x, y, s.kernel, s.field_scale).signal

    def is_credible(self, y: list[float]) -> bool:
        """Whether a raw value y (C,), SI, can be of this field; True while nothing is known."""
        if self._reference is not None and self._counts:
            return y[0] <= _STRONGEST * (self._reference[0][0] + 1.0)
        if self._reference is None or not self._judges:
            # its square must be finite, too
            return max(map(abs, y)) < 1e100 * self._signal

        for v, m, s in zip(y, *self._reference):
            if not abs(v - m) <= _ABSURD * s:
                return False
        return True

    def add_first(self, cell: Samples) -> Samples:
        """Add one of the first cells; return all that are not far from their median, in a batch."""
        self._first += [cell[i] for i in range(len(cell))]
        self.seen += len(cell)
        values = [row.y[0].tolist() for row in self._first]
        if self._counts:
            values = [anscombe(value).tolist() for value in values]

        kept = self._first
        if not (self._judges or self._counts) or len(values) < _TELLING:
            self._note_signal(kept)
        elif not self.is_open or self._suspect(values):
            # all of them show how much the field varies, then those that are not far, and so on
            for _ in range(_ROUNDS):
                self._note_signal(kept)
                near = [
                    row for row, value in zip(self._first, values) if not self._far(value, values)
                ]
                unchanged, kept = len(near) == len(kept), near or self._first
                if unchanged:
                    break

        if not self.is_open:
            self._recent = [row.y[0].tolist() for row in kept][-_WINDOW:]
            self._reference = self._median_and_spread(self._recent)
            self.gross += sum(row.raw_count for row in self._first) - sum(
                row.raw_count for row in kept
            )
            self._first = []

        return _joined(kept)

    def drop_newest(self, count: int) -> None:
        """Drop so many of the newest first cells, which a full map does not take later."""
        self._first = self._first[: max(0, len(self._first) - count)]

    def admit(self, cell: Samples, settled: bool) -> list[Samples]:
        """Decide which cells go into the map now, in order.

        Args:
            cell: the new one.
            settled: whether the map can judge by itself.
        """
        self.seen += len(cell)
        if self._counts:
            self._recent = [*self._recent, cell.y.mean(0).tolist()][-_WINDOW:]
            self._reference = self._median_and_spread(self._recent)
            return [cell]
        if not self._judges or (settled and self.seen > _EARLY):
            held, self._held = self._held, []  # the map judges these as well
            return [*held, cell]

        if len(cell) == 1:
            return self._judged(cell)

        # raw samples are judged each by itself; what goes on of them goes on together
        each = [cell[i] for i in range(len(cell))]
        number = {id(row): i for i, row in enumerate(each)}
        # of each row: itself, those that had waited for it as well, or nothing while it waits
        admitted = [kept for row in each for kept in self._judged(row)]
        own_rows = [number[id(kept)] for kept in admitted if id(kept) in number]
        earlier = [kept for kept in admitted if id(kept) not in number]  # had waited before `cell`
        return ([_joined(earlier)] if earlier else []) + (
            [cell[torch.tensor(own_rows)]] if own_rows else []
        )

    def _judged(self, cell: Samples) -> list[Samples]:
        """Judge one cell before the map can.

        Returns:
            The cell; with those that waited, once enough agree; nothing while it waits itself.
        """
        value = cell.y.mean(0).tolist()
        if not self._far(value, self._recent):
            self.drop_held()
            self._recent = [*self._recent, value][-_WINDOW:]
            self._reference = self._median_and_spread(self._recent)
            return [cell]

        if self._held and not self._agree(value):
            self.drop_held()
        self._held.append(cell)
        if len(self._held) < self._enough:
            return []

        held, self._held = self._held, []
        # the field has these values now: later cells are compared with them
        self._recent = [held_cell.y.mean(0).tolist() for held_cell in held]
        return held

    def drop_held(self) -> None:
        """Drop the cells that wait as gross errors: nothing has confirmed them."""
        self.gross += sum(cell.raw_count for cell in self._held)
        self._held = []

    def _median_and_spread(
        self, values: list[list[float]], least: float | None = None
    ) -> tuple[list[float], list[float]]:
        """Median and robust standard deviation of each channel of values (n, C).

        Args:
            values: SI.
            least: bound of the spread from below, SI; None: how much the field varies, and a step
                of the sensor.
        """
        middle = [median(column) for column in zip(*values)]
        spread = [
            _NORMAL * median(abs(v - m) for v in column) for column, m in zip(zip(*values), middle)
        ]

        self._measured = max(spread)
        least = max(self._signal, self._step) if least is None else least
        return middle, [max(s, least) for s in spread]

    def _suspect(self, values: list[list[float]]) -> bool:
        """Whether a value is far by the spread of all alone, the strictest test there is."""
        middle, spread = self._median_and_spread(values, 0.0)
        return any(
            abs(v - m) > _FAR * s for value in values for v, m, s in zip(value, middle, spread)
        )

    def _far(self, value: list[float], among: list[list[float]]) -> bool:
        """Whether a value lies far from the median of others; False of fewer than three."""
        if len(among) < 3:
            return False
        middle, spread = self._median_and_spread(among)
        return any(abs(v - m) > _FAR * s for v, m, s in zip(value, middle, spread))

    def _agree(self, value: list[float]) -> bool:
        """Whether a value agrees with all cells that wait: it lies nearer to them than to others.

        In each channel its distance from a waiting cell is at most half of the larger of their
        distances from the median.
        """
        middle, _ = self._median_and_spread(self._recent)
        # in every channel, with every cell
        for cell in self._held:
            for v, w, m in zip(value, cell.y.mean(0).tolist(), middle):
                if abs(v - w) > 0.5 * max(abs(v - m), abs(w - m)):
                    return False
        return True

    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "first": [_columns(row) for row in self._first],
            "recent": [list(v) for v in self._recent],
            "held": [_columns(cell) for cell in self._held],
            "seen": self.seen,
            "gross": self.gross,
            "measured": self._measured,
            "signal": self._signal,
            "early": self._early.state_dict(),
            "notes": list(self.notes),
            "resolution": self._resolution,
            "last": None if self._last is None else list(self._last),
            "reference": None
            if self._reference is None
            else [list(part) for part in self._reference],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self._first, self._held = (
            [Samples(**row) for row in state[name]] for name in ("first", "held")
        )
        self._recent = [list(map(float, v)) for v in state["recent"]]
        self._reference = (
            None if state["reference"] is None else tuple(list(part) for part in state["reference"])
        )

        self.seen, self.gross, self._measured = (
            int(state["seen"]),
            int(state["gross"]),
            state.get("measured"),
        )
        self._signal = float(state.get("signal", self._signal))
        # older maps have one note, which may be empty
        self.notes = (
            list(state["notes"]) if "notes" in state else [*filter(None, [state.get("note")])]
        )
        self._resolution, self._last = float(state.get("resolution", math.inf)), state.get("last")

        self._early.load_state_dict(state.get("early"))


def _joined(rows: list[Samples]) -> Samples:
    """Join rows to one batch; a column that not all of them have is left out."""
    return Samples.concatenate(rows, common=True)


def _columns(cell: Samples) -> dict:
    """Columns of a cell by name."""
    return {f.name: getattr(cell, f.name) for f in fields(cell)}

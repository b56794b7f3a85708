"""Averaging of raw samples along a pass into cells.

Fifty samples a second from a slow robot are not fifty independent facts: what differs between two
passes of one place is not white. So the samples of a pass are averaged into cells, and a cell of n
samples has the noise

    s_p² + white/n + m q²/12

s_p: standard deviation of what does not average out, white: the white variance of one raw sample,
m q²/12: what rounding leaves (rounding.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.averaging.bursts import Bursts
from gp_mapping.mapping.averaging.motion import extent_along, slower_velocity
from gp_mapping.mapping.averaging.rounding import Rounding
from gp_mapping.mapping.averaging.surroundings import FEW, Surroundings
from gp_mapping.mapping.averaging.usual import WILD, UsualCell, usual_cell
from gp_mapping.mapping.averaging.white_average import WhiteAverage
from gp_mapping.mapping.labels import by_limits, by_side
from gp_mapping.mapping.scoring.neighbours import Spread, noise_squares, step_squares

__all__ = ["CellAverager", "RawRows", "anscombe"]

_CELL_ROWS = 512  # raw samples kept of one cell; beyond it every second one is dropped
_TAIL = 8  # good samples of the cells before that judge the next ones
_STEP = 0.25  # of the sensor's resolution: with GROSS one and a half steps are no error
_COLUMNS = ("x", "y", "t", "sensor", "heading", "position")


_Following = tuple[list[float], float, list[float]]  # place (D), stamp and value (C)


class RawRows(NamedTuple):
    """Raw samples as columns of plain numbers; None where a sample does not have a value.

    Attributes:
        x: positions (D), m.
        y: values (C), SI.
        stamp: s.
        sensor: known white variance of y, squared SI; 0: unknown.
        heading: (2,) unit vectors.
        position: variance of x, m².
    """

    x: list[list[float]]
    y: list[list[float]]
    stamp: list[float]
    sensor: list[float | None]
    heading: list[list[float] | None]
    position: list[float | None]


def anscombe(counts):
    """2 √(y + 3/8): of counts y ~ Poisson(μ) its standard deviation is 1 whatever μ is.

    Args:
        counts: a number or an array of any shape, counts of one measurement.

    Reference:
        Anscombe 1948, The transformation of Poisson, binomial and negative-binomial data.
    """
    return 2.0 * np.sqrt(np.asarray(counts) + 0.375)


class CellAverager:
    """Averages raw samples of a pass into cells.

    A robot that stands still (moves less than a tenth of `longest`) fills one cell for up to ten
    durations: its samples are not new evidence of the place. The white variance of one raw sample
    is what the sensor states, else half the mean of `noise_squares` inside cells,
    remembered over about 1000 of them. With `robust`, gross errors are left out and counted in
    `gross` (surroundings.py); of counts, by their levels (anscombe), whose spread is known. Where
    it hangs on the next sample which of a cell are, they are in one cell with it (flush).

    A cell's velocity is that from its first to its last sample, which pose noise hardly touches. A
    slow sensor's cell has but one: then it is the slower of two, from the sample before it and to
    the one after it in its pass, since a glitch of the pose makes one of the two fast.

    Args:
        length: of a cell at most, m across.
        duration: of a cell at most, s.
        robust: whether gross errors are left out.
        counts: whether the values are counts.
        threshold: where only the side of it counts on which a sample lies; a cell then has a row
            for either side (labels.py).
        limits: ends of the sensor's range, SI, infinite where it has none; a cell then has a row
            for what is at an end, which tells nothing of the noise.

    Attributes:
        length: of a cell at most, from the open one on, m; the owner may change it.
        longest: what it was to begin with, m.
        open: columns, `count`, `stride` and `reach` of the open cell; None where none is.
        gross: raw samples that were left out as gross errors.
        newest_gross: of these the newest: value, SI, of vectors their length, and stamp, s.
        white: spread of raw samples without the field's own change, measured.
        steps: spread of successive samples, the field's change in it.
        bursts: whether samples far from others are too many to be errors.
    """

    def __init__(
        self,
        length: float,
        duration: float,
        robust: bool = True,
        counts: bool = False,
        threshold: float | None = None,
        limits: tuple[float, float] = (-math.inf, math.inf),
    ):
        self.length, self.duration, self.robust, self.counts = length, duration, robust, counts
        self.longest = length
        self.threshold, self.limits = threshold, limits
        self.open: dict | None = None
        # place and stamp of the sample before the open cell
        self._before: tuple[list[float], float] | None = None
        self.white, self.steps, self.gross = Spread(robust), Spread(robust), 0
        self.newest_gross: tuple[float, float] | None = None
        self._rounding, self._recent = Rounding(), WhiteAverage(robust)
        self.bursts = Bursts()
        # the newest good values, and stamps, of the cells before in this pass: they judge the next
        self._tail: list[tuple[list[float], float]] = []

    @property
    def resolution(self) -> float:
        """Smallest step between samples of a cell, SI (Rounding.resolution)."""
        return self._rounding.resolution

    @property
    def single_variance(self) -> float:
        """Mean white variance of one raw sample over recent cells, squared SI; 0: not known.

        As the sensor states it, else as measured.
        """
        return self._recent.single

    @property
    def averaged_variance(self) -> float:
        """Mean of white/n over recent cells, squared SI: what averaging leaves of it in a cell."""
        return self._recent.averaged

    @property
    def known_by(self) -> float:
        """Differences of cell mates that tell the white variance; inf: the sensor states it."""
        return math.inf if self._recent.is_stated else self.white.count

    @property
    def white_variance(self) -> float:
        """Measured white variance of one raw sample, squared SI; 0 while too little is known."""
        return self.white.variance

    def add(
        self,
        x: list[float],
        y: list[float],
        stamp: float,
        sensor: float | None = None,
        heading: list[float] | None = None,
        position: float | None = None,
    ) -> Samples | None:
        """Add one raw sample.

        Args:
            x: position (D), m.
            y: values (C), SI.
            stamp: s.
            sensor: known white variance, squared SI; 0 or None: unknown.
            heading: (2,) unit vector; None: unknown.
            position: variance of x, m²; None: unknown.

        Returns:
            The cell that it closes, or None.
        """
        rows = RawRows([x], [y], [stamp], [sensor], [heading], [position])
        over, reach = self.find_cell_end(rows, 0, 1)
        closed = None if over else self.flush((x, stamp, y))
        self.add_rows(rows, 0, 1, reach if over else 0.0)
        return closed

    def find_cell_end(self, rows: RawRows, start: int, stop: int) -> tuple[int, float]:
        """Find the first of the rows start … stop − 1 that begins a new cell, else stop.

        Args:
            rows: raw samples as columns, in order of time.
            start: number of the first row that is in no cell yet.
            stop: number after the last row to look at.

        Returns:
            Its number, and how far the rows before it reach from the cell's first sample, m.
        """
        cell, begin = self.open, start
        if cell is None:
            first, began, reach = rows.x[start], rows.stamp[start], 0.0
            begin += 1
        else:
            first, began, reach = cell["x"][0], cell["t"][0], cell["reach"]
            if cell["asked"]:
                return start, reach

        # The millionth keeps rounding, which depends on where the map's origin lies, from deciding.
        longest, oldest = self.length * (1 + 1e-6), self.duration * (1 + 1e-6)
        standing, longest_stand = 0.1 * self.longest, self.duration * 10.0 * (1 + 1e-6)

        dist, x, stamp = math.dist, rows.x, rows.stamp
        for i in range(begin, stop):
            moved, age = dist(x[i], first), stamp[i] - began
            # too far, a clock that jumped back, or too old: standing, ten times as old
            if (
                moved > longest
                or age < 0
                or (age > oldest and (age > longest_stand or max(moved, reach) >= standing))
            ):
                return i, reach
            if moved > reach:
                reach = moved
        return stop, reach

    def add_rows(self, rows: RawRows, start: int, stop: int, reach: float) -> None:
        """Take rows into the open cell, or begin one with them.

        Args:
            rows: raw samples as columns.
            start: number of the first row to take.
            stop: number after the last one, at most what `find_cell_end` has found.
            reach: farthest distance of a row from the cell's first sample, m.
        """
        if start == stop:
            return
        cell = self.open
        if cell is None:
            if self._before is None or not self._is_near(self._before[0], rows.x[start]):
                self._tail = []
            cell = self.open = {name: [] for name in _COLUMNS} | {
                "count": 0,
                "stride": 1,
                "reach": 0.0,
                "asked": False,  # whether it has waited for its last sample
            }
        cell["reach"] = reach

        # all at once, unless the cell is so full that only every stride-th row is kept
        keeps_all = cell["stride"] == 1 and len(cell["t"]) + stop - start <= _CELL_ROWS
        for part in (
            [slice(start, stop)] if keeps_all else [slice(i, i + 1) for i in range(start, stop)]
        ):
            cell["count"] += part.stop - part.start
            # every stride-th row
            if cell["count"] % cell["stride"] == 0:
                for name, column in zip(_COLUMNS, rows):
                    cell[name] += column[part]
                if len(cell["t"]) > _CELL_ROWS:
                    # full: keep every second row, and take half as many from now on
                    for name in _COLUMNS:
                        cell[name] = cell[name][::2]
                    cell["stride"] *= 2

    def _close(
        self, after: _Following | None, usual: UsualCell | None, around: Surroundings | None
    ) -> Samples | None:
        """Average the open cell.

        Args:
            after: the sample that comes next in its pass; None: none does.
            usual: what the cell tells, as of _usual.
            around: what it is judged by, as of _surroundings.

        Returns:
            None where all of it are gross errors.
        """
        cell, self.open = self.open, None
        before, self._before = self._before, (cell["x"][-1], cell["t"][-1])
        wild = set() if around is None else around.wild()
        if usual is not None and not wild:
            return self._close_usual(cell, usual)

        x, y, stamps, *optional = (
            np.array(cell[name]) if None not in cell[name] else None for name in _COLUMNS
        )
        rows, first, last = len(y), x[0], x[-1]
        if wild:
            row = max(wild)
            value = float(y[row, 0]) if y.shape[1] == 1 else float(np.linalg.norm(y[row]))
            self.newest_gross = value, float(stamps[row])
        began, elapsed = cell["t"][0], cell["t"][-1] - cell["t"][0]
        if len(wild) == rows:
            self.gross += cell["count"]
            return None
        few, good = rows < FEW and self.robust, np.ones(rows, bool)
        good[list(wild)] = False
        # of good rows those that state a far larger variance of y or x than the others go, too
        if (
            self.robust
            and (certain := good & _is_as_precise(optional[0]) & _is_as_precise(optional[2])).any()
        ):
            good = certain

        if not good.all():
            x, y, stamps = x[good], y[good], stamps[good]
            optional = [None if column is None else column[good] for column in optional]

        kept = len(y)
        self.gross += (rows - kept) * cell["stride"]
        # rows that the stride has dropped count by the fraction of the kept ones that are good
        n = max(1, round(cell["count"] * kept / rows))

        for spread, squares in self._squares(y, stamps):
            spread.add(squares, few, self.resolution, self.bursts.now)
        inside = self._inside(y)
        self._tail += zip(y[inside].tolist(), stamps[inside].tolist())
        self._tail = self._tail[-_TAIL:]

        stated, heading, position = optional
        if stated is not None:
            # rows that state none (0) say nothing of it; few that do decide for no others
            known = stated > 0.0
            stated = stated[known] if 2 * int(known.sum()) >= len(known) else None
        sensor = self.white_variance if stated is None else float(_mean(stated)[0])
        if sensor > 0.0:  # else too little is known of it
            self._recent.add(sensor, n, stated is not None and self.robust)

        level = y[0].tolist(), bool((y == y[0]).all()), rows
        # between the first and the last row, whether or not their values are good
        velocity = (
            (last - first) / elapsed
            if elapsed > 0
            else slower_velocity(before, (last, cell["t"][-1]), after and after[:2])
        )
        columns = {
            # about the first: coordinates may be 1e6 m, and lose their millimetres in a sum
            "x": first + _mean(x - first),
            "y": _mean(y),
            "velocity": velocity[None],
            "stamp": began + _mean(stamps - began),
            "count": np.array([float(n)]),
            "sensor_variance": np.array([sensor + n * self._rounding.variance(*level)]),
            "heading": None if heading is None else _mean(heading),
            "position_variance": None if position is None else _mean(position),
            "extent": np.array([extent_along(x, velocity)]),
        }
        averaged = Samples(
            **{name: None if c is None else torch.from_numpy(c) for name, c in columns.items()}
        )
        if self.threshold is not None:
            return by_side(averaged, y, self.threshold)
        return averaged if inside.all() else by_limits(averaged, y, self.limits)

    def _inside(self, y: np.ndarray) -> np.ndarray:
        """Which samples y (n, C) are at no end of the sensor's range, (n,) bool."""
        low, high = self.limits
        return ((y > low) & (y < high)).all(1)

    def _usual(self, cell: dict) -> UsualCell | None:
        """What a cell tells of which all samples are alike in kind, as those of most are.

        In plain Python, which for so few numbers takes a quarter of the time.
        """
        usual = usual_cell(*(None if None in cell[name] else cell[name] for name in _COLUMNS))
        single = self.threshold is None and not self.counts and cell["stride"] == 1
        low, high = self.limits
        limited = (-low < math.inf or high < math.inf) and not all(
            low < value < high for (value,) in cell["y"]
        )
        return usual if single and not limited and cell["count"] >= FEW else None

    def _close_usual(self, cell: dict, usual: UsualCell) -> Samples:
        """As _close, of a usual cell whose samples are all good."""
        n = cell["count"]
        for spread, squares in (self.white, usual.noise), (self.steps, usual.steps):
            spread.add(squares, False, self.resolution, self.bursts.now)
        self._tail = [*self._tail, *zip(cell["y"][-_TAIL:], cell["t"][-_TAIL:])][-_TAIL:]

        sensor = self.white_variance if usual.stated is None else usual.stated
        if sensor > 0.0:  # else too little is known of it
            self._recent.add(sensor, n, usual.stated is not None and self.robust)
        variance = sensor + n * self._rounding.variance(cell["y"][0], usual.alike, n)
        return usual.samples(n, variance)

    def _is_near(self, x: Sequence[float], other: Sequence[float]) -> bool:
        """Whether samples at two places could be in one cell."""
        return math.dist(x, other) <= max(self.length, self.longest) * (1 + 1e-6)

    def forget_white_noise(self) -> bool:
        """Forget measured white noise; False, and nothing done, where a sensor states it."""
        if self._recent.is_stated:
            return False
        self.white, self.steps = Spread(self.robust), Spread(self.robust)
        self._recent.forget()
        return True

    def _note(self, cell: dict, usual: UsualCell | None) -> None:
        """Note a cell's steps and what is typical of its noise, before samples are left out."""
        if usual is not None:
            self._rounding.resolution = min(self.resolution, usual.step)
            noise = usual.noise
        else:
            y, stamps = np.array(cell["y"]), np.array(cell["t"])
            self._rounding.note_steps(y)
            (_, noise), (_, steps) = self._squares(y, stamps, fewest=1)
            if self.robust and len(y) < FEW:
                self.steps.note(steps)
        if self.robust:
            self.white.note(noise)
            self._look_for_bursts(cell)

    def _look_for_bursts(self, cell: dict) -> None:
        """Look whether samples far from others are too many to be errors."""
        if len(cell["y"][0]) == 1 and not self.counts:
            values = [value for (value,) in cell["y"]]
            step = self.resolution
            least = max(0.0 if step == math.inf else _STEP * step, 1e-12 * max(map(abs, values)))
            self.bursts.add(values, cell["t"][-1], least)

    def _squares(
        self, y: np.ndarray, stamps: np.ndarray, fewest: int = 2
    ) -> list[tuple[Spread, list[float]]]:
        """What either spread learns from a cell and, where it has few samples, those before.

        Args:
            y: (n, C), SI.
            stamps: (n,) s.
            fewest: samples of a cell that are compared with those before.
        """
        inside = self._inside(y)
        if not inside.all():
            y, stamps = y[inside], stamps[inside]
        steps = y
        if fewest <= len(y) < FEW and self._tail:
            values, times = zip(*self._tail[-2:])
            steps = np.concatenate([np.array(values[-1:]), y])
            y, stamps = np.concatenate([np.array(values), y]), np.concatenate([times, stamps])
        return [(self.white, noise_squares(y, stamps)), (self.steps, step_squares(steps))]

    def _surroundings(self, cell: dict, after: _Following | None) -> Surroundings | None:
        """What a cell is judged by; None where none of its samples is left out.

        Args:
            cell: columns of the cell.
            after: the sample that comes next; None: none does.
        """
        if not self.robust or self.bursts.now:
            return None
        first, n = len(self._tail), len(cell["y"])
        around = [*self._tail, *zip(cell["y"], cell["t"])]
        if (
            after is not None
            and after[1] >= cell["t"][-1]
            and self._is_near(cell["x"][-1], after[0])
        ):
            around.append((after[2], after[1]))
        values, stamps = zip(*around)
        if self.counts:
            return Surroundings([anscombe(y).tolist() for y in values], stamps, first, n, 1.0, 1.0)
        return Surroundings(values, stamps, first, n, *self._least(values, n))

    def _least(self, y: Sequence[Sequence[float]], count: int) -> tuple[float, float]:
        """Standard deviations at least about a median, and white; 0 while too little is known.

        Args:
            y: successive samples (n, C), SI.
            count: of them in the cell.
        """
        rounding = 1e-12 * max(map(abs, chain.from_iterable(y)))
        step = self.resolution
        if count < FEW:  # cells of one sample tell no step
            between = (abs(a - b) for one, other in pairwise(y) for a, b in zip(one, other))
            step = min([step, *(each for each in between if each > rounding)])
        least = max(0.0 if step == math.inf else _STEP * step, rounding)
        white = self.white.reweighted(step)
        return max(self.steps.variance**0.5, least), max(white**0.5, least) if white else 0.0

    def flush(self, after: _Following | None = None) -> Samples | None:
        """Close the open cell and return it; None where none is open, or all of it is wild.

        Where the sample that comes next alone speaks for some that would be wild in the cell, these
        and those after them are in the next cell with it: two that are alike are an edge of the
        field or a pair of errors, as the third tells. Where these are all, the cell stays open for
        one more.

        Args:
            after: place (D), stamp and value (C) of the sample that comes next in its pass; None:
                none does.
        """
        cell = self.open
        if cell is None:
            return None
        usual = self._usual(cell)
        if not cell["asked"]:  # else it has been noted
            self._note(cell, usual)
        around, count = self._surroundings(cell, after), len(cell["t"])
        if (
            around is not None
            and after is not None
            and not cell["asked"]
            and after[1] - cell["t"][-1] <= self.duration
        ):
            count = around.decided()
        if count == len(cell["t"]):
            return self._close(after, usual, around)
        if count == 0 or cell["stride"] > 1:
            cell["asked"] = True
            return None

        return self._close_first(cell, count, around)

    def _close_first(self, cell: dict, count: int, around: Surroundings) -> Samples | None:
        """Close the open cell after `count` of its samples; the next one begins with the others."""
        later = RawRows(*(cell[name][count:] for name in _COLUMNS))
        for name in _COLUMNS:
            del cell[name][count:]
        cell["count"] = count
        around.keep(count)
        closed = self._close((later.x[0], later.stamp[0], later.y[0]), self._usual(cell), around)
        reach = max(math.dist(x, later.x[0]) for x in later.x)
        self.add_rows(later, 0, len(later.x), reach)
        return closed

    def begin_pass(self) -> None:
        """Begin a new pass with the next sample: how the robot came there is not known."""
        self._before, self._tail = None, []

    def state_dict(self) -> dict:
        """Return the open cell, row by row, and what was learned of the white noise."""
        opened = None
        if self.open is not None:
            rows = [
                dict(zip(_COLUMNS, row)) for row in zip(*(self.open[name] for name in _COLUMNS))
            ]
            opened = {
                "rows": rows,
                **{name: self.open[name] for name in ("count", "stride", "reach", "asked")},
            }

        return {
            "open": opened,
            "length": self.length,
            "white": self.white.state_dict(),
            "spread": self.steps.state_dict(),
            "gross": self.gross,
            "bursts": self.bursts.state_dict(),
            **self._recent.state_dict(),
            **self._rounding.state_dict(),
            "tail": [[list(values), stamp] for values, stamp in self._tail],
            "before": None if self._before is None else [list(self._before[0]), self._before[1]],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken; older maps begin without what they lack."""
        opened = state["open"]
        if opened is None:
            self.open = None
        else:
            self.open = {name: [row[name] for row in opened["rows"]] for name in _COLUMNS}
            self.open |= {name: opened[name] for name in ("count", "stride", "reach")}
            self.open["asked"] = opened.get("asked", False)  # absent in older maps

        self.length = float(state.get("length", self.longest))  # absent where it never changed

        # in an older map both are its successive differences
        older = {"sum": state.get("white_sum"), "count": state.get("white_count")}
        older |= {"begun": state.get("begun"), "newest": []}
        self.white.load_state_dict(state.get("white", older))
        self.steps.load_state_dict(state.get("spread", older))
        self.gross = int(state["gross"])
        if "bursts" in state:  # absent in maps of a version that left them out
            self.bursts.load_state_dict(state["bursts"])
        self._tail = [(list(map(float, y)), float(t)) for y, t in state.get("tail", [])]
        self._recent.load_state_dict(state)
        self._rounding.load_state_dict(state)
        before = state.get("before")
        self._before = None if before is None else ([float(a) for a in before[0]], float(before[1]))


def _is_as_precise(variance: np.ndarray | None) -> np.ndarray | bool:
    """Which rows state a variance that is not far beyond the median of all stated ones: (n,).

    The mean of a cell is as uncertain as the mean of its variances: one row that knows nothing
    would spoil all. A variance of 0 is unknown, and passes.
    """
    if variance is None or not (variance > 0.0).any():
        return True
    stated = np.sort(variance[variance > 0.0])
    return variance <= WILD * stated[(len(stated) - 1) // 2]


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean of the rows of (n, …): (1, …)."""
    return np.add.reduce(values, 0, keepdims=True) / len(values)

"""Averaging of raw samples along a pass into cells.

Fifty samples a second from a slow robot are not fifty independent facts: what differs between two
passes of one place is not white. So the samples of a pass are averaged into cells, and a cell's
noise is s_p² + white/n.
"""

from __future__ import annotations

import math
from statistics import median_low
from typing import NamedTuple

import numpy as np
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.labels import by_side

__all__ = ["CellAverager", "RawRows", "level_of"]

_CELL_ROWS = 512  # raw samples kept of one cell; beyond it every second one goes
_RECENT = 0.99  # weight that a cell keeps with each later one, where white variances are averaged over cells
_FEW = 5  # samples of a cell below which none of them is judged by the others
_WILD = 25.0  # squared differences, of the typical one, beyond which it is an error (five standard deviations)
_FIRST_TOLD = 9  # cells whose median says what variance a driver states
_MEDIAN_OF_SQUARE = 0.4549  # of a standard normal
_GROSS = 6.0  # robust standard deviations from its neighbours' median beyond which a sample is a gross error
_STEP = 0.25  # of the sensor's resolution, which is no error: with _GROSS one and a half steps
_COLUMNS = ("x", "y", "t", "sensor", "heading", "position")


class RawRows(NamedTuple):
    """Raw samples as columns of plain numbers; None where a sample does not have it.

    x: positions (D), m.  y: values (C), SI.  stamp: s.  sensor: known variance of y.  heading: (2,).
    position: variance of x, m².
    """

    x: list[list[float]]
    y: list[list[float]]
    stamp: list[float]
    sensor: list[float | None]
    heading: list[list[float] | None]
    position: list[float | None]


def level_of(counts):
    """2 √(y + 3/8): of counts y ~ Poisson(μ) its standard deviation is 1 whatever μ is.

    Args:
        counts: a number or an array of any shape, counts of one measurement.

    Reference:
        Anscombe 1948, The transformation of Poisson, binomial and negative-binomial data.
    """
    return 2.0 * np.sqrt(np.asarray(counts) + 0.375)


class CellAverager:
    """Averages raw samples of a pass into cells of at most `length` metres across and `duration` seconds.

    A robot that stands still (moves less than a tenth of `length`) fills one cell for up to ten durations: its samples
    are not new evidence of the place. The white variance of one raw sample is what the sensor states, else half the
    mean square of successive differences inside cells, remembered over about 1000 of them. With `robust`, samples far
    from their cell's median are left out and counted in `gross`; of counts, by their levels (level_of), whose spread is
    known. counts: whether the values are such. threshold: what counts of a sample is on which side
    of it it lies; a cell then has a row for either side (labels.py).

    A cell's velocity is that from its first to its last sample, which pose noise hardly touches. A slow sensor's cell
    has but one: then it is the slower of the ways from the sample before it and to the one after it, in its pass, since
    a glitch of the pose makes the other one fast.
    """

    def __init__(
        self,
        length: float,
        duration: float,
        robust: bool = True,
        counts: bool = False,
        threshold: float | None = None,
    ):
        self.length, self.duration, self.robust, self.counts = length, duration, robust, counts
        self.threshold = threshold
        self.open: dict | None = None
        self._before: tuple[list[float], float] | None = (
            None  # place and stamp of the sample before the open cell
        )
        self.white_sum, self.white_count, self.gross = 0.0, 0.0, 0
        self.closed, self.single_sum, self.averaged_sum = (
            0.0,
            0.0,
            0.0,
        )  # cells, Σ white, Σ white/n: of recent cells
        self.resolution = (
            math.inf
        )  # smallest step between samples of a cell; of a sensor that does not round nearly 0
        self._told: list[
            tuple[float, float]
        ] = []  # white and white/n of the first cells that state it
        self._early: list[float] = []  # the first squared differences of cells with few samples
        self._begun: (
            list[list[float]] | None
        ) = []  # squared differences of the first cells; None: there are more
        self._whites: (
            list[tuple[float, int]] | None
        ) = []  # white variances and counts of the first cells, the same

    @property
    def single_variance(self) -> float:
        """White variance of one raw sample in the recent cells, squared SI: as stated, else as measured."""
        return self.single_sum / self.closed if self.closed else 0.0

    @property
    def averaged_variance(self) -> float:
        """What is left of it in a cell, on average: white/n, squared SI."""
        return self.averaged_sum / self.closed if self.closed else 0.0

    @property
    def white_variance(self) -> float:
        """Variance of one raw sample about the field, white part, squared SI; 0 while too little is known."""
        return 0.5 * self.white_sum / self.white_count if self.white_count >= 10 else 0.0

    def add(
        self,
        x: list[float],
        y: list[float],
        stamp: float,
        sensor: float | None = None,
        heading: list[float] | None = None,
        position: float | None = None,
    ) -> Samples | None:
        """One raw sample: position (D), values (C), seconds, known variance, heading (2), position variance (m²).

        Returns the cell that it closes, or None.
        """
        rows = RawRows([x], [y], [stamp], [sensor], [heading], [position])
        over, reach = self.until(rows, 0, 1)
        closed = None if over else self.flush((x, stamp))
        self.take(rows, 0, 1, reach if over else 0.0)
        return closed

    def until(self, rows: RawRows, start: int, stop: int) -> tuple[int, float]:
        """The first of the rows start … stop − 1 that begins a new cell, else stop; how far those before it reach, m."""
        cell, begin = self.open, start
        if cell is None:
            first, began, reach = rows.x[start], rows.stamp[start], 0.0
            begin += 1
        else:
            first, began, reach = cell["x"][0], cell["t"][0], cell["reach"]
        # the millionth keeps rounding, which depends on where the map's origin lies, from deciding
        longest, oldest = self.length * (1 + 1e-6), self.duration * (1 + 1e-6)
        near, patience = 0.1 * self.length, self.duration * 10.0 * (1 + 1e-6)

        dist, x, stamp = math.dist, rows.x, rows.stamp
        for i in range(begin, stop):
            moved, age = dist(x[i], first), stamp[i] - began
            if (
                moved > longest
                or age < 0
                or (age > oldest and (age > patience or max(moved, reach) >= near))
            ):
                return i, reach
            if moved > reach:
                reach = moved
        return stop, reach

    def take(self, rows: RawRows, start: int, stop: int, reach: float) -> None:
        """The rows start … stop − 1, which `until` has found to fit, into the open cell, or a new one."""
        if start == stop:
            return
        cell = self.open
        if cell is None:
            cell = self.open = {name: [] for name in _COLUMNS} | {
                "count": 0,
                "stride": 1,
                "reach": 0.0,
            }
        cell["reach"] = reach

        few = cell["stride"] == 1 and len(cell["t"]) + stop - start <= _CELL_ROWS
        for part in [slice(start, stop)] if few else [slice(i, i + 1) for i in range(start, stop)]:
            cell["count"] += part.stop - part.start
            if cell["count"] % cell["stride"] == 0:
                for name, column in zip(_COLUMNS, rows):
                    cell[name] += column[part]
                if len(cell["t"]) > _CELL_ROWS:
                    for name in _COLUMNS:
                        cell[name] = cell[name][::2]
                    cell["stride"] *= 2

    def _close(self, after: tuple[list[float], float] | None) -> Samples:
        cell, self.open = self.open, None
        before, self._before = self._before, (cell["x"][-1], cell["t"][-1])
        x, y, stamps, *rest = (
            np.array(cell[name]) if None not in cell[name] else None for name in _COLUMNS
        )
        rows, first, last = len(y), x[0], x[-1]
        began, elapsed = cell["t"][0], cell["t"][-1] - cell["t"][0]
        self._note_resolution(y)
        good = self._good(y) if self.robust and rows >= _FEW else np.ones(rows, bool)
        if self.robust and (sure := good & _as_sure(rest[0]) & _as_sure(rest[2])).any():
            good = sure
        if not good.all():
            x, y, stamps = x[good], y[good], stamps[good]
            rest = [None if column is None else column[good] for column in rest]
        kept = len(y)
        self.gross += (rows - kept) * cell["stride"]
        n = max(1, round(cell["count"] * kept / rows))
        step = y[1:] - y[:-1]
        self._learn_white(
            (np.add.reduce(step * step, 1) / y.shape[1]).tolist(), kept < _FEW and self.robust
        )

        stated, heading, position = rest
        sensor = self.white_variance if stated is None else float(_mean(stated)[0])
        if sensor > 0.0:  # else too little is known of it
            self._remember(sensor, n, stated is not None and self.robust)
        velocity = (
            (last - first) / elapsed
            if elapsed > 0
            else _slower(before, (last, cell["t"][-1]), after)
        )
        columns = {
            "x": first + _mean(x - first),  # coordinates may be 1e6 m
            "y": _mean(y),
            "velocity": velocity[None],
            "stamp": began + _mean(stamps - began),
            "count": np.array([float(n)]),
            "sensor_variance": np.array([sensor]),
            "heading": None if heading is None else _mean(heading),
            "position_variance": None if position is None else _mean(position),
        }
        averaged = Samples(
            **{name: None if c is None else torch.from_numpy(c) for name, c in columns.items()}
        )
        return averaged if self.threshold is None else by_side(averaged, y, self.threshold)

    def _remember(self, white: float, n: int, stated: bool) -> None:
        """White variance of a sample of a cell, and how many it averages, into what recent cells had on average.

        Of what a driver states the median of the first cells counts, and later no cell for more than _WILD times what
        was usual: one message with an absurd covariance must not be the sensor's noise. What is measured of the first
        cells counts for no more than _WILD times what the newest of them say.
        """
        if stated and len(self._told) < _FIRST_TOLD:
            self._told.append((white, white / n))
            self.closed = float(len(self._told))
            self.single_sum, self.averaged_sum = (
                self.closed * median_low(column) for column in zip(*self._told)
            )
            return
        if stated:
            white = min(white, _WILD * self.single_variance)
        elif self._whites is not None and self.robust:
            self._whites.append((white, n))
            first, self.closed, self.single_sum, self.averaged_sum = self._whites, 0.0, 0.0, 0.0
            for told, count in first:
                self._average(min(told, _WILD * white), count)
            if len(first) >= _FIRST_TOLD:
                self._whites = None
            return
        self._average(white, n)

    def _average(self, white: float, n: int) -> None:
        self.closed = _RECENT * self.closed + 1.0
        self.single_sum = _RECENT * self.single_sum + white
        self.averaged_sum = _RECENT * self.averaged_sum + white / n

    def _learn_white(self, steps: list[float], few: bool) -> None:
        """Squared differences of successive samples. few: nothing in their cell could tell a wild one from the others.

        Then what is beyond _WILD times the typical one counts as that, or as a fifth of all so far: one spike must not
        be the sensor's noise, and what is usual after a quiet start must become it. A whole cell of wild ones counts
        on average for no more than _WILD times what is usual, and not at all among the first, by the quieter of which
        it is told.
        """
        if few and self.white_count < 10:
            self._early += steps
            if len(self._early) < 10:
                return
            middle = sorted(self._early)[len(self._early) // 2] / _MEDIAN_OF_SQUARE
            steps, self._early = (
                [min(step, _WILD * middle) if middle > 0 else step for step in self._early],
                [],
            )
        elif few and self.white_sum > 0:
            most = max(_WILD, 0.2 * self.white_count) * self.white_sum / self.white_count
            steps = [min(step, most) for step in steps]
        if not steps:
            return
        if self._begun is None or not self.robust:
            usual = (
                self.white_sum / self.white_count if self.white_count >= 10 and self.robust else 0.0
            )
            self._add_white(_at_most(steps, _WILD * usual))
            return

        self._begun.append(steps)
        self.white_sum = self.white_count = 0.0
        quiet = sorted(sum(each) / len(each) for each in self._begun)[len(self._begun) // 4]
        for each in self._begun:
            if sum(each) <= _WILD * quiet * len(each) or not quiet:
                self._add_white(each)
        if len(self._begun) >= _FIRST_TOLD:
            self._begun = None

    def forget_white(self) -> bool:
        """What was measured of white noise is void; False where a sensor states it, and it is not."""
        if self._told:
            return False
        self.white_sum = self.white_count = self.closed = self.single_sum = self.averaged_sum = 0.0
        self._early, self._begun, self._whites = [], [], []
        return True

    def _add_white(self, steps: list[float]) -> None:
        total, count = self.white_sum, self.white_count
        for step in steps:
            total, count = 0.999 * total + step, 0.999 * count + 1.0
        self.white_sum, self.white_count = total, count

    def _note_resolution(self, y: np.ndarray) -> None:
        """A sensor of whole degrees tells one number nearly always, and the next one is no error."""
        steps = np.abs(y[1:] - y[:-1])
        real = steps[steps > 1e-12 * np.abs(y).max()]  # else rounding
        if len(real):
            self.resolution = min(self.resolution, float(real.min()))

    def _good(self, y: np.ndarray) -> np.ndarray:
        """Which of _FEW samples and more are within _GROSS robust standard deviations of two medians. (n,)

        Of the cell, whose spread holds the field's own change along it: several large errors together are seen.  And of
        five neighbours, with the sensor's white spread: an error smaller than the field's change is seen, too.
        """
        white = 1.0 if self.counts else self.white_variance
        y = level_of(y) if self.counts else y
        step = 0.0 if self.counts or self.resolution == math.inf else _STEP * self.resolution
        least = max(white**0.5, step, 1e-12 * float(np.abs(y).max()))
        away = np.abs(y - _median(y))
        good = away <= _GROSS * np.maximum(1.4826 * _median(away), least)
        if white > 0:
            n = len(y)
            padded = np.concatenate([y[2:0:-1], y, y[-2:-4:-1]])
            neighbours = np.empty((5, *y.shape))
            for k in range(5):
                neighbours[k] = padded[k : n + k]
            neighbours.sort(0)
            good &= np.abs(y - neighbours[2]) <= _GROSS * least
        return good.all(1)

    def flush(self, after: tuple[list[float], float] | None = None) -> Samples | None:
        """Close the open cell. after: place (D) and stamp of the sample that comes next in its pass; None: none does."""
        return None if self.open is None else self._close(after)

    def lift(self) -> None:
        """The next sample begins a new pass: how the robot came there is not known."""
        self._before = None

    def state_dict(self) -> dict:
        opened = None
        if self.open is not None:
            rows = [
                dict(zip(_COLUMNS, row)) for row in zip(*(self.open[name] for name in _COLUMNS))
            ]
            opened = {
                "rows": rows,
                **{name: self.open[name] for name in ("count", "stride", "reach")},
            }
        return {
            "open": opened,
            "white_sum": self.white_sum,
            "white_count": self.white_count,
            "gross": self.gross,
            "closed": self.closed,
            "single_sum": self.single_sum,
            "averaged_sum": self.averaged_sum,
            "resolution": self.resolution,
            "begun": self._begun and [list(each) for each in self._begun],
            "whites": self._whites and [list(pair) for pair in self._whites],
            "early": list(self._early),
            "told": [list(pair) for pair in self._told],
            "before": None if self._before is None else [list(self._before[0]), self._before[1]],
        }

    def load_state_dict(self, state: dict) -> None:
        opened = state["open"]
        if opened is None:
            self.open = None
        else:
            self.open = {name: [row[name] for row in opened["rows"]] for name in _COLUMNS}
            self.open |= {name: opened[name] for name in ("count", "stride", "reach")}
        self.white_sum, self.white_count = float(state["white_sum"]), float(state["white_count"])
        self.gross, self._early = int(state["gross"]), list(state.get("early", []))
        self._told = [(float(a), float(b)) for a, b in state.get("told", [])]
        self.resolution = float(state.get("resolution", math.inf))
        begun, whites = (
            state.get("begun"),
            state.get("whites"),
        )  # maps saved before: the first cells are over
        self._begun = None if begun is None else [list(map(float, each)) for each in begun]
        self._whites = None if whites is None else [(float(a), int(b)) for a, b in whites]
        before = state.get("before")
        self._before = None if before is None else ([float(a) for a in before[0]], float(before[1]))
        self.closed, self.single_sum, self.averaged_sum = (
            float(state.get(name, 0.0)) for name in ("closed", "single_sum", "averaged_sum")
        )


def _slower(before, here, after) -> np.ndarray:
    """Of the velocities before → here → after, each a place (D) and a stamp, or None, the slower one; 0: neither. (D,)"""
    ways = [
        (np.subtract(b[0], a[0]), b[1] - a[1])
        for a, b in ((before, here), (here, after))
        if a and b
    ]
    found = [way / seconds for way, seconds in ways if seconds > 0]
    return min(
        found, key=lambda velocity: float(velocity @ velocity), default=np.zeros_like(here[0])
    )


def _at_most(steps: list[float], most: float) -> list[float]:
    """Squared differences of a cell, the same for each where their mean is beyond `most`; 0: it may be anything."""
    return [most] * len(steps) if 0.0 < most * len(steps) < sum(steps) else steps


def _as_sure(variance: np.ndarray | None) -> np.ndarray | bool:
    """Which rows (n,) state a variance (n,) that is not far beyond the median of those that state one; 0: unknown.

    The mean of a cell is as unsure as the mean of its variances: one row that knows nothing would take all along.
    """
    if variance is None or not (variance > 0.0).any():
        return True
    stated = np.sort(variance[variance > 0.0])
    return variance <= _WILD * stated[(len(stated) - 1) // 2]


def _median(values: np.ndarray) -> np.ndarray:
    """Of each column of (n, C), (C,): the lower of two middle ones."""
    return np.sort(values, axis=0)[(len(values) - 1) // 2]


def _mean(values: np.ndarray) -> np.ndarray:
    """Of the rows of (n, …): (1, …)."""
    return np.add.reduce(values, 0, keepdims=True) / len(values)

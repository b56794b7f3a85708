"""Averaging of raw samples along a pass into cells.

Fifty samples a second from a slow robot are not fifty independent facts: what differs between two
passes of one place is not white. So the samples of a pass are averaged into cells, and a cell's
noise is s_p² + white/n.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.types import Samples

__all__ = ["CellAverager"]

_CELL_ROWS = 512  # raw samples kept of one cell; beyond it every second one goes
_RECENT = 0.99  # weight that a cell keeps with each later one, where white variances are averaged over cells
_FEW = 5  # samples of a cell below which none of them is judged by the others
_WILD = 25.0  # squared differences, of the typical one, beyond which it is an error (five standard deviations)
_MEDIAN_OF_SQUARE = 0.4549  # of a standard normal
_GROSS = 6.0  # robust standard deviations from its neighbours' median beyond which a sample is a gross error


class CellAverager:
    """Averages raw samples of a pass into cells of at most `length` metres across and `duration` seconds.

    A robot that stands still (moves less than a tenth of `length`) fills one cell for up to ten durations: its samples
    are not new evidence of the place. The white variance of one raw sample is what the sensor states, else half the
    mean square of successive differences inside cells, remembered over about 1000 of them. With `robust`, samples far
    from their cell's median are left out and counted in `gross`.
    """

    def __init__(self, length: float, duration: float, robust: bool = True):
        self.length, self.duration, self.robust = length, duration, robust
        self.open: dict | None = None
        self.white_sum, self.white_count, self.gross = 0.0, 0.0, 0
        self.closed, self.single_sum, self.averaged_sum = 0.0, 0.0, 0.0  # cells, Σ white, Σ white/n: of recent cells
        self._early: list[float] = []  # the first squared differences of cells with few samples

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

    def add(self, x: list[float], y: list[float], stamp: float, sensor: float | None = None,
            heading: list[float] | None = None, position: float | None = None) -> Samples | None:
        """One raw sample: position (D), values (C), seconds, known variance, heading (2), position variance (m²).

        Returns the cell that it closes, or None.
        """
        cell, closed = self.open, None
        row = {"x": list(x), "y": list(y), "t": stamp, "sensor": sensor, "heading": heading, "position": position}
        if cell is not None:
            moved, age = math.dist(x, cell["rows"][0]["x"]), stamp - cell["rows"][0]["t"]
            standing = max(moved, cell["reach"]) < 0.1 * self.length
            # the millionth keeps rounding, which depends on where the map's origin lies, from deciding
            over = moved > self.length * (1 + 1e-6) or age > self.duration * (10.0 if standing else 1.0) * (1 + 1e-6)
            if over or age < 0:
                closed, cell = self._close(), None
        if cell is None:
            self.open = {"rows": [row], "count": 1, "stride": 1, "reach": 0.0}
            return closed
        cell["reach"], cell["count"] = max(moved, cell["reach"]), cell["count"] + 1
        if cell["count"] % cell["stride"] == 0:
            cell["rows"].append(row)
            if len(cell["rows"]) > _CELL_ROWS:
                cell["rows"], cell["stride"] = cell["rows"][::2], 2 * cell["stride"]
        return closed

    def _close(self) -> Samples:
        cell, self.open = self.open, None
        rows = cell["rows"]
        y = torch.tensor([r["y"] for r in rows], dtype=torch.float64)
        good = self._good(y) if self.robust else torch.ones(len(y), dtype=torch.bool)
        self.gross += int((~good).sum()) * cell["stride"]
        kept = [r for r, g in zip(rows, good.tolist()) if g]
        y, n = y[good], max(1, round(cell["count"] * len(kept) / len(rows)))
        self._learn_white((y[1:] - y[:-1]).square().mean(1).tolist(), len(y) < _FEW and self.robust)
        first, elapsed = rows[0], rows[-1]["t"] - rows[0]["t"]

        def mean(name: str) -> Tensor:
            return torch.tensor([r[name] for r in kept], dtype=torch.float64).mean(0, keepdim=True)

        def known(name: str) -> bool:
            return all(r[name] is not None for r in kept)

        sensor = float(mean("sensor")) if known("sensor") else self.white_variance
        if sensor > 0.0:  # else too little is known of it
            self.closed = _RECENT * self.closed + 1.0
            self.single_sum = _RECENT * self.single_sum + sensor
            self.averaged_sum = _RECENT * self.averaged_sum + sensor / n
        # from the cell's first to its last sample: a velocity that pose noise hardly touches
        velocity = [(b - a) / elapsed if elapsed > 0 else 0.0 for a, b in zip(first["x"], rows[-1]["x"])]
        origin = torch.tensor([first["x"]], dtype=torch.float64)
        offset = torch.tensor([r["x"] for r in kept], dtype=torch.float64) - origin  # coordinates may be 1e6 m
        age = torch.tensor([r["t"] - first["t"] for r in kept], dtype=torch.float64).mean(0, keepdim=True)
        return Samples(x=origin + offset.mean(0, keepdim=True), y=y.mean(0, keepdim=True), stamp=first["t"] + age,
                       count=torch.tensor([float(n)], dtype=torch.float64),
                       sensor_variance=torch.tensor([sensor], dtype=torch.float64),
                       velocity=torch.tensor([velocity], dtype=torch.float64),
                       heading=mean("heading") if known("heading") else None,
                       position_variance=mean("position") if known("position") else None)

    def _learn_white(self, steps: list[float], few: bool) -> None:
        """Squared differences of successive samples. few: nothing in their cell could tell a wild one from the others.

        Then what is beyond _WILD times the typical one counts as that, or as a fifth of all so far: one spike must not
        be the sensor's noise, and what is usual after a quiet start must become it.
        """
        if few and self.white_count < 10:
            self._early += steps
            if len(self._early) < 10:
                return
            middle = sorted(self._early)[len(self._early) // 2] / _MEDIAN_OF_SQUARE
            steps, self._early = [min(step, _WILD * middle) if middle > 0 else step for step in self._early], []
        elif few and self.white_sum > 0:
            most = max(_WILD, 0.2 * self.white_count) * self.white_sum / self.white_count
            steps = [min(step, most) for step in steps]
        for step in steps:
            self.white_sum, self.white_count = 0.999 * self.white_sum + step, 0.999 * self.white_count + 1.0

    def _good(self, y: Tensor) -> Tensor:
        """Which samples are within _GROSS robust standard deviations of two medians, in every channel. (n,)

        Of the cell, whose spread holds the field's own change along it: several large errors together are seen.  And of
        five neighbours, with the sensor's white spread: an error smaller than the field's change is seen, too.
        """
        if len(y) < _FEW:
            return torch.ones(len(y), dtype=torch.bool)
        least = max(self.white_variance**0.5, 1e-12 * float(y.abs().max()))
        away = (y - y.median(0).values).abs()
        good = away <= _GROSS * (1.4826 * away.median(0).values).clamp_min(least)
        if self.white_variance > 0:
            padded = torch.cat([y[1:3].flip(0), y, y[-3:-1].flip(0)])
            good &= (y - padded.unfold(0, 5, 1).median(2).values).abs() <= _GROSS * least
        return good.all(1)

    def flush(self) -> Samples | None:
        """Close the open cell: the end of a pass."""
        return None if self.open is None else self._close()

    def state_dict(self) -> dict:
        opened = None if self.open is None else self.open | {"rows": [dict(r) for r in self.open["rows"]]}
        return {"open": opened, "white_sum": self.white_sum, "white_count": self.white_count, "gross": self.gross,
                "closed": self.closed, "single_sum": self.single_sum, "averaged_sum": self.averaged_sum,
                "early": list(self._early)}

    def load_state_dict(self, state: dict) -> None:
        opened = state["open"]
        self.open = None if opened is None else dict(opened) | {"rows": [dict(r) for r in opened["rows"]]}
        self.white_sum, self.white_count = float(state["white_sum"]), float(state["white_count"])
        self.gross, self._early = int(state["gross"]), list(state.get("early", []))
        self.closed, self.single_sum, self.averaged_sum = (float(state.get(name, 0.0)) for name in
                                                           ("closed", "single_sum", "averaged_sum"))

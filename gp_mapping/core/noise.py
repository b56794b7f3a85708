"""Honest noise: cells along each pass, and predictive noise from one-step-ahead errors.

Fifty samples a second from a slow robot are not fifty independent facts: what differs between two passes of one place
is not white. So samples of a pass are averaged into cells, a cell's noise is s_p² + white/n, and the noise reported
with a prediction is the one that made earlier predictions right.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.types import Samples

__all__ = ["CellAverager", "PredictiveNoise"]

_CELL_ROWS = 512  # raw samples kept of one cell; beyond it every second one goes
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
        for step in (y[1:] - y[:-1]).square().mean(1).tolist():
            self.white_sum, self.white_count = 0.999 * self.white_sum + step, 0.999 * self.white_count + 1.0
        first, elapsed = rows[0], rows[-1]["t"] - rows[0]["t"]

        def mean(name: str) -> Tensor:
            return torch.tensor([r[name] for r in kept], dtype=torch.float64).mean(0, keepdim=True)

        def known(name: str) -> bool:
            return all(r[name] is not None for r in kept)

        sensor = float(mean("sensor")) if known("sensor") else self.white_variance
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

    def _good(self, y: Tensor) -> Tensor:
        """Which samples are within _GROSS robust standard deviations of two medians, in every channel. (n,)

        Of the cell, whose spread holds the field's own change along it: several large errors together are seen.  And of
        five neighbours, with the sensor's white spread: an error smaller than the field's change is seen, too.
        """
        if len(y) < 5:
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
        return {"open": opened, "white_sum": self.white_sum, "white_count": self.white_count, "gross": self.gross}

    def load_state_dict(self, state: dict) -> None:
        opened = state["open"]
        self.open = None if opened is None else dict(opened) | {"rows": [dict(r) for r in opened["rows"]]}
        self.white_sum, self.white_count = float(state["white_sum"]), float(state["white_count"])
        self.gross = int(state["gross"])


class PredictiveNoise:
    """σ² = argmin Σ [log(v + σ²) + r²/(v + σ²)] over a bounded window of scores (r, v): residual and latent variance.

    The sum runs over the scores whose latent variance is below four priors: elsewhere, as where a robot explores lane
    beside lane, a bad guess would pass for noise. Nor does it run over scores beyond five standard deviations, of a
    noise that the median says: gross errors, each cut at five of the σ in use, would make that σ grow without end.
    `prior` (variance) counts as `prior_count` scores with v = 0 and r² = prior: the first scores cannot mislead.
    """

    def __init__(self, window: int, prior_count: float = 20.0):
        self.window, self.prior_count = window, prior_count
        self.residual_square = self.latent = torch.empty((0, 1), dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.latent)

    def add(self, residual: Tensor, latent: Tensor) -> None:
        """residual: (N, C); latent: (N, C) variance; the oldest scores leave beyond the window."""
        for name, new in (("residual_square", residual.square().cpu()), ("latent", latent.cpu())):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old if len(old) else old.new_empty((0, new.shape[1])), new])[-self.window:])

    def variances(self, prior: list[float]) -> list[float]:
        """σ² of each component, (C,); prior: (C,), or (1,) for all of them."""
        count = self.latent.shape[1]
        each = prior * count if len(prior) == 1 else prior
        return [self._variance(self.residual_square[:, c], self.latent[:, c], each[c]) for c in range(count)]

    def variance(self, prior: float) -> float:
        """σ² of all components together: that of their mean score."""
        return self._variance(self.residual_square.mean(1), self.latent.mean(1), prior)

    def _variance(self, square: Tensor, latent: Tensor, prior: float) -> float:
        """The best of a grid in log σ² over [1e-4, 1e4] prior, then golden section beside it. square, latent: (N,)"""
        if not len(latent):
            return prior
        known = latent <= 4.0 * prior
        if int(known.sum()) > self.prior_count:
            typical = square[known].median() / _MEDIAN_OF_SQUARE
            known &= square <= 25.0 * (latent + typical)
        r2, v, n0 = square[known] / prior, latent[known] / prior, self.prior_count

        def cost(logs: Tensor) -> Tensor:
            sigma = logs.exp()[:, None]
            total = v + sigma
            return (total.log() + r2 / total).sum(1) + n0 * (logs + 1.0 / sigma[:, 0])

        grid = torch.linspace(math.log(1e-4), math.log(1e4), 38, dtype=torch.float64)
        best = int(cost(grid).argmin())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
        ratio = (math.sqrt(5.0) - 1.0) / 2.0
        while high - low > 1e-4:
            inner = torch.tensor([high - ratio * (high - low), low + ratio * (high - low)], dtype=torch.float64)
            left, right = cost(inner).tolist()
            low, high = (low, float(inner[1])) if left < right else (float(inner[0]), high)
        return prior * math.exp(0.5 * (low + high))

    def state_dict(self) -> dict:
        return {"residual_square": self.residual_square.clone(), "latent": self.latent.clone()}

    def load_state_dict(self, state: dict) -> None:
        self.residual_square, self.latent = state["residual_square"].clone(), state["latent"].clone()

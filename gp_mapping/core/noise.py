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

class CellAverager:
    """Averages raw samples of a pass into cells of at most `length` metres across and `duration` seconds.

    A robot that stands still (moves less than a tenth of `length`) fills one cell for up to ten durations: its samples
    are not new evidence of the place. The white variance of one raw sample is what the sensor states, else half the
    mean square of successive differences inside cells, remembered over about 1000 of them.
    """

    def __init__(self, length: float, duration: float):
        self.length, self.duration = length, duration
        self.open: dict | None = None
        self.white_sum, self.white_count = 0.0, 0.0

    @property
    def white_variance(self) -> float:
        """Variance of one raw sample about the field, white part, squared SI; 0 while too little is known."""
        return 0.5 * self.white_sum / self.white_count if self.white_count >= 10 else 0.0

    def add(self, x: list[float], y: list[float], stamp: float, sensor: float | None) -> Samples | None:
        """One raw sample: position (D), values (C), seconds, known variance; the cell that it closes, or None."""
        cell, closed = self.open, None
        if cell is not None:
            moved, age = math.dist(x, cell["first"]), stamp - cell["start"]
            standing = max(moved, cell["reach"]) < 0.1 * self.length
            if moved > self.length or age > self.duration * (10.0 if standing else 1.0) or age < 0:
                closed, cell = self._close(), None
        if cell is None:
            self.open = {"x": list(x), "y": list(y), "t": 0.0, "n": 1, "reach": 0.0, "start": stamp, "first": list(x),
                         "last_y": list(y), "sensor": sensor, "last": list(x), "end": stamp}
            return closed
        cell["x"] = [a + b for a, b in zip(cell["x"], x)]
        cell["y"] = [a + b for a, b in zip(cell["y"], y)]
        difference = sum((a - b) ** 2 for a, b in zip(y, cell["last_y"])) / len(y)
        self.white_sum, self.white_count = 0.999 * self.white_sum + difference, 0.999 * self.white_count + 1.0
        # time is summed from the cell's start: an epoch stamp times n would lose its nanoseconds
        cell.update(t=cell["t"] + age, n=cell["n"] + 1, reach=max(moved, cell["reach"]), last_y=list(y),
                    last=list(x), end=stamp)
        return closed

    def _close(self) -> Samples:
        cell, self.open = self.open, None
        n = cell["n"]
        sensor = self.white_variance if cell["sensor"] is None else cell["sensor"]

        def one(value):
            return torch.tensor([value], dtype=torch.float64)

        elapsed = cell["end"] - cell["start"]
        # from the cell's first to its last sample: a velocity that pose noise hardly touches
        velocity = [(b - a) / elapsed if elapsed > 0 else 0.0 for a, b in zip(cell["first"], cell["last"])]
        return Samples(x=one([v / n for v in cell["x"]]), y=one([v / n for v in cell["y"]]),
                       stamp=one(cell["start"] + cell["t"] / n), count=one(float(n)), sensor_variance=one(sensor),
                       velocity=one(velocity))

    def flush(self) -> Samples | None:
        """Close the open cell: the end of a pass."""
        return None if self.open is None else self._close()

    def state_dict(self) -> dict:
        return {"open": None if self.open is None else dict(self.open), "white_sum": self.white_sum,
                "white_count": self.white_count}

    def load_state_dict(self, state: dict) -> None:
        self.open = None if state["open"] is None else dict(state["open"])
        self.white_sum, self.white_count = float(state["white_sum"]), float(state["white_count"])


class PredictiveNoise:
    """σ² = argmin Σ [log(v + σ²) + r²/(v + σ²)] over a bounded window of scores (r, v): residual and latent variance.

    `prior` (variance) counts as `prior_count` scores with v = 0 and r² = prior: the first scores cannot mislead.
    """

    def __init__(self, window: int, prior_count: float = 20.0):
        self.window, self.prior_count = window, prior_count
        self.residual_square = torch.empty(0, dtype=torch.float64)
        self.latent = torch.empty(0, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.latent)

    def add(self, residual: Tensor, latent: Tensor) -> None:
        """residual: (N, C); latent: (N, C) variance; the oldest scores leave beyond the window."""
        self.residual_square = torch.cat([self.residual_square, residual.square().mean(1).cpu()])[-self.window:]
        self.latent = torch.cat([self.latent, latent.mean(1).cpu()])[-self.window:]

    def variance(self, prior: float) -> float:
        """The fitted σ²: the best of a grid in log σ² over [1e-4, 1e4] prior, then golden section beside it."""
        if not len(self):
            return prior
        r2, v, n0 = self.residual_square / prior, self.latent / prior, self.prior_count

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

"""Has the field changed? A CUSUM of one-step-ahead scores per tile of the map, and what one gross error weighs.

Of each cell, z² = r²/(v + σ²) against a posterior from an earlier pass. Where nothing changed z² is about 1; after a
change it is large over a whole stretch. The log likelihood ratio of "κ times the variance" against "as predicted",
summed per tile while it is positive, raises an alarm at THRESHOLD (Page 1954).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["Change", "ChangeDetector", "student_weight"]

_KAPPA = 9.0  # a change makes errors three times as large
_MOST = 25.0  # largest z² counted: one cell alone never raises the alarm
_THRESHOLD = 22.0  # nats; at least three cells
_TILES = 4096


def student_weight(z_square: float, gate: float = 25.0, nu: float = 4.0) -> float:
    """Weight of a sample with squared standardised residual z²: 1 up to the gate, then (ν + 1)/(ν + z²)."""
    return 1.0 if z_square <= gate else (nu + 1.0) / (nu + z_square)


@dataclass(frozen=True)
class Change:
    """Where (m) and when (s) the field was found changed, and the mean error there in SI, signed."""

    x: float
    y: float
    stamp: float
    error: float


class ChangeDetector:
    """One CUSUM per square tile of side `size` metres; at most 4096 tiles, the longest unvisited leaves first."""

    def __init__(self, size: float):
        self.size = size
        self._tiles: OrderedDict[tuple[int, int], list[float]] = OrderedDict()

    def add(self, x: list[float], residual: float, variance: float, stamp: float) -> Change | None:
        """Score a cell at x (2,), residual r (SI), predictive variance v + σ²; the change it reveals, or None."""
        z_square = min(residual * residual / variance, _MOST)
        increment = 0.5 * z_square * (1.0 - 1.0 / _KAPPA) - 0.5 * math.log(_KAPPA)
        key = (math.floor(x[0] / self.size), math.floor(x[1] / self.size))
        total, error, count = self._tiles.pop(key, [0.0, 0.0, 0.0])
        total += increment
        tile = [total, error + residual, count + 1.0] if total > 0 else [0.0, 0.0, 0.0]
        if tile[0] >= _THRESHOLD:
            return Change(x[0], x[1], stamp, tile[1] / tile[2])  # the tile starts anew
        self._tiles[key] = tile
        if len(self._tiles) > _TILES:
            self._tiles.popitem(last=False)
        return None

    def suspicion(self) -> list[tuple[float, float, float]]:
        """Tiles on the way to an alarm: centre x, y (m), share of the threshold."""
        return [((i + 0.5) * self.size, (j + 0.5) * self.size, tile[0] / _THRESHOLD)
                for (i, j), tile in self._tiles.items() if tile[0] > 0]

    def state_dict(self) -> dict:
        return {"size": self.size, "tiles": [[i, j, *tile] for (i, j), tile in self._tiles.items()]}

    def load_state_dict(self, state: dict) -> None:
        self.size = float(state["size"])
        self._tiles = OrderedDict(((int(i), int(j)), list(tile)) for i, j, *tile in state["tiles"])

"""The white variance of raw samples, on average over recent cells."""

from __future__ import annotations

from statistics import median_low

__all__ = ["WhiteAverage"]

_RECENT = 0.99  # factor of a cell's weight with each later one
_WILD = 25.0  # times what was usual, for which one cell counts at most
_FIRST_STATED = 9  # first cells whose median is taken for the variance that a driver states


class WhiteAverage:
    """Averages the white variance of one raw sample, and what averaging leaves of it in a cell.

    Of what a driver states the median of the first cells counts, and later no cell for more than
    _WILD times what was usual: one message with an absurd covariance must not be the sensor's
    noise. What is measured of the first cells counts for no more than _WILD times the newest of
    them.

    Args:
        robust: whether the first measured cells are bounded by the newest of them.
    """

    def __init__(self, robust: bool):
        self._robust = robust
        # weight of the cells, Σ of their white variances and Σ of white/n, weighted alike
        self._weight, self._single_sum, self._averaged_sum = 0.0, 0.0, 0.0
        # (white, white/n) of the first cells that state it
        self._stated: list[tuple[float, float]] = []
        # white variance and count of each of the first cells; None: they are over
        self._first: list[tuple[float, int]] | None = []

    @property
    def single(self) -> float:
        """Mean white variance of one raw sample, squared SI; 0: not known."""
        return self._single_sum / self._weight if self._weight else 0.0

    @property
    def averaged(self) -> float:
        """Mean of white/n, squared SI: what averaging leaves of it in a cell."""
        return self._averaged_sum / self._weight if self._weight else 0.0

    @property
    def is_stated(self) -> bool:
        """Whether the sensor states it."""
        return bool(self._stated)

    def add(self, white: float, n: int, stated: bool) -> None:
        """Count a cell's white variance in.

        Args:
            white: white variance of one raw sample of the cell, squared SI.
            n: how many of them the cell averages.
            stated: whether the sensor states it.
        """
        if stated and len(self._stated) < _FIRST_STATED:
            # the median of all first ones stands for each of them
            self._stated.append((white, white / n))
            self._weight = float(len(self._stated))
            self._single_sum, self._averaged_sum = (
                self._weight * median_low(column) for column in zip(*self._stated)
            )
            return

        if stated:
            white = min(white, _WILD * self.single)
        elif self._first is not None and self._robust:
            self._first.append((white, n))
            # anew from all first cells: the newest white variance bounds the earlier ones
            first_cells, self._weight, self._single_sum, self._averaged_sum = (
                self._first,
                0.0,
                0.0,
                0.0,
            )
            for variance, count in first_cells:
                self._average(min(variance, _WILD * white), count)
            if len(first_cells) >= _FIRST_STATED:
                self._first = None
            return
        self._average(white, n)

    def _average(self, white: float, n: int) -> None:
        """Add a cell's white variance to the fading averages."""
        self._weight = _RECENT * self._weight + 1.0
        self._single_sum = _RECENT * self._single_sum + white
        self._averaged_sum = _RECENT * self._averaged_sum + white / n

    def forget(self) -> None:
        """Begin anew with the next cell; what a sensor has stated stays."""
        self._first = []
        self._weight = self._single_sum = self._averaged_sum = 0.0

    def state_dict(self) -> dict:
        """Return what was learned, as a part of the state of a CellAverager."""
        return {
            "closed": self._weight,
            "single_sum": self._single_sum,
            "averaged_sum": self._averaged_sum,
            "whites": self._first and [list(pair) for pair in self._first],
            "told": [list(pair) for pair in self._stated],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken; older states lack some of it."""
        self._stated = [(float(a), float(b)) for a, b in state.get("told", [])]
        # absent in older maps, where the first cells are over
        whites = state.get("whites")
        self._first = None if whites is None else [(float(a), int(b)) for a, b in whites]
        self._weight, self._single_sum, self._averaged_sum = (
            float(state.get(name, 0.0)) for name in ("closed", "single_sum", "averaged_sum")
        )

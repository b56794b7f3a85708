"""Whether a map expects what comes: only then may cells be long.

Where the lengthscale is falsely long, as after a smooth start, structure that is as short as a cell
looks like noise to whoever has long cells only: the map would never learn it. But it is not
expected. With z_i² = r_i²/(v_i + σ²) of the newest _NEWEST cells, each from the map without it,

    Σ z_i² > _MOST × _NEWEST

says so: by one cell that is six standard deviations off, or by several of two each, and by chance
once in 10 000 cells. Then cells are short for a lengthscale of the way: long enough to learn that
it is another one, or that it was a gross error.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Unexpected"]

_NEWEST = 8  # cells
_MOST = 4.0  # mean of z²


class Unexpected:
    """Looks at squared standardised errors of the newest cells."""

    def __init__(self) -> None:
        self._squares: deque[float] = deque(maxlen=_NEWEST)
        self._until = 0.0  # length of the path up to which cells are short, m

    def note(self, square: float, length: float, lengthscale: float) -> None:
        """Take a cell.

        Args:
            square: z², by a map that has not seen it.
            length: of the path when it came, m.
            lengthscale: of the map, m.
        """
        self._squares.append(square)
        if sum(self._squares) > _MOST * _NEWEST:
            self._until = length + lengthscale

    def is_over(self, length: float) -> bool:
        """Whether cells may be long.

        Args:
            length: of the path, m.
        """
        return len(self._squares) == _NEWEST and length >= self._until

    def state_dict(self) -> dict:
        """For an exact resume."""
        return {"squares": list(self._squares), "until": self._until}

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self._squares = deque(map(float, state["squares"]), maxlen=_NEWEST)
        self._until = float(state["until"])

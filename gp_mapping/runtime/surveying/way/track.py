"""Where a robot has been since the worth of its places was computed."""

from __future__ import annotations

import numpy as np

__all__ = ["Track"]

_MOST = 2000  # positions between two computations, at most


class Track:
    """The way since the newest value that is held; a computation that is abandoned changes nothing.

    Belongs to one thread.
    """

    def __init__(self) -> None:
        # Positions since the value that is held, and since the one that is being computed was
        # begun; None: not known.
        self._since: list[np.ndarray] | None = None
        self._meanwhile: list[np.ndarray] | None = None

    def add(self, position: np.ndarray, leapt: bool) -> None:
        """Record where the robot is.

        Args:
            position: (2,) m.
            leapt: whether it was moved there rather than driven; the way since then is not known.
        """
        self._since = _longer(self._since, position, leapt)
        self._meanwhile = _longer(self._meanwhile, position, leapt)

    def begin(self) -> np.ndarray | None:
        """Return the way (K, 2) m since the value that is held; None where it is not known.

        The value that is computed from now on knows of it, once it is held.
        """
        self._meanwhile = self._since[-1:] if self._since else []
        return None if self._since is None else np.array(self._since).reshape(-1, 2)

    def hold(self) -> None:
        """Go on from where the computation began: its value is held now."""
        self._since, self._meanwhile = self._meanwhile, None


def _longer(
    way: list[np.ndarray] | None, position: np.ndarray, leapt: bool
) -> list[np.ndarray] | None:
    """Return a way with one more position; None where it is not known any more."""
    if way is None or leapt or len(way) >= _MOST:
        return None
    way.append(position)
    return way

"""Whether poses alternate between two tracks: two sources publish on one topic.

Of _WINDOW poses in a row, less what all of them move (the median velocity v of all pairs), the
largest gap along the axis of most scatter makes two tracks where

    it is wider      than the poses of both tracks are spread, and than _LEAST
    each track       has _FEWEST of them: a localiser that leaps now and then has not
    they alternate   _SWITCHES times or more, so quickly that no robot drives so: one that starts
                     and stops would need 4 d/Δt² > _HARDEST for the distance d in the time Δt

Noise of one source does so by chance in few windows, and two sources in most of them.
"""

from __future__ import annotations

from collections import deque

import numpy as np

__all__ = ["TwoTracks"]

_WINDOW, _FEWEST, _SWITCHES = 24, 2, 3  # poses
_PAUSE = 1_000_000_000  # ns from window to window: poses may come a thousand times a second
_LEAST = 0.1  # m; closer tracks are one for a map
_HARDEST = 20.0  # m/s²
_JUDGED, _ENOUGH = 40, 10  # windows that are judged together, and from how many on
_PAIRS = np.triu_indices(_WINDOW, 1)


class TwoTracks:
    """Watches the poses of one source, in order of time."""

    def __init__(self) -> None:
        self._stamps: list[int] = []  # of the window, ns
        self._places: list[tuple[float, ...]] = []
        self._begun: int | None = None  # stamp of the first pose of the newest window, ns
        # of the newest windows the distance of the two tracks, m; 0: there is one track
        self._apart: deque[float] = deque(maxlen=_JUDGED)
        self._worst: float | None = None  # distance in the first windows that are of two, m

    def add(self, stamp: int, position: tuple[float, ...]) -> None:
        """Take in a pose.

        Args:
            stamp: ns; one before the last begins anew, since time has jumped back.
            position: (x, y, z) m.
        """
        if self._stamps and stamp <= self._stamps[-1]:
            self._stamps, self._places = [], []
        if not self._stamps:
            if self._begun is not None and 0 <= stamp - self._begun < _PAUSE:
                return
            self._begun = stamp

        self._stamps.append(stamp)
        self._places.append(position)
        if len(self._stamps) == _WINDOW:
            seconds = 1e-9 * (np.array(self._stamps) - self._stamps[0])
            self._apart.append(_distance(seconds, np.array(self._places)[:, :2]))
            self._stamps, self._places = [], []
            if self._worst is None and len(self._apart) >= _ENOUGH:
                self._worst = self._usual()

    def _usual(self) -> float | None:
        """The usual distance of the tracks, m; None where most windows have one track."""
        two = [apart for apart in self._apart if apart]
        return float(np.median(two)) if 2 * len(two) > len(self._apart) else None

    def notes(self, what: str = "poses") -> list[str]:
        """What to say of the source: a sentence where two tracks alternate.

        Args:
            what: which poses they are, in words.
        """
        if self._worst is None:
            return []
        return [
            f"{what} alternate between two tracks, {self._worst:.3g} m apart: do two robots, or two localisers, "
            "publish the same? The map lies between them: remap one, or turn it off"
        ]


def _distance(seconds: np.ndarray, places: np.ndarray) -> float:
    """Distance of the two tracks of a window, m; 0 where it has one track.

    Args:
        seconds: (_WINDOW,) from its first pose on, increasing.
        places: (_WINDOW, 2) m.
    """
    first, second = _PAIRS
    velocities = (places[second] - places[first]) / (seconds[second] - seconds[first])[:, None]
    still = places - np.median(velocities, axis=0) * seconds[:, None]
    still -= still.mean(0)
    along = still @ np.linalg.eigh(still.T @ still)[1][:, 1]

    ordered = np.sort(along)
    steps = np.diff(ordered)
    split = int(steps.argmax()) + 1
    low, high = ordered[:split], ordered[split:]
    spread = (low[-1] - low[0]) + (high[-1] - high[0])
    if min(len(low), len(high)) < _FEWEST or steps[split - 1] <= max(spread, _LEAST):
        return 0.0

    apart = float(high.mean() - low.mean())
    switched = np.diff(along >= high[0])
    quick = 4.0 * apart > _HARDEST * np.diff(seconds)[switched] ** 2
    return apart if quick.sum() >= _SWITCHES else 0.0

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
            self._judge([(self._stamps, self._places)])
            self._stamps, self._places = [], []

    def add_all(self, stamps: np.ndarray, positions: np.ndarray) -> None:
        """Take in poses as `add` does each in turn.

        Args:
            stamps: (n,) ns, increasing.
            positions: (n, 3) m.
        """
        at, n, full = 0, len(stamps), []
        if n and self._stamps and stamps[0] <= self._stamps[-1]:
            self._stamps, self._places = [], []
        while at < n:
            if not self._stamps:
                if self._begun is not None and stamps[at] >= self._begun:
                    at = max(at, int(np.searchsorted(stamps, self._begun + _PAUSE)))
                if at >= n:
                    break
                self._begun = int(stamps[at])
            end = min(n, at + _WINDOW - len(self._stamps))
            self._stamps += stamps[at:end].tolist()
            self._places += positions[at:end].tolist()
            at = end
            if len(self._stamps) == _WINDOW:
                full.append((self._stamps, self._places))
                self._stamps, self._places = [], []
        self._judge(full)

    def _judge(self, windows: list[tuple[list[int], list]]) -> None:
        """Look at full windows, each of stamps (ns) and places (m), in order."""
        if not windows:
            return
        stamps, places = (np.array(column) for column in zip(*windows))
        seconds = 1e-9 * (stamps - stamps[:, :1])
        for apart in _distances(seconds, places[..., :2]):
            self._apart.append(apart)
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


def _distances(seconds: np.ndarray, places: np.ndarray) -> list[float]:
    """Distance of the two tracks of each of some windows, m; 0 where it has one track.

    Args:
        seconds: (n, _WINDOW,) from the first pose of each on, increasing.
        places: (n, _WINDOW, 2) m.
    """
    first, second = _PAIRS
    steps = places[:, second] - places[:, first]
    velocities = steps / (seconds[:, second] - seconds[:, first])[..., None]
    still = places - np.median(velocities, axis=1)[:, None] * seconds[..., None]
    still -= still.mean(1, keepdims=True)
    axes = np.linalg.eigh(np.einsum("nki,nkj->nij", still, still))[1][:, :, 1]
    along = still[..., 0] * axes[:, :1] + still[..., 1] * axes[:, 1:]

    ordered = np.sort(along, axis=1)
    gaps = np.diff(ordered, axis=1)
    split = gaps.argmax(1)
    own = np.arange(len(split))
    spread = ordered[own, split] - ordered[:, 0] + ordered[:, -1] - ordered[own, split + 1]
    wide = gaps[own, split] > np.maximum(spread, _LEAST)
    wide &= np.minimum(split + 1, _WINDOW - 1 - split) >= _FEWEST

    out = np.zeros(len(split))
    for i in np.flatnonzero(wide).tolist():
        low, high = ordered[i, : split[i] + 1], ordered[i, split[i] + 1 :]
        apart = float(high.mean() - low.mean())
        switched = np.diff(along[i] >= high[0])
        quick = 4.0 * apart > _HARDEST * np.diff(seconds[i])[switched] ** 2
        out[i] = apart if quick.sum() >= _SWITCHES else 0.0
    return out.tolist()

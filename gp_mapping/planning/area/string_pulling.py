"""String pulling: which points of a way stay as its corners when it is straightened."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

__all__ = ["pull"]

# How many points ahead of a corner are tested for a line of sight, farther and farther.
_AHEAD = np.round(1.6 ** np.arange(1, 40)).astype(int)
# Parts into which the points between the last visible and the first hidden one are divided.
_BETWEEN = 8


def pull(count: int, kept: list[int]) -> Generator[tuple[int, np.ndarray], np.ndarray, None]:
    """Select which of a way's points 0 … count − 1 to keep.

    From each corner the farthest visible point is looked for among ever more distant ones, and then
    between the last visible and the first hidden one: a few lines of sight instead of one to every
    point ahead. Where none is visible the next point is taken.

    Args:
        count: number of points.
        kept: of the points that stay; extended in place.

    Yields:
        (corner, points (n,) to look at from there); to be sent which of them are visible (n,) bool.
    """
    corner, last = 0, count - 1
    while corner < last:
        nearest_kept, first_hidden = corner + 1, last + 1

        ahead = corner + _AHEAD
        ahead = np.append(ahead[ahead < last], last)

        while len(ahead):
            visible = yield corner, ahead
            if visible.any():
                nearest_kept = max(nearest_kept, int(ahead[visible][-1]))
            if (beyond := ahead[ahead > nearest_kept]).size:
                first_hidden = int(beyond[0])

            if nearest_kept >= last or first_hidden - nearest_kept <= 1:
                break
            if first_hidden - nearest_kept <= _BETWEEN:
                ahead = np.arange(nearest_kept + 1, first_hidden)
            else:
                ahead = (
                    np.linspace(nearest_kept, first_hidden, _BETWEEN + 1)[1:-1].round().astype(int)
                )

        corner = nearest_kept
        kept.append(corner)

"""Sides of a polygon against many places, without comparing each of them with each place.

Places are halved until few are left in a block, or few sides concern it: far from a side, and above
and below it, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

__all__ = ["blocks", "crossings", "near"]

_TOGETHER = 400_000  # sides times places that are compared at once: time and memory alone
_FEW = 64  # places that are not halved again
_SIDES = 16  # so few sides are compared with all places: halving these would cost more

# sides (s,), lowest and highest place of a block (2,) m: which of these sides concern it (s,)
_Concerns = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def crossings(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """How many sides lie to the right of each place, modulo 2.

    A side counts where it crosses the horizontal line through the place; a corner counts for one of
    its two sides only.

    Args:
        a: (K, 2) m, where sides begin.
        b: (K, 2) m, where they end.
        x: (N, 2) m.

    Returns:
        (N,) bool, True for an odd number.
    """
    low, high = np.minimum(a[:, 1], b[:, 1]), np.maximum(a[:, 1], b[:, 1])

    def concerns(sides: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
        """Return which sides cross a horizontal line through the block.

        Args:
            sides: (s,) their numbers.
            lowest: (2,) m, of the block.
            highest: (2,) m, of the block.
        """
        return (high[sides] > lowest[1]) & (low[sides] <= highest[1])

    odd = np.zeros(len(x), dtype=bool)
    for at, sides in blocks(x, len(a), concerns):
        (ax, ay), (bx, by) = a[sides].T[..., None], b[sides].T[..., None]
        px, py = x[at].T
        spans = (ay > py) != (by > py)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # of level sides
            crossing = ax + (py - ay) / (by - ay) * (bx - ax)
        odd[at] = np.logical_xor.reduce(spans & (px < crossing), axis=0)
    return odd


def near(a: np.ndarray, b: np.ndarray, x: np.ndarray, within: float) -> np.ndarray:
    """Whether a side is nearer to a place than so many metres.

    Args:
        a: (K, 2) m, where sides begin.
        b: (K, 2) m, where they end.
        x: (N, 2) m.
        within: m.

    Returns:
        (N,) bool.
    """
    low, high = np.minimum(a, b) - within, np.maximum(a, b) + within

    def concerns(sides: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
        """Return which sides may be near the block.

        Args:
            sides: (s,) their numbers.
            lowest: (2,) m, of the block.
            highest: (2,) m, of the block.
        """
        return ((low[sides] <= highest) & (high[sides] >= lowest)).all(1)

    found = np.zeros(len(x), dtype=bool)
    for at, sides in blocks(x, len(a), concerns):
        (ax, ay), (sx, sy) = a[sides].T[..., None], (b - a)[sides].T[..., None]
        dx, dy = x[at, 0] - ax, x[at, 1] - ay
        # the nearest point of a side, between its ends
        fraction = np.clip((dx * sx + dy * sy) / np.maximum(sx * sx + sy * sy, 1e-300), 0.0, 1.0)
        distance = np.hypot(dx - fraction * sx, dy - fraction * sy)
        found[at] = (distance < within).any(0)
    return found


def blocks(
    x: np.ndarray, count: int, concerns: _Concerns
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of places with the sides that concern them; a place that none concerns is in none.

    Args:
        x: (N, 2) m.
        count: of the sides.
        concerns: as said above.

    Yields:
        Numbers of places (n,) and of sides (s,).
    """
    waiting = [(np.arange(len(x)), np.arange(count))] if len(x) else []
    while waiting:
        at, sides = waiting.pop()
        places = x[at]
        lowest, highest = places.min(0), places.max(0)
        sides = sides[concerns(sides, lowest, highest)]
        if not len(sides):
            continue
        together = _TOGETHER // len(sides)
        if len(at) <= max(_FEW, together // 8) or len(sides) <= _SIDES:
            for start in range(0, len(at), max(_FEW, together)):
                yield at[start : start + max(_FEW, together)], sides
            continue
        along = int((highest - lowest).argmax())
        order = np.argpartition(places[:, along], len(at) // 2)
        waiting += [(at[order[: len(at) // 2]], sides), (at[order[len(at) // 2 :]], sides)]

"""Batches of samples in parts for which the map's thread needs a moment each, however slow the map.

A model of one's own may need a second for an update, and a batch may be hundreds of them: an end
that has a time limit waits for one part, not for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from gp_mapping.core.types import Samples

__all__ = ["Slices"]

SLICE = 0.5  # s that a part may take
FIRST = 32  # samples of the first part


class Slices:
    """Cuts batches into parts; the map is the same, to the bit, as of whole batches.

    The size of a part follows the time that the one before it took.

    Args:
        over: whether what is left is to be dropped and counted.

    Attributes:
        abandoned: samples that were dropped.
    """

    def __init__(self, over: Callable[[], bool]):
        self._over, self._size, self.abandoned = over, FIRST, 0

    def cut(self, batches: Iterable[tuple[bool, Samples]]) -> Iterator[tuple[bool, Samples]]:
        """Cut batches into parts, until what is left is dropped.

        Args:
            batches: as Intake.batches gives them.

        Yields:
            Whether a new pass begins, and the samples of a part; it has been taken in when the next
            one is asked for.
        """
        for new_pass, samples in batches:
            while len(samples) and not self._over():
                part, samples = samples[: self._size], samples[self._size :]
                began = time.monotonic()
                yield new_pass, part
                self._follow(time.monotonic() - began, len(part))
                new_pass = False
            self.abandoned += len(samples)

    def _follow(self, took: float, count: int) -> None:
        """Choose the size of the next part by the seconds that one of `count` samples took."""
        if took > SLICE:
            self._size = max(1, int(count * SLICE / took))
        elif 2 * took < SLICE and count == self._size:
            self._size *= 2

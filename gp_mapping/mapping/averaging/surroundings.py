"""What a cell of a pass is judged by: the samples before it, its own, and the one after it."""

from __future__ import annotations

from collections.abc import Sequence

from gp_mapping.mapping.averaging.gross_errors import far_from_median, is_narrow, wild_samples

__all__ = ["FEW", "Surroundings"]

FEW = 5  # samples below which none of them is judged by these alone


class Surroundings:
    """The samples around the end of a cell, and which of its own are gross errors.

    Args:
        values: (n, C) of which the spread is known, of the good samples before the cell, its own,
            and the next one where that is near.
        stamps: (n,) s.
        first: number of the cell's first sample among them.
        count: of the cell's samples.
        spread: standard deviation about a median, at least, SI.
        white: that of a sample about the field, at least, SI; 0: too little is known of it.
    """

    def __init__(
        self,
        values: Sequence[Sequence[float]],
        stamps: Sequence[float],
        first: int,
        count: int,
        spread: float,
        white: float,
    ):
        self._values, self._first, self._count = values, first, count
        self._spread = spread
        self._has_next = len(values) > first + count
        self._far: set[int] = set()  # what is wild, and what would be without the last one
        self._far_before: set[int] = set()
        if white > 0.0 and len(values) >= FEW:
            self._far, self._far_before = wild_samples(values, stamps, white)

    def wild(self) -> set[int]:
        """Numbers of the cell's samples that are gross errors.

        They are so by the samples around (gross_errors.py). Where FEW and more are left the cell's
        median judges these, too, with a spread that holds the field's own change along it: many
        large errors together are seen. Of fewer an edge of the field would be far from it for ever.
        """
        first, n = self._first, self._count
        wild = {i - first for i in self._far if first <= i < first + n}
        # all of them only where others, before and after them, were asked
        if len(wild) == n and (not self._has_next or self._far.issuperset(range(first))):
            wild = set()

        rest = [i for i in range(n) if i not in wild]
        if len(rest) >= FEW:
            y = [self._values[first + i] for i in rest]
            if not is_narrow(y, self._spread):
                wild.update(rest[k] for k in far_from_median(y, self._spread))
        return wild

    def decided(self) -> int:
        """How many of the cell's samples, from its first on, do not hang on the next one.

        All of them, unless the next one alone speaks for some that are wild without it.
        """
        first, n = self._first, self._count
        alone = self._far_before - self._far
        if not self._has_next or len(self._values) <= FEW or not any(i >= first for i in alone):
            return n
        differ = self._far_before ^ self._far
        return min(i for i in differ if first <= i < first + n) - first

    def keep(self, count: int) -> None:
        """Let the cell end after `count` of its samples: what comes after them is around it."""
        self._count, self._has_next = count, True

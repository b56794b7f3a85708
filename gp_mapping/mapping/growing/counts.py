"""How many raw samples are in a map, and how many are not."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SampleCounts"]


@dataclass
class SampleCounts:
    """Of n raw samples that came, used and refused grow by n together.

    Attributes:
        used: raw samples that were used.
        refused: raw samples that were not.
        lost: of those refused, the ones that were counted as used until their cell was handed over.
        last_refusal: why the last refused sample was, in a sentence; '' before the first.
    """

    used: int = 0
    refused: int = 0
    lost: int = 0
    last_refusal: str = ""

    @property
    def entered(self) -> int:
        """Raw samples that have entered a cell, or were used up, whatever became of the cell."""
        return self.used + self.lost

    def refuse(self, count: int, why: str) -> None:
        """Count raw samples as refused, and keep the reason.

        Args:
            count: of samples.
            why: a sentence.
        """
        self.refused += count
        self.last_refusal = why

    def lose(self, count: int, why: str) -> None:
        """Count raw samples as refused whose cell a map refuses; they were counted as used.

        Args:
            count: of samples.
            why: a sentence.
        """
        self.used -= count
        self.lost += count
        self.refuse(count, why)

    def offer_again(self) -> None:
        """Count those of refused cells as used: the cells are offered to an empty map once more."""
        self.used, self.refused, self.lost = self.entered, self.refused - self.lost, 0
        self.last_refusal = ""

    def follow(self, before: SampleCounts) -> None:
        """Go on from another map's counts, all of whose cells were offered to this map again."""
        self.used += before.entered
        self.refused += before.refused - before.lost

    def join(self, other: SampleCounts) -> None:
        """Add another map's."""
        self.used += other.used
        self.refused += other.refused
        self.lost += other.lost

    def state_dict(self) -> dict:
        """Return the numbers by the names that they have in a saved map."""
        return {"raw_count": self.used, "refused": self.refused, "lost": self.lost}

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken; older maps begin with 0 of what they lack."""
        self.used, self.refused, self.lost = (
            state.get(name, 0) for name in ("raw_count", "refused", "lost")
        )

"""Where tiles have changed as a whole lately: a large map need not be drawn anew for one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Box", "Changes"]

Box = tuple[tuple[float, float], tuple[float, float]]  # lower and upper corner, m

# changes that are kept apart; for a look at an older epoch everything has changed
_MOST = 64


@dataclass(frozen=True)
class Changes:
    """The newest changes of whole places.

    Attributes:
        whole: epoch at which all may have changed last.
        places: the newest changes, each with the epoch after it and the place.
    """

    whole: int = 0
    places: tuple[tuple[int, Box], ...] = ()

    def with_place(self, epoch: int, where: Box) -> Changes:
        """These changes and one more, after which the map has that epoch."""
        places = (*self.places, (epoch, where))
        if len(places) <= _MOST:
            return Changes(self.whole, places)

        return Changes(places[0][0], places[1:])

    def since(self, epoch: int) -> list[Box] | None:
        """Places that have changed after an epoch; None: everywhere."""
        if epoch < self.whole:
            return None
        return list(dict.fromkeys(where for at, where in self.places if at > epoch))

"""Where tiles have changed as a whole, of late: so that nobody draws all of a large map again for one of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Box", "Changes"]

Box = tuple[tuple[float, float], tuple[float, float]]  # lower and upper corner, m

_MOST = (
    64  # changes that are told apart; who has not looked for longer than that looks at everything
)


@dataclass(frozen=True)
class Changes:
    """whole: epoch at which all may have changed last.  places: the newest changes, each the epoch after it and where."""

    whole: int = 0
    places: tuple[tuple[int, Box], ...] = ()

    def with_place(self, epoch: int, where: Box) -> Changes:
        """One more, after which the map has that epoch."""
        places = (*self.places, (epoch, where))
        if len(places) <= _MOST:
            return Changes(self.whole, places)
        return Changes(places[0][0], places[1:])

    def since(self, epoch: int) -> list[Box] | None:
        """Where something has changed after that epoch; None: everywhere."""
        if epoch < self.whole:
            return None
        return list(dict.fromkeys(where for at, where in self.places if at > epoch))

"""Which ground is drawn: all that was driven, a window about the robot, or an overview."""

from __future__ import annotations

from typing import NamedTuple

from gp_mapping.mapping.drawing.grid import GridWindow
from gp_mapping.mapping.motion.path import Path
from gp_mapping.mapping.notes.settings import drawing_notes
from gp_mapping.settings.mapping import MapSettings

__all__ = ["DrawnGround", "Ground", "choose_ground", "overview_window"]

# Revisions after which the ground is looked at again, of a map that nobody draws.
LOOK_AGAIN = 200


class Ground(NamedTuple):
    """Ground to draw.

    Attributes:
        low: lower corner, m.
        high: upper corner, m.
        place: (2,) m, the robot in it.
        notes: what is left out although the settings do not ask for that.
    """

    low: list[float]
    high: list[float]
    place: tuple[float, float]
    notes: list[str]

    @property
    def bounds(self) -> tuple[list[float], list[float]]:
        """Both corners, m."""
        return self.low, self.high


class DrawnGround:
    """Chooses the ground of each drawing, and keeps what the newest one leaves out.

    Attributes:
        notes: on what the last drawing has left out, or would have.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._looked = -LOOK_AGAIN  # the revision that the notes are of

    def choose(self, settings: MapSettings, path: Path, revision: int) -> Ground:
        """Choose what the next drawing shows.

        Args:
            settings: as of `choose_ground`.
            path: where the robot has been.
            revision: of the map that is drawn.
        """
        ground = choose_ground(settings, path)
        self.notes, self._looked = ground.notes, revision
        return ground

    def look_again(self, settings: MapSettings, path: Path, revision: int) -> None:
        """Renew the notes of a map that nobody draws: they would stay those of long ago.

        Args:
            settings: as of `choose`.
            path: likewise.
            revision: likewise; soon after that of the notes nothing is done.
        """
        if revision >= self._looked + LOOK_AGAIN:
            self.choose(settings, path, revision)


def choose_ground(settings: MapSettings, path: Path) -> Ground:
    """Choose what the next drawing shows.

    Args:
        settings: which window is drawn, and the bound on the grid.
        path: where the robot has been.
    """

    def fits(low, high) -> bool:
        """Whether a grid may hold the box between two corners (2,) m."""
        return _fits(settings, low, high)

    # a window that was asked for leaves ground out without a note
    if settings.window > 0.0:
        area = path.around(settings.window)
        return Ground(
            list(area.low), list(area.high), area.place, drawing_notes([area], [], fits, settings)
        )

    # all ground together, if a grid holds it; a pose's glitch is none
    chosen, others = path.extent.choose_drawn(fits, path.usual_move)
    low = [min(area.low[d] for area in chosen) for d in range(2)]
    high = [max(area.high[d] for area in chosen) for d in range(2)]
    return Ground(low, high, chosen[0].place, drawing_notes(chosen, others, fits, settings))


def overview_window(
    settings: MapSettings, path: Path, most: int
) -> tuple[GridWindow, list[float], list[float]] | None:
    """The window over all ground, where a drawing shows only a part of it.

    Its resolution is the one asked for, doubled until the cells are few enough.

    Args:
        settings: of the drawing.
        path: that was driven.
        most: bound of the cells.

    Returns:
        The window and the ground's corners, m; None where a drawing shows all.
    """
    low, high = path.extent.bounds(path.usual_move)
    whole = not settings.window or settings.window >= max(b - a for a, b in zip(low, high))

    if whole and _fits(settings, low, high):
        return None
    return GridWindow.around(low, high, settings.resolution, settings.margin, most), low, high


def _fits(settings: MapSettings, low, high) -> bool:
    """Whether a grid at the asked-for resolution holds the ground between two corners, m."""
    window = GridWindow.within(
        low, high, low, settings.resolution, settings.margin, settings.max_grid_cells
    )
    return window.contains(low, high, settings.margin)

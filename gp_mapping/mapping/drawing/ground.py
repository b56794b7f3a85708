"""Which ground is drawn: all that was driven, a window about the robot, or an overview of it all."""

from __future__ import annotations

from typing import NamedTuple

from gp_mapping.mapping.drawing.grid import GridWindow
from gp_mapping.mapping.motion.path import Path
from gp_mapping.mapping.notes import drawing_notes
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Ground", "overview_window", "to_draw"]


class Ground(NamedTuple):
    """low, high: corners, m.  place: (2,) m, the robot in it.  notes: what is left out though nobody asked for that."""

    low: list[float]
    high: list[float]
    place: tuple[float, float]
    notes: list[str]


def to_draw(settings: MapSettings, path: Path) -> Ground:
    """What the next drawing shows."""

    def fits(low, high) -> bool:
        return _fits(settings, low, high)

    if settings.window > 0.0:
        area = path.around(settings.window)
        return Ground(
            list(area.low), list(area.high), area.place, drawing_notes([area], [], fits, settings)
        )

    chosen, others = path.extent.drawn(fits, path.usual_move)
    low = [min(area.low[d] for area in chosen) for d in range(2)]
    high = [max(area.high[d] for area in chosen) for d in range(2)]
    return Ground(low, high, chosen[0].place, drawing_notes(chosen, others, fits, settings))


def overview_window(
    settings: MapSettings, path: Path, most: int
) -> tuple[GridWindow, list[float], list[float]] | None:
    """Where a drawing shows a part only: the window over all ground on at most that many cells, and its corners, m.

    Its resolution is the one asked for, doubled until that is enough.
    """
    low, high = path.extent.bounds(path.usual_move)
    whole = not settings.window or settings.window >= max(b - a for a, b in zip(low, high))
    if whole and _fits(settings, low, high):
        return None
    return GridWindow.around(low, high, settings.resolution, settings.margin, most), low, high


def _fits(settings: MapSettings, low, high) -> bool:
    """Whether a grid at the resolution that is asked for holds the ground."""
    window = GridWindow.within(
        low, high, low, settings.resolution, settings.margin, settings.max_grid_cells
    )
    return window.contains(low, high, settings.margin)

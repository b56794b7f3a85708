"""Figures of the run report: the map with scale bars, as PNG."""

from __future__ import annotations

import math
from io import BytesIO

from matplotlib.figure import Figure
from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.store.exports.picture import draw_map

__all__ = ["as_png", "draw_run", "nice_length"]


def nice_length(most: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is at most `most` (> 0)."""
    power = 10.0 ** math.floor(math.log10(most))
    # with a tolerance: a `most` that is a rounded 0.5 still gives 0.5
    return next(k * power for k in (5.0, 2.0, 1.0) if k * power <= most * (1 + 1e-12))


def draw_run(session, grid: FieldGrid, suggestions) -> Figure:
    """Draw mean and standard deviation with path and suggestions, each with a scale bar.

    Args:
        session: the map.
        grid: the map as drawn.
        suggestions: places to measure next.
    """
    figure = draw_map(session, grid, suggestions)
    length = nice_length(0.3 * grid.shape[1] * grid.resolution)
    text = f"{length:g} m" if length >= 1 else f"{100 * length:g} cm"

    for axis in figure.axes:
        if axis.get_title():  # colour bars have none
            bar = AnchoredSizeBar(
                axis.transData,
                length,
                text,
                "lower left",
                pad=0.3,
                sep=3,
                borderpad=0.4,
                size_vertical=0.008 * grid.shape[0] * grid.resolution,
            )
            bar.patch.set_alpha(0.85)
            axis.add_artist(bar)
    return figure


def as_png(figure: Figure) -> bytes:
    """Return the figure as PNG.

    Without the name and version of the software: the same run gives the same bytes.
    """
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()

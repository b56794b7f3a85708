"""The picture of the demo: truth, mean, error and standard deviation, in microtesla."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["cells_to_image", "draw_comparison"]

UT = 1e6  # microtesla in a tesla
UNKNOWN = "0.85"  # grey


def cells_to_image(x, y, values) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """Put scattered grid cells of a square lattice into an image.

    Args:
        x: (N,) m, of the centres.
        y: (N,) m, of the centres.
        values: (N,).

    Returns:
        Image (H, W), NaN where there is no cell, row 0 at the smallest y (draw it with
        origin="lower"), and its extent: left, right, bottom, top, m.
    """
    # rounded, because the cloud's coordinates are float32
    steps = [np.diff(np.unique(np.round(v, 4))) for v in (x, y)]
    steps = [s.min() for s in steps if len(s)]
    step = float(min(steps)) if steps else 1.0

    column, row = (np.rint((v - v.min()) / step).astype(int) for v in (x, y))
    image = np.full((row.max() + 1, column.max() + 1), np.nan)
    image[row, column] = values

    left, bottom = x.min() - step / 2, y.min() - step / 2
    return image, (left, left + image.shape[1] * step, bottom, bottom + image.shape[0] * step)


def draw_comparison(
    file: Path,
    *,
    cells: dict,
    room: tuple[float, float],
    path,
    inducing,
    suggestions,
    title: str,
    walls=(),
    curves=None,
    worth=None,
) -> Path:
    """Write the picture as PNG and return its path.

    Args:
        file: to write.
        cells: columns x, y (m), mean, stddev, truth (T) of the known grid cells.
        room: width and depth, m; the truth and the error are shown inside it only, since its walls
            stand among magnets.
        path: (K, 2) m.
        inducing: (K, 2) m.
        suggestions: (K, 2) m, in their order.
        title: of the figure.
        walls: boxes x0, y0, x1, y1 (m) in the room.
        curves: of a survey: how its error fell by metres (survey.Curve), and that of the lanes it
            is compared with, or None for these.
        worth: of a survey's path: metres (m,), and the fraction (m,) of the area's variance that
            was taken off up to there.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no display, no global state
    from matplotlib.figure import Figure

    from gp_mapping.store.exports.picture import lay_out

    # a survey adds a third column: its path, and its error by metres
    columns = 2 if curves is None else 3
    figure = Figure(
        figsize=(6.25 * columns, 10.0), dpi=120 if curves is None else 100, layout="constrained"
    )
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, columns)
    axes = [figure.add_subplot(grid[k // 2, k % 2]) for k in range(4)]

    _panels(figure, axes, cells, room, walls)
    handles = _overlays(axes, path, inducing, suggestions)
    if curves is not None:
        _way(figure, figure.add_subplot(grid[0, 2]), path, worth, room, walls)
        _curves(figure.add_subplot(grid[1, 2]), *curves)

    figure.legend(handles=handles, loc="outside lower center", ncols=4, facecolor="0.75")
    figure.suptitle(title)
    lay_out(figure).savefig(file)
    return file


def _panels(figure, axes: list, cells: dict, room: tuple[float, float], walls) -> None:
    """Draw truth, mean, standard deviation and error, each on one of four axes.

    Args:
        figure: of the axes.
        axes: four.
        cells: as of draw_comparison.
        room: likewise.
        walls: likewise.
    """
    x, y = cells["x"], cells["y"]
    mean, stddev, truth = (UT * cells[name] for name in ("mean", "stddev", "truth"))
    inside = (x > 0) & (x < room[0]) & (y > 0) & (y < room[1])
    error = mean - truth
    # limits from percentiles: a cell next to a magnet would hide all others
    low, high = np.percentile(truth[inside], [0.5, 99.5])
    largest = max(1.0, float(np.percentile(np.abs(error[inside]), 99)))

    panels = [
        ("Truth", "|B| (µT)", np.where(inside, truth, np.nan), "viridis", low, high),
        ("Map: mean", "|B| (µT)", mean, "viridis", low, high),
        (
            "Map: standard deviation",
            "standard deviation (µT)",
            stddev,
            "magma",
            0.0,
            np.percentile(stddev, 99),
        ),
        ("Map − truth", "error (µT)", np.where(inside, error, np.nan), "RdBu_r", -largest, largest),
    ]

    for axis, (name, label, values, colours, bottom, top) in zip(axes, panels):
        image, extent = cells_to_image(x, y, values)
        shown = axis.imshow(
            image,
            extent=extent,
            origin="lower",
            cmap=colours,
            vmin=bottom,
            vmax=top,
            interpolation="nearest",
        )
        figure.colorbar(
            shown, ax=axis, label=label, shrink=0.9, extend="max" if colours == "magma" else "both"
        )
        _floor(axis, name, room, walls)


def _overlays(axes: list, path, inducing, suggestions) -> list:
    """Draw the path, inducing inputs and suggestions over the panels; handles for the legend.

    Args:
        axes: those of `_panels`.
        path: (K, 2) m.
        inducing: (K, 2) m.
        suggestions: (K, 2) m, in their order.
    """
    # for the legend only: the walls themselves are patches
    (outline,) = axes[0].plot([], [], color="black", linewidth=1.5, label="walls")
    (drawn,) = axes[1].plot(*path.T, color="white", linewidth=0.8, label="path")
    axes[3].plot(*path.T, color="0.3", linewidth=0.5)
    (points,) = axes[2].plot(
        *inducing.T, "+", color="#8cff66", markersize=4, label=f"{len(inducing)} inducing inputs"
    )
    (next_,) = axes[2].plot(
        *suggestions.T,
        "o",
        color="white",
        markeredgecolor="red",
        markersize=13,
        linestyle="",
        label="measure here next",
    )
    for rank, (sx, sy) in enumerate(suggestions, start=1):
        axes[2].annotate(str(rank), (sx, sy), ha="center", va="center", color="red", fontsize=8)
    return [
        outline,
        drawn,
        *([points] if len(inducing) else []),
        *([next_] if len(suggestions) else []),
    ]


def _floor(axis, name: str, room: tuple[float, float], walls) -> None:
    """Draw frame, walls and axes of a panel in the plane."""
    from matplotlib.patches import Rectangle

    axis.set_facecolor(UNKNOWN)
    axis.set(title=name, xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axis.add_patch(Rectangle((0, 0), *room, fill=False, edgecolor="black", linewidth=1.5))
    for x0, y0, x1, y1 in walls:
        axis.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor="0.3", edgecolor="black"))


def _way(figure, axis, path, worth, room: tuple[float, float], walls) -> None:
    """Draw the path, coloured by what each metre of it took off the area's variance."""
    from matplotlib.collections import LineCollection

    _floor(axis, "The way, and what each part was worth", room, walls)
    distances = (
        np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
        if len(path)
        else np.zeros(1)
    )

    # of each piece of the path, the rate of the part of the drive that its middle lies in
    marks, taken = worth
    rates = 100.0 * np.diff(taken) / np.maximum(np.diff(marks), 1e-9)
    part = np.searchsorted(marks[1:], 0.5 * (distances[1:] + distances[:-1])).clip(
        max=len(rates) - 1
    )
    rates = rates[part]

    line = LineCollection(
        np.stack([path[:-1], path[1:]], 1), array=rates, cmap="plasma", linewidth=3.0
    )
    line.set_clim(0.0, max(1e-9, float(np.percentile(rates, 95))) if len(rates) else 1.0)
    axis.add_collection(line)

    if len(path):
        axis.plot(*path[0], "o", color="tab:green", markersize=10)
        axis.annotate("home", path[0], textcoords="offset points", xytext=(8, -12))
    axis.set(xlim=(-0.3, room[0] + 0.3), ylim=(-0.3, room[1] + 0.3))
    figure.colorbar(
        line, ax=axis, label="variance taken off the area (% per metre)", shrink=0.9, extend="max"
    )


def _curves(axis, planned, lanes) -> None:
    """Draw the error of the whole area against metres; planned, lanes: survey.Curve."""
    axis.plot(planned.metres, planned.rmse, color="tab:blue", label="its own plan: error")
    axis.plot(
        planned.metres,
        planned.stddev,
        color="tab:blue",
        linestyle=":",
        label="its own plan: as the map expects",
    )
    if lanes is not None:
        axis.plot(
            lanes.metres,
            lanes.rmse,
            color="tab:orange",
            label="best lanes, walls known before: error",
        )
    axis.set(
        title="Error of the whole area",
        xlabel="driven (m)",
        ylabel="fraction of the field's own stddev",
        ylim=(0.0, 1.6),
    )
    axis.grid(alpha=0.3)
    axis.legend()

"""The demo's picture: truth, mean, error and standard deviation side by side, in microtesla."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["cells_to_image", "draw_comparison"]

UT = 1e6  # microtesla in a tesla
UNKNOWN = "0.85"  # grey


def cells_to_image(x, y, values) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """Scattered cells of a square lattice as an image (H, W), NaN where there is none, and its extent in metres.

    x, y: (N,) cell centres, m.  values: (N,).  Row 0 is at the smallest y: draw with origin="lower".
    """
    steps = [np.diff(np.unique(np.round(v, 4))) for v in (x, y)]  # the cloud's coordinates are float32
    steps = [s.min() for s in steps if len(s)]
    step = float(min(steps)) if steps else 1.0
    column, row = (np.rint((v - v.min()) / step).astype(int) for v in (x, y))
    image = np.full((row.max() + 1, column.max() + 1), np.nan)
    image[row, column] = values
    left, bottom = x.min() - step / 2, y.min() - step / 2
    return image, (left, left + image.shape[1] * step, bottom, bottom + image.shape[0] * step)


def draw_comparison(file: Path, *, cells: dict, room: tuple[float, float], path, inducing, suggestions,
                    title: str) -> Path:
    """Write a PNG and return its path.

    cells: columns x, y (m), mean, stddev, truth (T) of the known cells.  room: width, depth (m); the truth and the
    error are shown inside it, as its walls stand among magnets.  path, inducing, suggestions: (K, 2) m.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no display, no global state
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    x, y = cells["x"], cells["y"]
    mean, stddev, truth = (UT * cells[name] for name in ("mean", "stddev", "truth"))
    inside = (x > 0) & (x < room[0]) & (y > 0) & (y < room[1])
    error = mean - truth
    low, high = np.percentile(truth[inside], [0.5, 99.5])
    largest = max(1.0, float(np.percentile(np.abs(error[inside]), 99)))
    panels = [("Truth", "|B| (µT)", np.where(inside, truth, np.nan), "viridis", low, high),
              ("Map: mean", "|B| (µT)", mean, "viridis", low, high),
              ("Map: standard deviation", "standard deviation (µT)", stddev, "magma", 0.0, np.percentile(stddev, 99)),
              ("Map − truth", "error (µT)", np.where(inside, error, np.nan), "RdBu_r", -largest, largest)]
    figure = Figure(figsize=(12.5, 10.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    for axis, (name, label, values, colours, bottom, top) in zip(axes, panels):
        image, extent = cells_to_image(x, y, values)
        shown = axis.imshow(image, extent=extent, origin="lower", cmap=colours, vmin=bottom, vmax=top,
                            interpolation="nearest")
        figure.colorbar(shown, ax=axis, label=label, shrink=0.9, extend="max" if colours == "magma" else "both")
        axis.set_facecolor(UNKNOWN)
        axis.set(title=name, xlabel="x (m)", ylabel="y (m)", aspect="equal")
        axis.label_outer()
        axis.add_patch(Rectangle((0, 0), *room, fill=False, edgecolor="black", linewidth=1.5))
    walls, = axes[0].plot([], [], color="black", linewidth=1.5, label="walls")
    drawn, = axes[1].plot(*path.T, color="white", linewidth=0.8, label="path")
    axes[3].plot(*path.T, color="0.3", linewidth=0.5)
    points, = axes[2].plot(*inducing.T, "+", color="#8cff66", markersize=4, label=f"{len(inducing)} inducing inputs")
    next_, = axes[2].plot(*suggestions.T, "o", color="white", markeredgecolor="red", markersize=13, linestyle="",
                          label="measure here next")
    for rank, (sx, sy) in enumerate(suggestions, start=1):
        axes[2].annotate(str(rank), (sx, sy), ha="center", va="center", color="red", fontsize=8)
    shown = [walls, drawn, *([points] if len(inducing) else []), *([next_] if len(suggestions) else [])]
    figure.legend(handles=shown, loc="outside lower center", ncols=4, facecolor="0.75")
    figure.suptitle(title)
    figure.savefig(file, dpi=120)
    return file

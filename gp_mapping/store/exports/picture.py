"""A map as a picture: mean, standard deviation, path, inducing inputs, suggestions.

With the truth, also the truth and the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from gp_mapping.errors import one_line
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.vector import axis_names
from gp_mapping.store.wording import quantity, unit_text

__all__ = ["draw_map", "lay_out", "picture_text"]

_DPI = 130
_PANEL = 5.2  # inches along the longer side of a panel
_STEPS = 5  # from one number to the next along an axis, at most
_UNKNOWN_COLOUR = "#d9d9d9"
_IN_A_ROW = 4  # entries of the legend


def picture_text(text: object, longest: int = 200) -> str:
    """A text with names from outside, as a figure can show it.

    One line, of any characters, and a $ does not begin mathematics.

    Args:
        text: anything.
        longest: characters.
    """
    return one_line(text, longest).replace("$", r"\$")


def lay_out(figure: Figure) -> Figure:
    """Give all parts of a finished figure their places, once.

    A figure that keeps its layout engine is drawn twice when it is saved: to find the places again,
    and to be seen. The picture is the same. Most of the work is the numbers along the axes, which
    are measured several times: an axis gets a few of them.

    Args:
        figure: with a layout engine; of the resolution (dpi) at which it will be saved.

    Returns:
        The figure.
    """
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_locator(), MaxNLocator):  # not one of fixed places
                axis.get_major_locator().set_params(nbins=_STEPS)

    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)
    return figure


def _labelled(what: str, unit: str) -> str:
    """A quantity with its unit, where it has one."""
    return what if unit == "1" else f"{what} ({unit})"


def _truth_values(truth, grid: FieldGrid) -> np.ndarray:
    """The truth on the grid, (H, W) SI.

    Args:
        truth: values on the grid, or a function of positions.
        grid: of the map.
    """
    values = truth(grid.centres()) if callable(truth) else truth
    values = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, np.float64)
    if values.size != math.prod(grid.shape):
        raise ValueError(
            f"truth has shape {values.shape}, expected {grid.shape}: one value for each cell of the grid"
        )

    return values.reshape(grid.shape)


def _lines(session) -> np.ndarray:
    """The path, with rows of NaN where a pass ends or the position jumps.

    So no line is drawn across.
    """
    return np.insert(
        session.path.numpy(), np.flatnonzero(session.path_starts.numpy()), np.nan, axis=0
    )


def draw_map(
    session,
    grid: FieldGrid,
    suggestions=None,
    truth=None,
    draw_over: Callable[[list], list] | None = None,
) -> Figure:
    """Draw a map; `figure.savefig(path)` writes the figure.

    Values are shown in the map's display unit. Of a map of several components it shows the norm,
    and the mean of each.

    Args:
        session: holds the map.
        grid: of the map.
        suggestions: things with x and y.
        truth: (H, W) on the grid, or a function of (N, 2) metres, SI; of the norm.
        draw_over: draws more on the panels (axes of matplotlib, in metres); returns entries for
            the legend, which come first.
    """
    scale, unit = session.settings.field_scale, picture_text(unit_text(session.settings.field_unit))
    known = grid.known.numpy()
    mean, stddev = grid.mean.numpy() / scale, grid.stddev.numpy() / scale
    shown = mean[known] if known.any() else mean
    what = quantity(session.settings)

    # title, label, values, colours, limits
    panels = [
        (
            "Mean",
            _labelled(what, unit),
            np.where(known, mean, np.nan),
            "viridis",
            (shown.min(), shown.max()),
        ),
        (
            "Standard deviation",
            _labelled("standard deviation", unit),
            stddev,
            "magma",
            (0.0, stddev.max()),
        ),
    ]

    if truth is not None:
        true_values = _truth_values(truth, grid) / scale
        error = np.where(known, mean - true_values, np.nan)
        # one scale for mean and truth, of where both are there; a truth may have holes
        known_values = true_values[known] if known.any() else true_values
        both = np.concatenate([shown.ravel(), known_values[np.isfinite(known_values)]])
        low, high = both.min(), both.max()
        panels[0] = (*panels[0][:4], (low, high))
        panels.insert(1, ("Truth", f"field ({unit})", true_values, "viridis", (low, high)))
        most = float(np.abs(error[np.isfinite(error)]).max(initial=0.0)) or 1.0
        panels.append(("Mean − truth", f"error ({unit})", error, "RdBu_r", (-most, most)))

    panels += _components(grid, scale, unit)

    figure, axes = _canvas(len(panels), grid)
    for axis, panel in zip(axes, panels):
        _panel(figure, axis, grid, *panel)

    handles = _overlays(axes, panels, session, suggestions)
    if not known.all():
        handles.append(axes[0].fill_between([], [], color=_UNKNOWN_COLOUR, label="unknown"))

    handles = (draw_over(list(axes)) if draw_over is not None else []) + handles

    figure.suptitle(_headline(session, grid, scale, unit), fontsize=11)
    columns = min(len(handles), _IN_A_ROW)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    return lay_out(figure)


def _components(grid: FieldGrid, scale: float, unit: str) -> list[tuple]:
    """A panel for the mean of each component, or one for the classes; none for a scalar field."""
    if grid.axes_mean is None:
        return []
    known, out = grid.known.numpy(), []

    if grid.classes is not None:
        count = len(grid.axes_mean)
        return [
            (
                "Most likely class",
                "class",
                np.where(known, grid.classes.numpy(), np.nan),
                f"classes {count}",
                (-0.5, count - 0.5),
            )
        ]

    for name, values in zip(axis_names(len(grid.axes_mean)), grid.axes_mean.numpy() / scale):
        shown = values[known] if known.any() else values
        out.append(
            (
                f"Mean of {name}",
                f"{name} ({unit})",
                np.where(known, values, np.nan),
                "viridis",
                (shown.min(), shown.max()),
            )
        )

    return out


def _canvas(panels: int, grid: FieldGrid):
    """A figure, and axes for its panels.

    Two panels are side by side, or stacked where the map is much wider than high; four are in a
    square; more in rows of three.
    """
    height, width = grid.shape
    # very long maps would give a figure without height
    aspect = min(max(width / height, 0.25), 4.0)
    size = (_PANEL, _PANEL / aspect) if aspect >= 1 else (_PANEL * aspect, _PANEL)

    rows, columns = (
        (-(-panels // 3), 3)
        if panels > 4
        else (2, 2)
        if panels == 4
        else (panels, 1)
        if aspect > 2
        else (1, panels)
    )

    figure = Figure(
        figsize=(max(columns * (size[0] + 1.6), 7.5), rows * (size[1] + 0.6) + 0.9),
        dpi=_DPI,
        layout="constrained",
    )

    axes = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for axis in axes[panels:]:
        axis.set_visible(False)
    return figure, axes[:panels]


def _panel(figure, axis, grid: FieldGrid, title, label, values, colours, limits) -> None:
    """Draw one panel: values (H, W) as an image, with a colour bar."""
    height, width = grid.shape
    left, bottom = grid.origin
    extent = (left, left + width * grid.resolution, bottom, bottom + height * grid.resolution)
    axis.set_facecolor(_UNKNOWN_COLOUR)

    # by the square root, differences between driven lanes show although a margin is ten times as
    # uncertain
    norm = PowerNorm(0.5, *limits) if title == "Standard deviation" else Normalize(*limits)

    # "classes N" stands for a colour map of N colours
    classes = int(colours.removeprefix("classes ")) if colours.startswith("classes ") else 0
    if classes:
        # ten colours that are told apart easily, else N along a scale
        colours = (
            ListedColormap(colormaps["tab10"].colors[:classes])
            if classes <= 10
            else colormaps["turbo"].resampled(classes)
        )

    image = axis.imshow(
        values, origin="lower", extent=extent, cmap=colours, norm=norm, interpolation="nearest"
    )
    bar = figure.colorbar(
        image,
        ax=axis,
        label=label,
        shrink=0.85,
        ticks=range(classes) if 0 < classes <= 20 else None,
    )
    bar.formatter.set_useOffset(False)  # 22.7721, not 2.1e-3 and, beside it, +2.277e1
    # the map sets the limits, not what is drawn over it
    axis.set(title=title, xlabel="x (m)", ylabel="y (m)", aspect="equal", autoscale_on=False)
    axis.label_outer()


def _overlays(axes, panels, session, suggestions) -> list:
    """Draw path, inducing inputs and suggestions over all panels but the truth.

    Returns:
        The legend's handles.
    """
    path, inducing, handles = session.path.numpy(), session.inducing.numpy(), {}
    for axis, (title, *_) in zip(axes, panels):
        if title == "Truth":
            continue

        light = title == "Standard deviation"  # light lines, since its colours are dark
        if len(path):
            (line,) = axis.plot(
                *_lines(session).T,
                color="#7fd3ff" if light else "black",
                lw=0.7,
                alpha=0.8,
                label="path",
            )
            handles.setdefault("path", line)

        if len(inducing) and light:
            handles["inducing"] = axis.scatter(
                *inducing.T,
                s=10,
                color="#8cff66",
                edgecolors="black",
                linewidths=0.5,
                label=f"inducing inputs ({len(inducing)})",
            )

        for number, place in enumerate(suggestions or (), 1):
            handles["suggestions"] = axis.scatter(
                place.x,
                place.y,
                s=150,
                marker="o",
                color="white",
                edgecolors="red",
                linewidths=1.5,
                zorder=5,
                clip_on=False,
                label="suggested next",
            )
            axis.annotate(
                str(number),
                (place.x, place.y),
                ha="center",
                va="center",
                fontsize=8,
                color="red",
                zorder=6,
            )
    return list(handles.values())


def _headline(session, grid: FieldGrid, scale: float, unit: str) -> str:
    """Numbers of samples and metres, noise of a measurement, and lengthscale, in one line."""
    report = session.report()
    parts = [f"{report['samples']} measurements"]
    if session.settings.metric:
        parts.append(f"noise of one measurement {grid.noise_stddev / scale:.2g} {unit}")

    lengthscale = report.get("hyperparameters", {}).get("lengthscale")
    if isinstance(lengthscale, float):
        parts.append(f"lengthscale {lengthscale:.2g} m")
    if isinstance(report.get("path_length"), float):
        parts.insert(1, f"{report['path_length']:.0f} m of path")
    return ", ".join(parts)

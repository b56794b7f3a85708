"""The figure of `gp-mapping check`.

It shows the PIT, the coverage by level, the autocorrelation of the residuals, and where they lie.
"""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gp_mapping.analysis.residuals import LEVELS, Residuals
from gp_mapping.store.exports.picture import lay_out, picture_text

__all__ = ["draw_check"]

_DPI = 120
_GOOD, _INK, _MARK = "#c8d8c8", "#2a5a8a", "#c03020"
_DOTS = 6000  # residuals drawn, about


def draw_check(
    residuals: Residuals,
    quality: dict,
    path: np.ndarray,
    changes: list[dict],
    unit: str,
    title: str,
) -> Figure:
    """Draw how far the map may be trusted on the test.

    Args:
        residuals: of the test.
        quality: their summary, analysis.refits.quality.
        path: (K, 2) m, of the map.
        changes: where the field seems changed, with x and y in metres.
        unit: of the field, as displayed.
        title: of the figure.
    """
    figure = Figure(figsize=(12.0, 8.6), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(picture_text(title), fontsize=12)

    grid = figure.subplot_mosaic(
        [["pit", "map"], ["coverage", "map"], ["auto", "map"]], width_ratios=[1.0, 1.7]
    )

    _pit(grid["pit"], quality["pit"])
    _coverage(grid["coverage"], quality)
    _autocorrelation(grid["auto"], quality["autocorrelation"])
    _map(figure, grid["map"], residuals, path, changes, picture_text(unit))

    return lay_out(figure)


def _pit(axes, fractions) -> None:
    """Draw the histogram of the probability integral transform; fractions: of each bin."""
    n = len(fractions)
    # as a density: 1 everywhere where the predictions are right
    axes.bar((np.arange(n) + 0.5) / n, np.array(fractions) * n, 0.92 / n, color=_INK)
    axes.axhline(1.0, color="k", lw=1)
    axes.set_title("PIT: flat is right; hump: σ too large, bowl: too small", fontsize=11)
    axes.set(
        xlabel="where in its predicted range a measurement fell", ylabel="density", xlim=(0, 1)
    )


def _coverage(axes, quality: dict) -> None:
    """Draw how many measurements the intervals hold against how many they claim."""
    levels = 100 * np.array(LEVELS)
    held = [quality, *(band for band in quality["bands"].values() if band["n"])]
    lowest = 100 * min(v for part in held for v in part["coverage_levels"].values())

    axes.plot([40, 100], [40, 100], color="k", lw=1)
    axes.fill_between([40, 100], [37, 97], [43, 103], color=_GOOD, lw=0, label="within 3 %")
    axes.plot(
        levels,
        [100 * v for v in quality["coverage_levels"].values()],
        "o-",
        color=_INK,
        label="all",
    )

    for mark, (name, band) in zip("sv^", quality["bands"].items()):
        if band["n"]:
            axes.plot(
                levels,
                [100 * v for v in band["coverage_levels"].values()],
                mark,
                mfc="none",
                label=f"{name} m from path ({band['n']})",
            )

    axes.set(
        title="Fraction of measurements inside the intervals",
        xlabel="interval (%)",
        ylabel="inside (%)",
        xlim=(45, 101),
        ylim=(max(0, min(45, lowest - 3)), 102),
    )
    axes.legend(fontsize=7, loc="best")


def _autocorrelation(axes, values: dict[str, float]) -> None:
    """Draw the autocorrelation of error/σ; values: lag (s) as text -> correlation."""
    axes.axhline(0.0, color="k", lw=1)
    if values:
        lags = [float(k) for k in values]
        axes.plot(lags, list(values.values()), "o-", color=_INK)
        axes.set_xscale("log")
        axes.set_xticks(lags, list(values))
        axes.minorticks_off()

    axes.set(
        title="How long an error/σ persists",
        xlabel="lag (s)",
        ylabel="autocorrelation",
        ylim=(-0.4, 1.05),
    )


def _map(
    figure, axes, residuals: Residuals, path: np.ndarray, changes: list[dict], unit: str
) -> None:
    """Draw the errors where they were measured, the mapped path, and changed places."""
    step = max(1, len(residuals) // _DOTS)
    # a few gross errors would leave all others white
    limit = float(np.quantile(np.abs(residuals.error), 0.98)) or 1.0

    axes.plot(path[:, 0], path[:, 1], ".", color="#bbbbbb", ms=2, zorder=1, label="mapped here")
    dots = axes.scatter(
        *residuals.x[::step].T,
        c=residuals.error[::step],
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        s=9,
        zorder=2,
        lw=0,
    )

    if changes:
        axes.plot(
            [c["x"] for c in changes],
            [c["y"] for c in changes],
            "o",
            ms=15,
            mfc="none",
            mec="k",
            mew=1.8,
            ls="none",
            zorder=3,
            label="field seems changed",
        )

    axes.set(
        title="Measured minus predicted on the test", xlabel="x (m)", ylabel="y (m)", aspect="equal"
    )
    axes.legend(fontsize=8, loc="upper right")
    figure.colorbar(dots, ax=axes, label=f"error ({unit})", shrink=0.6, extend="both")

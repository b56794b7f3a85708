"""Encode the grid cells of a live map as a bounded image for the page of `gp-mapping view`."""

from __future__ import annotations

import json
import struct

import numpy as np

__all__ = ["MOST_CELLS", "UNKNOWN", "cell_size", "encode_map"]

MOST_CELLS = 512 * 512  # drawn at most: a larger map is averaged over squares of grid cells
UNKNOWN = 65535  # level of a grid cell without a value
_LAST = 65534  # level of the largest value


def cell_size(x: np.ndarray, y: np.ndarray) -> float:
    """Return the side of a grid cell (m) from centres in row order, as a field cloud has them.

    float32 blurs a single difference (at 1 km by 1 %), so that the whole extent counts, in whole
    cells. Where no two cells are neighbours, the side is 0.05 m.

    Args:
        x: (N,) m, centres of the known cells.
        y: (N,) m, of the same cells; equal within a row.
    """
    steps = np.diff(x)[np.diff(y) == 0.0]
    steps = steps[steps > 0.0]

    # no two cells in one row: the distance of rows counts
    if not len(steps):
        rows = np.unique(y)
        steps = np.diff(rows)
        if not len(steps):
            return 0.05

    first = float(np.median(steps))
    extent = float(x.max() - x.min())
    return extent / max(1.0, round(extent / first)) if extent >= first else first


def _levels(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return values as levels (uint16): low is 0, high is _LAST, what is not finite UNKNOWN."""
    scaled = np.rint((values - low) * (_LAST / (high - low)))
    return np.where(np.isfinite(values), np.clip(scaled, 0, _LAST), UNKNOWN).astype("<u2")


def encode_map(number: int, columns: dict[str, np.ndarray], limits, frame: str = "") -> bytes:
    """Encode a map for the page: header and two images, all little-endian.

    Length of the header (uint32), header (JSON), mean and stddev (H·W uint16 each), row 0 at the
    smallest y. A level stands for

        v = low + level · (high − low) / 65534        65535: unknown

    where the header's `ranges` hold low and high, the extremes of the values, of both images.

    Args:
        number: of the map; each new map has another one.
        columns: x, y (m), mean, stddev (SI) of the known grid cells, all finite.
        limits: of the colours: low and high of the mean, low and high of the stddev.
        frame: of the map.
    """
    x, y, mean, stddev = (columns[name] for name in ("x", "y", "mean", "stddev"))
    header: dict = {
        "number": number,
        "frame": frame,
        "limits": list(limits),
        "width": 0,
        "height": 0,
        "cells": 0,
        "resolution": 1.0,
        "origin": [0.0, 0.0],
        "every": 1,
        "ranges": [0.0, 1.0, 0.0, 1.0],
    }
    images = [np.empty(0, "<u2")] * 2

    if len(x):
        side = cell_size(x, y)
        left, bottom = float(x.min()) - side / 2, float(y.min()) - side / 2
        # as floats: places may lie so far apart that their indices fit no integer
        cell_columns, rows = (
            np.floor((x - left) / side),
            np.floor((y - bottom) / side),
        )
        width, height = float(cell_columns.max()) + 1, float(rows.max()) + 1

        # squares of factor × factor cells become one, so that the image keeps to its bound
        factor = max(
            1.0,
            np.ceil(np.sqrt(width * height / MOST_CELLS)),
            np.ceil(max(width, height) / MOST_CELLS),
        )
        while np.ceil(width / factor) * np.ceil(height / factor) > MOST_CELLS:
            factor = np.ceil(1.02 * factor)

        width, height = int(np.ceil(width / factor)), int(np.ceil(height / factor))
        row, column = (
            np.minimum(rows // factor, height - 1),
            np.minimum(cell_columns // factor, width - 1),
        )
        # mean of all cells that fall into one square
        index = (row * width + column).astype(np.int64)
        count = np.bincount(index, minlength=width * height)

        ranges = []
        for k, values in enumerate((mean, stddev)):
            with np.errstate(invalid="ignore"):
                image = (
                    np.bincount(index, values, width * height) / count
                )  # (H·W,), NaN where unknown
            low, high = float(values.min()), float(values.max())
            # a constant image still needs a range to divide by
            high = high if high > low else low + max(abs(low), 1.0) * 1e-9
            ranges += [low, high]
            images[k] = _levels(image, low, high)

        header |= {
            "width": width,
            "height": height,
            "resolution": side * factor,
            "origin": [left, bottom],
            "cells": len(x),
            "every": int(factor),
            "ranges": ranges,
        }

    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)  # the arrays begin at a multiple of their size
    return b"".join([struct.pack("<I", len(text)), text, *(image.tobytes() for image in images)])

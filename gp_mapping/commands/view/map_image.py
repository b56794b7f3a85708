"""The cells of a live map as a bounded image for the page of `gp-mapping view`."""

from __future__ import annotations

import json
import struct

import numpy as np

__all__ = ["MOST_CELLS", "UNKNOWN", "cell_size", "encode_map"]

MOST_CELLS = 512 * 512  # drawn at most: a larger map is averaged over squares of cells
UNKNOWN = 65535  # level of a cell without a value
_LAST = 65534


def cell_size(x: np.ndarray, y: np.ndarray) -> float:
    """Side of a cell (m) from centres in row order, as a field cloud has them; 0.05 where no two are neighbours.

    float32 blurs a single difference (at 1 km by 1 %), so the whole extent counts, in whole cells.
    """
    steps = np.diff(x)[np.diff(y) == 0.0]
    steps = steps[steps > 0.0]
    if not len(steps):
        rows = np.unique(y)
        steps = np.diff(rows)
        if not len(steps):
            return 0.05
    first = float(np.median(steps))
    extent = float(x.max() - x.min())
    return extent / max(1.0, round(extent / first)) if extent >= first else first


def _levels(values: np.ndarray, low: float, high: float) -> np.ndarray:
    scaled = np.rint((values - low) * (_LAST / (high - low)))
    return np.where(np.isfinite(values), np.clip(scaled, 0, _LAST), UNKNOWN).astype("<u2")


def encode_map(number: int, columns: dict[str, np.ndarray], limits, frame: str = "") -> bytes:
    """Length of the header (uint32), header (JSON), mean and stddev (H·W uint16 each), all little-endian.

    v = low + level · (high − low) / 65534, 65535 unknown; row 0 at the smallest y; the header's low and high are the
    extremes of the values, and `limits` (mean low, high, stddev low, high) are those of the colours.  columns: x, y
    (m), mean, stddev (SI) of the known cells, finite.
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
        columns_, rows = (
            np.floor((x - left) / side),
            np.floor((y - bottom) / side),
        )  # floats: bounded only below
        width, height = float(columns_.max()) + 1, float(rows.max()) + 1
        every = max(
            1.0,
            np.ceil(np.sqrt(width * height / MOST_CELLS)),
            np.ceil(max(width, height) / MOST_CELLS),
        )
        while np.ceil(width / every) * np.ceil(height / every) > MOST_CELLS:
            every = np.ceil(1.02 * every)
        width, height = int(np.ceil(width / every)), int(np.ceil(height / every))
        row, column = (
            np.minimum(rows // every, height - 1),
            np.minimum(columns_ // every, width - 1),
        )
        index = (row * width + column).astype(np.int64)
        count = np.bincount(index, minlength=width * height)
        ranges = []
        for k, values in enumerate((mean, stddev)):
            with np.errstate(invalid="ignore"):
                image = (
                    np.bincount(index, values, width * height) / count
                )  # (H·W,), NaN where unknown
            low, high = float(values.min()), float(values.max())
            high = high if high > low else low + max(abs(low), 1.0) * 1e-9
            ranges += [low, high]
            images[k] = _levels(image, low, high)
        header |= {
            "width": width,
            "height": height,
            "resolution": side * every,
            "origin": [left, bottom],
            "cells": len(x),
            "every": int(every),
            "ranges": ranges,
        }
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)  # the arrays begin at a multiple of their size
    return b"".join([struct.pack("<I", len(text)), text, *(image.tobytes() for image in images)])

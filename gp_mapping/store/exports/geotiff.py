"""A map as a GeoTIFF for geographic programs: two bands, mean and standard deviation, SI.

It is written block by block. Positions are metres east and north of the datum, and from there
longitude and latitude by an azimuthal equidistant projection about it, which keeps distances from
the datum.

Reference:
    Snyder 1987, "Map Projections: A Working Manual", USGS PP 1395, ch. 25.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from gp_mapping.errors import UsageError
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.earth import Datum
from gp_mapping.store.atomic import hold

__all__ = ["export_geotiff", "need_rasterio"]


def need_rasterio() -> None:
    """Say so where rasterio, which writes a GeoTIFF, is absent: before anything is done.

    Raises:
        UsageError: rasterio is not installed.
    """
    try:
        import rasterio  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "a GeoTIFF is written by rasterio, which is not installed; pip install rasterio"
        ) from error


def export_geotiff(
    path: Path,
    blocks: Iterable[tuple[tuple[int, int], FieldGrid]],
    indices: list[tuple[int, int]],
    cells: int,
    resolution: float,
    datum: Datum | None,
    what: str,
) -> int:
    """Write blocks into one file, in which blocks without data take no room.

    Args:
        path: of the file.
        blocks: column and row of each, and its grid.
        indices: column and row of all blocks that may come.
        cells: grid cells along a side of a block.
        resolution: side of a grid cell, m.
        datum: None: coordinates are metres of the map's frame.
        what: the quantity and its unit, for the bands.

    Returns:
        How many blocks were written.

    Raises:
        UsageError: rasterio is not installed.
    """
    need_rasterio()
    import rasterio
    from rasterio.windows import Window

    columns, rows = ([index[axis] for index in indices] for axis in (0, 1))
    left, top = min(columns), max(rows) + 1
    width, height = (max(columns) + 1 - left) * cells, (top - min(rows)) * cells

    # from column and row of a pixel to x and y; rows go down from the top
    transform = rasterio.Affine(
        resolution, 0.0, left * cells * resolution, 0.0, -resolution, top * cells * resolution
    )

    crs = None
    # block axes are the map's; its heading turns them to east and north
    if datum is not None:
        transform = rasterio.Affine.rotation(math.degrees(datum.heading)) * transform
        crs = (
            f"+proj=aeqd +lat_0={datum.latitude!r} +lon_0={datum.longitude!r} +datum=WGS84 +units=m"
        )

    temporary, written = path.with_name(f".{path.name}.{os.getpid()}.partial"), 0
    with ExitStack() as ended:
        ended.callback(temporary.unlink, missing_ok=True)
        with rasterio.open(
            temporary,
            "w",
            driver="GTiff",
            width=width,
            height=height,
            count=2,
            dtype="float32",
            crs=crs,
            transform=transform,
            nodata=float("nan"),
            tiled=True,
            blockxsize=256,
            blockysize=256,
            compress="deflate",
            predictor=3,
            sparse_ok=True,
            bigtiff="IF_SAFER",
        ) as file:
            hold(ended.enter_context(temporary.open("rb")).fileno())

            for band, name in enumerate(("mean", "standard deviation"), 1):
                file.set_band_description(band, f"{name} of the {what}, SI")

            for (i, j), grid in blocks:
                window = Window((i - left) * cells, (top - 1 - j) * cells, cells, cells)
                known = grid.known.numpy()
                for band, values in enumerate((grid.mean, grid.stddev), 1):
                    file.write(
                        np.where(known, values.numpy(), np.nan)[::-1].astype(np.float32),
                        band,
                        window=window,
                    )
                written += 1
        os.replace(temporary, path)
    return written

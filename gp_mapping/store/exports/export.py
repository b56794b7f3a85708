"""A map for other programs: npz for Python, yaml + pgm for map_server, a picture for people.

Not for resuming.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import numpy as np

from gp_mapping.mapping.atlas import overview
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.levels import Limits, field_limits
from gp_mapping.store.atomic import write_atomic
from gp_mapping.store.exports.map_server import export_map_server
from gp_mapping.store.exports.picture import draw_map
from gp_mapping.store.marks import with_nulls
from gp_mapping.store.wording import quantity, unit_text

__all__ = ["export_all", "export_npz"]


def export_npz(path, session, grid: FieldGrid, suggestions=None, map_id: str = "") -> Path:
    """Write a map as arrays, SI.

    The grid (mean, stddev, known, origin, resolution), x and y of its columns and rows, path and
    inducing inputs. Of a map of several components also mean_x, stddev_x, …; mean and stddev are
    those of their norm. Of classes also class, the most likely one, to which mean and stddev
    belong, and mean_0, stddev_0, … of each. `quantity` says what mean is.

    Args:
        path: of the file.
        session: holds the map.
        grid: of the map.
        suggestions: things with x, y, score.
        map_id: of the checkpoint that it belongs to.
    """
    height, width = grid.shape
    arrays = {
        "known": grid.known.numpy(),
        "origin": np.array(grid.origin, np.float64),
        "resolution": np.float64(grid.resolution),
        "x": grid.origin[0] + (np.arange(width) + 0.5) * grid.resolution,
        "y": grid.origin[1] + (np.arange(height) + 0.5) * grid.resolution,
        "noise_stddev": np.float64(grid.noise_stddev),
        "path": session.path.numpy(),
        "path_starts": session.path_starts.numpy(),
        "inducing": session.inducing.numpy(),
        "memory": session.memory.numpy(),
        "quantity": np.array(quantity(session.settings)),
        "map_id": np.array(map_id),
        "report": np.array(json.dumps(with_nulls(session.report()), allow_nan=False)),
        "field_scale": np.float64(session.settings.field_scale),
        "field_unit": np.array(session.settings.field_unit),
    }

    arrays |= {name: values.numpy() for name, values in grid.layers.items()}
    if suggestions is not None:
        arrays["suggestions"] = np.array(
            [[s.x, s.y, s.score] for s in suggestions], np.float64
        ).reshape(-1, 3)

    # in memory first, so that the file is written in one piece
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)
    return write_atomic(path, buffer.getvalue())


def export_all(
    session, directory, suggestions=None, truth=None, map_id: str = ""
) -> dict[str, Path]:
    """Write every export of a session's map into a folder, which is made where it is missing.

    Args:
        session: holds the map.
        directory: of the exports.
        suggestions: things with x, y, score.
        truth: the field (H, W) on the grid, or a function of (N, 2) metres, SI; the picture then
            also shows it, and the error of the map.
        map_id: of the checkpoint that they belong to; each says it.

    Returns:
        Name -> path.

    Raises:
        ValueError: the map has no samples.
        OSError: the folder cannot be written.
    """
    if session.report()["cells"] == 0:
        raise ValueError(
            "the map is empty, no measurement has reached it; there is nothing to export"
        )

    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)

    grid = session.render()
    unit = unit_text(session.settings.field_unit)
    paths = {"npz": export_npz(directory / "map.npz", session, grid, suggestions, map_id)}

    shown = quantity(session.settings)
    # a map without known cells has no limits
    ends = field_limits(grid) or Limits(0.0, 1.0, 0.0, 1.0)
    for name, values, limits, what in (
        ("mean", grid.mean, ends[:2], f"mean of the {shown}"),
        ("stddev", grid.stddev, ends[2:], f"standard deviation of the {shown}"),
    ):
        what = f"{what} (one {unit} is {session.settings.field_scale!r} in SI)"
        paths[f"{name}_yaml"], paths[f"{name}_pgm"] = export_map_server(
            directory / name, values, grid, limits, what, map_id
        )

    paths |= _export_overview(session, directory, shown, unit, map_id)

    picture = BytesIO()
    draw_map(session, grid, suggestions=suggestions, truth=truth).savefig(
        picture, format="png", metadata={"Description": f"map: {map_id}"} if map_id else None
    )
    paths["png"] = write_atomic(directory / "map.png", picture.getvalue())
    return paths


def _export_overview(
    session, directory: Path, shown: str, unit: str, map_id: str
) -> dict[str, Path]:
    """Write all of the map, coarser, where the grid is only a part of it.

    Names are overview_mean and overview_stddev; those of an older map are removed where there is
    none.

    Args:
        session: holds the map.
        directory: of the exports.
        shown: quantity of the mean, in words.
        unit: of the display, in words.
        map_id: of the checkpoint that they belong to.
    """
    grid, paths = overview(session), {}

    if grid is None:
        for name in ("mean", "stddev"):  # of an older map in this folder
            for ending in (".yaml", ".pgm"):
                (directory / f"overview_{name}{ending}").unlink(missing_ok=True)
        return paths

    ends = field_limits(grid) or Limits(0.0, 1.0, 0.0, 1.0)
    for name, values, limits, what in (
        ("mean", grid.mean, ends[:2], "mean"),
        ("stddev", grid.stddev, ends[2:], "standard deviation"),
    ):
        what = (
            f"{what} of the {shown} at the middles of cells of {grid.resolution:g} m, an overview of all ground "
            f"(one {unit} is {session.settings.field_scale!r} in SI)"
        )
        paths[f"overview_{name}_yaml"], paths[f"overview_{name}_pgm"] = export_map_server(
            directory / f"overview_{name}", values, grid, limits, what, map_id
        )

    return paths

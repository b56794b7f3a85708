"""A map for other programs: npz for Python, yaml + pgm for map_server, a picture for people. Not for resuming."""

from __future__ import annotations

import json
import os
from io import BytesIO
from pathlib import Path

import numpy as np

from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.store.picture import draw_map, quantity, unit_text

__all__ = ["UNKNOWN", "export_all", "export_map_server", "export_npz", "to_levels", "write_atomic"]

UNKNOWN = 255  # in a pgm of mode raw, map_server takes what is above 100 for unknown
_LOWEST, _HIGHEST = 1, 98  # 0, 99 and 100 have colours of their own in RViz


def write_atomic(path: Path, data: bytes) -> Path:
    """Write data under its name in one piece."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def to_levels(values: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Values as 1…98, 255 where unknown: (H, W) uint8, and the values that 1 and 98 stand for."""
    if not known.any():
        return np.full(values.shape, UNKNOWN, np.uint8), 0.0, 0.0
    low, high = float(values[known].min()), float(values[known].max())
    span = high - low if high > low else 1.0
    levels = np.rint(_LOWEST + (values - low) / span * (_HIGHEST - _LOWEST)).clip(_LOWEST, _HIGHEST)
    return np.where(known, levels, UNKNOWN).astype(np.uint8), low, high


def export_map_server(path, values, grid: FieldGrid, what: str) -> tuple[Path, Path]:
    """path.yaml and path.pgm as nav2's map_server reads them (mode raw); limits are in the yaml's comments.

    values: (H, W) SI, row 0 at the smallest y. In the picture the first row is at the largest y.
    """
    path = Path(path)
    levels, low, high = to_levels(np.asarray(values), grid.known.numpy())
    height, width = levels.shape
    image = write_atomic(path.with_suffix(".pgm"), f"P5\n{width} {height}\n255\n".encode() + levels[::-1].tobytes())
    text = (f"# {what}, SI units: value = {low!r} + (pixel - {_LOWEST}) / {_HIGHEST - _LOWEST} * {high - low!r}\n"
            f"# pixel {_LOWEST} = {low!r}\n# pixel {_HIGHEST} = {high!r}\n# pixel {UNKNOWN} = unknown\n"
            f"image: {image.name}\nmode: raw\nresolution: {grid.resolution!r}\n"
            f"origin: [{round(float(grid.origin[0]), 9)!r}, {round(float(grid.origin[1]), 9)!r}, 0.0]\n"
            "negate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.25\n")
    return write_atomic(path.with_suffix(".yaml"), text.encode()), image


def export_npz(path, session, grid: FieldGrid, suggestions=None) -> Path:
    """Grid (mean, stddev, known, origin, resolution), x and y of the columns and rows, path, inducing inputs; SI.

    Of a map of several components also mean_x, stddev_x, …; mean and stddev are of their norm. Of classes also class,
    the most likely one, of which mean and stddev are, and mean_0, stddev_0, … of each. `quantity` says what mean is.
    """
    height, width = grid.shape
    arrays = {
        "known": grid.known.numpy(),
        "origin": np.array(grid.origin, np.float64), "resolution": np.float64(grid.resolution),
        "x": grid.origin[0] + (np.arange(width) + 0.5) * grid.resolution,
        "y": grid.origin[1] + (np.arange(height) + 0.5) * grid.resolution,
        "noise_stddev": np.float64(grid.noise_stddev), "path": session.path.numpy(),
        "path_starts": session.path_starts.numpy(),
        "inducing": session.inducing.numpy(), "memory": session.memory.numpy(),
        "quantity": np.array(quantity(session.settings)),
        "report": np.array(json.dumps(session.report())),
        "field_scale": np.float64(session.settings.field_scale), "field_unit": np.array(session.settings.field_unit),
    }
    arrays |= {name: values.numpy() for name, values in grid.layers.items()}
    if suggestions is not None:
        arrays["suggestions"] = np.array([[s.x, s.y, s.score] for s in suggestions], np.float64).reshape(-1, 3)
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)
    return write_atomic(path, buffer.getvalue())


def export_all(session, directory, suggestions=None, truth=None) -> dict[str, Path]:
    """Every export of a session's map into a folder, which is made where it is missing; name -> path.

    suggestions: things with x, y, score.  truth: the field (H, W) on the grid, or a function of (N, 2) metres, SI; the
    picture then shows it and the error beside the map.
    Raises ValueError for a map that has seen nothing, OSError where the folder cannot be written.
    """
    if session.report()["cells"] == 0:
        raise ValueError("the map is empty, no measurement has reached it; there is nothing to export")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    grid = session.render()
    unit = unit_text(session.settings.field_unit)
    paths = {"npz": export_npz(directory / "map.npz", session, grid, suggestions)}
    shown = quantity(session.settings)
    for name, values, what in (("mean", grid.mean, f"mean of the {shown}"),
                               ("stddev", grid.stddev, f"standard deviation of the {shown}")):
        what = f"{what} (one {unit} is {session.settings.field_scale!r} in SI)"
        paths[f"{name}_yaml"], paths[f"{name}_pgm"] = export_map_server(directory / name, values, grid, what)
    picture = BytesIO()
    draw_map(session, grid, suggestions=suggestions, truth=truth).savefig(picture, format="png")
    paths["png"] = write_atomic(directory / "map.png", picture.getvalue())
    return paths

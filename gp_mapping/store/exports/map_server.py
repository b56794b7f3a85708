"""The files of nav2's map_server, a yaml and the picture that it names: maps out, free space in."""

from __future__ import annotations

import math
import warnings
from array import array
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import yaml
from PIL import Image

from gp_mapping.errors import UsageError, named, one_line
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.levels import HIGHEST, LOWEST, levels
from gp_mapping.store.atomic import write_atomic

__all__ = ["UNKNOWN", "OccupancyFile", "export_map_server", "read_map_server"]

_LARGEST = 100_000  # bytes of the yaml
_PICTURES = ("PPM", "PNG", "BMP")  # the first one has pgm, too
_SIXTEEN_BITS = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # modes of Pillow
_FREE, _OCCUPIED, _UNKNOWN = 0, 100, -1  # of nav_msgs/OccupancyGrid
# what map_server takes where the file does not say
_DEFAULTS = {"mode": "trinary", "negate": 0, "free_thresh": 0.25, "occupied_thresh": 0.65}
_MODES = ("trinary", "scale", "raw")
# in a pgm of mode raw, map_server takes what is above 100 for unknown: −1 of int8 as it is
UNKNOWN = 255


def export_map_server(
    path, values, grid: FieldGrid, limits: tuple[float, float], what: str, map_id: str = ""
) -> tuple[Path, Path]:
    """Write path.yaml and path.pgm as nav2's map_server reads them (mode raw).

    The limits are in the yaml's comments. In the picture the first row is at the largest y.

    Args:
        path: without ending.
        values: (H, W) SI, row 0 at the smallest y.
        grid: where they are, and which are known.
        limits: the values that 1 and 98 stand for, SI; those of the live topics, so that both have
            the same colours.
        what: the quantity, in words.
        map_id: of the checkpoint that it belongs to.

    Returns:
        The paths of yaml and pgm.
    """
    path, (low, high) = Path(path), limits
    # int8 of the live topics as unsigned bytes: −1 becomes 255
    cells = levels(np.asarray(values), grid.known.numpy(), low, high).view(np.uint8)
    height, width = cells.shape

    image = write_atomic(
        path.with_suffix(".pgm"), f"P5\n{width} {height}\n255\n".encode() + cells[::-1].tobytes()
    )

    belongs = f"# map: {map_id}\n" if map_id else ""
    text = (
        f"# {what}, SI units: value = {low!r} + (pixel - {LOWEST}) / {HIGHEST - LOWEST} * {high - low!r}\n"
        f"# pixel {LOWEST} = {low!r}\n# pixel {HIGHEST} = {high!r}\n# pixel {UNKNOWN} = unknown\n{belongs}"
        f"image: {image.name}\nmode: raw\nresolution: {grid.resolution!r}\n"
        f"origin: [{round(float(grid.origin[0]), 9)!r}, {round(float(grid.origin[1]), 9)!r}, 0.0]\n"
        "negate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.25\n"
    )

    return write_atomic(path.with_suffix(".yaml"), text.encode()), image


@dataclass(frozen=True)
class OccupancyFile:
    """What map_server would publish of a file, as the fields of nav_msgs/OccupancyGrid.

    Attributes:
        cells: (H, W) int8, row 0 at the origin; 0 free, 100 occupied, −1 unknown, or between.
        resolution: m, side of a cell.
        origin: x, y (m) and yaw (rad) of the corner of cell (0, 0).
    """

    cells: np.ndarray
    resolution: float
    origin: tuple[float, float, float]

    @property
    def header(self) -> SimpleNamespace:
        """No frame: the file names none."""
        return SimpleNamespace(frame_id="")

    @property
    def info(self) -> SimpleNamespace:
        """Size, resolution and origin."""
        x, y, yaw = self.origin
        turn = SimpleNamespace(x=0.0, y=0.0, z=math.sin(yaw / 2.0), w=math.cos(yaw / 2.0))
        return SimpleNamespace(
            width=self.cells.shape[1],
            height=self.cells.shape[0],
            resolution=self.resolution,
            origin=SimpleNamespace(position=SimpleNamespace(x=x, y=y, z=0.0), orientation=turn),
        )

    @property
    def data(self) -> array:
        """The cells row by row."""
        return array("b", self.cells.tobytes())

    def corners(self) -> np.ndarray:
        """Return the corners of the grid in order, (4, 2) m."""
        x, y, yaw = self.origin
        height, width = self.cells.shape
        u, v = self.resolution * np.array([[0, 0], [width, 0], [width, height], [0, height]]).T
        cos, sin = math.cos(yaw), math.sin(yaw)
        return np.stack([x + cos * u - sin * v, y + sin * u + cos * v], 1)


def read_map_server(path) -> OccupancyFile:
    """Read a yaml and its picture (pgm, png or bmp) as nav2's map_server does.

    A pixel of brightness s is occupied to p = 1 − s, with `negate` to p = s. Modes: trinary makes
    what is above occupied_thresh occupied, below free_thresh free, and the rest unknown; scale puts
    the rest between 0 and 100; raw takes the pixel itself.

    Args:
        path: of the yaml.

    Raises:
        UsageError: a file is missing, or is not what map_server reads; one sentence with its name.
    """
    path = Path(path)
    content = _content(path)
    for name in ("image", "resolution", "origin"):
        if name not in content:
            raise UsageError(
                f"{path}: it has no {name!r}; expected a map_server file: image, resolution, origin"
            )

    resolution = _number(path, content, "resolution")
    if not 1e-3 <= resolution <= 1e3:
        raise UsageError(f"{path}: resolution is {resolution:g}, expected 0.001 to 1000 metres")
    origin = content["origin"]
    if not isinstance(origin, list) or len(origin) != 3:
        raise UsageError(
            f"{path}: origin is {named(origin)}, expected [x, y, yaw] in metres and radians"
        )
    x, y, yaw = (_number(path, {"origin": value}, "origin") for value in origin)

    image = path.parent / str(content["image"])  # an absolute one stays as it is
    cells = _cells(path, content, *_brightness(image))
    # in the picture the first row is at the largest y
    return OccupancyFile(np.ascontiguousarray(cells[::-1]), resolution, (x, y, yaw))


def _content(path: Path) -> dict:
    """Return the names and values of the yaml, those that it leaves out included."""
    _check_regular(path)
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(text) > _LARGEST:
        raise UsageError(f"{path}: larger than {_LARGEST} bytes, expected the yaml of a picture")

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a YAML file ({one_line(error, 200)})") from error
    if not isinstance(content, dict):
        raise UsageError(
            f"{path}: no names and values; expected a map_server file: image, resolution, origin"
        )
    return _DEFAULTS | content


def _check_regular(path: Path) -> None:
    """Raise UsageError for a folder, a device or a pipe, which would be waited for."""
    if path.exists() and not path.is_file():
        raise UsageError(
            f"{path}: not a regular file, expected the yaml of a map_server file, or its picture"
        )


def _number(path: Path, content: dict, name: str) -> float:
    """Return a value of the yaml as a finite number; 1e-2 is a text to PyYAML."""
    value = content[name]
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{path}: {name} is {named(value)}, expected a finite number")
    return number


def _brightness(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the brightness (H, W) of a picture, 0 to 1, and its opacity; None: it has none."""
    _check_regular(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=_PICTURES) as picture:
                picture.load()
                if picture.mode in _SIXTEEN_BITS:
                    return np.asarray(picture, np.float64) / 65535.0, None
                if picture.mode in ("1", "L") and "transparency" not in picture.info:
                    return np.asarray(picture.convert("L"), np.float64) / 255.0, None
                clear = "A" in picture.getbands() or "transparency" in picture.info
                pixels = np.asarray(picture.convert("RGBA"), np.float64) / 255.0
    except OSError as error:  # one that is no picture, or ends too early, included
        raise UsageError(
            f"{path}: the picture cannot be read ({one_line(error.strerror or error, 200)})"
        ) from error
    except (
        ValueError,
        SyntaxError,
        Image.DecompressionBombWarning,
        Image.DecompressionBombError,
    ) as error:
        raise UsageError(f"{path}: the picture cannot be read ({one_line(error, 200)})") from error
    return pixels[..., :3].mean(-1), pixels[..., 3] if clear else None


def _cells(
    path: Path, content: dict, brightness: np.ndarray, opacity: np.ndarray | None
) -> np.ndarray:
    """Return the cells (H, W) int8 of a picture, by the mode of its yaml."""
    mode = content["mode"]
    if mode not in _MODES:
        raise UsageError(f"{path}: mode is {named(mode)}, expected one of {', '.join(_MODES)}")
    negate = _number(path, content, "negate")
    if negate not in (0.0, 1.0):
        raise UsageError(f"{path}: negate is {negate:g}, expected 0 or 1")

    if mode == "raw":
        pixels = np.rint(brightness * 255.0)
        return np.where(pixels <= _OCCUPIED, pixels, _UNKNOWN).astype(np.int8)

    free, occupied = (_number(path, content, name) for name in ("free_thresh", "occupied_thresh"))
    if not 0.0 <= free < occupied <= 1.0:
        raise UsageError(
            f"{path}: free_thresh {free:g} and occupied_thresh {occupied:g}, expected 0 <= "
            "free_thresh < occupied_thresh <= 1"
        )
    if mode == "trinary" and opacity is not None:
        brightness = (3.0 * brightness + opacity) / 4.0  # map_server counts it as a fourth colour
    occupancy = brightness if negate else 1.0 - brightness
    between = np.full(brightness.shape, float(_UNKNOWN))
    if mode == "scale":
        between = np.rint((occupancy - free) / (occupied - free) * 100.0)
    cells = np.select([occupancy > occupied, occupancy < free], [_OCCUPIED, _FREE], between)
    if mode == "scale" and opacity is not None:
        cells[opacity < 1.0] = _UNKNOWN
    return cells.astype(np.int8)

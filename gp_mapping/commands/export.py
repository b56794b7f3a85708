"""`gp-mapping export DIR_or_checkpoint`: all of a saved map at full resolution.

It is written for map_server, or as one GeoTIFF.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from gp_mapping.commands.datum import datum_of
from gp_mapping.commands.output import folder_to_write
from gp_mapping.commands.saved import checkpoint_in, open_session
from gp_mapping.errors import UsageError
from gp_mapping.mapping.atlas import blocks, ground, overview
from gp_mapping.mapping.drawing.blocks import block_indices
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.levels import Limits, field_limits
from gp_mapping.mapping.earth import Datum
from gp_mapping.mapping.session import MapSession
from gp_mapping.store.exports.geotiff import export_geotiff, need_rasterio
from gp_mapping.store.exports.map_server import export_map_server
from gp_mapping.store.trial import errors_about
from gp_mapping.store.wording import quantity

__all__ = ["BLOCK_CELLS", "run", "write_blocks"]

BLOCK_CELLS = 512  # grid cells along a side of a block
_BLOCK = re.compile(r"(mean|stddev)_-?\d+_-?\d+\.(yaml|pgm)")  # names of a block's files


def run(args: argparse.Namespace) -> int:
    """Load the map, draw it block by block, print where it is; returns the exit code.

    Raises:
        UsageError: the map is empty, nothing of it is known at this resolution, --datum is given
            for another format, rasterio is needed and absent, or the output cannot be written.
    """
    checkpoint, output = checkpoint_in(args.map), folder_to_write(args.output)
    if args.datum is not None and args.format != "geotiff":
        raise UsageError(
            "--datum has a meaning for --format geotiff only; map_server's files are in the map's frame"
        )

    session = open_session(
        checkpoint, **({} if args.resolution is None else {"resolution": args.resolution})
    )
    if session.report()["cells"] == 0:
        raise UsageError(f"{checkpoint}: the map is empty, no measurement has reached it")

    datum, datum_line = None, ""
    if args.format == "geotiff":
        datum, datum_line = datum_of(
            args.datum, session.about, args.fix_topic, session.fixes, args.odometry_topic
        )
    if datum_line:
        print(datum_line)
    if args.format == "geotiff":
        need_rasterio()

    try:
        output.mkdir(parents=True, exist_ok=True)
        with errors_about(checkpoint):
            count, text = (
                _geotiff(session, output, datum)
                if args.format == "geotiff"
                else _map_server(session, output)
            )
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror or error})") from error

    if not count:
        raise UsageError(
            f"nothing is written: with cells of {session.settings.resolution:g} m none of the map is known; write a "
            "smaller --resolution"
        )
    print(text)
    # what the map itself reports, such as a tile that could not be read
    for note in session.map.notes():
        print(f"warning: {note}")
    return 0


def _map_server(session: MapSession, output: Path) -> tuple[int, str]:
    """Write the blocks for map_server; returns how many, and the line to print."""
    count = write_blocks(session, blocks(session, BLOCK_CELLS), output)
    side = BLOCK_CELLS * session.settings.resolution
    return (
        count,
        f"{count} blocks of {side:g} m with cells of {session.settings.resolution:g} m in {output}",
    )


def write_blocks(
    session: MapSession, drawn: Iterable[tuple[tuple[int, int], FieldGrid]], output: Path
) -> int:
    """Write blocks of a map as yaml and pgm for map_server, two pairs each: mean and stddev.

    Blocks of another map in the folder go: of both together map_server would make one that is
    neither, and their grey levels stand for other values.

    Args:
        session: the map, whose overview sets the limits of the grey levels.
        drawn: column and row of each block, and its grid.
        output: folder of the files, mean_COLUMN_ROW and stddev_COLUMN_ROW.

    Returns:
        How many blocks were written.
    """
    # all blocks share the limits of the whole map: one grey level means one value everywhere
    whole = overview(session) or session.render()
    limits_of_map = field_limits(whole) or Limits(0.0, 1.0, 0.0, 1.0)

    shown, count = quantity(session.settings), 0
    for (i, j), grid in drawn:
        if not count:
            _remove_blocks(output)
        for name, values, limits, statistic in (
            ("mean", grid.mean, limits_of_map[:2], "mean"),
            ("stddev", grid.stddev, limits_of_map[2:], "standard deviation"),
        ):
            export_map_server(
                output / f"{name}_{i}_{j}", values, grid, limits, f"{statistic} of the {shown}"
            )
        count += 1
    return count


def _remove_blocks(folder: Path) -> None:
    """Remove what an earlier `write_blocks` has written there, and nothing else."""
    for path in folder.iterdir():
        if _BLOCK.fullmatch(path.name):
            path.unlink()


def _geotiff(session: MapSession, output: Path, datum: Datum | None) -> tuple[int, str]:
    """Write map.tif, without a datum in the map's own coordinates; returns as `_map_server`."""
    s = session.settings
    indices = block_indices(ground(session), BLOCK_CELLS * s.resolution, s.margin)
    count = export_geotiff(
        output / "map.tif",
        blocks(session, BLOCK_CELLS),
        indices,
        BLOCK_CELLS,
        s.resolution,
        datum,
        quantity(s),
    )
    return (
        count,
        f"{output / 'map.tif'}: {count} blocks of {BLOCK_CELLS * s.resolution:g} m with cells of {s.resolution:g} m",
    )

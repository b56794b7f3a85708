"""Sums of tiles in files of the run, so that a worker that dies does not take them away.

They are of all bags, the work of minutes, and are needed until the end. Where a folder for them is
there, the step that closes a tile's sums writes them, and all later steps have them from the file.
"""

from __future__ import annotations

import pickle
from operator import itemgetter
from pathlib import Path

from torch import Tensor

from gp_mapping.core.hyper.bias import BiasSpread
from gp_mapping.core.models.tiled.layout import Key
from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.sums import Tile, TileSums
from gp_mapping.fleet.tiles import bias_of
from gp_mapping.store.atomic import open_atomic

__all__ = ["bias_kept", "from_files"]


def bias_kept(total: TileSums, z: Tensor, agreed: Agreed, keep: str, key: Key) -> BiasSpread | None:
    """What bias_of says of a tile, whose sums are kept from then on.

    Args:
        total: sums of all bags.
        z: (M, 2) inducing inputs, inner.
        agreed: by all bags.
        keep: folder of the run; '' to keep nothing.
        key: of the tile.
    """
    if keep:
        with open_atomic(_file(keep, key)) as file:
            pickle.dump((z, total), file, protocol=pickle.HIGHEST_PROTOCOL)
    return bias_of(total, z, agreed)


def from_files(engine: Engine, keep: str, sums: dict[Tile, tuple]) -> dict[Tile, tuple]:
    """The same sums, by steps that read what was kept.

    What made them is no longer needed then, and is never made again.

    Args:
        engine: of the steps.
        keep: folder of the run; '' where nothing is kept, and they stay as they are.
        sums: of each tile a handle of its z, one of the sums of all bags, and the indices of bags.
    """
    if not keep:
        return sums

    read = {tile: engine.step("kept", _read, _file(keep, tile.key)) for tile in sums}
    return {
        tile: (
            engine.step("kept_inputs", itemgetter(0), read[tile]),
            engine.step("kept_sum", itemgetter(1), read[tile]),
            which,
        )
        for tile, (_, _, which) in sums.items()
    }


def _file(keep: str, key: Key) -> Path:
    """The file of a tile."""
    return Path(keep) / f"{key[0]}_{key[1]}.sums"


def _read(file: Path) -> tuple[Tensor, TileSums]:
    """Inducing inputs and sums of a tile, from a file that this run has written."""
    with file.open("rb") as opened:
        return pickle.load(opened)

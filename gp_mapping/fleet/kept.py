"""Sums of a tree in files of the run, so that a worker that dies takes little of them away.

A sum over the bags of a tile is the work of minutes. Its parts are kept as they grow, and what is
below a part that is kept is not made again: Dask asks for it anew, but gets nothing, at once.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from gp_mapping.core.models.tiled.layout import Key
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.constants import evidence_of
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.sums import Tile
from gp_mapping.store.atomic import open_atomic

__all__ = ["Part", "evidence_kept", "from_files", "kept_tree", "sums_file", "value_of"]

_PERIOD = 1.0  # s of processor that may be lost with a worker, for each sum that it works on


@dataclass(frozen=True)
class Part:
    """A part of a sum.

    Attributes:
        value: of it; None where a part that contains it is in a file already.
        seconds: s of processor that are lost where this part is.
        files: in which the rest of it is kept.
    """

    value: Any
    seconds: float = 0.0
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where a part stands in its tree, as Engine.tree forms it.

    Attributes:
        stem: path that the files of this tree begin with.
        bags: leaves of the tree.
        level: joins above a leaf.
        index: of the part, at its level.
        closed: a file that is there when nothing of the tree is needed any more; None for none.
    """

    stem: Path
    bags: int
    level: int
    index: int
    closed: Path | None

    def files(self) -> list[Path]:
        """The file of this part, then those of parts that contain it, each after what it contains.

        A file is removed only when a later one of these is there: who looks in this order finds
        one, once there is one.
        """
        files, level, index = [], self.level, self.index
        while True:
            first, end = index << level, min((index + 1) << level, self.bags)
            file = self.stem.with_name(f"{self.stem.name}.{first}-{end}")
            # a part without a partner is the same one level further up
            if file not in files:
                files.append(file)
            if end - first == self.bags:
                return files if self.closed is None else [*files, self.closed]
            level, index = level + 1, index // 2


def kept_tree(
    engine: Engine,
    name: str,
    leaves: list[tuple],
    join: tuple[str, Callable],
    stem: Path | None,
    closed: Path | None = None,
) -> Any:
    """A handle of the Part that is all leaves joined, as by Engine.tree.

    Args:
        engine: of the steps.
        name: of the steps that make leaves.
        leaves: (call, *arguments) of each.
        join: name of the steps that join two, and what joins their values.
        stem: path that the files of this tree begin with; None to keep nothing.
        closed: a file that somebody writes when nothing of the tree is needed any more, and
            never removes; None for none.
    """

    def place(level: int, index: int) -> _Place | None:
        """Place of a part in the tree.

        Args:
            level: 0 for leaves.
            index: of the part at its level.
        """
        return None if stem is None else _Place(stem, len(leaves), level, index, closed)

    handles = [engine.step(name, _part, place(0, i), *leaf) for i, leaf in enumerate(leaves)]
    level = 0
    while len(handles) > 1:
        level += 1
        joined = [
            engine.step(join[0], _part, place(level, i), join[1], *pair)
            for i, pair in enumerate(zip(handles[::2], handles[1::2]))
        ]
        handles = joined + (handles[-1:] if len(handles) % 2 else [])
    return handles[0]


def _part(place: _Place | None, call: Callable, *arguments) -> Part:
    """The part call(*arguments), or what is kept of it.

    Args:
        place: of the part; None to keep nothing.
        call: makes it, from values.
        arguments: values, or parts.
    """
    files = [] if place is None else place.files()
    for number, file in enumerate(files):
        # the file may be gone the next moment, for a later one
        with suppress(FileNotFoundError):
            if number:
                file.stat()
                return Part(None)
            return Part(_read(file), 0.0, (file,))

    began = time.thread_time()
    parts = [each for each in arguments if isinstance(each, Part)]
    value = call(*(each.value if isinstance(each, Part) else each for each in arguments))
    seconds = sum(part.seconds for part in parts) + time.thread_time() - began
    part = Part(value, seconds, tuple(file for part in parts for file in part.files))
    if not files or seconds < _PERIOD:
        return part

    # a full disk costs the file, not the step
    with suppress(OSError):
        _write(files[0], value)
        _remove_files(part)
        return Part(value, 0.0, (files[0],))
    return part


def _remove_files(part: Part) -> None:
    """Remove the files of a part, since a file that contains it is there."""
    for file in part.files:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def value_of(part: Part) -> Any:
    """The value of a part."""
    return part.value


def evidence_kept(
    total: Part, z: Part, agreed: Agreed, keep: str, tile: Tile
) -> PassEvidence | None:
    """What evidence_of says of a tile, whose sums are kept from then on.

    Args:
        total: sums of all bags.
        z: (M, 2) inducing inputs, inner.
        agreed: by all bags.
        keep: folder of the run; '' to keep nothing.
        tile: the tile.
    """
    if not keep:
        return evidence_of(tile, total.value, z.value, agreed)

    file = sums_file(keep, tile.key)
    if not file.is_file():
        _write(file, (z.value, total.value))
        for part in (z, total):
            _remove_files(part)
    inputs, sums = _read(file)
    return evidence_of(tile, sums, inputs, agreed)


def from_files(engine: Engine, keep: str, sums: dict[Tile, tuple]) -> dict[Tile, tuple]:
    """The same sums, by steps that read what was kept.

    What made them is no longer needed then, and is never made again.

    Args:
        engine: of the steps.
        keep: folder of the run; '' where nothing is kept, and they stay where they are.
        sums: of each tile a handle of its z, one of the Part that is the sums of all bags, and the
            indices of bags.

    Returns:
        Of each tile a handle of its z, one of the sums of all bags, and the indices of bags.
    """
    if not keep:
        return {
            tile: (z, engine.step("total", value_of, total), which)
            for tile, (z, total, which) in sums.items()
        }

    read = {tile: engine.step("kept", _read, sums_file(keep, tile.key)) for tile in sums}
    return {
        tile: (
            engine.step("kept_inputs", itemgetter(0), read[tile]),
            engine.step("kept_sum", itemgetter(1), read[tile]),
            which,
        )
        for tile, (_, _, which) in sums.items()
    }


def sums_file(keep: str, key: Key) -> Path:
    """The file of a tile's inducing inputs and sums.

    Args:
        keep: folder of the run.
        key: column and row of the tile.
    """
    return Path(keep) / f"{key[0]}_{key[1]}.sums"


def _write(file: Path, value: Any) -> None:
    """Write an object into a file, whole or not at all."""
    with open_atomic(file) as opened:
        pickle.dump(value, opened, protocol=pickle.HIGHEST_PROTOCOL)


def _read(file: Path) -> Any:
    """The object in a file that this run has written."""
    with file.open("rb") as opened:
        return pickle.load(opened)

"""One state in one file: exact, versioned, atomic.

It holds tensors and plain values only, so that no file can run code. It is a zip (numpy.savez) of
one .npy for each tensor and of `manifest`, UTF-8 JSON that holds the nesting, the plain values, and
the SHA-256 of each array. A part that is a StoredState has a file of its own, and stands in the
manifest as what `keep` says of that file.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import zipfile
from collections.abc import Callable
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.stored import StoredState
from gp_mapping.errors import UserError
from gp_mapping.store.atomic import open_atomic
from gp_mapping.store.marks import NUMBER, Marks, number_of, with_nulls, written

__all__ = [
    "ID_LENGTH",
    "VERSION",
    "CheckpointError",
    "MissingCheckpoint",
    "manifest_of",
    "read_state",
    "why_not_written",
    "write_state",
]

# version of the format; hexadecimal digits of the id of a state
VERSION, ID_LENGTH = 1, 12
_WITH_FILES = 2  # version of a file that refers to other files
_FORMAT = "gp_mapping checkpoint"
_ZIP_START = b"PK\x03\x04"
_NPY_START = b"\x93NUMPY\x01\x00"  # version 1, which numpy writes but for heads of more than 64 kB
_TENSOR, _TILE = "__tensor__", "__tile__"
# keys that stand for a tensor, a part in a file of its own, or a number that is not finite
_MARKS = Marks(_TENSOR, _TILE, NUMBER)
_DTYPES = {
    str(t): t
    for t in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


_MENDS = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room, or have a larger quota",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EACCES: "let this user write there",
    errno.EPERM: "let this user write there",
    errno.EROFS: "mount it for writing, or save elsewhere",
}


def why_not_written(error: OSError) -> str:
    """Why a file cannot be written and, where that is known, what to do."""
    reason, mend = error.strerror or str(error), _MENDS.get(error.errno)
    return f"{reason}; {mend}" if mend else reason


class CheckpointError(UserError):
    """A checkpoint that cannot be written or read.

    The text is one line and says what to do.
    """


class MissingCheckpoint(CheckpointError):
    """There is no file of that name."""


def write_state(
    path: Path,
    state: dict,
    about: dict | None = None,
    keep: Callable[[StoredState], dict] | None = None,
    ready: Callable[[], None] | None = None,
    lasting: bool = True,
) -> str:
    """Write a state to a file, whole or not at all.

    After a crash there is the old file, or the new one, and never half of it.

    Args:
        path: of the file; its folder is made where it is missing.
        state: nested dicts (keys are str) and lists of tensors, int, float, str, bool, None;
            StoredStates with `keep`.
        about: what `manifest_of` shall return under this name, plain values, None for numbers that
            are not finite; no part of the state.
        keep: has a StoredState written where it lasts; returns plain values by which it is found
            again.
        ready: called when all StoredStates are kept, before the file takes its name.
        lasting: whether the file is to survive a power cut.

    Returns:
        The id of the state: the same for the same state.

    Raises:
        CheckpointError: there is any other value in it, or path cannot be written.
    """
    arrays: dict[str, np.ndarray] = {}
    referred: list[dict] = []

    def noted(part: StoredState) -> dict:
        """What the file notes of a part with a file of its own; CheckpointError where none may."""
        if keep is None:
            raise CheckpointError(
                f"a part of {part.name} with a file of its own has no place in this one"
            )
        referred.append(keep(part))
        return referred[-1]

    tree = _pack(state, arrays, "state", noted)

    digests = {name: _digest(array) for name, array in arrays.items()}
    # a file without references stays readable by programs of the older version
    version = _WITH_FILES if referred and VERSION < _WITH_FILES else VERSION
    manifest = {
        "format": _FORMAT,
        "version": version,
        "state": tree,
        "sha256": digests,
        "id": _id(tree, digests),
        "about": with_nulls(about or {}),
    }

    if referred:
        manifest["tiles"] = [part["file"] for part in referred]

    text = np.frombuffer(json.dumps(manifest, allow_nan=False).encode(), np.uint8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path, lasting) as file:
            np.savez(file, manifest=text, **arrays)  # plain types only, so nothing is pickled
            if ready is not None:
                ready()
    except OSError as error:
        no_folder = isinstance(error, FileExistsError | NotADirectoryError)
        reason = f"{path.parent} is no folder" if no_folder else why_not_written(error)
        raise CheckpointError(f"{path}: the checkpoint cannot be written ({reason})") from error
    return manifest["id"]


def _digest(array: np.ndarray) -> str:
    """SHA-256 over type, shape and bytes."""
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(memoryview(np.ascontiguousarray(array)).cast("B") if array.size else b"")

    return digest.hexdigest()


def _pack(value, arrays: dict[str, np.ndarray], where: str, keep: Callable[[StoredState], dict]):
    """JSON for a value; its tensors go into arrays.

    A tuple comes back as a list, and a number of numpy as one of Python.

    Args:
        value: state, or a part of it.
        arrays: by name.
        where: path of the value in the state, for an error.
        keep: has a StoredState written; plain values by which it is found again.
    """
    if isinstance(value, Tensor):
        if str(value.dtype) not in _DTYPES:
            raise CheckpointError(
                f"{where}: a tensor of {value.dtype} cannot be saved; expected one of "
                f"{', '.join(_DTYPES)}"
            )

        name = f"a{len(arrays)}"
        arrays[name] = value.detach().cpu().numpy().copy()
        return {_TENSOR: name, "dtype": str(value.dtype)}
    if isinstance(value, StoredState):
        return {_TILE: keep(value)}
    if isinstance(value, dict):
        bad = [k for k in value if not isinstance(k, str)]
        if bad:
            raise CheckpointError(f"{where}: key {bad[0]!r} cannot be saved; expected a str")
        return {_MARKS.escape(k): _pack(v, arrays, f"{where}.{k}", keep) for k, v in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_pack(v, arrays, f"{where}[{i}]", keep) for i, v in enumerate(value)]
    if type(value) is float:
        return written(value)  # exactly: repr is the shortest text that gives it back
    if value is None or type(value) in (bool, int, str):
        return value
    raise CheckpointError(
        f"{where}: a {type(value).__name__} cannot be saved; expected a tensor, number, str, bool, "
        "None, dict, list or tuple"
    )


def read_state(
    path: Path, found: Callable[[dict], StoredState] | None = None, expected: str = ""
) -> dict:
    """Read the state that write_state got.

    Nothing in the file is trusted before it is checked: no more memory is used than the file is
    long.

    Args:
        path: of the file.
        found: returns the StoredState of which `keep` said this.
        expected: the id that write_state gave; '' where it is not known.

    Raises:
        CheckpointError: there is no such file; it is not a checkpoint, cut off or damaged; it has
            another id; or another version wrote it.
    """
    return _guarded(path, found, expected)


def manifest_of(path: Path) -> dict:
    """What a file says of itself; its arrays are not read.

    Returns:
        `id`, `about`, and `tiles`, the files that it refers to.
    """
    return _guarded(path)


def _guarded(path: Path, *whole) -> dict:
    """Read the state or the manifest, and raise whatever is wrong with the file as CheckpointError.

    Args:
        path: of the file.
        whole: found and expected, as read_state takes them, for the state; nothing, for the
            manifest.
    """
    try:
        with _open_regular(path) as file:
            manifest, arrays = _read(path, file, bool(whole))
        if not whole:
            return manifest

        found, expected = whole
        for name, digest in manifest["sha256"].items():
            if _digest(arrays[name]) != digest:
                raise CheckpointError(
                    f"{path}: the checkpoint is damaged, the checksum of {name} does not fit; use "
                    "an older one"
                )

        # the id is computed again: what the manifest says of itself may be damaged, too
        if expected and _id(manifest["state"], manifest["sha256"]) != expected:
            raise CheckpointError(
                f"{path}: damaged, or another one than was written here; its id is not {expected}"
            )

        return _unpack(manifest["state"], arrays, found)
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise MissingCheckpoint(f"{path}: no such checkpoint") from None
    except OSError as error:
        raise CheckpointError(
            f"{path}: the checkpoint cannot be read ({error.strerror or error})"
        ) from error
    # zipfile, zlib, numpy and json each have errors of their own for damaged bytes
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{path}: cut off or damaged ({text}); use an older one") from error


def _id(tree, digests: dict[str, str]) -> str:
    """A short name for a state, by its plain values and the digests of its arrays."""
    # hashed, and never written: files of before may have numbers in their tree that JSON has not
    text = json.dumps([tree, digests], sort_keys=True, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def _open_regular(path: Path):
    """Open a regular file.

    Raises:
        CheckpointError: it is a pipe, socket or device, which might never answer.
    """
    # not blocking: to open a pipe would wait for its writer
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        raise CheckpointError(
            f"{path}: not a checkpoint of gp_mapping but a pipe, socket or device; expected a file"
        )
    return os.fdopen(handle, "rb")


def _read(path: Path, file, whole: bool) -> tuple[dict, dict[str, np.ndarray]]:
    """Manifest and arrays of an open file.

    write_state compresses nothing, so that what is in a file is no larger than the file.

    Args:
        path: for the text of an error.
        file: open.
        whole: whether to read the arrays.
    """
    if file.read(4) != _ZIP_START:
        raise CheckpointError(f"{path}: not a checkpoint of gp_mapping")

    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if "manifest" not in members:
            raise CheckpointError(f"{path}: not a checkpoint of gp_mapping")

        packed = [
            name for name, info in members.items() if info.compress_type != zipfile.ZIP_STORED
        ]
        if packed:
            raise CheckpointError(
                f"{path}: its part {packed[0][:100]!r} is compressed, as in no checkpoint of "
                "gp_mapping; use an older one"
            )

        total, size = (
            sum(info.file_size for info in members.values()),
            os.fstat(file.fileno()).st_size,
        )
        if total > size:
            raise CheckpointError(
                f"{path}: cut off or damaged (its parts are {total} bytes, the file {size}); use an "
                "older one"
            )

        manifest = json.loads(_array(archive.read(members["manifest"])).tobytes().decode())
        _check_version(path, manifest)
        # arrays are read only where the state is asked for
        names = manifest["sha256"] if whole else ()
        return manifest, {name: _array(archive.read(members[name])) for name in names}


def _array(data: bytes) -> np.ndarray:
    """The array of one .npy, read-only.

    Raises:
        ValueError: its head promises more or fewer bytes than there are.
    """
    size = 10 + int.from_bytes(data[8:10], "little")
    # a usual head is parsed once for all arrays that have the same
    usual = data.startswith(_NPY_START) and size <= len(data)
    shape, by_columns, dtype, begin = _head(data[:size]) if usual else _parsed(data)

    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != len(data) - begin:
        raise ValueError(f"an array of shape {shape} and {dtype} in {len(data) - begin} bytes")

    if not usual or dtype.kind not in "biuf":
        return np.lib.format.read_array(BytesIO(data), allow_pickle=False)
    # without a copy: the array lies in the bytes that were read
    return np.ndarray(shape, dtype, buffer=data, offset=begin, order="F" if by_columns else "C")


def _parsed(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, whether column by column, type, and where the values begin, of a .npy."""
    stream = BytesIO(data)
    major, _ = np.lib.format.read_magic(stream)

    read_head = (
        np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    )
    return *read_head(stream), stream.tell()


_head = lru_cache(maxsize=1000)(_parsed)
"""_parsed, remembered: a state has thousands of arrays and few shapes.

To parse a head takes longer than to read what follows it.
"""


def _check_version(path: Path, manifest) -> None:
    """Raise a CheckpointError for a manifest that this program cannot read."""
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of gp_mapping")
    # both versions are read, newer ones are not
    if manifest.get("version") not in (VERSION, _WITH_FILES):
        raise CheckpointError(
            f"{path}: the checkpoint has version {manifest.get('version')!r}, this program reads "
            f"version {VERSION} and {_WITH_FILES}; use the program that wrote it"
        )


def _unpack(value, arrays: dict[str, np.ndarray], found):
    """The state of a manifest; the inverse of _pack."""
    if isinstance(value, dict):
        if _TENSOR in value:
            return torch.from_numpy(arrays[value[_TENSOR]].copy()).to(_DTYPES[value["dtype"]])
        if _TILE in value:
            if found is None:
                raise CheckpointError("it refers to files of its own, which has no meaning here")
            return found(value[_TILE])
        if NUMBER in value:
            return number_of(value)
        return {_MARKS.unescape(k): _unpack(v, arrays, found) for k, v in value.items()}
    return [_unpack(v, arrays, found) for v in value] if isinstance(value, list) else value

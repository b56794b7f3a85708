"""Brings the bytes of a stored message into the form in which its type is read.

Recorders that compress each message say so in metadata.yaml only, which a recorder that is killed
does not write, and which does not come with a single file. And types have grown: a Range of ROS 2
Humble and before has no variance.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from rosbags.interfaces import Typestore
from rosbags.rosbag2 import reader as rosbags_reader
from rosbags.typesys import Stores, get_typestore

__all__ = ["LZ4", "all_present", "unpack_file", "unpack_zstd"]

# the library that rosbags brings along: another one in newer releases, with the same two names
_LIBRARY: Any = next(
    getattr(rosbags_reader, name) for name in ("zstd", "zstandard") if hasattr(rosbags_reader, name)
)
LZ4: Any = import_module("lz4.frame")  # rosbags brings it along, too
_BLOCK = 1 << 20  # bytes of a file that are unpacked at once
_ZSTD = b"\x28\xb5\x2f\xfd"  # how a Zstandard frame begins; CDR begins with a zero
# types that have got a number at their end since, with its bytes: 0 says that it is not known
_GROWN = {"sensor_msgs/msg/Range": bytes(4)}


@cache
def _before() -> Typestore:
    """The types as they were before they grew."""
    return get_typestore(Stores.ROS2_HUMBLE)


def all_present(kinds: list[str], data: list[bytes]) -> list[bytes]:
    """Return the CDR bytes of messages as their types are today.

    Args:
        kinds: their ROS types.
        data: their bytes as they are stored: what cannot be read is returned as it is.
    """
    packed = _ZSTD in {each[:4] for each in data}
    if not packed and _GROWN.keys().isdisjoint(kinds):
        return data
    return list(map(_present, kinds, data))


def _present(kind: str, data: bytes) -> bytes:
    """As all_present, of one message."""
    if data[:4] == _ZSTD:
        try:
            data = _LIBRARY.decompress(data)
        except _LIBRARY.ZstdError:
            return data

    if kind not in _GROWN:
        return data
    from gp_mapping.recording.cdr import length_of  # it takes torch along, which bags do without

    return (
        bytes(data) + _GROWN[kind] if length_of(bytes(data), kind, _before()) == len(data) else data
    )


def unpack_zstd(data: bytes, most: int) -> bytes:
    """Unpack Zstandard data, or what can be unpacked of its beginning where the end is missing.

    Args:
        data: packed bytes.
        most: bytes that are returned.
    """
    decompressor = _LIBRARY.ZstdDecompressor()
    if hasattr(decompressor, "stream_reader"):  # of the library of older releases
        return decompressor.stream_reader(BytesIO(data)).read(most)
    return decompressor.decompress(data, max_length=most)


def unpack_file(packed: Path, to: Path) -> bool:
    """Unpack a Zstandard file, or what can be unpacked of its beginning.

    Args:
        packed: the file.
        to: path of the file that is written.

    Returns:
        False where it is cut off or damaged; a library of older releases says so of damage only.
    """
    with to.open("wb") as target, _LIBRARY.open(packed, "rb") as source:
        try:
            while block := source.read1(_BLOCK):  # `read` loses what comes before a missing end
                target.write(block)
        except (EOFError, _LIBRARY.ZstdError):
            return False
    return True

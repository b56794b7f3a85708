"""Reads many CDR messages of one type at once, by numpy.

Where a number lies in a message depends on its type and on the lengths of the strings before it. So
messages of one type, length and byte order whose strings are the same have one layout: a structured
dtype over their bytes. Strings of a stream hardly ever change, and a few layouts read a whole bag.
What has no fixed layout (sequences, wide strings, bytes that are no such message) is left to
rosbags, message by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rosbags.interfaces import Nodetype, Typestore

from gp_mapping.intake.columns import Columns

__all__ = ["columns_of", "length_of"]

_HEAD = 4  # bytes: representation and options; what follows is aligned to its own start
_PADDING = 3  # bytes that may follow the last field
_NUMBERS = {
    "bool": "u1",
    "int8": "i1",
    "uint8": "u1",
    "byte": "u1",
    "char": "u1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "int64": "i8",
    "uint64": "u8",
    "float32": "f4",
    "float64": "f8",
}


class _NoLayout(Exception):
    """A field whose place is not fixed, or bytes that are no such message."""


class _Layout(NamedTuple):
    """Where each field lies in messages of one length.

    Attributes:
        dtype: structured, of the whole message.
        shared: numbers of the bytes that these messages have in common (head and strings).
        texts: the strings, by the names of their fields.
    """

    dtype: np.dtype
    shared: np.ndarray
    texts: dict[str, str]


def columns_of(messages: Sequence[bytes], kind: str, store: Typestore) -> Columns | None:
    """Read messages of one type as columns.

    Args:
        messages: CDR bytes, at least one message.
        kind: their ROS type.
        store: knows the type.

    Returns:
        None where they do not all share a layout: they are to be deserialised one by one, and
        errors in them show there.
    """
    size = len(messages[0])
    if set(map(len, messages)) != {size}:
        return None

    try:
        layout = _layout(bytes(messages[0]), kind, store)
    except _NoLayout:
        return None

    # one layout for all: the bytes of heads and strings must be the same
    table = np.frombuffer(b"".join(messages), np.uint8).reshape(-1, size)
    if (table[:, layout.shared] != table[0, layout.shared]).any():
        return None

    return Columns(table.view(layout.dtype).reshape(-1), layout.texts)


def length_of(message: bytes, kind: str, store: Typestore) -> int | None:
    """How many bytes a message of a type has, without padding at its end.

    Args:
        message: its CDR bytes; its strings are looked at, for their lengths.
        kind: its ROS type.
        store: knows the type.

    Returns:
        None where its type has no fixed layout, or the bytes are no such message.
    """
    try:
        return _walk(message, kind, store)[1]
    except _NoLayout:
        return None


def _walk(message: bytes, kind: str, store: Typestore) -> tuple[_Walk, int]:
    """The fields of one message, and the number of the byte after the last one."""
    # plain CDR, big or little endian
    if len(message) < _HEAD or message[:2] not in (b"\x00\x00", b"\x00\x01"):
        raise _NoLayout

    walk = _Walk(message, "<" if message[1] else ">", store)
    return walk, walk.struct("", kind, _HEAD)


def _layout(message: bytes, kind: str, store: Typestore) -> _Layout:
    """The layout of one message, and so of all messages like it."""
    walk, end = _walk(message, kind, store)
    # more bytes than padding: it is not a message of this type
    if not end <= len(message) <= end + _PADDING:
        raise _NoLayout

    dtype = np.dtype(
        {
            "names": list(walk.fields),
            "formats": [f for f, _ in walk.fields.values()],
            "offsets": [at for _, at in walk.fields.values()],
            "itemsize": len(message),
        }
    )

    return _Layout(dtype, np.array([0, 1, *walk.shared]), walk.texts)


class _Walk:
    """Goes through one message field by field, as its type says, and notes where the fields are.

    Each method takes the number of a byte and returns that of the byte after what it has read.

    Args:
        message: its bytes.
        order: of the bytes of a number, "<" or ">".
        store: of types.
    """

    def __init__(self, message: bytes, order: str, store: Typestore):
        self.message, self.order, self.store = message, order, store
        self.fields: dict[str, tuple[object, int]] = {}
        self.shared: list[int] = []
        self.texts: dict[str, str] = {}

    def struct(self, prefix: str, kind: str, at: int) -> int:
        """All fields of a type.

        Args:
            prefix: of their names.
            kind: the type.
            at: number of its first byte.

        Raises:
            _NoLayout: the type is unknown, or has arrays of structs.
        """
        if kind not in self.store.fielddefs:
            raise _NoLayout
        for name, (node, what) in self.store.fielddefs[kind][1]:
            path = f"{prefix}{name}"
            if node == Nodetype.NAME:
                at = self.struct(f"{path}.", what, at)
            elif node == Nodetype.BASE:
                at = self.text(path, at) if what[0] == "string" else self.number(path, what[0], at)
            elif node == Nodetype.ARRAY and what[0][0] == Nodetype.BASE:
                at = self.number(path, what[0][1][0], at, what[1])
            else:
                raise _NoLayout
        return at

    def number(self, path: str, name: str, at: int, count: int | None = None) -> int:
        """One number, or an array of them.

        Args:
            path: name of the field.
            name: type of the number.
            at: number of the byte after the field before it.
            count: length of the array; None: one number.

        Raises:
            _NoLayout: it is no number.
        """
        if name not in _NUMBERS:
            raise _NoLayout
        form = np.dtype(self.order + _NUMBERS[name])
        # CDR aligns a number to its own size
        at = _aligned(at, form.itemsize)

        self.fields[path] = (form if count is None else (form, (count,))), at
        return at + form.itemsize * (1 if count is None else count)

    def text(self, path: str, at: int) -> int:
        """A string: its length, which counts the final zero, and its bytes.

        Args:
            path: name of the field.
            at: number of the byte after the field before it.

        Raises:
            _NoLayout: the length does not fit, or the bytes are no UTF-8.
        """
        at = _aligned(at, 4)
        length = int.from_bytes(self.message[at : at + 4], "little" if self.order == "<" else "big")
        end = at + 4 + length
        if length < 1 or end > len(self.message) or self.message[end - 1] != 0:
            raise _NoLayout

        try:
            self.texts[path] = self.message[at + 4 : end - 1].decode()
        except UnicodeDecodeError:
            raise _NoLayout from None

        # length and bytes of the string
        self.shared += range(at, end)
        return end


def _aligned(at: int, size: int) -> int:
    """The next byte whose distance from the end of the head is a multiple of `size`."""
    return at + (_HEAD - at) % size

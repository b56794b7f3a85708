"""One state as bytes for a network, and back, from a sender that may send anything.

    "GPMT" | version, 2 bytes | length of the manifest, 4 bytes | SHA-256 of what follows, 32 bytes
    | manifest | data

Little endian. The manifest is UTF-8 JSON: the nesting, the plain values, and dtype and shape of
each tensor; the tensors' bytes follow in order, with nothing between them. Nothing is compressed,
so that what is unpacked is no larger than what has come, and nothing can run code. A part that is a
StoredState stands in the manifest by its name alone. Keys that are words of this format are escaped
(marks.py).
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.stored import StoredState
from gp_mapping.errors import one_line
from gp_mapping.store.marks import NUMBER, Marks, number_of, with_nulls, written

__all__ = ["VERSION", "MessageError", "Part", "decode", "encode", "names_of_parts", "with_parts"]

VERSION = 1
_MAGIC, _HEAD = b"GPMT", struct.Struct("<4sHI32s")
_TENSOR, _PART = "__tensor__", "__part__"
_MARKS = Marks(_TENSOR, _PART, NUMBER)
_DTYPES = {
    "f8": torch.float64,
    "f4": torch.float32,
    "i8": torch.int64,
    "i4": torch.int32,
    "u1": torch.uint8,
    "b1": torch.bool,
}
_KINDS = {kind: name for name, kind in _DTYPES.items()}
_DEPTH = 50  # bound of nested dicts and lists
_VALUES = 200_000  # bound of the values in a manifest


class MessageError(ValueError):
    """Bytes that are no message of this kind.

    Args:
        reason: in a word, to be counted.
        text: one line for a person.
    """

    def __init__(self, reason: str, text: str):
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Part:
    """Stands in a decoded state for a StoredState, which comes in a message of its own.

    Attributes:
        name: of the StoredState.
    """

    name: str


def encode(about: dict, state: dict) -> bytes:
    """The bytes of a state.

    Args:
        about: plain values that say what it is; None comes of numbers that are not finite.
        state: nested dicts (keys are str) and lists of tensors, StoredStates, int, float, str,
            bool, None.

    Raises:
        TypeError: there is any other key or value in it.
    """
    data: list[bytes] = []
    tensors: list[list] = []

    def packed(value):
        """JSON for a value; the bytes of its tensors go into data. TypeError for other values."""
        if isinstance(value, Tensor):
            if value.dtype not in _KINDS:
                raise TypeError(f"a tensor of {value.dtype} cannot be sent")
            array = np.ascontiguousarray(value.detach().cpu().numpy())
            # contiguous and little endian
            data.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
            tensors.append([_KINDS[value.dtype], list(value.shape)])
            return {_TENSOR: len(tensors) - 1}
        if isinstance(value, StoredState):
            return {_PART: value.name}
        if isinstance(value, dict):
            bad = [key for key in value if not isinstance(key, str)]
            if bad:
                raise TypeError(f"a key {bad[0]!r} cannot be sent; expected a str")
            return {_MARKS.escape(key): packed(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [packed(each) for each in value]
        if type(value) is float:
            return written(value)
        if value is None or type(value) in (bool, int, str):
            return value
        raise TypeError(f"a {type(value).__name__} cannot be sent")

    manifest = {"state": packed(state), "about": with_nulls(about), "tensors": tensors}
    manifest = json.dumps(manifest, allow_nan=False).encode()
    body = b"".join([manifest, *data])
    return _HEAD.pack(_MAGIC, VERSION, len(manifest), hashlib.sha256(body).digest()) + body


def decode(data: bytes, most: int) -> tuple[dict, dict]:
    """Read a message; a StoredState comes back as a Part.

    Args:
        data: what has come.
        most: bytes that it may have.

    Returns:
        About and state.

    Raises:
        MessageError: it is too large, cut off, damaged, of another version, not a message of this
            kind, or a number in it is NaN.
    """
    if len(data) > most:
        raise MessageError("too_large", f"{len(data)} bytes, at most {most} are taken")

    # before the bytes are trusted: size, mark, version, checksum
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise MessageError("not_tiles", f"{len(data)} bytes that are no totals of a map")

    _, version, length, digest = _HEAD.unpack_from(data)
    if version != VERSION:
        raise MessageError(
            "other_version",
            f"totals of version {version}, this program reads version {VERSION}; use "
            "one version on all robots",
        )

    body = memoryview(data)[_HEAD.size :]
    if hashlib.sha256(body).digest() != digest:
        raise MessageError("damaged", "the checksum does not fit: cut off or damaged on the way")

    try:
        return _unpacked(body, length)
    except MessageError:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        RecursionError,
        OverflowError,
        AttributeError,
    ) as error:
        raise MessageError(
            "malformed", f"its content does not fit together ({one_line(error, 200)})"
        ) from error


def _unpacked(body: memoryview, length: int) -> tuple[dict, dict]:
    """About and state.

    Args:
        body: manifest and data.
        length: of the manifest.

    Raises:
        MessageError: a number is NaN.
        ValueError: it does not fit together, as do the errors of what it is made of.
    """
    if length > len(body):
        raise ValueError("it is shorter than it says")

    manifest = json.loads(bytes(body[:length]).decode(), parse_constant=_number)
    restored = _Restoring(_tensors_of(manifest["tensors"], body[length:]))
    state, about = restored(manifest["state"]), manifest["about"]
    if not isinstance(about, dict) or not isinstance(state, dict):
        raise ValueError("it has no map in it")
    return about, state


def _tensors_of(listed: list, data: memoryview) -> list[torch.Tensor]:
    """The tensors of a message.

    Args:
        listed: kind and shape of each.
        data: their numbers, one after the other.

    Raises:
        MessageError: a number is NaN.
        ValueError: what is listed is not what is there.
    """
    if len(listed) > _VALUES:
        raise ValueError(f"{len(listed)} tensors")

    tensors, at = [], 0
    for kind, shape in listed:
        if len(shape) > 4 or not all(type(n) is int and 0 <= n <= len(data) for n in shape):
            raise ValueError(f"a tensor of shape {shape}")

        # before a tensor is made, its size is compared with the bytes that are there
        size = math.prod(shape) * np.dtype(kind if kind in _DTYPES else "").itemsize
        if at + size > len(data):
            raise ValueError("it is shorter than it says")
        # a copy is made below: frombuffer refers to the message
        values = np.frombuffer(data[at : at + size], np.dtype(kind).newbyteorder("<")).reshape(
            shape
        )

        if kind in ("f8", "f4") and np.isnan(values).any():
            raise MessageError("not_a_number", "a number in it is NaN")
        tensors.append(torch.from_numpy(values.astype(np.dtype(kind), copy=True)))
        at += size

    if at != len(data):
        raise ValueError("it is longer than it says")
    return tensors


class _Restoring:
    """Puts tensors, parts and numbers that JSON does not have back where marks stand for them.

    Args:
        tensors: by their number in the message.
    """

    def __init__(self, tensors: list[torch.Tensor]):
        self._tensors = tensors
        self._left = _VALUES  # values that may still come

    def __call__(self, value, depth: int = 0):
        """A value with all that it holds; ValueError where it is too deep, or has too many."""
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            raise ValueError("more values, or deeper ones, than any map has")
        if isinstance(value, list):
            return [self(each, depth + 1) for each in value]
        if not isinstance(value, dict):
            return value

        if _TENSOR in value:
            return self._tensors[int(value[_TENSOR])]
        if _PART in value:
            return Part(str(value[_PART]))
        if NUMBER in value:
            return _number(number_of(value))
        return {_MARKS.unescape(key): self(each, depth + 1) for key, each in value.items()}


def _number(value: float | str) -> float:
    """An infinity, also as a bare word of Python's JSON.

    Raises:
        MessageError: it is NaN.
    """
    if math.isnan(float(value)):
        raise MessageError("not_a_number", "a number in it is NaN")
    return float(value)


def names_of_parts(value) -> set[str]:
    """Names of the StoredStates that a decoded state refers to."""
    if isinstance(value, Part):
        return {value.name}
    if isinstance(value, dict):
        return {n for each in value.values() for n in names_of_parts(each)}
    return {n for each in value for n in names_of_parts(each)} if isinstance(value, list) else set()


def with_parts(value, parts: dict[str, StoredState]):
    """A decoded state with its StoredStates in place.

    Args:
        value: the state, or a part of it.
        parts: by name.

    Raises:
        KeyError: one is missing.
    """
    if isinstance(value, Part):
        return parts[value.name]
    if isinstance(value, dict):
        return {key: with_parts(each, parts) for key, each in value.items()}
    return [with_parts(each, parts) for each in value] if isinstance(value, list) else value

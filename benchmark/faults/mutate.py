"""Damage to bytes, by a seed: what disks, cables, dead batteries and other people's programs do to a file."""

from __future__ import annotations

import struct

import numpy as np

__all__ = ["DAMAGE", "mutated"]

_NUMBERS = (
    0,
    1,
    2**7,
    2**8 - 1,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_FLOATS = (
    float("nan"),
    float("inf"),
    -float("inf"),
    1e308,
    -1e308,
    1e154,
    1e-308,
    5e-324,
    -0.0,
    1e16,
)


def _truncated(data: bytearray, at: int, size: int, rng) -> bytearray:
    return data[:at]


def _bits(data: bytearray, at: int, size: int, rng) -> bytearray:
    for place in rng.integers(0, len(data), int(rng.integers(1, 9))):
        data[place] ^= 1 << int(rng.integers(8))
    return data


def _zeros(data: bytearray, at: int, size: int, rng) -> bytearray:
    data[at : at + size] = bytes(len(data[at : at + size]))
    return data


def _noise(data: bytearray, at: int, size: int, rng) -> bytearray:
    data[at : at + size] = rng.bytes(len(data[at : at + size]))
    return data


def _removed(data: bytearray, at: int, size: int, rng) -> bytearray:
    del data[at : at + size]
    return data


def _repeated(data: bytearray, at: int, size: int, rng) -> bytearray:
    data[at:at] = data[at : at + size]
    return data


def _exchanged(data: bytearray, at: int, size: int, rng) -> bytearray:
    other = int(rng.integers(len(data)))
    first, second = bytes(data[at : at + size]), bytes(data[other : other + size])
    data[at : at + len(second)], data[other : other + len(first)] = second, first
    return data


def _number(data: bytearray, at: int, size: int, rng) -> bytearray:
    width = int(rng.choice([1, 2, 4, 8]))
    value = int(_NUMBERS[rng.integers(len(_NUMBERS))]) % 2 ** (8 * width)
    data[at : at + width] = value.to_bytes(width, "little")
    return data


def _float(data: bytearray, at: int, size: int, rng) -> bytearray:
    at -= at % 4
    data[at : at + 8] = struct.pack("<d", _FLOATS[rng.integers(len(_FLOATS))])
    return data


def _empty(data: bytearray, at: int, size: int, rng) -> bytearray:
    return bytearray()


DAMAGE = {
    "truncated": _truncated,
    "bits": _bits,
    "zeros": _zeros,
    "noise": _noise,
    "removed": _removed,
    "repeated": _repeated,
    "exchanged": _exchanged,
    "number": _number,
    "float": _float,
    "empty": _empty,
}


def mutated(data: bytes, kind: str, rng: np.random.Generator) -> bytes:
    """The bytes with one damage of that kind at a random place, half the time near the beginning or the end.

    Files keep there what the rest hangs on: magic numbers, headers, indices.
    """
    if not data:
        return data
    reach = len(data) if rng.random() < 0.5 else min(len(data), 512)
    at = int(rng.integers(reach))
    if reach < len(data) and rng.random() < 0.5:
        at = len(data) - 1 - at
    size = int(2 ** rng.uniform(0, np.log2(len(data) + 1)))
    return bytes(DAMAGE[kind](bytearray(data), at, size, rng))

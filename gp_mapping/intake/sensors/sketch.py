"""Which measurements a map holds, as a sketch of bounded size: none of them is to count twice.

Bags of recorders that ran at once, a recording beside the map that the robot made meanwhile, and a
bag that is played again have other names, and other first messages. Their measurements have the
stamps and values that the map has seen already.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

import numpy as np

__all__ = ["MEASURED", "SHARED", "Sketch", "hashes_in", "union"]

MEASURED = "measured"  # in `about` of a session
SHARED = 3  # measurements in common that are no chance; stamps are equal to the nanosecond

_TOGETHER = 256  # measurements that are hashed together: a call costs as much as hundreds of them
_SIZE = 2048  # hashes that are kept: of a map of N measurements the share 2048/N, and 22 kB of text
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST = np.uint64(31)

_AGAIN = (
    "measurements come again that the map holds already, and count twice: a recording that is played "
    "again, or one from which this map was made? Begin a new map with it, or leave it out"
)


class Sketch:
    """The smallest hashes of all measurements of a map.

    Which measurements are kept depends on their hashes alone. So two sketches have in common what
    they kept of the measurements that both maps hold, and a measurement that comes again is found
    with the probability min(1, 2048/N).

    A measurement equal to the one before is left out: in a simulation without noise the
    robot of two drives reads one number at one time while it stands.

    Args:
        text: of an earlier sketch, by `as_text`, which this one goes on from.

    Reference:
        K. Beyer et al., On synopses for distinct-value estimation under multiset operations,
        SIGMOD 2007, for the k minimum values of a hash.
    """

    def __init__(self, text: str = ""):
        self.go_on(text)

    def go_on(self, text: str) -> None:
        """Begin anew, with what an earlier sketch held.

        Args:
            text: of that, by `as_text`.
        """
        self._held = hashes_in(text)
        self._text: str | None = None
        self._newest: np.ndarray | None = None  # values of the newest measurement
        self._repeats = 0
        # stamps and values that came and are not hashed yet: as many numbers in each measurement
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, stamps: np.ndarray, values: np.ndarray) -> None:
        """Take in measurements, in order of time.

        Args:
            stamps: (n,) int64, ns.
            values: (n, k) float64, as the sensor has sent them.
        """
        if not len(stamps):
            return
        if self._waiting and self._waiting[0][1].shape[1:] != values.shape[1:]:
            self._look()
        # copies: the arrays are the caller's
        self._waiting.append((np.array(stamps), np.array(values)))
        if sum(len(part) for part, _ in self._waiting) >= _TOGETHER:
            self._look()

    def _look(self) -> None:
        """Take in what waits."""
        if not self._waiting:
            return
        parts, self._waiting = self._waiting, []
        stamps, values = (np.concatenate(column) for column in zip(*parts))

        before = values[:1] if self._newest is None else self._newest
        changed = np.ones(len(values), bool)
        if before.shape[1:] == values.shape[1:]:
            changed = (np.diff(values, axis=0, prepend=before) != 0.0).any(1)
        if self._newest is None:
            changed[0] = True
        self._newest = values[-1:].copy()

        hashes = _hash(stamps[changed], values[changed])
        if len(self._held) == _SIZE:
            hashes = hashes[hashes <= self._held[-1]]
        if len(hashes):
            self._merge(hashes)

    def _merge(self, hashes: np.ndarray) -> None:
        """Take in hashes, and count those that are here."""
        hashes = np.sort(hashes)
        where = np.searchsorted(self._held, hashes)
        known = np.zeros(len(hashes), bool)
        inside = where < len(self._held)
        known[inside] = self._held[where[inside]] == hashes[inside]
        known[1:] |= hashes[1:] == hashes[:-1]

        self._repeats += int(known.sum())
        if not known.all():
            # in place among those that are held: few come at once
            self._held = np.insert(self._held, where[~known], hashes[~known])[:_SIZE]
            self._text = None

    def shares(self, other: Sketch) -> bool:
        """Whether another sketch holds some of these measurements."""
        self._look()
        other._look()
        return len(np.intersect1d(self._held, other._held)) >= SHARED

    @property
    def repeats(self) -> int:
        """Measurements that came, and were in the sketch already."""
        self._look()
        return self._repeats

    @property
    def notes(self) -> list[str]:
        """That measurements come again, in a sentence."""
        return [_AGAIN] if self.repeats >= SHARED else []

    def as_text(self) -> str:
        """The sketch as plain text."""
        self._look()
        if self._text is None:
            self._text = base64.b64encode(self._held.astype("<u8").tobytes()).decode()
        return self._text


def union(texts: Iterable[str]) -> str:
    """The sketch of the measurements of several maps, by the texts of theirs."""
    held = np.unique(np.concatenate([np.empty(0, np.uint64), *map(hashes_in, texts)]))
    return base64.b64encode(held[:_SIZE].astype("<u8").tobytes()).decode()


def hashes_in(text: object) -> np.ndarray:
    """Hashes that a sketch holds, in order, by its text; none where that is no sketch."""
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        data = b""
    whole = data[: len(data) // 8 * 8]
    return np.unique(np.frombuffer(whole, "<u8").astype(np.uint64))[:_SIZE]


def _hash(stamps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(n,) uint64 of stamps (n,), ns, and the bits of values (n, k)."""
    out = stamps.astype(np.int64).view(np.uint64)
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    with np.errstate(over="ignore"):  # modulo 2^64
        for column in bits.T:
            out = _mixed(out + _GOLDEN) ^ column
        return _mixed(out + _GOLDEN)


def _mixed(z: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: every bit of the result depends on all bits."""
    for shift, factor in _MIX:
        z = (z ^ (z >> shift)) * factor
    return z ^ (z >> _LAST)

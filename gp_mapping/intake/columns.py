"""Many messages of one type at once: each field is a column, and no message becomes an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeGuard

import numpy as np
from scipy.spatial.transform import Rotation

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.messages import Reading

__all__ = ["ColumnAdaptor", "Columns", "Readings", "Stream", "reads_columns"]


@dataclass(frozen=True)
class Columns:
    """n messages of one type that share their strings.

    Attributes:
        rows: (n,) structured; a field has the name by which a message has it ("header.stamp.sec"),
            an array field holds k numbers.
        texts: the strings, by the same names.
    """

    rows: np.ndarray
    texts: dict[str, str]

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: str) -> bool:
        return name in (self.rows.dtype.names or ())

    def numbers(self, *names: str) -> np.ndarray:
        """(n, len(names)) float64 of fields that hold one number each."""
        return np.stack([self.rows[name] for name in names], 1).astype(np.float64)

    def array(self, name: str) -> np.ndarray:
        """(n, k) float64 of a field that holds k numbers."""
        return self.rows[name].astype(np.float64)

    def frame(self, name: str = "header.frame_id") -> str:
        """The name of a frame without the leading slash that older drivers write.

        Empty where the messages have no such string.
        """
        return self.texts.get(name, "").lstrip("/")

    def stamps(self) -> np.ndarray | None:
        """header.stamp in nanoseconds, (n,) int64; None where there is no header."""
        if "header.stamp.sec" not in self:
            return None
        return (
            self.rows["header.stamp.sec"].astype(np.int64) * 1_000_000_000
            + self.rows["header.stamp.nanosec"]
        )


class Stream(NamedTuple):
    """Messages of one input, among those of others.

    Attributes:
        where: (n,) their positions in the order of all messages.
        recorded: (n,) int64, when they were recorded, ns.
        columns: their contents.
    """

    where: np.ndarray
    recorded: np.ndarray
    columns: Columns


@dataclass(frozen=True)
class Readings:
    """n measurements as their adaptor reads them.

    Attributes:
        values: (n, k).
        covariance: (n, j), zeros where it is unknown.
        known: (n,) bool, where the covariance is known.
        refused: number of a row -> why it cannot be used.
    """

    values: np.ndarray
    covariance: np.ndarray
    known: np.ndarray
    refused: dict[int, DropReason]

    def __len__(self) -> int:
        return len(self.values)

    def row(self, i: int, stamp: int) -> Reading:
        """One row as a Reading.

        Args:
            i: number of the row.
            stamp: ns.
        """
        covariance = tuple(self.covariance[i].tolist()) if self.known[i] else None
        return Reading(stamp, tuple(self.values[i].tolist()), covariance)

    def select(self, which: np.ndarray) -> Readings:
        """The rows of these numbers (n,), none of which may be refused."""
        return Readings(self.values[which], self.covariance[which], self.known[which], {})

    def preceded_by(self, earlier: list[Reading]) -> Readings:
        """These rows, preceded by readings that came one by one."""
        if not earlier:
            return self

        unknown = (0.0,) * self.covariance.shape[1]
        first = Readings(
            np.array([r.values for r in earlier]),
            np.array([r.covariance or unknown for r in earlier]),
            np.array([r.covariance is not None for r in earlier]),
            {},
        )

        return Readings(
            np.concatenate([first.values, self.values]),
            np.concatenate([first.covariance, self.covariance]),
            np.concatenate([first.known, self.known]),
            self.refused,
        )


class ColumnAdaptor(Protocol):
    """An adaptor that reads many messages at once, to the bit as its `read` and `values` do."""

    def read_columns(self, columns: Columns) -> Readings | None:
        """Read each message as `read` does; None where these messages lack what it reads."""

    def values_of_rows(
        self, readings: Readings, turn: Rotation | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As Adaptor.values, for rows.

        Args:
            readings: n of them.
            turn: n rotations from the sensor's axes to the map's, where `needs_rotation` says so.

        Returns:
            y (n,) or (n, C), and its noise variance (n,), 0 where it is unknown.
        """


def reads_columns(adaptor: object) -> TypeGuard[ColumnAdaptor]:
    """Whether an adaptor is a ColumnAdaptor in its own right.

    False where a subclass overrides `read` or `values` and only inherits `read_columns`, which then
    does not give what the overridden methods give.
    """
    # the nearest class that defines either of the two decides
    for kind in type(adaptor).__mro__:
        if "read_columns" in vars(kind):
            return True
        if "read" in vars(kind) or "values" in vars(kind):
            return False

    return False

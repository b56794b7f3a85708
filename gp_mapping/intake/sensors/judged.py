"""Drops measurements whose values the map cannot take, before they wait for a pose."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from gp_mapping.intake.columns import Columns, Readings, reads_columns
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.messages import Adaptor, Reading

__all__ = ["Judge", "JudgedAdaptor"]


class Judge(Protocol):
    """Knows which values a map can take; core.likelihoods.outcomes.OutcomeJudge is one."""

    def rejected_rows(self, y: np.ndarray) -> list[int]:
        """Numbers of the rows of y (N, C) that the map cannot take, in order."""


class JudgedAdaptor:
    """An adaptor whose measurements are IMPOSSIBLE where the judge does not know their value.

    Only for sensors whose values do not depend on orientation: other values are not known before
    there is a pose, and the map itself refuses those.

    Args:
        adaptor: reads the messages.
        judge: knows which values the map can take.
    """

    needs_rotation = False

    def __init__(self, adaptor: Adaptor, judge: Judge):
        self._adaptor, self._judge = adaptor, judge
        self.values = adaptor.values

    @property
    def inner(self) -> Adaptor:
        """The adaptor that reads the messages."""
        return self._adaptor

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """Read a message as the adaptor does; IMPOSSIBLE where the map cannot take its value.

        Args:
            msg: as of the adaptor.
            stamp: ns.
        """
        reading = self._adaptor.read(msg, stamp)
        if isinstance(reading, DropReason):
            return reading

        return (
            DropReason.IMPOSSIBLE if self._strangers(self.values([reading], None)[0]) else reading
        )

    def read_columns(self, columns: Columns) -> Readings | None:
        """As `read` of each; None where the adaptor reads messages one by one."""
        readings = self._adaptor.read_columns(columns) if reads_columns(self._adaptor) else None
        if readings is None:
            return None

        # rows that the adaptor refuses are not judged
        usable = np.setdiff1d(np.arange(len(readings)), list(readings.refused))
        strangers = usable[self._strangers(self.values_of_rows(readings.select(usable), None)[0])]
        return replace(
            readings,
            refused=readings.refused | dict.fromkeys(strangers.tolist(), DropReason.IMPOSSIBLE),
        )

    def values_of_rows(self, readings: Readings, turn) -> tuple[np.ndarray, np.ndarray]:
        """As the adaptor's.

        Args:
            readings: as of the adaptor.
            turn: as of the adaptor.

        Raises:
            TypeError: it reads messages one by one.
        """
        if not reads_columns(self._adaptor):
            raise TypeError(f"{type(self._adaptor).__name__} reads one by one")

        return self._adaptor.values_of_rows(readings, turn)

    def _strangers(self, y: np.ndarray) -> list[int]:
        return self._judge.rejected_rows(y.reshape(len(y), -1))

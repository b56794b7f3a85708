"""Whether two sessions' maps can be added, and what has to be closed in both before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gp_mapping.mapping.session import MapSession

__all__ = ["prepare_merge"]


def prepare_merge(session: MapSession, other: MapSession) -> None:
    """Check that two maps can be added; close the open cells of both, and finish their starts.

    Args:
        session: the one that is to take in the other.
        other: the map to be added.

    Raises:
        ValueError: units, channels or models differ, or one of them has seen little more than its
            first cells.
    """
    for name in ("field_unit", "model", "likelihood", "cells"):
        here, there = getattr(session.settings, name), getattr(other.settings, name)
        if here != there:
            raise ValueError(
                f"maps that differ in {name} cannot be merged: {here!r} here, {there!r} there"
            )

    if session.channels != other.channels:
        raise ValueError(
            f"maps of {session.channels} and of {other.channels} numbers in a measurement cannot be "
            "merged"
        )

    for each in (session, other):
        each.break_pass()
        # the first cells of a map that has hardly begun still decide its centre and starts
        if each.is_opening:
            raise ValueError(
                f"a map of {each.cell_count} cells has hardly begun and cannot be merged; map its "
                "recording with the other's instead"
            )
        each.finish_starts()
